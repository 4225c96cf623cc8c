"""What the code that chooses uses of msgspec, made of the standard library alone.

msgspec is compiled for one version of Python and one platform, and one file for all of them cannot
hold it. `torch-for-me.pyz` has this module under the name msgspec; nothing else imports it. Only
what that code uses is here; a test compares both on all its documents.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json as _json
import re
import sys
import tomllib
from collections.abc import Callable
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

_Convert = Callable[[Any], Any]


class ValidationError(ValueError):
    """A value does not fit its type."""


DecodeError = ValueError


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Meta:
    """Constraints and description of a type."""

    gt: float | None = None
    ge: float | None = None
    le: float | None = None
    pattern: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    description: str | None = None
    extra_json_schema: dict[str, Any] | None = None

    def check(self, value: Any) -> None:
        """Raise ValidationError if a value of the right type breaks a constraint."""
        is_right = (
            (self.gt is None or value > self.gt)
            and (self.ge is None or value >= self.ge)
            and (self.le is None or value <= self.le)
            and (self.min_length is None or len(value) >= self.min_length)
            and (self.max_length is None or len(value) <= self.max_length)
            and (self.pattern is None or re.search(self.pattern, value))
        )
        if not is_right:
            raise ValidationError(f"allowed: {self.description}")


def field(*, name: str | None = None, **values: Any) -> Any:
    """Return a field with a default, and perhaps another name in documents."""
    return dataclasses.field(**values, metadata={"name": name} if name else None)


class Struct:
    """A data class with the options of msgspec."""

    __struct_config__ = SimpleNamespace(forbid_unknown_fields=False)

    def __init_subclass__(
        cls,
        *,
        kw_only: bool = False,
        frozen: bool = False,
        eq: bool = True,
        forbid_unknown_fields: bool = False,
        **_: bool,
    ) -> None:
        """Make a data class of a subclass, as its options say."""
        if forbid_unknown_fields:
            cls.__struct_config__ = SimpleNamespace(forbid_unknown_fields=True)
        own = [name for name in inspect.get_annotations(cls) if name[0] != "_"]
        for name in own:
            default = cls.__dict__.get(name)
            if isinstance(default, dict | list):  # each instance has its own copy
                setattr(cls, name, dataclasses.field(default_factory=default.copy))
            elif isinstance(getattr(cls, name, None), property):  # of a base; it is no default
                setattr(cls, name, dataclasses.field())
        dataclasses.dataclass(cls, kw_only=kw_only, frozen=frozen, eq=eq)
        for name in own:
            if isinstance(getattr(cls, name, None), property):
                setattr(cls, name, None)


class Field(NamedTuple):
    """A field of a struct."""

    name: str
    encode_name: str
    type: Any
    required: bool


@functools.cache
def _fields(kind: Any) -> tuple[Field, ...]:
    hints, missing = get_type_hints(kind, include_extras=True), dataclasses.MISSING
    return tuple(
        Field(
            each.name,
            each.metadata.get("name", each.name),
            hints[each.name],
            each.default is missing and each.default_factory is missing,
        )
        for each in dataclasses.fields(kind)
    )


structs = SimpleNamespace(replace=dataclasses.replace, fields=_fields)
sys.modules[f"{__name__}.structs"] = structs  # type: ignore[assignment]


def defstruct(
    name: str, fields: list[tuple[str, Any, Any]], bases: tuple[type, ...], **options: bool
) -> type:
    """Return a new class with these fields."""
    values = {key: default for key, _, default in fields}
    values |= {"__annotations__": {key: kind for key, kind, _ in fields}}
    values |= {"__module__": bases[0].__module__, "__doc__": bases[0].__doc__}
    return type(name, bases, values, **options)


def convert(value: Any, type: Any, *, strict: bool = True) -> Any:  # noqa: A002 - as msgspec has it
    """Return a value of JSON or TOML as one of a type. Raises ValidationError."""
    del strict
    return _converter(type)(value)


@functools.cache
def _converter(kind: Any) -> _Convert:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin is Annotated:
        inner = _converter(arguments[0])
        return lambda value: _checked(inner(value), arguments[1:])
    if origin in {Union, UnionType}:
        return functools.partial(_first_fitting, tuple(map(_converter, arguments)))
    if origin is Literal:
        return lambda value: _expect(isinstance(value, str) and value in arguments, value)
    if origin in {tuple, list}:
        inner = _converter(arguments[0])
        return lambda value: origin(map(inner, _expect(isinstance(value, list), value)))
    if origin is dict:
        keys, values = map(_converter, arguments)
        return lambda value: {
            keys(key): values(each) for key, each in _expect(isinstance(value, dict), value).items()
        }
    if isinstance(kind, type) and issubclass(kind, Struct):
        return functools.partial(_structured, kind)
    if kind is float:
        return lambda value: float(_expect(type(value) in {int, float}, value))
    return lambda value: _expect(type(value) is kind, value)


def _expect(is_right: bool, value: Any) -> Any:
    if not is_right:
        raise ValidationError("a value of another type")
    return value


def _checked(value: Any, constraints: tuple[Any, ...]) -> Any:
    for each in constraints:
        if isinstance(each, Meta):
            each.check(value)
    return value


def _first_fitting(converters: tuple[_Convert, ...], value: Any) -> Any:
    for each in converters:
        try:
            return each(value)
        except ValidationError as error:
            last = error
    raise last


def _structured(kind: type[Struct], value: Any) -> Any:
    fields: tuple[Field, ...] = _fields(cast("Any", kind))
    _expect(isinstance(value, dict), value)
    if kind.__struct_config__.forbid_unknown_fields and value.keys() - {
        each.encode_name for each in fields
    }:
        raise ValidationError("an unknown key")
    if any(each.required and each.encode_name not in value for each in fields):
        raise ValidationError("a missing key")
    return kind(
        **{
            each.name: _converter(each.type)(value[each.encode_name])
            for each in fields
            if each.encode_name in value
        }
    )


def to_builtins(value: Any) -> Any:
    """Return structs as JSON has them."""
    if isinstance(value, Struct):
        pairs = (
            (it.encode_name, getattr(value, it.name)) for it in _fields(cast("Any", type(value)))
        )
        return {name: to_builtins(each) for name, each in pairs}
    if isinstance(value, dict):
        return {key: to_builtins(each) for key, each in value.items()}
    return [to_builtins(each) for each in value] if isinstance(value, list | tuple) else value


def _schema(kind: Any) -> dict[str, Any]:
    """Return what messages say of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        meta = arguments[1]
        found = {**_schema(arguments[0]), "description": meta.description}
        return {**found, "maxLength": meta.max_length} if meta.max_length else found
    if origin in {Union, UnionType}:
        return {"anyOf": [_schema(each) for each in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    names = {NoneType: "null", str: "string", bool: "boolean", int: "integer", float: "number"}
    names |= {tuple: "array", list: "array"}
    return {"type": names.get(origin or kind, "object")}


json = SimpleNamespace(decode=_json.loads, schema=_schema)
toml = SimpleNamespace(decode=lambda text, type: convert(_load_toml(text), type))  # noqa: A006


def _load_toml(text: str | bytes) -> dict[str, Any]:
    return tomllib.loads(text if isinstance(text, str) else text.decode())
