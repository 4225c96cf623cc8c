"""The reference of matrix.toml, generated from its types: a JSON schema and a page.

Both have the docstrings of the types and the `#:` comments of their fields.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch.base import digest
from build_pytorch.generate.recipes import render_file
from build_pytorch.matrix import defaults, known_hardware, tables
from build_pytorch.matrix.field_types import allowed

_STRUCT: Final = re.compile(r"(?ms)^class (\w+)\((\w+)(.*?)(?=^\S|\Z)")
_FIELD: Final = re.compile(r"(?m)^    (\w+): .*  #: (.+)$")

_LEARNED: Final = ("PinFacts", "CudaSetFacts")
"""Tables that programs write; the page leaves them out."""

_HEAD: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$comment": "Generated from build_pytorch/matrix/tables.py by `invoke "
    f"phase5`. Digest of this file, with zeros in place of it: {digest.PLACEHOLDER}",
    "title": "matrix.toml of build-pytorch",
}


def schema() -> str:
    """Return the JSON schema of matrix.toml, for editors.

    It requires no key, because a table may have the rest from a known one or from the release that
    it is like; the reader does.
    """
    document: Any = msgspec.json.schema(tables.MatrixFile)
    definitions = document["$defs"]
    comments = _comments()
    for name, definition in definitions.items():
        definition.pop("required")
        # Python 3.13 changes the indentation of docstrings.
        definition["description"] = " ".join(definition["description"].split())
        for key, meaning in comments[name].items():
            value = definition["properties"][key]
            value["description"] = f"{meaning}; allowed: {allowed(value)}"
    names = list(definitions["Names"]["properties"].values())
    release, group = definitions["Release"]["properties"], definitions["Group"]["properties"]
    for value in (*names, release["folder"], release["catalog"], group["folder"]["anyOf"][0]):
        value["pattern"] = f"(?:{value['pattern']})|(?:{defaults.PLACEHOLDER})"
    known = known_hardware.load()
    release["companion"]["propertyNames"] = {"enum": list(known.companion)}
    for key, names in {"gpu": list(known.gpu), "cpu": list(known.cpu)}.items():
        for table in ("Group", "Condition"):
            value = definitions[table]["properties"][key]
            value["items"] = {"anyOf": [{"enum": names}, value["items"]]}
    return digest.seal(json.dumps(_HEAD | document, indent=2) + "\n")


def page(root: Path) -> str:
    """Return docs/reference/matrix.md: every table and key, each explained once."""
    definitions = msgspec.json.schema(tables.MatrixFile)["$defs"]
    comments = _comments()
    headers: dict[str, list[str]] = {}
    _collect("MatrixFile", "", "matrix.toml", definitions, headers)
    sections = []
    explained: list[dict[str, Any]] = []
    for name, of_table in headers.items():
        if name in _LEARNED:
            continue
        rows = _rows(definitions[name], comments[name])
        again = [key for key, row in rows.items() if row in explained]
        explained += rows.values()
        new = [row for key, row in rows.items() if key not in again]
        sections.append((of_table, new, again))
    return render_file(root, "docs/matrix.md.j2", sections=sections, known=known_hardware.load())


def _comments() -> dict[str, dict[str, str]]:
    """Return the comments of the fields of each struct, with those that it inherits, by key."""
    found: dict[str, dict[str, str]] = {}
    for name, base, body in _STRUCT.findall(inspect.getsource(tables)):
        found[name] = found.get(base, {}) | dict(_FIELD.findall(body))
    return found


def _collect(
    name: str, path: str, header: str, definitions: dict[str, Any], found: dict[str, list[str]]
) -> None:
    """Add the headers of a table and of those in it to the headers of each definition."""
    found.setdefault(name, []).append(header)
    for key, value in definitions[name]["properties"].items():
        if child := re.search(r'"#/\$defs/(\w+)"', json.dumps(value)):
            place = f"{path}.{key}".lstrip(".") + ".NAME" * ("additionalProperties" in value)
            below = f"[[{place}]]" if "items" in value else f"[{place}]"
            _collect(child[1], place, below, definitions, found)


def _rows(definition: dict[str, Any], meanings: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the keys of a table with what the page says; of tables in it, only the required."""
    required = definition["required"]
    rows = {}
    for key, value in definition["properties"].items():
        if key not in required and key not in meanings:
            continue
        element = value.get("items", value)
        parts = [allowed(element)] if "enum" in element else []
        default = value.get("default")
        if default and not isinstance(default, dict):
            parts.append(f"default {json.dumps(default)}")
        rows[key] = {
            "key": key,
            "meaning": meanings.get(key, ""),
            "form": "; ".join(parts),
            "is_required": key in required,
        }
    return rows
