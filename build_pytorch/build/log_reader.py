"""What the output of a build shows while it arrives: progress, and the log rules that it matches.

Only the last lines are held in memory; the log itself is a file.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Final

from build_pytorch.build.log_rules import HASH_MISMATCH, RULES, LogRule, first_match
from build_pytorch.matrix.model import Variant
from build_pytorch.nix.log_format import LogLine, hash_mismatches, plain_text

TAIL: Final = 30  #: lines shown of a failure that no rule names
RECENT: Final = 200  #: a match names the failure only within so many lines of the end of the log
_LONGEST: Final = 1 << 16
"""Characters of a line that are examined; some compile commands are longer."""

_NIXS_OWN: Final = 1 << 62
"""The line number of Nix's own errors: they count as recent whatever follows."""

_NINJA: Final = re.compile(r"^\[(\d+)/(\d+)\]")
_PHASE: Final = re.compile(
    r"(?:Running phase: (?P<name>\w+?)(?:Phase)?|(?P<unpack>unpacking sources)"
    r"|(?P<patch>patching sources)|(?P<configure>configuring)|(?P<build>building)"
    r"|(?P<install>installing))$"
)
_BUILDING: Final = re.compile(r"^building '/\S+/[a-z0-9]{32}-(\S+)\.drv'")
_PREFIX: Final = re.compile(r"^([\w.+-]+)> ")


class PlainReader:
    """Reads output without structure; a line may have its derivation's name as a prefix."""

    def __init__(self, package: str) -> None:
        self.package = package
        self._suffix = package.split("-", 1)[-1]
        self._current = package  #: the owner of lines without a prefix: what began last

    def read(self, line: bytes) -> Iterator[LogLine]:
        """Return the line with its owner: `package` for the variant's own build."""
        text = plain_text(line.decode("utf-8", errors="replace"))
        if built := _BUILDING.match(text):
            self._current = self._owner(built[1])
            yield LogLine("", text)
        elif prefix := _PREFIX.match(text):
            self._current = ""  # this program writes prefixes: a line without one is its own
            yield LogLine(self._owner(prefix[1]), text[prefix.end() :])
        else:
            yield LogLine(self._current, text)

    def _owner(self, name: str) -> str:
        return self.package if self._suffix in name else name


def named(line: LogLine) -> LogLine:
    """Return the line of a dependency as the log of a variant shows it: with its name."""
    name = re.sub(r"^.*/[a-z0-9]{32}-|\.drv$", "", line.derivation)
    text = f"{name}> {line.text}" if line.text else f"building {name}" * line.began
    return LogLine(line.derivation, text)


class BuildProgress:
    """How far the build of one variant is, and which log rules its log matched so far."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.phase = ""
        self.done = 0
        self.total = 0  #: steps of ninja
        self.first_step = 0.0  #: when ninja's first step was seen, on the caller's clock
        self.began = 0.0  #: when the variant's own build began, on the caller's clock
        self.where = ""
        self.message = ""
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.found: dict[str, tuple[LogRule, str]] = {}
        self.lines = 0
        self._at: dict[str, int] = {}
        self._mismatches: list[str] = []
        self._after_mismatch = 0

    def see(self, line: LogLine, now: float, *, own: bool) -> LogRule | None:
        """Take in a line. Return the rule for which the build has to be stopped, or None.

        `own`: the variant's own build wrote it, not a dependency or Nix.
        """
        if own:
            if line.began:
                self.where, self.began, self.phase = line.where, now, "starting"
            if line.phase:
                self.phase = line.phase.removesuffix("Phase")
        text = line.text[:_LONGEST]
        if not text.strip():
            return None
        if not own and not self.phase and text.startswith("building "):
            self.phase = "dependencies"
        self.tail.append(text)
        self.lines += 1
        self.message = text.strip()
        if own:
            self._follow(text, now)
        self._keep_mismatch(text)
        return self._match(line, text, own=own)

    def _match(self, line: LogLine, text: str, *, own: bool) -> LogRule | None:
        rule = first_match(text if own else _PREFIX.sub("", text), self.variant)
        if rule is None or (rule.stops and not own):
            return None
        if rule.stops:
            self.found.setdefault(rule.id, (rule, text.strip()))
            return rule
        # Once compiling has begun, a failed download is a message of the code or its tests.
        if rule.retry == "later" and own and self.done:
            return None
        self.found[rule.id] = (rule, text.strip())
        is_nixs_own = not line.derivation and text.startswith("error")
        self._at[rule.id] = _NIXS_OWN if is_nixs_own else self.lines
        return None

    def _follow(self, text: str, now: float) -> None:
        if step := _NINJA.match(text):
            self.done, self.total = int(step[1]), int(step[2])
            self.first_step = self.first_step or now
            self.phase = "build"
        elif phase := _PHASE.match(text):
            self.phase = phase["name"] or phase.lastgroup or ""

    def _keep_mismatch(self, text: str) -> None:
        """Keep the few lines with which Nix reports the two hashes."""
        if "hash" in text and ("mismatch" in text or "wrong" in text or "expected" in text):
            self._after_mismatch = 4
        if self._after_mismatch and len(self._mismatches) < 4 * TAIL:
            self._after_mismatch -= 1
            self._mismatches.append(text)

    @property
    def mismatch(self) -> str:
        """The lines that report a wrong hash."""
        return "\n".join(self._mismatches)

    def cause(self) -> tuple[LogRule, str] | None:
        """Return the rule that names the failure, with the line it matched, or None."""
        for rule in RULES:
            is_recent = self.lines - self._at.get(rule.id, -RECENT) < RECENT
            is_sure = rule.id != HASH_MISMATCH or hash_mismatches(self.mismatch)
            if rule.id in self.found and (rule.stops or (is_recent and is_sure)):
                return self.found[rule.id]
        return None
