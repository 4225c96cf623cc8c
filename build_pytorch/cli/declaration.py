"""How a command is declared, and how its arguments become typed options.

A command is declared once, in `commands.py`. The tasks of Invoke, the arguments after `--` of a nox
session and the reference page are all derived from that declaration.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import fields

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError, near_miss

Given = Mapping[str, str | bool | Sequence[str] | None]
"""Arguments by field name, as a parser leaves them: None, False or empty if not given."""

_QUOTED: Final = 40
"""Maximum length of a value that an error message quotes, in characters."""

_NAMES: Final = {int: "a whole number", float: "a number"}


class CommandOptions(Struct, frozen=True, kw_only=True, rename="kebab"):
    """The options of a command: one field for each, `dry_run` for `--dry-run`.

    The type decides how an option is given: `bool` is a flag, `tuple[str, ...]` may be repeated,
    anything else takes one value. A field called `variants` takes words without an option name.
    """


AnyOptions = TypeVar("AnyOptions", bound=CommandOptions)


class Command(Struct, frozen=True):
    """A command: its name, what it does, its options, and `module:function` below `cli/`."""

    name: str
    summary: str
    options: type[CommandOptions]
    function: str


class OptionSpec(Struct, frozen=True, kw_only=True):
    """One option, as parsers and the reference page need it."""

    field: str
    name: str
    kind: Literal["flag", "values", "value"]
    type: Any
    help: str
    metavar: str
    limits: Meta

    @property
    def is_positional(self) -> bool:
        """Whether values are given without the option's name."""
        return self.field == "variants"


def described(text: str, metavar: str = "", ge: int | None = None, le: int | None = None) -> Meta:
    """Return the help of an option, the name of its value, and the limits of a number."""
    return Meta(description=text, extra={"metavar": metavar}, ge=ge, le=le)


@functools.cache
def option_specs(options: type[CommandOptions]) -> tuple[OptionSpec, ...]:
    """Return the options of a command in the order of their declaration."""
    return tuple(_spec(field.name, field.encode_name, field.type) for field in fields(options))


def _spec(field: str, name: str, annotation: Any) -> OptionSpec:  # noqa: ANN401 - a type
    bare, limits = annotation, Meta()
    if get_origin(annotation) is Annotated:
        bare, limits = get_args(annotation)[:2]
    if get_origin(bare) is UnionType:
        (bare,) = (part for part in get_args(bare) if part is not NoneType)
    kind: Literal["flag", "values", "value"] = "value"
    if bare is bool:
        kind = "flag"
    elif get_origin(bare) is tuple:
        kind, bare = "values", get_args(bare)[0]
    return OptionSpec(
        field=field,
        name=name,
        kind=kind,
        type=bare,
        help=limits.description or "",
        metavar=(limits.extra or {}).get("metavar") or name.upper(),
        limits=limits,
    )


def options_from(options: type[AnyOptions], given: Given) -> AnyOptions:
    """Return the typed options. Raises BuildPytorchError for a value that an option cannot have."""
    values: dict[str, Any] = {}
    for spec in option_specs(options):
        raw = given.get(spec.field)
        if raw is None or raw is False or raw == []:
            continue
        if spec.kind == "flag":
            values[spec.field] = True
        elif isinstance(raw, str):
            values[spec.field] = _converted(spec, raw)
        elif isinstance(raw, Sequence):
            values[spec.field] = tuple(_converted(spec, item) for item in raw)
    return options(**values)


def _converted(spec: OptionSpec, text: str) -> Any:  # noqa: ANN401 - the type of the option
    option = "VARIANT" if spec.is_positional else f"--{spec.name}"
    if not text.strip():
        raise BuildPytorchError(
            f"{option}: found an empty value, as from a variable that is not set; "
            "give a value or leave the option out"
        )
    if get_origin(spec.type) is Literal:
        choices = get_args(spec.type)
        if text not in choices:
            hint = near_miss(text, choices)
            raise _refused(option, text, f"{', '.join(choices)}{hint}")
    elif spec.type in _NAMES:
        try:
            number = spec.type(text)
        except ValueError:  # also for thousands of digits
            raise _refused(option, text, _NAMES[spec.type]) from None
        lowest, highest = spec.limits.ge, spec.limits.le
        if (lowest is not None and not number >= lowest) or (
            highest is not None and not number <= highest
        ):
            until = f" to {highest}" if highest is not None else ""
            raise _refused(option, text, f"{_NAMES[spec.type]} from {lowest}{until}")
        return number
    elif spec.type is Path:
        return paths.checked_root(Path(text)) if spec.field == "root" else Path(text)
    return text


def _refused(option: str, text: str, allowed: str) -> BuildPytorchError:
    quoted = text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}..."
    return BuildPytorchError(f'{option}: found "{quoted}"; allowed: {allowed}')


def parsed(command: Command, argv: Sequence[str], prog: str) -> dict[str, Any]:
    """Parse arguments with argparse. Exits with code 2 if they are wrong, with 0 after --help."""
    parser = argparse.ArgumentParser(prog=prog, description=command.summary, allow_abbrev=False)
    for spec in option_specs(command.options):
        text = spec.help.replace("%", "%%")
        if spec.is_positional:
            parser.add_argument(spec.field, nargs="*", metavar=spec.metavar, help=text)
        elif spec.kind == "flag":
            parser.add_argument(f"--{spec.name}", dest=spec.field, action="store_true", help=text)
        else:
            parser.add_argument(
                f"--{spec.name}",
                dest=spec.field,
                action="append" if spec.kind == "values" else "store",
                metavar=spec.metavar,
                help=text,
            )
    return vars(parser.parse_args(argv))
