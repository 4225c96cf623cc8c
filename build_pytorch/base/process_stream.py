"""Programs whose output is read line by line while they run, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import psutil

from build_pytorch.base import process

_GRACE: Final = 3.0
"""Seconds that processes which a program left behind get to end, and its output to be read."""

_LONGEST: Final = 1 << 20
"""Bytes without a line break that are passed on as a line."""


class StreamedProcess:
    """A program in its own process group, with stdout and stderr as one output.

    Ctrl-C on the terminal does not reach it. On Linux it gets SIGTERM when this process dies.
    """

    def __init__(
        self,
        child: asyncio.subprocess.Process,
        output: asyncio.StreamReader,
        close: Callable[[], None],
    ) -> None:
        self._child = child
        self._output = output
        self._close = close
        self.pid = child.pid

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> Self:
        """Start a program with `env` added to ours. Raises ToolError where that is impossible."""
        # A pipe of our own: the end of the program is seen also while others hold its output open.
        read_end, write_end = os.pipe()
        output = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(read_end, "rb", 0)
        )
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd,
                env=process.environment(env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_terminated_with_parent(),
            )
        except BaseException as error:
            transport.close()
            if isinstance(error, OSError):
                raise process.start_error(argv[0], error) from None
            raise
        finally:
            os.close(write_end)
        return cls(child, output, transport.close)

    async def run(self, take: Callable[[list[bytes]], object]) -> int:
        """Pass the output to `take`, lines as they arrive, and return the exit code.

        Processes that the program left behind in its group are ended. Where this is cancelled,
        the program is killed.
        """
        reading = asyncio.create_task(self._read(take))
        try:
            code = await self._child.wait()
            await self._end_group()
            await asyncio.wait({reading}, timeout=_GRACE)  # others may hold the output open
            if reading.done():
                reading.result()
        finally:
            reading.cancel()
            if self._child.returncode is None:
                self.kill()
                await self._child.wait()
            self._close()
        return code

    async def _read(self, take: Callable[[list[bytes]], object]) -> None:
        rest = b""
        try:
            while data := await self._output.read(1 << 16):
                *lines, rest = (rest + data).split(b"\n")
                if len(rest) > _LONGEST:
                    lines.append(rest)
                    rest = b""
                if lines:
                    take(lines)
            if rest:
                take([rest])
        except Exception:
            self.kill()  # nobody reads its output any more
            raise

    def send(self, number: int) -> None:
        """Send a signal to the program's group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill the program and all its descendants, also those in other process groups."""
        family = []
        with contextlib.suppress(psutil.Error):
            family = psutil.Process(self.pid).children(recursive=True)
        self.send(signal.SIGKILL)
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.kill()

    def memory(self) -> int:
        """Return the bytes that the program and its descendants hold; 0 where that is unknown."""
        try:
            program = psutil.Process(self.pid)
            family = [program, *program.children(recursive=True)]
            return sum(member.memory_info().rss for member in family)
        except psutil.Error:
            return 0

    async def _end_group(self) -> None:
        self.send(signal.SIGTERM)
        end = asyncio.get_running_loop().time() + _GRACE
        with contextlib.suppress(ProcessLookupError):
            while asyncio.get_running_loop().time() < end:
                os.killpg(self.pid, 0)
                await asyncio.sleep(0.05)
        self.send(signal.SIGKILL)


async def run_tail(argv: Sequence[str], lines: int = 1) -> tuple[int, list[str]]:
    """Run a program. Return its exit code and the last lines of its output that are not empty."""
    tail: deque[bytes] = deque(maxlen=lines)
    program = await StreamedProcess.start(argv)
    code = await program.run(lambda batch: tail.extend(line for line in batch if line.strip()))
    return code, [line.decode("utf-8", errors="replace") for line in tail]


_PR_SET_PDEATHSIG: Final = 1


def _terminated_with_parent() -> Callable[[], object] | None:
    """Return what a child runs first to get SIGTERM when we die, also by SIGKILL.

    Only Linux can: prctl(2).
    """
    if sys.platform != "linux":
        return None
    import ctypes  # only here

    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # we died before the call
            os._exit(1)

    return prepare
