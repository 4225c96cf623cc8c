"""Publishing with `flox publish`: the evidence gate, and the run.

Flox itself refuses a checkout that is not clean, tracked and pushed, and a user who is not logged
in: its message is shown.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import process
from build_pytorch.inspect.target import check_torch
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.tables import CUDA_PACKAGES_VARIABLE, environment_of
from build_pytorch.nix import derivations, store
from build_pytorch.results import ledger
from build_pytorch.results.package_state import Mark, PackageState, package_states

_TAIL: Final = 10  #: lines of the output that are shown of a failure


class Publishing(Struct, frozen=True, kw_only=True):
    """How to publish. Without `system` Flox writes the platform of this machine into a package."""

    organization: str = ""  #: empty: the user's own account
    system: str = ""
    without_evidence: bool = False


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
    action: Literal["publish", "already", "refused"] = "refused"
    if reason := _obstacle(state, how.system, closure):
        pass
    elif how.organization in state.organizations:
        action, reason = "already", f"published to {how.organization or 'yourself'}"
    elif state.failure or (missing and not how.without_evidence):
        reason = f"{missing}; `invoke smoke {package.id}` on its hardware or `invoke inspect`"
    elif package is not package.variant and package.variant.id not in sent:
        both = f"`invoke publish {package.variant.id},{package.id}`"
        reason = f"its PyTorch is not published, and its closure has it: {both}"
    else:
        action, reason = "publish", f"without evidence: {missing}" if missing else "tested"
    return Publication(variant=package.id, action=action, reason=reason)


def _obstacle(state: PackageState, system: str, closure: Sequence[str]) -> str:
    """Return why a result could not be published, whatever the evidence; empty if it could."""
    package, build = state.package, f"`invoke build {state.package.id}`"
    if state.built is Mark.UNKNOWN:
        return f"no record of the recipe it was built from; {build}"
    if not state.output:
        return f"not built for this recipe; {build}"
    if checkout := derivations.local_checkout(package.variant):
        fix = f"unset {CUDA_PACKAGES_VARIABLE} and {build}"
        return f"its CUDA packages come from {checkout}, which nobody else has; {fix}"
    if package.platform not in {store.this_system(), system}:
        here = f"is for {package.platform}, and Flox here publishes for {store.this_system()}"
        return f"{here}; publish it there, or with --system {package.platform}"
    names = [Path(path).name.partition("-")[2] for path in closure]
    is_companion = package is not package.variant
    for wrong in check_torch(package.variant, names) if is_companion else ():
        return f"its closure has {wrong.found}, and not {wrong.expected}; {build}"
    return ""


def publish(
    root: Path,
    packages: Sequence[Package],
    how: Publishing,
    *,
    dry_run: bool,
    say: Callable[[str], None],
) -> list[Publication]:
    """Publish one package after the other and record it; in a dry run only decide.

    `say` prints what happens. Raises ToolError without Flox, WriteError where another run builds or
    publishes here.
    """
    rows = []
    with contextlib.nullcontext() if dry_run else ledger.only_run(root):
        states = package_states(root, [*packages, *(package.variant for package in packages)])
        sent = {id_ for id_, state in states.items() if how.organization in state.organizations}
        for package in packages:
            state = states[package.id]
            is_companion = package is not package.variant and state.output
            closure = store.requisites(state.output) if is_companion else []
            row = decide(state, how, sent, closure)
            if row.action == "publish" and not dry_run:
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
    tail: deque[bytes] = deque(maxlen=_TAIL)  # what Flox prints is not kept as a whole

    def take(lines: list[bytes]) -> None:
        tail.extend(filter(bytes.strip, lines))

    code = process.run(argv, cwd=root, take=take).code
    if code:
        for line in tail:
            say(f"    {line.decode(errors='replace')}")
        say(f"{package.id}: exit code {code}")
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
    say(f"{package.id}: published")
    return Publication(variant=package.id, action="published", reason="")
