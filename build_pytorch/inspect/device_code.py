"""Device code: the product's own is for the variant's capabilities; NCCL and MAGMA bring theirs.

The architectures are read from the library. Where some are not the variant's, the symbols decide
whose code it is: device_code.toml has the patterns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from packaging.version import Version

from build_pytorch.base.console import counted
from build_pytorch.base.errors import ToolError
from build_pytorch.inspect import fatbin
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.inspect.fatbin import DeviceObject
from build_pytorch.inspect.part import Findings, PartRun, Target, error, warning
from build_pytorch.matrix.compatibility import runs_on, sm_code
from build_pytorch.matrix.model import Variant
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
        return {one.code for one in self.added}.union(*map(_own, self.codes))

    def is_right(self, each: DeviceObject) -> bool:
        """Whether an object has all that is expected and no other machine code."""
        has_all = not any(_own(code).isdisjoint(each.cubins) for code in self.codes)
        return has_all and self.allowed.issuperset(each.cubins) and self.ptx in (*each.ptx, "")


class DeviceCodeTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of device_code.toml."""

    owners: dict[str, CodeOwner]
    added: tuple[AddedCode, ...]


_TABLE: Final = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=DeviceCodeTable
)
OWNERS: Final = tuple(_TABLE.owners)
_PATTERNS: Final = tuple(re.compile(owner.symbol) for owner in _TABLE.owners.values())
_OWN: Final = "PyTorch"
_NO_OWNER: Final = "unknown owner"

Owned = list[tuple[DeviceObject, str]]
"""Objects and their owners; "" for objects without functions."""


def look(run: PartRun) -> Findings:
    """Compare the device code of every library with the GPU architectures of the variant."""
    files = {path.name: read_elf(path) for path in run.target.libraries()}
    variant, product = run.target.variant, run.target.product
    holding = {name: elf for name, elf in files.items() if elf.named(fatbin.SECTION)}
    run.figures["device_code"] = list(holding)
    run.subjects += holding if variant.gpu else files
    if variant.gpu is None:
        for name in files:
            if name in holding or "cuda" in name:
                found = "device code" if name in holding else "a library for CUDA"
                yield error(name, found, f"none in a CPU-only {product.title}")
        return
    present = [name for name in product.cuda if name in holding]
    expected = _expected(run.target, variant.gpu, (present or product.cuda)[0])
    if not present:
        run.subjects += [] if holding else [expected.library]
        cpu_only = f"no device code in any library: this {product.title} is CPU-only"
        found = "missing, or without device code" if holding else cpu_only
        yield error(expected.library, found, f"device code for {expected.title}")
    undecided = []
    for number, (name, elf) in enumerate(holding.items()):
        run.progress(f"device code of {name}", number, len(holding))
        objects = fatbin.device_objects(elf)
        owned, reason = _owned(elf.path, objects, expected)
        run.figures[name] = _figures(owned)
        run.notes += _notes(name, owned)
        undecided += [f"{name}: {reason}"] if reason else []
        yield from _problems(name, owned, expected)
        for capability in variant.gpu.capabilities:
            yield from _unusable(name, owned, capability)
    run.undecided = "; ".join(undecided)


def _expected(target: Target, gpu: GpuArchitecture, library: str) -> ExpectedCode:
    codes = tuple(map(sm_code, gpu.capabilities))
    return ExpectedCode(
        product=target.product.title,
        library=library,
        codes=codes,
        ptx=codes[-1] if gpu.ptx else "",
        added=tuple(
            each
            for each in _TABLE.added
            if each.base in gpu.capabilities and _is_added(each, target.variant)
            if target.product.title == _OWN
        ),
    )


def _is_added(added: AddedCode, variant: Variant) -> bool:
    release = variant.release
    return (
        release.cuda is not None
        and Version(release.cuda.version) >= Version(added.cuda)
        and Version(release.torch.version) >= Version(added.torch)
    )


def _own(code: str) -> set[str]:
    """Return the names of one architecture; a, f: features of these GPUs or of their family."""
    return {code, f"{code}a", f"{code}f"}


def _owned(
    library: Path, objects: Sequence[DeviceObject], expected: ExpectedCode
) -> tuple[Owned, str]:
    """Return each object with its owner, and what could not be decided.

    Objects of an unknown owner whose architectures are right count as PyTorch's. Nothing else is
    linked into a companion, so all objects are its own.
    """
    if expected.product != _OWN:
        return [(each, expected.product) for each in objects], ""
    try:
        numbers = fatbin.owners(library, objects, owner_of)
    except ToolError as fault:
        first, _, _ = str(fault).partition("\n")
        numbers, reason = [len(OWNERS)] * len(objects), f": {first}"
    else:
        reason = ""
    names = {**dict(enumerate(OWNERS)), len(OWNERS): _NO_OWNER, fatbin.NO_SYMBOLS: ""}
    owned = [(each, names[number]) for each, number in zip(objects, numbers, strict=True)]
    for index, (each, owner) in enumerate(owned):
        if owner == _NO_OWNER and expected.is_right(each):
            owned[index] = (each, _OWN)
    unknown = [each for each, owner in owned if owner == _NO_OWNER]
    if not unknown:
        return owned, ""
    number = f"{counted(len(unknown), 'object')} of {len(objects)}"
    return owned, f"the owner of {number} cannot be told, with code for {_counts(unknown)}{reason}"


def owner_of(symbol: str) -> int:
    """Return the number of a symbol's owner in the table; their number if it has none."""
    return next((n for n, each in enumerate(_PATTERNS) if each.search(symbol)), len(_PATTERNS))


def _problems(library: str, owned: Owned, expected: ExpectedCode) -> Findings:
    ours = [each for each, owner in owned if owner == expected.product]
    known = ours + [each for each, owner in owned if owner == _NO_OWNER]
    present = {name for each in known for name in each.cubins}
    if library == expected.library and present.isdisjoint(set().union(*map(_own, expected.codes))):
        found = f"device code for {_counts(known) or 'nothing'}"
        yield error(library, found, f"for {expected.title}")
        return
    for code in expected.codes:
        if without := [each for each in ours if each.cubins and _own(code).isdisjoint(each.cubins)]:
            objects = f"{counted(len(without), 'object')} of {expected.product}"
            found = f"{objects} without code for {code}"
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
    yield from _ptx_problems(library, ours, known, expected)


def _ptx_problems(
    library: str, ours: list[DeviceObject], known: list[DeviceObject], code: ExpectedCode
) -> Findings:
    """Find PTX that is missing, and PTX that is not asked for."""
    wanted = code.ptx
    without = [each for each in ours if wanted and each.cubins and wanted not in each.ptx]
    if without:
        found = f"{counted(len(without), 'object')} of {code.product} without PTX of {wanted}"
        yield error(library, found, f"PTX of {wanted} in each: newer GPUs need it")
    if surplus := Counter(name for each in known for name in each.ptx if name != wanted):
        fix = "none needed: PTX makes the library larger and the start on newer GPUs slower"
        expected = f"of {wanted} only" if wanted else "none: recipes build binaries only"
        yield warning(library, f"PTX of {_listing(surplus)}", expected, fix)


def _unusable(library: str, owned: Owned, capability: str) -> Findings:
    """Find bundled code that does not run on the variant's GPU."""
    for name in _bundled(owned):
        held = [each for each, owner in owned if owner == name]
        lacking = [each for each in held if not _runs(each, capability)]
        if lacking:
            found = (
                f"{len(lacking)} of {counted(len(held), 'object')} of {name} for {_counts(lacking)}"
            )
            fix = f"{name} fails on this GPU: build it for {capability} as well (cudaCapabilities)"
            yield warning(library, found, f"code that runs on {capability}", fix)


def _runs(each: DeviceObject, capability: str) -> bool:
    """Whether one of the architectures runs on a GPU; PTX is compiled for newer ones."""
    device = Version(capability)
    plain = [_capability(code) for code in each.cubins if code[-1].isdecimal()]
    return (
        any(runs_on(built, capability) for built in plain)
        or f"{sm_code(capability)}a" in each.cubins
        or any(Version(_capability(code)) <= device for code in each.ptx if code[-1].isdecimal())
    )


def _capability(code: str) -> str:
    number = code.removeprefix("sm_")
    return f"{number[:-1] or 0}.{number[-1]}"


def _bundled(owned: Owned) -> list[str]:
    held = {owner for _, owner in owned}
    return [name for name, owner in _TABLE.owners.items() if owner.bundled and name in held]


def _notes(library: str, owned: Owned) -> list[str]:
    return [
        f"{library}: {name} for {_counts(each for each, owner in owned if owner == name)}"
        for name in _bundled(owned)
    ]


def _figures(owned: Owned) -> dict[str, Any]:
    """Return how many objects hold each architecture, together and for each owner."""

    def count(objects: Iterable[DeviceObject]) -> dict[str, dict[str, int]]:
        held = list(objects)
        return {
            "elf": dict(sorted(Counter(c for each in held for c in each.cubins).items())),
            "ptx": dict(sorted(Counter(c for each in held for c in each.ptx).items())),
        }

    names = sorted({owner for _, owner in owned})
    by_owner = {
        name or "no functions": count(each for each, owner in owned if owner == name)
        for name in names
    }
    return {**count(each for each, _ in owned), "owners": by_owner}


def _counts(objects: Iterable[DeviceObject]) -> str:
    return _listing(Counter(code for each in objects for code in each.cubins))


def _listing(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({number})" for name, number in sorted(counts.items()))
