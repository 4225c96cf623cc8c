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

from build_pytorch.base.console import counted
from build_pytorch.base.errors import ToolError
from build_pytorch.inspect import fatbin
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.inspect.fatbin import DeviceObject
from build_pytorch.inspect.part import Findings, PartRun, Target, error, warning
from build_pytorch.matrix.compatibility import runs_on, sm_code
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
_OWN: Final = "PyTorch"
_UNKNOWN: Final = "unknown owner"


class ExpectedCode(Struct, frozen=True, kw_only=True):
    """The device code that a product itself has, for one capability or several."""

    product: str
    """PyTorch, or a companion: all device code of a companion is its own."""
    library: str
    """The library that must have device code."""
    codes: tuple[str, ...]
    """Every object has machine code for each, such as sm_120 or its own features sm_120a."""
    ptx: str
    """Every object has PTX of this one; empty: none has PTX."""
    added: tuple[AddedCode, ...]

    @property
    def title(self) -> str:
        """The architectures as messages name them."""
        return " and ".join(self.codes) + (f" and PTX of {self.ptx}" if self.ptx else "")

    @property
    def allowed(self) -> set[str]:
        """The machine code that an object may have."""
        return {one.code for one in self.added}.union(*map(_with_features, self.codes))

    def is_right(self, each: DeviceObject) -> bool:
        """Whether an object has all that is expected and no other machine code."""
        has_all = not any(_with_features(code).isdisjoint(each.cubins) for code in self.codes)
        return has_all and self.allowed.issuperset(each.cubins) and self.ptx in (*each.ptx, "")


def look(run: PartRun) -> Findings:
    """Compare the device code of every library with the GPU architectures of the variant."""
    files = {path.name: read_elf(path) for path in run.target.libraries()}
    gpu, product = run.target.variant.gpu, run.target.product
    holding = {name: elf for name, elf in files.items() if elf.named(fatbin.SECTION)}
    run.figures["device_code"] = list(holding)
    run.subjects += holding if gpu else files
    if gpu is None:
        for name in files:
            if name in holding or "cuda" in name:
                found = "device code" if name in holding else "a library for CUDA"
                yield error(name, found, f"none in a CPU-only {product.title}")
        return
    present = [name for name in product.cuda if name in holding]
    expected = _expected(run.target, gpu, (present or product.cuda)[0])
    if not present:
        run.subjects += [] if holding else [expected.library]
        cpu_only = f"no device code in any library: this {product.title} is CPU-only"
        found = "missing, or without device code" if holding else cpu_only
        yield error(expected.library, found, f"device code for {expected.title}")
    undecided = []
    for number, (name, elf) in enumerate(holding.items()):
        run.progress(f"device code of {name}", number, len(holding))
        objects, reason = _with_owners(elf.path, fatbin.device_objects(elf), expected)
        undecided += [f"{name}: {reason}"] if reason else []
        run.figures[name] = _figures(objects)
        yield from _problems(name, objects, expected)
        for owner, held in _bundled(objects).items():
            run.notes.append(f"{name}: {owner} for {_counts(held)}")
            for capability in gpu.capabilities:
                yield from _unusable(name, owner, held, capability)
    run.undecided = "; ".join(undecided)


def _expected(target: Target, gpu: GpuArchitecture, library: str) -> ExpectedCode:
    codes, release = tuple(map(sm_code, gpu.capabilities)), target.variant.release
    cuda = release.cuda.version if release.cuda else "0"
    added = [
        each
        for each in _TABLE.added
        if each.base in gpu.capabilities
        and Version(cuda) >= Version(each.cuda)
        and Version(release.torch.version) >= Version(each.torch)
    ]
    return ExpectedCode(
        product=target.product.title,
        library=library,
        codes=codes,
        ptx=codes[-1] if gpu.ptx else "",
        added=tuple(added) if target.product.title == _OWN else (),
    )


def _with_features(code: str) -> set[str]:
    """Return the names of one architecture; a, f: features of these GPUs or of their family."""
    return {code, f"{code}a", f"{code}f"}


@functools.lru_cache(maxsize=1 << 16)
def owner_of(symbol: str) -> str:
    """Return the owner whose pattern is found in the name of a function."""
    owners = _TABLE.owners.items()
    return next((name for name, owner in owners if re.search(owner.symbol, symbol)), _UNKNOWN)


def _with_owners(
    library: Path, objects: Sequence[DeviceObject], expected: ExpectedCode
) -> tuple[list[DeviceObject], str]:
    """Return the objects with their owners, and what could not be decided.

    Objects of an unknown owner whose architectures are right count as PyTorch's. Nothing else is
    linked into a companion, so all objects are its own.
    """
    reason, names = "", [{expected.product}] * len(objects)
    if expected.product == _OWN:
        try:
            names = fatbin.symbol_owners(library, objects, owner_of)
        except ToolError as fault:
            reason, names = f": {str(fault).splitlines()[0]}", [{_UNKNOWN}] * len(objects)
    owned = []
    for each, held in zip(objects, names, strict=True):
        owner = min(held, key=[*_TABLE.owners, _UNKNOWN, expected.product].index, default="")
        if owner == _UNKNOWN and expected.is_right(each):
            owner = _OWN
        owned.append(structs.replace(each, owner=owner))
    unknown = [each for each in owned if each.owner == _UNKNOWN]
    if not unknown:
        return owned, ""
    number = f"{counted(len(unknown), 'object')} of {len(objects)}"
    return owned, f"the owner of {number} cannot be told, with code for {_counts(unknown)}{reason}"


def _problems(library: str, objects: Sequence[DeviceObject], expected: ExpectedCode) -> Findings:
    ours = [each for each in objects if each.owner == expected.product]
    known = ours + [each for each in objects if each.owner == _UNKNOWN]
    present = {name for each in known for name in each.cubins}
    if library == expected.library and not present & set().union(
        *map(_with_features, expected.codes)
    ):
        found = f"device code for {_counts(known) or 'nothing'}"
        yield error(library, found, f"for {expected.title}")
        return
    for code in expected.codes:
        wanted = _with_features(code)
        if without := [each for each in ours if each.cubins and wanted.isdisjoint(each.cubins)]:
            found = (
                f"{counted(len(without), 'object')} of {expected.product} without code for {code}"
            )
            yield error(library, f"{found}, but for {_counts(without)}", f"{code} in each")
    surplus = Counter(c for each in ours for c in each.cubins if c not in expected.allowed)
    if surplus:
        found = f"device code of {expected.product} for {_listing(surplus)}"
        yield error(library, found, f"{expected.title} and nothing else")
    for each in expected.added:
        wanted = {each.code, f"{each.code[:-1]}f"}
        if library == expected.library and each.needed and present.isdisjoint(wanted):
            yield error(
                library,
                f"no {each.code} code: FP8 row-wise matrix products fail",
                f"{each.code} in RowwiseScaledMM.cu, where {sm_code(each.base)} is asked for",
                'look in the build log for "cmake/Codegen.cmake has no condition", and build again',
            )
    ptx = expected.ptx
    if without := [each for each in ours if ptx and each.cubins and ptx not in each.ptx]:
        found = f"{counted(len(without), 'object')} of {expected.product} without PTX of {ptx}"
        yield error(library, found, f"PTX of {ptx} in each: newer GPUs need it")
    if surplus := Counter(name for each in known for name in each.ptx if name != ptx):
        fix = "none needed: PTX makes the library larger and the start on newer GPUs slower"
        wanted_ptx = f"of {ptx} only" if ptx else "none: recipes build binaries only"
        yield warning(library, f"PTX of {_listing(surplus)}", wanted_ptx, fix)


def _bundled(objects: Iterable[DeviceObject]) -> dict[str, list[DeviceObject]]:
    """Return the objects of each owner whose code was compiled elsewhere."""
    found: dict[str, list[DeviceObject]] = {}
    for each in objects:
        if each.owner in _TABLE.owners and _TABLE.owners[each.owner].bundled:
            found.setdefault(each.owner, []).append(each)
    return dict(sorted(found.items(), key=lambda item: [*_TABLE.owners].index(item[0])))


def _unusable(library: str, owner: str, held: Sequence[DeviceObject], capability: str) -> Findings:
    """Find bundled code that does not run on a GPU of the variant."""
    if lacking := [each for each in held if not _runs(each, capability)]:
        found = f"{len(lacking)} of {counted(len(held), 'object')} of {owner}"
        fix = f"{owner} fails on this GPU: build it for {capability} as well (cudaCapabilities)"
        expected = f"code that runs on {capability}"
        yield warning(library, f"{found} for {_counts(lacking)}", expected, fix)


def _runs(each: DeviceObject, capability: str) -> bool:
    """Whether one of the architectures runs on a GPU; PTX is compiled for newer ones."""
    plain = [_capability(code) for code in each.cubins if code[-1].isdecimal()]
    ptx = [_capability(code) for code in each.ptx if code[-1].isdecimal()]
    return (
        any(runs_on(built, capability) for built in plain)
        or f"{sm_code(capability)}a" in each.cubins
        or any(Version(oldest) <= Version(capability) for oldest in ptx)
    )


def _capability(code: str) -> str:
    number = code.removeprefix("sm_")
    return f"{number[:-1] or 0}.{number[-1]}"


def _figures(objects: Sequence[DeviceObject]) -> dict[str, Any]:
    """Return how many objects hold each architecture, together and for each owner."""

    def count(held: Sequence[DeviceObject]) -> dict[str, dict[str, int]]:
        return {
            "elf": dict(sorted(Counter(c for each in held for c in each.cubins).items())),
            "ptx": dict(sorted(Counter(c for each in held for c in each.ptx).items())),
        }

    by_owner = {
        owner or "no functions": count([each for each in objects if each.owner == owner])
        for owner in sorted({each.owner for each in objects})
    }
    return {**count(objects), "owners": by_owner}


def _counts(objects: Iterable[DeviceObject]) -> str:
    return _listing(Counter(code for each in objects for code in each.cubins))


def _listing(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({number})" for name, number in sorted(counts.items()))
