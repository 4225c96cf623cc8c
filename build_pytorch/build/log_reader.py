"""What the output of a build shows while it arrives: progress, and the log rules that it matches.

Only the last lines are held in memory; the log itself is a file.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Final

from build_pytorch.build.log_matcher import LogMatcher, is_interesting
from build_pytorch.build.log_rules import HASH_MISMATCH, RULES, LogRule
from build_pytorch.matrix.model import Variant
from build_pytorch.nix.log_format import LogLine, NixLogReader, hash_mismatches, plain_text

TAIL: Final = 30  #: lines shown of a failure that no rule names
RECENT: Final = 200  #: a match names the failure only within so many lines of the end of the log
_LONGEST: Final = 1 << 16
"""Characters of a line that are examined; some compile commands are longer."""

_LONGEST_MESSAGE: Final = 4000  #: characters of a message of CMake that are examined
_PREPARATION: Final = 20
"""Steps of a ninja run that is smaller are not counted: setup.py first generates a few files."""

_FOREVER: Final = 1 << 62
"""The line number of a match that counts as recent whatever follows."""

_NINJA: Final = re.compile(r"\[(\d{1,7})/(\d{1,7})\] ")
_PHASE: Final = re.compile(
    r"(?:Running phase: (?P<name>\w+?)(?:Phase)?|(?P<unpack>unpacking sources)"
    r"|(?P<patch>patching sources)|(?P<configure>configuring|\*\*\* Configuring CMake\.\.\.)"
    r"|(?P<build>building|\*\*\* Building project with .*)"
    r"|(?P<install>installing|\*\*\* Installing project into .*)"
    r"|(?P<pythonImportsCheck>(?:Executing pythonImportsCheckPhase"
    r"|Check whether the following modules can be imported:.*)))$"
)
_PHASE_STARTS: Final = (
    *("Running phase: ", "unpacking sources", "patching sources", "configuring", "building"),
    *("installing", "*** ", "Executing pythonImp", "Check whether the following"),
)
_CMAKE_HEAD: Final = re.compile(r"CMake (?:Error|Warning|Deprecation Warning)\b.*:$")
_BUILDING: Final = re.compile(r"building '/\S+/[a-z0-9]{32}-(\S+)\.drv'")
_PREFIX: Final = re.compile(r"([\w.+-]+)> ")
_QUOTED_BY_NIX: Final = re.compile(r" {7}> ?")
"""Before the last lines of a log, which Nix repeats in its error."""

_STAMP: Final = re.compile(
    r"(?:[^\t]{1,100}\t[^\t]{1,100}\t)?\ufeff?\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*"
    r"(?:Z|[+-]\d\d:?\d\d)?\]? |#\d+ \d+\.\d+ |\ufeff"
)
"""Before a line: the time that CI systems write, `gh run view` after job and step; BuildKit's."""

_FAILED: Final = re.compile(
    r"error: (?:builder for|Cannot build) '/nix/store/\w{32}-(\S+?)(?:\.drv)?'"
)

_OF_TORCH: Final = re.compile(r"(?:/nix/store/\w{32}-)?(?:python[\d.]+-)?(?:py)?torch(?:\d|-\d|$)")
"""A derivation that builds PyTorch, in a log that names no variant."""


class PlainReader:
    """Reads output without structure; a line may have its derivation's name as a prefix."""

    def __init__(self, package: str) -> None:
        self.package = package
        self._suffix = package.split("-", 1)[-1]
        self._current = package  #: the owner of lines without a prefix: what began last

    def read(self, line: bytes) -> Iterator[LogLine]:
        """Return the line with its owner: `package` for the variant's own build."""
        return self.owned(plain_text(line.decode("utf-8", errors="replace")))

    def owned(self, text: str) -> Iterator[LogLine]:
        """Return a line as text with its owner."""
        if text.startswith("building '") and (built := _BUILDING.match(text)):
            self._current = self.owner(built[1])
            yield LogLine("", text)
        elif "> " in text[:100] and (prefix := _PREFIX.match(text)):
            self._current = ""  # this program writes prefixes: a line without one is its own
            yield LogLine(self.owner(prefix[1]), text[prefix.end() :])
        else:
            # A line that begins so is Nix's: compilers name a file before the word.
            yield LogLine("" if text.startswith("error: ") else self._current, text)

    def owner(self, name: str) -> str:
        """Return the owner of lines of a derivation: `package` or its name."""
        return self.package if self._suffix in name else name


class ForeignReader(PlainReader):
    """Reads a log of any origin: plain or structured, from CI, or one that a build here wrote.

    Without a `package`, lines of any derivation of PyTorch are owned by it.
    """

    def __init__(self, package: str) -> None:
        super().__init__(package)
        self._nix = NixLogReader()
        self._is_ours: bool | None = None  #: whether a build here wrote it; None before line 1
        self._is_script = False  #: within a script that GitHub Actions shows before it runs it
        self._failed = ""  #: the owner of the lines that Nix repeats in an error

    def read(self, line: bytes) -> Iterator[LogLine]:
        """Return the lines of the log that a line of the file stands for."""
        text = plain_text(line.decode("utf-8", errors="replace"))
        has_stamp = text[:4].isdigit() or text[:1] in {"[", "#", "\ufeff"} or "\t" in text[:200]
        if has_stamp and (stamp := _STAMP.match(text)):
            text = text[stamp.end() :]
        if self._is_ours is None:
            self._is_ours = text.startswith(("$ nix-build ", "$ nix build ", "$ flox build "))
        if text.startswith("##["):
            self._is_script = text.startswith("##[group]Run ")
        is_error = text.startswith("error: ")
        if is_error and (failed := _FAILED.match(text)):
            self._failed = self.owner(failed[1])
        if self._is_script:
            yield LogLine("", f"##{text}")
        elif text.startswith("@nix "):
            for found in self._nix.read(text.encode("utf-8", errors="replace")):
                owner = self.owner(found.derivation) if found.derivation else ""
                yield LogLine(owner, found.text, found.phase, found.began, found.where)
        elif text.startswith(" ") and (quoted := _QUOTED_BY_NIX.match(text)):
            yield LogLine(self._failed, text[quoted.end() :])
        elif self._is_ours and not is_error:
            # Lines of dependencies have a prefix, those of the variant have none.
            prefix = _PREFIX.match(text)
            yield LogLine(prefix[1] if prefix else self.package, text)
        else:
            yield from self.owned(text)

    def owner(self, name: str) -> str:
        """Return the owner of lines of a derivation: `package` or its name."""
        is_own = self._suffix in name if self._suffix else _OF_TORCH.match(name)
        return self.package if is_own else name


def _prefix_length(text: str) -> int:
    prefix = _PREFIX.match(text)
    return prefix.end() if prefix else 0


def named(line: LogLine) -> LogLine:
    """Return the line of a dependency as the log of a variant shows it: with its name."""
    name = re.sub(r"^.*/[a-z0-9]{32}-|\.drv$", "", line.derivation)
    text = f"{name}> {line.text}" if line.text else f"building {name}" * line.began
    return LogLine(line.derivation, text)


class BuildProgress:
    """How far the build of one variant is, and which log rules its log matched so far.

    Without a `variant`, log rules that depend on the variant do not match.
    """

    def __init__(self, variant: Variant | None) -> None:
        self.variant = variant
        self.phase = ""
        self.done = 0
        self.total = 0  #: steps of the main run of ninja
        self.first_step = 0.0  #: when its first step was seen, on the caller's clock
        self.began = 0.0  #: when the variant's own build began, on the caller's clock
        self.where = ""
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.found: dict[str, tuple[LogRule, str]] = {}
        self.latest: LogRule | None = None  #: the rule that the last line matched, if any
        self.lines = 0
        self._matcher = LogMatcher(variant)
        self._compiles = False  #: whether a step of ninja was seen
        self._in_failed_step = False
        self._cmake: dict[str, str] = {}  #: the message of CMake that goes on, by derivation
        self._at: dict[str, int] = {}
        self._mismatches: list[str] = []
        self._after_mismatch = 0

    @property
    def message(self) -> str:
        """The last line."""
        return self.tail[-1].strip() if self.tail else ""

    def see(self, line: LogLine, now: float, *, own: bool) -> LogRule | None:
        """Take in a line. Return the rule for which the build has to be stopped, or None.

        `own`: the variant's own build wrote it, not a dependency or Nix. Never raises.
        """
        if own:
            if line.began:
                self.where, self.began, self.phase = line.where, now, "starting"
            if line.phase:
                self.phase = line.phase.removesuffix("Phase")
        self.latest = None
        text = line.text if len(line.text) <= _LONGEST else line.text[:_LONGEST]
        if not text or text.isspace():
            return None
        self.tail.append(text)
        self.lines += 1
        if own:
            self._follow(text, now)
        elif not self.phase and text.startswith("building "):
            self.phase = "dependencies"
        if self._after_mismatch or "hash" in text:
            self._keep_mismatch(text)
        if line.derivation in self._cmake or text.startswith("CMake "):
            message = self._message(line.derivation, text)
            if message and (rule := self._matcher.message(message)):
                return self._take(rule, line, message, own=own)
        return self._match(line, text, own=own) if is_interesting(text) else None

    def _message(self, derivation: str, text: str) -> str:
        """Return the message of CMake so far, as one line; empty if the line is of none."""
        if _CMAKE_HEAD.match(text):
            self._cmake[derivation] = text
        elif text.startswith("  ") and (so_far := self._cmake.get(derivation)):
            if len(so_far) < _LONGEST_MESSAGE:
                self._cmake[derivation] = f"{so_far} {' '.join(text.split())}"
        else:
            self._cmake.pop(derivation, None)
        return self._cmake.get(derivation, "")

    def _match(self, line: LogLine, text: str, *, own: bool) -> LogRule | None:
        part = "compiling" if self._compiles else "downloading"
        if not own:
            text, part = text[_prefix_length(text) :], "downloading"
        elif self.phase == "pythonImportsCheck":
            part = "importing"
        rule = self._matcher.line(text, part)
        return self._take(rule, line, text, own=own) if rule else None

    def _take(self, rule: LogRule, line: LogLine, text: str, *, own: bool) -> LogRule | None:
        if rule.stops:
            if not own:
                return None
            self.found.setdefault(rule.id, (rule, text.strip()))
        else:
            self.found[rule.id] = (rule, text.strip())
            is_nixs_own = not line.derivation and text.startswith("error")
            is_lasting = is_nixs_own or self._in_failed_step
            self._at[rule.id] = _FOREVER if is_lasting else self.lines
        self.latest = rule
        return rule if rule.stops else None

    def _follow(self, text: str, now: float) -> None:
        if text[0] == "[" and (step := _NINJA.match(text)):
            self._compiles = True
            self._in_failed_step = False
            done, total = int(step[1]), int(step[2])
            if done > total or total < _PREPARATION:
                return
            if total != self.total and done == 1:  # another run: failures of the last are past
                self._at = {key: min(at, self.lines) for key, at in self._at.items()}
            self.done, self.total = done, total
            self.first_step = self.first_step or now
            self.phase = "build"
        elif text.startswith("FAILED: "):
            self._in_failed_step = True  # ninja ends, when the other jobs have ended
        elif text.startswith(_PHASE_STARTS) and (phase := _PHASE.match(text)):
            self.phase = phase["name"] or phase.lastgroup or ""
            self._in_failed_step = False

    def _keep_mismatch(self, text: str) -> None:
        """Keep the few lines with which Nix reports the two hashes."""
        if "hash" in text and ("mismatch" in text or "wrong" in text or "expected" in text):
            self._after_mismatch = 4
        if self._after_mismatch and len(self._mismatches) < 4 * TAIL:
            self._after_mismatch -= 1
            self._mismatches.append(text[:500])

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
