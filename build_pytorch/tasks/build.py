"""`invoke build`: plan builds, carry them out, report the outcomes."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from build_pytorch.tasks.command import command, load, number, project, words

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.build.build_attempt import BuildOutcome

_MOST_ROUNDS = 10
"""A hash can be wrong once for each source, and there are a handful of them."""


@command(texts={"force": "build despite failed verification, low disk space or missing hardware"})
def build(
    c: Context,
    packages: str,
    with_: str = "",
    backend: str = "",
    jobs: str = "1",
    cores: str = "0",
    builders: str = "",
    dry_run: bool = False,
    fail_fast: bool = False,
    retry: bool = False,
    keep_failed: bool = False,
    fix_hashes: bool = False,
    force: bool = False,
    verbose: bool = False,
    json: bool = False,
) -> int:
    """Build variants with Flox or Nix."""
    from build_pytorch.base.console import Screen, print_json
    from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, NothingSelectedError
    from build_pytorch.build import build_report
    from build_pytorch.build.backends import BuildSettings
    from build_pytorch.build.build_attempt import BuildState
    from build_pytorch.build.build_plan import make_plan
    from build_pytorch.build.build_run import carry_out
    from build_pytorch.results.package_selection import chosen_packages

    settings = BuildSettings(
        root=project(),
        backend=backend,
        jobs=number("--jobs", jobs, 1, 1024),
        cores=number("--cores", cores, 0, 4096),
        builders=builders,
        dry_run=dry_run,
        fail_fast=fail_fast,
        keep_failed=keep_failed,
        fix_hashes=fix_hashes,
        retry=retry,
        force=force,
    )
    screen = Screen(sys.stderr if json else sys.stdout)
    outcomes: dict[str, BuildOutcome] = {}
    for _ in range(_MOST_ROUNDS):
        matrix = load()
        try:
            chosen = chosen_packages(matrix, packages, words(with_))
        except NothingSelectedError as nothing:
            screen.line(f"nothing to build: {nothing}")
            if json:
                print_json({"variants": [], "exit_code": EXIT_OK}, sys.stdout)
            return EXIT_OK
        plan = make_plan(matrix, chosen, settings)
        build_report.show_plan(screen, plan, verbose=verbose)
        refusal = build_report.refusal(plan)
        if refusal or dry_run:
            if json:
                code = refusal.exit_code if refusal else EXIT_OK
                print_json(build_report.document(plan, {}, code), sys.stdout)
            if refusal:
                raise refusal
            return EXIT_OK
        run = carry_out(plan, screen)
        # After a fix a variant may be the same build as another one.
        current = {step.name for step in plan.steps if step.action == "up to date"}
        outcomes = {name: found for name, found in outcomes.items() if name not in current}
        outcomes |= run.outcomes
        is_fixable = fix_hashes and run.fixable and not run.ended_by
        if not (is_fixable and _fix(c, matrix.root, run.fixable, screen)):
            break
    is_bad = any(outcome.state is not BuildState.BUILT for outcome in outcomes.values())
    is_bad = is_bad or any(step.action == "failed" for step in plan.steps)
    code = 128 + run.ended_by if run.ended_by else EXIT_FINDINGS if is_bad else EXIT_OK
    build_report.show_outcomes(screen, plan, outcomes)
    if json:
        print_json(build_report.document(plan, outcomes, code), sys.stdout)
    if run.ended_by:
        signal.raise_signal(run.ended_by)
    return code


def _fix(c: Context, root: Path, logs: Sequence[Path], screen: Screen) -> bool:
    """Write the hashes of logs into matrix.toml. Return whether that changed something."""
    from build_pytorch.base import files, paths
    from build_pytorch.tasks.prefetch import prefetch

    before = files.read_below(root, paths.MATRIX)
    for log in logs:
        with contextlib.redirect_stdout(screen.stream), contextlib.suppress(Exit):
            prefetch(c, from_log=str(log))
    return files.read_below(root, paths.MATRIX) != before
