"""`invoke build`: plan builds, carry them out, report the outcomes."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from build_pytorch.base import files, paths
from build_pytorch.base.console import (
    Screen,
    clock,
    counted,
    folded,
    grouped,
    print_json,
    some,
    visible,
)
from build_pytorch.base.errors import (
    EXIT_BAD_INPUT,
    EXIT_FINDINGS,
    EXIT_OK,
    BuildPytorchError,
    NothingSelectedError,
    NothingToBuildError,
)
from build_pytorch.build import backends
from build_pytorch.build.build_backend import BuildSettings, Step
from build_pytorch.build.build_display import BuildDisplay
from build_pytorch.build.build_outcome import BuildOutcome, BuildState
from build_pytorch.build.build_plan import BuildPlan, make_plan
from build_pytorch.build.run_loop import BuildRun
from build_pytorch.build.usual_times import UsualTime
from build_pytorch.cli import prefetch
from build_pytorch.cli.commands import BuildOptions, PrefetchOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.results.ledger import only_run
from build_pytorch.results.package_selection import chosen_packages

_MOST_ROUNDS: Final = 10
"""A hash can be wrong once for each source, and there are a handful of them."""

_COLOURS: Final = {
    "build": "green",
    "built": "green",
    "up to date": "dim",
    "skipped": "yellow",
    "failed": "red",
}


class StepRow(Struct, frozen=True, kw_only=True):
    """What a run does with a package, and what became of it if it was built."""

    variant: str
    package: str
    action: str
    reason: str
    only_remote: bool
    derivation: str | None
    hours: float | UnsetType = UNSET  #: that a build is expected to take
    hours_from: str | UnsetType = UNSET  #: earlier builds, or the estimate
    outcome: BuildState | UnsetType = UNSET
    seconds: float | UnsetType = UNSET
    cause: str | UnsetType | None = UNSET
    message: str | UnsetType = UNSET
    log: str | UnsetType = UNSET
    outputs: tuple[str, ...] | UnsetType = UNSET


class BuildDocument(Struct, frozen=True, kw_only=True):
    """The document of --json: the plan, and what became of it."""

    backend: str
    jobs: int
    cores: int
    hours: float  #: of the whole run; builds of unknown time count as none
    memory_gib: float
    disk_gib: float
    obstacles: tuple[str, ...]
    warnings: tuple[str, ...]
    variants: list[StepRow]
    exit_code: int


def _settings(options: BuildOptions) -> BuildSettings:
    """Return how to build. Raises BuildPytorchError for options that contradict each other."""
    if options.keep_going and options.fail_fast:
        raise BuildPytorchError("--keep-going and --fail-fast: choose one")
    backends.fitting(options.backend, options.builders)
    values = {name: getattr(options, name) for name in BuildSettings.__struct_fields__}
    return BuildSettings(**values)


def run(options: BuildOptions) -> int:
    """Build what is selected. Return the exit code: 1 if a build failed.

    Raises BuildPytorchError where nothing can begin: a wrong name, an obstacle, another run.
    """
    screen = Screen(sys.stderr if options.json else sys.stdout)
    settings = _settings(options)
    outcomes: dict[str, BuildOutcome] = {}
    for _ in range(_MOST_ROUNDS):
        matrix = matrix_reader.load(options.root)
        try:
            packages = _selected(matrix, options)
        except NothingSelectedError as nothing:
            screen.line(f"nothing to build: {nothing}")
            return EXIT_OK
        plan = make_plan(matrix, packages, settings)
        _print_plan(screen, plan, verbose=options.verbose)
        if options.dry_run:
            _print_hours(screen, plan)
        reason = _reason_against(plan)
        if reason or options.dry_run:
            if options.json:
                code = EXIT_BAD_INPUT if reason else EXIT_OK
                print_json(_document(plan, {}, code), sys.stdout)
            if reason:
                raise reason
            return EXIT_OK
        build_run, ended = _carried_out(screen, plan)
        # After a fix a variant may be the same build as another one.
        current = {step.name for step in plan.steps if step.action == "up to date"}
        outcomes = {package: o for package, o in outcomes.items() if package not in current}
        outcomes |= {outcome.step.name: outcome for outcome in ended}
        is_fixable = options.fix_hashes and build_run.fixable and not build_run.ended_by
        if not (is_fixable and _fix(options.root, build_run.fixable, screen)):
            break
    failed = {package for package, o in outcomes.items() if o.state is not BuildState.BUILT}
    failed |= {step.name for step in plan.steps if step.action == "failed"}
    code = EXIT_FINDINGS if failed else EXIT_OK
    _print_outcomes(screen, plan, outcomes)
    if options.json:
        ended_by = build_run.ended_by
        code_of_run = 128 + ended_by if ended_by else code
        print_json(_document(plan, outcomes, code_of_run), sys.stdout)
    if build_run.ended_by:
        signal.raise_signal(build_run.ended_by)
    return code


def _carried_out(screen: Screen, plan: BuildPlan) -> tuple[BuildRun, list[BuildOutcome]]:
    """Carry a plan out. Returns the run and what became of its builds. Raises WriteError."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # builds go on without their terminal
    gc.enable()  # the entry point disables it for short commands; a run takes days
    settings = plan.backend.settings
    with only_run(settings.root), BuildDisplay(screen, plan.usual) as display:
        build_run = BuildRun(plan, settings, display)
        return build_run, build_run.run()


def _selected(matrix: Matrix, options: BuildOptions) -> tuple[Package, ...]:
    """Return the selected variants and companions in matrix order.

    Raises BuildPytorchError for a name that matches nothing, and without any selection: the whole
    fleet takes days.
    """
    selection = options.selection
    if not (selection.is_narrow or options.all):
        raise BuildPytorchError(
            f"name what to build, such as {matrix.variants[0].id} or --gpu sm90; "
            f"--all builds all {len(matrix.variants)}"
        )
    companions = [name for names in options.with_ for name in names.split(",")]
    return chosen_packages(matrix, selection, companions)


def _reason_against(plan: BuildPlan) -> BuildPytorchError | None:
    """Return why no build of a plan can begin, or None."""
    if plan.obstacles:
        lines = "\n".join(line for o in plan.obstacles for line in folded("  ", o))
        what = "a build cannot start" if plan.backend.settings.dry_run else "nothing was started"
        number = counted(len(plan.obstacles), "obstacle")
        return BuildPytorchError(f"{what}: {number}:\n{lines}")
    if all(step.action == "skipped" for step in plan.steps):
        return NothingToBuildError(f"nothing to build: {plan.steps[0].reason}")
    return None


def _fix(root: Path, logs: Sequence[Path], screen: Screen) -> bool:
    """Write the hashes of logs into matrix.toml. Return whether that changed something."""
    before = files.read_below(root, paths.MATRIX)
    for log in logs:
        try:
            with contextlib.redirect_stdout(screen.stream):
                prefetch.run(PrefetchOptions(from_log=log, root=root))
        except BuildPytorchError as error:
            screen.line(f"--fix-hashes: {error}")
    return files.read_below(root, paths.MATRIX) != before


def _print_plan(screen: Screen, plan: BuildPlan, *, verbose: bool) -> None:
    how = f"{plan.backend.name}, {plan.jobs} at once"
    if plan.cores:
        how += f", {counted(plan.cores, 'core')} each, about {plan.hours:.1f} hours in all"
        how += " (estimate)" if any(not usual.builds for usual in plan.usual.values()) else ""
        how += f"; {plan.memory:.0f} GiB of memory and {plan.disk:.0f} GiB of disk needed"
    screen.fold("Plan: ", how, "bold")
    at = {True: ", on a remote builder", False: ""}
    rows = [(s.action, s.id, s.reason + at[s.only_remote]) for s in plan.steps]
    screen.plan(rows, _COLOURS, verbose=verbose)
    for warning in plan.warnings:
        screen.fold("  note        ", warning, "yellow", indent=14)


def _print_hours(screen: Screen, plan: BuildPlan) -> None:
    """Print how long each build is expected to take, and what that comes from."""
    texts = {
        name: f"{usual.seconds / 3600:.1f} hours, {usual.source}"
        for name, usual in plan.usual.items()
    }
    rows = grouped((texts.get(step.name, "unknown time"), step.id) for step in plan.builds)
    for text, ids in rows.items():
        screen.fold("  ", f"{text}: {some(ids)}", indent=6)


def _print_outcomes(screen: Screen, plan: BuildPlan, outcomes: dict[str, BuildOutcome]) -> None:
    if len(outcomes) > 1:
        screen.line()
        width = max(len(outcome.step.id) for outcome in outcomes.values())
        for outcome in outcomes.values():
            name, took = outcome.step.id, clock(outcome.seconds)
            what = f"{name:<{width}}  {took:>8}  {outcome.cause or visible(outcome.message)}"
            colour = _COLOURS.get(outcome.state, "red")
            screen.fold(f"  {outcome.state:<11}  ", what, colour, indent=15)
            if outcome.log and outcome.state is not BuildState.BUILT:
                screen.line(f"    {outcome.log}")
    built = sum(outcome.state is BuildState.BUILT for outcome in outcomes.values())
    parts = [f"{built} built, {len(outcomes) - built} not"]
    rest: Counter[str] = Counter(step.action for step in plan.steps if step.name not in outcomes)
    labels = {"failed": "failed before", "skipped": "skipped", "up to date": "up to date"}
    parts += [f"{rest[action]} {label}" for action, label in labels.items() if action in rest]
    screen.line("; ".join(parts))


def _fields(step: Step, usual: UsualTime | None, outcome: BuildOutcome | None) -> dict[str, Any]:
    """Return the fields of a row that say what a run does with a step, and what became of it."""
    fields: dict[str, Any] = {
        "action": step.action,
        "reason": step.reason,
        "only_remote": step.only_remote,
        "derivation": step.derivation.drv_path if step.derivation else None,
    }
    if usual:
        fields |= {"hours": round(usual.seconds / 3600, 2), "hours_from": usual.source}
    if outcome:
        fields |= {
            "outcome": outcome.state,
            "seconds": round(outcome.seconds, 3),
            "cause": outcome.cause or None,
            "message": outcome.message,
            "log": outcome.log,
            "outputs": outcome.outputs,
        }
    return fields


def _document(plan: BuildPlan, outcomes: dict[str, BuildOutcome], code: int) -> BuildDocument:
    """Return the document of --json."""
    fields = {
        step.name: _fields(step, plan.usual.get(step.name), outcomes.get(step.name))
        for step in plan.steps
    }
    return BuildDocument(
        backend=plan.backend.name,
        jobs=plan.jobs,
        cores=plan.cores,
        hours=round(plan.hours, 2),
        memory_gib=plan.memory,
        disk_gib=plan.disk,
        obstacles=plan.obstacles,
        warnings=plan.warnings,
        variants=[
            StepRow(variant=step.package.id, package=step.package.package, **fields[step.name])
            for step in plan.steps
        ],
        exit_code=code,
    )
