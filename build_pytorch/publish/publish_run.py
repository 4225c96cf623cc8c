"""Publishing with Flox: preconditions first, then one package after the other, remembered."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import paths, process
from build_pytorch.base.console import ProgressLine, Screen, print_json
from build_pytorch.base.errors import (
    EXIT_BAD_INPUT,
    EXIT_FINDINGS,
    EXIT_OK,
    BuildPytorchError,
    ToolError,
    WriteError,
)
from build_pytorch.build.lock import only_run
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.selection import select
from build_pytorch.results import evidence, ledger
from build_pytorch.results.evidence import VariantResult
from build_pytorch.results.ledger import Ledger, Published

_TAIL: Final = 10

_ORGANIZATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class PublishOptions(Struct, frozen=True, kw_only=True):
    """What a person may ask."""

    patterns: tuple[str, ...]
    root: Path = paths.PROJECT
    organization: str = ""
    unproved: bool = False
    dry_run: bool = False
    json: bool = False


class PublishRow(Struct, frozen=True, kw_only=True):
    """What becomes of one variant, and why."""

    variant: str
    package: str
    action: str
    """publish, published, already, refused, failed"""
    reason: str
    output: str = ""


def run(options: PublishOptions) -> int:
    """Publish variants that are built and proved. Returns the exit code.

    Raises BuildPytorchError, before anything is published, where Flox would refuse: not logged
    in, not clean, not pushed; and where no variant is named.
    """
    if not options.patterns:
        raise BuildPytorchError("name what to publish, such as sm120-avx512 or 'sm120-*'")
    if options.organization and not _ORGANIZATION.fullmatch(options.organization):
        raise BuildPytorchError(
            f'--org: found "{options.organization}"; allowed: letters, digits, - and _'
        )
    fleet = matrix_reader.load()
    variants = select(fleet, options.patterns)
    known = evidence.look(options.root, variants)
    rows = [_row(known[v.package], options) for v in variants]
    screen = Screen(sys.stderr if options.json else sys.stdout)
    _print(screen, rows)
    obstacles = list(_obstacles(options.root, variants))
    if options.dry_run:
        code = EXIT_BAD_INPUT if obstacles else _code(rows)
        _tell_dry_run(screen, rows, obstacles)
    elif obstacles:
        if options.json:
            _print_json([_refused(row, obstacles) for row in rows], obstacles, EXIT_BAD_INPUT)
        raise BuildPytorchError("nothing was published:\n" + "\n".join(f"  {o}" for o in obstacles))
    else:
        with only_run(options.root):
            known = evidence.look(options.root, variants)  # another run may have come before
            rows = [
                _carried_out(_row(known[v.package], options), known[v.package], options, screen)
                for v in variants
            ]
        code = _code(rows)
        screen.line(_total(rows))
    if options.json:
        _print_json(rows, obstacles, code)
    return code


def _code(rows: Sequence[PublishRow]) -> int:
    bad = any(row.action in {"refused", "failed"} for row in rows)
    return EXIT_FINDINGS if bad else EXIT_OK


def _total(rows: Sequence[PublishRow]) -> str:
    """What this run did: `1 published, 2 already, 1 not`."""
    actions = [row.action for row in rows]
    bad = actions.count("refused") + actions.count("failed")
    told = [f"{actions.count('published')} published"]
    if already := actions.count("already"):
        told.append(f"{already} already")
    if bad:
        told.append(f"{bad} not")
    return ", ".join(told)


def _tell_dry_run(screen: Screen, rows: Sequence[PublishRow], obstacles: Sequence[str]) -> None:
    number = sum(row.action == "publish" for row in rows)
    if not obstacles:
        screen.line(f"dry run: {number} would be published")
        return
    screen.line(screen.paint("dry run: all would be refused:", "red"))
    for obstacle in obstacles:
        screen.line(f"  {obstacle}")


def _print_json(rows: Sequence[PublishRow], obstacles: Sequence[str], code: int) -> None:
    variants = [_as_dict(row) for row in rows]
    document = {"variants": variants, "obstacles": list(obstacles), "exit_code": code}
    print_json(document, sys.stdout)


def _refused(row: PublishRow, obstacles: Sequence[str]) -> PublishRow:
    return _changed(row, "refused", obstacles[0]) if row.action == "publish" else row


def _row(result: VariantResult, options: PublishOptions) -> PublishRow:
    """What is to become of a variant."""
    variant = result.variant
    action, reason = "publish", "built and proved"
    if result.unknown:
        action = "refused"
        reason = f"nothing tells which recipe it was built from; `invoke build {variant.id}`"
    elif not result.output:
        action, reason = "refused", f"not built for this recipe; `invoke build {variant.id}`"
    elif options.organization in result.organizations:
        action, reason = "already", f"published to {options.organization or 'yourself'}"
    elif result.failed_test:
        action = "refused"
        reason = f"{result.failed_test}; fix that, `invoke build {variant.id}` and test again"
    elif (missing := result.missing_evidence) and not options.unproved:
        action = "refused"
        reason = f"{missing}; `invoke smoke {variant.id}` on its hardware or `invoke prove`"
    elif missing:
        reason = f"unproved: {missing}"
    return PublishRow(
        variant=variant.id,
        package=variant.package,
        action=action,
        reason=reason,
        output=result.output,
    )


def _obstacles(root: Path, variants: Sequence[Variant]) -> Iterator[str]:
    """What `flox publish` would refuse, each with what to do."""
    if not process.which("flox"):
        yield "flox is not installed; see https://flox.dev"
    elif process.capture(["flox", "auth", "status"], check=False).code:
        yield "not logged in at FloxHub: flox auth login"
    top = _git(root, "rev-parse", "--show-toplevel")
    if top.code:
        yield f"{root}: not a Git checkout, and Flox publishes only what Git has"
        return
    wanted = [v.path for v in variants]
    tracked = set(_git(root, "ls-files", "--", *wanted).stdout.splitlines())
    if missing := [path for path in wanted if path not in tracked]:
        yield f"not tracked by Git: git add {missing[0]}" + _more(missing)
    changed = [line[3:] for line in _git(root, "status", "--porcelain").stdout.splitlines()]
    if changed:
        yield f"uncommitted changes: {changed[0]}{_more(changed)}; commit or stash them"
    if not _git(root, "remote").stdout.strip():
        yield "the checkout has no remote: git remote add origin URL, git push -u origin HEAD"
    elif not _git(root, "branch", "-r", "--contains", "HEAD").stdout.strip():
        yield "this commit is on no remote branch: git push"


def _carried_out(
    row: PublishRow, result: VariantResult, options: PublishOptions, screen: Screen
) -> PublishRow:
    """Publish one variant, if it is to be, and remember it."""
    if row.action != "publish":
        return row
    variant = result.variant
    org = ["-o", options.organization] if options.organization else []
    argv = ["flox", "publish", *org, row.package]
    screen.line(f"$ {' '.join(argv)}")
    log = _log(options.root, row.package)
    code, tail = _streamed(argv, options.root, log)
    place = log.relative_to(options.root)
    if code:
        for line in tail:
            screen.line(f"    {line}")
        screen.line(f"{row.variant}: flox publish failed with exit code {code}; whole log: {place}")
        return _changed(row, "failed", f"exit code {code}; {place}")
    Ledger(options.root).append(
        Published(
            at=ledger.now(),
            release=variant.release_name,
            variant=variant.id,
            digest=result.digest,
            organization=options.organization,
            output=result.output,
            without_evidence=bool(result.missing_evidence),
        )
    )
    screen.line(f"{row.variant}: published")
    return _changed(row, "published", row.reason)


def _streamed(argv: Sequence[str], root: Path, log: Path) -> tuple[int, list[str]]:
    """Run a program with its output in a log; its exit code and last lines."""
    progress = ProgressLine(f"publishing {argv[-1]}", 0)
    running = process.stream(argv, cwd=root)
    last = b""
    try:
        with log.open("wb") as file:
            while True:
                code = running.poll()
                data = running.read() or b""
                file.write(data)
                last = (last + data)[-4096:]
                if code is not None and not data:
                    break
                progress.at(0)
                if not data:
                    time.sleep(0.2)
    except OSError as error:
        raise WriteError(f"{log}: cannot be written: {error.strerror}") from None
    finally:
        if running.poll() is None:
            running.kill()
        running.finish()
        progress.end()
    return code, last.decode("utf-8", errors="replace").splitlines()[-_TAIL:]


def _log(root: Path, package: str) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    path = root / paths.STATE / ledger.LOGS / package / f"{stamp}-publish.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{path.parent}: cannot be written: {error.strerror}") from None
    return path


def _git(root: Path, *argv: str) -> process.ProcessResult:
    try:
        return process.capture(["git", "-C", str(root), *argv], check=False)
    except ToolError as error:
        raise BuildPytorchError(f"{error}; Flox publishes only what Git has") from None


def _print(screen: Screen, rows: Sequence[PublishRow]) -> None:
    colours = {"publish": "green", "refused": "red"}
    width = max(len(row.variant) for row in rows)
    for row in rows:
        action = screen.paint(f"{row.action:<9}", colours.get(row.action, "dim"))
        screen.line(f"  {action}  {row.variant:<{width}}  {row.reason}")


def _changed(row: PublishRow, action: str, reason: str) -> PublishRow:
    return PublishRow(
        variant=row.variant, package=row.package, action=action, reason=reason, output=row.output
    )


def _as_dict(row: PublishRow) -> dict[str, str]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
