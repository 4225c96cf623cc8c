"""The menu: every task of this folder, and the program of Invoke that runs them."""

from __future__ import annotations

import importlib
import pkgutil
from importlib import metadata

from invoke.collection import Collection
from invoke.program import Program

from build_pytorch import tasks
from build_pytorch.base.paths import SCRIPT
from build_pytorch.tasks.command import TASKS

for _module in pkgutil.iter_modules(tasks.__path__):
    importlib.import_module(f"{tasks.__name__}.{_module.name}")


def program() -> Program:
    """Return the installed program: the same tasks in any folder with a matrix.toml."""
    return Program(
        name=SCRIPT,
        binary=SCRIPT,
        namespace=Collection(*TASKS.values()),
        version=metadata.version("build-pytorch"),
    )
