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


def explain(
    error: msgspec.ValidationError,
    raw: Any,
    kind: type[msgspec.Struct],
    names: Mapping[str, str] = _TOML,
) -> list[Fault]:
    """Return the path and the explanation of each value in `raw` that does not fit `kind`.

    msgspec itself decides on every value; its own `error` names only the first one.
    """
    return list(_faults(raw, kind, (), names)) or [((), str(error))]


def _faults(
    value: Any,
    kind: Any,
    trail: Trail,
    names: Mapping[str, str],
) -> Iterator[Fault]:
    """Yield the innermost values that do not fit their types."""
    if _fits(value, kind):
        return
    plain = _plain(kind)
    inner: list[Fault] = []
    if isinstance(value, dict) and isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        fields = msgspec.structs.fields(plain)
        inner += _key_faults(value, plain, trail)
        for field in fields:
            if field.encode_name in value:
                path = (*trail, field.encode_name)
                inner += _faults(value[field.encode_name], field.type, path, names)
    elif isinstance(value, dict) and get_origin(plain) is dict:
        key_kind, value_kind = get_args(plain)
        for key, each in value.items():
            if not _fits(key, key_kind):
                inner.append(((*trail, key), _explained(key, key_kind, names, "this key")))
            inner += _faults(each, value_kind, (*trail, key), names)
    elif isinstance(value, list) and get_origin(plain) is tuple:
        for index, each in enumerate(value):
            inner += _faults(each, get_args(plain)[0], (*trail, index), names)
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
    hints = {}
    if kind.__struct_config__.forbid_unknown_fields:
        unknown = [key for key in value if key not in known]
        hints = {key: near_miss(key, known) if key in unknown[:_MOST] else "" for key in unknown}
    for key, hint in hints.items():
        yield (*trail, key), f"unknown key; allowed: {listed(known)}{hint}"
    misspelled = "".join(hints.values())
    for field in fields:
        key = field.encode_name
        if field.required and key not in value and f'"{key}"' not in misspelled:
            yield (*trail, key), "missing; add it"


def _explained(
    value: Any,
    kind: Any,
    names: Mapping[str, str],
    shown: str = "",
) -> str:
    """Return what is found and what is allowed; `shown` is said in place of the value."""
    schema = msgspec.json.schema(kind)
    if isinstance(value, str) and len(value) > schema.get("maxLength", math.inf):
        most = f"at most {schema['maxLength']} characters"
        return f"found {len(value)} characters; allowed: {most}"
    if isinstance(value, (dt.date, dt.time)):
        quotes = ", in quotes" if schema.get("type") == "string" else ""
        found = f"found the TOML date or time {value.isoformat()}"
        return f"{found}; allowed: {allowed(schema, names)}{quotes}"
    choices = [str(choice) for choice in schema.get("enum", ())]
    hint = near_miss(value, choices) if isinstance(value, str) else ""
    return f"found {shown or quoted(value)}; allowed: {allowed(schema, names)}{hint}"


def dotted(trail: Trail) -> str:
    """Return a path as text, shortened: such as `release.NAME.group[2].cpu[0]`."""
    out = ""
    for step in trail:
        if isinstance(step, int):
            out += f"[{step}]"
        else:
            key = step if len(step) <= _SHOWN // 2 else f"{step[: _SHOWN // 2]}..."
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
        text = json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:  # an integer of thousands of digits, written as 0xffff...
        text = "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def listed(names: Iterable[str]) -> str:
    """Return names with commas between them: the first 20 and the number of the others."""
    short = [name if len(name) <= _SHOWN // 2 else f"{name[: _SHOWN // 2]}..." for name in names]
    more = [f"and {len(short) - _MOST} more"] if len(short) > _MOST else []
    return ", ".join(short[:_MOST] + more)
