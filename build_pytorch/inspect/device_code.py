"""Device code: each library holds that of the variant's GPU architecture; how large it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from build_pytorch.base.console import counted
from build_pytorch.base.versions import in_range
from build_pytorch.inspect.elf_file import DeviceObject, device_objects, read_elf
from build_pytorch.inspect.target import TORCH, InspectionFinding, Target
from build_pytorch.matrix.compatibility import capability_of, fit, sm_code
from build_pytorch.matrix.known_hardware import KnownCompanion

_LIST: Final = 3
"""Least number of architectures that another library is compiled for when it brings a list."""


class BundledLibrary(NamedTuple):
    """A library that nixpkgs links into one of PyTorch's, compiled for a list of its own."""

    title: str
    share: float  #: the largest share of objects that may be of it
    severity: Literal["error", "warning"]  #: if it does not run on the GPU


_BUNDLED: Final = {
    "libtorch_cuda.so": BundledLibrary("NCCL", 0.25, "warning"),
    "libtorch_cuda_linalg.so": BundledLibrary("MAGMA", 1.0, "error"),
}
"""MAGMA 2.6 has 99 to 437 objects, NCCL 16 (2.28) to 90; libtorch_cuda.so has 383 to 456 of its own
(PyPI, Debian)."""


class AddedCode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    """The machine code that the objects of a product have: one of `wanted`, others of `allowed`.

    The main library has each of `needed` as well.
    """

    product: KnownCompanion
    capability: str
    wanted: set[str]
    allowed: set[str]
    needed: tuple[str, ...]


def expected_code(target: Target) -> ExpectedCode | None:
    """Return what the device code of a target must be; None: there is none."""
    variant = target.package.variant
    if variant.gpu is None or variant.release.cuda is None:
        return None
    cuda, torch = variant.release.cuda.version, variant.release.torch.version
    capability, code = variant.gpu.capability, sm_code(variant.gpu.capability)
    added = []
    for one in _ADDED if target.product is TORCH else ():
        is_known = in_range(cuda, f">={one.cuda}") and in_range(torch, f">={one.torch}")
        added += [one] if one.base == capability and is_known else []
    wanted = {code, f"{code}a", f"{code}f"}  # a, f: features of these GPUs or of their family
    allowed = wanted.union(one.code for one in added)
    needed = tuple(one.code for one in added if one.needed)
    return ExpectedCode(target.product, capability, wanted, allowed, needed)


def check_device_code(target: Target, figures: dict[str, Any]) -> Iterator[InspectionFinding]:
    """Compare the device code of every library with the GPU architecture of the variant.

    Figures: the bytes of each library by architecture, and of its host part.
    """
    product, expected = target.product, expected_code(target)
    holding, figures["sizes"] = {}, {}
    for path in [*target.libraries(), *(_nccl_beside(target) if expected else ())]:
        elf = read_elf(path)
        held, sizes = device_objects(elf), Counter[str]()
        for each in held:
            sizes.update(each.images)
        sizes["host"] = elf.size - sizes.total()
        by_name = sorted(sizes.items(), key=lambda item: (len(item[0]), item))
        figures["sizes"][path.name] = dict(by_name)
        if held and path.parent == target.folder:
            holding[path.name] = held
        if expected is None and (held or "cuda" in path.name):
            found = "device code" if held else "a library for CUDA"
            right = f"none in a CPU-only {product.title}"
            yield InspectionFinding("error", path.name, found, right)
    if expected is None:
        return
    version, none, main = target.package.version, product.no_device_code, product.device_code[0]
    if not holding and none and in_range(version, none):
        found = f"{product.title} {version} has no device code"
        yield InspectionFinding("undecided", main, found)
        return
    main = next((name for name in product.device_code if name in holding), main)
    if main not in holding:
        cpu_only = f"no device code in any library: this {product.title} is CPU-only"
        found = "missing, or without device code" if holding else cpu_only
        code = sm_code(expected.capability)
        yield InspectionFinding("error", main, found, f"device code for {code}")
    for name, held in holding.items():
        yield from judge_library(name, held, expected, is_main=name == main)


def judge_library(
    library: str, objects: Sequence[DeviceObject], expected: ExpectedCode, *, is_main: bool
) -> Iterator[InspectionFinding]:
    """Judge the objects of a library; the main one must have code for the variant."""
    bundled, product = _BUNDLED.get(library), expected.product.title
    bundled = bundled if expected.product is TORCH else None
    others = [each for each in objects if bundled and _is_bundled(each, expected.allowed)]
    if bundled and 0 < len(others) <= bundled.share * len(objects):
        yield from _judge_bundled(library, bundled, others, expected.capability)
    else:  # so many are PyTorch's own, compiled for a list
        others = []
    ours = [each for each in objects if each not in others]
    present = {code for each in ours for code in each.cubins}
    without = [e for e in ours if e.cubins and expected.wanted.isdisjoint(e.cubins)]
    found, code = "", sm_code(expected.capability)
    if is_main and not present & expected.wanted:
        found = f"device code for {_counts(each.cubins for each in ours) or 'nothing'}"
    elif without:
        number = f"{counted(len(without), 'object')} of {product}"
        codes = _counts(each.cubins for each in without)
        found = f"{number} without code for {code}, but for {codes}"
    elif present - expected.allowed:
        codes = _counts(each.cubins - expected.allowed for each in ours)
        found = f"device code of {product} for {codes}"
    if found:
        yield InspectionFinding("error", library, found, f"{code} and nothing else")
    for needed in expected.needed if is_main and not without else ():
        if present.isdisjoint({needed, f"{needed[:-1]}f"}):
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
    library: str, bundled: BundledLibrary, objects: Sequence[DeviceObject], capability: str
) -> Iterator[InspectionFinding]:
    """Note the code that was compiled elsewhere; find what does not run on the GPU."""
    title, codes = bundled.title, _counts(each.cubins for each in objects)
    yield InspectionFinding("note", library, f"{title} for {codes}")
    lists = [each for each in objects if any(code[-1].isdigit() for code in each.cubins)]
    lacking = []
    for each in lists:
        code, ptx = (tuple(map(capability_of, codes)) for codes in (each.cubins, each.ptx))
        if fit(code, ptx, capability) is None:
            lacking.append(each)
    if lacking:
        number, codes = counted(len(lists), "object"), _counts(each.cubins for each in lacking)
        found, right = f"{len(lacking)} of {number} of {title}", f"code that runs on {capability}"
        fix = f"{title} fails on this GPU: build it for {capability} as well (cudaCapabilities)"
        yield InspectionFinding(bundled.severity, library, f"{found} for {codes}", right, fix)


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
