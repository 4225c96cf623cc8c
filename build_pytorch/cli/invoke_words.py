"""Tasks that take any number of words: `invoke build sm120-* cpu-avx2`.

Invoke's positional arguments take one word each, and a word more is an error. Its parser looks at
one word after the other in `handle`; there, ours takes those that belong to such a task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from invoke.parser.argument import Argument
from invoke.parser.parser import ParseMachine
from invoke.tasks import Task


class Words(Argument):
    """All words of a task as one text with blanks between them."""

    def set_value(self, value: Any, cast: bool = True) -> None:  # noqa: ANN401 - as in invoke
        """Take one more word."""
        super().set_value(f"{self.value} {value}".strip(), cast)


class WordsTask(Task[Callable[..., None]]):
    """A task whose argument `variants` takes any number of words."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """The arguments as invoke has them, but for that one."""
        return [
            Words(name=argument.name, kind=str, default="", help=argument.help)
            if argument.name == "variants"
            else argument
            for argument in super().get_arguments(ignore_unknown_help)
        ]


_handle = ParseMachine.handle


def _handle_words(machine: ParseMachine, token: str) -> None:
    """Give a word that is no option, nor the value of one, to the task that takes words."""
    arguments = machine.context.args.values() if machine.context else ()
    words = next((argument for argument in arguments if isinstance(argument, Words)), None)
    if words is None or token.startswith("-") or machine.waiting_for_flag_value:
        _handle(machine, token)
    else:
        words.set_value(token)


ParseMachine.handle = _handle_words  # type: ignore[assignment, method-assign]
