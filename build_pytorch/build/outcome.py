"""What came of one variant, and how that is told."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from build_pytorch.build.log_rules import Rule
from build_pytorch.build.progress import clock
from build_pytorch.matrix.model import Variant

State = Literal["built", "failed", "stopped", "interrupted", "not started"]


class BuildOutcome(Struct, frozen=True, kw_only=True):
    """What came of one variant of the plan."""

    variant: Variant
    state: State
    seconds: float = 0.0
    rule: Rule | None = None
    message: str = ""
    log: str = ""
    outputs: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    where: str = ""


def sentence(outcome: BuildOutcome) -> str:
    """What came of a variant, in the words of the one line that people come back to."""
    name = outcome.variant.id
    took = clock(outcome.seconds)
    if outcome.state == "built":
        at = f" on {outcome.where}" if outcome.where else ""
        return f"{name}: built in {took}{at}: {', '.join(outcome.outputs)}"
    if outcome.state in {"not started", "interrupted"}:
        return f"{name}: {outcome.state}: {outcome.message}"
    rule = outcome.rule
    if rule is None:
        return "\n".join(
            [
                f"{name}: failed after {took} for a reason that no rule knows "
                f"({outcome.message}); the last lines:",
                *(f"    {line}" for line in outcome.tail),
                f"  whole log: {outcome.log}",
            ]
        )
    return (
        f"{name}: {outcome.state} after {took}: {rule.meaning} ({rule.id})\n"
        f"  log says: {outcome.message}\n"
        f"  what to do: {rule.fix.replace('LOG', outcome.log)}\n"
        f"  whole log: {outcome.log}"
    )
