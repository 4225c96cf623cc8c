"""Why packages failed, in words, and failures with one cause together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from build_pytorch.base.console import shortened
from build_pytorch.build.log_rules import RULES
from build_pytorch.results.ledger import HOST, AnyEvent, Ended
from build_pytorch.results.package_state import PackageState

_RULES: Final = {rule.id: rule for rule in RULES}
_PLACE: Final = re.compile(r"^\S+?(?:[:(]\d+[):,\d]*)*: (?=(?:fatal |catastrophic )?error\b)")
"""The file and the place in it with which a compiler begins an error."""
_LONGEST: Final = 200  #: characters of a reason


class Failure(Struct, frozen=True, kw_only=True):
    """Why one package has the state `failed`. Failures with one cause and reason are alike."""

    cause: str  #: id of the log rule; `smoke test` or `inspection`; empty: no rule names it
    reason: str  #: what went wrong: the meaning of the rule, else the error in the log
    at: str  #: when, in UTC
    machine: str  #: where; empty if unknown


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Packages that failed for one cause, the latest failure first."""

    cause: str
    reason: str
    at: str  #: of the latest
    machines: tuple[str, ...]
    packages: tuple[str, ...]  #: ids


def machine_of(event: AnyEvent) -> str:
    """Return the remote builder of a build, else the machine that wrote the event."""
    return (event.where if isinstance(event, Ended) else "") or event.host


def place(machine: str) -> str:
    """Return a machine in a sentence: `here` for this one."""
    return f"on {machine}" if machine not in {"", HOST} else "here"


def failure_of(state: PackageState) -> Failure | None:
    """Return why a build, or a test of its result, failed last; None if neither did."""
    test = state.smoke_test if state.failure == "smoke test" else state.inspection
    if state.failure == "build" and (last := state.last):
        rule = _RULES.get(last.cause)
        said = _PLACE.sub("", last.message) or "no log rule names it"
        reason = shortened(rule.meaning if rule else said, _LONGEST)
        return Failure(cause=last.cause, reason=reason, at=last.at, machine=machine_of(last))
    if state.failure in {"smoke test", "inspection"} and test:
        reason = shortened(test.reason or "see its report", _LONGEST)
        cause = str(state.failure)
        return Failure(cause=cause, reason=reason, at=test.at, machine=machine_of(test))
    return None


def failure_groups(states: Iterable[PackageState]) -> tuple[FailureGroup, ...]:
    """Return the failures by cause, the cause of most packages first."""
    alike: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for state in states:
        if failure := failure_of(state):
            alike.setdefault((failure.cause, failure.reason), []).append(
                (failure.at, failure.machine, state.package.id)
            )
    groups = []
    for (cause, reason), failures in alike.items():
        ordered = sorted(failures, key=lambda each: each[0], reverse=True)
        groups.append(
            FailureGroup(
                cause=cause,
                reason=reason,
                at=ordered[0][0],
                machines=tuple(dict.fromkeys(machine for _, machine, _ in ordered)),
                packages=tuple(id_ for _, _, id_ in ordered),
            )
        )
    return tuple(sorted(groups, key=lambda group: -len(group.packages)))
