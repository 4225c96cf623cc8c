"""The entry of every command: runs it and turns errors into one line on stderr and an exit code."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType

from build_pytorch.base import process
from build_pytorch.base.console import Screen
from build_pytorch.base.errors import (
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    BuildPytorchError,
    reporting_missing_packages,
)
from build_pytorch.cli.commands import COMMANDS
from build_pytorch.cli.declaration import Command, Given, options_from, parsed


def run_command(command: Command, given: Given) -> int:
    """Run a command with the arguments that were given. Returns the exit code."""

    def run() -> int:
        module, function = command.place
        options = options_from(command.options, given)
        code: int = getattr(import_module(f"build_pytorch.cli.{module}"), function)(options)
        return code

    return guarded(run)


def run_arguments(name: str, argv: Sequence[str], **given: str | bool | list[str]) -> int:
    """Run a command with the arguments after `--` of a nox session. Returns the exit code.

    `given` are arguments that the session sets itself. Exits with code 2 for wrong arguments.
    """
    command = COMMANDS[name]
    return run_command(command, {**parsed(command, argv, f"nox -s {name} --"), **given})


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run as Ctrl-C does."""


def guarded(run: Callable[[], int]) -> int:
    """Run a command and return its exit code.

    Expected errors, a missing dependency, Ctrl-C and SIGTERM end without a traceback, and
    programs that were started end as well. Anything else is a bug and keeps it.
    """
    gc.disable()  # runs are short, so garbage collection only costs time
    _prepare_streams()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    try:
        with reporting_missing_packages():
            return run()
    except BuildPytorchError as error:
        return _complain(str(error), error.exit_code)
    except _Terminated:
        return _complain("terminated; every file is whole, run again to go on", 128 + 15)
    except KeyboardInterrupt:
        return _complain("interrupted; every file is whole, run again to go on", EXIT_INTERRUPTED)
    except OSError as error:
        _give_up_stdout()
        where = error.filename or "standard output"
        return _complain(f"{where}: {error.strerror}; fix that and run again", EXIT_BAD_INPUT)
    finally:
        process.kill_all()


def _prepare_streams() -> None:
    """Make printing work in any encoding of the terminal, and without stdout or stderr (`>&-`)."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


def _give_up_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _complain(message: str, code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _give_up_stdout()
    Screen(sys.stderr).line(f"error: {message}")
    return code
