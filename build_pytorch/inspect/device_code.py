"""Device code: each library holds that of the variant's GPU architecture; how large it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.elf_file import MACHINES, DeviceObject, device_objects, read_elf
from build_pytorch.inspect.target import Findings, InspectionFinding, Target
from build_pytorch.matrix.compatibility import capability_of, fit, sm_code
from build_pytorch.matrix.versions import in_range

_LIST: Final = 3  #: a library that brings a list is compiled for at least so many architectures
_BUNDLED: Final[dict[str, tuple[str, float, Literal["error", "warning"]]]] = {
    "libtorch_cuda.so": ("NCCL", 0.25, "warning"),
    "libtorch_cuda_linalg.so": ("MAGMA", 1.0, "error"),
}
"""What nixpkgs links into a library, compiled for a list of its own; the largest share of objects
that may be of it; how bad it is if it does not run on the GPU. MAGMA 2.6 has 99 to 437 objects,
NCCL 16 (2.28) to 90; libtorch_cuda.so has 383 to 456 of its own (PyPI, Debian)."""


class AddedCode(Struct, frozen=True):
    """What PyTorch adds to an architecture; device_code.toml explains the fields."""

    needed: str = ""
    also: tuple[str, ...] = ()


_ADDED: Final = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, AddedCode]
)


def check_libraries(target: Target, figures: dict[str, Any]) -> Findings:
    """Find libraries that are not complete, or whose code is not for the variant's hardware.

    Figures: the bytes of each library by GPU architecture, and of its host part.
    """
    package, product, gpu = target.package, target.product, target.package.gpu
    machine, holding = MACHINES.get(package.platform), dict[str, list[DeviceObject]]()
    sizes = figures["sizes"] = dict[str, dict[str, int]]()
    if not target.has_main(target.folder):
        found, right = f"not in {target.folder}", f"{package.title}'s library"
        yield InspectionFinding("error", product.main[0], found, right)
    own = [it for it in target.folder.iterdir() if re.fullmatch(product.libraries, it.name)]
    beside = _nccl_beside(target) if gpu and package.companion is None else []
    for path in [*sorted(own), *beside]:
        try:
            elf = read_elf(path)
            objects = device_objects(elf)
            problem = f"for machine {elf.machine}" * (elf.machine != machine)
        except (ToolError, OSError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        if problem:
            right = f"a complete 64-bit ELF file for machine {machine}, which is {package.platform}"
            yield InspectionFinding("error", path.name, problem, right)
            continue
        code = sum(map(Counter, objects), Counter[str]())
        code["host"] = elf.size - code.total()
        sizes[path.name] = dict(sorted(code.items(), key=lambda item: (len(item[0]), item)))
        if objects and path.parent == target.folder:
            holding[path.name] = objects
        if gpu is None and (objects or "cuda" in path.name):
            right = f"none in a CPU-only {package.title}"
            yield InspectionFinding("error", path.name, "code for CUDA", right)
    if gpu and sizes:  # without a library at all, nobody knows what was built
        yield from _judge_all(target, gpu.capability, holding)


def _judge_all(target: Target, capability: str, holding: dict[str, list[DeviceObject]]) -> Findings:
    """Judge the libraries that have device code; the main one must have it."""
    package, names = target.package, target.product.device_code
    main = next((name for name in names if name in holding), names[0])
    if not holding and in_range(package.version, target.product.no_device_code or "<0"):
        return
    if main not in holding:
        found = f"no device code: this {package.title} is CPU-only"
        yield InspectionFinding("error", main, found, f"device code for {sm_code(capability)}")
    for name, objects in holding.items():
        yield from judge_library(target, capability, name, objects, is_main=name == main)


def judge_library(
    target: Target, capability: str, library: str, objects: Sequence[DeviceObject], *, is_main: bool
) -> Findings:
    """Judge the objects of a library; the main one must have code for the capability."""
    package, code, ours = target.package, sm_code(capability), list(objects)
    added = AddedCode() if package.companion else _ADDED.get(capability, AddedCode())
    wanted = {code, f"{code}a", f"{code}f"}  # a, f: features of these GPUs or of their family
    allowed = wanted.union(added.also)
    name, share, severity = _BUNDLED.get(library, ("", 0.0, "error"))
    others = [each for each in objects if _is_bundled(each, allowed)]
    if 0 < len(others) <= share * len(objects):  # more are PyTorch's own, compiled for a list
        ours = [each for each in objects if each not in others]
        cubins, ptx = (
            tuple({capability_of(it) for each in others for it in each if it.startswith(kind)})
            for kind in ("sm_", "compute_")
        )
        if not fit(cubins, ptx, capability):
            found, right = f"{name} for {_counts(others)}", f"code that runs on {capability}"
            fix = f"{name} fails on this GPU: build it for {capability} too (cudaCapabilities)"
            yield InspectionFinding(severity, library, found, right, fix)
    machine_code = [_cubins(each) for each in ours if _cubins(each)]
    wrong = [it for it in machine_code if not (it & wanted and it <= allowed)]
    is_needed = added.needed and in_range(package.version, f">={added.needed}")
    if wrong or (is_main and not machine_code):
        found = f"{len(wrong)} of {len(machine_code)} objects for {_counts(wrong) or 'nothing'}"
        yield InspectionFinding("error", library, found, f"{code} and nothing else")
    elif is_main and is_needed and not any(it - {code} & wanted for it in machine_code):
        found = f"no {code}a code: FP8 row-wise matrix products fail"
        fix = 'look for "cmake/Codegen.cmake has no condition" in the log, and build again'
        yield InspectionFinding("error", library, found, f"{code}a in RowwiseScaledMM.cu", fix)
    if ptx_code := _counts(each.keys() - _cubins(each) for each in ours):
        fix = "none needed: PTX makes the library larger and the start on newer GPUs slower"
        yield InspectionFinding("warning", library, f"PTX: {ptx_code}", "binaries only", fix)


def _cubins(device_object: DeviceObject) -> set[str]:
    """Return the architectures that an object has machine code for."""
    return {name for name in device_object if name.startswith("sm_")}


def _is_bundled(device_object: DeviceObject, allowed: set[str]) -> bool:
    """Return whether an object has a list of its own, or code for features of other GPUs alone."""
    cubins = _cubins(device_object)
    plain = [code for code in cubins if code[-1].isdigit()]
    return not cubins <= allowed and (len(plain) >= _LIST or not plain)


def _nccl_beside(target: Target) -> list[Path]:
    """Return the NCCL that is no part of PyTorch's libraries: of a wheel, or of the closure."""
    found = list(target.folder.parent.parent.glob("nvidia/*/lib/libnccl.so*"))
    for path in target.closure():
        found += Path(path).glob("lib/libnccl.so*") if "nccl" in path else ()
    return sorted({path.resolve() for path in found if path.is_file()})


def _counts(codes: Iterable[Iterable[str]]) -> str:
    """Return the architectures of objects with the number of objects that have them."""
    counts = Counter(code for each in codes for code in each)
    return ", ".join(f"{name} ({number})" for name, number in sorted(counts.items()))
