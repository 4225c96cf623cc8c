"""What is compared: a package's result, a store path, a Python, or an official wheel."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import requests
from msgspec import Struct

from build_pytorch.base import foreign_json, outputs, paths, process
from build_pytorch.base.console import counted
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.files import write_all, write_errors
from build_pytorch.hardware.wheels import INDEX
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import select_packages
from build_pytorch.nix import store
from build_pytorch.results import artefacts
from build_pytorch.results.artefacts import Artefact

_WHEEL: Final = re.compile(r"wheel:(\d+(?:\.\d+)+)(?:\+(cpu|cu\d+))?")
_GIB: Final = 1 << 30
_UNPACKED: Final = 2.5
"""Bytes on disk for each byte of a wheel: less than 2, such as for torch 2.10.0 and its CUDA."""

Say = Callable[[str], object]
Wait = Callable[[int], object]


class ComparedBuild(Struct, frozen=True, kw_only=True):
    """A Python with the torch that is measured, and the result that it is of."""

    label: str
    python: Path
    env: Mapping[str, str | None] = {}
    package: Package | None = None
    artefact: Artefact | None = None


def build_of(matrix: Matrix, text: str, release: str = "") -> ComparedBuild:
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
    packages = select_packages(matrix, [text], release)
    if len(packages) > 1:
        raise BuildPytorchError(f"{text}: {len(packages)} packages; name one of them")
    (package,) = packages
    built = artefacts.find(matrix.root, package)
    if built is None:
        raise BuildPytorchError(f"{text}: {artefacts.absence(matrix.root, package)}")
    python, env = artefacts.interpreter(built, package.variant.release.python.version)
    return ComparedBuild(label=package.id, python=python, env=env, package=package, artefact=built)


def closure_bytes(build: ComparedBuild) -> int:
    """Return the size of a result with all that it needs; 0 where it is not in the Nix store."""
    folder = build.artefact.output if build.artefact else build.python
    try:
        return sum(store.sizes(store.requisites(str(folder)))) if build.artefact else 0
    except ToolError:  # no Nix here
        return 0


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


def wheel(root: Path, name: str, python: str, say: Say, on_wait: Wait) -> ComparedBuild:
    """Return the virtualenv of an official wheel in the state folder; install it if it is missing.

    `python`: the Python version that is preferred, such as 3.13; without it that of this process.
    `say` prints what is downloaded. Raises BuildPytorchError.
    """
    found = _WHEEL.fullmatch(name)
    assert found  # noqa: S101 - is_wheel
    version, line = found.groups()
    base = shutil.which(f"python{python}") or sys.executable
    folder = root / paths.STATE / "wheels" / f"{name[6:]}-{Path(base).name}"
    own, done = folder / "bin" / "python", folder / "complete"
    if not done.exists():
        say(f"{name}: asking {f'{INDEX}{line}' if line else 'PyPI, or the index of pip'}")
        with write_errors(folder):
            outputs.make_state(root)
        uv = shutil.which("uv")
        seed = (
            [uv, "venv", "--clear", "--seed", "-p", base] if uv else [base, "-m", "venv", "--clear"]
        )
        process.capture([*seed, str(folder)])
        wanted = [f"torch=={version}{f'+{line}' if line else ''}"]
        wanted += ["--index-url", f"{INDEX}{line}"] if line else []
        dry_run = [str(own), "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-"]
        _announce(name, _run([*dry_run, *wanted], name, on_wait), folder, say)
        install = (
            [uv, "pip", "install", "-p", str(own)] if uv else [str(own), "-m", "pip", "install"]
        )
        _run([*install, "--quiet", *wanted], name, on_wait)
        with write_errors(done):
            write_all(folder, {done.name: b""})
    return ComparedBuild(label=f"wheel {name[6:]}", python=own)


class _Origin(Struct):
    url: str


class _Download(Struct):
    download_info: _Origin


class _InstallReport(Struct):
    install: tuple[_Download, ...]


def _announce(name: str, report: str, folder: Path, say: Say) -> None:
    """Print what a report of pip says is downloaded and how large it is.

    Raises BuildPytorchError if the disk has no space for it.
    """
    try:
        found = msgspec.convert(foreign_json.decode(report), _InstallReport)
    except ValueError as error:
        raise ToolError(f"pip: its report cannot be read: {error}") from None
    urls = [item.download_info.url for item in found.install]
    sizes = [_size(url) for url in urls]
    total, unknown = sum(filter(None, sizes)), sizes.count(None)
    files = f"{counted(len(urls), 'file')}, {total / _GIB:.2f} GiB" + (
        f" and {unknown} of unknown size" if unknown else ""
    )
    say(f"{name}: downloading {files} into {folder}")
    free = shutil.disk_usage(folder).free
    if free < total * _UNPACKED:
        need = total * _UNPACKED / _GIB
        raise BuildPytorchError(
            f"{folder}: {free / _GIB:.1f} GiB are free; {name} needs {need:.1f}"
        )


def _size(url: str) -> int | None:
    """Return the size of a file, or None if nobody says it."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            return Path(unquote(parts.path)).stat().st_size
        answer = requests.head(url, allow_redirects=True, timeout=10)
        return int(answer.headers["Content-Length"]) if answer.ok else None
    except (OSError, KeyError, ValueError):  # requests' errors are OSErrors
        return None


def _run(argv: list[str], name: str, on_wait: Wait) -> str:
    """Run pip or uv and return its output. Raises ToolError with the line that says why not."""
    done = process.start(argv).finish(callback=on_wait)
    if done.code:
        lines = [line for line in done.tail.splitlines() if "ERROR" in line or "error" in line]
        raise ToolError(f"{name}: cannot be installed: {(lines or [done.last_line])[-1]}")
    return done.stdout
