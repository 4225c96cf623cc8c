"""The only way to run other programs: argument lists, never a shell string.

Each program leads a process group, whose other members are ended with it. Its output is read as it
comes, and a program that writes without end is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil
from msgspec import Struct

from build_pytorch.base.console import visible
from build_pytorch.base.errors import ENDINGS, ToolError
from build_pytorch.base.files import LARGEST_LOG

INSTALL: Final = {
    "git": "install Git (Debian: apt-get install git)",
    "nix": "install Nix (Debian: apt-get install nix-bin)",
}
"""How to install a missing program; `nix` stands for all programs of Nix."""

Environment = Mapping[str, str | None] | None
"""Variables added to those of this process; None removes a variable."""

Take = Callable[[list[bytes]], object]
"""Takes lines of an output, in a thread of the program."""

which: Final = shutil.which

_PR_SET_PDEATHSIG: Final = 1
_END_WITH_PARENT: Final = (  # prctl(2)
    functools.partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGTERM)
    if sys.platform == "linux"
    else None
)
_LARGEST_OUTPUT: Final = 32 << 20  #: bytes of stdout or stderr that are kept in memory
_LONGEST_LINE: Final = 1 << 20  #: bytes without a line break that are passed on as a line
_GRACE: Final = 3.0  #: seconds to read on after the end of a program, if others hold its output
_TOKEN: Final = re.compile(rb"(TOKEN|SECRET|PASSWORD|PASSWD|_KEY|_PAT)S?$", re.IGNORECASE)
"""Names of environment variables whose values no log gets."""
_SHORTEST_TOKEN: Final = 8  #: bytes; shorter values, such as `true`, are parts of other words


class ProcessResult(Struct, frozen=True):
    """Exit code and output of a program that ended; `expired`: killed at its time limit."""

    code: int
    stdout: str
    stderr: str
    expired: bool = False

    @property
    def tail(self) -> str:
        """The last 20 lines of stderr, safe to print."""
        return visible("\n".join(self.stderr.strip().splitlines()[-20:]))

    @property
    def last_line(self) -> str:
        """The last line of stderr, for errors of one line."""
        return (self.tail.splitlines() or ["no error output"])[-1]


class Running:
    """A program that was started; `finish` waits for its end."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, take: Take | None) -> None:
        self._process = process
        self._name = name
        self._output = {"stdout": bytearray(), "stderr": bytearray()}
        self._flood = ""
        self._error: Exception | None = None
        read, names = (self._pass_on, [take]) if take else (self._keep, self._output)
        self._readers = [threading.Thread(target=read, args=[name], daemon=True) for name in names]
        _live.add(self)
        for reader in self._readers:
            reader.start()

    def _chunks(self, name: str, limit: int) -> Iterator[bytes]:
        """Yield what the program writes; kill it at more bytes than the limit."""
        with getattr(self._process, name) as stream:
            total = 0
            while data := os.read(stream.fileno(), 1 << 16):
                total += len(data)
                if total > limit:
                    self._flood = f"stopped, as it wrote more than {limit >> 20} MiB"
                    self.send(signal.SIGKILL)
                    return
                yield data

    def _keep(self, name: str) -> None:
        for data in self._chunks(name, _LARGEST_OUTPUT):
            self._output[name] += data

    def _pass_on(self, take: Take) -> None:
        rest = b""
        try:
            for data in self._chunks("stdout", LARGEST_LOG):
                rest += data
                end = rest.rfind(b"\n") + 1 or (len(rest) > _LONGEST_LINE and len(rest))
                if end:
                    take(_without_tokens(rest[:end].removesuffix(b"\n")).split(b"\n"))
                    rest = rest[end:]
            if last := _without_tokens(rest) or self._flood.encode():
                take([last])
        except Exception as error:  # noqa: BLE001 - `finish` raises it
            self._error = error
            self.kill()

    def finish(self, timeout: float | None = None) -> ProcessResult:
        """Wait for the end of the program; kill it after `timeout` seconds.

        Raises what `take` raised. On an exception, such as Ctrl-C, `kill_all` ends the program.
        """
        if expired := self.is_running(timeout):
            self.kill()
        self.send(signal.SIGTERM)  # to what it left in its group
        for reader in self._readers:
            reader.join(_GRACE)
        self.send(signal.SIGKILL)
        _live.discard(self)
        if self._error:
            raise self._error
        stderr = self.said()
        if self._flood:
            stderr += f"\n{self._name}: {self._flood}"
        stdout = self._output["stdout"].decode(errors="replace")
        return ProcessResult(self._process.returncode, stdout, stderr, expired)

    def is_running(self, seconds: float | None) -> bool:
        """Wait at most so many seconds for the end, and return whether the program still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is None

    def said(self) -> str:
        """Return the text on stderr so far."""
        return self._output["stderr"].decode(errors="replace")

    def send(self, number: int) -> None:
        """Send a signal to the program's group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kill the program and all its descendants, also those in other process groups."""
        family: list[psutil.Process] = []
        if self._process.returncode is None:
            with contextlib.suppress(psutil.Error):
                family = psutil.Process(self._process.pid).children(recursive=True)
        self.send(signal.SIGKILL)
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.kill()
        self.is_running(_GRACE)


_live: Final[set[Running]] = set()
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
    take: Take | None = None,
) -> Running:
    """Start a program without waiting, with `env` added to our environment. Raises ToolError.

    Its output is kept in memory. With `take`, stdout and stderr are one output, whose lines are
    passed on as they come, with `***` for the values of variables that are named like a token; and
    on Linux the program gets SIGTERM when this process dies.
    """
    english = {**os.environ, "LC_ALL": "C", **(env or {})}
    with tempfile.TemporaryFile() as source, _signals_deferred(() if take else ENDINGS):
        source.write(stdin.encode(errors="surrogateescape"))
        source.seek(0)
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={name: value for name, value in english.items() if value is not None},
                stdin=source,
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
        return Running(process, argv[0], take)


@contextlib.contextmanager
def _signals_deferred(numbers: Iterable[int]) -> Iterator[None]:
    """Defer signals, so that `kill_all` finds a program that was just started.

    One that is ignored stays so: the program inherits that.
    """
    arrived: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {
        number: signal.signal(number, lambda number, _: arrived.append(number))
        for number in (numbers if is_main else ())
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in arrived:
            signal.raise_signal(number)


def capture(
    argv: Sequence[str], *, cwd: Path | None = None, env: Environment = None, check: bool = True
) -> ProcessResult:
    """Run a program. Raises ToolError if it is missing, or if it fails and `check` is set."""
    result = start(argv, cwd=cwd, env=env).finish()
    if check and result.code:
        said = textwrap.indent(result.tail, "  ")
        raise ToolError(f"{shlex.join(argv)}: exit code {result.code}\n{said}".rstrip())
    return result


def _without_tokens(output: bytes) -> bytes:
    for name, value in os.environb.items():
        if len(value) >= _SHORTEST_TOKEN and _TOKEN.search(name):
            output = output.replace(value, b"***")
    return output
