"""Which GPUs the device code in the libraries is for: cuobjdump from NVIDIA's CUDA toolkit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.inspection import Part, Proof, Target, Tell
from build_pytorch.matrix.model import GpuArchitecture, Variant
from build_pytorch.verify.check import CheckSkipped, Finding

_ADDED_BY_PYTORCH: Final = {"sm_86": ("sm_89",)}
"""caffe2/CMakeLists.txt compiles RowwiseScaledMM.cu for 8.9 as well where 8.6 is asked for. The
official wheel, which asks for 8.6 and not for 8.9, holds one sm_89 beside 456 sm_86."""

_FOREIGN: Final = {"libtorch_cuda_linalg.so": "MAGMA, which is linked into it"}
"""Libraries with device code of others: nixpkgs builds its static MAGMA for a list of its own, and
that of the official wheel brings sm_50 and sm_60, which PyTorch's own code there has not."""

_NO_DEVICE_CODE: Final = "does not contain device code"


def wanted(gpu: GpuArchitecture) -> str:
    """The name of an architecture as the CUDA tools write it: sm_120."""
    return f"sm_{gpu.capability.replace('.', '')}"


def look(part: Part, target: Target, tell: Tell) -> Proof:
    """Compare the device code of every library with what the variant is for."""
    libraries = target.libraries()
    holding = [library for library in libraries if _holds_device_code(library)]
    figures: dict[str, Any] = {"device_code": [library.name for library in holding]}
    gpu = target.variant.gpu
    if gpu is None:
        problems = list(_cpu_only(libraries, holding))
        return part.proof([library.name for library in libraries], problems, figures)
    if not holding:
        missing = Finding(
            path="libtorch_cuda.so",
            found="no device code in any library: this PyTorch is CPU-only",
            expected=f"device code for {wanted(gpu)}",
        )
        return part.proof(["libtorch_cuda.so"], [missing], figures)
    if process.which("cuobjdump") is None:
        raise CheckSkipped(f"cuobjdump: not found; {process.INSTALL['cuobjdump']}")
    problems = []
    if target.folder / "libtorch_cuda.so" not in holding:
        problems.append(
            Finding(
                path="libtorch_cuda.so",
                found="not there, or without device code",
                expected=f"device code for {wanted(gpu)}",
            )
        )
    for number, library in enumerate(holding):
        tell(f"device code of {library.name}", number, len(holding))
        elf = listed(library, "elf")
        ptx = listed(library, "ptx")
        figures[library.name] = {"elf": dict(sorted(elf.items())), "ptx": dict(sorted(ptx.items()))}
        problems += _problems(target.variant, gpu, library, elf, ptx)
    return part.proof([library.name for library in holding], problems, figures)


def listed(library: Path, kind: str) -> Counter[str]:
    """How many files of a kind (elf, ptx) a library holds for each architecture.

    Raises ToolError where cuobjdump cannot read the library.
    """
    found: Counter[str] = Counter()
    try:
        with process.piped(["cuobjdump", f"--list-{kind}", str(library)]) as out:
            for line in out:
                if match := re.search(rb"\.(sm_\d+[a-z]?)\.(?:cubin|ptx)", line):
                    found[match[1].decode()] += 1
    except ToolError as error:
        if _NO_DEVICE_CODE not in str(error):
            raise
    return found


def _holds_device_code(library: Path) -> bool:
    """Whether there is a section for it. cuobjdump would say so too, where it is installed."""
    return ".nv_fatbin" in process.capture(["readelf", "-SW", str(library)]).stdout


def _cpu_only(libraries: list[Path], holding: list[Path]) -> Iterator[Finding]:
    for library in libraries:
        if library in holding:
            yield Finding(
                path=library.name, found="device code", expected="none in a CPU-only PyTorch"
            )
        elif "cuda" in library.name:
            yield Finding(
                path=library.name,
                found="a library for CUDA",
                expected="none in a CPU-only PyTorch",
            )


def _problems(
    variant: Variant, gpu: GpuArchitecture, library: Path, elf: Counter[str], ptx: Counter[str]
) -> Iterator[Finding]:
    name = wanted(gpu)
    own = {name, f"{name}a", f"{name}f"}  # a, f: the same GPUs, with what only they or theirs have
    fitting = own | set(_ADDED_BY_PYTORCH.get(name, ()))
    if not own & elf.keys():
        held = ", ".join(sorted(elf)) or "nothing"
        yield Finding(path=library.name, found=f"device code for {held}", expected=f"for {name}")
    if extra := {code: number for code, number in sorted(elf.items()) if code not in fitting}:
        foreign = _FOREIGN.get(library.name)
        listing = ", ".join(f"{code} ({number})" for code, number in extra.items())
        yield Finding(
            path=library.name,
            found=f"device code for {listing}" + (f", as {foreign}, may bring" if foreign else ""),
            expected=f"{name} and nothing else",
            severity="warning" if foreign else "error",
            fix=f"{variant.package} is larger than it needs to be; nothing runs wrong"
            if foreign
            else "",
        )
    if ptx:
        listing = ", ".join(f"{code} ({number})" for code, number in sorted(ptx.items()))
        yield Finding(
            path=library.name,
            found=f"PTX of {listing}",
            expected="none: recipes ask for binaries alone",
            severity="warning",
            fix="PTX makes the library larger and newer GPUs slow to start; nothing runs wrong",
        )
