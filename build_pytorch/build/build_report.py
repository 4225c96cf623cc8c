"""What a run of builds prints: its plan, its outcomes, and both as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from build_pytorch.base.console import Screen, clock, counted, folded, grouped, some, visible
from build_pytorch.base.errors import BuildPytorchError, NothingToBuildError
from build_pytorch.build.build_backend import Step
from build_pytorch.build.build_outcome import BuildOutcome, BuildState
from build_pytorch.build.build_plan import BuildPlan
from build_pytorch.build.usual_times import UsualTime

_COLOURS: Final = {
    "build": "green",
    "built": "green",
    "up to date": "dim",
    "skipped": "yellow",
    "failed": "red",
}
_LABELS: Final = {"failed": "failed before", "skipped": "skipped", "up to date": "up to date"}


def refusal(plan: BuildPlan) -> BuildPytorchError | None:
    """Return why no build of a plan can begin, or None."""
    if plan.obstacles:
        lines = "\n".join(line for o in plan.obstacles for line in folded("  ", o))
        what = "a build cannot start" if plan.backend.settings.dry_run else "nothing was started"
        number = counted(len(plan.obstacles), "obstacle")
        return BuildPytorchError(f"{what}: {number}:\n{lines}")
    if all(step.action == "skipped" for step in plan.steps):
        return NothingToBuildError(f"nothing to build: {plan.steps[0].reason}")
    return None


def show_plan(screen: Screen, plan: BuildPlan, *, verbose: bool) -> None:
    """Print what a run does with each package, in a dry run with the time of each build too."""
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
    if plan.backend.settings.dry_run:
        texts = {n: f"{u.seconds / 3600:.1f} hours, {u.source}" for n, u in plan.usual.items()}
        times = grouped((texts.get(step.name, "unknown time"), step.id) for step in plan.builds)
        for text, ids in times.items():
            screen.fold("  ", f"{text}: {some(ids)}", indent=6)


def show_outcomes(screen: Screen, plan: BuildPlan, outcomes: Mapping[str, BuildOutcome]) -> None:
    """Print what became of each build, by name of the step, and the totals."""
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
    parts += [f"{rest[action]} {label}" for action, label in _LABELS.items() if action in rest]
    screen.line("; ".join(parts))


def document(plan: BuildPlan, outcomes: Mapping[str, BuildOutcome], code: int) -> dict[str, object]:
    """Return a plan, and what became of its builds, for programs."""
    return {
        "backend": plan.backend.name,
        "jobs": plan.jobs,
        "cores": plan.cores,
        "hours": round(plan.hours, 2),  # builds of unknown time count as none
        "memory_gib": plan.memory,
        "disk_gib": plan.disk,
        "obstacles": plan.obstacles,
        "warnings": plan.warnings,
        "variants": [
            _row(step, plan.usual.get(step.name), outcomes.get(step.name)) for step in plan.steps
        ],
        "exit_code": code,
    }


def _row(step: Step, usual: UsualTime | None, outcome: BuildOutcome | None) -> dict[str, Any]:
    """Return what a run does with a step, and what became of it if it was built."""
    row: dict[str, Any] = {
        "variant": step.package.id,
        "package": step.package.package,
        "action": step.action,
        "reason": step.reason,
        "only_remote": step.only_remote,
        "derivation": step.derivation.drv_path if step.derivation else None,
    }
    if usual:
        row |= {"hours": round(usual.seconds / 3600, 2), "hours_from": usual.source}
    if outcome:
        row |= {
            "outcome": outcome.state,
            "seconds": round(outcome.seconds, 3),
            "cause": outcome.cause or None,
            "message": outcome.message,
            "log": outcome.log,
            "outputs": outcome.outputs,
        }
    return row
