"""What a log file says: the same rules and the same reader as those of a running build."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from build_pytorch.base.console import shortened
from build_pytorch.build.build_progress import BuildProgress
from build_pytorch.build.log_reader import LogFileReader, Sign
from build_pytorch.build.log_rules import LogRule
from build_pytorch.matrix.model import Variant

_LONGEST: Final = 500  #: characters of a line that are shown
_MOST_LINES: Final = 5  #: lines shown that match the rule of a failure


class LogFinding(Struct, frozen=True):
    """A log rule with the lines that match it: their numbers, from 1, and texts."""

    rule: LogRule
    lines: tuple[tuple[int, str], ...]


class LogDiagnosis(Struct, frozen=True, kw_only=True):
    """What a log says."""

    variant: Variant | None
    lines: int
    phase: str
    progress: tuple[int, int] | None  #: done and all steps of ninja
    stop: LogFinding | None  #: the rule that stops builds, with the first line that matches
    failure: LogFinding | None  #: the rule that names the failure: that of `stop`, if it is set
    tail: tuple[str, ...]


def diagnose(
    lines: Iterable[bytes], variant: Variant | None, matrix: Iterable[Variant] = ()
) -> LogDiagnosis:
    """Read a log. Never raises for what the log says.

    Lines of the builds of other variants in `matrix` are left out. Without a variant, rules that
    depend on it do not match.
    """
    package = variant.package if variant else ""
    siblings = [v.package for v in matrix if v.package != package] if variant else []
    reader = LogFileReader(package, siblings)
    progress = BuildProgress(variant)
    stop: LogFinding | None = None
    matches: dict[str, list[tuple[int, str]]] = {}
    number, started = 0, Sign.NONE
    for number, raw in enumerate(lines, 1):
        for line in reader.read(raw):
            if reader.started > started:
                # What came before is not of this build: an environment, an attempt, another log.
                started, stop = reader.started, None
                progress = progress.begun_again()
                matches.clear()
            rule = progress.see(line, float(number), own=line.derivation == package)
            if found := progress.latest:
                several = matches.setdefault(found.rule.id, [])
                several.append((number, shortened(found.text, _LONGEST)))
                del several[:-_MOST_LINES]
            if rule and not stop:
                stop = LogFinding(rule, tuple(matches[rule.id]))
    cause = None if stop else progress.cause()
    failure = LogFinding(cause.rule, tuple(matches[cause.rule.id])) if cause else stop
    return LogDiagnosis(
        variant=variant,
        lines=number,
        phase=progress.phase,
        progress=(progress.done, progress.total) if progress.total else None,
        stop=stop,
        failure=failure,
        tail=tuple(shortened(line, _LONGEST) for line in progress.tail),
    )


def named_variant(variants: Iterable[Variant], head: Iterable[bytes]) -> Variant | None:
    """Return the variant that the first lines of a log name, if they name exactly one.

    Variants of several releases may have one name; then another name has to tell them apart.
    """
    by_name: dict[str, dict[str, Variant]] = {}
    for variant in variants:
        for name in (variant.package, variant.pname):
            by_name.setdefault(name, {})[variant.path] = variant
    names = "|".join(map(re.escape, sorted(by_name, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w.])(?:{names})(?![A-Za-z0-9_])".encode())
    signs = tuple({name.split("-")[0].encode() for name in by_name})
    found = {
        match[0].decode()
        for line in head
        if any(sign in line for sign in signs)
        for match in pattern.finditer(line)
    }
    first, *others = [by_name[name] for name in found] or [{}]
    common = [v for path, v in first.items() if all(path in other for other in others)]
    return common[0] if len(common) == 1 else None
