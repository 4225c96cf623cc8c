"""All errors of a document that does not fit a msgspec type, each with what is allowed there."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

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


def explain(
    error: msgspec.ValidationError,
    raw: Any,
    kind: type[msgspec.Struct],
    names: Mapping[str, str] = _TOML,
) -> list[tuple[Trail, str]]:
    """Return the path and the explanation of each value in `raw` that does not fit `kind`.

    `error` is msgspec's own, which is returned where the JSON schema of the type is less strict.
    """
    found: dict[Trail, str] = {}
    for each in _leaves(_validator(kind).iter_errors(raw)):
        for trail, text in _explained(each, names):
            found.setdefault(trail, text)
    return list(found.items()) or [((), str(error))]


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


@functools.cache
def _validator(kind: type[msgspec.Struct]) -> Any:
    """A validator that takes numbers as strictly as msgspec: 1.0 is no integer, NaN no number."""
    # Takes 60 ms to import, and is needed only after msgspec has refused a document.
    from jsonschema import Draft202012Validator, validators

    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, v: type(v) is int)
    types = checker.redefine("number", _is_number)
    extend: Any = validators.extend  # has no types
    return extend(Draft202012Validator, type_checker=types)(msgspec.json.schema(kind))


def _is_number(_checker: object, value: object) -> bool:
    return type(value) is int or (isinstance(value, float) and not math.isnan(value))


def _leaves(errors: Iterable[Any]) -> Iterator[Any]:
    """Yield jsonschema's errors; for a type `X | None` those of X."""
    for error in errors:
        if error.validator == "anyOf":
            yield from _leaves(e for e in error.context if e.validator_value != "null")
        else:
            yield error


def _explained(error: Any, names: Mapping[str, str]) -> Iterator[tuple[Trail, str]]:
    schema: dict[str, Any] = error.schema
    trail, value = tuple(error.absolute_path), error.instance
    if error.validator in {"additionalProperties", "required"}:
        known = list(schema["properties"])
        unknown = [key for key in value if key not in known]
        hints = dict.fromkeys(unknown, "")
        hints |= {key: near_miss(key, known) for key in itertools.islice(unknown, _MOST)}
        if error.validator == "required":
            misspelled = "".join(hints.values())  # one mistake is one error
            for key in error.validator_value:
                if key not in value and f'"{key}"' not in misspelled:
                    yield (*trail, key), "missing; add it"
            return
        for key, hint in hints.items():
            yield (*trail, key), f"unknown key; allowed: {listed(known)}{hint}"
        return
    if isinstance(value, str) and len(value) > schema.get("maxLength", math.inf):
        most = f"at most {schema['maxLength']} characters"
        key = (value,) if "propertyNames" in error.absolute_schema_path else ()
        yield (*trail, *key), f"found {len(value)} characters; allowed: {most}"
        return
    if isinstance(value, (dt.date, dt.time)):
        quotes = ", in quotes" if schema.get("type") == "string" else ""
        found = f"found the TOML date or time {value.isoformat()}"
        yield trail, f"{found}; allowed: {allowed(schema, names)}{quotes}"
        return
    choices = [str(choice) for choice in schema.get("enum", ())]
    hint = near_miss(value, choices) if isinstance(value, str) else ""
    if "propertyNames" in list(error.absolute_schema_path)[-2:-1]:
        yield (*trail, value), f"found this key; allowed: {allowed(schema, names)}{hint}"
    else:
        yield trail, f"found {quoted(value)}; allowed: {allowed(schema, names)}{hint}"


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
