"""How a command is declared, and how its arguments become typed options.

A command is declared once, in `commands.py`. The parser of its words, its help, the tasks of Invoke
and the reference page are all derived from that declaration.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import paths
from build_pytorch.base.console import WIDTH, shortened
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.base.versions import NEWEST

Given = Mapping[str, str | bool | Sequence[str] | None]
"""Arguments by field name, as a parser leaves them: None, False or empty if not given."""

_COLUMN: Final = 22
"""Column in which the texts of help begin."""

_SHORT: Final = {"help": ["-h"], "verbose": ["-v"]}

_REST: Final = "following words"

_QUOTED: Final = 40
"""Maximum length of a value that an error message quotes, in characters."""


class CommandOptions(Struct, frozen=True, kw_only=True, rename="kebab"):
    """The options of a command: one field for each, `dry_run` for `--dry-run`.

    A field is `Annotated[TYPE, HELP]` or `Annotated[TYPE, NAME OF THE VALUE, HELP]`, with a Meta
    for the limits of a number. The type decides how an option is given: `bool` is a flag,
    `tuple[str, ...]` may be repeated, anything else takes one value. Fields called `variants`,
    `log` and `what` take words without an option name. A field without `Annotated` is no option.

    `root`: the checkout that the command works on, from whoever runs the command. `is_for_any`: the
    command also works in a folder without a project, with the matrix of this package.
    """

    is_for_any: ClassVar[bool] = False
    root: Path = paths.PROJECT


class Command(Struct, frozen=True):
    """A command: `run` of a module below `cli/`, which is called like the command by default.

    `fixed`: values of fields of its options that are no options.
    """

    name: str
    summary: str
    options: type[CommandOptions]
    module: str = ""
    fixed: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        """Set the module."""
        module = self.module or self.name.replace("-", "_")
        msgspec.structs.force_setattr(self, "module", module)


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
        return self.field in {"variants", "log", "what"}

    @property
    def for_argparse(self) -> dict[str, Any]:
        """The keyword arguments of `ArgumentParser.add_argument`."""
        common = {"help": self.help.replace("%", "%%")}
        if self.is_positional:
            return common | {"nargs": "*", "metavar": self.metavar}
        common["dest"] = self.field
        if self.kind == "flag":
            return common | {"action": "store_true"}
        common |= {"action": "append"} if self.kind == "values" else {}
        if self.metavar.startswith("["):  # its value may be left out; argparse adds the brackets
            return common | {"nargs": "?", "const": NEWEST, "metavar": self.metavar[1:-1]}
        return common | {"metavar": self.metavar}


@functools.cache
def option_specs(options: type[CommandOptions]) -> tuple[OptionSpec, ...]:
    """Return the options of a command in the order of their declaration."""
    specs = []
    for field in msgspec.structs.fields(options):
        if not hasattr(field.type, "__metadata__"):
            continue
        kind, notes = field.type.__origin__, field.type.__metadata__
        limits = next((note for note in notes if isinstance(note, Meta)), Meta())
        *metavar, text = (note for note in notes if isinstance(note, str))
        name = field.encode_name.removesuffix("-")  # of `as_`, as `as` is a word of Python
        if get_origin(kind) is UnionType:
            (kind,) = (part for part in get_args(kind) if part is not NoneType)
        given: Literal["flag", "values", "value"] = "flag" if kind is bool else "value"
        if get_origin(kind) is tuple:
            given, kind = "values", get_args(kind)[0]
        shown = metavar[0] if metavar else name.upper()
        specs.append(OptionSpec(field.name, name, given, kind, limits, shown, text))
    return tuple(specs)


def options_from(command: Command, given: Given, root: Path) -> CommandOptions:
    """Return the typed options of a command that works on `root`.

    Raises BuildPytorchError for a value that an option cannot have.
    """
    values: dict[str, Any] = {"root": root, **command.fixed}
    for spec in option_specs(command.options):
        match given.get(spec.field):
            case True:
                values[spec.field] = True
            case str(text):
                values[spec.field] = _converted(spec, text)
            case [_, *_] as texts:
                values[spec.field] = tuple(_converted(spec, text) for text in texts)
    if not (command.options.is_for_any or paths.is_checkout(root)):
        fix = f"`{paths.SCRIPT} init` writes one"
        raise BuildPytorchError(f"{root}: no matrix.toml here or in a folder above; {fix}")
    return command.options(**values)


def _converted(spec: OptionSpec, text: str) -> Any:  # noqa: ANN401 - the type of the option
    option = spec.metavar if spec.is_positional else f"--{spec.name}"
    if not text.strip():
        raise BuildPytorchError(
            f"{option}: found an empty value, as from a variable that is not set; "
            "give a value or leave the option out"
        )
    if spec.type is Path:
        return Path(text)
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
    raise BuildPytorchError(f'{option}: found "{shortened(text, _QUOTED)}"; allowed: {allowed}')


def _parser(command: Command) -> argparse.ArgumentParser:
    """Return the parser of a command's words, which also prints its help."""
    specs = option_specs(command.options)
    names = "".join(f" [{spec.metavar} ...]" for spec in specs if spec.is_positional)
    parser = argparse.ArgumentParser(
        usage=f"invoke {command.name}{names} [OPTIONS]",
        description=command.summary,
        formatter_class=functools.partial(
            argparse.HelpFormatter, max_help_position=_COLUMN, width=WIDTH
        ),
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    for spec in specs:
        flags = [] if spec.is_positional else [*_SHORT.get(spec.name, []), f"--{spec.name}"]
        parser.add_argument(*(flags or [spec.field]), **spec.for_argparse)
    parser.add_argument(*_SHORT["help"], "--help", action="store_true", help="show this help")
    if not names:  # the first other word begins the next command
        parser.add_argument(_REST, nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def parsed(command: Command, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments that were given, by field name, and the words after the last of them.

    `--help` is the argument `help`. Raises BuildPytorchError for an unknown option, and for an
    option without its value or with one that it does not take.
    """
    specs = {f"--{spec.name}": spec for spec in option_specs(command.options)}
    takes_names = any(spec.is_positional for spec in specs.values())
    parser = _parser(command)
    parse = parser.parse_known_intermixed_args if takes_names else parser.parse_known_args
    try:
        known, unknown = parse(list(words))
    except argparse.ArgumentError as error:
        name = str(error.argument_name).rpartition("/")[2]
        spec = specs.get(name)
        if spec is None or spec.kind == "flag":
            raise BuildPytorchError(f"{name}: takes no value; remove it") from None
        missing = f"{name}: the value is missing; write {name} {spec.metavar}"
        raise BuildPytorchError(missing) from None
    if unknown:
        name = unknown[0].partition("=")[0]
        options = [spec.name for spec in specs.values() if not spec.is_positional]
        hint = near_miss(name[2:], options).replace('"', '"--', 1)
        hint = hint or f"; `invoke --help {command.name}` lists all"
        raise BuildPytorchError(f"unknown option {shortened(name, _QUOTED)}{hint}")
    given = {key: value for key, value in vars(known).items() if value not in (None, False, [])}
    return given, given.pop(_REST, [])


def help_text(command: Command) -> str:
    """Return what `invoke --help NAME` prints: usage, summary and options, in 80 columns."""
    return _parser(command).format_help()
