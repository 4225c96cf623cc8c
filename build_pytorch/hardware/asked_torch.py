"""What a Python says of its torch."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Final

import msgspec

from build_pytorch.base import files, foreign_json, process
from build_pytorch.base.console import ProgressLine
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.hardware import torch_facts
from build_pytorch.hardware.doctor import ImportedTorch, InstalledTorch

_SECONDS: Final = 120.0
"""Maximum time for the import of torch, which may come from a cold network file system."""


def path_of(name: str = "") -> str:
    """Return the absolute path of a Python: of a name, of the active environment, or python3.

    Links are not resolved. Raises BuildPytorchError if there is no such program.
    """
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    wanted = name or (f"{active}/bin/python" if active else "python3")
    path = shutil.which(wanted)
    if path is None:
        raise BuildPytorchError(f"{wanted}: no such program; name the Python that has torch")
    return str(Path(path).absolute())


def asked(python: str) -> tuple[InstalledTorch, ImportedTorch]:
    """Return what a Python says of its torch. Raises BuildPytorchError if it is no Python."""
    text = files.read_named(Path(torch_facts.__file__)).decode()
    with ProgressLine(f"importing the torch of {python}", 0) as progress:
        ran = process.start([python, "-"], stdin=text).finish(_SECONDS, progress.at)
    first, _, second = ran.stdout.partition("\n")
    try:
        installed = msgspec.convert(foreign_json.decode(first), InstalledTorch)
        if second:
            return installed, msgspec.convert(foreign_json.decode(second), ImportedTorch)
    except ValueError as error:
        raise BuildPytorchError(
            f"{python}: its answer is not that of a Python 3.8 or newer ({error}): {ran.last_line}"
        ) from None
    if ran.expired:
        return installed, ImportedTorch(error=f"no answer after {_SECONDS:g} s")
    by = {number.value: f"by {number.name}" for number in signal.Signals}
    how = by.get(-ran.code, f"with exit code {ran.code}")
    return installed, ImportedTorch(error=f"Python ended {how} during the import")
