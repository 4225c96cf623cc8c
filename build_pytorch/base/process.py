"""The only way to run other programs: argument lists, never a shell string."""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from build_pytorch.base.console import visible
from build_pytorch.base.errors import ENDINGS, ToolError

INSTALL: Final = {
    "git": "install Git (Debian: apt-get install git)",
    "nix": "install Nix (Debian: apt-get install nix-bin)",
}
"""How to install a missing program; `nix` stands for all programs of Nix."""

Environment = Mapping[str, str | None] | None
"""Variables added to those of this process; None removes a variable."""

which: Final = shutil.which

_STEP: Final = 0.5
"""Seconds between two calls of a callback."""
_GRACE: Final = 1.0
"""Seconds to read the output of a program that ended and whose children still hold it open."""
_MOST: Final = 32 << 20
"""Bytes of one output; a program that writes more is stopped. Ours write at most a few MB."""


class ProcessResult(Struct, frozen=True):
    """Exit code and output of a program that ended."""

    code: int
    stdout: str
    stderr: str
    expired: bool = False
    """It was killed at its time limit."""

    @property
    def tail(self) -> str:
        """The last 20 lines of stderr, safe to print."""
        return visible("\n".join(self.stderr.strip().splitlines()[-20:]))

    @property
    def last_line(self) -> str:
        """The last line of stderr, for errors of one line."""
        return (self.tail.splitlines() or ["no error output"])[-1]


class Running:
    """A program that was started; `finish` waits for its end.

    Its output is read while it runs, so that it never waits for a reader. At _MOST bytes it is
    killed, and the last line of `stderr` says so.
    """

    def __init__(self, process: subprocess.Popen[bytes], program: str) -> None:
        self._process = process
        self._program = program
        self._stdout, self._stderr = bytearray(), bytearray()
        self._is_flooded = False
        self._readers = [
            threading.Thread(target=self._read, args=each, daemon=True)
            for each in ((process.stdout, self._stdout), (process.stderr, self._stderr))
        ]
        _live.add(self)
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[bytes], output: bytearray) -> None:
        with stream:
            while data := os.read(stream.fileno(), 1 << 16):
                output += data
                if len(output) > _MOST:
                    self._is_flooded = True
                    self._process.kill()
                    return

    def finish(
        self, timeout: float | None = None, callback: Callable[[int], object] | None = None
    ) -> ProcessResult:
        """Wait for the end of the program; kill it after `timeout` seconds.

        `callback` is called with 0 every half second. On an exception, such as Ctrl-C, the program
        is left to `kill_all`.
        """
        with _time_limit(self._process, timeout) as expired:
            while self.is_running(_STEP if callback else None):
                if callback:
                    callback(0)
        for reader in self._readers:
            reader.join(_GRACE)
        _live.discard(self)
        code = self._process.returncode
        stderr = self.said()
        if self._is_flooded:
            stderr += f"\n{self._program}: stopped, as it wrote more than {_MOST >> 20} MiB"
        is_killed = expired.is_set() and code == -signal.SIGKILL
        stdout = self._stdout.decode(errors="replace")
        return ProcessResult(code, stdout, stderr, expired=is_killed)

    def is_running(self, seconds: float | None) -> bool:
        """Wait at most so many seconds for the end, and return whether the program still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is None

    def said(self) -> str:
        """Return the text on stderr so far."""
        return bytes(self._stderr).decode(errors="replace")

    def kill(self) -> None:
        """Kill the program and wait for its end."""
        self._process.kill()
        self._process.wait()


_live: set[Running] = set()
"""Programs that were started and not waited for yet."""


def kill_all() -> None:
    """Kill every program that still runs, so that none runs after this process ends."""
    while _live:
        _live.pop().kill()


def start(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Environment = None,
    stdin: str = "",
    memory: int | None = None,
) -> Running:
    """Start a program without waiting; `memory` limits its address space in bytes (Linux).

    Raises ToolError.
    """
    with tempfile.TemporaryFile() as source, _signals_deferred():
        source.write(stdin.encode(errors="surrogateescape"))
        source.seek(0)
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=environment(env),
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise start_error(argv[0], error) from None
        running = Running(process, argv[0])
    if memory and hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError):
            limits = resource.prlimit(process.pid, resource.RLIMIT_AS)
            lowest = min(n for n in (memory, *limits) if n != resource.RLIM_INFINITY)
            resource.prlimit(process.pid, resource.RLIMIT_AS, (lowest, lowest))
    return running


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Defer the signals of ENDINGS, so that `kill_all` finds a program that was just started.

    One that is ignored stays so: the program inherits that.
    """
    arrived: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {
        number: signal.signal(number, lambda number, _: arrived.append(number))
        for number in (ENDINGS if is_main else ())
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for arrived_number in arrived:
            signal.raise_signal(arrived_number)


def capture(
    argv: Sequence[str], *, cwd: Path | None = None, env: Environment = None, check: bool = True
) -> ProcessResult:
    """Run a program. Raises ToolError if it is missing, or if it fails and `check` is set."""
    result = start(argv, cwd=cwd, env=env).finish()
    if check and result.code:
        raise ToolError(f"{shlex.join(argv)}: exit code {result.code}\n{result.tail}".rstrip())
    return result


def environment(env: Environment) -> dict[str, str]:
    """Return the environment of a program: ours, with English messages, and `env` added."""
    wanted = {**os.environ, "LC_ALL": "C", **(env or {})}
    return {name: value for name, value in wanted.items() if value is not None}


def start_error(program: str, error: OSError) -> ToolError:
    """Return the error of a program that did not start, with the way to install it."""
    if isinstance(error, FileNotFoundError):
        hint = INSTALL.get(program.partition("-")[0], "put it on PATH")
        return ToolError(f"{program}: not found; {hint}")
    return ToolError(f"{program}: cannot be run: {error.strerror}")


@contextlib.contextmanager
def _time_limit(
    process: subprocess.Popen[bytes], seconds: float | None
) -> Iterator[threading.Event]:
    """Kill a program after so many seconds; the event is set if that happened.

    A wait with a time limit would poll, up to 50 ms late.
    """
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(seconds or 0, expire)
    timer.daemon = True
    if seconds is not None:
        timer.start()
    try:
        yield expired
    finally:
        timer.cancel()
