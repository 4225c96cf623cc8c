"""Publishing variants with `flox publish`: preconditions, the decision for each, and the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.base import files, git, paths, process
from build_pytorch.base.console import ProgressLine
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.process_stream import run_tail
from build_pytorch.build.build_obstacles import some
from build_pytorch.matrix.model import Variant
from build_pytorch.results import ledger
from build_pytorch.results.evidence import VariantResult

_TAIL: Final = 10  #: lines of the output that are shown of a failure


class Publication(Struct, frozen=True, kw_only=True):
    """What becomes of one variant, and why."""

    variant: str
    package: str
    action: Literal["publish", "published", "already", "refused", "failed"]
    reason: str
    output: str = ""


def unmet_preconditions(root: Path, variants: Sequence[Variant]) -> Iterator[str]:
    """Yield why `flox publish` would refuse, each with what to do.

    Raises BuildPytorchError where Git is not installed.
    """
    if not process.which("flox"):
        yield "flox is not installed; see https://flox.dev"
    elif process.capture(["flox", "auth", "status"], check=False).code:
        yield "not logged in at FloxHub: flox auth login"
    if git.top(root) is None or _git(root, "rev-parse", "--git-dir").code:
        yield f"{root}: not a Git checkout; Flox publishes only what Git has"
        return
    wanted = [variant.path for variant in variants]
    tracked = set(_git(root, "ls-files", "--", *wanted).stdout.splitlines())
    if missing := [path for path in wanted if path not in tracked]:
        yield f"not tracked by Git: git add {some(missing)}"
    if changed := git.uncommitted(root):
        yield f"uncommitted changes: {some(changed)}; commit or stash them"
    if not _git(root, "remote").stdout.strip():
        yield "the checkout has no remote: git remote add origin URL, git push -u origin HEAD"
    elif not _git(root, "branch", "-r", "--contains", "HEAD").stdout.strip():
        yield "this commit is on no remote branch: git push"


def _git(root: Path, *argv: str) -> process.ProcessResult:
    try:
        return git.run(root, *argv)
    except ToolError as error:
        raise BuildPytorchError(f"{error}; Flox publishes only what Git has") from None


def decide(result: VariantResult, organization: str, *, without_evidence: bool) -> Publication:
    """Decide what becomes of a variant. `without_evidence` allows results without a passed test."""
    variant, missing = result.variant, result.missing_evidence
    action: Literal["publish", "already", "refused"] = "refused"
    if result.unknown:
        reason = f"no record of the recipe it was built from; `invoke build {variant.id}`"
    elif not result.output:
        reason = f"not built for this recipe; `invoke build {variant.id}`"
    elif organization in result.organizations:
        action, reason = "already", f"published to {organization or 'yourself'}"
    elif result.failed_test:
        reason = f"{result.failed_test}; fix that, `invoke build {variant.id}` and test again"
    elif missing and not without_evidence:
        reason = f"{missing}; `invoke smoke {variant.id}` on its hardware or `invoke inspect`"
    else:
        action = "publish"
        reason = f"without evidence: {missing}" if missing else "built, with evidence"
    names = {"variant": variant.id, "package": variant.package}
    return Publication(**names, action=action, reason=reason, output=result.output)


def carry_out(
    decided: Publication,
    result: VariantResult,
    root: Path,
    organization: str,
    say: Callable[[str], None],
) -> Publication:
    """Publish a variant if that was decided, and record it. Raises WriteError."""
    if decided.action != "publish":
        return decided
    variant, package = decided.variant, decided.package
    argv = ["flox", "publish", *(["-o", organization] if organization else []), package]
    say(f"$ {' '.join(argv)}")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    log = Path(paths.STATE, ledger.LOGS, package, f"{stamp}-publish.log")
    code, tail = asyncio.run(_logged(argv, root, log))
    if code:
        for line in tail:
            say(f"    {line}")
        say(f"{variant}: flox publish failed with exit code {code}; whole log: {log}")
        return replace(decided, action="failed", reason=f"exit code {code}; {log}")
    event = ledger.Published(
        at=ledger.now(),
        release=result.variant.release_name,
        variant=variant,
        digest=result.digest,
        organization=organization,
        output=result.output,
        without_evidence=bool(result.missing_evidence),
    )
    ledger.Ledger(root).append(event)
    say(f"{variant}: published")
    return replace(decided, action="published")


async def _logged(argv: Sequence[str], root: Path, log: Path) -> tuple[int, list[str]]:
    """Run a program with its output in a log below `root`. Return its exit code and last lines."""
    progress = ProgressLine(f"publishing {argv[-1]}", 0)
    try:
        with files.write_errors(root / log), files.create_below(root, log) as file:
            running = asyncio.create_task(run_tail(argv, _TAIL, cwd=root, log=file))
            while not running.done():
                progress.at()
                await asyncio.wait({running}, timeout=0.5)
            return running.result()
    finally:
        progress.end()
