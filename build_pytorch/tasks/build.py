"""`invoke build`: plan builds, carry them out, report the outcomes."""

from __future__ import annotations

import signal
import sys

from invoke.context import Context

from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_OK
from build_pytorch.tasks.command import command, load, number, project, words


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
    retry: bool = False,
    keep_failed: bool = False,
    force: bool = False,
    verbose: bool = False,
    json: bool = False,
) -> int:
    """Build variants with Flox or Nix."""
    from build_pytorch.build import build_report
    from build_pytorch.build.backends import BuildSettings
    from build_pytorch.build.build_plan import make_plan
    from build_pytorch.build.build_run import carry_out
    from build_pytorch.results.package_state import Mark, chosen_packages

    settings = BuildSettings(
        root=project(),
        backend=backend,
        jobs=number("--jobs", jobs, 1, 1024),
        cores=number("--cores", cores, 0, 4096),
        builders=builders,
        dry_run=dry_run,
        keep_failed=keep_failed,
        retry=retry,
        force=force,
    )
    screen, matrix = Screen(sys.stderr if json else sys.stdout), load()
    plan = make_plan(matrix, chosen_packages(matrix, packages, words(with_)), settings)
    build_report.show_plan(screen, plan, verbose=verbose)
    if (refusal := build_report.refusal(plan)) or dry_run:
        if json:
            code = EXIT_BAD_INPUT if refusal else EXIT_OK
            print_json(build_report.document(plan, {}, code), sys.stdout)
        if refusal:
            raise refusal
        return EXIT_OK
    run = carry_out(plan, screen)
    is_bad = any(outcome.state is not Mark.BUILT for outcome in run.outcomes.values())
    is_bad = is_bad or any(step.action == "failed" for step in plan.steps)
    code = 128 + run.ended_by if run.ended_by else EXIT_FINDINGS if is_bad else EXIT_OK
    build_report.show_outcomes(screen, plan, run.outcomes)
    if json:
        print_json(build_report.document(plan, run.outcomes, code), sys.stdout)
    if run.ended_by:
        signal.raise_signal(run.ended_by)
    return code
