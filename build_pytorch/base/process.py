"""The one door to other programs: argument lists only, never a shell string."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from build_pytorch.base.errors import ToolError

INSTALL: Final = {
    "git": "install Git (Debian: apt-get install git)",
    "nix-instantiate": "install Nix (Debian: apt-get install nix-bin)",
    "nix-store": "install Nix (Debian: apt-get install nix-bin)",
    "objdump": "install GNU binutils (Debian: apt-get install binutils)",
    "readelf": "install GNU binutils (Debian: apt-get install binutils)",
    "cuobjdump": "install it from the CUDA toolkit, or: pip install nvidia-cuda-cuobjdump",
}
"""What to do where a program is missing."""

_KEPT_LINES: Final = 20


class ProcessResult:
    """What a program answered; `expired` says that it was ended because it took too long."""

    def __init__(self, code: int, stdout: str, stderr: str, *, expired: bool = False) -> None:
        self.code = code
        self.stdout = stdout
        self.stderr = stderr
        self.expired = expired

    @property
    def tail(self) -> str:
        """The last lines of what it said on stderr, for error messages."""
        return "\n".join(self.stderr.strip().splitlines()[-_KEPT_LINES:])

    @property
    def last_line(self) -> str:
        """The last line that it wrote to stderr, for errors of one line."""
        return (self.tail.splitlines() or ["no error output"])[-1]


_GRACE: Final = 3.0
"""Seconds that what a program left behind has to end by itself."""

_live: set[Running | Streaming] = set()
"""Programs that were started and not waited for yet."""


class Running:
    """A program that was started and works on its own until `finish`."""

    def __init__(
        self, process: subprocess.Popen[bytes], stdout: IO[bytes], stderr: IO[bytes]
    ) -> None:
        self._process = process
        self._stdout = stdout
        self._stderr = stderr
        _live.add(self)

    def finish(self, timeout: float | None = None) -> ProcessResult:
        """Wait for its end, and end it after so many seconds."""
        # Popen.wait with a timeout polls, and sleeps up to 50 ms too long; a timer does not.
        timer = threading.Timer(timeout, self._process.kill) if timeout else None
        if timer:
            timer.start()
        try:
            code = self._process.wait()
        except BaseException:  # Ctrl-C reaches us first: leave no orphan behind
            self.kill()
            raise
        finally:
            expired = timer is not None and not timer.is_alive()
            if timer:
                timer.cancel()
            _live.discard(self)
            texts = [_drained(stream) for stream in (self._stdout, self._stderr)]
        return ProcessResult(code, *texts, expired=expired)

    def watch(self, tell: Callable[[int], None], timeout: float) -> ProcessResult:
        """Wait for its end as `finish` does, and tell every half second that it still runs."""
        for _ in range(int(timeout * 2)):
            if not self.is_running(0.5):
                return self.finish()
            tell(0)
        self.kill()
        ended = self.finish()
        return ProcessResult(ended.code, ended.stdout, ended.stderr, expired=True)

    def is_running(self, seconds: float) -> bool:
        """Whether it still runs after so many seconds; returns at once where it ends before."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        except BaseException:  # Ctrl-C reaches us first: leave no orphan behind
            self.kill()
            raise
        return False

    def said(self) -> str:
        """What it said on stderr so far."""
        data = os.pread(self._stderr.fileno(), 1 << 24, 0)
        return data.decode("utf-8", errors="replace")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


class Streaming:
    """A program in a session of its own, whose output is read as it comes.

    Of its own: Ctrl-C on the terminal reaches us alone, and we decide how it ends.
    """

    def __init__(self, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
        self._process = process
        self._output = output
        self.pid = process.pid
        os.set_blocking(output.fileno(), False)
        _live.add(self)

    def fileno(self) -> int:
        """Of its output, for selectors."""
        return self._output.fileno()

    def read(self, size: int = 1 << 16) -> bytes | None:
        """What it printed since, at most so many bytes; None where it has closed its output."""
        try:
            return os.read(self._output.fileno(), size) or None
        except BlockingIOError:
            return b""

    def is_readable(self) -> bool:
        """Whether it printed something since, or closed its output."""
        return bool(select.select([self._output], [], [], 0)[0])

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        """Send a signal to it and to what it started in its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """End it at once, with everything that it started, in whatever session that is."""
        import psutil

        family = []
        with contextlib.suppress(psutil.Error):
            family = psutil.Process(self.pid).children(recursive=True)
        self.signal(signal.SIGKILL)
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.kill()
        self._process.wait()

    def finish(self) -> None:
        """End what it left behind in its session, and give its output back, once it has ended."""
        self.signal(signal.SIGTERM)
        end = time.monotonic() + _GRACE
        while self._has_family() and time.monotonic() < end:
            time.sleep(0.05)
        self.signal(signal.SIGKILL)
        _live.discard(self)
        self._output.close()

    def _has_family(self) -> bool:
        """Whether anything of its session still runs."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


def _started(
    argv: Sequence[str],
    *,
    env: Mapping[str, str | None] | None = None,
    **how: Any,  # noqa: ANN401 - as subprocess takes it
) -> subprocess.Popen[bytes]:
    """Start a program in English, with `env` added to ours. Raises ToolError."""
    try:
        return subprocess.Popen(argv, env=environment(env), **how)
    except OSError as error:
        raise start_error(argv[0], error) from None


def environment(changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return our environment in English with changes; None removes a variable."""
    wanted = {**os.environ, "LC_ALL": "C", **(changes or {})}
    return {name: value for name, value in wanted.items() if value is not None}


def start_error(program: str, error: OSError) -> ToolError:
    """Return the error for a program that cannot be started."""
    if isinstance(error, FileNotFoundError):
        return ToolError(f"{program}: not found; {INSTALL.get(program, 'put it on PATH')}")
    return ToolError(f"{program}: cannot be run: {error.strerror}")


def stream(
    argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str | None] | None = None
) -> Streaming:
    """Start a program whose stdout and stderr, as one, are read as they come. Raises ToolError."""
    process = _started(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_ending_with_parent(),
    )
    assert process.stdout is not None  # noqa: S101 - asked for above
    return Streaming(process, process.stdout)


_PR_SET_PDEATHSIG: Final = 1


def _ending_with_parent() -> Callable[[], object] | None:
    """What a child does first so that it gets SIGTERM when we are gone, kill -9 included.

    Only Linux can. prctl(2).
    """
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def kill_all() -> None:
    """End every program that still runs. For an end before its time: no orphans."""
    for running in list(_live):
        running.kill()
        running.finish()


def _drained(stream: IO[bytes]) -> str:
    with stream:
        stream.seek(0)
        return stream.read().decode("utf-8", errors="replace")


def which(program: str) -> str | None:
    """Where a program is, or None."""
    return shutil.which(program)


def start(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    stdin: str = "",
    memory: int | None = None,
) -> Running:
    """Start a program without waiting. Raises ToolError.

    `env` is added to our own (None takes a name out), in which programs speak English: we read
    what they say. `memory` limits its bytes where the system can.
    """
    # Files instead of pipes: a program never waits for us to read what it says.
    stdout, stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
    source = tempfile.TemporaryFile() if stdin else None  # noqa: SIM115
    if source:
        source.write(stdin.encode(errors="surrogateescape"))
        source.seek(0)
    try:
        process = _started(
            argv,
            cwd=cwd,
            env=env,
            stdin=source or subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
    finally:
        if source:
            source.close()
    if memory and hasattr(resource, "prlimit"):  # Linux
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_AS, (memory, memory))
    return Running(process, stdout, stderr)


def capture(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    check: bool = True,
) -> ProcessResult:
    """Run a program and return what it printed.

    Raises ToolError where it is missing, or where it fails and `check` is set.
    """
    result = start(argv, cwd=cwd, env=env).finish()
    if check and result.code:
        raise ToolError(f"{' '.join(argv)}: exit code {result.code}\n{result.tail}")
    return result


@contextlib.contextmanager
def piped(argv: Sequence[str]) -> Iterator[IO[bytes]]:
    """Run a program and hand out what it prints while it prints it: never held as a whole.

    The program is ended where the caller leaves early. Raises ToolError where it is missing, or
    where it fails although all it said was read.
    """
    with tempfile.TemporaryFile() as stderr:
        process = _started(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
        try:
            if process.stdout is None:
                raise ToolError(f"{argv[0]}: nothing to read from")
            with process.stdout as out:
                yield out
                is_read = not out.read(1)
            code = process.wait()
        finally:
            process.kill()
            process.wait()
        stderr.seek(0)
        said = stderr.read().decode("utf-8", errors="replace")
        if code and is_read:
            raise ToolError(f"{' '.join(argv)}: exit code {code}\n{said[-2000:].strip()}")
