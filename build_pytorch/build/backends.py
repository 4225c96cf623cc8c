"""How Flox and Nix are asked to build, and how what they built is recognised."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from build_pytorch.build.jobs import Attempt
from build_pytorch.build.plan import Plan
from build_pytorch.build.step import Step
from build_pytorch.nix import store
from build_pytorch.results import artefacts

_CLOCKS: Final = 0.1
"""Seconds by which the clock of files may be behind ours."""


def command(
    plan: Plan, root: Path, steps: Sequence[Step], cores: int
) -> tuple[list[str], dict[str, str | None]]:
    """The program with its arguments, as a person would type it, and what its environment gets."""
    first = steps[0].variant
    if plan.builders is not None:
        drvs = [step.derivation.drv_path for step in steps if step.derivation]
        option = plan.builders.option
        return store.realise_argv(drvs, jobs=plan.jobs, cores=cores, builders=option), {}
    if plan.backend == "nix":
        link = artefacts.link(root, first)
        return store.build_argv(first.path, link.name, cores), {}
    # Flox has no option for it; the Nix inside reads this.
    config = os.environ.get("NIX_CONFIG", "")
    return ["flox", "build", first.package], {"NIX_CONFIG": f"{config}\ncores = {cores}"}


def outputs(plan: Plan, root: Path, attempt: Attempt, code: int) -> tuple[str, ...]:
    """The store paths of a finished build, linked; none where it is not finished.

    `code` is the exit code of the program. Raises ToolError where the store cannot be asked.
    """
    step = attempt.step
    link = artefacts.link(root, step.variant)
    if plan.builders is not None:
        if not (step.derivation and store.valid_paths([step.derivation.output])):
            return ()
        store.add_root(step.derivation.output, link)
    elif code:
        return ()
    target = artefacts.target(link)
    is_ours = step.derivation is not None and target in step.derivation.outputs.values()
    # Flox may wrap the derivation, and where Nix cannot be asked there is none to compare with;
    # but a link that was not made now is of another build.
    if not is_ours and (plan.backend == "flox" or step.derivation is None):
        is_ours = link.is_symlink() and link.lstat().st_ctime >= attempt.began - _CLOCKS
    return (target,) if is_ours and store.valid_paths([target]) else ()
