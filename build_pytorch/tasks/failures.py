"""Why packages failed, in words, and failures of one cause together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from build_pytorch.base.console import grouped, shortened
from build_pytorch.results.ledger import HOST, Event
from build_pytorch.results.package_state import TEST_NAMES, PackageState

_PLACE: Final = re.compile(r"^\S+?(?:[:(]\d+[):,\d]*)*: (?=(?:fatal |catastrophic )?error\b)")
"""The file and the place in it with which a compiler begins an error."""
_UNNAMED: Final = "no log rule names the failure"
_LONGEST: Final = 200  #: characters of a reason


class Failure(Struct, frozen=True, kw_only=True):
    """Why packages have the state `failed`: one, or all that failed for one cause."""

    cause: str  #: id of the log rule; `smoke test`, `inspection`; empty: no rule names it
    reason: str  #: what went wrong: the meaning of the rule, else the error in the log
    at: str  #: when the latest failed, in UTC
    machines: tuple[str, ...]  #: where
    packages: tuple[str, ...]  #: ids, the latest first


def machine_of(event: Event) -> str:
    """Return the remote builder of a build, else the machine that wrote the event."""
    return event.where or event.host


def place(machine: str) -> str:
    """Return a machine in a sentence: `here` for this one."""
    return f"on {machine}" if machine not in {"", HOST} else "here"


def failure_of(state: PackageState) -> Failure | None:
    """Return why a build, or a test of its result, failed last; None if neither did."""
    if not (event := state.failure):
        return None
    from build_pytorch.build.log_rules import RULES_BY_ID  # 20 ms, for failures only

    if event.event == "ended":
        rule = RULES_BY_ID.get(event.cause)
        cause = event.cause
        said = _PLACE.sub("", event.message)
        if not said or said.startswith("exit code "):
            said = f"{said}, and {_UNNAMED}" if said else _UNNAMED
        reason = rule.meaning if rule else said
    else:
        cause, reason = TEST_NAMES[event.by or "smoke"], event.reason or "see its report"
    return Failure(
        cause=cause,
        reason=shortened(reason, _LONGEST),
        at=event.at,
        machines=(machine_of(event),),
        packages=(state.package.id,),
    )


def failures_by_cause(states: Iterable[PackageState]) -> tuple[Failure, ...]:
    """Return the failures with one cause and reason together, those of most packages first."""
    found = filter(None, map(failure_of, states))
    newest = sorted(found, key=lambda failure: failure.at, reverse=True)
    alike = grouped(((failure.cause, failure.reason), failure) for failure in newest)
    groups = (
        replace(
            several[0],
            machines=tuple(dict.fromkeys(each.machines[0] for each in several)),
            packages=tuple(each.packages[0] for each in several),
        )
        for several in alike.values()
    )
    return tuple(sorted(groups, key=lambda group: len(group.packages), reverse=True))
