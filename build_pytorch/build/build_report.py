"""What a run of builds prints: its plan, its outcomes, and both as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from build_pytorch.base.console import Screen, clock, counted, folded, grouped, some, visible
from build_pytorch.base.errors import BuildPytorchError, NothingToBuildError
from build_pytorch.build.backends import BuildAction
from build_pytorch.build.build_attempt import BuildOutcome, BuildState
from build_pytorch.build.build_plan import BuildPlan

_COLOURS: Final = {"build": "green", "built": "green", "skipped": "yellow", "failed": "red"}


def refusal(plan: BuildPlan) -> BuildPytorchError | None:
    """Return why no build of a plan can begin, or None."""
    if plan.obstacles:
        lines = "\n".join(line for o in plan.obstacles for line in folded("  ", o))
        what = "a build cannot start" if plan.backend.settings.dry_run else "nothing was started"
        number = counted(len(plan.obstacles), "obstacle")
        return BuildPytorchError(f"{what}: {number}:\n{lines}")
    if all(step.action is BuildAction.SKIPPED for step in plan.steps):
        return NothingToBuildError(f"nothing to build: {plan.steps[0].reason}")
    return None


def show_plan(screen: Screen, plan: BuildPlan, *, verbose: bool) -> None:
    """Print what a run does with each package, in a dry run with the time of each build too."""
    how = f"{plan.backend.name}, {plan.jobs} at once"
    if plan.builds:
        how += f", {counted(plan.cores, 'core')} each, about {plan.hours:.1f} hours in all"
        how += " (estimate)" if any(not usual.builds for usual in plan.usual.values()) else ""
        how += f"; {plan.memory:.0f} GiB of memory and {plan.disk:.0f} GiB of disk needed"
    screen.fold("Plan: ", how, "bold")
    rows = [(step.action.value, step.package.id, step.reason) for step in plan.steps]
    screen.plan(rows, _COLOURS, verbose=verbose)
    for note in plan.notes:
        screen.fold("  note        ", note, "yellow", indent=14)
    if plan.backend.settings.dry_run:
        texts = {n: f"{u.seconds / 3600:.1f} hours, {u.source}" for n, u in plan.usual.items()}
        ids = {step.package.id: texts.get(step.name, "unknown time") for step in plan.builds}
        for text, names in grouped((text, name) for name, text in ids.items()).items():
            screen.fold("  ", f"{text}: {some(names)}", indent=6)


def show_outcomes(screen: Screen, plan: BuildPlan, outcomes: Mapping[str, BuildOutcome]) -> None:
    """Print what became of each build, in the order of the plan, and the totals."""
    if len(outcomes) > 1:
        screen.line()
        width = max(len(outcome.step.package.id) for outcome in outcomes.values())
        for outcome in (outcomes[step.name] for step in plan.steps if step.name in outcomes):
            name, took = outcome.step.package.id, clock(outcome.seconds)
            what = f"{name:<{width}}  {took:>8}  {outcome.cause or visible(outcome.message)}"
            colour = _COLOURS.get(outcome.state, "red")
            screen.fold(f"  {outcome.state:<11}  ", what, colour, indent=15)
            if outcome.log and outcome.state is not BuildState.BUILT:
                screen.line(f"    {outcome.log}")
    built = sum(outcome.state is BuildState.BUILT for outcome in outcomes.values())
    parts = [f"{built} built, {len(outcomes) - built} not"]
    rest = Counter(step.action for step in plan.steps if step.name not in outcomes)
    labels = {
        BuildAction.FAILED: "failed before",
        BuildAction.SKIPPED: "skipped",
        BuildAction.CURRENT: "up to date",
    }
    parts += [f"{rest[action]} {label}" for action, label in labels.items() if rest[action]]
    screen.line("; ".join(parts))


def document(plan: BuildPlan, outcomes: Mapping[str, BuildOutcome], code: int) -> dict[str, object]:
    """Return a plan, and what became of its builds, for programs."""
    rows = []
    for step in plan.steps:
        usual, outcome = plan.usual.get(step.name), outcomes.get(step.name)
        row: dict[str, object] = {"variant": step.package.id, "package": step.package.package}
        row |= {"action": step.action, "reason": step.reason}
        row["derivation"] = step.derivation.drv_path if step.derivation else None
        if usual:
            row |= {"hours": round(usual.seconds / 3600, 2), "hours_from": usual.source}
        if outcome:
            names = ("message", "log", "outputs")
            row |= {"outcome": outcome.state, "seconds": round(outcome.seconds, 3)}
            row |= {"cause": outcome.cause or None, **{n: getattr(outcome, n) for n in names}}
        rows.append(row)
    return {
        "backend": plan.backend.name,
        "jobs": plan.jobs,
        "cores": plan.cores,
        "hours": round(plan.hours, 2),  # builds of unknown time count as none
        "memory_gib": plan.memory,
        "disk_gib": plan.disk,
        "obstacles": plan.obstacles,
        "notes": plan.notes,
        "variants": rows,
        "exit_code": code,
    }
