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
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import paths
from build_pytorch.base.errors import BuildPytorchError, near_miss

Given = Mapping[str, str | bool | Sequence[str] | None]
"""Arguments by field name, as a parser leaves them: None, False or empty if not given."""

_QUOTED: Final = 40
"""Maximum length of a value that an error message quotes, in characters."""


class CommandOptions(Struct, frozen=True, kw_only=True, rename="kebab"):
    """The options of a command: one field for each, `dry_run` for `--dry-run`.

    A field is `Annotated[TYPE, HELP]` or `Annotated[TYPE, NAME OF THE VALUE, HELP]`, with a Meta
    for the limits of a number. The type decides how an option is given: `bool` is a flag,
    `tuple[str, ...]` may be repeated, anything else takes one value. Fields called `variants`
    and `log` take words without an option name.
    """


AnyOptions = TypeVar("AnyOptions", bound=CommandOptions)


class Command(Struct, frozen=True):
    """A command: `function` is `module:function` below `cli/`; empty for `run` of its module."""

    name: str
    summary: str
    options: type[CommandOptions]
    function: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """The module below `cli/` and the function in it that runs the command."""
        module, _, function = self.function.partition(":")
        return module or self.name.replace("-", "_"), function or "run"


class OptionSpec(Struct, frozen=True):
    """One option, as parsers and the reference page need it."""

    field: str
    name: str
    kind: Literal["flag", "values", "value"]
    type: Any
    limits: Meta
    metavar: str
    help: str

    @property
    def is_positional(self) -> bool:
        """Whether values are given without the option's name."""
        return self.field in {"variants", "log"}


@functools.cache
def option_specs(options: type[CommandOptions]) -> tuple[OptionSpec, ...]:
    """Return the options of a command in the order of their declaration."""
    specs = []
    for field in msgspec.structs.fields(options):
        kind, notes = field.type.__origin__, field.type.__metadata__
        limits = next((note for note in notes if isinstance(note, Meta)), Meta())
        *metavar, text = (note for note in notes if isinstance(note, str))
        name = field.encode_name
        if get_origin(kind) is UnionType:
            (kind,) = (part for part in get_args(kind) if part is not NoneType)
        given: Literal["flag", "values", "value"] = "flag" if kind is bool else "value"
        if get_origin(kind) is tuple:
            given, kind = "values", get_args(kind)[0]
        shown = metavar[0] if metavar else name.upper()
        specs.append(OptionSpec(field.name, name, given, kind, limits, shown, text))
    return tuple(specs)


def options_from(options: type[AnyOptions], given: Given) -> AnyOptions:
    """Return the typed options. Raises BuildPytorchError for a value that an option cannot have."""
    values: dict[str, Any] = {}
    for spec in option_specs(options):
        match given.get(spec.field):
            case True:
                values[spec.field] = True
            case str(text):
                values[spec.field] = _converted(spec, text)
            case [_, *_] as texts:
                values[spec.field] = tuple(_converted(spec, text) for text in texts)
    found = options(**values)
    root: Path = getattr(found, "root", paths.PROJECT)
    if getattr(found, "init", False) or paths.is_checkout(root):
        return found
    if not root.is_dir():
        raise BuildPytorchError(f"--root {root}: no such folder; name an existing checkout")
    raise BuildPytorchError(
        f"--root {root}: not a checkout, as it has neither matrix.toml nor .flox; "
        "`invoke all --init --root DIR` makes one"
    )


def _converted(spec: OptionSpec, text: str) -> Any:  # noqa: ANN401 - the type of the option
    option = spec.metavar if spec.is_positional else f"--{spec.name}"
    if not text.strip():
        raise BuildPytorchError(
            f"{option}: found an empty value, as from a variable that is not set; "
            "give a value or leave the option out"
        )
    if spec.type is Path:
        return Path(text).resolve() if spec.field == "root" else Path(text)
    lowest, highest = spec.limits.ge, spec.limits.le
    try:
        value = msgspec.convert(text, spec.type, strict=False)
        if (lowest is None or lowest <= value) and (highest is None or value <= highest):
            return value
    except msgspec.ValidationError:
        pass
    if spec.type in {int, float}:
        allowed = "a whole number" if spec.type is int else "a number"
        allowed += "" if lowest is None else f" from {lowest} to {highest}"
    else:
        choices = get_args(spec.type)
        allowed = f"{', '.join(choices)}{near_miss(text, choices)}"
    quoted = text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}..."
    raise BuildPytorchError(f'{option}: found "{quoted}"; allowed: {allowed}')


def parsed(command: Command, argv: Sequence[str], prog: str) -> dict[str, Any]:
    """Parse arguments with argparse. Exits with code 2 if they are wrong, with 0 after --help."""
    parser = argparse.ArgumentParser(prog=prog, description=command.summary, allow_abbrev=False)
    for spec in option_specs(command.options):
        text = spec.help.replace("%", "%%")
        add = functools.partial(parser.add_argument, f"--{spec.name}", dest=spec.field, help=text)
        if spec.is_positional:
            parser.add_argument(spec.field, nargs="*", metavar=spec.metavar, help=text)
        elif spec.kind == "flag":
            add(action="store_true")
        else:
            add(action="append" if spec.kind == "values" else "store", metavar=spec.metavar)
    return vars(parser.parse_args(argv))
