"""The string fields of matrix.toml, as its JSON schema lists them, and where a matrix has them."""

from __future__ import annotations

import copy
import re
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


def at(document: dict[str, Any], trail: Trail) -> str:
    """Return the text at a place."""
    node: Any = document
    for step in trail[: -2 if trail[-1] == "*key" else None]:
        node = node[step]
    return str(trail[-2]) if trail[-1] == "*key" else str(node)


def replaced(document: dict[str, Any], trail: Trail, value: str) -> dict[str, Any] | None:
    """Return the document with another value, or key, at a place. A text occurs once or often:
    what refers to a key is changed with it, so that the key itself is judged.
    """
    changed = copy.deepcopy(document)
    if trail[-1] == "*key":
        *way, key, _ = trail
        table = changed
        for step in way:
            table = table[step]  # type: ignore[index]
        if value in table:
            return None
        for old in list(table):  # in the same order
            table[value if old == key else old] = table.pop(old)
        for release in changed["release"].values():
            for group in release["group"]:
                for kind in ("gpu", "cpu") if way and way[-1] in {"gpu", "cpu"} else ():
                    if kind == way[-1] and kind in group:
                        group[kind] = [value if each == key else each for each in group[kind]]
        return changed
    node: Any = changed
    for step in trail[:-1]:
        node = node[step]
    node[trail[-1]] = value
    return changed


def with_place(document: dict[str, Any], field: str) -> tuple[dict[str, Any], Trail]:
    """Return a matrix that has a field, and the field's place in it.

    What is missing on the way is made from the schema, with texts of fields of the same name.
    """
    changed = copy.deepcopy(document)
    texts = {f.rpartition(".")[2]: at(changed, trail) for f, trail in string_places(changed)}
    schema = msgspec.json.schema(MatrixFile)
    node, value, trail = schema, changed, list[str | int]()
    steps = re.findall(r"(?<=\.)[^.\[]+|\[\]", field)
    for step, after in zip(steps, [*steps[1:], ""], strict=True):
        node = next(choice for choice in _choices(schema, node) if _NEEDS[_kind(step)] in choice)
        if step == "*key":
            return changed, (*trail, next(iter(value)), "*key")
        key, node = _step(node, value, step, after)
        if not (value[key : key + 1] if isinstance(value, list) else value.get(key)):
            made = _sample(schema, node, texts, step)
            value.append(made) if isinstance(value, list) else value.update({key: made})
        value = value[key]
        trail.append(key)
    return changed, tuple(trail)


_NEEDS = {"key": "additionalProperties", "list": "items", "name": "properties"}


def _kind(step: str) -> str:
    return "list" if step == "[]" else "key" if step.startswith("*") else "name"


def _step(node: dict[str, Any], value: Any, step: str, after: str) -> tuple[Any, dict[str, Any]]:
    """Return the key of a step, in an entry that has the next step if there is one, and its type."""
    if step == "[]":
        return 0, node["items"]
    if step == "*":
        keys = sorted(value, key=lambda key: after not in (value[key] or ()))
        return next(iter(keys), "x"), node["additionalProperties"]
    return step, node["properties"][step]


def _choices(schema: dict[str, Any], node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the types that a value may have, without references."""
    if "$ref" in node:
        yield from _choices(schema, schema["$defs"][node["$ref"].rpartition("/")[2]])
    elif "anyOf" in node:
        for choice in node["anyOf"]:
            yield from _choices(schema, choice)
    else:
        yield node


def _sample(schema: dict[str, Any], node: dict[str, Any], texts: dict[str, str], name: str) -> Any:
    """Return a value of a type, with all that it requires."""
    kinds = {kind.get("type"): kind for kind in _choices(schema, node)}
    if (kind := kinds.get("object")) is not None:
        properties = kind.get("properties", {})
        made = {
            key: _sample(schema, properties[key], texts, key) for key in kind.get("required", ())
        }
        entry = kind.get("additionalProperties")
        return {"x": _sample(schema, entry, texts, "*")} if isinstance(entry, dict) else made
    if (kind := kinds.get("array")) is not None:
        return [_sample(schema, kind["items"], texts, f"{name}[]")] if "items" in kind else []
    if None in kinds and "enum" in kinds[None]:
        return kinds[None]["enum"][0]
    samples = {"string": texts.get(name, "x"), "integer": 1, "number": 1, "boolean": True}
    return next(samples[str(kind)] for kind in kinds if kind in samples)
