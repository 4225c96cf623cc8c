"""The reference of matrix.toml, generated from its types: a JSON schema and a page.

Both read docstrings and `#:` comments from the source, because Python 3.13 changes the
indentation of docstrings at run time and -OO removes them.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from build_pytorch.base import digest
from build_pytorch.generate.recipes import render_file
from build_pytorch.matrix import known_hardware, release_consistency, source_tables, tables
from build_pytorch.matrix.field_types import allowed

StructComments = dict[str, tuple[str, dict[str, str]]]
"""The docstring of each struct, and the comment of each of its fields."""

Row = dict[str, Any]
"""A key of a table: its name, meaning, JSON schema, and whether it is required."""

_MANY: Final = 2
"""As many keys that are alike in two tables are explained in the first one only."""

_LEARNED: Final = ("PinFacts", "CudaSetFacts")
"""Tables that programs write; the page leaves them out."""

_HEAD: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$comment": "Generated from tables.py and source_tables.py in build_pytorch/matrix/ by `invoke "
    f"phase5`. Digest of this file, with zeros in place of it: {digest.PLACEHOLDER}",
    "title": "matrix.toml of build-pytorch",
}


def schema() -> str:
    """Return the JSON schema of matrix.toml, for editors."""
    document: Any = msgspec.json.schema(tables.MatrixFile)
    comments = _comments()
    for name, definition in document["$defs"].items():
        purpose, meanings = comments[name]
        definition.pop("description", None)
        document["$defs"][name] = {"description": purpose, **definition}
        for key, meaning in meanings.items():
            value = definition["properties"][key]
            value["description"] = f"{meaning}; allowed: {allowed(value)}"
    _allow_inheritance(document["$defs"])
    _allow_known(document["$defs"])
    return digest.seal(json.dumps(_HEAD | document, indent=2) + "\n")


def _allow_known(definitions: dict[str, Any]) -> None:
    """Change a schema: it offers the known names, and rows have what is known of them."""
    for name, key in {"Rule": "id", "Pin": "rev"}.items():
        definitions[name]["required"] = [key]
    for name in ("GpuArchitecture", "CpuIsa", "Patch", "Condition", "Effect"):
        definitions[name].pop("required", None)
    known = known_hardware.load()
    for key, names in {"gpu": list(known.gpu), "cpu": list(known.cpu)}.items():
        for table in ("Group", "Condition"):
            value = definitions[table]["properties"][key]
            value["items"] = {"anyOf": [{"enum": names}, value["items"]]}


def _allow_inheritance(definitions: dict[str, Any]) -> None:
    """Change a schema: a release may have values of another one, and placeholders in its names.

    The reader checks the release with all its values, after the placeholders are replaced.
    """
    release = definitions["Release"]
    _allow_parts(definitions, release)
    required = release.pop("required")
    release["anyOf"] = [{"required": ["like"]}, {"required": required}]
    placeholder = {"type": "string", "pattern": release_consistency.PLACEHOLDER}
    names = [definitions["Names"]["properties"][key] for key in definitions["Names"]["properties"]]
    for value in (*names, release["properties"]["folder"], release["properties"]["catalog"]):
        own = {"type": value.pop("type"), "pattern": value.pop("pattern")}
        value["anyOf"] = [own, placeholder]
    definitions["Group"]["properties"]["folder"]["anyOf"].append(placeholder)


def _allow_parts(definitions: dict[str, Any], table: dict[str, Any]) -> None:
    """Change a schema: the tables in a table, and those in them, may have a part of their keys."""
    for form, name in filter(None, map(_table_in, table["properties"].values())):
        if form == "table":
            definitions[name].pop("required", None)
            _allow_parts(definitions, definitions[name])


def page(root: Path) -> str:
    """Return docs/reference/matrix.md: every table and key of matrix.toml, each once."""
    definitions = msgspec.json.schema(tables.MatrixFile)["$defs"]
    headers: dict[str, list[str]] = {}
    _collect("MatrixFile", "", "matrix.toml", definitions, headers)
    comments = _comments()
    found: list[dict[str, Any]] = []
    nothing: dict[str, Any] = {"rows": []}
    for name in [name for name in headers if name not in _LEARNED]:
        rows = _rows(definitions[name], comments[name][1])
        like = max(found, key=lambda other: len(_same(rows, other["rows"])), default=nothing)
        same = _same(rows, like["rows"])
        same = same if len(same) >= _MANY else []
        own = [row | {"form": _form(row["value"])} for row in rows if row not in same]
        table = {"name": name, "purpose": comments[name][0], "rows": rows, "own": own}
        found.append(table | {"same": [row["key"] for row in same], "like": like.get("name")})
    known = known_hardware.load()
    return render_file(root, "docs/matrix.md.j2", tables=found, headers=headers, known=known)


def _same(rows: list[Row], others: list[Row]) -> list[Row]:
    return [row for row in rows if row in others]


def _comments() -> StructComments:
    """Return the comments of all tables of matrix.toml."""
    return comments_of(source_tables) | comments_of(tables)


def comments_of(module: ModuleType) -> StructComments:
    """Return the docstring of each struct of a module and the `#:` comments of its fields.

    A struct has the comments of the structs of the module that it extends.
    """
    source = inspect.getsource(module)
    lines = source.splitlines()
    # With -OO, ast.parse of Python 3.14 leaves docstrings out.
    tree: Any = compile(
        source, module.__name__, "exec", ast.PyCF_ONLY_AST, dont_inherit=True, optimize=0
    )
    found: StructComments = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            meanings: dict[str, str] = {}
            for base in node.bases:
                if isinstance(base, ast.Name) and base.id in found:
                    meanings |= found[base.id][1]
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    meaning = lines[(field.end_lineno or 0) - 1].partition("#: ")[2]
                    meanings |= {field.target.id: meaning} if meaning else {}
            found[node.name] = (ast.get_docstring(node) or "", meanings)
    return found


def _collect(
    name: str, path: str, header: str, definitions: dict[str, Any], found: dict[str, list[str]]
) -> None:
    """Add the headers of a table and of those in it to the headers of each definition."""
    found.setdefault(name, []).append(header)
    for key, value in definitions[name]["properties"].items():
        if inner := _table_in(value):
            form, target = inner
            child = f"{path}.{key}".lstrip(".") + (".NAME" if form == "map" else "")
            below = f"[[{child}]]" if form == "array" else f"[{child}]"
            _collect(target, child, below, definitions, found)


def _rows(definition: dict[str, Any], meanings: dict[str, str]) -> list[Row]:
    """Return the keys of a table; of those that hold tables, the required and the explained."""
    required = definition["required"]
    return [
        {"key": key, "meaning": meanings.get(key), "value": value, "is_required": key in required}
        for key, value in definition["properties"].items()
        if key in required or key in meanings
    ]


def _table_in(value: dict[str, Any]) -> tuple[str, str] | None:
    """Return how a value holds tables (table, array, map) and the name of their definition."""
    choices = [choice for choice in value.get("anyOf", [value]) if choice.get("type") != "null"]
    choices.sort(key=lambda choice: "enum" in choice)  # a table, or a word in place of it
    inner = {"array": value.get("items", {}), "map": value.get("additionalProperties", {})}
    for form, holder in ({"table": choices[0]} | inner).items():
        if "$ref" in holder:
            return form, holder["$ref"].rpartition("/")[2]
    return None


def _form(value: dict[str, Any]) -> str:
    """Return the choices for a value, if they are few, and its default; both may be missing."""
    element = value.get("items", value)
    parts = [allowed(element)] if "enum" in element else []
    default = value.get("default")
    if default and not isinstance(default, dict):
        parts.append(f"default {json.dumps(default)}")
    return "; ".join(parts)
