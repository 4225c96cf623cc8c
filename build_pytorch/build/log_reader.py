"""Reading a build's output as it streams: whose line it is, how far the build is, what goes wrong.

Nothing is held but the last lines; the log itself is a file.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Final

from build_pytorch.build.log_rules import HASH_MISMATCH, KNOWN, WATCHED, Rule, first_found
from build_pytorch.matrix.model import Variant
from build_pytorch.nix.log_format import LogLine, hash_mismatches, plain_text

TAIL: Final = 30
"""Lines that are shown of a failure nobody knows."""

RECENT: Final = 200
"""Lines within which a mark has to stand to name a failure: what ends a build stands at its end."""

_MOST: Final = 1 << 16
"""Characters of a line that are looked at; some compile commands have no end."""

_NINJA: Final = re.compile(r"^\[(\d+)/(\d+)\]")
_PHASE: Final = re.compile(
    r"^(?:Running phase: (\w+)|(unpacking|patching) sources|(building|configuring|installing))$"
)
_BUILDING: Final = re.compile(r"^building '/\S+/[a-z0-9]{32}-(\S+)\.drv'")
_PREFIX: Final = re.compile(r"^([\w.+-]+)> ")


class PlainReader:
    """Reads what Flox prints: lines, some with the name of their derivation before them."""

    def __init__(self, package: str) -> None:
        self.package = package
        self._suffix = package.split("-", 1)[-1]
        self._current = package
        """Whose an unnamed line is: the variant's, until something else is said to be built."""

    def read(self, line: bytes) -> Iterator[LogLine]:
        """What one line of the output says. A line without a name is taken for the variant's."""
        text = plain_text(line.decode("utf-8", errors="replace"))
        if built := _BUILDING.match(text):
            self._current = self._owner(built[1])
            yield LogLine("", text)
        elif prefix := _PREFIX.match(text):
            self._current = ""  # lines have names here, so one without is nobody's
            yield LogLine(self._owner(prefix[1]), text[prefix.end() :])
        else:
            yield LogLine(self._current, text)

    def _owner(self, name: str) -> str:
        return self.package if self._suffix in name else name


class BuildProgress:
    """How far one variant's build is, and what its log showed so far."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.phase = ""
        self.done = 0
        self.total = 0
        self.first_step = 0.0
        """When ninja's first step was seen, in seconds of the caller's clock."""
        self.where = ""
        self.message = ""
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.found: dict[str, tuple[Rule, str]] = {}
        self.lines = 0
        self.began = 0.0
        """When its own build began, in seconds of the caller's clock."""
        self._at: dict[str, int] = {}
        self._mismatches: list[str] = []
        self._after_mismatch = 0

    def see(self, line: LogLine, now: float, *, own: bool) -> Rule | None:
        """Take a line in. Returns the rule by which the build has to be stopped.

        `own`: the line is of the variant's own build, not of one that it waits for.
        """
        if own:
            if line.began:
                self.where = line.where
                self.began = now
                self.phase = "starting"
            if line.phase:
                self.phase = line.phase.removesuffix("Phase")
        text = line.text[:_MOST]
        if not text.strip():
            return None
        if not own and not self.phase and text.startswith("building "):
            self.phase = "dependencies"
        self.tail.append(text)
        self.lines += 1
        if own:
            self._follow(text, now)
        self.message = text.strip()
        self._keep_mismatch(text)
        rule = first_found(text, self.variant)
        if rule is None or (rule.stops and not own):
            return None
        if rule.stops:
            self.found.setdefault(rule.id, (rule, text.strip()))
            return rule
        # A download that the compiled code or its tests speak of is not one that Nix made.
        if rule.retry == "later" and own and self.done:
            return None
        self.found[rule.id] = (rule, text.strip())
        is_nixs_own = not line.derivation and text.startswith("error")
        self._at[rule.id] = _ALWAYS if is_nixs_own else self.lines
        return None

    def _follow(self, text: str, now: float) -> None:
        if step := _NINJA.match(text):
            self.done, self.total = int(step[1]), int(step[2])
            self.first_step = self.first_step or now
            self.phase = "build"
        elif phase := _PHASE.match(text):
            word = next(word for word in phase.groups() if word)
            self.phase = _PHASES.get(word, word.removesuffix("Phase"))

    def _keep_mismatch(self, text: str) -> None:
        """Keep the few lines in which Nix tells the two hashes."""
        if "hash" in text and ("mismatch" in text or "wrong" in text or "expected" in text):
            self._after_mismatch = 4
        if self._after_mismatch and len(self._mismatches) < 4 * TAIL:
            self._after_mismatch -= 1
            self._mismatches.append(text)

    @property
    def mismatch(self) -> str:
        """The lines about hashes that are not what they should be."""
        return "\n".join(self._mismatches)

    def cause(self) -> tuple[Rule, str] | None:
        """The failure that the log names, with its line: the surest of those it shows."""
        for rule in WATCHED:
            if rule.id in self.found:
                return self.found[rule.id]
        for rule in KNOWN:
            is_recent = self.lines - self._at.get(rule.id, -RECENT) < RECENT
            if is_recent and (rule.id != HASH_MISMATCH or hash_mismatches(self.mismatch)):
                return self.found[rule.id]
        return None


_ALWAYS: Final = 1 << 62
"""Stands for a line that Nix itself said last, however much follows."""

_PHASES: Final = {
    "unpacking": "unpack",
    "patching": "patch",
    "configuring": "configure",
    "building": "build",
    "installing": "install",
}
