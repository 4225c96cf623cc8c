"""Whether PyTorch says of itself what the variant is: torch.__config__, or what it is made from.

Where the variant's Python runs here, it is asked. Elsewhere the same strings are read from the
files: the flags of the compiler and of nvcc from the libraries, the versions from version.py.
"""

from __future__ import annotations

import mmap
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from build_pytorch import proc
from build_pytorch.checks.base import Problem, Skipped
from build_pytorch.model import Variant
from build_pytorch.prove.cuda import wanted
from build_pytorch.prove.parts import Part, Proof, Target, Tell, closure_of

_SECONDS: Final = 300.0
_ASK: Final = "import torch; print(torch.__version__); print(torch.__config__.show())"
_CXX: Final = b"-fvisibility-inlines-hidden"
"""In CXX_FLAGS of every PyTorch (CMakeLists.txt), and in no other of its strings."""
_NVCC: Final = b"-gencode;arch="


class Config(Struct, frozen=True, kw_only=True):
    """What PyTorch says of itself; None where it does not say."""

    origin: str
    version: str | None = None
    cuda: str | None = None
    """Empty: built without."""
    cxx_flags: str | None = None
    nvcc_flags: str | None = None


def look(part: Part, target: Target, tell: Tell) -> Proof:
    """Compare what PyTorch says with the matrix."""
    tell("torch.__config__", 0, 0)
    said, reason = asked(target)
    config = from_text(said) if said else from_files(target.folder)
    figures: dict[str, Any] = {
        "from": config.origin,
        "not_asked": reason,
        "version": config.version,
        "cuda": config.cuda,
        "cxx_flags": config.cxx_flags,
        "nvcc_flags": config.nvcc_flags,
    }
    if config.version is None and config.cxx_flags is None:
        raise Skipped(f"{reason}, and neither version.py nor the flags are in the files")
    return part.proof([config.origin], _problems(target.variant, config), figures)


def _problems(variant: Variant, config: Config) -> Iterator[Problem]:
    release = variant.release

    def problem(found: str, expected: str) -> Problem:
        return Problem(path=config.origin, found=found, expected=expected)

    if config.version is not None and config.version.partition("+")[0] != release.torch.version:
        yield problem(f"PyTorch {config.version}", release.torch.version)
    expected = release.cuda.version if variant.gpu and release.cuda else ""
    if config.cuda is not None and _short(config.cuda) != _short(expected):
        yield problem(f"CUDA {config.cuda or 'none'}", f"CUDA {expected or 'none'}")
    if config.cxx_flags is not None:
        flags = config.cxx_flags.split()
        if missing := [flag for flag in variant.cpu.flags if flag not in flags]:
            yield problem(
                f"CXX_FLAGS without {' '.join(missing)}", f"all of {' '.join(variant.cpu.flags)}"
            )
    if config.nvcc_flags is not None and variant.gpu:
        codes = sorted(set(re.findall(r"code=(\w+)", config.nvcc_flags)))
        if codes != [wanted(variant.gpu)]:
            yield problem(f"nvcc asked for {', '.join(codes) or 'nothing'}", wanted(variant.gpu))


def _short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def asked(target: Target) -> tuple[str, str]:
    """What the variant's own Python prints, or nothing and the reason why not."""
    variant = target.variant
    if not target.output:
        return "", "a folder has no Python of its own"
    here = f"{platform.machine()}-{platform.system().lower()}"
    if variant.cpu.platform != here:
        return "", f"{variant.cpu.platform} does not run on {here}"
    closure = closure_of(target.output)
    version = variant.release.python.version
    pythons = [Path(path) / f"bin/python{version}" for path in closure]
    python = next((path for path in pythons if path.exists()), None)
    if python is None:
        return "", f"no Python {version} in the closure"
    folders = [Path(path) / f"lib/python{version}/site-packages" for path in closure]
    search = ":".join(str(folder) for folder in folders if folder.is_dir())
    done = proc.start([str(python), "-c", _ASK], env={"PYTHONPATH": search}).finish(_SECONDS)
    if done.code:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        return "", f"its Python cannot import it here: {last}"
    return done.stdout, ""


def from_text(text: str) -> Config:
    """Read what torch.__config__.show() printed, below a line with the version."""
    settings = re.search(r"Build settings: (.*)", text)
    pairs = (
        dict(re.findall(r"(?:^|, )([A-Z0-9_]+)=(.*?)(?=, [A-Z0-9_]+=|, *$)", settings[1]))
        if (settings)
        else {}
    )
    runtime = re.search(r"CUDA Runtime ([0-9.]+)", text)
    nvcc = re.search(r"NVCC architecture flags: (\S+)", text)
    return Config(
        origin="torch.__config__.show()",
        version=text.partition("\n")[0].strip() or None,
        cuda=runtime[1] if runtime else "",
        cxx_flags=pairs.get("CXX_FLAGS"),
        nvcc_flags=nvcc[1] if nvcc else None,
    )


def from_files(folder: Path) -> Config:
    """Read the same from the libraries of a folder and the version.py beside it."""
    version = cuda = None
    source = folder.parent / "version.py"
    if source.is_file():
        text = source.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"(?m)^__version__ = ['\"]([^'\"]+)['\"]", text)
        version = found[1] if found else None
        if found := re.search(r"(?m)^cuda\b[^=\n]*= (?:None|['\"]([^'\"]*)['\"])", text):
            cuda = found[1] or ""
    return Config(
        origin="the files",
        version=version,
        cuda=cuda,
        cxx_flags=_string(folder / "libtorch_cpu.so", _CXX),
        nvcc_flags=_string(folder / "libtorch_cuda.so", _NVCC),
    )


def _string(library: Path, part: bytes) -> str | None:
    """The string of a library that holds some text, without reading the library into memory."""
    if not library.is_file() or not library.stat().st_size:
        return None
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        at = data.find(part)
        if at < 0:
            return None
        start, end = data.rfind(b"\0", 0, at) + 1, data.find(b"\0", at)
        return data[start:end].decode("utf-8", errors="replace")
