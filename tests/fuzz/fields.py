"""The string fields of matrix.toml, as its JSON schema lists them, and where a matrix has them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from build_pytorch.matrix.tables import MatrixFile

Trail = tuple[str | int, ...]
"""The way to a value; to a key of a table if `*key` is the last step."""


def schema_fields() -> Iterator[str]:
    """Yield every field of the schema that holds a string, a key of a table included."""
    schema = msgspec.json.schema(MatrixFile)
    yield from _fields(schema, {"$ref": schema["$ref"]}, "")


def _fields(schema: dict[str, Any], node: dict[str, Any], path: str) -> Iterator[str]:
    for choice in node.get("anyOf", ()):
        yield from _fields(schema, choice, path)
    if "$ref" in node:
        yield from _fields(schema, schema["$defs"][node["$ref"].rpartition("/")[2]], path)
    for key, value in node.get("properties", {}).items():
        yield from _fields(schema, value, f"{path}.{key}")
    if isinstance(values := node.get("additionalProperties"), dict):
        yield f"{path}.*key"
        yield from _fields(schema, values, f"{path}.*")
    if "items" in node:
        yield from _fields(schema, node["items"], f"{path}[]")
    if node.get("type") == "string" or isinstance((node.get("enum") or [0])[0], str):
        yield path


def string_places(document: dict[str, Any]) -> Iterator[tuple[str, Trail]]:
    """Yield every string of a matrix, with the name of its field; keys of maps as well."""
    known = set(schema_fields())

    def walk(node: Any, path: str, trail: Trail) -> Iterator[tuple[str, Trail]]:
        if isinstance(node, str):
            yield path, trail
        elif isinstance(node, list):
            for index, value in enumerate(node):
                yield from walk(value, f"{path}[]", (*trail, index))
        elif isinstance(node, dict):
            is_map = f"{path}.*key" in known
            for key, value in node.items():
                if is_map:
                    yield f"{path}.*key", (*trail, key, "*key")
                yield from walk(value, f"{path}.{'*' if is_map else key}", (*trail, key))

    yield from walk(document, "", ())


def places(node: Any, trail: Trail = ()) -> Iterator[Trail]:
    """Yield every place in a document."""
    if trail:
        yield trail
    items = (
        node.items() if isinstance(node, dict) else enumerate(node if type(node) is list else ())
    )
    for key, value in items:
        yield from places(value, (*trail, key))


def at(document: dict[str, Any], trail: Trail) -> str:
    """Return the text at a place."""
    node: Any = document
    for step in trail[: -2 if trail[-1] == "*key" else None]:
        node = node[step]
    return str(trail[-2]) if trail[-1] == "*key" else str(node)


def replaced(document: dict[str, Any], trail: Trail, value: str) -> dict[str, Any] | None:
    """Return the document with another value, or key, at a place; None if the table has the key.

    What names the key changes with it, so that the key itself is judged.
    """
    changed = copy.deepcopy(document)
    if trail[-1] != "*key":
        _put(changed, trail, value)
        return changed
    *way, key, _ = trail
    table: Any = changed
    for step in way:
        table = table[step]
    if value in table:
        return None
    for old in list(table):  # in the same order
        table[value if old == key else old] = table.pop(old)
    names = (
        _NAMES_OF.get(str(way[-1]), ())
        if len(way) == 1
        else _NAMES_OF_SETS
        if _is_sets(way)
        else ()
    )
    for field, place in list(string_places(changed)):
        if field.endswith(names or " ") and at(changed, place) == key:
            _put(changed, place, value)
    return changed


def place_of(trail: Trail, value: str) -> Trail:
    """Return the path of a value in the document in which it replaces another one."""
    return (*trail[:-2], value) if trail[-1] == "*key" else trail


_NAMES_OF = {
    "gpu": (".group[].gpu[]", ".when.gpu[]", ".until.gpu[]"),
    "cpu": (".group[].cpu[]", ".when.cpu[]", ".until.cpu[]"),
    "pin": (".nixpkgs.pin", ".when.pin[]", ".until.pin[]"),
    "patch": (".effect.patches[]",),
    "release": (".like",),
}
"""The fields that name a key of a table."""
_NAMES_OF_SETS = (".cuda.package_set",)


def _is_sets(way: list[str | int]) -> bool:
    return way[0] == "pin" and way[-1] == "cuda"


def _put(document: dict[str, Any], trail: Trail, value: str) -> None:
    node: Any = document
    for step in trail[:-1]:
        node = node[step]
    node[trail[-1]] = value
