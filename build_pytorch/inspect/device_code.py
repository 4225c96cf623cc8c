"""Device code: each library holds that of the variant's GPU architecture; how large it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from build_pytorch.base.console import counted
from build_pytorch.inspect.elf_file import DeviceObject, device_objects, read_elf
from build_pytorch.inspect.target import TORCH, InspectionFinding, Target
from build_pytorch.matrix.compatibility import capability_of, fit, sm_code
from build_pytorch.matrix.known_hardware import KnownCompanion
from build_pytorch.matrix.versions import in_range

_LIST: Final = 3
"""Least number of architectures that another library is compiled for when it brings a list."""


Severity = Literal["error", "warning"]
_BUNDLED: Final[dict[str, tuple[str, float, Severity]]] = {
    "libtorch_cuda.so": ("NCCL", 0.25, "warning"),
    "libtorch_cuda_linalg.so": ("MAGMA", 1.0, "error"),
}
"""What nixpkgs links into a library, compiled for a list of its own; the largest share of objects
that may be of it; how bad it is if it does not run on the GPU. MAGMA 2.6 has 99 to 437 objects,
NCCL 16 (2.28) to 90; libtorch_cuda.so has 383 to 456 of its own (PyPI, Debian)."""


class AddedCode(Struct, frozen=True, kw_only=True):
    """An architecture that PyTorch adds for some files; device_code.toml explains the fields."""

    base: str
    code: str
    cuda: str
    torch: str
    needed: bool = False


_ADDED: Final = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, tuple[AddedCode, ...]]
)["added"]


class ExpectedCode(NamedTuple):
    """The machine code that objects have: one of `wanted`, and no other than `allowed`."""

    product: KnownCompanion
    capability: str
    wanted: set[str]
    allowed: set[str]
    needed: list[str]  #: the main library has each of them


def expected_code(target: Target) -> ExpectedCode | None:
    """Return what the device code of a target must be; None: there is none."""
    variant, product = target.package.variant, target.product
    if variant.gpu is None or variant.release.cuda is None:
        return None
    cuda, torch, capability = variant.release.cuda, variant.release.torch, variant.gpu.capability
    added = [
        one
        for one in (_ADDED if product is TORCH else ())
        if one.base == capability
        and in_range(cuda.version, f">={one.cuda}")
        and in_range(torch.version, f">={one.torch}")
    ]
    code = sm_code(capability)
    wanted = {code, f"{code}a", f"{code}f"}  # a, f: features of these GPUs or of their family
    allowed = wanted.union(one.code for one in added)
    needed = [one.code for one in added if one.needed]
    return ExpectedCode(product, capability, wanted, allowed, needed)


def check_device_code(target: Target, figures: dict[str, Any]) -> Iterator[InspectionFinding]:
    """Compare the device code of every library with the GPU architecture of the variant.

    Figures: the bytes of each library by architecture, and of its host part.
    """
    product, expected = target.product, expected_code(target)
    holding, figures["sizes"] = dict[str, list[DeviceObject]](), {}
    for path in [*target.libraries(), *(_nccl_beside(target) if expected else ())]:
        elf = read_elf(path)
        objects, sizes = device_objects(elf), Counter[str]()
        for each in objects:
            sizes.update(each.images)
        sizes["host"] = elf.size - sizes.total()
        by_name = sorted(sizes.items(), key=lambda item: (len(item[0]), item))
        figures["sizes"][path.name] = dict(by_name)
        if objects and path.parent == target.folder:
            holding[path.name] = objects
        if expected is None and (objects or "cuda" in path.name):
            found = "device code" if objects else "a library for CUDA"
            right = f"none in a CPU-only {product.title}"
            yield InspectionFinding("error", path.name, found, right)
    if expected is None or not figures["sizes"]:
        return  # without a library at all, nobody knows what was built
    version, none = target.package.version, product.no_device_code
    main = next((name for name in product.device_code if name in holding), product.device_code[0])
    if not holding and none and in_range(version, none):
        found = f"{product.title} {version} has no device code"
        yield InspectionFinding("undecided", main, found)
    elif main not in holding:
        cpu_only = f"no device code in any library: this {product.title} is CPU-only"
        found = "missing, or without device code" if holding else cpu_only
        yield InspectionFinding(
            "error", main, found, f"device code for {sm_code(expected.capability)}"
        )
    for name, objects in holding.items():
        yield from judge_library(name, objects, expected, is_main=name == main)


def judge_library(
    library: str, objects: Sequence[DeviceObject], expected: ExpectedCode, *, is_main: bool
) -> Iterator[InspectionFinding]:
    """Judge the objects of a library; the main one must have code for the variant."""
    title, code, ours = expected.product.title, sm_code(expected.capability), list(objects)
    if library in _BUNDLED and expected.product is TORCH:
        name, share, severity = _BUNDLED[library]
        others = [each for each in objects if _is_bundled(each, expected.allowed)]
        if 0 < len(others) <= share * len(objects):  # more are PyTorch's own, compiled for a list
            ours = [each for each in objects if each not in others]
            yield _judge_bundled(library, name, severity, others, expected.capability)
    cubins = [each.cubins for each in ours if each.cubins]
    wrong = [each for each in cubins if not (each & expected.wanted and each <= expected.allowed)]
    if wrong or (is_main and not cubins):
        found = f"{counted(len(wrong), 'object')} of {title} for {_counts(wrong) or 'nothing'}"
        yield InspectionFinding("error", library, found, f"{code} and nothing else")
    for needed in expected.needed if is_main and not wrong else ():
        if not any({needed, f"{needed[:-1]}f"} & each for each in cubins):
            found = f"no {needed} code: FP8 row-wise matrix products fail"
            right = f"{needed} in RowwiseScaledMM.cu, beside {code}"
            fix = 'look for "cmake/Codegen.cmake has no condition" in the log, and build again'
            yield InspectionFinding("error", library, found, right, fix)
    if ptx := _counts(each.ptx for each in ours):
        fix = "none needed: PTX makes the library larger and the start on newer GPUs slower"
        yield InspectionFinding("warning", library, f"PTX: {ptx}", "binaries only", fix)


def _is_bundled(each: DeviceObject, allowed: set[str]) -> bool:
    """Return whether an object has a list of its own, or code for features of other GPUs alone."""
    plain = [code for code in each.cubins if code[-1].isdigit()]
    return not each.cubins <= allowed and (len(plain) >= _LIST or not plain)


def _judge_bundled(
    library: str, title: str, severity: Severity, objects: list[DeviceObject], capability: str
) -> InspectionFinding:
    """Note the code that was compiled elsewhere, or find that it does not run on the GPU."""
    found = f"{title} for {_counts(each.cubins for each in objects)}"
    code = tuple({capability_of(name) for each in objects for name in each.cubins})
    ptx = tuple({capability_of(name) for each in objects for name in each.ptx})
    if fit(code, ptx, capability):
        return InspectionFinding("note", library, found)
    fix = f"{title} fails on this GPU: build it for {capability} as well (cudaCapabilities)"
    return InspectionFinding(severity, library, found, f"code that runs on {capability}", fix)


def _nccl_beside(target: Target) -> list[Path]:
    """Return the NCCL that is no part of PyTorch's libraries: of a wheel, or of the closure."""
    if target.product is not TORCH:
        return []
    found = list(target.folder.parent.parent.glob("nvidia/*/lib/libnccl.so*"))
    for path in target.closure():
        found += Path(path).glob("lib/libnccl.so*") if "nccl" in path else ()
    return sorted({path.resolve() for path in found if path.is_file()})


def _counts(codes: Iterable[Iterable[str]]) -> str:
    """Return the architectures of objects with the number of objects that have them."""
    counts = Counter(code for each in codes for code in each)
    return ", ".join(f"{name} ({number})" for name, number in sorted(counts.items()))
