"""The command behind `invoke build` and the nox session: plan, build, tell."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from build_pytorch import matrix, paths
from build_pytorch.builds import cache, plan, results
from build_pytorch.builds.display import Display, clock
from build_pytorch.builds.engine import Engine
from build_pytorch.builds.ledger import Ended, Ledger
from build_pytorch.builds.lock import only_run
from build_pytorch.builds.options import Options, chosen
from build_pytorch.builds.outcome import Outcome
from build_pytorch.builds.plan import Plan
from build_pytorch.console import Screen, counted, print_json
from build_pytorch.errors import EXIT_BAD_INPUT, EXIT_OK, BuildPytorchError, ToolError
from build_pytorch.model import Matrix, Variant

_MOST_FAILURES: Final = 100
"""More than this no exit code counts: from 126 on, shells mean something else."""

_COLOURS: Final = {"built": "green", "up to date": "dim", "skipped": "yellow"}


def run(options: Options) -> int:
    """Plan builds, carry them out and say what came of them.

    Returns the number of variants that failed. Raises BuildPytorchError where nothing can be
    begun: a wrong name, an obstacle, another run.
    """
    screen = Screen(sys.stderr if options.json else sys.stdout)
    cache.check(options)
    outcomes: dict[str, Outcome] = {}
    fixed = 0
    while True:
        fleet = matrix.load()
        variants = chosen(fleet, options)
        made = plan.make(fleet, variants, options)
        _print_plan(screen, made)
        if made.obstacles:
            if options.json:
                print_json(_document(made, {}), sys.stdout)
            raise BuildPytorchError(
                f"nothing was begun: {counted(len(made.obstacles), 'obstacle')}:\n"
                + "\n".join(f"  {obstacle}" for obstacle in made.obstacles)
            )
        if not made.builds and all(step.action == "skipped" for step in made.steps):
            raise BuildPytorchError(f"nothing to build: {made.steps[0].reason}")
        if options.dry_run:
            if options.json:
                print_json(_document(made, {}), sys.stdout)
            return EXIT_OK
        with only_run(options.root):
            engine, ended = _build(made, options, screen)
        outcomes |= {outcome.variant.package: outcome for outcome in ended}
        if not (options.fix_hashes and engine.fixable and not engine.ended_by):
            break
        if not _fix(engine.fixable, screen) or fixed == _most_fixes(fleet):
            break
        fixed += 1
    pushed = _push(made, outcomes, options, screen)
    return _finish(made, outcomes, options, screen, engine.ended_by, pushed)


def _build(made: Plan, options: Options, screen: Screen) -> tuple[Engine, list[Outcome]]:
    with Display(screen, _history(options.root, [s.variant for s in made.steps])) as display:
        engine = Engine(made, options, display)
        return engine, engine.run()


def _history(root: Path, variants: Sequence[Variant]) -> dict[str, float]:
    """Seconds that builds took, by package: the last of the variant, else of one of its kind."""
    own: dict[str, float] = {}
    of_kind: dict[str, float] = {}
    known = {(v.release_name, v.id): v for v in variants}
    for event in Ledger(root).events():
        if isinstance(event, Ended) and event.outcome == "built" and event.steps:
            variant = known.get(event.subject)
            if variant:
                own[variant.package] = event.seconds
                of_kind[variant.group.title] = event.seconds
    found = {}
    for variant in variants:
        seconds = own.get(variant.package, of_kind.get(variant.group.title))
        if seconds is not None:
            found[variant.package] = seconds
    return found


def _fix(logs: Sequence[Path], screen: Screen) -> bool:
    """Take the hashes out of logs into matrix.toml; whether that changed something."""
    from build_pytorch import prefetch

    before = paths.MATRIX.read_bytes()
    for log in logs:
        try:
            with _stdout_to(screen):
                prefetch.run(prefetch.Options(from_log=log))
        except BuildPytorchError as error:
            screen.line(f"--fix-hashes: {error}")
    return paths.MATRIX.read_bytes() != before


def _stdout_to(screen: Screen) -> Any:  # noqa: ANN401 - contextlib's own type is private
    from contextlib import redirect_stdout

    return redirect_stdout(screen.stream)


def _most_fixes(fleet: Matrix) -> int:
    """A hash can be wrong once for each source; more often, something else is."""
    from build_pytorch.prefetch.sources import sources

    return len(sources(fleet, ()))


def _push(
    made: Plan, outcomes: dict[str, Outcome], options: Options, screen: Screen
) -> dict[str, str]:
    """Push what is built to the cache; what could not be, with the reason, by package name."""
    if not options.copy_to:
        return {}
    failed = {}
    for step in made.steps:
        variant = step.variant
        outputs = [results.target(results.link(options.root, variant))]
        outcome = outcomes.get(variant.package)
        if step.action == "skipped" or (outcome and outcome.state != "built"):
            continue
        try:
            cache.push(outputs, options.copy_to, options.secret_key)
            screen.line(f"{variant.id}: is in {options.copy_to}")
        except ToolError as error:
            failed[variant.package] = str(error)
            screen.line(f"{variant.id}: built, but not pushed: {error}")
    return failed


def _print_plan(screen: Screen, made: Plan) -> None:
    how = f", {counted(made.cores, 'core')} each" if made.cores else ""
    if made.builders:
        how = f", on {counted(len(made.builders.machines), 'builder')}"
    elif made.cores:
        how += f", about {made.hours:.0f} hours in all"
    screen.line(screen.paint(f"Plan: {made.backend}, {made.jobs} at once{how}", "bold"))
    width = max(len(step.variant.id) for step in made.steps)
    for step in made.steps:
        colour = {"build": "green", "skipped": "yellow"}.get(step.action, "dim")
        place = f" on {step.where}" if step.where else ""
        action = screen.paint(f"{step.action:<10}", colour)
        screen.line(f"  {action}  {step.variant.id:<{width}}  {step.reason}{place}")
    for warning in made.warnings:
        screen.line(f"  {screen.paint('note', 'yellow')}        {warning}")


def _finish(  # noqa: PLR0913, PLR0917 - what a run comes down to
    made: Plan,
    outcomes: dict[str, Outcome],
    options: Options,
    screen: Screen,
    ended_by: int,
    pushed: dict[str, str],
) -> int:
    """Print the table, and give the number of failures."""
    failed = [o for o in outcomes.values() if o.state != "built"]
    states = {step.variant.package: step.action for step in made.steps if step.action != "build"}
    if len(outcomes) > 1:
        screen.line()
        for outcome in outcomes.values():
            colour = _COLOURS.get(outcome.state, "red")
            state = screen.paint(f"{outcome.state:<11}", colour)
            cause = outcome.rule.id if outcome.rule else ""
            screen.line(
                f"  {state}  {outcome.variant.id:<18}  {clock(outcome.seconds):>8}  "
                f"{cause:<20}  {outcome.log}"
            )
    built = len(outcomes) - len(failed)
    rest = [f"{list(states.values()).count(s)} {s}" for s in dict.fromkeys(states.values())]
    screen.line("; ".join([f"{built} built, {len(failed)} not", *rest]))
    if options.json:
        print_json(_document(made, outcomes), sys.stdout)
    if ended_by:
        signal.raise_signal(ended_by)
    return min(len(failed) + len(pushed), _MOST_FAILURES)


def _document(made: Plan, outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """For --json: the plan, and what came of it."""
    return {
        "backend": made.backend,
        "jobs": made.jobs,
        "cores": made.cores,
        "obstacles": list(made.obstacles),
        "warnings": list(made.warnings),
        "variants": [
            {
                "variant": step.variant.id,
                "package": step.variant.package,
                "action": step.action,
                "reason": step.reason,
                "where": step.where,
                "derivation": step.derivation.drv_path if step.derivation else None,
                **_outcome(outcomes.get(step.variant.package)),
            }
            for step in made.steps
        ],
        "exit_code": EXIT_BAD_INPUT if made.obstacles else _failures(outcomes),
    }


def _outcome(outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    return {
        "outcome": outcome.state,
        "seconds": round(outcome.seconds, 3),
        "cause": outcome.rule.id if outcome.rule else None,
        "message": outcome.message,
        "log": outcome.log,
        "outputs": list(outcome.outputs),
    }


def _failures(outcomes: dict[str, Outcome]) -> int:
    return min(sum(o.state != "built" for o in outcomes.values()), _MOST_FAILURES)
