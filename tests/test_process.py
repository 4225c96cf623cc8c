"""Programs: their output while they run and at their end, limits, signals, what they leave."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from world import wait_until

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.base.process import Running


def shell(script: str) -> list[str]:
    return ["bash", "-c", script]


def streamed(
    *argv: str, during: Callable[[Running], object] | None = None
) -> tuple[int, list[bytes]]:
    """Run a program to its end. `during` is called with it after its first line."""
    lines: list[bytes] = []
    program = process.start(argv, take=lines.extend)
    if during:
        wait_until(lambda: bool(lines), "a first line")
        during(program)
    return program.finish().code, lines


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# --- the output at the end ---


def test_a_failed_program_is_an_error_with_its_command_and_its_last_20_lines() -> None:
    """Escape sequences in them do not reach the terminal."""
    with pytest.raises(ToolError) as caught:
        process.capture(shell(r"seq 1 30 >&2; printf 'a\e]0;title\a\n\x9bb' >&2; exit 7"))
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("bash -c 'seq 1 30")
    assert first.endswith("exit 7': exit code 7")
    expected = [f"  {number}" for number in range(13, 31)]
    assert lines == [*expected, r"  a\x1b]0;title\x07", "  \ufffdb"]


def test_a_program_that_cannot_be_run_is_an_error_with_a_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "program").touch()
    for name, says in {
        "nix-store": r"^nix-store: not found; install Nix \(Debian: ",
        "other": "^other: not found; put it on PATH$",
        str(tmp_path / "program"): "program: cannot be run: Permission denied",
    }.items():
        with pytest.raises(ToolError, match=says):
            process.capture([name, "--version"])


def test_programs_are_run_in_english_and_a_variable_can_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    env = {"GIT_DIR": None, "ADDED": "1"}
    result = process.capture(shell("echo $LC_ALL ${GIT_DIR-unset} $ADDED"), env=env)
    assert result.stdout == "C unset 1\n"


def test_a_program_is_killed_at_its_time_limit_and_says_so() -> None:
    watched = process.start(shell("sleep 60; exit 1")).finish(0.3)
    assert (watched.code, watched.expired) == (-signal.SIGKILL, True)
    ended = process.start(["true"]).finish(60)
    assert (ended.code, ended.expired) == (0, False)
    assert process._live == set()  # noqa: SLF001 - nothing is left to be killed


@pytest.mark.parametrize("script", ["exec yes", "exec yes >&2", "yes"])
def test_a_program_that_writes_without_end_is_stopped(script: str) -> None:
    """Also one with a child that writes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = process.start(shell(script)).finish(60)
    assert (result.code, result.expired) == (-signal.SIGKILL, False)
    assert result.last_line == "bash: stopped, as it wrote more than 32 MiB"
    assert len(result.stdout) + len(result.stderr) < 40 << 20
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 << 10, "KiB"


def test_stdin_is_passed_and_stderr_can_be_read_while_the_program_runs(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    running = process.start(shell(f"cat >&2; echo ready >{fifo}; read -r _ <{fifo}"), stdin="text")
    assert fifo.read_text() == "ready\n"
    wait_until(lambda: running.said() == "text", "the text on stderr")
    assert running.is_running(0)
    fifo.write_text("go\n")
    assert running.finish().code == 0


# --- lines while it runs ---


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("echo one; echo two >&2; printf three; exit 7", (7, [b"one", b"two", b"three"])),
        ("echo x; exec >&- 2>&-; sleep 0.2; exit 3", (3, [b"x"])),
        ("echo; echo", (0, [b"", b""])),
    ],
)
def test_lines_of_both_outputs_arrive_in_order_with_the_exit_code(
    script: str, ended: tuple[int, list[bytes]]
) -> None:
    """A program that closes its output is waited for."""
    assert streamed("sh", "-c", script) == ended


def test_an_output_without_line_breaks_is_passed_on_in_parts() -> None:
    code, lines = streamed(sys.executable, "-c", "print('x' * 3_000_000, end='')")
    assert code == 0
    assert len(lines) > 1
    assert sum(map(len, lines)) == 3_000_000


def test_lines_without_end_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LARGEST_LOG", 4 << 20)
    code, lines = streamed("yes")
    assert (code, lines[-1]) == (-signal.SIGKILL, b"stopped, as it wrote more than 4 MiB")
    assert sum(map(len, lines)) < 4 << 20


def test_values_of_tokens_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {
        "GITHUB_TOKEN": "tok[en-4711",
        "SIGNING_KEY": "first line\nof it",
        "A_PAT": "short",
        "TOKENIZERS_PARALLELISM": "falsehood",
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    script = (
        'echo "<$GITHUB_TOKEN>|$SIGNING_KEY|$A_PAT|$TOKENIZERS_PARALLELISM"; printf $GITHUB_TOKEN'
    )
    assert streamed("sh", "-c", script)[1] == [b"<***>|***|short|falsehood", b"***"]


def test_an_error_in_the_reader_of_lines_ends_the_program() -> None:
    def fail(_: list[bytes]) -> None:
        raise ValueError("broken reader")

    program = process.start(["sh", "-c", "echo x; sleep 4248"], take=fail)
    with pytest.raises(ValueError, match="broken reader"):
        program.finish()


# --- signals, and what a program leaves ---


@pytest.mark.parametrize("take", [None, lambda _: None])
def test_what_a_program_leaves_behind_in_its_group_is_ended(
    tmp_path: Path, take: process.Take | None
) -> None:
    start = time.monotonic()
    script = f"sleep 60 & echo $! >{tmp_path}/pid; kill -9 $$"
    assert process.start(shell(script), take=take).finish().code == -signal.SIGKILL
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: is_gone(pid), "end of the background process")
    assert time.monotonic() - start < 20


def test_kill_reaches_descendants_in_other_sessions() -> None:
    script = "sh -c 'setsid sh -c \"echo \\$\\$; exec sleep 4244\" & wait' & wait"
    _, lines = streamed("sh", "-c", script, during=Running.kill)
    wait_until(lambda: is_gone(int(lines[0])), "end of the other session")


def test_a_signal_reaches_the_group() -> None:
    """Its lines arrive while it runs."""
    script = "trap 'echo asked; exit 5' INT; echo ready; sleep 4245 & wait"
    code, lines = streamed("sh", "-c", script, during=lambda program: program.send(signal.SIGINT))
    assert (code, lines) == (5, [b"ready", b"asked"])


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is of Linux")
def test_a_program_whose_lines_are_read_ends_with_its_parent() -> None:
    code = (
        "import os\nfrom build_pytorch.base import process\n"
        "process.start(['sh', '-c', 'echo $$; exec sleep 4249'], take=lambda lines: print(*lines))"
        ".is_running(1)\nos.kill(os.getpid(), 9)"
    )
    done = process.capture([sys.executable, "-uc", code], check=False)
    wait_until(lambda: is_gone(int(eval(done.stdout))), "end of the program")  # noqa: S307


class StoppedError(Exception):
    pass


def test_no_program_survives_a_signal_that_arrives_while_it_is_started(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise StoppedError

    pids = tmp_path / "pids"
    before = signal.signal(signal.SIGTERM, stop)
    try:
        for _ in range(20):
            with pytest.raises(StoppedError):
                process.start(shell(f"echo $$ >>{pids}; kill -TERM $PPID; exec sleep 600")).finish()
            process.kill_all()
    finally:
        signal.signal(signal.SIGTERM, before)
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_a_program_inherits_that_a_signal_is_ignored() -> None:
    """As under nohup, and in the background of a shell."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    done = process.capture(shell("kill -HUP $$; echo goes on"))
    signal.signal(signal.SIGHUP, before)
    assert done.stdout == "goes on\n"
