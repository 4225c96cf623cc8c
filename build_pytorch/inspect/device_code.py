"""Device code: the product's own is for the variant's capabilities; NCCL and MAGMA bring theirs.

The architectures are read from the library. Where some are not the variant's, the symbols decide
whose code it is: device_code.toml has the patterns.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, structs
from packaging.version import Version

from build_pytorch.base.console import counted, grouped
from build_pytorch.base.errors import ToolError
from build_pytorch.base.versions import in_range
from build_pytorch.inspect import fatbin
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.inspect.fatbin import DeviceObject
from build_pytorch.inspect.part import TORCH, PartResult, Progress, Target
from build_pytorch.matrix.compatibility import sm_code
from build_pytorch.matrix.official_wheels import code_runs_on
from build_pytorch.matrix.tables import GpuArchitecture


class CodeOwner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose device code it is. Bundled: compiled elsewhere, for a list of its own."""

    symbol: str
    bundled: bool = False


class AddedCode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An architecture that PyTorch adds for some files; the fields are in device_code.toml."""

    base: str
    code: str
    cuda: str
    torch: str
    needed: bool = False


class DeviceCodeTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of device_code.toml."""

    owners: dict[str, CodeOwner]
    added: tuple[AddedCode, ...]


_TABLE: Final = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=DeviceCodeTable
)
_OWN: Final = TORCH.title
_UNKNOWN: Final = "unknown owner"


class ExpectedCode(Struct, frozen=True, kw_only=True):
    """The device code that a product itself has."""

    product: str
    """PyTorch, or a companion: all device code of a companion is its own."""
    library: str
    """The library that must have device code."""
    code: str
    """Every object has machine code for it, such as sm_120 or its own features sm_120a."""
    added: tuple[AddedCode, ...]

    @property
    def allowed(self) -> set[str]:
        """The machine code that an object may have."""
        return {one.code for one in self.added} | _with_features(self.code)

    def is_right(self, each: DeviceObject) -> bool:
        """Whether an object has all that is expected and no other machine code."""
        has_code = not _with_features(self.code).isdisjoint(each.cubins)
        return has_code and self.allowed.issuperset(each.cubins)


def check_device_code(target: Target, result: PartResult, progress: Progress) -> None:
    """Compare the device code of every library with the GPU architectures of the variant."""
    files = {path.name: read_elf(path) for path in target.libraries()}
    gpu, product = target.variant.gpu, target.product
    holding = {name: elf for name, elf in files.items() if elf.named(fatbin.SECTION)}
    result.figures["device_code"] = list(holding)
    result.passed += holding if gpu else files
    if gpu is None:
        for name in files:
            if name in holding or "cuda" in name:
                found = "device code" if name in holding else "a library for CUDA"
                result.error(name, found, f"none in a CPU-only {product.title}")
        return
    version, none = target.package.version, product.no_device_code
    if not holding and none and in_range(version, none):
        result.reason = f"{product.title} {version} has no device code"
        result.passed = []
        return
    present = [name for name in product.device_code if name in holding]
    expected = expected_code(target, gpu, (present or product.device_code)[0])
    if not present:
        result.passed += [] if holding else [expected.library]
        cpu_only = f"no device code in any library: this {product.title} is CPU-only"
        found = "missing, or without device code" if holding else cpu_only
        result.error(expected.library, found, f"device code for {expected.code}")
    undecided = []
    for number, (name, elf) in enumerate(holding.items()):
        progress(f"device code of {name}", number, len(holding))
        objects, fault = fatbin.device_objects(elf), ""
        names = [{expected.product}] * len(objects)  # nothing else is linked into a companion
        if expected.product == _OWN:
            try:
                names = fatbin.symbol_owners(elf.path, objects, owner_of)
            except ToolError as error:
                fault, names = str(error).splitlines()[0], [{_UNKNOWN}] * len(objects)
        if unknown := judge_library(name, objects, names, expected, gpu, result):
            undecided.append(f"{name}: {unknown}" + (f": {fault}" if fault else ""))
    result.reason = "; ".join(undecided)


def judge_library(  # noqa: PLR0913, PLR0917 - a library, what is expected of it, and the result
    library: str,
    objects: Sequence[DeviceObject],
    names: Sequence[set[str]],
    expected: ExpectedCode,
    gpu: GpuArchitecture,
    result: PartResult,
) -> str:
    """Judge the objects of a library and return what could not be decided, or "".

    `names`: what the symbols of each object say of its owner. Objects of an unknown owner whose
    architectures are right count as PyTorch's.
    """
    owned = []
    for each, held in zip(objects, names, strict=True):
        owner = min(held, key=[*_TABLE.owners, _UNKNOWN, expected.product].index, default="")
        if owner == _UNKNOWN and expected.is_right(each):
            owner = _OWN
        owned.append(structs.replace(each, owner=owner))
    owners = grouped((each.owner or "no functions", each) for each in owned)
    result.figures[library] = {
        **_figures(owned),
        "owners": {owner: _figures(held) for owner, held in sorted(owners.items())},
    }
    _check_own(library, owned, expected, result)
    _check_bundled(library, owned, gpu, result)
    unknown = owners.get(_UNKNOWN)
    if not unknown:
        return ""
    number = f"{counted(len(unknown), 'object')} of {len(owned)}"
    return f"the owner of {number} cannot be told, with code for {_counts(unknown)}"


def expected_code(target: Target, gpu: GpuArchitecture, library: str) -> ExpectedCode:
    """Return what a target's own device code must be; `library` must have some."""
    release = target.variant.release
    cuda, torch = release.cuda.version if release.cuda else "0", release.torch.version
    added = (
        one
        for one in _TABLE.added
        if one.base == gpu.capability
        and Version(cuda) >= Version(one.cuda)
        and Version(torch) >= Version(one.torch)
    )
    return ExpectedCode(
        product=target.product.title,
        library=library,
        code=sm_code(gpu.capability),
        added=tuple(added) if target.product is TORCH else (),
    )


def _with_features(code: str) -> set[str]:
    """Return the names of one architecture; a, f: features of these GPUs or of their family."""
    return {code, f"{code}a", f"{code}f"}


@functools.lru_cache(maxsize=1 << 16)
def owner_of(symbol: str) -> str:
    """Return the owner whose pattern is found in the name of a function."""
    owners = _TABLE.owners.items()
    return next((name for name, owner in owners if re.search(owner.symbol, symbol)), _UNKNOWN)


def _check_own(
    library: str, objects: Sequence[DeviceObject], expected: ExpectedCode, result: PartResult
) -> None:
    """Find missing and surplus architectures in the product's own code."""
    ours = [each for each in objects if each.owner == expected.product]
    known = ours + [each for each in objects if each.owner == _UNKNOWN]
    compiled = [each for each in ours if each.cubins]
    present = {name for each in known for name in each.cubins}
    is_main = library == expected.library
    wanted = _with_features(expected.code)
    if is_main and not present & wanted:
        found = f"device code for {_counts(known) or 'nothing'}"
        result.error(library, found, f"for {expected.code}")
        return
    if without := [each for each in compiled if wanted.isdisjoint(each.cubins)]:
        number = f"{counted(len(without), 'object')} of {expected.product}"
        found = f"{number} without code for {expected.code}, but for {_counts(without)}"
        result.error(library, found, f"{expected.code} in each")
    if surplus := Counter(c for each in ours for c in each.cubins if c not in expected.allowed):
        found = f"device code of {expected.product} for {_listing(surplus)}"
        result.error(library, found, f"{expected.code} and nothing else")
    for added in expected.added:
        is_there = not present.isdisjoint({added.code, f"{added.code[:-1]}f"})
        if is_main and added.needed and not is_there:
            result.error(
                library,
                f"no {added.code} code: FP8 row-wise matrix products fail",
                f"{added.code} in RowwiseScaledMM.cu, where {sm_code(added.base)} is asked for",
                'look in the build log for "cmake/Codegen.cmake has no condition", and build again',
            )
    if surplus := Counter(name for each in known for name in each.ptx):
        fix = "none needed: PTX makes the library larger and the start on newer GPUs slower"
        none = "none: recipes build binaries only"
        result.warning(library, f"PTX of {_listing(surplus)}", none, fix)


def _check_bundled(
    library: str, objects: Sequence[DeviceObject], gpu: GpuArchitecture, result: PartResult
) -> None:
    """Note the code that was compiled elsewhere; warn where it does not run on the GPUs."""
    by_owner = grouped((each.owner, each) for each in objects)
    for owner in (name for name, owner in _TABLE.owners.items() if owner.bundled):
        held = by_owner.get(owner, [])
        if held:
            result.notes.append(f"{library}: {owner} for {_counts(held)}")
        capability = gpu.capability
        if lacking := [each for each in held if not _runs(each, capability)]:
            number = f"{len(lacking)} of {counted(len(held), 'object')} of {owner}"
            result.warning(
                library,
                f"{number} for {_counts(lacking)}",
                f"code that runs on {capability}",
                f"{owner} fails on this GPU: build it for {capability} as well (cudaCapabilities)",
            )


def _runs(each: DeviceObject, capability: str) -> bool:
    """Whether one of the architectures runs on a GPU; PTX is compiled for newer ones."""
    ptx = (code.replace("sm", "compute") for code in each.ptx)
    return code_runs_on((*each.cubins, *ptx), capability) is not None


def _figures(objects: Sequence[DeviceObject]) -> dict[str, Any]:
    """Return how many objects hold each architecture."""
    return {
        "elf": dict(sorted(Counter(c for each in objects for c in each.cubins).items())),
        "ptx": dict(sorted(Counter(c for each in objects for c in each.ptx).items())),
    }


def _counts(objects: Iterable[DeviceObject]) -> str:
    return _listing(Counter(code for each in objects for code in each.cubins))


def _listing(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({number})" for name, number in sorted(counts.items()))
