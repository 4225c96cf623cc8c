"""The log of one build, read line by line while it is written, or afterwards, in constant memory.

The log may be plain text, the structured log of Nix, or what a build here wrote: lines of
dependencies have their name before them. Rules that stop a build are looked for in each line of the
build itself. All others are looked for at the end, in the lines that can name the failure: the last
ones, those of the step of ninja that failed, and the errors of Nix.
"""

from __future__ import annotations

import functools
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
    WANTS_CUDA,
    BuildPart,
    LogMatcher,
    LogRule,
    may_stop,
)
from build_pytorch.matrix.model import Package
from build_pytorch.nix.log_format import LogLine, NixLogReader, hash_mismatches, plain_text

TAIL: Final = 20  #: lines shown of a failure that no rule names
RECENT: Final = 200  #: lines at the end, and of a failed step, that can name the failure
LONGEST: Final = 1 << 16
"""Bytes of a line that are examined; some compile commands are longer."""
_KEPT: Final = 4000  #: characters of a line or message that are kept
_SHOWN: Final = 500  #: characters of a line that are shown
_MOST_LINES: Final = 5  #: lines shown that match the rule of a failure
_PREPARATION: Final = 20
"""Steps of a ninja run that is smaller are not counted: setup.py first generates a few files."""

_PHASE: Final = re.compile(
    r"(?:Running phase: (?P<name>\w+?)(?:Phase)?|(?P<unpack>unpacking sources)"
    r"|(?P<patch>patching sources)|(?P<configure>configuring|\*\*\* Configuring CMake\.\.\.)"
    r"|(?P<build>building|\*\*\* Building project with .*)"
    r"|(?P<install>installing|\*\*\* Installing project into .*)"
    r"|(?P<pythonImportsCheck>(?:Executing pythonImportsCheckPhase"
    r"|Check whether the following modules can be imported:.*)))$"
)
_PHASE_STARTS: Final = (
    *("Running phase: ", "unpacking", "patching", "configuring", "building", "installing"),
    *("*** ", "Executing python", "Check whether "),
)
_BEFORE: Final = ("", "dependencies")  #: phases in which a build waits for others
_LATE_PHASES: Final = ("install", "installCheck", "check", "fixup", "pythonImportsCheck")
_PASSED: Final = re.compile(
    r"^(?!.*\b[1-9]\d* (?:failed|errors?)\b)(?:"
    r"(?:=+ )?\d+ passed\b|(?:OK|ok)(?: \(.*\))?$|.*\.\.\. (?:ok|PASSED)$"
    r"|post-installation fixup$|/nix/store/\w{32}-\S+$)"
)
"""A line that says, after the build proper, that what came before went well."""

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


class Found(Struct, frozen=True):
    """A log rule with the lines that match it: their numbers, from 1, and texts."""

    rule: LogRule
    lines: tuple[tuple[int, str], ...]


class LogDiagnosis(Struct, frozen=True, kw_only=True):
    """What a log says."""

    package: Package | None
    lines: int
    phase: str
    progress: tuple[int, int] | None  #: done and all steps of ninja
    where: str  #: the remote builder; empty for this machine
    kept: str  #: folder of the failed build that Nix kept
    stop: Found | None  #: the rule that stops builds, with the first line that matches
    failure: Found | None  #: the rule that names the failure: that of `stop`, if it is set
    unsure: Found | None  #: what would stop the build, if the variant, which is unknown, has a GPU
    headline: tuple[int, str] | None  #: the first error and its line, if no rule names the failure
    tail: tuple[str, ...]


class _Owner(Enum):
    """Who wrote a line."""

    BUILD = auto()  #: the build itself
    DEPENDENCY = auto()
    NIX = auto()


class _Line(NamedTuple):
    """A line that may name the failure."""

    position: int  #: among the lines that Nix prints, several of which may be one of the file
    number: int  #: in the file
    text: str
    part: BuildPart


def _own_names(package: Package | None) -> re.Pattern[str]:
    """Return what the derivation or package that a log is of is called, whole.

    The torch of nixpkgs stands for the variant. Without a package it is any PyTorch.
    """
    own = r"(?:py)?torch\d*(?:-\S*)?"
    if package:
        base, _, suffix = map(re.escape, package.package.partition("-"))
        names = rf"{base}\d*-{suffix}" + ("|(?:py)?torch" if package is package.variant else "")
        own = rf"(?:{names})(?:-(?:x86_64|aarch64)-linux)?(?:-\d[^\s-]*)?(?:\.drv|\.nix)?"
    return re.compile(rf"(?:\S*/)?(?:\w{{32}}-)?(?:python[\d.]+-)?{own}")


@functools.lru_cache(maxsize=4096)
def _is_whole(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.fullmatch(name) is not None


class LogReader:
    """Reads one log. Never raises for what the log says.

    Without a `package`, rules that compare with its variant do not match.
    """

    def __init__(self, package: Package | None) -> None:
        self.package = package
        self.lines = self._position = 0
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.dependency = ""  #: that is built, as long as the build itself has not begun
        self.where = ""  #: the remote builder; empty for this machine
        self.kept = ""  #: folder of the failed build that Nix kept
        self._nix = NixLogReader()
        self._own = _own_names(package)
        self._current = _Owner.BUILD  #: of lines without a name
        self._in_error = False  #: of Nix, which goes on in indented lines
        self._is_own_error = True  #: whether that is no error of another derivation
        self._wants_cuda = package is not None
        self._begun = 0  #: how certain it is that the build has begun
        self._start()

    def _start(self) -> None:
        """Begin the build: what came before is of an environment, a dependency, another log."""
        self.phase = ""
        self.done = self.total = 0  #: steps of the main run of ninja
        self._stop: Found | None = None  #: first match of a rule that stops builds
        self._matcher = LogMatcher(self.package.variant if self.package else None)
        self._part: BuildPart = "downloading"
        self._went_on()

    def _went_on(self) -> None:
        """Forget errors: the build went on after them."""
        self._forget_step()
        self._cmake = dict.fromkeys(_Owner, "")  #: the messages of CMake that go on
        self._recent: deque[_Line] = deque(maxlen=RECENT)  #: of the build itself
        self._others: deque[_Line] = deque(maxlen=RECENT)  #: of dependencies and Nix

    def _forget_step(self) -> None:
        self.headline: tuple[int, str] | None = None  #: the first error
        self._has_failed_step = self._in_failed_step = False
        self._of_step: list[_Line] = []
        self._of_nix: deque[_Line] = deque(maxlen=RECENT)  #: errors

    def _begin(self, certainty: int) -> None:
        """Begin the build unless it has begun: 1 with a phase, 2 with its own name."""
        if certainty > self._begun:
            self._begun = certainty
            self._start()

    # --- lines and who wrote them ---

    def read(self, raw: bytes) -> Iterator[str]:
        """Take in a line of output. Yield lines for the log: those of dependencies with a name."""
        self.lines += 1
        if not raw or raw.isspace():  # a log may have millions
            return
        if raw.startswith(b"@nix "):
            for line in self._nix.read(raw):
                yield from self._read_structured(line)
            return
        text = shown = plain_text(raw[:LONGEST].decode("utf-8", errors="replace"))
        owner, text = self._in_nix_error(text)
        if owner is None:
            owner = self._current
            if "> " in text[:100] and (prefix := _PREFIX.match(text)):
                owner = self._named(prefix[1])
                if owner is _Owner.BUILD:  # then a line without a name is of Nix
                    self._current = _Owner.NIX
                text = text[prefix.end() :]
            elif text.startswith("building '") and (built := _BUILDING.match(text)):
                self._current, owner = self._named(built[1]), _Owner.NIX
        self._see(text, owner)
        yield shown

    def _in_nix_error(self, text: str) -> tuple[_Owner | None, str]:
        """Return who wrote a line that Nix prints in an error, and the line; None if in none."""
        if text.startswith(_NIX_ERRORS):
            failed = _FAILED.match(text)
            self._in_error = True
            self._is_own_error = not failed or _is_whole(self._own, failed[1])
            return _Owner.NIX, text
        if not text.startswith("  "):
            self._in_error = False
        elif quoted := _QUOTED_BY_NIX.match(text):
            owner = _Owner.BUILD if self._is_own_error else _Owner.DEPENDENCY
            return owner, text[quoted.end() :]
        return _Owner.NIX if self._in_error else None, text

    def _named(self, name: str) -> _Owner:
        """Return who writes lines of a derivation with this name, which is being built."""
        if _is_whole(self._own, name):
            self._begin(2)
            return _Owner.BUILD
        if self.phase in _BEFORE:
            self.phase = "dependencies"
            self.dependency = re.sub(r"^.*/[a-z0-9]{32}-|\.drv$", "", name)
        return _Owner.DEPENDENCY

    def _read_structured(self, line: LogLine) -> Iterator[str]:
        """Take in a line of the structured log of Nix, which names the derivation."""
        name = re.sub(r"^.*/[a-z0-9]{32}-|\.drv$", "", line.derivation)
        owner, text = self._in_nix_error(line.text)
        owner = self._named(line.derivation) if name else owner or _Owner.NIX
        prefix = f"{name}> " if owner is _Owner.DEPENDENCY and name else ""
        if line.began:
            if not prefix:
                self.where, self.phase = line.where, "starting"
                self._went_on()
            yield f"building {name}"
        elif line.phase and not prefix:
            self._enter(line.phase.removesuffix("Phase"))
        if text:
            self._see(line.text if name else text, owner)
            yield f"{prefix}{line.text}"

    # --- what they say ---

    def _see(self, text: str, owner: _Owner) -> None:
        is_own = owner is _Owner.BUILD
        is_of_others = owner is _Owner.DEPENDENCY or (self._in_error and not self._is_own_error)
        if is_of_others and not is_own and self.phase not in _BEFORE:
            return  # no dependency is built after the build itself has begun
        if not text or text.isspace():
            return
        self.tail.append(text[:_SHOWN])
        self._position += 1
        if is_own:
            self._follow(text)
        elif kept := _KEPT_FOLDER.match(text):
            self.kept = kept[1]
        message = self._message(text, owner)
        if is_own and not (self._stop and self._wants_cuda):
            self._look_for_a_stop(message or text)
        part = self._part if is_own else "downloading"
        line = _Line(self._position, self.lines, message or text[:_KEPT], part)
        store = self._recent if is_own else self._others
        if message and store and message.startswith(store[-1].text):
            store.pop()
        store.append(line)
        if self._in_failed_step and len(self._of_step) < RECENT:
            self._of_step.append(line)
        if owner is _Owner.NIX and self._in_error:
            self._of_nix.append(line)
        elif owner is not _Owner.NIX:
            self._follow_headline(text, message)

    def _look_for_a_stop(self, text: str) -> None:
        if not self._wants_cuda and WANTS_CUDA.search(text):
            self._wants_cuda = True
        if not self._stop and (text.startswith("CMake ") or may_stop(text)):
            rule = self._matcher.stop(text, self._part)
            self._stop = (
                Found(rule, ((self.lines, shortened(text.strip(), _SHOWN)),)) if rule else None
            )

    def _message(self, text: str, owner: _Owner) -> str:
        """Return the message of CMake so far, as one line; empty if the line is of none."""
        so_far = self._cmake[owner]
        if text.startswith("CMake ") and _CMAKE_HEAD.match(text[:_KEPT]):
            so_far = text[:_KEPT]
        elif so_far and text.startswith("  "):
            so_far = f"{so_far} {' '.join(text.split())}" if len(so_far) < _KEPT else so_far
        else:
            so_far = ""
        self._cmake[owner] = so_far
        return so_far

    def _follow(self, text: str) -> None:
        """Follow phases, steps of ninja, and signs that the build went on after a failure."""
        if text[0] == "[" and (step := _NINJA.match(text)):
            self._in_failed_step = False
            if not self._has_failed_step:
                self.headline = None
            self._part = "importing" if self._part == "importing" else "compiling"
            self._step(int(step[1]), int(step[2]))
        elif text.startswith(_FAILED_STEP):
            self._in_failed_step = True  # ninja ends, when the other jobs have ended
        elif text.startswith(_PHASE_STARTS) and (found := _PHASE.match(text)):
            phase = found["name"] or found.lastgroup or ""
            if phase in {"unpack", "patch", "configure"}:
                self._begin(1)
            self._enter(phase)
        elif self.phase in _LATE_PHASES and _PASSED.search(text[:200]):
            self._recent.clear()
            self._of_step.clear()
            self.headline = None

    def _step(self, done: int, total: int) -> None:
        if done > total or total < _PREPARATION:
            return
        if total != self.total and done == 1:  # another run
            self._forget_step()
        self.done, self.total = done, total
        self.phase, self._part = "build", "compiling"

    def _enter(self, phase: str) -> None:
        self._went_on()
        if phase == "pythonImportsCheck":
            self._part = "importing"
        elif self._part == "importing":
            self._part = "compiling"
        self.phase = phase

    def _follow_headline(self, text: str, message: str) -> None:
        """Keep the first error, or until there is one the first step of ninja that failed."""
        known = self.headline[1] if self.headline else ""
        if known and message.startswith(known):
            self.headline = (self.headline[0] if self.headline else 0, message[:_SHOWN])
        elif text.startswith(_FAILED_STEP) and not self._has_failed_step:
            self._has_failed_step = True
            self.headline = (self.lines, text.strip()[:_SHOWN])
        elif not known or known.startswith(_FAILED_STEP):
            is_possible = any(hint in text for hint in _ERROR_HINTS)
            if is_possible and _ERROR.search(text) and not QUOTES.search(text):
                self.headline = (self.lines, shortened(text.strip(), _SHOWN))

    # --- the result ---

    @property
    def stop(self) -> Found | None:
        """The rule for which the build is stopped, if a line matched one."""
        is_certain = self._stop and (self._wants_cuda or len(self._stop.rule.kinds) > 1)
        return self._stop if is_certain else None

    def diagnosis(self) -> LogDiagnosis:
        """Return what the log says so far."""
        failure = self.stop or self._failure()
        return LogDiagnosis(
            package=self.package,
            lines=self.lines,
            phase=self.phase,
            progress=(self.done, self.total) if self.total else None,
            where=self.where,
            kept=self.kept,
            stop=self.stop,
            failure=failure,
            unsure=None if self.stop else self._stop,
            headline=None if failure else self.headline,
            tail=tuple(self.tail),
        )

    def _failure(self) -> Found | None:
        """Return the first rule that a line matches which can name the failure."""
        stores = (self._recent, self._others, self._of_step, self._of_nix)
        lines = sorted({line for store in stores for line in store})
        matches = grouped((self._matcher.failure(line.text, line.part), line) for line in lines)
        for rule in RULES:
            if found := matches.get(rule):
                text = "\n".join(line.text for line in lines)
                if rule.id != HASH_MISMATCH or hash_mismatches(text):
                    last = found[-_MOST_LINES:]
                    shown = ((line.number, shortened(line.text.strip(), _SHOWN)) for line in last)
                    return Found(rule, tuple(shown))
        return None
