"""Programs whose output is read line by line while they run, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import signal
import sys
from asyncio import BaseTransport
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final, Self

import psutil

from build_pytorch.base.files import LARGEST_LOG
from build_pytorch.base.process import Environment, environment, start_error

_GRACE: Final = 3.0
"""Seconds that processes which a program left behind get to end, and its output to be read."""

_LONGEST: Final = 1 << 20  #: bytes without a line break that are passed on as a line

_TOKEN: Final = re.compile(rb"(TOKEN|SECRET|PASSWORD|PASSWD|_KEY|_PAT)S?$", re.IGNORECASE)
"""Names of environment variables whose values no log gets."""
_SHORTEST_TOKEN: Final = 8  #: bytes; shorter values, such as `true`, are parts of other words


@dataclasses.dataclass
class StreamedProcess:
    """A program in its own process group, with stdout and stderr as one output.

    Ctrl-C on the terminal does not reach it. On Linux it gets SIGTERM when this process dies.
    """

    _child: asyncio.subprocess.Process
    _output: asyncio.StreamReader
    _pipe: BaseTransport

    @property
    def pid(self) -> int:
        """The process id of the program and of its group."""
        return self._child.pid

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, cwd: Path | None = None, env: Environment | None = None
    ) -> Self:
        """Start a program with `env` added to ours. Raises ToolError where that is impossible."""
        # A pipe of our own: the end of the program is seen also while others hold its output open.
        read_end, write_end = os.pipe()
        output = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(read_end, "rb", 0)
        )
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd,
                env=environment(env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_terminated_with_parent(),
            )
        except BaseException as error:
            pipe.close()
            if isinstance(error, OSError):
                raise start_error(argv[0], error) from None
            raise
        finally:
            os.close(write_end)
        return cls(child, output, pipe)

    async def run(self, take: Callable[[list[bytes]], object]) -> int:
        """Pass the output to `take`, lines as they arrive, and return the exit code.

        Values of variables that are named like a token are `***` in it.

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
            self._pipe.close()
        return code

    async def _read(self, take: Callable[[list[bytes]], object]) -> None:
        rest, total = b"", 0
        try:
            while data := await self._output.read(1 << 16):
                total += len(data)
                if total > LARGEST_LOG:
                    take([rest, b"stopped: it wrote more than %d MiB" % (LARGEST_LOG >> 20)])
                    self.kill()
                    return
                whole, newline, rest = (rest + data).rpartition(b"\n")
                if newline:
                    take(_without_tokens(whole).split(b"\n"))
                if len(rest) > _LONGEST:
                    take([_without_tokens(rest)])
                    rest = b""
            if rest:
                take([_without_tokens(rest)])
        except Exception:
            self.kill()  # nobody reads its output any more
            raise

    def send(self, number: int) -> None:
        """Send a signal to the program's group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill the program and all its descendants, also those in other process groups."""
        family = self._family()
        self.send(signal.SIGKILL)
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.kill()

    def _family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            program = psutil.Process(self.pid)
            return [program, *program.children(recursive=True)]
        return []

    async def _end_group(self) -> None:
        self.send(signal.SIGTERM)
        for _ in range(int(_GRACE / 0.05)):
            if not any(map(self._is_member, psutil.pids())):
                break
            await asyncio.sleep(0.05)
        self.send(signal.SIGKILL)

    def _is_member(self, pid: int) -> bool:
        """Whether a process of the group runs; a dead one may wait long for its parent."""
        with contextlib.suppress(OSError, psutil.Error):
            if os.getpgid(pid) == self.pid:
                return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        return False


def _without_tokens(output: bytes) -> bytes:
    for name, value in os.environb.items():
        if len(value) >= _SHORTEST_TOKEN and _TOKEN.search(name):
            output = output.replace(value, b"***")
    return output


async def run_tail(
    argv: Sequence[str], most: int = 1, *, cwd: Path | None = None, log: IO[bytes] | None = None
) -> tuple[int, list[str]]:
    """Run a program, with its output in `log`. Raises ToolError, OSError for the log.

    Returns its exit code and the last lines that are not empty.
    """
    tail: deque[str] = deque(maxlen=most)

    def take(lines: list[bytes]) -> None:
        texts = [line.decode("utf-8", errors="replace") for line in lines]
        tail.extend(text for text in texts if text.strip())
        if log:
            log.writelines(f"{text}\n".encode() for text in texts)

    program = await StreamedProcess.start(argv, cwd=cwd)
    return await program.run(take), list(tail)


def _terminated_with_parent() -> Callable[[], object] | None:
    """Return what a child runs first to get SIGTERM when the parent ends, also by SIGKILL.

    Only Linux can: prctl(2).
    """
    if sys.platform != "linux":
        return None
    import ctypes  # only here

    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def prepare() -> None:
        prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # the parent ended before the call
            os._exit(1)

    return prepare
