"""Programs whose output is read while they run: lines, ends, signals, what they leave behind."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from world import wait_until

from build_pytorch.base import process_stream
from build_pytorch.base.errors import ToolError
from build_pytorch.base.process_stream import StreamedProcess, run_tail


def run(
    *argv: str, during: Callable[[StreamedProcess], object] | None = None
) -> tuple[int, list[bytes]]:
    """Run a program to its end. `during` is called with it at the first line."""
    lines: list[bytes] = []

    async def main() -> int:
        program = await StreamedProcess.start(argv)

        def take(batch: list[bytes]) -> None:
            if not lines and during:
                during(program)
            lines.extend(batch)

        return await program.run(take)

    return asyncio.run(main()), lines


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("echo one; echo two >&2; printf three; exit 7", (7, [b"one", b"two", b"three"])),
        ("echo x; exec >&- 2>&-; sleep 0.2; exit 3", (3, [b"x"])),
    ],
)
def test_lines_of_both_outputs_arrive_in_order_with_the_exit_code(
    script: str, ended: tuple[int, list[bytes]]
) -> None:
    """A program that closes its output is waited for."""
    assert run("sh", "-c", script) == ended


def test_lines_arrive_while_the_program_runs(tmp_path: Path) -> None:
    marker = tmp_path / "seen"
    script = f"echo first; until [ -e {marker} ]; do sleep 0.02; done; echo second"
    assert run("sh", "-c", script, during=lambda _: marker.touch())[1] == [b"first", b"second"]


def test_an_output_without_line_breaks_is_passed_on_in_parts() -> None:
    code, lines = run(sys.executable, "-c", "print('x' * 3_000_000, end='')")
    assert code == 0
    assert len(lines) > 1
    assert sum(map(len, lines)) == 3_000_000


def test_a_program_that_writes_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_stream, "LARGEST_LOG", 4 << 20)
    code, lines = run("yes")
    assert (code, lines[-1]) == (-signal.SIGKILL, b"stopped: it wrote more than 4 MiB")
    assert sum(map(len, lines)) < 4 << 20


def test_what_a_program_leaves_behind_in_its_group_is_ended() -> None:
    code, lines = run("sh", "-c", "sleep 4243 & echo $!; kill -9 $$")
    assert code == -signal.SIGKILL
    wait_until(lambda: is_gone(int(lines[0])), "end of the background process")


ZOMBIE = """
import os, time
reading, writing = os.pipe()
if os.fork():
    os.read(reading, 1)
    os._exit(0)
if not os.fork():
    os._exit(0)  # stays in the group; its parent leaves the group and does not collect it
os.setsid()
print(os.getpid(), flush=True)
os.close(1)
os.close(2)
os.write(writing, b"x")
time.sleep(60)
"""


def test_a_dead_process_of_the_group_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_stream, "_GRACE", 120.0)
    start = time.monotonic()
    code, lines = run(sys.executable, "-c", ZOMBIE)
    assert code == 0
    assert time.monotonic() - start < 120
    psutil.Process(int(lines[0])).kill()


def test_kill_reaches_descendants_in_other_sessions() -> None:
    script = "setsid sh -c 'echo $$; exec sleep 4244' & wait"
    _, lines = run("sh", "-c", script, during=lambda program: program.kill())
    wait_until(lambda: is_gone(int(lines[0])), "end of the other session")


def test_a_signal_reaches_the_group() -> None:
    script = "trap 'echo asked; exit 5' INT; echo ready; sleep 4245 & wait"
    code, lines = run("sh", "-c", script, during=lambda program: program.send(signal.SIGINT))
    assert (code, lines) == (5, [b"ready", b"asked"])


def test_waiting_for_a_dying_process_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_stream, "_GRACE", 1.5)

    async def main() -> int:
        # What it leaves behind ignores SIGTERM, so its end takes the whole grace period.
        deaf = f"(trap '' TERM; >{tmp_path}/deaf; sleep 4246) &"
        script = f"{deaf} until [ -e {tmp_path}/deaf ]; do sleep 0.01; done"
        program = await StreamedProcess.start(["sh", "-c", script])
        task = asyncio.create_task(program.run(lambda _: None))
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks

    assert asyncio.run(main()) > 20


def test_a_cancelled_program_is_killed() -> None:
    pids: list[int] = []

    async def main() -> None:
        program = await StreamedProcess.start(["sh", "-c", "trap '' INT TERM; sleep 4247; sleep 1"])
        pids.append(program.pid)
        task = asyncio.create_task(program.run(lambda _: None))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert is_gone(pids[0])


def test_an_error_in_the_reader_of_lines_ends_the_program() -> None:
    def fail(_: list[bytes]) -> None:
        raise ValueError("broken reader")

    async def main() -> None:
        program = await StreamedProcess.start(["sh", "-c", "echo x; sleep 4248"])
        await program.run(fail)

    with pytest.raises(ValueError, match="broken reader"):
        asyncio.run(main())


def test_the_last_lines_of_a_program_are_returned_or_why_it_is_missing() -> None:
    assert asyncio.run(run_tail(["sh", "-c", "seq 9; echo; exit 2"], 2)) == (2, ["8", "9"])
    with pytest.raises(ToolError, match="no-such-program: not found; put it on PATH"):
        asyncio.run(run_tail(["no-such-program"]))
