"""Parts of a run of builds: the loop, the display, the program of a build."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import ToolError
from build_pytorch.build.backends import (
    BuildAction,
    BuildBackend,
    BuildCommand,
    BuildSettings,
    Step,
)
from build_pytorch.build.build_attempt import BuildAttempt, BuildState
from build_pytorch.build.build_plan import BuildPlan
from build_pytorch.build.build_report import BuildDisplay
from build_pytorch.build.build_run import BuildRun
from build_pytorch.build.usual_times import UsualTime
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix.store import NixSettings
from build_pytorch.results import evidence
from build_pytorch.results.ledger import read


def step_of(matrix: Matrix, id_: str, root: Path = Path("/nowhere")) -> Step:
    package = next(package for package in matrix.packages if package.id == id_)
    digest = evidence.recipe_digest(root, package)
    return Step(package=package, action=BuildAction.BUILD, reason="", digest=digest)


# --- the loop: which builds begin, and what becomes of the others ---

NO_MEMORY = "echo 'virtual memory exhausted: Cannot allocate memory'; exit 1"
WRONG_SOURCE = "echo 'error: Package x in y:1 is marked as broken, refusing'; exit 1"


class ShellBackend(BuildBackend):
    """Runs a shell script for each step; `$cores` are its compile jobs."""

    scripts: dict[str, str]

    def command(self, step: Step, cores: int) -> BuildCommand:
        script = self.scripts.get(step.package.id, "exit 0")
        return BuildCommand(["sh", "-c", f"cores={cores}; {script}"])

    def outputs(self, step: Step, began: float) -> tuple[str, ...]:
        del began
        if step.package.id == "cpu-avx512":
            raise ToolError("nix-store: does not answer")
        if step.package.id == "cpu-avx512bf16":
            raise ZeroDivisionError("nothing else raises this")
        return ("/nix/store/x",)


@pytest.fixture
def carried_out(matrix: Matrix, tmp_path: Path) -> Callable[..., tuple[dict[str, str], BuildRun]]:
    """Build packages with scripts; return what became of each, by id, and the run."""

    def carry_out(
        scripts: dict[str, str], ids: Sequence[str], jobs: int = 1, **settings: Any
    ) -> tuple[dict[str, str], BuildRun]:
        backend = ShellBackend(
            "shell", BuildSettings(root=tmp_path, **settings), NixSettings(("x86_64-linux",), None)
        )
        backend.scripts = scripts
        steps = tuple(step_of(matrix, id_, tmp_path) for id_ in ids)
        plan = BuildPlan(steps=steps, obstacles=(), notes=(), backend=backend, jobs=jobs, cores=8)
        run = BuildRun(plan, BuildDisplay(Screen(io.StringIO()), {}))
        outcomes = run.run()
        recorded = [e.variant for e in read(tmp_path).events if e.outcome == "built"]
        built = [o.step.package for o in outcomes if o.state is BuildState.BUILT]
        assert sorted(recorded) == sorted(package.short_id for package in built)
        return {o.step.package.id: o.message or o.state.value for o in outcomes}, run

    return carry_out


SHARED = "sm90-avx2 failed (marked-broken), and its group shares that fault"


@pytest.mark.parametrize(
    ("scripts", "ids", "settings", "wanted"),
    [
        # An error in one build ends no other; hostile output ends none.
        (
            {"sm90-avx2": f"echo '[1/{'9' * 4301}] x'; echo '@nix {{torn'"},
            ("cpu-avx512", "cpu-avx512bf16", "sm90-avx2"),
            {"jobs": 2},
            (
                "nix-store: does not answer",
                "internal error: ZeroDivisionError: nothing else raises this",
                "built",
            ),
        ),
        # A fault that all recipes of the group share, unless one of them is built.
        (
            {"sm90-avx2": WRONG_SOURCE},
            ("sm90-avx2", "sm90-avx512", "sm90-avx512+torchvision", "cpu-avx2"),
            {},
            (WRONG_SOURCE[6:-9], SHARED, SHARED, "built"),
        ),
        (
            {"sm90-avx512": WRONG_SOURCE},
            ("sm90-avx2", "sm90-avx512", "sm120-avx2"),
            {},
            ("built", WRONG_SOURCE[6:-9], "built"),
        ),
        # What needs a variant that was not built.
        (
            {"sm90-avx2": "exit 3"},
            ("sm90-avx2", "sm90-avx2+torchvision", "sm90-avx512"),
            {},
            ("exit code 3", "sm90-avx2 failed, and this needs it", "built"),
        ),
        # Once more with half the compile jobs, as all that begin then.
        (
            {
                "sm90-avx2": f"[ $cores = 4 ] || {{ {NO_MEMORY}; }}",
                "sm120-avx2": "[ $cores = 4 ] || exit 1",
            },
            ("sm90-avx2", "sm120-avx2"),
            {},
            ("built", "built"),
        ),
        (
            {"sm90-avx2": NO_MEMORY},
            ("sm90-avx2",),
            {},
            ("virtual memory exhausted: Cannot allocate memory",),
        ),
        ({"sm90-avx2": "kill -9 $$"}, ("sm90-avx2",), {}, ("exit code -9",)),
    ],
)
def test_what_becomes_of_the_steps_of_a_plan(
    carried_out: Callable[..., tuple[dict[str, str], BuildRun]],
    scripts: dict[str, str],
    ids: tuple[str, ...],
    settings: dict[str, Any],
    wanted: tuple[str, ...],
) -> None:
    found, _ = carried_out(scripts, ids, **settings)
    assert found == dict(zip(ids, wanted, strict=True))


def test_a_companion_begins_when_its_variant_has_ended(
    carried_out: Callable[..., tuple[dict[str, str], BuildRun]], tmp_path: Path
) -> None:
    torch, companion = tmp_path / "torch", "sm90-avx2+torchvision"
    scripts = {"sm90-avx2": f"sleep 0.3; >{torch}", companion: f"[ -e {torch} ]"}
    found, _ = carried_out(scripts, (companion, "sm90-avx2", "sm120-avx2"), jobs=3)
    assert set(found.values()) == {"built"}
    started = [e.variant for e in read(tmp_path).events if e.event == "started"]
    assert started == ["sm90-avx2", "sm120-avx2", companion]


def test_builds_run_at_once(
    carried_out: Callable[..., tuple[dict[str, str], BuildRun]], tmp_path: Path
) -> None:
    """Each waits for the other."""
    ids = ("sm90-avx2", "sm120-avx2")
    wait = "for i in $(seq 99); do [ -e {1} ] && exit; sleep 0.1; done; exit 1"
    scripts = {
        one: f">{tmp_path}/{one}; {wait.format(one, f'{tmp_path}/{other}')}"
        for one, other in (ids, ids[::-1])
    }
    found, _ = carried_out(scripts, ids, jobs=2)
    assert set(found.values()) == {"built"}


def test_a_recipe_that_changes_after_the_plan_is_left_for_the_next_run(
    carried_out: Callable[..., tuple[dict[str, str], BuildRun]], matrix: Matrix, tmp_path: Path
) -> None:
    recipe = tmp_path / step_of(matrix, "cpu-avx2").package.path
    scripts = {"sm90-avx2": f"mkdir -p {recipe.parent}; echo '{{ }}' >{recipe}"}
    found, _ = carried_out(scripts, ("sm90-avx2", "cpu-avx2"))
    changed = "its recipe has changed since the plan; run again"
    assert found == {"sm90-avx2": "built", "cpu-avx2": changed}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -INT {pid}; sleep 60", "exit code -2"),
        ("trap '' INT TERM; kill -INT {pid}; sleep 1; kill -INT {pid}; sleep 60", "exit code -9"),
    ],
)
def test_ctrl_c_ends_what_runs_and_begins_nothing(
    carried_out: Callable[..., tuple[dict[str, str], BuildRun]], script: str, message: str
) -> None:
    """A second one kills what does not want to end."""
    scripts = {"sm90-avx2": script.format(pid=os.getpid())}
    found, run = carried_out(scripts, ("sm90-avx2", "sm120-avx2"))
    assert found == {"sm90-avx2": message, "sm120-avx2": "the run was ended"}
    assert run.ended_by == signal.SIGINT


# --- the display ---


class Gone(io.StringIO):
    """A terminal that is gone."""

    def write(self, text: str) -> int:
        del text
        raise OSError(5, "Input/output error")


class Clock:
    """A clock that a test sets."""

    time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def attempt(matrix: Matrix, tmp_path: Path) -> Iterator[BuildAttempt]:
    step = step_of(matrix, "cpu-avx2")
    with contextlib.closing(BuildAttempt(tmp_path, step, BuildCommand(["false"]), 1)) as one:
        yield one


def see(attempt: BuildAttempt, *lines: str) -> None:
    for line in lines:
        list(attempt.reader.read(line.encode()))


def test_there_is_a_line_for_each_phase_and_tenth(attempt: BuildAttempt) -> None:
    stream, clock = io.StringIO(), Clock()
    display = BuildDisplay(Screen(stream), {}, clock)
    for step in ("Running phase: configurePhase", *(f"[{n}/100] cc x" for n in range(1, 101))):
        see(attempt, step)
        clock.time += 1
        display.show([attempt])
    shown = [line.split(",")[0] for line in stream.getvalue().splitlines()]
    assert shown[0] == "cpu-avx2: configure"
    assert shown[1] == "cpu-avx2: build step 1 of 100"
    assert shown[2:] == [f"cpu-avx2: build step {n}0 of 100" for n in range(1, 11)]
    stream.truncate(0)
    display = BuildDisplay(Screen(stream), {}, clock)
    for _ in range(11):  # without news: again after five minutes
        display.show([attempt])
        clock.time += 60
    assert stream.getvalue().count("cpu-avx2: build step 100 of 100") == 3
    display.say("a message\x1b[2J")
    assert "a message\\x1b[2J" in stream.getvalue()
    BuildDisplay(Screen(Gone()), {}).say("builds go on")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ["building '/nix/store/0123456789abcdefghijklmnopqrstuv-magma-2.9.0.drv'..."],
            "dependencies: magma-2.9.0, 0:00",
        ),
        (
            ["Running phase: buildPhase", "[812/1559] Building CXX object a.o"],
            "build step 812 of 1,559, 0:00",
        ),
    ],
)
def test_the_line_has_the_usual_time(attempt: BuildAttempt, lines: list[str], said: str) -> None:
    stream = io.StringIO()
    see(attempt, *lines)
    BuildDisplay(Screen(stream), {attempt.step.name: UsualTime(9660, 3)}).show([attempt])
    assert stream.getvalue() == f"cpu-avx2: {said}, the last three of its kind took 2:41:00\n"


# --- the program of a build ---

STOPPING = "--   USE_CUDA              : ON"  # in a CPU-only build


def ended(attempt: BuildAttempt, script: str) -> int:
    """Run a script to its end and return the exit code."""
    attempt.command = BuildCommand(["sh", "-c", script])
    return attempt.run()


@pytest.mark.parametrize(
    ("deaf_to", "last"),
    [("", signal.SIGINT), ("INT", signal.SIGTERM), ("INT TERM", signal.SIGKILL)],
)
def test_a_build_is_stopped_with_stronger_and_stronger_signals(
    attempt: BuildAttempt,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deaf_to: str,
    last: signal.Signals,
) -> None:
    """A line in its log matches a rule."""
    monkeypatch.setattr("build_pytorch.build.build_attempt._PATIENCE", 0.2)
    trap = f"trap '' {deaf_to}; " if deaf_to else ""
    assert ended(attempt, f"{trap}echo '{STOPPING}'; while :; do sleep 0.05; done") == -last
    outcome = attempt.decide(-last, ("/nix/store/x",))
    assert (outcome.state, outcome.cause, outcome.message) == ("stopped", "cuda-on", STOPPING)
    assert (tmp_path / attempt.log).read_text().splitlines()[1:] == [STOPPING]


def test_a_build_that_is_killed_before_its_program_exists_ends_at_once(
    attempt: BuildAttempt,
) -> None:
    attempt.is_killed = True
    assert ended(attempt, "trap '' INT TERM; sleep 4249") == -signal.SIGKILL


def test_a_log_on_a_full_disk_is_incomplete_and_ends_no_build(attempt: BuildAttempt) -> None:
    attempt.close()
    with Path("/dev/full").open("wb", buffering=0) as full:
        attempt._file = full  # noqa: SLF001 - a full disk
        assert ended(attempt, "echo one; echo two; exit 3") == 3
    assert attempt.lost_log == "No space left on device"
    assert attempt.reader.lines == 2


def test_a_long_log_is_written_in_constant_memory(attempt: BuildAttempt, tmp_path: Path) -> None:
    tracemalloc.start()
    assert ended(attempt, f"yes {'x' * 999} | head -n 20000") == 0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / attempt.log).stat().st_size > 20_000_000
    assert peak < 8 << 20
