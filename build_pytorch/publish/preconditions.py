"""What `flox publish` would refuse, found before anything is published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from build_pytorch.base import process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.build.build_obstacles import some
from build_pytorch.matrix.model import Variant


def unmet(root: Path, variants: Sequence[Variant]) -> Iterator[str]:
    """Yield the preconditions that are not met, each with what to do.

    Raises BuildPytorchError where Git is not installed.
    """
    if not process.which("flox"):
        yield "flox is not installed; see https://flox.dev"
    elif process.capture(["flox", "auth", "status"], check=False).code:
        yield "not logged in at FloxHub: flox auth login"
    if _git(root, "rev-parse", "--show-toplevel").code:
        yield f"{root}: not a Git checkout; Flox publishes only what Git has"
        return
    wanted = [v.path for v in variants]
    tracked = set(_git(root, "ls-files", "--", *wanted).stdout.splitlines())
    if missing := [path for path in wanted if path not in tracked]:
        yield f"not tracked by Git: git add {some(missing)}"
    if changed := [line[3:] for line in _git(root, "status", "--porcelain").stdout.splitlines()]:
        yield f"uncommitted changes: {some(changed)}; commit or stash them"
    if not _git(root, "remote").stdout.strip():
        yield "the checkout has no remote: git remote add origin URL, git push -u origin HEAD"
    elif not _git(root, "branch", "-r", "--contains", "HEAD").stdout.strip():
        yield "this commit is on no remote branch: git push"


def _git(root: Path, *argv: str) -> process.ProcessResult:
    try:
        return process.capture(["git", "-C", str(root), *argv], check=False)
    except ToolError as error:
        raise BuildPytorchError(f"{error}; Flox publishes only what Git has") from None
