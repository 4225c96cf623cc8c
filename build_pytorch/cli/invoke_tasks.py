"""Invoke tasks made from the declared commands.

Invoke finds tasks.py, prints the list of tasks and completes names. The words of a command line
are read by `entry.read_calls`, as those of nox sessions are: `InvokeMenu` replaces the methods of
Invoke's program that Invoke offers to subclasses for this.
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
from collections.abc import Callable, Sequence
from typing import get_args

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.main import program
from invoke.parser.argument import Argument
from invoke.parser.parser import ParseResult
from invoke.program import Program
from invoke.tasks import Task

from build_pytorch.base import console
from build_pytorch.base.errors import ENDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import COMMANDS
from build_pytorch.cli.declaration import Command, OptionSpec, help_text, option_specs
from build_pytorch.cli.entry import Call, find_command, guarded, listing, read_calls, run_calls
from build_pytorch.matrix import matrix_reader


class CommandTask(Task[Callable[..., None]]):
    """The task of a declared command, for the list of tasks and for completion."""

    def __init__(self, command: Command) -> None:
        def body(_: Context) -> None:
            raise NotImplementedError("InvokeMenu runs commands")

        body.__doc__ = command.summary
        super().__init__(body, name=command.name, auto_shortflags=False)
        self.command = command

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return the declared options as arguments of Invoke."""
        del ignore_unknown_help
        kinds = {"flag": bool, "values": list, "value": str}
        return [
            Argument(
                names=(spec.name,),
                kind=kinds[spec.kind],
                default=False if spec.kind == "flag" else None,
                help=spec.help,
                attr_name=spec.field if spec.field != spec.name else None,
            )
            for spec in option_specs(self.command.options)
            if not spec.is_positional
        ]


class InvokeMenu(Program):
    """Invoke's program with our commands: their words, their help, the list of them."""

    calls: list[Call]

    def parse_tasks(self) -> None:
        """Read the commands and their arguments. Exits with code 2 if they are wrong."""
        self.parser = self._make_parser()
        self.calls = []
        if code := guarded(self._read_words):
            raise Exit(code=code)
        self.tasks = ParseResult(self.parser.contexts[each.name] for each, _ in self.calls)

    def _read_words(self) -> int:
        self.calls = read_calls(self.core.unparsed)
        if isinstance(self.args["help"].value, str):
            find_command(self.args["help"].value)
        return EXIT_OK

    def execute(self) -> None:
        """Run the commands one after the other; the first that fails is the last."""
        try:
            if code := guarded(lambda: run_calls(self.calls)):
                raise Exit(code=code)
        finally:
            for number in ENDINGS:  # all is done; Python only cleans up
                signal.signal(number, signal.SIG_IGN)

    def print_task_help(self, name: str) -> None:
        """Print the usage and the options of a command."""
        console.write(sys.stdout, help_text(COMMANDS[name]))

    def parse_cleanup(self) -> None:
        """Complete ids of packages and values of options; the rest as Invoke does."""
        is_asked = self.args["complete"].value
        if is_asked and (found := _completions(self.core.remainder.split())):
            console.write(sys.stdout, "\n".join(found) + "\n")
            raise Exit
        super().parse_cleanup()

    def list_tasks(self) -> None:
        """Print the commands in the order of the docs, or in another format of Invoke."""
        with contextlib.redirect_stdout(io.StringIO()) as text:
            super().list_tasks()
        console.write(sys.stdout, listing() if self.list_format == "flat" else text.getvalue())

    def no_tasks_given(self) -> None:
        """Print the commands, and how to see the options of one."""
        console.write(sys.stdout, listing())
        raise Exit


def _completions(words: Sequence[str]) -> list[str]:
    """Return ids or values that may stand in place of the last word, or after it; or nothing."""
    command = next((COMMANDS[word] for word in words if word in COMMANDS), None)
    if not command or (words[-1].startswith("-") and not _option(command, words[-1:])):
        return []
    try:
        matrix = matrix_reader.load()
    except BuildPytorchError:
        return []
    if (spec := _option(command, words[-2:])) and spec.kind != "flag":
        of_matrix = {"release": [*matrix.releases], "gpu": [*matrix.gpus], "isa": [*matrix.cpus]}
        return of_matrix.get(spec.name) or list(get_args(spec.type))
    if not any(spec.field in {"variants", "log"} for spec in option_specs(command.options)):
        return []
    # The shell does not say whether a space follows the name of a command, which fits then, too.
    return [*(package.id for package in matrix.packages), *({words[-1]} & COMMANDS.keys())]


def _option(command: Command, words: Sequence[str]) -> OptionSpec | None:
    """Return the last option among words, or None."""
    specs = {f"--{spec.name}": spec for spec in option_specs(command.options)}
    return next((specs[word] for word in reversed(words) if word in specs), None)


def collection() -> Collection:
    """Return the tasks of all commands, and make the program that asks for them an InvokeMenu."""
    program.__class__ = InvokeMenu
    return Collection(*map(CommandTask, COMMANDS.values()))
