"""What is compared: a package's result, a store path, a Python, or an official wheel."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from build_pytorch.base import foreign_json, installed_torch, paths, process
from build_pytorch.base.console import waiting
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.files import write_all, write_errors
from build_pytorch.matrix.available import INDEX
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import select_packages
from build_pytorch.matrix.versions import release_of
from build_pytorch.nix import store
from build_pytorch.results import artefacts
from build_pytorch.results.artefacts import Artefact
from build_pytorch.smoke.script import ending

_WHEEL: Final = re.compile(r"wheel:\d+(?:\.\d+)+(?:\+(cpu|cu\d+))?")
_SECONDS: Final = 600.0
"""Maximum seconds of one process, whose import may come from a cold network file system."""

Say = Callable[[str], object]
_Answer = TypeVar("_Answer", bound=Struct)


class ComparedTorch(Struct, frozen=True, kw_only=True):
    """What torch says of itself in base/installed_torch.py; sizes are in bytes."""

    label: str = ""
    python: str
    version: str
    file: str
    cuda: str | None = None
    library_bytes: int = 0
    closure: int = 0  #: the result with all that it needs; 0: not in a Nix store

    @property
    def wheel(self) -> str:
        """The name of the official wheel of the same PyTorch version and CUDA."""
        line = f"cu{self.cuda.replace('.', '')}" if self.cuda else "cpu"
        return f"wheel:{release_of(self.version)}+{line}"


class ComparedBuild(Struct, frozen=True, kw_only=True):
    """A Python with the torch that is measured, and the result that it is of."""

    label: str
    python: Path
    env: Mapping[str, str | None] = {}
    package: Package | None = None
    artefact: Artefact | None = None


def find_build(
    matrix: Matrix, text: str, like: ComparedTorch | None, say: Say
) -> tuple[ComparedBuild, ComparedTorch]:
    """Return the build that a person names, and what its torch says of itself.

    `wheel` alone is the official wheel of the version and CUDA of `like`. A wheel that is missing
    is installed, and `say` prints from where. Raises BuildPytorchError.
    """
    if text == "wheel" and like:
        text = like.wheel
    if text.partition(":")[0] == "wheel":
        python = like.python if like else platform.python_version()
        build = wheel(matrix.root, text, ".".join(python.split(".")[:2]), say)
    else:
        build = _build_of(matrix, text)
    with waiting(f"starting {build.label}"):
        torch = answer_of(build, [installed_torch.__file__], {}, ComparedTorch)
    closure, artefact = 0, build.artefact
    is_torch = build.package and not build.package.companion
    if artefact and is_torch and not artefact.holds(torch.file):
        raise BuildPytorchError(f"{build.label}: imports another torch, {torch.file}")
    if artefact and process.which(store.NIX_STORE):
        closure = sum(store.sizes(store.requisites(str(artefact.output))))
    return build, msgspec.structs.replace(torch, label=build.label, closure=closure)


def _build_of(matrix: Matrix, text: str) -> ComparedBuild:
    """Return the build that a person names, which is no wheel. Raises BuildPytorchError."""
    path = Path(text)
    if path.is_absolute() and path.is_relative_to(store.folder()) and path.is_dir():
        version = re.search(r"-python(3\.\d+)-", path.name)
        if version is None:
            raise BuildPytorchError(f"{text}: not the store path of a Python package")
        artefact = Artefact(link=path, output=path)
        python, env = artefacts.interpreter(artefact, version[1])
        return ComparedBuild(label=path.name[33:], python=python, env=env, artefact=artefact)
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


def wheel(root: Path, name: str, python: str, say: Say) -> ComparedBuild:
    """Return the virtualenv of an official wheel in the state folder; install it if it is missing.

    `python`: the Python version that is preferred, such as 3.13; without it that of this process.
    Raises BuildPytorchError with the reason of pip.
    """
    found = _WHEEL.fullmatch(name)
    if found is None:
        raise BuildPytorchError(f"{name}: write wheel:2.10.0 or wheel:2.10.0+cu128")
    line = found[1]
    base = shutil.which(f"python{python}") or sys.executable
    folder = root / paths.STATE / "wheels" / f"{name[6:]}-{Path(base).name}"
    own, done = folder / "bin" / "python", folder / "complete"
    if not done.exists():
        origin = f"{INDEX}{line}" if line else "PyPI, or the index of your own settings"
        say(f"{name}: installing into {folder}, from {origin}; up to 5 GB")
        index = ["--index-url", f"{INDEX}{line}"] if line else []
        pip = [str(own), "-m", "pip", "--disable-pip-version-check", "install", "--no-color"]
        with waiting(f"installing {name}"):
            for argv in (
                [base, "-m", "venv", "--clear", str(folder)],
                [*pip, f"torch=={name[6:]}", *index],
            ):
                result = process.run(argv)
                if result.code:
                    said = (result.stderr or result.stdout or "no output").strip().splitlines()
                    raise ToolError(f"{name}: cannot be installed: {said[-1]}")
        with write_errors(done):
            write_all(folder, {done.name: b""})
    return ComparedBuild(label=f"wheel {name[6:]}", python=own)


def answer_of(
    build: ComparedBuild, argv: list[str], env: dict[str, str], kind: type[_Answer]
) -> _Answer:
    """Run a script in a build and return the keys of all lines of JSON that it prints.

    Raises BuildPytorchError with the reason if it fails.
    """
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1", **env}
    argv = [str(build.python), *argv]
    result = process.run(argv, env={**build.env, **env}, seconds=_SECONDS)
    document: dict[str, Any] = {}
    problem = f"Python {ending(result.code)}: {result.last_line}" * bool(result.code)
    if result.expired:
        problem = f"no answer after {_SECONDS:g} s"
    if not problem:
        try:
            for line in result.stdout.splitlines():
                document |= foreign_json.decode(line)
            if "error" not in document:
                return msgspec.convert(document, kind)
            problem = f"torch does not work: {document['error']}"
        except (ValueError, TypeError) as error:
            problem = f"its output is not a report: {error}"
    raise BuildPytorchError(f"{build.label}: {problem}")
