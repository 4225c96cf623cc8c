"""Publishing variants with `flox publish`: the decision for each, and the run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base import paths
from build_pytorch.base.console import ProgressLine
from build_pytorch.base.errors import WriteError
from build_pytorch.base.process_stream import StreamedProcess
from build_pytorch.results import ledger
from build_pytorch.results.evidence import VariantResult
from build_pytorch.results.ledger import Ledger, Published

_TAIL: Final = 10
"""Lines of the output that are shown of a failure."""


class Publication(Struct, frozen=True, kw_only=True):
    """What becomes of one variant, and why."""

    variant: str
    package: str
    action: Literal["publish", "published", "already", "refused", "failed"]
    reason: str
    output: str = ""


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
    return Publication(
        variant=variant.id,
        package=variant.package,
        action=action,
        reason=reason,
        output=result.output,
    )


def carry_out(
    row: Publication,
    result: VariantResult,
    root: Path,
    organization: str,
    say: Callable[[str], None],
) -> Publication:
    """Publish a variant if that was decided, and record it. Raises WriteError."""
    if row.action != "publish":
        return row
    argv = ["flox", "publish", *(["-o", organization] if organization else []), row.package]
    say(f"$ {' '.join(argv)}")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    place = Path(paths.STATE, ledger.LOGS, row.package, f"{stamp}-publish.log")
    code, tail = asyncio.run(_logged(argv, root, root / place))
    if code:
        for line in tail:
            say(f"    {line}")
        say(f"{row.variant}: flox publish failed with exit code {code}; whole log: {place}")
        return msgspec.structs.replace(row, action="failed", reason=f"exit code {code}; {place}")
    Ledger(root).append(
        Published(
            at=ledger.now(),
            release=result.variant.release_name,
            variant=row.variant,
            digest=result.digest,
            organization=organization,
            output=result.output,
            without_evidence=bool(result.missing_evidence),
        )
    )
    say(f"{row.variant}: published")
    return msgspec.structs.replace(row, action="published")


async def _logged(argv: list[str], root: Path, log: Path) -> tuple[int, list[str]]:
    """Run a program with its output in a log. Return its exit code and last lines."""
    tail: deque[bytes] = deque(maxlen=_TAIL)
    progress = ProgressLine(f"publishing {argv[-1]}", 0)

    async def show() -> None:
        while True:
            progress.at(0)
            await asyncio.sleep(0.5)

    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb", buffering=0) as file:

            def take(lines: list[bytes]) -> None:
                tail.extend(lines)
                file.write(b"".join(line + b"\n" for line in lines))

            program = await StreamedProcess.start(argv, cwd=root)
            shown = asyncio.create_task(show())
            code = await program.run(take)
    except OSError as error:
        raise WriteError(f"{log}: cannot be written: {error.strerror}") from None
    finally:
        progress.end()
    shown.cancel()
    return code, [line.decode("utf-8", errors="replace") for line in tail]
