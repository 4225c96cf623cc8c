"""What a run of builds prints: its plan, its progress, its outcomes, and the JSON of it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from build_pytorch.base.console import Screen, counted, folded, grouped, some
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build.backends import BuildAction
from build_pytorch.build.build_attempt import BuildAttempt, BuildOutcome
from build_pytorch.build.build_plan import BuildPlan
from build_pytorch.build.log_reader import BEFORE
from build_pytorch.build.usual_times import UsualTime, clock
from build_pytorch.results.package_state import Mark

_COLOURS: Final = {"build": "green", "built": "green", "skipped": "yellow", "failed": "red"}
_QUIET: Final = 300.0  #: seconds without news after which a line of progress is repeated


def refusal(plan: BuildPlan) -> BuildPytorchError | None:
    """Return why no build of a plan can begin, or None."""
    if plan.obstacles:
        lines = "\n".join(line for o in plan.obstacles for line in folded("  ", o))
        what = "a build cannot start" if plan.backend.settings.dry_run else "nothing was started"
        number = counted(len(plan.obstacles), "obstacle")
        return BuildPytorchError(f"{what}: {number}:\n{lines}")
    if all(step.action is BuildAction.SKIPPED for step in plan.steps):
        return BuildPytorchError("nothing to build: the plan skips every package, and says why")
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


class BuildDisplay:
    """Shows running builds on a screen, in lines that stay. `usual`: times by name of the step."""

    def __init__(
        self,
        screen: Screen,
        usual: Mapping[str, UsualTime],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.screen = screen
        self.usual = usual
        self.now = now
        self._shown: dict[str, tuple[str, int, float]] = {}
        """Phase, tenth of the steps and time of the last line, by attempt."""

    def say(self, text: str) -> None:
        """Print lines, with control characters escaped. Builds go on without a terminal."""
        with contextlib.suppress(OSError):
            self.screen.line(text.expandtabs())

    def show(self, attempts: Iterable[BuildAttempt]) -> None:
        """Print a line for a new phase, another tenth of the steps, or a long time without."""
        now = self.now()
        for attempt in attempts:
            reader, usual = attempt.reader, self.usual.get(attempt.step.name)
            waiting = f"dependencies: {reader.dependency}" if reader.dependency else "waiting"
            phase = reader.phase if reader.phase not in BEFORE else waiting
            tenth = 10 * reader.done // reader.total if reader.total else 0
            before, shown_tenth, when = self._shown.setdefault(attempt.id, ("waiting", 0, now))
            if (phase, tenth) == (before, shown_tenth) and now - when < _QUIET:
                continue
            self._shown[attempt.id] = (phase, tenth, now)
            steps = f" step {reader.done:,} of {reader.total:,}" if reader.total else ""
            line = f"{attempt.step.package.id}: {phase}{steps}, {clock(attempt.seconds)}"
            if usual and usual.builds:
                line += f", {usual.source} took {clock(usual.seconds)}"
            self.say(line)


def show_outcomes(screen: Screen, plan: BuildPlan, outcomes: Mapping[str, BuildOutcome]) -> None:
    """Print what became of each build, in the order of the plan, and the totals."""
    if len(outcomes) > 1:
        screen.line()
        ended = [outcomes[step.name] for step in plan.steps if step.name in outcomes]
        rows = [
            (o.state.value, o.step.package.id, f"{clock(o.seconds):>8}  {o.cause or o.message}")
            for o in ended
        ]
        screen.plan(rows, _COLOURS, verbose=True)
    built = sum(outcome.state is Mark.BUILT for outcome in outcomes.values())
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
            row |= {"outcome": outcome.state, "seconds": round(outcome.seconds, 3)}
            row |= {name: getattr(outcome, name) for name in ("cause", "message", "log", "outputs")}
        rows.append(row)
    return {
        "backend": plan.backend.name,
        "hours": round(plan.hours, 2),  # builds of unknown time count as none
        "memory_gib": plan.memory,
        "disk_gib": plan.disk,
        **{name: getattr(plan, name) for name in ("jobs", "cores", "obstacles", "notes")},
        "variants": rows,
        "exit_code": code,
    }
