"""Whether PyTorch says of itself what the variant is: torch.__config__, or what it is made from.

Where the variant's Python runs here, it is asked, and has to answer. Where the platform is another,
the CPU lacks a flag, or there is only a folder, the same strings are read from the files: the flags
of the compiler and of nvcc from the libraries, the versions from version.py.
"""

from __future__ import annotations

import mmap
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.inspect import isa
from build_pytorch.inspect.device_code import wanted
from build_pytorch.inspect.inspection import Part, Proof, Target, Tell
from build_pytorch.matrix.model import CpuIsa, Variant
from build_pytorch.results.artefacts import Artefact, interpreter
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import cpu_mismatch
from build_pytorch.verify.check import CheckSkipped, Finding

_SECONDS: Final = 300.0
_ASK: Final = (
    "import torch; print(torch.__file__); print(torch.__version__); print(torch.__config__.show())"
)
_CXX: Final = b"-fvisibility-inlines-hidden"
"""In CXX_FLAGS of every PyTorch (CMakeLists.txt), and in no other of its strings."""
_NVCC: Final = b"-gencode;arch="
_NOT_ISA: Final = re.compile(
    r"-m(?:no-.+|tune=.+|cmodel=.+|64|fpmath=.+|abi=.+|prefer-vector-width=.+|tls-dialect=.+"
    r"|branch-protection=.+|outline-atomics|omit-leaf-frame-pointer|stackrealign"
    r"|indirect-branch.*|function-return=.+|fentry|harden-sls=.+)"
)
"""Flags that begin like those of an ISA and allow no instruction (GCC manual, "x86 Options",
"AArch64 Options")."""


class Config(Struct, frozen=True, kw_only=True):
    """What PyTorch says of itself; None where it does not say."""

    origin: str
    version: str | None = None
    cuda: str | None = None
    """Empty: built without."""
    cxx_flags: str | None = None
    nvcc_flags: str | None = None


def look(part: Part, target: Target, tell: Tell) -> Proof:
    """Compare what PyTorch says with the matrix. What it does not say leaves that undecided."""
    tell("torch.__config__", 0, 0)
    reason = _not_to_ask(target)
    if target.artefact is None or reason:
        config = from_files(target.folder)
    else:
        said, fault = _asked(target.artefact, target.variant)
        if fault:
            return part.proof(["torch"], [fault], {"from": "torch.__config__.show()"})
        config = from_text(said)
    figures: dict[str, Any] = {
        "from": config.origin,
        "not_asked": reason,
        "version": config.version,
        "cuda": config.cuda,
        "cxx_flags": config.cxx_flags,
        "nvcc_flags": config.nvcc_flags,
    }
    unsaid = ", ".join(_unsaid(target.variant, config))
    undecided = f"{config.origin}: nothing says {unsaid}" if unsaid else ""
    return part.proof([config.origin], _problems(target.variant, config), figures, undecided)


def _unsaid(variant: Variant, config: Config) -> Iterator[str]:
    """What cannot be compared."""
    if config.version is None:
        yield "the version"
    if config.cuda is None:
        yield "the CUDA version"
    if config.cxx_flags is None:
        yield "CXX_FLAGS"
    if variant.gpu and config.nvcc_flags is None:
        yield "nvcc's flags"


def _problems(variant: Variant, config: Config) -> Iterator[Finding]:
    release = variant.release

    def problem(found: str, expected: str) -> Finding:
        return Finding(path=config.origin, found=found, expected=expected)

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
        if surplus := [flag for flag in flags if _is_surplus(flag, variant.cpu)]:
            yield problem(
                f"CXX_FLAGS with {' '.join(surplus)}", f"only {' '.join(variant.cpu.flags)}"
            )
    if config.nvcc_flags is not None and variant.gpu:
        codes = sorted(set(re.findall(r"code=(\w+)", config.nvcc_flags)))
        if codes != [wanted(variant.gpu)]:
            yield problem(f"nvcc asked for {', '.join(codes) or 'nothing'}", wanted(variant.gpu))


def _short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _is_surplus(flag: str, cpu: CpuIsa) -> bool:
    """Whether a flag lets the compiler use more than the ISA has, or something nobody knows."""
    if not flag.startswith("-m") or flag in cpu.flags or _NOT_ISA.fullmatch(flag):
        return False
    names = isa.ISAS[cpu.platform].named_by(flag)
    return names is None or flag.startswith("-march=") or not isa.allowed(cpu).issuperset(names)


def _not_to_ask(target: Target) -> str:
    """Why the variant's Python cannot be asked here, though nothing is wrong with it."""
    if target.artefact is None:
        return "a folder has no Python of its own"
    here = f"{platform.machine()}-{platform.system().lower()}"
    if target.variant.cpu.platform != here:
        return f"{target.variant.cpu.platform} does not run on {here}"
    return cpu_mismatch(target.variant, platform.machine(), script.cpu_facts()["flags"])


def _asked(artefact: Artefact, variant: Variant) -> tuple[str, Finding | None]:
    """What the variant's own Python prints, or why it is none of the variant.

    Raises ToolError where there is no Python or it cannot be started, CheckSkipped where it hangs.
    """
    python, env = interpreter(artefact, variant.release.python.version)
    done = process.start([str(python), "-c", _ASK], env=env).finish(_SECONDS)
    if done.expired:
        raise CheckSkipped(f"its Python did not answer within {_SECONDS:g} s")
    if done.code:
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.code}"])[-1]
        return "", Finding(
            path="torch", found=f"its Python cannot import it: {last}", expected="that it does"
        )
    file, _, said = done.stdout.partition("\n")
    if not artefact.holds(file):
        return "", Finding(
            path="torch",
            found=f"its Python imports another one: {file or 'nothing'}",
            expected=f"one in {artefact.output}",
        )
    return said, None


def from_text(text: str) -> Config:
    """Read what torch.__config__.show() printed, below a line with the version."""
    settings = re.search(r"Build settings: (.*)", text)
    pairs = (
        dict(re.findall(r"(?:^|, )([A-Z0-9_]+)=(.*?)(?=, [A-Z0-9_]+=|, *$)", settings[1]))
        if settings
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
