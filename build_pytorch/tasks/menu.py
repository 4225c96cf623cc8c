"""The menu: every task by its name, and the program of Invoke that runs them."""

from __future__ import annotations

import sys
from importlib import metadata

from invoke.collection import Collection
from invoke.program import Program

from build_pytorch.tasks.build import build
from build_pytorch.tasks.bump import bump
from build_pytorch.tasks.command import SCRIPT
from build_pytorch.tasks.compare import compare
from build_pytorch.tasks.diagnose import diagnose, log
from build_pytorch.tasks.init import init
from build_pytorch.tasks.inspect import inspect
from build_pytorch.tasks.machine import doctor, recommend
from build_pytorch.tasks.outdated import outdated
from build_pytorch.tasks.phases import all_, phase1, phase2, phase3, phase4, phase5
from build_pytorch.tasks.prefetch import prefetch
from build_pytorch.tasks.publish import publish
from build_pytorch.tasks.show import show
from build_pytorch.tasks.smoke import smoke
from build_pytorch.tasks.status import status
from build_pytorch.tasks.verify import verify


def program() -> Program:
    """Return the installed program: the same tasks in any folder with a matrix.toml."""
    return Program(
        name=SCRIPT,
        binary=SCRIPT,
        namespace=Collection.from_module(sys.modules[__name__]),
        version=metadata.version("build-pytorch"),
    )
