"""The log of one build, read line by line while it is written, or afterwards, in constant memory.

The log may be plain text, the structured log of Nix, or what a build here wrote: lines of
dependencies have their name before them. Rules that stop a build are looked for in each line of the
build itself. All others are looked for at the end, in the lines that can name the failure: the last
ones, those of the step of ninja that failed, and the errors of Nix.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from msgspec import Struct

from build_pytorch.base.console import grouped, shortened
from build_pytorch.build.log_rules import (
    HASH_MISMATCH,
    QUOTES,
    RULES,
    BuildPart,
    LogMatcher,
    LogRule,
)
from build_pytorch.matrix.model import Package
from build_pytorch.nix.log_format import LogLine, NixLogReader, hash_mismatches, plain_text

TAIL: Final = 20  #: lines shown of a failure that no rule names
RECENT: Final = 200  #: lines at the end, and of a failed step, that can name the failure
LONGEST: Final = 1 << 16
"""Bytes of a line that are examined; some compile commands are longer."""
_KEPT: Final = 4000  #: characters of a line or message that are kept
_SHOWN: Final = 500  #: characters of a line that are shown
_HEAD: Final = 200  #: characters of a message of CMake that are shown before what it quotes
_MOST_LINES: Final = 5  #: lines shown that match the rule of a failure

_PHASE: Final = re.compile(r"Running phase: (\w+?)(?:Phase)?$")
_IMPORTS: Final = "pythonImportsCheck"
BEFORE: Final = ("", "dependencies")  #: phases in which a build waits for others

_NINJA: Final = re.compile(r"\[(\d{1,7})/(\d{1,7})\] ")
_FAILED_STEP: Final = "FAILED: "  #: how ninja begins the line about a step that failed
_CMAKE_HEAD: Final = re.compile(r"CMake (?:Error|Warning|Deprecation Warning)\b.*:$")
_COMPILER_ERROR: Final = re.compile(
    r"(?:^|: )(?:fatal |catastrophic )?error: |\): (?:catastrophic )?error |^nvcc fatal"
)
_ERROR: Final = re.compile(
    rf"{_COMPILER_ERROR.pattern}|: internal compiler error: |: undefined reference to "
    r"|^CMake Error\b|^(?:nvcc|ptxas|nvlink) (?:error|fatal) *: "
    r"|^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): "
)
"""Errors of compilers, linkers, CMake and Python."""
_ERROR_HINTS: Final = ("rror", "undefined reference", "fatal", "Exception: ")

# What Nix prints about derivations.
_BUILDING: Final = re.compile(r"building '(/\S+\.drv)'")
_PREFIX: Final = re.compile(r"([\w.+-]+)> ")
_FAILED: Final = re.compile(
    r"(?:error: )?(?:builder for|Cannot build|building of) '(/nix/store/[^\s'!]+)"
)
_QUOTED_BY_NIX: Final = re.compile(r" {7}> ?")
"""Before the last lines of a log, which Nix repeats in its error."""
_NIX_ERRORS: Final = ("error: ", "builder for '", "cannot build on '")
"""How errors of Nix begin: compilers name a file before the word."""
_KEPT_FOLDER: Final = re.compile(r"note: keeping build directory ['\"]?(/[\w./+-]+)")


def fails_again(rule: LogRule | None, message: str) -> bool:
    """Whether a build that failed will fail again while its recipe is the same.

    `rule` names the failure; without one, `message` is the first error.
    """
    return not rule.machine if rule else bool(_COMPILER_ERROR.search(message))


class NumberedLine(Struct, frozen=True):
    """A line of a log, or a message of CMake as one line, and its number, from 1."""

    line: int
    text: str


class LogDiagnosis(Struct, frozen=True, kw_only=True):
    """What a log says; also as JSON."""

    variant: str | None  #: id of the package
    lines: int
    phase: str
    progress: tuple[int, int] | None  #: done and all steps of ninja
    where: str  #: the remote builder; empty for this machine
    kept: str  #: folder of the failed build that Nix kept
    rule: str = ""  #: id of the log rule that names the failure
    stops: bool = False  #: whether a build is stopped at the line
    matches: tuple[NumberedLine, ...] = ()  #: last lines that match the rule
    meaning: str = ""
    fix: str = ""
    headline: NumberedLine | None  #: the first error, unless a rule names it
    tail: tuple[str, ...]


class _Owner(Enum):
    """Who wrote a line."""

    BUILD = auto()  #: the build itself
    DEPENDENCY = auto()
    NIX = auto()


class _Line(NamedTuple):
    """A line that may name the failure."""

    number: int
    text: str
    part: BuildPart


class LogReader:
    """Reads one log. Never raises for what the log says.

    Without a `package`, rules that compare with its variant do not match. `log`: name for advice.
    """

    def __init__(self, package: Package | None, log: str = "LOG") -> None:
        self.package = package
        self.lines = 0
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.dependency = ""  #: that is built, as long as the build itself has not begun
        self.where = ""  #: the remote builder; empty for this machine
        self.kept = ""  #: folder of the failed build that Nix kept
        self._log = log
        self._nix = NixLogReader()
        self._own = _own_names(package)
        self._current = _Owner.BUILD  #: of lines without a name
        self._quoted: _Owner | None = None  #: whose lines an error of Nix quotes, which goes on
        self._start()

    def _start(self) -> None:
        """Begin the build: what came before is of an environment, a dependency, an attempt."""
        self.phase = ""
        self.done = self.total = 0  #: steps of the largest run of ninja
        self.stop: tuple[LogRule, NumberedLine] | None = None  #: first match of a rule that stops
        self._matcher = LogMatcher(self.package.variant if self.package else None)
        self._went_on()

    def _went_on(self) -> None:
        """Forget errors: the build went on after them."""
        self.headline: NumberedLine | None = None  #: the first error
        self._message = ""  #: of CMake, that goes on
        self._recent: deque[_Line] = deque(maxlen=RECENT)
        self._errors: deque[_Line] = deque(maxlen=RECENT)  #: of Nix
        self._of_step: list[_Line] = []  #: lines of steps of ninja that failed
        self._in_failed_step = False

    # --- lines and who wrote them ---

    def read(self, raw: bytes) -> Iterator[str]:
        """Take in a line of output. Yield lines for the log: those of dependencies with a name."""
        self.lines += 1
        if not raw or raw.isspace():  # a log may have millions
            return
        if raw.startswith(b"@nix "):
            self._current = _Owner.NIX
            for line in self._nix.read(raw):
                yield from self._read_structured(line)
            return
        text = plain_text(raw[:LONGEST].decode("utf-8", errors="replace"))
        self._see(*self._owned(text))
        yield text

    def _owned(self, text: str) -> tuple[_Owner, str]:
        """Return who wrote a line of text, and the line without a name or mark before it."""
        if text.startswith(_NIX_ERRORS):
            failed = _FAILED.match(text)
            is_own = not failed or self._is_own(failed[1])
            self._quoted = _Owner.BUILD if is_own else _Owner.DEPENDENCY
            return (_Owner.NIX if is_own else _Owner.DEPENDENCY), text
        if text.startswith("  "):
            if quoted := _QUOTED_BY_NIX.match(text):
                return self._quoted or _Owner.BUILD, text[quoted.end() :]
            return (_Owner.NIX if self._quoted else self._current), text
        self._quoted = None
        if "> " in text[:100] and (prefix := _PREFIX.match(text)):
            owner = self._named(prefix[1])
            if owner is _Owner.BUILD:  # then a line without a name is of Nix
                self._current = _Owner.NIX
            return owner, text[prefix.end() :]
        if text.startswith("building '") and (built := _BUILDING.match(text)):
            self._current = self._named(built[1])
            if self._current is _Owner.BUILD:
                self._start()
            return _Owner.NIX, text
        return self._current, text

    def _is_own(self, name: str) -> bool:
        return self._own.fullmatch(_short_name(name)) is not None

    def _named(self, name: str) -> _Owner:
        """Return who writes lines of a derivation with this name, which is being built."""
        if self._is_own(name):
            return _Owner.BUILD
        if self.phase in BEFORE:
            self.phase, self.dependency = "dependencies", _short_name(name)
        return _Owner.DEPENDENCY

    def _read_structured(self, line: LogLine) -> Iterator[str]:
        """Take in a line of the structured log of Nix, which names the derivation."""
        if not line.derivation:
            self._see(*self._owned(line.text))
            yield line.text
            return
        name, is_own = _short_name(line.derivation), self._is_own(line.derivation)
        if line.began and is_own:
            self._start()
            self.where, self.phase = line.where or self.where, "starting"  # ssh-ng begins twice
        owner = self._named(line.derivation)
        if line.began:
            yield f"building {name}"
        elif line.phase and is_own:
            self._enter(line.phase.removesuffix("Phase"))
        elif line.text:
            self._see(owner, line.text)
            yield line.text if is_own else f"{name}> {line.text}"

    # --- what they say ---

    def _see(self, owner: _Owner, text: str) -> None:
        if owner is _Owner.DEPENDENCY and self.phase not in BEFORE:
            return  # no dependency is built after the build itself has begun
        if not text or text.isspace():
            return
        self.tail.append(text[:_SHOWN])
        is_own = owner is _Owner.BUILD
        if is_own:
            self._follow(text)
        elif kept := _KEPT_FOLDER.match(text):
            self.kept = kept[1]
        message = self._message_with(text)
        part: BuildPart = "downloading"
        if is_own and (self.total or self.phase == _IMPORTS):
            part = "importing" if self.phase == _IMPORTS else "compiling"
        if is_own and not self.stop and (rule := self._matcher.stop(message or text, part)):
            self.stop = rule, NumberedLine(self.lines, shortened(text.strip(), _SHOWN))
        line = _Line(self.lines, message or text[:_KEPT], part)
        store = self._errors if owner is _Owner.NIX and self._quoted else self._recent
        if message and store and message.startswith(store[-1].text):
            store.pop()
        store.append(line)
        if self._in_failed_step and len(self._of_step) < RECENT:
            self._of_step.append(line)
        if owner is not _Owner.NIX:
            self._follow_headline(text, message)

    def _message_with(self, text: str) -> str:
        """Return the message of CMake so far, as one line; empty if the line is of none."""
        if text.startswith("CMake ") and _CMAKE_HEAD.match(text[:_KEPT]):
            self._message = text[:_KEPT]
        elif not text.startswith("  "):
            self._message = ""
        elif self._message and len(self._message) < _KEPT:
            self._message = f"{self._message} {' '.join(text.split())}"
        return self._message

    def _follow(self, text: str) -> None:
        """Follow phases, steps of ninja, and signs that the build went on after a failure."""
        if text[0] == "[" and (step := _NINJA.match(text)):
            self._step(int(step[1]), int(step[2]))
        elif text.startswith(_FAILED_STEP):
            self._in_failed_step = True  # ninja ends, when the other jobs have ended
            if not self._of_step:
                self.headline = NumberedLine(self.lines, text.strip()[:_SHOWN])
        elif text.startswith("Running phase: ") and (found := _PHASE.match(text)):
            self._enter(found[1])

    def _step(self, done: int, total: int) -> None:
        if done > total:
            return
        if total != self.total and done == 1:  # another run
            self._went_on()
        self._in_failed_step = False
        if not self._of_step:
            self.headline = None
        if total >= self.total:  # setup.py first generates a few files
            self.done, self.total, self.phase = done, total, "build"

    def _enter(self, phase: str) -> None:
        if phase == "unpack":
            self._start()
        self._went_on()
        self.phase = phase

    def _follow_headline(self, text: str, message: str) -> None:
        """Keep the first error; the step of ninja that failed is one until it says more."""
        first = self.headline
        if first and message.startswith(first.text):
            whole = message[:_SHOWN]
            if not message.endswith(whole) and _COMPILER_ERROR.search(text):  # the cause, quoted
                whole = f"{message[:_HEAD]} ... {text.strip()}"[:_SHOWN]
            self.headline = NumberedLine(first.line, whole)
        elif not first or first.text.startswith(_FAILED_STEP):
            is_possible = any(hint in text for hint in _ERROR_HINTS)
            if is_possible and _ERROR.search(text) and not QUOTES.search(text):
                self.headline = NumberedLine(self.lines, shortened(text.strip(), _SHOWN))

    # --- the result ---

    def diagnosis(self) -> LogDiagnosis:
        """Return what the log says so far."""
        rule, matches = (self.stop[0], [self.stop[1]]) if self.stop else self._failure()
        variant = self.package.variant if self.package else None
        return LogDiagnosis(
            variant=self.package.id if self.package else None,
            lines=self.lines,
            phase=self.phase,
            progress=(self.done, self.total) if self.total else None,
            where=self.where,
            kept=self.kept,
            rule=rule.id if rule else "",
            stops=self.stop is not None,
            matches=tuple(matches),
            meaning=rule.meaning if rule else "",
            fix=rule.advice(variant, self._log) if rule else "",
            headline=None if rule and not self.stop else self.headline,
            tail=tuple(self.tail),
        )

    def _failure(self) -> tuple[LogRule | None, list[NumberedLine]]:
        """Return the first rule that a line matches which can name the failure, and its lines."""
        lines = list(dict.fromkeys([*self._errors, *self._of_step, *self._recent]))
        lines.sort(key=lambda line: line.number)
        matches = grouped((self._matcher.failure(line.text, line.part), line) for line in lines)
        for rule in RULES:
            if found := matches.get(rule):
                text = "\n".join(line.text for line in lines)
                if rule.id != HASH_MISMATCH or hash_mismatches(text):
                    return rule, [
                        NumberedLine(line.number, shortened(line.text.strip(), _SHOWN))
                        for line in found[-_MOST_LINES:]
                    ]
        return None, []


def _short_name(derivation: str) -> str:
    return re.sub(r"^.*/[a-z0-9]{32}-|\.drv$", "", derivation)


def _own_names(package: Package | None) -> re.Pattern[str]:
    """Return what the derivation or package that a log is of may be called.

    The torch of nixpkgs stands for the variant. Without a package any PyTorch does.
    """
    names = r"(?:py)?torch\d*(?:-\S*)?"
    if package:
        names = f"{re.escape(package.package)}|{re.escape(package.pname)}"
        names += "|(?:py)?torch" if package is package.variant else ""
    return re.compile(rf"(?:python[\d.]+-)?(?:{names})(?:-\d[^\s-]*)?")
