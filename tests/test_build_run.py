"""Parts of a run of builds: scheduling, the display, backends, work beside the loop."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import ToolError
from build_pytorch.build import build_obstacles
from build_pytorch.build.build_backend import BuildBackend, BuildCommand, BuildSettings, Step
from build_pytorch.build.build_display import BuildDisplay
from build_pytorch.build.build_plan import BuildPlan
from build_pytorch.build.build_process import Attempt, BuildProcess
from build_pytorch.build.log_rules import RULES, LogRule
from build_pytorch.build.run_loop import BuildRun
from build_pytorch.build.schedule import Schedule
from build_pytorch.build.usual_times import UsualTime
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix.log_format import LogLine
from build_pytorch.nix.store import NixSettings
from build_pytorch.results import evidence
from build_pytorch.results.ledger import read


def steps(matrix: Matrix, *ids: str) -> list[Step]:
    known = {variant.id: variant for variant in matrix.variants}
    return [Step(package=known[id_], action="build", reason="", digest="d") for id_ in ids]


def rule(id_: str) -> LogRule:
    return next(rule for rule in RULES if rule.id == id_)


# --- scheduling ---


def schedule(waiting: list[Step], jobs: int = 1) -> Schedule:
    return Schedule(waiting, jobs, 8, 30.0)


def test_as_many_builds_run_as_jobs_allow(matrix: Matrix) -> None:
    one, two, three = steps(matrix, "sm90-avx2", "cpu-avx512", "sm110-armv9")
    plan = schedule([one, two, three], jobs=2)
    assert plan.take(0, [], []) is one
    assert plan.take(0, [one], []) is two
    assert plan.take(0, [one, two], []) is None
    assert plan.take(0, [two], [one.variant]) is three
    assert plan.waiting == []


def test_siblings_wait_for_their_canary(matrix: Matrix) -> None:
    canary, sibling, other = steps(matrix, "sm90-avx2", "sm90-avx512", "cpu-avx2")
    plan = schedule([sibling, other], jobs=3)
    assert plan.take(0, [canary], []) is other
    assert plan.take(0, [canary], []) is None
    assert plan.take(0, [canary], [canary.variant]) is sibling


def test_the_others_of_its_kind_take_as_few_cores_as_what_ran_out_of_memory(
    matrix: Matrix,
) -> None:
    first, second, other = steps(matrix, "sm90-avx2", "sm80-avx512", "cpu-avx2")
    plan = schedule([first, second, other], jobs=3)
    assert plan.take(0, [], [first.variant]) is first
    assert plan.take(0, [first], [first.variant]) is second
    plan.retry(first, rule("out-of-memory"), 0.0)
    assert [plan.cores(step) for step in (first, second, other)] == [4, 4, 8]
    plan.retry(second, rule("out-of-memory"), 0.0)  # it had begun with 8 as well
    assert plan.cores(second) == 4


@pytest.mark.parametrize(
    ("cause", "waits"), [("network", (30, 60, 120)), ("builder-unreachable", (30,))]
)
def test_what_may_pass_is_retried_after_longer_and_longer_waits(
    matrix: Matrix, cause: str, waits: tuple[int, ...]
) -> None:
    (step,) = steps(matrix, "cpu-avx2")
    plan, start = schedule([]), 0.0
    for wait in waits:
        assert plan.retry(step, rule(cause), start) == f"again in {wait} s"
        assert plan.take(start + wait - 1, [], []) is None
        assert plan.take(start + wait, [], []) is step
        start += 200
    assert plan.retry(step, rule(cause), start) == ""
    assert plan.waiting == []


def test_the_plan_says_that_memory_and_no_option_limits_compile_jobs(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_obstacles, "usable_cpus", lambda: 32)
    for memory, jobs, allowed in (
        (1024, 1, "^$"),
        (64, 1, "64 GiB allow 12 compile jobs of 32;"),
        (64, 2, "allow 6 .* of 16;"),
    ):  # fmt: skip
        monkeypatch.setattr(build_obstacles, "_memory", lambda memory=memory: float(memory))
        found = build_obstacles.few_cores([matrix.variants[0].release.build], jobs)
        assert re.search(allowed, " ".join(found))


def with_companion(matrix: Matrix) -> tuple[Step, Step]:
    """A variant, and its companion that waits for it."""
    (variant,) = steps(matrix, "sm90-avx2")
    package = next(c for c in matrix.companions if c.variant is variant.package)
    return variant, msgspec.structs.replace(variant, package=package, needs=variant.name)


def test_a_companion_begins_when_its_variant_has_ended_and_before_others(matrix: Matrix) -> None:
    variant, companion = with_companion(matrix)
    (other,) = steps(matrix, "cpu-avx2")
    plan = schedule([companion, variant, other], jobs=3)
    assert plan.take(0, [], []) is variant
    plan.retry(variant, rule("network"), 0.0)
    assert plan.take(0, [], []) is other
    assert plan.take(0, [], []) is None  # what waits for a retry is still missing
    assert plan.take(30, [], []) is variant
    assert plan.take(30, [variant], []) is None
    plan.waiting.append(other)
    assert plan.take(30, [], [variant.variant]) is companion


def test_what_needs_a_step_siblings_or_all_that_wait_are_dropped(matrix: Matrix) -> None:
    variant, companion = with_companion(matrix)
    sibling, other = steps(matrix, "sm120-avx512", "cpu-avx2")
    plan = schedule([companion, sibling, other])
    assert plan.drop_needing(variant.name) == [companion]
    assert plan.drop_needing(variant.name) == []
    assert plan.drop(variant.variant) == [sibling]
    assert plan.waiting == [other]
    assert plan.drop() == [other]
    assert plan.waiting == []


def test_out_of_memory_halves_the_cores_once(matrix: Matrix) -> None:
    (step,) = steps(matrix, "cpu-avx2")
    plan = schedule([])
    assert plan.retry(step, rule("out-of-memory"), 0) == "once more with 4 cores instead of 8"
    assert plan.cores(step) == 4
    assert plan.take(0, [], []) is step
    assert plan.retry(step, rule("out-of-memory"), 0) == ""
    assert Schedule([], 1, 1, 30.0).retry(step, rule("out-of-memory"), 0) == ""
    for cause in ("disk-full", "hash-mismatch", "cuda-off"):
        assert plan.retry(step, rule(cause), 0) == ""


# --- the display ---


class Terminal(io.StringIO):
    """A stream that says that it is a terminal, and may be gone."""

    is_gone = False

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.is_gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


class Clock:
    """A clock that a test sets."""

    time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def attempt(matrix: Matrix, tmp_path: Path) -> Iterator[Attempt]:
    with contextlib.closing(Attempt(tmp_path, steps(matrix, "cpu-avx2")[0], 1)) as one:
        yield one


def see(attempt: Attempt, *lines: str) -> None:
    for line in lines:
        attempt.progress.see(LogLine("x", line), own=True)


def test_a_plain_stream_gets_a_line_for_each_phase_and_tenth(attempt: Attempt) -> None:
    stream, clock = io.StringIO(), Clock()
    with BuildDisplay(Screen(stream), {}, clock) as display:
        for step in ("Running phase: configurePhase", *(f"[{n}/100] cc x" for n in range(1, 101))):
            see(attempt, step)
            clock.time += 1
            display.show([attempt])
    shown = [line.split(",")[0] for line in stream.getvalue().splitlines()]
    assert shown[0] == "cpu-avx2: configure"
    assert shown[1] == "cpu-avx2: build step 1 of 100"
    assert shown[2:] == [f"cpu-avx2: build step {n}0 of 100" for n in range(1, 11)]
    stream.truncate(0)
    with BuildDisplay(Screen(stream), {}, clock) as display:
        for _ in range(11):  # without news: again after five minutes
            display.show([attempt])
            clock.time += 60
    assert stream.getvalue().count("cpu-avx2: build step 100 of 100") == 3


def test_a_terminal_gets_a_table_and_messages_above_it(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    see(attempt, "[30/90] compiling \x1b]0;title\x07a.cpp")
    with BuildDisplay(Screen(stream), {}, Clock()) as display:
        display.show([attempt])
        display.say("a message\x1b[2J")
        text = stream.getvalue()
        stream.is_gone = True
        display.say("builds go on")
    assert stream.getvalue() == text
    assert re.search(r"cpu-avx2 +build step 30 of 90 +0:\d\d", text)
    assert "a message\\x1b[2J" in text
    assert "\x1b]0;" not in text
    assert "\\x1b]0;title\\x07" in text


def test_a_dumb_terminal_gets_plain_lines_with_the_usual_time(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    see(attempt, "Running phase: buildPhase")
    see(attempt, "[812/1559] Building CXX object a.o")
    with BuildDisplay(Screen(stream), {attempt.step.name: UsualTime(9660, 3)}) as display:
        display.show([attempt])
    said = "cpu-avx2: build step 812 of 1,559, 0:00, the last three of its kind took 2:41:00\n"
    assert stream.getvalue() == said


# --- the process of a build ---


class ShellBackend(BuildBackend):
    """Runs a shell script for every step."""

    name = "shell"
    program = "sh"
    script = "exit 0"

    def command(self, step: Step, cores: int) -> BuildCommand:
        del step, cores
        return BuildCommand(["sh", "-c", self.script])


@pytest.fixture
def process(attempt: Attempt, tmp_path: Path) -> BuildProcess:
    settings = BuildSettings(root=tmp_path)
    backend = ShellBackend(settings, NixSettings(("x86_64-linux",), None))
    return BuildProcess(backend, attempt, backend.command(attempt.step, 1))


STOPPING = "--   USE_CUDA              : ON"  # in a CPU-only build


def ended(process: BuildProcess, script: str) -> int:
    """Run a script to its end and return the exit code."""
    process.command = BuildCommand(["sh", "-c", script])
    return asyncio.run(asyncio.wait_for(process.run(), 30))


@pytest.mark.parametrize(
    ("deaf_to", "last"),
    [("", signal.SIGINT), ("INT", signal.SIGTERM), ("INT TERM", signal.SIGKILL)],
)
def test_a_build_is_stopped_with_stronger_and_stronger_signals(
    process: BuildProcess, monkeypatch: pytest.MonkeyPatch, deaf_to: str, last: signal.Signals
) -> None:
    """A line in its log matches a rule."""
    monkeypatch.setattr("build_pytorch.build.build_process._PATIENCE", 0.2)
    trap = f"trap '' {deaf_to}; " if deaf_to else ""
    assert ended(process, f"{trap}echo '{STOPPING}'; while :; do sleep 0.05; done") == -last
    attempt = process.attempt
    assert attempt.stopped
    assert attempt.stopped.rule.id == "cuda-on"
    log = Path(process._root, attempt.log)  # noqa: SLF001
    assert log.read_text().splitlines()[1:] == [STOPPING]


def test_a_build_that_is_killed_before_its_program_exists_ends_at_once(
    process: BuildProcess,
) -> None:
    process.command = BuildCommand(["sh", "-c", "trap '' INT TERM; sleep 4249"])
    process.kill()
    assert asyncio.run(asyncio.wait_for(process.run(), 8)) == -signal.SIGKILL


def test_a_log_on_a_full_disk_is_incomplete_and_ends_no_build(
    process: BuildProcess, attempt: Attempt
) -> None:
    attempt.close()
    with Path("/dev/full").open("wb", buffering=0) as full:
        attempt._file = full  # noqa: SLF001 - a full disk
        assert ended(process, "echo one; echo two; exit 3") == 3
    assert attempt.lost_log == "No space left on device"
    assert attempt.progress.lines == 2


class FaultyBackend(ShellBackend):
    """Prints a number that Python does not convert, and cannot tell what it built of two."""

    script = f"echo '[1/{'9' * 4301}] x'; echo '@nix {{torn'"

    def outputs(self, step: Step, began: float, code: int) -> tuple[str, ...]:
        del began, code
        if step.variant.id == "cpu-avx2":
            raise ToolError("nix-store: does not answer")
        if step.variant.id == "cpu-avx512":
            raise ZeroDivisionError("nothing else raises this")
        return ("/nix/store/x",)


def test_an_error_in_one_build_ends_no_other(matrix: Matrix, tmp_path: Path) -> None:
    names = ("cpu-avx2", "cpu-avx512", "cpu-avx512bf16", "sm90-avx2")
    settings = BuildSettings(root=tmp_path)
    plan = BuildPlan(
        steps=tuple(
            msgspec.structs.replace(s, digest=evidence.recipe_digest(tmp_path, s.variant))
            for s in steps(matrix, *names)
        ),
        obstacles=(),
        warnings=(),
        backend=FaultyBackend(settings, NixSettings(("x86_64-linux",), None)),
        jobs=2,
        cores=1,
    )
    out = io.StringIO()
    with BuildDisplay(Screen(out), {}) as display:
        outcomes = BuildRun(plan, settings, display).run()
    assert {o.step.id: (o.state, o.message) for o in outcomes} == {
        "cpu-avx2": ("failed", "nix-store: does not answer"),
        "cpu-avx512": ("failed", "internal error: ZeroDivisionError: nothing else raises this"),
        "cpu-avx512bf16": ("built", ""),
        "sm90-avx2": ("built", ""),
    }  # fmt: skip
    recorded = {e.variant: e.outcome for e in read(tmp_path).events if e.event == "ended"}
    assert recorded == {o.step.id: o.state for o in outcomes}
    assert "cpu-avx2: failed after" in out.getvalue()
