"""Publishing with `flox publish`: the evidence gate, and the run.

Flox itself refuses a checkout that is not clean, tracked and pushed, and a user who is not logged
in: what it prints is shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.inspect.target import check_torch
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.tables import CUDA_PACKAGES_VARIABLE, environment_of
from build_pytorch.nix import store
from build_pytorch.results import ledger
from build_pytorch.results.package_state import Mark, PackageState, package_states


class Publishing(Struct, frozen=True, kw_only=True):
    """How to publish. Without `system` Flox writes the platform of this machine into a package."""

    organization: str = ""  #: empty: the user's own account
    system: str = ""
    without_evidence: bool = False
    dry_run: bool = False  #: only decide


class Publication(Struct, frozen=True, kw_only=True):
    """What becomes of one package, and why."""

    variant: str  #: id of the package
    action: Literal["publish", "published", "already", "refused", "failed"]
    reason: str


def decide(
    state: PackageState, how: Publishing, sent: Collection[str], closure: Sequence[str] = ()
) -> Publication:
    """Decide what becomes of a package.

    `sent`: ids of variants that are in the catalog by then. `closure`: store paths of a companion.
    """
    package, missing = state.package, state.missing_evidence
    variant, build = package.variant, f"`invoke build {package.id}`"
    names = [Path(path).name.partition("-")[2] for path in closure]
    wrong = None if package is variant else next(check_torch(variant, names), None)
    action: Literal["publish", "already", "refused"] = "refused"
    if state.built is Mark.UNKNOWN:
        reason = f"no record of the recipe it was built from; {build}"
    elif not state.output:
        reason = f"not built for this recipe; {build}"
    elif checkout := store.local_checkout(variant):
        fix = f"unset {CUDA_PACKAGES_VARIABLE} and {build}"
        reason = f"its CUDA packages come from {checkout}, which nobody else has; {fix}"
    elif package.platform not in {store.this_system(), how.system}:
        here = f"is for {package.platform}, and Flox here publishes for {store.this_system()}"
        reason = f"{here}; publish it there, or with --system {package.platform}"
    elif wrong:
        reason = f"its closure has {wrong.found}, and not {wrong.expected}; {build}"
    elif how.organization in state.organizations:
        action, reason = "already", f"published to {how.organization or 'yourself'}"
    elif state.failure or (missing and not how.without_evidence):
        reason = f"{missing}; `invoke smoke {package.id}` on its hardware or `invoke inspect`"
    elif package is not variant and variant.id not in sent:
        both = f"`invoke publish {variant.id},{package.id}`"
        reason = f"its PyTorch is not published, and its closure has it: {both}"
    else:
        action, reason = "publish", f"without evidence: {missing}" if missing else "tested"
    return Publication(variant=package.id, action=action, reason=reason)


def publish(
    root: Path, packages: Sequence[Package], how: Publishing, say: Callable[[str], None]
) -> list[Publication]:
    """Publish one package after the other and record it. `say` prints what Flox prints.

    Raises ToolError without Flox, WriteError where another run builds or publishes here.
    """
    rows = []
    with contextlib.nullcontext() if how.dry_run else ledger.only_run(root):
        states = package_states(root, [*packages, *(package.variant for package in packages)])
        sent = {id_ for id_, state in states.items() if how.organization in state.organizations}
        for package in packages:
            state = states[package.id]
            is_companion = package is not package.variant and state.output
            closure = store.requisites(state.output) if is_companion else []
            row = decide(state, how, sent, closure)
            if row.action == "publish" and not how.dry_run:
                row = _run_flox(state, root, how, say)
            if row.action in {"publish", "published"}:
                sent.add(package.id)
            rows.append(row)
    return rows


def _run_flox(
    state: PackageState, root: Path, how: Publishing, say: Callable[[str], None]
) -> Publication:
    """Publish a package and record it. Raises WriteError."""
    package, folder = state.package, environment_of(state.package.folder)
    argv = ["flox", "publish"]
    argv += [] if folder == "." else ["--dir", folder]
    argv += ["-o", how.organization] if how.organization else []
    argv += [] if package.platform == store.this_system() else ["--system", package.platform]
    argv.append(package.package)
    say(f"$ {' '.join(argv)}")

    def show(lines: list[bytes]) -> None:
        for line in lines:
            say(f"    {line.decode(errors='replace')}")

    if code := process.run(argv, cwd=root, take=show).code:
        return Publication(variant=package.id, action="failed", reason=f"exit code {code}")
    event = ledger.event_of(
        package,
        "published",
        digest=state.digest,
        organization=how.organization,
        output=state.output,
        without_evidence=bool(state.missing_evidence),
    )
    ledger.append(root, event)
    return Publication(variant=package.id, action="published", reason=state.output)
