"""The entry of every command: runs it and turns errors into one line on stderr and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from build_pytorch.base import console, paths, process
from build_pytorch.base.console import Screen, write
from build_pytorch.base.errors import (
    ENDINGS,
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    EXIT_OK,
    BuildPytorchError,
    NothingToBuildError,
    near_miss,
    reporting_missing_packages,
)
from build_pytorch.base.versions import own_version
from build_pytorch.cli.commands import COMMANDS
from build_pytorch.cli.declaration import Command, help_text, options_from, parsed

Call = tuple[Command, dict[str, Any]]
"""A command and its arguments by field name."""


def run_words(words: Sequence[str], root: Path = paths.PROJECT, *, is_session: bool = False) -> int:
    """Run the commands that words name, as those after `invoke`. Returns the exit code.

    A session of nox runs one command only.
    """
    return guarded(lambda: run_calls(read_calls(words, is_session=is_session), root))


def run_script(words: Sequence[str]) -> int:
    """Run the words after `build-pytorch`, in the project of the current folder.

    Returns the exit code.
    """
    return guarded(lambda: _run_script(words))


def _run_script(words: Sequence[str]) -> int:
    match words:
        case [] | ["-h" | "--help" | "-l" | "--list"]:
            said = f"Texts call a command `invoke NAME`; here it is `{paths.SCRIPT} NAME`."
            write(sys.stdout, f"{listing()}{said}\n")
        case ["-V" | "--version"]:
            write(sys.stdout, f"{paths.SCRIPT} {own_version()}\n")
        case ["-h" | "--help", *names]:
            return run_calls((find_command(name), {"help": True}) for name in names)
        case _:
            return run_calls(read_calls(words), paths.project_of(Path.cwd()))
    return EXIT_OK


def listing() -> str:
    """Return the commands in the order of the docs, and how to see the options of one."""
    width = max(map(len, COMMANDS))
    lines = [f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS.values()]
    last = "`invoke --help NAME` shows the options of a command."
    return "\n".join(["Commands:", "", *lines, "", last]) + "\n"


def read_calls(words: Sequence[str], *, is_session: bool = False) -> list[Call]:
    """Return the commands that words name, with their arguments; a session has one of them.

    Raises BuildPytorchError for an unknown command and for wrong arguments.
    """
    calls: list[Call] = []
    rest = list(words)
    while rest:
        command = find_command(rest[0])
        given, rest = parsed(command, rest[1:])
        if rest and (is_session or rest[0] not in COMMANDS):
            raise BuildPytorchError(f'{command.name}: takes no names; found "{rest[0]}"')
        calls.append((command, given))
    return calls


def run_calls(calls: Iterable[Call], root: Path = paths.PROJECT) -> int:
    """Run commands on a checkout, or print their help, until one fails. Returns the last exit code.

    Raises BuildPytorchError.
    """
    for command, given in calls:
        if given.pop("help", False):
            write(sys.stdout, help_text(command))
            continue
        function = import_module(f"build_pytorch.cli.{command.module}").run
        if code := function(options_from(command, given, root)):
            return int(code)
    return EXIT_OK


def run_session(variant: str, argv: Sequence[str]) -> tuple[int, str]:
    """Build one variant with the arguments after `--` of its nox session.

    Returns the exit code, and why the variant is skipped, empty if it is not.
    """
    skipped = ""

    def build() -> int:
        nonlocal skipped
        ((command, given),) = read_calls(["build", *argv])
        try:
            return run_calls([(command, {**given, "variants": [variant]})])
        except NothingToBuildError as reason:
            skipped = str(reason)
            return EXIT_OK

    return guarded(build), skipped


def ends_nox(code: int) -> bool:
    """Return whether nox ends with this exit code; if not, it continues with the next session."""
    words = " ".join(sys.argv[1:]).partition(" -- ")[0].replace("=", " ").split()
    words += os.environ.get("NOXSESSION", "").split(",")
    return code >= EXIT_INTERRUPTED or sum(word.startswith("build(") for word in words) == 1


def find_command(name: str) -> Command:
    """Return the command of a name. Raises BuildPytorchError with a hint for an unknown one."""
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        hint = near_miss(name, COMMANDS) or "; `invoke --list` shows all commands"
        raise BuildPytorchError(f'unknown {kind} "{name}"{hint}')
    return COMMANDS[name]


class _Ended(KeyboardInterrupt):
    """A signal that ends a run as Ctrl-C does; its number is the argument."""


def guarded(run: Callable[[], int]) -> int:
    """Run a command and return its exit code.

    Expected errors, a missing dependency and the signals of ENDINGS end without a traceback, and
    programs that were started end as well. Anything else is a bug and keeps it.
    """
    console.prepare_streams()
    handlers: dict[int, Any] = {}
    try:
        handlers |= _signals_raise()
        with reporting_missing_packages():
            return run()
    except BuildPytorchError as error:
        return _complain(error.lines, error.exit_code)
    except KeyboardInterrupt as error:
        ended_by = signal.Signals(error.args[0] if isinstance(error, _Ended) else signal.SIGINT)
        return _complain([ENDINGS[ended_by]], 128 + ended_by)
    except OSError as error:
        _give_up_stdout()
        where = error.filename or "standard output"
        return _complain([f"{where}: {error.strerror}; fix that and run again"], EXIT_BAD_INPUT)
    finally:
        for number, handler in handlers.items():  # first: nothing catches their exceptions here
            signal.signal(number, handler)
        process.kill_all()


def _signals_raise() -> dict[int, Any]:
    """Let the first signal of ENDINGS raise KeyboardInterrupt. Returns the handlers before.

    Later ones are ignored: the first one already ends the run, and started programs with it.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    before: dict[int, Any] = {number: signal.getsignal(number) for number in ENDINGS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as for what a shell runs in the background
            signal.signal(number, _raise_first)
    return before


def _raise_first(number: int, _frame: FrameType | None) -> None:
    for each in ENDINGS:
        signal.signal(each, signal.SIG_IGN)
    raise _Ended(number)


def _give_up_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _complain(lines: Sequence[str], code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _give_up_stdout()
    for line in lines:
        Screen(sys.stderr).line(f"error: {line}")
    return code
