"""What is compared: a package's result, a store path, a Python, or an official wheel."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import paths, process
from build_pytorch.base.console import visible, waiting
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.files import write_all, write_errors
from build_pytorch.matrix.available import INDEX
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import select_packages
from build_pytorch.nix import store
from build_pytorch.results import artefacts
from build_pytorch.results.artefacts import Artefact

_WHEEL: Final = re.compile(r"wheel:(\d+(?:\.\d+)+)(?:\+(cpu|cu\d+))?")

Say = Callable[[str], object]


class ComparedBuild(Struct, frozen=True, kw_only=True):
    """A Python with the torch that is measured, and the result that it is of."""

    label: str
    python: Path
    env: Mapping[str, str | None] = {}
    package: Package | None = None
    artefact: Artefact | None = None


def build_of(matrix: Matrix, text: str) -> ComparedBuild:
    """Return the build that a person names, unless it is a wheel. Raises BuildPytorchError."""
    path = Path(text)
    if path.is_absolute() and path.is_relative_to(store.folder()) and path.is_dir():
        version = re.search(r"-python(3\.\d+)-", path.name)
        if version is None:
            raise BuildPytorchError(f"{text}: not the store path of a Python package")
        artefact = Artefact(link=path, output=path)
        python, env = artefacts.interpreter(artefact, version[1])
        return ComparedBuild(label=path.name[33:], python=python, env=env)
    if "/" in text and (found := shutil.which(text)):
        return ComparedBuild(label=text, python=Path(found).absolute())
    packages = select_packages(matrix, text)
    if len(packages) > 1:
        raise BuildPytorchError(f"{text}: {len(packages)} packages; name one of them")
    (package,) = packages
    built = artefacts.find(matrix.root, package)
    if built is None:
        raise BuildPytorchError(f"{text}: {artefacts.absence(matrix.root, package)}")
    python, env = artefacts.interpreter(built, package.variant.release.python.version)
    return ComparedBuild(label=package.id, python=python, env=env, package=package, artefact=built)


def closure_bytes(build: ComparedBuild) -> int:
    """Return the size of a result with all that it needs; 0 where Nix does not know it."""
    if build.artefact is None or not process.which(store.NIX_STORE):
        return 0
    return sum(store.sizes(store.requisites(str(build.artefact.output))))


def is_wheel(text: str) -> bool:
    """Whether a text names an official wheel. Raises BuildPytorchError for a wrong version."""
    if text.startswith("wheel:") and not _WHEEL.fullmatch(text):
        raise BuildPytorchError(f"{text}: write wheel, wheel:2.10.0 or wheel:2.10.0+cu128")
    return text == "wheel" or text.startswith("wheel:")


def wheel_like(version: str, cuda: str | None) -> str:
    """Return the name of the wheel of the same PyTorch version and CUDA line."""
    number = re.match(r"\d+(?:\.\d+)+", version)
    line = f"cu{cuda.replace('.', '')}" if cuda else "cpu"
    return f"wheel:{number[0] if number else version}+{line}"


def wheel(root: Path, name: str, python: str, say: Say) -> ComparedBuild:
    """Return the virtualenv of an official wheel in the state folder; install it if it is missing.

    `python`: the Python version that is preferred, such as 3.13; without it that of this process.
    `say` prints what is installed from where. Raises ToolError with the reason of pip.
    """
    found = _WHEEL.fullmatch(name)
    assert found  # noqa: S101 - is_wheel
    version, line = found.groups()
    base = shutil.which(f"python{python}") or sys.executable
    folder = root / paths.STATE / "wheels" / f"{name[6:]}-{Path(base).name}"
    own, done = folder / "bin" / "python", folder / "complete"
    if not done.exists():
        origin = f"{INDEX}{line}" if line else "PyPI, or the index of your own settings"
        say(f"{name}: installing into {folder}, from {origin}; up to 5 GB")
        wanted = f"torch=={version}{f'+{line}' if line else ''}"
        index = ["--index-url", f"{INDEX}{line}"] if line else []
        pip = [str(own), "-m", "pip", "install", "--no-color", wanted, *index]
        with waiting(f"installing {name}"):
            for argv in ([base, "-m", "venv", "--clear", str(folder)], pip):
                result = process.start(argv).finish()
                if result.code:
                    lines = (result.stderr or result.stdout or "no output").strip().splitlines()
                    errors = [line for line in lines if "error" in line.lower()] or lines
                    raise ToolError(f"{name}: cannot be installed: {visible(errors[-1])}")
        with write_errors(done):
            write_all(folder, {done.name: b""})
    return ComparedBuild(label=f"wheel {name[6:]}", python=own)
