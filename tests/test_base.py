"""Programs, files and output: what all commands are built on."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from world import wait_until

from build_pytorch.base import console, digest, files, outputs, process
from build_pytorch.base.console import ProgressLine, Screen, visible
from build_pytorch.base.errors import TemplateError, ToolError, WriteError
from build_pytorch.base.file_plan import Action, Change, Tree, plan_text

PYTHON = sys.executable


def shell(script: str) -> list[str]:
    return ["bash", "-c", script]


# --- other programs ---


def test_a_failed_program_is_an_error_with_its_command_and_its_last_20_lines() -> None:
    """Escape sequences in them do not reach the terminal."""
    with pytest.raises(ToolError) as caught:
        process.capture(shell(r"seq 1 30 >&2; printf 'a\e]0;title\a\n\x9bb' >&2; exit 7"))
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("bash -c 'seq 1 30")
    assert first.endswith("exit 7': exit code 7")
    expected = [str(number) for number in range(13, 31)]
    assert lines == [*expected, r"a\x1b]0;title\x07", "\ufffdb"]


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
    calls: list[int] = []
    watched = process.start(["sleep", "60"]).finish(0.6, calls.append)
    assert (watched.code, watched.expired, calls) == (-signal.SIGKILL, True, [0])
    ended = process.start(["true"]).finish(60)
    assert (ended.code, ended.expired) == (0, False)


def test_a_program_that_writes_without_end_is_stopped() -> None:
    """Also one that left a child behind, which holds its output open."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for script in ("exec yes", "exec yes >&2", "yes"):
        result = process.start(shell(script)).finish(60)
        assert (result.code, result.expired) == (-signal.SIGKILL, False)
        assert result.last_line == "bash: stopped, as it wrote more than 32 MiB"
        assert len(result.stdout) + len(result.stderr) < 40 << 20
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 << 10, "KiB"
    start = time.monotonic()
    left = process.start(shell("sleep 60 & echo done")).finish()
    assert (left.code, left.stdout) == (0, "done\n")
    assert time.monotonic() - start < 20


def test_stdin_is_passed_and_stderr_can_be_read_while_the_program_runs(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    running = process.start(shell(f"cat >&2; echo ready >{fifo}; read -r _ <{fifo}"), stdin="text")
    assert fifo.read_text() == "ready\n"
    wait_until(lambda: running.said() == "text", "the text on stderr")
    assert running.is_running(0)
    fifo.write_text("go\n")
    assert running.finish().code == 0


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
    try:
        done = process.capture(shell("kill -HUP $$; echo goes on"))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert done.stdout == "goes on\n"


LIMIT = """
from build_pytorch.base import process
print_limit = "import resource as r, time; time.sleep(0.5); print(*r.getrlimit(r.RLIMIT_AS))"
result = process.start(["{python}", "-c", print_limit], memory={memory}).finish()
print(result.stdout, end="")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit(2) is of Linux")
@pytest.mark.parametrize(
    ("ulimit", "expected"), [("ulimit -v unlimited", 8), ("ulimit -S -v 4194304", 4)]
)
def test_a_memory_limit_never_raises_a_lower_one(ulimit: str, expected: int) -> None:
    argv = [PYTHON, "-c", LIMIT.format(python=PYTHON, memory=8 << 30)]
    done = process.capture([*shell(f'{ulimit}; exec "$@"'), "bash", *argv])
    assert done.stdout.split() == [str(expected << 30)] * 2


# --- files ---


def test_an_atomic_write_keeps_permissions_and_replaces_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    files.write_all(tmp_path, {"link": b"new"})
    assert (path.read_text(), link.read_text(), link.is_symlink()) == ("old", "new", False)
    files.write_all(tmp_path, {"file": b"new"})
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert set(tmp_path.iterdir()) == {path, link}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_names_the_file_and_leaves_the_old_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, call, fail)
    message = "file: cannot be written: No space left on device"
    with pytest.raises(WriteError, match=message), files.write_errors():
        files.write_all(tmp_path, {"file": b"new"})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    message = "none: cannot be written: No such file or directory"
    with pytest.raises(WriteError, match=message), files.write_errors():
        files.write_all(tmp_path / "none", {"file": b"new"})


HOLD = """
import sys
from pathlib import Path
from build_pytorch.base.outputs import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), "x.lock", "is testing"):
    print("held", flush=True)
    sys.stdin.read()
"""


SEALED = digest.seal(f"# Digest of this file, with zeros in place of it: {digest.PLACEHOLDER}\n")


def test_a_generated_text_without_a_digest_is_refused_in_its_first_run(tmp_path: Path) -> None:
    assert plan_text(Tree(tmp_path), "x.nix", SEALED).action is Action.CREATE
    with pytest.raises(TemplateError, match=r"x\.nix: .* has no digest; .* digest\.seal"):
        plan_text(Tree(tmp_path), "x.nix", "text\n")


def test_a_file_far_larger_than_what_is_generated_is_not_compared(tmp_path: Path) -> None:
    with (tmp_path / "x.nix").open("wb") as file:
        file.truncate(60 << 20)
    change = plan_text(Tree(tmp_path, force=True), "x.nix", SEALED)
    assert (change.action, change.diff()) == (Action.REFUSED, "")
    assert change.reason == "cannot be read: larger than 4 MiB; remove it by hand"


def test_a_lock_names_the_run_that_holds_it_and_ends_with_its_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [PYTHON, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        message = rf"another run is testing here \(process {holder.pid}\); wait until it ends"
        with pytest.raises(WriteError, match=message):
            outputs.exclusive_lock(tmp_path, "x.lock", "is testing").__enter__()
        holder.kill()
    with outputs.exclusive_lock(tmp_path, "x.lock", "is testing"):
        assert (tmp_path / ".build-pytorch/.gitignore").read_text() == "*\n"


# --- output ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def xterm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("xterm")
def test_progress_shows_count_time_so_far_and_time_left() -> None:
    terminal, now = Terminal(), 0.0
    progress = ProgressLine("evaluating \x1b[1m", 44, terminal, clock=lambda: now)
    for now, done in ((30.0, 11), (60.0, 22)):  # noqa: B007 - the clock reads it
        progress.at(done)
    line = terminal.getvalue().rpartition("\x1b[2K")[2]
    assert line.split() == ["evaluating", r"\x1b[1m", "0:01:00", "22/44", "0:01:01"]
    progress.what = "evaluating more"
    progress.at(23)
    assert "evaluating more" in terminal.getvalue()
    progress.end()
    assert terminal.getvalue().endswith("\x1b[1A\x1b[2K"), "the line is removed"
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


@pytest.mark.usefixtures("xterm")
def test_progress_without_a_total_shows_the_time() -> None:
    terminal, now = Terminal(), 0.0
    progress = ProgressLine("publishing", 0, terminal, clock=lambda: now)
    now = 90.0
    progress.at()
    progress.end()
    assert "publishing 0:01:30" in terminal.getvalue()
    assert "/" not in terminal.getvalue()


@pytest.mark.usefixtures("xterm")
def test_an_exception_does_not_leave_the_cursor_hidden() -> None:
    code = """
        import io, sys
        from build_pytorch.base.console import ProgressLine
        sys.stderr.isatty = lambda: True
        ProgressLine("waiting", 3).at(1)
        raise KeyboardInterrupt
    """
    argv = [PYTHON, "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stderr.rindex("\x1b[?25h") > done.stderr.rindex("\x1b[?25l")


@pytest.mark.parametrize(("stream", "term"), [(io.StringIO, "xterm"), (Terminal, "dumb")])
def test_progress_is_silent_where_no_line_can_be_removed(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    out = stream()
    progress = ProgressLine("evaluating", 2, out)
    progress.at(1)
    progress.end()
    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zen 4, \u00dcbung \u4e2d", "Zen 4, \u00dcbung \u4e2d"),
        ("two\nlines", "two\nlines"),
        ("\x1b[2J\x07\x00\x7f\r\t", r"\x1b[2J\x07\x00\x7f\r\t"),
        ("\x9b31m\x85", r"\x9b31m\x85"),
        ("\u202egnp.exe\u2028", r"\u202egnp.exe\u2028"),
        ("\udcff", r"\udcff"),
    ],
)
def test_control_characters_are_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_the_diff_of_a_file_cannot_control_the_terminal() -> None:
    stream = io.StringIO()
    old, new = b"\x1b[2Jone\n", b"two\n"
    change = Change(path="x.nix", action=Action.REFUSED, reason="", old=old, new=new)
    Screen(stream).diff(change.diff())
    assert stream.getvalue().splitlines()[3:] == [r"-\x1b[2Jone", "+two"]


def test_packages_with_one_reason_are_shown_together_unless_each_is_wanted() -> None:
    """A reason that names its package is the same reason for another one."""
    names = [f"cpu-{number}" for number in range(5)]
    rows = [("refused", name, f"no; `build {name}`") for name in names]
    rows += [("publish", "cpu-5", "passed"), ("refused", "cpu-6", "failed; `invoke build cpu-6`")]

    def shown(*, verbose: bool) -> list[str]:
        out = io.StringIO()
        Screen(out).plan(rows, {}, verbose=verbose)
        return out.getvalue().splitlines()

    assert shown(verbose=False) == [
        "  refused     5 packages (cpu-0 cpu-1 cpu-2 and 2 more): no; `build ID`",
        "  publish     cpu-5  passed",
        "  refused     cpu-6  failed; `invoke build cpu-6`",
    ]
    assert shown(verbose=True)[:2] == [
        "  refused     cpu-0  no; `build cpu-0`",
        "  refused     cpu-1  no; `build cpu-1`",
    ]
    assert len(shown(verbose=True)) == len(rows)


def test_a_command_is_in_one_line_where_it_fits() -> None:
    command = "`invoke prefetch --only torch --release cuda13_0`"
    for length in range(1, 80):
        text = f"{'x' * length} run {command}, or (see `man nix`); then again {command}."
        lines = console.folded("    fix:      ", text, indent=14)
        assert max(map(len, lines)) <= max(80, 14 + length)
        assert "".join(lines).count("`") == 6
        assert sum(line.count(command) for line in lines) == 2
        assert sum(line.count("`man nix`") for line in lines) == 1
        assert " ".join(" ".join(lines).split()) == f"fix: {text}"


@pytest.mark.parametrize("text", ["x" * 200_000, "`" + "x" * 200_000, "x` " * 70_000])
def test_a_long_word_is_printed_at_once(text: str) -> None:
    start = time.monotonic()
    Screen(io.StringIO()).fold("error: ", text)
    assert time.monotonic() - start < 1


def test_a_command_that_is_longer_than_a_line_is_not_broken_either() -> None:
    command = f"`invoke build {'sm120-avx512 ' * 8}--dry-run`"
    lines = console.folded("", f"run {command} or a `b` c`", indent=2)
    assert [line.strip() for line in lines] == ["run", command, "or a `b` c`"]
