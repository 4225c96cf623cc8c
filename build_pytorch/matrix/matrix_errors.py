"""All errors of a document that does not fit a msgspec type, each with what is allowed there."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from build_pytorch.base.console import shortened
from build_pytorch.base.errors import near_miss
from build_pytorch.matrix.tables import Trail

_SHOWN: Final = 80
"""Maximum length of a quoted value, in characters."""
_MOST: Final = 20
"""Maximum number of errors in one message, and of names in one error."""
_TOML: Final = {"object": "a table", "array": "a list", "boolean": "true or false"}
JSON: Final = {**_TOML, "object": "an object"}
"""What JSON calls its types; the names of TOML are the default."""

Fault = tuple[Trail, str]
"""The path of a wrong value, and what is wrong."""


def misfits(value: Any, kind: Any, names: Mapping[str, str] = _TOML) -> list[Fault]:
    """Return the path and the explanation of each innermost value that does not fit its type.

    msgspec decides on every value; its own error names only the first one.
    """
    return list(_faults(value, kind, (), names))


def _faults(value: Any, kind: Any, trail: Trail, names: Mapping[str, str]) -> Iterator[Fault]:
    if _fits(value, kind):
        return
    plain = _plain(kind)
    inner: list[Fault] = []
    parts: list[tuple[str | int, Any]] = []
    if isinstance(value, dict) and isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        inner += _key_faults(value, plain, trail)
        parts = [(f.encode_name, f.type) for f in msgspec.structs.fields(plain)]
        parts = [(key, each) for key, each in parts if key in value]
    elif isinstance(value, dict) and get_origin(plain) is dict:
        key_kind, value_kind = get_args(plain)
        for key in value:
            if not _fits(key, key_kind):
                inner.append(((*trail, key), _explained(key, key_kind, names, "this key")))
            parts.append((key, value_kind))
    elif isinstance(value, list) and get_origin(plain) is tuple:
        parts = [(index, get_args(plain)[0]) for index in range(len(value))]
    for step, part_kind in parts:
        inner += _faults(value[step], part_kind, (*trail, step), names)
    yield from inner or [(trail, _explained(value, kind, names))]


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        return False
    return True


def _plain(kind: Any) -> Any:
    """Return a type without its constraints; for `X | None` that of X."""
    while get_origin(kind) in {Annotated, UnionType}:
        kind = next(part for part in get_args(kind) if part is not NoneType)
    return kind


def _key_faults(value: dict[str, Any], kind: type[msgspec.Struct], trail: Trail) -> Iterator[Fault]:
    """Yield unknown and missing keys of a table; a misspelled key is one error."""
    fields = msgspec.structs.fields(kind)
    known = [field.encode_name for field in fields]
    misspelled = ""
    if kind.__struct_config__.forbid_unknown_fields:
        for number, key in enumerate(key for key in value if key not in known):
            hint = near_miss(key, known) if number < _MOST else ""
            misspelled += hint
            yield (*trail, key), f"unknown key; allowed: {listed(known)}{hint}"
    for field in fields:
        key = field.encode_name
        if field.required and key not in value and f'"{key}"' not in misspelled:
            yield (*trail, key), "missing; add it"


def _explained(value: Any, kind: Any, names: Mapping[str, str], shown: str = "") -> str:
    """Return what is found and what is allowed; `shown` is said in place of the value."""
    schema = msgspec.json.schema(kind)
    if isinstance(value, str) and len(value) > schema.get("maxLength", math.inf):
        return wrong(f"{len(value)} characters", f"at most {schema['maxLength']} characters")
    if isinstance(value, (dt.date, dt.time)):
        quotes = ", in quotes" if schema.get("type") == "string" else ""
        found = f"the TOML date or time {value.isoformat()}"
        return wrong(found, f"{allowed(schema, names)}{quotes}")
    choices = [str(choice) for choice in schema.get("enum", ())]
    hint = near_miss(value, choices) if isinstance(value, str) else ""
    return f"{wrong(shown or quoted(value), allowed(schema, names))}{hint}"


def wrong(found: str, allowed_: str) -> str:
    """Return what is wrong with a value."""
    return f"found {found}; allowed: {allowed_}"


def dotted(trail: Trail) -> str:
    """Return a path as text, shortened: such as `release.NAME.group[2].cpu[0]`."""
    out = ""
    for step in trail:
        if isinstance(step, int):
            out += f"[{step}]"
        else:
            key = shortened(step, _SHOWN // 2)
            out += f".{key if re.fullmatch('[A-Za-z0-9_-]+', key) else json.dumps(key)}"
    out = out.removeprefix(".") or "top level"
    return out if len(out) <= 3 * _SHOWN else f"{out[:_SHOWN]}...{out[-_SHOWN:]}"


def message(errors: Sequence[str]) -> str:
    """Join errors, one a line, and replace those after the 20th by their number."""
    more = len(errors) - _MOST
    return "\n".join([*errors[:_MOST], *([f"and {more} more errors"] if more > 0 else [])])


def allowed(schema: dict[str, Any], names: Mapping[str, str] = _TOML) -> str:
    """Return what a JSON schema allows, in words."""
    if choices := [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]:
        return allowed(choices[0], names)
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    word = names.get(kind := schema.get("type", "object"), kind)
    # The description of a struct is its docstring, which describes the table.
    return word if "properties" in schema else str(schema.get("description", word))


def quoted(value: Any) -> str:
    """Return a value as TOML writes it, shortened to 80 characters."""
    try:
        return shortened(json.dumps(value, default=str, ensure_ascii=False), _SHOWN)
    except ValueError:  # an integer of thousands of digits, written as 0xffff...
        return "a number of thousands of digits"


def listed(names: Iterable[str]) -> str:
    """Return names with commas between them: the first 20 and the number of the others."""
    short = [shortened(name, _SHOWN // 2) for name in names]
    more = [f"and {len(short) - _MOST} more"] if len(short) > _MOST else []
    return ", ".join(short[:_MOST] + more)
