"""The only way to run other programs: argument lists, never a shell string.

Each program leads a process group, whose other members are ended with it. Its output is read as it
comes, and a program that writes without end is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil
from msgspec import Struct

from build_pytorch.base.console import visible
from build_pytorch.base.errors import ToolError
from build_pytorch.base.files import LARGEST_LOG

INSTALL: Final = {  #: how to install a missing program; `nix` stands for all programs of Nix
    "git": "install Git (Debian: apt-get install git)",
    "nix": "install Nix (Debian: apt-get install nix-bin)",
}

Take = Callable[[list[bytes]], int | None]
"""Takes lines of an output, often none, and returns the signal that the program gets, if any."""

which: Final = shutil.which

# prctl(2), PR_SET_PDEATHSIG. Only `take` asks for it: after a fork that calls a function, Python
# loses the exception of a signal handler.
_END_WITH_PARENT: Final = (
    functools.partial(ctypes.CDLL(None).prctl, 1, signal.SIGTERM)
    if sys.platform == "linux"
    else None
)
_LARGEST_OUTPUT: Final = 32 << 20  #: bytes of stdout and stderr that are kept in memory
_LONGEST_LINE: Final = 1 << 20  #: bytes without a line break that are passed on as a line
_TICK: Final = 0.1  #: seconds without output until the program is looked at again
_TOKEN: Final = re.compile(rb"(TOKEN|SECRET|PASSWORD|PASSWD|_KEY|_PAT)S?$", re.IGNORECASE)
"""Names of environment variables whose values no log gets."""


class ProcessResult(Struct, frozen=True):
    """Exit code and output of a program that ended; `expired`: killed at its time limit."""

    code: int
    stdout: str
    stderr: str
    expired: bool = False

    @property
    def tail(self) -> str:
        """The last 20 lines of stderr, safe to print."""
        return visible("\n".join(self.stderr[-10_000:].strip().splitlines()[-20:]))

    @property
    def last_line(self) -> str:
        """The last line of stderr, for errors of one line."""
        return (self.tail.splitlines() or ["no error output"])[-1]


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str | None] = {},
    seconds: float = math.inf,
    take: Take | None = None,
) -> ProcessResult:
    """Run a program to its end, or kill it after so many seconds.

    `env` is added to our own environment; None removes a variable. The output is kept in memory.
    With `take`, stdout and stderr are one output, whose lines are passed on as they come, with
    `***` for the values of variables that are named like a token; `take` is called without a line
    as well, ten times in a second, and on Linux the program gets SIGTERM when this process dies.
    Raises ToolError if the program is missing.
    """
    end, expired = time.monotonic() + seconds, False
    variables = {**os.environ, "LC_ALL": "C", **env}
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={name: value for name, value in variables.items() if value is not None},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if take else subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_END_WITH_PARENT if take else None,  # noqa: PLW1509 - it calls C
        )
    except FileNotFoundError:
        hint = INSTALL.get(argv[0].partition("-")[0], "put it on PATH")
        raise ToolError(f"{argv[0]}: not found; {hint}") from None
    except OSError as error:
        raise ToolError(f"{argv[0]}: cannot be run: {error.strerror}") from None
    with process:
        output = _Output(process, take)
        try:
            while process.poll() is None:
                output.read(_TICK)
                if time.monotonic() > end:
                    expired = True
                    _send(process, signal.SIGKILL)
        finally:
            _send(process, signal.SIGKILL)  # also to what it left in its group
        while output.read(0):
            pass
    output.close(argv[0])
    stdout, stderr = (output.kept[it].decode(errors="replace") for it in (0, -1))
    return ProcessResult(process.returncode, stdout, stderr, expired)


def output_of(argv: Sequence[str]) -> str:
    """Run a program and return its stdout. Raises ToolError if it is missing or fails."""
    result = run(argv)
    if result.code:
        said = textwrap.indent(result.tail, "  ")
        raise ToolError(f"{shlex.join(argv)}: exit code {result.code}\n{said}".rstrip())
    return result.stdout


class _Output:
    """What a program writes: stdout and stderr are kept, or lines of both are passed on."""

    def __init__(self, process: subprocess.Popen[bytes], take: Take | None) -> None:
        self._pipes = selectors.PollSelector()
        self.kept: list[bytearray] = []
        self._process, self._take = process, take
        self._limit = LARGEST_LOG if take else _LARGEST_OUTPUT
        self._size = 0
        for pipe in filter(None, (process.stdout, process.stderr)):
            self.kept.append(bytearray())
            self._pipes.register(pipe, selectors.EVENT_READ, self.kept[-1])

    def read(self, seconds: float) -> bool:
        """Read what is there or comes in this time, and return whether there may be more.

        A program that writes without end is killed.
        """
        ready = self._pipes.select(seconds) if self._pipes.get_map() else []
        if not self._pipes.get_map():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        for key, _ in ready:
            data = os.read(key.fd, 1 << 16)
            self._size += len(data)
            if not data:
                self._pipes.unregister(key.fileobj)
            elif self._size <= self._limit:
                key.data.extend(data)
            else:
                _send(self._process, signal.SIGKILL)
        self._pass_on()
        return bool(ready) and self._size <= self._limit

    def close(self, name: str) -> None:
        """Pass on or keep the end of the output; what was written without end is not kept."""
        if self._size > self._limit:
            for kept in () if self._take else self.kept:
                del kept[_LONGEST_LINE:]
            flood = f"\n{name}: stopped, as it wrote more than {self._limit >> 20} MiB"
            self.kept[-1].extend(flood.encode())
        self._pass_on(is_end=True)

    def _pass_on(self, *, is_end: bool = False) -> None:
        if not self._take:
            return
        rest = self.kept[0]
        end = rest.rfind(b"\n") + 1
        if is_end or (len(rest) > _LONGEST_LINE and not end):
            end = len(rest)
        lines = _without_tokens(bytes(rest[:end]).removesuffix(b"\n")).split(b"\n") if end else []
        del rest[:end]
        if number := self._take(lines):
            _send(self._process, number)


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a program's group; SIGKILL also to what it started in other groups."""
    if number == signal.SIGKILL and process.poll() is None:
        kill_started(process.pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def kill_started(by: int | None = None) -> None:
    """Kill a process and all that it has started; by default what this one has started."""
    with contextlib.suppress(psutil.Error):
        program = psutil.Process(by)
        family = program.children(recursive=True)
        for member in [program, *family] if by else family:  # parents come before children
            with contextlib.suppress(psutil.Error):
                member.kill()


def _without_tokens(output: bytes) -> bytes:
    for name, value in os.environb.items():
        # A value of a few bytes, such as `true`, is a part of other words.
        if len(value) > 7 and _TOKEN.search(name):  # noqa: PLR2004
            output = output.replace(value, b"***")
    return output
