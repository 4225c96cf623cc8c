"""Programs: their output while they run and at their end, limits, signals, what they leave."""

from __future__ import annotations

import gc
import resource
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from world import wait_until

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError


def shell(script: str) -> list[str]:
    return ["bash", "-c", script]


def streamed(*argv: str, number: int = 0) -> tuple[int, list[bytes]]:
    """Run a program to its end. It gets a signal after its first line."""
    lines: list[bytes] = []

    def take(added: list[bytes]) -> int:
        is_first = not lines and bool(added)
        lines.extend(added)
        return number if is_first else 0

    return process.run(argv, take=take).code, lines


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# --- the output at the end ---


def test_a_failed_program_is_an_error_with_its_command_and_its_last_20_lines() -> None:
    """Escape sequences in them do not reach the terminal."""
    with pytest.raises(ToolError) as caught:
        process.output_of(shell(r"seq 1 30 >&2; printf 'a\e]0;title\a\n\x9bb' >&2; exit 7"))
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
            process.run([name, "--version"])


def test_programs_are_run_in_english_and_a_variable_can_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    env = {"GIT_DIR": None, "ADDED": "1"}
    result = process.run(shell("echo $LC_ALL ${GIT_DIR-unset} $ADDED"), env=env)
    assert result.stdout == "C unset 1\n"


def test_a_program_is_killed_at_its_time_limit_and_says_so() -> None:
    watched = process.run(shell("echo begun; sleep 60; exit 1"), seconds=0.3)
    assert watched == process.ProcessResult(-signal.SIGKILL, "begun\n", "", expired=True)
    assert process.run(["true"], seconds=60) == process.ProcessResult(0, "", "")


@pytest.mark.parametrize("script", ["exec yes", "exec yes >&2", "yes"])
def test_a_program_that_writes_without_end_is_stopped(script: str) -> None:
    """Also one with a child that writes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = process.run(shell(script), seconds=60)
    assert (result.code, result.expired) == (-signal.SIGKILL, False)
    assert result.last_line == "bash: stopped, as it wrote more than 32 MiB"
    assert len(result.stdout) + len(result.stderr) < 40 << 20
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 << 10, "KiB"


# --- lines while it runs ---


def test_lines_of_both_outputs_arrive_in_order_with_the_exit_code() -> None:
    script = "echo one; echo two >&2; echo; printf three; exit 7"
    assert streamed("sh", "-c", script) == (7, [b"one", b"two", b"", b"three"])


def test_a_program_that_closes_its_output_is_waited_for_without_work() -> None:
    start = time.process_time()
    assert streamed("sh", "-c", "echo x; exec >&- 2>&-; sleep 1; exit 3") == (3, [b"x"])
    assert time.process_time() - start < 0.5


def test_an_output_without_line_breaks_is_passed_on_in_parts() -> None:
    code, lines = streamed(sys.executable, "-c", "print('x' * 3_000_000, end='')")
    assert code == 0
    assert len(lines) > 1
    assert sum(map(len, lines)) == 3_000_000


def test_lines_without_end_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LARGEST_LOG", 4 << 20)
    code, lines = streamed("yes")
    assert (code, lines[-1]) == (-signal.SIGKILL, b"yes: stopped, as it wrote more than 4 MiB")
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

    start = time.monotonic()
    with pytest.raises(ValueError, match="broken reader"):
        process.run(["sh", "-c", "echo x; sleep 60"], take=fail)
    assert time.monotonic() - start < 20


# --- signals, and what a program leaves ---


def test_what_a_program_leaves_behind_in_its_group_is_ended(tmp_path: Path) -> None:
    start = time.monotonic()
    script = f"sleep 60 & echo $! >{tmp_path}/pid; kill -9 $$"
    assert process.run(shell(script)).code == -signal.SIGKILL
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: is_gone(pid), "end of the background process")
    assert time.monotonic() - start < 20


def test_kill_reaches_descendants_in_other_sessions() -> None:
    script = "sh -c 'setsid sh -c \"echo \\$\\$; exec sleep 4244\" & wait' & wait"
    _, lines = streamed("sh", "-c", script, number=signal.SIGKILL)
    wait_until(lambda: is_gone(int(lines[0])), "end of the other session")


def test_a_signal_reaches_the_group() -> None:
    """Its lines arrive while it runs."""
    script = "trap 'echo asked; exit 5' INT; echo ready; sleep 4245 & wait"
    code, lines = streamed("sh", "-c", script, number=signal.SIGINT)
    assert (code, lines) == (5, [b"ready", b"asked"])


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is of Linux")
def test_a_program_ends_with_its_parent() -> None:
    code = (
        "import os\nfrom build_pytorch.base import process\n"
        "def end(lines):\n    if lines:\n        print(lines[0].decode())\n"
        "        os.kill(os.getpid(), 9)\n"
        "process.run(['sh', '-c', 'echo $$; exec sleep 600'], take=end)"
    )
    done = process.run([sys.executable, "-uc", code])
    wait_until(lambda: is_gone(int(done.stdout)), "end of the program")


class StoppedError(Exception):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a lost Popen
def test_no_program_survives_a_signal_that_arrives_while_it_is_started(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        process.kill_started()
        raise StoppedError

    pids = tmp_path / "pids"
    before = signal.signal(signal.SIGTERM, stop)
    try:
        for _ in range(20):
            gc.collect()  # an exception in `__del__` of a lost Popen would be lost, too
            with pytest.raises(StoppedError):
                process.run(shell(f"echo $$ >>{pids}; kill -TERM $PPID; exec sleep 600"))
    finally:
        signal.signal(signal.SIGTERM, before)
    started = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: all(map(is_gone, started)), "end of all programs")
