"""How a wrong value in matrix.toml is explained. Imported only once something is wrong."""

from __future__ import annotations

import bisect
import json
import re
import tomllib
from typing import Any, Final

import msgspec
from msgspec import inspect

from build_pytorch.base.errors import near_miss
from build_pytorch.matrix.model import MatrixFile, Trail

_SHOWN: Final = 60
"""How much of a value an error quotes, in characters."""


def explain(error: msgspec.ValidationError, raw: Any, kind: type = MatrixFile) -> tuple[Trail, str]:
    """Return where a ValidationError occurred, and the problem: found, allowed, near miss.

    `kind` is the type that `raw` should have become.
    """
    message, _, where = str(error).partition(" - at ")
    in_key = where.startswith("`key` in ")
    shape = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", where)
    trail = _fill(raw, [name or index for name, index in shape], str(error), kind)
    node = _type_at(trail, kind)
    if unknown := re.match(r"Object contains unknown field `(.*)`$", message, re.DOTALL):
        known = [field.name for field in _bare(node).fields]
        problem = f"unknown key; allowed: {', '.join(known)}{near_miss(unknown[1], known)}"
        return (*trail, unknown[1]), problem
    if missing := re.match(r"Object missing required field `(.*)`$", message):
        return (*trail, missing[1]), "missing; add it"
    found = _value_at(raw, trail)
    if in_key:
        keys = _bare(node).key_type
        key = next(key for key in found if not _allows(keys, key))
        hint = near_miss(key, _choices(keys))
        return (*trail, key), f"found this key; allowed: {_describe(keys)}{hint}"
    allowed = _describe(node) or message[0].lower() + message[1:]
    hint = near_miss(found, _choices(node)) if isinstance(found, str) else ""
    return trail, f"found {_show(found)}; allowed: {allowed}{hint}"


def dotted(trail: Trail) -> str:
    """A trail as people write it: `release.NAME.group[2].cpu[0]`."""
    out = ""
    for step in trail:
        if isinstance(step, int):
            out += f"[{step}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_-]+", step)
            out += ("." if out else "") + (step if bare else json.dumps(step))
    return out


def line_of(text: str, trail: Trail) -> int:
    """The line on which the statement that sets `trail` begins (its table's where it is missing).

    No TOML parser for Python keeps line numbers, so this asks tomllib how much of the file it
    takes until the value is there. Prefixes that end within a value do not parse; they count as
    the next one that does.
    """
    lines = text.splitlines(keepends=True)

    def holds(count: int) -> bool:
        for end in range(count, len(lines) + 1):
            try:
                document: Any = tomllib.loads("".join(lines[:end]))
            except ValueError:
                continue
            return _reaches(document, trail)
        return True

    whole = tomllib.loads(text)
    while trail and not _reaches(whole, trail):
        trail = trail[:-1]
    if not trail:
        return 1
    return bisect.bisect_left(range(len(lines)), 1, key=lambda count: int(holds(count)))


def _reaches(document: Any, trail: Trail) -> bool:
    try:
        _value_at(document, trail)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _value_at(document: Any, trail: Trail) -> Any:
    for step in trail:
        document = document[step]
    return document


def _fill(raw: Any, shape: list[str], message: str, kind: type) -> Trail:
    """Put names in place of the `[...]` by which msgspec stands for a key of a table.

    Each candidate is tried alone: the one that still raises the same error is the culprit.
    """
    trail: list[str | int] = []
    for step in shape:
        if step != "...":
            container = _value_at(raw, tuple(trail))
            trail.append(int(step) if isinstance(container, list) else step)
            continue
        container = _value_at(raw, tuple(trail))
        candidates = list(container) if isinstance(container, dict) else range(len(container))
        trail.append(next(c for c in candidates if _still_fails(raw, trail, c, message, kind)))
    return tuple(trail)


def _still_fails(
    raw: Any, trail: list[str | int], candidate: Any, message: str, kind: type
) -> bool:
    alone = _keep_only(raw, trail, candidate)
    try:
        msgspec.convert(alone, kind, strict=True)
    except msgspec.ValidationError as error:
        return str(error) == message
    return False


def _keep_only(node: Any, trail: list[str | int], candidate: Any) -> Any:
    """A copy of the document in which the container at `trail` has one entry only."""
    if not trail:
        return {candidate: node[candidate]} if isinstance(node, dict) else [node[candidate]]
    step, rest = trail[0], trail[1:]
    if isinstance(node, dict):
        return {k: _keep_only(v, rest, candidate) if k == step else v for k, v in node.items()}
    return [_keep_only(v, rest, candidate) if i == step else v for i, v in enumerate(node)]


def _type_at(trail: Trail, kind: type) -> Any:
    """The type that the schema gives to the value at `trail`."""
    node: Any = inspect.type_info(kind)
    for step in trail:
        bare = _bare(node)
        if isinstance(bare, inspect.StructType):
            node = next((field.type for field in bare.fields if field.name == step), None)
        else:
            node = getattr(bare, "value_type", None) or getattr(bare, "item_type", None)
    return node


def _bare(node: Any) -> Any:
    """A type without its metadata and without `| None`."""
    if isinstance(node, inspect.UnionType):
        node = next(t for t in node.types if not isinstance(t, inspect.NoneType))
    return _bare(node.type) if isinstance(node, inspect.Metadata) else node


def _describe(node: Any) -> str:
    """What a type allows, in words; empty where only msgspec's message can tell."""
    if isinstance(node, inspect.UnionType):
        node = next(t for t in node.types if not isinstance(t, inspect.NoneType))
    if isinstance(node, inspect.Metadata):
        schema = node.extra_json_schema or {}
        return str(schema.get("description", "")) or _describe(node.type)
    names: dict[type, str] = {
        inspect.StructType: "a table",
        inspect.DictType: "a table",
        inspect.VarTupleType: "a list",
        inspect.BoolType: "true or false",
    }
    return ", ".join(_choices(node)) or names.get(type(node), "")


def _choices(node: Any) -> list[str]:
    bare = _bare(node)
    return [str(value) for value in bare.values] if isinstance(bare, inspect.LiteralType) else []


def _allows(node: Any, key: str) -> bool:
    """Whether a type of table keys takes this key."""
    bare = _bare(node)
    return key in _choices(bare) or bool(
        isinstance(bare, inspect.StrType) and re.search(bare.pattern or "", key)
    )


def _show(value: Any) -> str:
    """A value as TOML writes it, cut where it is long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
