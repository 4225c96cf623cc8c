"""The command behind `invoke build` and the nox session: plan, build, tell."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from build_pytorch.base import paths
from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_BAD_INPUT, EXIT_OK, BuildPytorchError
from build_pytorch.build import plan, push
from build_pytorch.build.build_options import BuildOptions, NothingToBuildError, chosen
from build_pytorch.build.lock import only_run
from build_pytorch.build.outcome import BuildOutcome
from build_pytorch.build.plan import Plan
from build_pytorch.build.progress import Display, clock
from build_pytorch.build.run_loop import Engine
from build_pytorch.cli.commands import BuildCommandOptions, PrefetchOptions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Variant
from build_pytorch.results.ledger import Ended, Ledger

_MOST_ROUNDS: Final = 10
"""A hash can be wrong once for each source, and there are a handful of them."""

_MOST_FAILURES: Final = 100
"""More than this no exit code counts: from 126 on, shells mean something else."""

_COLOURS: Final = {"built": "green", "up to date": "dim", "skipped": "yellow"}


def run(given: BuildCommandOptions) -> int:
    """Plan builds, run them and print the results. Returns the number of variants that failed.

    Raises BuildPytorchError if nothing can be started: a wrong name, an obstacle, another run.
    """
    return _run(_build_options(given))


def _build_options(given: BuildCommandOptions) -> BuildOptions:
    if given.keep_going and given.fail_fast:
        raise BuildPytorchError("--keep-going and --fail-fast: choose one")
    return BuildOptions(
        patterns=given.variants,
        gpu=given.gpu,
        isa=given.isa,
        all=given.all,
        root=given.root,
        backend=given.backend,
        jobs=given.jobs,
        cores=given.cores,
        builders=given.builders,
        copy_to=given.copy_to or given.store,
        secret_key=given.secret_key,
        dry_run=given.dry_run,
        fail_fast=given.fail_fast,
        fix_hashes=given.fix_hashes,
        force=given.force,
        json=given.json,
    )


def _run(options: BuildOptions) -> int:
    """Plan builds, carry them out and say what came of them.

    Raises BuildPytorchError as `run` does.
    """
    screen = Screen(sys.stderr if options.json else sys.stdout)
    push.check(options)
    outcomes: dict[str, BuildOutcome] = {}
    unpushed: dict[str, str] = {}
    for _ in range(_MOST_ROUNDS):
        fleet = matrix_reader.load()
        made = plan.make(fleet, chosen(fleet, options), options)
        _print_plan(screen, made)
        if reason := _reason_against(made):
            if options.json:
                print_json(_document(made, {}, EXIT_BAD_INPUT), sys.stdout)
            raise reason
        if options.dry_run:
            if options.json:
                print_json(_document(made, {}, EXIT_OK), sys.stdout)
            return EXIT_OK
        # Who walked away wants to come back to results: a lost terminal ends nothing.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with only_run(options.root):
            engine, ended = _build(made, options, screen)
        # What was fixed and is the same build as another now has no failure any more.
        current = {step.variant.package for step in made.steps if step.action == "up to date"}
        outcomes = {package: o for package, o in outcomes.items() if package not in current}
        outcomes |= {outcome.variant.package: outcome for outcome in ended}
        unpushed = engine.pushes.failed
        if not (options.fix_hashes and engine.fixable and not engine.ended_by):
            break
        if not _fix(engine.fixable, screen):
            break
    return _finish(made, outcomes, unpushed, options, screen, engine.ended_by)


def _reason_against(made: Plan) -> BuildPytorchError | None:
    """Why nothing of a plan can be begun, or None."""
    if made.obstacles:
        return BuildPytorchError(
            f"nothing was begun: {counted(len(made.obstacles), 'obstacle')}:\n"
            + "\n".join(f"  {obstacle}" for obstacle in made.obstacles)
        )
    if all(step.action == "skipped" for step in made.steps):
        return NothingToBuildError(f"nothing to build: {made.steps[0].reason}")
    return None


def _build(made: Plan, options: BuildOptions, screen: Screen) -> tuple[Engine, list[BuildOutcome]]:
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
    from build_pytorch.cli import prefetch

    before = paths.MATRIX.read_bytes()
    for log in logs:
        try:
            with _stdout_to(screen):
                prefetch.run(PrefetchOptions(from_log=log))
        except BuildPytorchError as error:
            screen.line(f"--fix-hashes: {error}")
    return paths.MATRIX.read_bytes() != before


def _stdout_to(screen: Screen) -> Any:  # noqa: ANN401 - contextlib's own type is private
    from contextlib import redirect_stdout

    return redirect_stdout(screen.stream)


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
    outcomes: dict[str, BuildOutcome],
    unpushed: dict[str, str],
    options: BuildOptions,
    screen: Screen,
    ended_by: int,
) -> int:
    """Print the table, and give the number of failures."""
    failed = {package for package, o in outcomes.items() if o.state != "built"}
    code = min(len(failed | unpushed.keys()), _MOST_FAILURES)
    if len(outcomes) > 1:
        screen.line()
        for outcome in outcomes.values():
            colour = _COLOURS.get(outcome.state, "red")
            state = screen.paint(f"{outcome.state:<11}", colour)
            cause = outcome.rule.id if outcome.rule else ""
            what = outcome.log or outcome.message
            screen.line(
                f"  {state}  {outcome.variant.id:<18}  {clock(outcome.seconds):>8}  "
                f"{cause:<20}  {what}".rstrip()
            )
    states = Counter(step.action for step in made.steps if step.variant.package not in outcomes)
    rest = [f"{number} {state}" for state, number in states.items() if state != "build"]
    parts = [f"{len(outcomes) - len(failed)} built, {len(failed)} not", *rest]
    if unpushed:
        parts.append(f"{len(unpushed)} not pushed")
    screen.line("; ".join(parts))
    if options.json:
        print_json(_document(made, outcomes, 128 + ended_by if ended_by else code), sys.stdout)
    if ended_by:
        signal.raise_signal(ended_by)
    return code


def _document(made: Plan, outcomes: dict[str, BuildOutcome], code: int) -> dict[str, Any]:
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
        "exit_code": code,
    }


def _outcome(outcome: BuildOutcome | None) -> dict[str, Any]:
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
