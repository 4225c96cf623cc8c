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
from collections.abc import Callable

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.main import program
from invoke.parser.parser import ParseResult
from invoke.program import Program
from invoke.tasks import Task

from build_pytorch.base import console
from build_pytorch.base.errors import ENDINGS, EXIT_OK
from build_pytorch.cli.commands import COMMANDS
from build_pytorch.cli.declaration import Command, help_text, option_specs
from build_pytorch.cli.entry import Call, find_command, guarded, listing, read_calls, run_calls


class CommandTask(Task[Callable[..., None]]):
    """The task of a declared command, for the list of tasks."""

    def __init__(self, command: Command) -> None:
        def body(_: Context) -> None:
            raise NotImplementedError("InvokeMenu runs commands")

        body.__doc__ = command.summary
        super().__init__(body, name=command.name, auto_shortflags=False)


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
        """Complete the options of a command; Invoke completes commands."""
        words = self.core.remainder.split()
        command = next((COMMANDS[word] for word in words if word in COMMANDS), None)
        if self.args["complete"].value and command and words[-1].startswith("-"):
            specs = [spec for spec in option_specs(command.options) if not spec.is_positional]
            console.write(sys.stdout, "".join(f"--{spec.name}\n" for spec in specs))
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


def collection() -> Collection:
    """Return the tasks of all commands, and make the program that asks for them an InvokeMenu."""
    program.__class__ = InvokeMenu
    return Collection(*map(CommandTask, COMMANDS.values()))
