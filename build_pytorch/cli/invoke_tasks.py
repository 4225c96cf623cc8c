"""Invoke tasks made from the declared commands.

Invoke has no argument that takes several words, so `invoke build sm120-avx512 cpu-avx2` would be an
error at the second word. `_handle` therefore replaces the one method of Invoke's parser that
decides what to do with a word. tests/test_commands.py fails if a new Invoke changes that method.
"""

from __future__ import annotations

from collections.abc import Callable

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.parser.parser import ParseMachine
from invoke.tasks import Task

from build_pytorch.cli.commands import COMMANDS
from build_pytorch.cli.declaration import Command, option_specs
from build_pytorch.cli.entry import run_command


class Words(Argument):
    """An argument that takes every word that is neither an option nor the value of one."""


class CommandTask(Task[Callable[..., None]]):
    """The task of a declared command."""

    def __init__(self, command: Command) -> None:
        def body(_: Context, **given: str | bool | list[str] | None) -> None:
            if code := run_command(command, given):
                raise Exit(code=code)

        body.__doc__ = command.summary
        super().__init__(body, name=command.name, auto_shortflags=False)
        self.command = command

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return the declared options as arguments of Invoke."""
        del ignore_unknown_help
        kinds = {"flag": bool, "values": list, "value": str}
        return [
            (Words if spec.is_positional else Argument)(
                names=(spec.name,),
                kind=kinds[spec.kind],
                default=False if spec.kind == "flag" else None,
                help=spec.help,
                attr_name=spec.field if spec.field != spec.name else None,
            )
            for spec in option_specs(self.command.options)
        ]


def collection() -> Collection:
    """Return the tasks of all commands."""
    return Collection(*map(CommandTask, COMMANDS.values()))


_invoke_handle = ParseMachine.handle


def _handle(machine: ParseMachine, token: str) -> None:
    arguments = machine.context.args.values() if machine.context else ()
    words = next((argument for argument in arguments if isinstance(argument, Words)), None)
    is_option = len(token) > 1 and token.startswith("-")
    if words is None or is_option or machine.waiting_for_flag_value:
        _invoke_handle(machine, token)
    else:
        words.set_value(token)


ParseMachine.handle = _handle  # type: ignore[assignment, method-assign]
