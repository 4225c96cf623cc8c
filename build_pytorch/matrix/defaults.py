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
_SHOWN: Final = (
    *("capability", "first_cuda", "last_cuda", "driver", "family", "hosts"),
    *("platform", "flags", "cpuinfo", "rev", "torch", "python", "reason", "url"),
)
"""Keys of a row that `invoke show known` shows."""
OF_GITHUB: Final = frozenset({"owner", "repo", "rev", "hash", "hash_of", "patches"})
"""Keys of a source that a package of the pin does not have."""


# --- of other releases ---


def complete(raw: Table) -> Iterator[Fault]:
    """Complete the releases of a parsed matrix in place; yield each `like` that is wrong.

    Tables are merged, other values replaced. What should be a table and is none stays as it is.
    """
    waiting = dict(_table(raw, "release"))
    done: dict[str, Any] = {"": {}}
    while ready := [name for name, own in waiting.items() if _text(own, "like") in done]:
        for name in ready:
            own = waiting.pop(name)
            base = _table(done, _text(own, "like")).items()
            done[name] = _merged({k: it for k, it in base if k not in _NOT_INHERITED}, own)
    for name, own in waiting.items():  # an unknown one, or a circle
        found = wrong(quoted(own["like"]), "the key of another release, in no circle")
        hint = near_miss(_text(own, "like"), filter(None, done))
        yield ("release", name, "like"), f"{found}{hint}"
    for name in filter(None, done):
        tables = [_table(done[name], key) for key in ("torch", "python", "cuda")]
        torch, python, cuda = (_text(table, "version") for table in tables)
        words = {"release": name, "torch": digits(minor_version(torch))}
        words |= {"python": digits(python), "cuda": digits(cuda, "_")}
        raw["release"][name] = _filled(done[name], words)


def _table(value: Any, key: str) -> Table:  # noqa: ANN401 - any value of TOML
    """Return a table in a table; without one, an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _text(value: Any, key: str) -> str:  # noqa: ANN401 - any value of TOML
    """Return a value in a table as text; without one, an empty one."""
    found = value.get(key, "") if isinstance(value, dict) else ""
    return found if isinstance(found, str) else quoted(found)


def _merged(base: Any, own: Any) -> Any:  # noqa: ANN401 - any values of TOML
    """Return a table with the values of another one where it has none.

    A package of the pin has no values of a source in place of it, another CUDA no driver.
    """
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    left_out = OF_GITHUB if own.get("source") == "nixpkgs" else frozenset()
    left_out |= {"driver"} if "version" in own else frozenset()
    kept = {key: value for key, value in base.items() if key not in left_out}
    return kept | {key: _merged(kept.get(key), value) for key, value in own.items()}


def _filled(value: Any, words: dict[str, str]) -> Any:  # noqa: ANN401 - any value of TOML
    """Return a value with words in place of the placeholders in its texts."""
    if isinstance(value, dict):
        return {key: _filled(each, words) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, words) for each in value]
    if isinstance(value, str):
        return re.sub(PLACEHOLDER, lambda match: words[match[1]] or match[0], value)
    return value


# --- what is known ---


def with_known(own: Table) -> Table:
    """Return the tables of a matrix with the known rows, and with the known values of its own rows.

    A row is known by its key, a rule by its id, a pin by its revision, the CUDA of a release by its
    version. The rules of the matrix come first.
    """
    known = load().raw
    gpus = {
        key: {name: value for name, value in row.items() if name not in OF_PRODUCTS}
        for key, row in known["gpu"].items()
    }
    isas = {**known["cpu"]}
    for key in _table(own, "cpu"):
        isas.setdefault(key, {"title": key})
    rules = {rule["id"]: rule for rule in known["rule"]}
    by_revision = {pin["rev"]: pin for pin in known["pin"].values()}
    merged = dict(own)
    for kind, rows in {"gpu": gpus, "cpu": isas, "patch": known["patch"]}.items():
        if isinstance(table := own.get(kind, {}), dict):
            merged[kind] = rows | {key: _row(rows.get(key), row) for key, row in table.items()}
    if isinstance(ours := own.get("rule", []), list):
        found = [_row(rules.pop(_text(rule, "id"), None), rule) for rule in ours]
        merged["rule"] = [*found, *rules.values()]
    if pins := _table(own, "pin"):
        merged["pin"] = {
            key: _pin(by_revision.get(_text(pin, "rev")) or known["pin"].get(key), pin)
            for key, pin in pins.items()
        }
    for release in _table(own, "release").values():
        cuda = _table(release, "cuda")
        if facts := known["cuda"].get(_text(cuda, "version")):
            release["cuda"] = {"driver": facts["driver"]} | cuda
    return merged


def _row(known: Table | None, own: Any) -> Any:  # noqa: ANN401 - any value of TOML
    return known | own if known and isinstance(own, dict) else own


def _pin(known: Table | None, own: Any) -> Any:  # noqa: ANN401 - any value of TOML
    """Return a pin with what is known of its revision, else of its key.

    One with facts of its own was evaluated: it has no other fixes, doubts and CUDA package sets.
    """
    if not _table(own, "facts"):
        return _merged(known, own)
    return _row({n: it for n, it in (known or {}).items() if n not in {"has", "unconfirmed"}}, own)


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
    for kind in ("gpu", "cpu", "pin", "rule", "patch"):
        known, ours, both = (
            {row["id"]: row for row in table} if kind == "rule" else table
            for table in (load().raw[kind], own.get(kind, {}), merged[kind])
        )
        for key, row in (known | both).items():
            base, values = known.get(key, {}), ours.get(key, {})
            yield KnownRow(
                kind=kind,
                key=key,
                values={name: row[name] for name in _SHOWN if row.get(name)},
                source=f"{base['source']}, checked {base['checked']}" if "source" in base else "",
                replaced=tuple(name for name in values if values[name] != base.get(name)),
            )
