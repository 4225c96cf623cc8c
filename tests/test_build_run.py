"""The plan of a run of builds, its loop, its display, and the program of a build."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import WHOLE

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import ToolError
from build_pytorch.build import build_obstacles
from build_pytorch.build.backends import (
    FLOX,
    NIX,
    BuildAction,
    BuildBackend,
    BuildCommand,
    BuildSettings,
    Step,
)
from build_pytorch.build.build_attempt import BuildAttempt
from build_pytorch.build.build_plan import (
    BuildPlan,
    decide,
    estimated_seconds,
    in_order,
    reason_to_skip,
)
from build_pytorch.build.build_report import BuildDisplay
from build_pytorch.build.build_run import BuildRun
from build_pytorch.build.usual_times import UsualTime, usual_times
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.nix.store import Derivation, NixSettings
from build_pytorch.results import artefacts
from build_pytorch.results.ledger import Event, event_of, read
from build_pytorch.results.package_state import Mark, PackageState

DIGEST, OUTPUT = "sha256:1", "/nix/store/x-torch"
HOST = NixSettings(("x86_64-linux",))
HERE = {"link": OUTPUT}


def named(matrix: Matrix, id_: str) -> Package:
    return next(package for package in matrix.packages if package.id == id_)


def step_of(
    matrix: Matrix, id_: str, action: BuildAction = BuildAction.BUILD, root: Path = Path("/nowhere")
) -> Step:
    package = named(matrix, id_)
    digest = artefacts.recipe_digest(root, package)
    return Step(package=package, action=action, reason="", digest=digest)


def backend(name: str = NIX, **settings: Any) -> BuildBackend:
    return BuildBackend(name, BuildSettings(root=Path("/nowhere"), **settings), HOST)


def ended(package: Package, outcome: str, **fields: Any) -> Event:
    values = {"digest": DIGEST, "outcome": outcome, **fields}
    return event_of(package, "ended", **values)


BUILT = {"outcome": "built", "outputs": (OUTPUT,)}
AGAIN = {"outcome": "failed", "cause": "cccl-headers", "fails_again": True}
PASSES = {"outcome": "failed", "cause": "network"}
STOPPED = {"outcome": "stopped", "cause": "cuda-on", "outputs": (OUTPUT,)}
REMOTE = {"builders": "ssh://x"}


@pytest.mark.parametrize(
    "case",
    [
        ("cpu-avx2", BUILT, HERE, {}, True, "up to date the store has the current recipe's result"),
        ("cpu-avx2", {}, {}, {}, False, "build not built yet"),
        ("cpu-avx2", {}, {}, {}, True, "build in the store already, only the link is missing"),
        ("cpu-avx2", {}, HERE, {}, False, "build the result is of another recipe"),
        ("cpu-avx2", AGAIN, {}, {}, False, "failed would fail again (cccl-headers)"),
        ("cpu-avx2", AGAIN, {}, {"retry": True}, False, "build not built yet"),
        ("cpu-avx2", AGAIN, {}, {"force": True}, False, "build not built yet"),
        ("cpu-avx2", AGAIN, {}, {"keep_failed": True}, False, "build not built yet"),
        ("cpu-avx2", {**AGAIN, "digest": "other"}, {}, {}, False, "build not built yet"),
        ("cpu-avx2", PASSES, {}, {}, False, "build not built yet"),
        ("cpu-avx2", STOPPED, HERE, {}, True, "failed its build was stopped (cuda-on), but"),
        ("cpu-avx2", STOPPED, {}, {"force": True}, True, "build in the store already"),
        ("sm121-armv9", {}, {}, {}, False, "skipped wrong platform: this machine builds no aarch"),
        ("sm121-armv9", {}, {}, REMOTE, False, "build remotely not built yet"),
        ("cpu-avx512", {}, {}, {}, False, "skipped wrong CPU: a build runs what it compiles"),
        ("cpu-avx512", {}, {}, {"force": True}, False, "build not built yet"),
        ("cpu-avx512", {}, {}, REMOTE, False, "build remotely not built yet"),
    ],
)
def test_what_becomes_of_a_package(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch, case: Any
) -> None:
    id_, event, state, settings, is_present, wanted = case
    known = tuple(named(matrix, "cpu-avx2").cpu.cpuinfo)
    monkeypatch.setattr(build_obstacles, "_cpu", lambda: ("a CPU", known))
    package = named(matrix, id_)
    events = (ended(package, **event),) if event else ()
    found = PackageState(package=package, digest=DIGEST, events=events, **state)
    derivation = Derivation("/nix/store/x.drv", {"out": OUTPUT}, package.platform)
    present = {OUTPUT} if is_present else set()
    action, reason = decide(found, backend(**settings), derivation, present, torch=None, skip="")
    assert f"{action} {reason}".startswith(wanted)


@pytest.mark.parametrize(
    ("id_", "covered", "wanted"),
    [
        ("cuda13_0/cpu-avx2", (), ""),
        ("cuda13_0/sm121-avx2", (), "impossible-host: no x86_64-linux machine has SM121"),
        ("nightly/sm121-armv9", (), "matrix.toml: release.nightly.torch has no hash yet; `in"),
        ("nightly/sm121-armv9-wrapper", ["nightly/sm121-armv9"], "the same build as nightly/s"),
    ],
)
def test_what_is_skipped_whatever_is_known_of_it(id_: str, covered: list[str], wanted: str) -> None:
    """Nothing is with --force."""
    package = named(matrix_reader.parse(WHOLE), id_)
    found = reason_to_skip(package, (), covered, force=False)
    assert (found.startswith(wanted), bool(found)) == (True, bool(wanted))
    assert reason_to_skip(package, (), covered, force=True) == ""


def test_what_needs_a_variant_shares_its_lot(matrix: Matrix) -> None:
    package = named(matrix, "cpu-avx2+torchvision")
    state = PackageState(package=package, digest=DIGEST)
    for action in (BuildAction.SKIPPED, BuildAction.FAILED):
        torch = step_of(matrix, package.variant.id, action)
        found = decide(state, backend(), None, (), torch=torch, skip="")
        assert found == (action, f"cpu-avx2 {action}, and this needs it")
    assert decide(state, backend(), None, (), torch=None, skip="why") == ("skipped", "why")


def test_the_commands_of_the_two_backends() -> None:
    matrix, line = matrix_reader.parse(WHOLE), "ssh://a x86_64-linux - 1 1 big-parallel"

    def argv(id_: str, name: str, action: BuildAction = BuildAction.BUILD, **given: Any) -> str:
        step = step_of(matrix, id_, action)
        return " ".join(backend(name, **given).command(step, 3).argv)

    package = "pytorch-python313-cuda12_8-sm61-avx"
    assert argv("cuda12_8/sm61-avx", FLOX) == f"flox build --dir releases/cuda12_8 {package}"
    plain = argv("cuda13_0/cpu-avx2", NIX, keep_failed=True, builders=line)
    assert plain.startswith(
        "nix-build .flox/pkgs/pytorch-python313-cpu-avx2.nix --out-link result-"
    )
    assert plain.endswith(f"--log-format internal-json --keep-failed --builders {line}")
    # What this CPU cannot run is not built here; another platform cannot be.
    there = (NIX, BuildAction.REMOTE)
    assert "--max-jobs 0" in argv("cuda13_0/cpu-avx2", *there, builders=line)
    assert "--max-jobs" not in argv("cuda13_0/sm121-armv9", *there, builders=line)


def test_the_first_of_each_group_comes_first_and_cpu_only_variants_last(matrix: Matrix) -> None:
    ids = [v.id for v in in_order(matrix.variants)]
    assert sorted(ids) == sorted(v.id for v in matrix.variants)
    assert ids[:3] == ["sm120-avx2", "sm110-armv8_2", "cpu-avx2"]
    assert ids[-3:] == ["cpu-avx512", "cpu-avx512bf16", "cpu-avx512vnni"]
    # A companion comes after its variant, which is added.
    wanted = [named(matrix, id_) for id_ in ("sm90-avx512+torchvision", "cpu-avx2")]
    ids = [package.id for package in in_order(wanted)]
    assert ids == ["sm90-avx512", "sm90-avx512+torchvision", "cpu-avx2"]


@pytest.mark.parametrize(
    ("memory", "jobs"), [(16, 2), (32, 6), (64, 12), (128, 25), (4, 1), (256, 32)]
)
def test_compile_jobs_follow_from_memory(matrix: Matrix, memory: int, jobs: int) -> None:
    build = matrix.variants[0].release.build
    assert build.cores(memory, cpus=64) == jobs
    assert build.cores(memory, cpus=4) == min(jobs, 4)


@pytest.mark.parametrize(
    ("release", "built", "with_magma"),
    [
        ("cuda13_0", None, [True, False, True]),
        ("cuda13_0", ["x-magma-2.9", "y-magma-2.9", "x-nccl-2"], [True, False, True]),
        ("cuda13_0", ["x-magma-2.9", "x-torch"], [True, False, False]),
        ("cuda13_0", ["x-torch"], [False, False, False]),
        ("cuda12_8", None, [False, False, False]),  # it may come from a cache
    ],
)
def test_the_first_variant_of_a_gpu_architecture_compiles_its_libraries(
    release: str, built: list[str] | None, with_magma: list[bool]
) -> None:
    """At most as often as Nix says that it builds MAGMA, if it was asked."""
    matrix = matrix_reader.parse(WHOLE)
    names = ["sm90-avx2", "sm90-avx512", "sm120-avx2", "cpu-avx2", "cpu-avx2+torchvision"]
    steps = [step_of(matrix, f"{release}/{name}") for name in names]
    build = steps[0].package.variant.build
    fetched = "/nix/store/z-magma-2.9"
    work = [*(f"{name}.drv" for name in built), fetched] if built else []
    found = [3600 * hours / 2 for hours in (build.core_hours, build.magma_core_hours)]
    wanted = [found[0] + has_magma * found[1] for has_magma in with_magma]
    cpu_only = 3600 * steps[3].package.variant.build.core_hours / 2
    assert list(estimated_seconds(steps, 2, work).values()) == [*wanted, cpu_only]
    assert found[1] > found[0] > cpu_only


@pytest.mark.parametrize(
    ("id_", "seconds", "fields", "wanted"),
    [
        ("cpu-avx512", (80.0,), {}, (80, "the last of its kind")),
        ("cpu-avx512", (80.0, 100.0), {}, (90, "the last two of its kind")),
        ("cpu-avx512", (80.0, 100.0, 90.0), {}, (90, "the last three of its kind")),
        ("cpu-avx512", (80.0, 100.0, 90.0, 9000.0), {}, (90, "the last three of its kind")),
        ("sm90-avx2", (80.0,), {}, (7, "estimate of matrix.toml")),
        ("cpu-avx2+torchvision", (90.0,), {}, (7, "estimate of matrix.toml")),
        ("cpu-avx2", (59.0,), {}, (7, "estimate of matrix.toml")),
        ("cpu-avx2", (80.0,), {"outcome": "failed"}, (7, "estimate of matrix.toml")),
        ("cpu-avx2", (80.0,), {"host": "another machine"}, (7, "estimate of matrix.toml")),
    ],
)
def test_the_usual_time_is_the_median_of_the_last_whole_builds_of_the_kind_here(
    matrix: Matrix, id_: str, seconds: Sequence[float], fields: dict[str, Any], wanted: Any
) -> None:
    package, values = named(matrix, id_), {"outcome": "built", **fields}
    built = [ended(package, seconds=each, **values) for each in seconds]
    step = step_of(matrix, "cpu-avx2")
    found = usual_times(built[::-1], matrix.packages, [step], {step.name: 7.0})[step.name]
    assert (found.seconds, found.source) == wanted


# --- the loop: which builds begin, and what becomes of the others ---

NO_MEMORY = "echo 'virtual memory exhausted: Cannot allocate memory'; exit 1"
WRONG_SOURCE = "echo 'error: Package x in y:1 is marked as broken, refusing'; exit 1"


class ShellBackend(BuildBackend):
    """Runs a shell script for each step; `$cores` are its compile jobs."""

    scripts: dict[str, str]

    def command(self, step: Step, cores: int) -> BuildCommand:
        script = self.scripts.get(step.package.id, "")
        return BuildCommand(["sh", "-c", f"cores={cores}\n{script}"])

    def outputs(self, step: Step, began: float) -> tuple[str, ...]:
        del began
        if step.package.id == "cpu-avx512":
            raise ToolError("nix-store: does not answer")
        if step.package.id == "cpu-avx512bf16":
            raise ZeroDivisionError("nothing else raises this")
        return ("/nix/store/x",)


CarriedOut = Callable[..., tuple[dict[str, str], BuildRun]]


@pytest.fixture
def carried_out(matrix: Matrix, tmp_path: Path) -> CarriedOut:
    """Build packages with scripts; return what became of each, by id, and the run."""

    def carry_out(
        scripts: dict[str, str], ids: Sequence[str], jobs: int = 1
    ) -> tuple[dict[str, str], BuildRun]:
        backend = ShellBackend("shell", BuildSettings(root=tmp_path), NixSettings(()))
        backend.scripts = scripts
        steps = tuple(step_of(matrix, id_, root=tmp_path) for id_ in ids)
        plan = BuildPlan(steps=steps, obstacles=(), notes=(), backend=backend, jobs=jobs, cores=8)
        run = BuildRun(plan, BuildDisplay(Screen(io.StringIO()), {}))
        outcomes = run.run()
        recorded = [e.variant for e in read(tmp_path).events if e.outcome == "built"]
        built = [o.step.package for o in outcomes if o.state is Mark.BUILT]
        assert sorted(recorded) == sorted(package.short_id for package in built)
        return {o.step.package.id: o.message or o.state.value for o in outcomes}, run

    return carry_out


BROKEN = WRONG_SOURCE[6:-9]
SHARED = "sm90-avx2 failed (marked-broken), and its group shares that fault"
FINE = ("", "built")


@pytest.mark.parametrize(
    "case",
    [
        # An error in one build ends no other; hostile output ends none.
        {"cpu-avx512": ("", "nix-store: does not answer"),
         "cpu-avx512bf16": ("", "internal error: ZeroDivisionError: nothing else raises this"),
         "sm90-avx2": (f"echo '[1/{'9' * 4301}] x'; echo '@nix {{torn'", "built")},
        # A fault that all recipes of the group share, unless one of them is built.
        {"sm90-avx2": (WRONG_SOURCE, BROKEN), "sm90-avx512": ("", SHARED),
         "sm90-avx512+torchvision": ("", SHARED), "cpu-avx2": FINE},
        {"sm90-avx2": FINE, "sm90-avx512": (WRONG_SOURCE, BROKEN), "sm120-avx2": FINE},
        # What needs a variant that was not built.
        {"sm90-avx2": ("exit 3", "exit code 3"), "sm90-avx512": FINE,
         "sm90-avx2+torchvision": ("", "sm90-avx2 failed, and this needs it")},
        # Once more with half the compile jobs, as all that begin then.
        {"sm90-avx2": (f"[ $cores = 4 ] || {{ {NO_MEMORY}; }}", "built"),
         "sm120-avx2": ("[ $cores = 4 ] || exit 1", "built")},
        {"sm90-avx2": (NO_MEMORY, NO_MEMORY[6:-9])},
        {"sm90-avx2": ("kill -9 $$", "exit code -9")},
        # The recipe changes after the plan.
        {"sm90-avx2": ("mkdir -p {0}; echo >{0}/pytorch-python313-cpu-avx2.nix", "built"),
         "cpu-avx2": ("", "its recipe has changed since the plan; run again")},
    ],
)  # fmt: skip
def test_what_becomes_of_the_steps_of_a_plan(
    carried_out: CarriedOut, tmp_path: Path, case: dict[str, tuple[str, str]]
) -> None:
    """Of each step: its script, and how it ends."""
    folder = str(tmp_path / ".flox/pkgs")
    scripts = {id_: script.replace("{0}", folder) for id_, (script, _) in case.items()}
    assert carried_out(scripts, list(case))[0] == {id_: end for id_, (_, end) in case.items()}


def test_builds_run_at_once_and_a_companion_begins_when_its_variant_has_ended(
    carried_out: CarriedOut, tmp_path: Path
) -> None:
    """Two variants wait for each other, the companion looks for what its variant leaves."""
    one, other, companion = "sm90-avx2", "sm120-avx2", "sm90-avx2+torchvision"
    wait = (
        ">{0}/{1}; for i in $(seq 99); do [ -e {0}/{2} ] && break; sleep 0.1; done; [ -e {0}/{2} ]"
    )
    scripts = {
        one: f"{wait.format(tmp_path, one, other)} && sleep 0.3 && >{tmp_path}/torch",
        other: wait.format(tmp_path, other, one),
        companion: f"[ -e {tmp_path}/torch ]",
    }
    found, _ = carried_out(scripts, (companion, one, other), jobs=3)
    assert set(found.values()) == {"built"}
    started = [e.variant for e in read(tmp_path).events if e.event == "started"]
    assert started == [one, other, companion]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -INT {pid}; sleep 60", "exit code -2"),
        ("trap '' INT TERM; kill -INT {pid}; sleep 1; kill -INT {pid}; sleep 60", "exit code -9"),
    ],
)
def test_ctrl_c_ends_what_runs_and_begins_nothing(
    carried_out: CarriedOut, script: str, message: str
) -> None:
    """A second one kills what does not want to end."""
    scripts = {"sm90-avx2": script.format(pid=os.getpid())}
    found, run = carried_out(scripts, ("sm90-avx2", "sm120-avx2"))
    assert found == {"sm90-avx2": message, "sm120-avx2": "the run was ended"}
    assert run.ended_by == signal.SIGINT


@pytest.fixture
def attempt(matrix: Matrix, tmp_path: Path) -> Iterator[BuildAttempt]:
    step = step_of(matrix, "cpu-avx2")
    with contextlib.closing(BuildAttempt(tmp_path, step, BuildCommand(["false"]), 1)) as one:
        yield one


def see(attempt: BuildAttempt, *lines: str) -> None:
    for line in lines:
        list(attempt.reader.read(line.encode()))


def test_there_is_a_line_for_each_phase_and_tenth(attempt: BuildAttempt) -> None:
    """With the usual time; without news there is one after five minutes."""
    stream, times = io.StringIO(), itertools.count(0, 60)
    usual = {attempt.step.name: UsualTime(9660, 3)}
    display = BuildDisplay(Screen(stream), usual, lambda: next(times) / 60)
    built = (f"building '/nix/store/{'0' * 32}-{n}.drv'" for n in ("magma-2.9.0", "torch-2.10.0"))
    steps = [f"[{n}/1000] cc x" for n in range(1, 1001)]
    for step in (*built, "Running phase: configurePhase", *steps):
        see(attempt, step)
        display.show([attempt])
    took = "0:00, the last three of its kind took 2:41:00"
    phases = ["dependencies: magma-2.9.0", "configure", "build step 1 of 1,000"]
    phases += [f"build step {n}00 of 1,000" for n in range(1, 10)] + ["build step 1,000 of 1,000"]
    assert stream.getvalue().splitlines() == [f"cpu-avx2: {phase}, {took}" for phase in phases]
    display = BuildDisplay(Screen(stream), {}, lambda: next(times))
    for _ in range(11):
        display.show([attempt])
    assert stream.getvalue().count("cpu-avx2: build step 1,000 of 1,000") == 4
    display.say("a message\x1b[2J")
    assert "a message\\x1b[2J" in stream.getvalue()
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        BuildDisplay(Screen(gone), {}).say("builds go on")


STOPPING = "--   USE_CUDA              : ON"  # in a CPU-only build


def exit_code(attempt: BuildAttempt, script: str) -> int:
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
    assert exit_code(attempt, f"{trap}echo '{STOPPING}'; while :; do sleep 0.05; done") == -last
    outcome = attempt.decide(-last, ("/nix/store/x",))
    assert (outcome.state, outcome.cause, outcome.message) == ("stopped", "cuda-on", STOPPING)
    assert (tmp_path / attempt.log).read_text().splitlines()[1:] == [STOPPING]


def test_a_build_that_is_killed_before_its_program_exists_ends_at_once(
    attempt: BuildAttempt,
) -> None:
    attempt.is_killed = True
    assert exit_code(attempt, "trap '' INT TERM; sleep 4249") == -signal.SIGKILL


def test_a_log_on_a_full_disk_is_incomplete_and_ends_no_build(attempt: BuildAttempt) -> None:
    attempt.close()
    with Path("/dev/full").open("wb", buffering=0) as full:
        attempt._file = full  # noqa: SLF001 - a full disk
        assert exit_code(attempt, "echo one; echo two; exit 3") == 3
    assert attempt.lost_log == "No space left on device"
    assert attempt.reader.lines == 2


def test_a_long_log_is_written_in_constant_memory(attempt: BuildAttempt, tmp_path: Path) -> None:
    tracemalloc.start()
    assert exit_code(attempt, f"yes {'x' * 999} | head -n 20000") == 0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / attempt.log).stat().st_size > 20_000_000
    assert peak < 8 << 20
