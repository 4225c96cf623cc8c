"""Device code: the GPU architectures in the libraries, read by cuobjdump of the CUDA toolkit."""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Final

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.libraries import read_elf
from build_pytorch.inspect.part import Findings, PartRun, error, warning
from build_pytorch.matrix.compatibility import sm_code

_ADDED_BY_PYTORCH: Final = {"sm_86": {"sm_89"}}
"""caffe2/CMakeLists.txt compiles RowwiseScaledMM.cu for 8.9 too if 8.6 is selected. The official
wheel, which selects 8.6 and not 8.9, has one sm_89 beside 456 sm_86."""

_FOREIGN: Final = {"libtorch_cuda_linalg.so": "MAGMA, which is linked into it"}
"""Libraries with device code of others: nixpkgs builds its static MAGMA for its own list, and that
of the official wheel adds sm_50 and sm_60, which PyTorch's own code there does not have."""

_CUDA_LIBRARY: Final = "libtorch_cuda.so"


def look(run: PartRun) -> Findings:
    """Compare the device code of every library with the GPU architecture of the variant."""
    libraries, gpu = run.target.libraries(), run.target.variant.gpu
    holding = [path for path in libraries if b".nv_fatbin" in read_elf(path).section_names]
    run.figures["device_code"] = [library.name for library in holding]
    run.subjects += [library.name for library in (holding if gpu else libraries)]
    if gpu is None:
        for library in libraries:
            if library in holding or "cuda" in library.name:
                found = "device code" if library in holding else "a library for CUDA"
                yield error(library.name, found, "none in a CPU-only PyTorch")
        return
    code = sm_code(gpu.capability)
    if run.target.folder / _CUDA_LIBRARY not in holding:
        run.subjects += [] if holding else [_CUDA_LIBRARY]
        cpu_only = "no device code in any library: this PyTorch is CPU-only"
        found = "missing, or without device code" if holding else cpu_only
        yield error(_CUDA_LIBRARY, found, f"device code for {code}")
    for number, library in enumerate(holding):
        run.progress(f"device code of {library.name}", number, len(holding))
        elf, ptx = (_listed(library, kind) for kind in ("elf", "ptx"))
        run.figures[library.name] = {"elf": elf, "ptx": ptx}
        yield from _problems(library.name, code, run.target.variant.package, elf, ptx)


def installed_with_pip() -> str:
    """Return the cuobjdump of NVIDIA's package for pip, which is not on PATH, or ""."""
    site_packages = Path(sysconfig.get_path("purelib"))
    return str(max(site_packages.glob("nvidia/*/bin/cuobjdump"), default=""))


def _listed(library: Path, kind: str) -> dict[str, int]:
    """Return how many files of a kind (elf, ptx) a library contains for each architecture.

    Raises ToolError if cuobjdump is not installed or cannot read the library.
    """
    program = "cuobjdump" if process.which("cuobjdump") else installed_with_pip()
    found: Counter[str] = Counter()
    try:
        with process.piped([program or "cuobjdump", f"--list-{kind}", str(library)]) as out:
            for line in out:
                if match := re.search(rb"\.(sm_\d+[a-z]?)\.(?:cubin|ptx)", line):
                    found[match[1].decode()] += 1
    except ToolError as fault:
        if "does not contain device code" not in str(fault):
            raise
    return dict(sorted(found.items()))


def _problems(
    library: str, code: str, package: str, elf: dict[str, int], ptx: dict[str, int]
) -> Findings:
    own = {code, f"{code}a", f"{code}f"}  # a, f: features of these GPUs or of their family only
    if not own & elf.keys():
        held = ", ".join(elf) or "nothing"
        yield error(library, f"device code for {held}", f"for {code}")
    fitting = own | _ADDED_BY_PYTORCH.get(code, set())
    if extra := {name: number for name, number in elf.items() if name not in fitting}:
        found = f"device code for {_counts(extra)}"
        if foreign := _FOREIGN.get(library):
            found += f", possibly from {foreign}"
            fix = f"none needed: {package} works, and is larger than necessary"
            yield warning(library, found, f"{code} and nothing else", fix)
        else:
            yield error(library, found, f"{code} and nothing else")
    if ptx:
        fix = "none needed: PTX makes the library larger and the start on newer GPUs slower"
        yield warning(library, f"PTX of {_counts(ptx)}", "none: recipes build binaries only", fix)


def _counts(architectures: dict[str, int]) -> str:
    return ", ".join(f"{name} ({number})" for name, number in architectures.items())
