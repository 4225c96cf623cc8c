"""How a command is declared, and how its arguments become typed options.

A command is declared once, in `commands.py`. The tasks of Invoke, the arguments after `--` of a nox
session, their help and the reference page are all derived from that declaration. The arguments are
not read by argparse, which takes 10 ms to import, and not by Invoke, which has no argument that
takes several words and lets options without a value pass.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import files, paths
from build_pytorch.base.console import WIDTH
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.base.versions import NEWEST

Given = Mapping[str, str | bool | Sequence[str] | None]
"""Arguments by field name, as a parser leaves them: None, False or empty if not given."""

_COLUMN: Final = 22
"""Column in which the texts of help begin."""

_SHORT: Final = {"-h": "--help", "-v": "--verbose"}

_QUOTED: Final = 40
"""Maximum length of a value that an error message quotes, in characters."""


class CommandOptions(Struct, frozen=True, kw_only=True, rename="kebab"):
    """The options of a command: one field for each, `dry_run` for `--dry-run`.

    A field is `Annotated[TYPE, HELP]` or `Annotated[TYPE, NAME OF THE VALUE, HELP]`, with a Meta
    for the limits of a number. The type decides how an option is given: `bool` is a flag,
    `tuple[str, ...]` may be repeated, anything else takes one value. Fields called `variants`,
    `log` and `what` take words without an option name.

    `own_matrix`: with `--root` the command reads the matrix.toml there. All others use this one, so
    the checkout there must have the same one, or none.
    """

    own_matrix: ClassVar[bool] = False


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
    def may_be_bare(self) -> bool:
        """Whether its value may be left out: the name of the value is in brackets then."""
        return self.metavar.startswith("[")

    @property
    def is_positional(self) -> bool:
        """Whether values are given without the option's name."""
        return self.field in {"variants", "log", "what"}

    @property
    def usage(self) -> str:
        """How the option is written, such as `--jobs N`."""
        if self.is_positional:
            return f"{self.metavar} ..."
        short = "".join(f"{s}, " for s, name in _SHORT.items() if name == f"--{self.name}")
        return f"{short}--{self.name}" + ("" if self.kind == "flag" else f" {self.metavar}")


@functools.cache
def option_specs(options: type[CommandOptions]) -> tuple[OptionSpec, ...]:
    """Return the options of a command in the order of their declaration."""
    specs = []
    for field in msgspec.structs.fields(options):
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
    if getattr(found, "init", False):
        return found
    if paths.is_checkout(root):
        if not options.own_matrix:
            _require_same_matrix(root)
        return found
    if not root.is_dir():
        raise BuildPytorchError(f"--root {root}: no such folder; name an existing checkout")
    raise BuildPytorchError(
        f"--root {root}: not a checkout, as it has neither matrix.toml nor .flox; "
        "`invoke all --init --root DIR` makes one"
    )


def _require_same_matrix(root: Path) -> None:
    """Raise BuildPytorchError if a checkout has a matrix.toml other than the one in use."""
    if root == paths.PROJECT:
        return
    name = paths.MATRIX.name
    try:
        theirs = files.read_below(root, name, files.LARGEST_TEXT)
    except FileNotFoundError:
        return
    except OSError as error:
        raise BuildPytorchError(
            f"--root {root}: {name} cannot be read: {error.strerror}; fix that and run again"
        ) from None
    if theirs != files.read_named(paths.MATRIX):
        raise BuildPytorchError(
            f"--root {root}: has another {name}, and this command uses the one of "
            f"{paths.PROJECT}; run it in {root}"
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
    raise BuildPytorchError(f'{option}: found "{_shortened(text)}"; allowed: {allowed}')


def _shortened(text: str) -> str:
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}..."


def parsed(command: Command, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments by field name, and the words from the first one that is none of them.

    `--help` is the argument `help`. Raises BuildPytorchError for an unknown option, and for an
    option without its value or with one that it does not take.
    """
    specs = {f"--{spec.name}": spec for spec in option_specs(command.options)}
    names = next((spec.field for spec in specs.values() if spec.is_positional), "")
    given: dict[str, Any] = {}
    rest = list(words)
    while rest and (names or _is_option(rest[0])):
        name, found, value = rest.pop(0).partition("=")
        name = _SHORT.get(name, name)
        spec = specs.get(name)
        if not _is_option(name):
            given.setdefault(names, []).append(f"{name}{found}{value}")
        elif name == "--help":
            given["help"] = True
        elif spec is None:
            hint = near_miss(name[2:], [spec.name for spec in specs.values()])
            hint = hint.replace('"', '"--', 1) or f"; `invoke --help {command.name}` lists all"
            raise BuildPytorchError(f"unknown option {_shortened(name)}{hint}")
        elif spec.kind == "flag":
            if found:
                raise BuildPytorchError(f"{name}: takes no value; remove ={_shortened(value)}")
            given[spec.field] = True
        else:
            if not found:
                value = _value_after(spec, rest)
            if spec.kind == "values":
                given.setdefault(spec.field, []).append(value)
            else:
                given[spec.field] = value
    return given, rest


def _value_after(spec: OptionSpec, rest: list[str]) -> str:
    """Remove the value of an option from the words after it. Raises BuildPytorchError for none."""
    if rest and not _is_option(rest[0]):
        return rest.pop(0)
    if spec.may_be_bare:
        return NEWEST
    name = f"--{spec.name}"
    raise BuildPytorchError(f"{name}: the value is missing; write {name} {spec.metavar}")


def _is_option(word: str) -> bool:
    """Return whether a word begins an option: `-` alone is stdin, and `-1` is a number."""
    return word.startswith("-") and word != "-" and not word[1:2].isdigit()


def help_text(command: Command) -> str:
    """Return what `invoke --help NAME` prints: usage, summary and options, in 80 columns."""
    specs = option_specs(command.options)
    variants = "".join(f" [{spec.metavar} ...]" for spec in specs if spec.is_positional)
    lines = [f"Usage: invoke {command.name}{variants} [OPTIONS]", "", command.summary, ""]
    for spec in specs:
        usage = spec.usage
        first, *more = textwrap.wrap(spec.help, WIDTH - _COLUMN)
        if len(usage) + 4 > _COLUMN:
            lines.append(f"  {usage}")
            usage = ""
        lines.append(f"  {usage:<{_COLUMN - 2}}{first}" if usage else " " * _COLUMN + first)
        lines += [" " * _COLUMN + line for line in more]
    return "\n".join(lines) + "\n"
