"""Values that matrix.toml leaves out: of known rows, of the release of `like`, and of placeholders.

Known GPU architectures, CPU ISAs, rules and patches are rows of every matrix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from build_pytorch.base.errors import near_miss
from build_pytorch.matrix.field_types import Fault, quoted, wrong
from build_pytorch.matrix.known_hardware import load
from build_pytorch.matrix.versions import digits, minor_version

Table = dict[str, Any]
PLACEHOLDER: Final = r"\{(release|torch|python|cuda)\}"
"""The key of the release, or digits of one of its versions."""
OF_PRODUCTS: Final = frozenset({"names", "arm_only"})
"""Keys of known GPU architectures that matrix.toml does not have."""
_NOT_INHERITED: Final = frozenset({"like", "notes", "cleanup"})
_SHOWN: Final = {
    "gpu": ("capability", "first_cuda", "last_cuda", "driver", "family", "hosts"),
    "cpu": ("platform", "flags", "cpuinfo"),
    "pin": ("rev", "torch", "python"),
    "rule": ("reason",),
    "patch": ("url",),
}
"""Keys of a row that `invoke show known` shows."""
OF_GITHUB: Final = frozenset({"owner", "repo", "rev", "hash", "hash_of", "patches"})
"""Keys of a source that a package of the pin does not have."""


class _Row(Struct):
    like: str = ""
    id: str = ""
    rev: str = ""
    cuda: Table = {}
    facts: Table = {}


class MatrixShape(Struct):
    """What a matrix must have before missing values can be added."""

    gpu: dict[str, _Row] = {}
    cpu: dict[str, _Row] = {}
    patch: dict[str, _Row] = {}
    pin: dict[str, _Row] = {}
    rule: tuple[_Row, ...] = ()
    release: dict[str, _Row] = {}


# --- of other releases ---


def complete(raw: Table) -> Iterator[Fault]:
    """Complete the releases of a parsed matrix in place; yield each `like` that is wrong.

    Tables are merged, other values replaced.
    """
    waiting: dict[str, Table] = dict(raw.get("release", {}))
    done: dict[str, Table] = {"": {}}
    while ready := [name for name, own in waiting.items() if own.get("like", "") in done]:
        for name in ready:
            own = waiting.pop(name)
            base = done[own.get("like", "")].items()
            done[name] = _merged({k: it for k, it in base if k not in _NOT_INHERITED}, own)
    for name, own in waiting.items():  # an unknown one, or a circle
        found = wrong(quoted(own["like"]), "the key of another release, in no circle")
        yield ("release", name, "like"), f"{found}{near_miss(own['like'], filter(None, done))}"
    for name in filter(None, done):
        raw["release"][name] = _with_versions(name, done[name])


def _merged(base: Table, own: Table) -> Table:
    """Return a table with the values of another one where it has none.

    A package of the pin has no values of a source in place of it, another CUDA no driver.
    """
    left_out = OF_GITHUB if own.get("source") == "nixpkgs" else frozenset()
    left_out |= {"driver"} if "version" in own else frozenset()
    merged = {key: value for key, value in base.items() if key not in left_out} | own
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged[key] = _merged(base[key], value)
    return merged


def _with_versions(name: str, release: Table) -> Table:
    """Return a release with its key and its versions in place of the placeholders."""
    torch, python, cuda = (
        str(table.get("version") or "") if isinstance(table, dict) else ""
        for table in map(release.get, ("torch", "python", "cuda"))
    )
    known = {"release": name, "torch": digits(minor_version(torch))}
    known |= {"python": digits(python), "cuda": digits(cuda, "_")}

    def replaced(value: Any) -> Any:  # noqa: ANN401 - any value of TOML
        if isinstance(value, dict):
            return {key: replaced(each) for key, each in value.items()}
        if isinstance(value, list):
            return [replaced(each) for each in value]
        if not isinstance(value, str):
            return value
        return re.sub(PLACEHOLDER, lambda match: known[match[1]] or match[0], value)

    return {key: replaced(value) for key, value in release.items()}


# --- what is known ---


def with_known(own: Table) -> Table:
    """Return the tables of a matrix with the known rows, and with the known values of its own rows.

    A row is known by its key, a rule by its id, a pin by its revision, the CUDA of a release by its
    version. The rules of the matrix come first.
    """
    known, merged = load().raw, dict(own)
    for kind in ("gpu", "cpu", "patch"):
        ours = {
            key: {name: value for name, value in row.items() if name not in OF_PRODUCTS}
            for key, row in known[kind].items()
        }
        merged[kind] = ours | {
            key: ours.get(key, {"title": key} if kind == "cpu" else {}) | row
            for key, row in own.get(kind, {}).items()
        }
    by_id = {rule["id"]: rule for rule in known["rule"]}
    merged["rule"] = [by_id.pop(rule.get("id"), {}) | rule for rule in own.get("rule", ())]
    merged["rule"] += by_id.values()
    if "pin" in own:
        merged["pin"] = {key: _pin(key, pin) for key, pin in own["pin"].items()}
    for release in own.get("release", {}).values():
        cuda = release.get("cuda", {})
        if facts := known["cuda"].get(str(cuda.get("version"))):
            release["cuda"] = {"driver": facts["driver"]} | cuda
    return merged


def _pin(key: str, own: Table) -> Table:
    """Return a pin with what is known of its revision, else of its key.

    One with facts of its own was evaluated: it has no other fixes, doubts and CUDA package sets.
    """
    known: dict[str, Table] = load().raw["pin"]
    by_revision = {pin["rev"]: pin for pin in known.values()}
    facts = by_revision.get(own.get("rev")) or known.get(key, {})
    if own.get("facts"):
        return {n: it for n, it in facts.items() if n not in {"has", "unconfirmed"}} | own
    return facts | own | {"cuda": facts.get("cuda", {}) | own.get("cuda", {})}


class KnownRow(Struct, frozen=True, kw_only=True):
    """A row that every matrix has, or that one adds, and where its values are from."""

    kind: str  #: gpu, cpu, pin, rule or patch
    key: str
    values: Table
    source: str  #: where the known values are from, with a date; empty for a row of matrix.toml
    replaced: tuple[str, ...]  #: keys whose value is that of matrix.toml; all of an added row


def rows(own: Table) -> Iterator[KnownRow]:
    """Yield the known rows and those of a matrix, whose tables `own` are as it writes them."""
    merged = with_known({"pin": {}, **own})
    for kind, shown in _SHOWN.items():
        known, ours, both = (
            {row["id"]: row for row in table} if kind == "rule" else table
            for table in (load().raw[kind], own.get(kind, {}), merged[kind])
        )
        for key, row in (known | both).items():
            base, values = known.get(key, {}), ours.get(key, {})
            yield KnownRow(
                kind=kind,
                key=key,
                values={name: row[name] for name in shown if row.get(name)},
                source=f"{base['source']}, checked {base['checked']}" if "source" in base else "",
                replaced=tuple(name for name in values if values[name] != base.get(name)),
            )
