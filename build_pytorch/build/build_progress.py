"""How far a build is: what its output shows while it arrives, or its log afterwards.

Only the last lines of the output are held in memory; the log itself is a file.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from build_pytorch.base.console import shortened
from build_pytorch.build.first_error import FAILED_STEP, FirstError
from build_pytorch.build.log_reader import (
    ERRORS,
    FAILED,
    NAME_PREFIX,
    NIXPKGS_TORCH,
    Sign,
    TextLogReader,
    names_of,
    phase_of,
)
from build_pytorch.build.log_rules import (
    HASH_MISMATCH,
    RULES,
    BuildPart,
    LogMatcher,
    LogRule,
    is_interesting,
)
from build_pytorch.matrix.model import CompanionPackage, Package, Variant
from build_pytorch.nix.log_format import LogLine, hash_mismatches

TAIL: Final = 30  #: lines shown of a failure that no rule names
RECENT: Final = 200  #: a match names the failure only within so many lines of the end of the log
_LONGEST: Final = 1 << 16
"""Characters of a line that are examined; some compile commands are longer."""

_LONGEST_MESSAGE: Final = 4000  #: characters of a message of CMake that are examined
_PREPARATION: Final = 20
"""Steps of a ninja run that is smaller are not counted: setup.py first generates a few files."""

_FOREVER: Final = 1 << 62
"""The line number of a match that counts as recent whatever follows."""

_NIXS_OWN: Final = ("error", "cannot build on '")
"""How lines begin after which Nix ends, unless another builder takes the build."""

_OF_HASHES: Final = ("specified:", "wanted:", "got:", "expected")
"""One of these is in each line with which Nix reports the two hashes of a mismatch."""

_NINJA: Final = re.compile(r"\[(\d{1,7})/(\d{1,7})\] ")
_BEFORE: Final = ("", "dependencies")  #: phases in which a build waits for others
_LATE_PHASES: Final = ("install", "installCheck", "check", "fixup", "pythonImportsCheck")
_PASSED: Final = re.compile(
    r"^(?!.*\b[1-9]\d* (?:failed|errors?)\b)(?:"
    r"(?:=+ )?\d+ passed\b|(?:OK|ok)(?: \(.*\))?$|.*\.\.\. (?:ok|PASSED)$"
    r"|post-installation fixup$|/nix/store/\w{32}-\S+$)"
)
"""A line that says, after the build proper, that what came before went well."""

_CMAKE_HEAD: Final = re.compile(r"CMake (?:Error|Warning|Deprecation Warning)\b.*:$")


_KEPT: Final = re.compile(r"note: keeping build directory ['\"]?(/[\w./+-]+)")
"""How Nix names the folder that --keep-failed kept."""


class RuleMatch(Struct):
    """The last line that matched a rule; of a rule that stops builds, the first one."""

    rule: LogRule
    text: str
    line: int  #: its number, or _FOREVER
    is_own: bool  #: the variant's own build wrote it, not Nix or a dependency


class BuildProgress:
    """How far the build of one variant is, and which log rules its log matched so far.

    Without a `variant`, log rules that depend on the variant do not match.
    """

    def __init__(self, variant: Variant | None) -> None:
        self.phase = ""
        self.done = 0
        self.total = 0  #: steps of the main run of ninja
        self.where = ""
        self.kept = ""  #: folder of the failed build that Nix kept
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.lines = 0
        self.latest: RuleMatch | None = None  #: what the last line matched, if anything
        self._matches: dict[str, RuleMatch] = {}
        self._matcher = LogMatcher(variant)
        self._own = names_of(variant.package if variant else "")
        self._part: BuildPart = "downloading"
        self.first_error = FirstError()
        self._in_failed_step = False
        self._in_others_error = False  #: whether Nix reports the failure of another derivation
        self._cmake: dict[str, str] = {}  #: the message of CMake that goes on, by derivation
        self._mismatches: deque[str] = deque(maxlen=4 * TAIL)

    def see(self, line: LogLine, *, own: bool) -> LogRule | None:
        """Take in a line. Return the rule for which the build has to be stopped, or None.

        `own`: the variant's own build wrote it, not a dependency or Nix. Never raises.
        """
        if own and line.began:
            self.where, self.phase = line.where, "starting"
            self._forget_ends()
        if own and line.phase:
            self._enter(line.phase.removesuffix("Phase"))
        self.latest = None
        text = line.text[:_LONGEST]
        if not text or text.isspace() or self._is_of_others(line, text, own=own):
            return None
        if not line.derivation and (kept := _KEPT.match(text)):
            self.kept = kept[1]
        self.tail.append(text)
        self.lines += 1
        self._follow(line, text, own=own)
        if any(map(text.__contains__, _OF_HASHES)):
            self._mismatches.append(text[:500])
        rule = None
        if line.derivation in self._cmake or text.startswith("CMake "):
            message = self._cmake_message(line.derivation, text)
            rule = self._matcher.message(message) if message else None
            text = message if rule else text
        if not rule and is_interesting(text):
            if not own and (prefix := NAME_PREFIX.match(text)):
                text = text[prefix.end() :]
            rule = self._matcher.line(text, self._part if own else "downloading")
        return self._keep(rule, line, text, own=own) if rule else None

    def _is_of_others(self, line: LogLine, text: str, *, own: bool) -> bool:
        """Whether the line is about another derivation, once the variant's own build has begun.

        Nothing that is still built then is a dependency: its failure is not that of the variant.
        """
        if self.phase in _BEFORE:
            return False
        if line.derivation:
            return not own
        if not text.startswith("       "):  # the lines in which Nix goes on
            failed = FAILED.match(text) if text.startswith(ERRORS) else None
            is_own = failed and (self._own.match(failed[1]) or NIXPKGS_TORCH.match(failed[1]))
            self._in_others_error = bool(failed and not is_own)
        return self._in_others_error

    def _cmake_message(self, derivation: str, text: str) -> str:
        """Return the message of CMake so far, as one line; empty if the line is of none."""
        if _CMAKE_HEAD.match(text):
            self._cmake[derivation] = text
        elif text.startswith("  ") and (so_far := self._cmake.get(derivation)):
            if len(so_far) < _LONGEST_MESSAGE:
                self._cmake[derivation] = f"{so_far} {' '.join(text.split())}"
        else:
            self._cmake.pop(derivation, None)
        return self._cmake.get(derivation, "")

    def _keep(self, rule: LogRule, line: LogLine, text: str, *, own: bool) -> LogRule | None:
        """Keep a match. Return the rule if the build has to be stopped."""
        if rule.stops and not own:
            return None
        is_nixs_own = not line.derivation and text.startswith(_NIXS_OWN)
        at = _FOREVER if is_nixs_own or self._in_failed_step else self.lines
        self.latest = RuleMatch(rule, text.strip(), at, own)
        if not (rule.stops and rule.id in self._matches):
            self._matches[rule.id] = self.latest
        return rule if rule.stops else None

    def _follow(self, line: LogLine, text: str, *, own: bool) -> None:
        """Follow phases, steps of ninja, and signs that the build went on after a failure."""
        if own or line.derivation:
            self.first_error.see(text)
        if not own:
            if not self.phase and text.startswith("building "):
                self.phase = "dependencies"
        elif text[0] == "[" and (step := _NINJA.match(text)):
            self._in_failed_step = False
            self._part = "importing" if self._part == "importing" else "compiling"
            self._step(int(step[1]), int(step[2]))
        elif text.startswith(FAILED_STEP):
            self._in_failed_step = True  # ninja ends, when the other jobs have ended
        elif phase := phase_of(text):
            self._enter(phase)
        elif self._matches and self.phase in _LATE_PHASES and _PASSED.search(text[:200]):
            self._forget_failures()

    def _step(self, done: int, total: int) -> None:
        if done > total or total < _PREPARATION:
            return
        if total != self.total and done == 1:  # another run
            self._forget_ends()
        self.done, self.total = done, total
        self.phase, self._part = "build", "compiling"

    def _enter(self, phase: str) -> None:
        self._forget_failures()
        if phase == "pythonImportsCheck":
            self._part = "importing"
        elif self._part == "importing":
            self._part = "compiling"
        self.phase = phase

    def _forget_ends(self) -> None:
        """Let failures so far count as recent no longer than others: the build went on."""
        self.first_error.forget()
        for match in self._matches.values():
            match.line = min(match.line, self.lines)

    def _forget_failures(self) -> None:
        """Forget failures that the build's own lines named: it went on after them."""
        self._in_failed_step = False
        self.first_error.forget()
        self._matches = {
            key: match
            for key, match in self._matches.items()
            if match.rule.stops or not match.is_own
        }

    def cause(self) -> RuleMatch | None:
        """Return the match of the rule that names the failure, or None."""
        for rule in RULES:
            match = self._matches.get(rule.id)
            if not match or not (rule.stops or self.lines - match.line < RECENT):
                continue
            if rule.id != HASH_MISMATCH or hash_mismatches("\n".join(self._mismatches)):
                return match
        return None


# --- log files ---

_SHOWN: Final = 500  #: characters of a line that are shown
_MOST_LINES: Final = 5  #: lines shown that match the rule of a failure


class LogFinding(Struct, frozen=True):
    """A log rule with the lines that match it: their numbers, from 1, and texts."""

    rule: LogRule
    lines: tuple[tuple[int, str], ...]


class LogDiagnosis(Struct, frozen=True, kw_only=True):
    """What a log says."""

    package: Package | None
    lines: int
    phase: str
    progress: tuple[int, int] | None  #: done and all steps of ninja
    stop: LogFinding | None  #: the rule that stops builds, with the first line that matches
    failure: LogFinding | None  #: the rule that names the failure: that of `stop`, if it is set
    headline: tuple[int, str] | None  #: the first error and its line, if no rule names the failure
    tail: tuple[str, ...]


def diagnose(lines: Iterable[bytes], package: Package | None) -> LogDiagnosis:
    """Read a log. Never raises for what the log says.

    Without a package, rules that depend on its variant do not match.
    """
    name = package.package if package else ""
    reader = TextLogReader(name)
    variant = package.variant if package else None
    progress = BuildProgress(variant)
    stop: LogFinding | None = None
    matches: dict[str, list[tuple[int, str]]] = {}
    number, started = 0, Sign.NONE
    headline = (0, "")
    is_blank = False
    for number, raw in enumerate(lines, 1):
        if is_blank and not raw:
            continue  # a log may have millions, and another one changes nothing
        is_blank = not raw
        for line in reader.read(raw):
            if reader.started > started:
                # What came before is not of this build: an environment, an attempt, another log.
                started, stop, tail = reader.started, None, progress.tail
                progress = BuildProgress(variant)
                progress.tail = tail
                matches.clear()
            if reader.is_of_others(line):
                continue
            rule = progress.see(line, own=line.derivation == name)
            if not (headline[1] and progress.first_error.text.startswith(headline[1])):
                headline = (number, "")
            headline = (headline[0], progress.first_error.text)
            if found := progress.latest:
                several = matches.setdefault(found.rule.id, [])
                several.append((number, shortened(found.text, _SHOWN)))
                del several[:-_MOST_LINES]
            if rule and not stop:
                stop = LogFinding(rule, tuple(matches[rule.id]))
    cause = None if stop else progress.cause()
    failure = LogFinding(cause.rule, tuple(matches[cause.rule.id])) if cause else stop
    return LogDiagnosis(
        package=package,
        lines=number,
        phase=progress.phase,
        progress=(progress.done, progress.total) if progress.total else None,
        stop=stop,
        failure=failure,
        headline=headline if headline[1] and not failure else None,
        tail=tuple(shortened(line, _SHOWN) for line in progress.tail),
    )


def named_package(packages: Iterable[Package], head: Iterable[bytes]) -> Package | None:
    """Return the package that the first lines of a log name, if they name exactly one.

    Packages of several releases may have one name; then another name has to tell them apart. A
    companion names its variant too, which is meant only where the log builds it.
    """
    by_name: dict[str, dict[str, Package]] = {}  # name, recipe of the variant
    names_of_companions = set()
    for package in packages:
        names = [package.package, package.pname]
        if isinstance(package, CompanionPackage):  # as its build prints it
            names.append(f"{package.title} {package.version} for {package.variant.package}")
            names_of_companions.update(names)
        for name in names:
            by_name.setdefault(name, {})[package.variant.path] = package
    text = "|".join(map(re.escape, sorted(by_name, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w.])(?:{text})(?![A-Za-z0-9_])".encode())
    signs = tuple({name.split("-")[0].encode() for name in by_name})
    found, built = set(), set()
    for line in head:
        if any(sign in line for sign in signs):
            names_here = {match[0].decode() for match in pattern.finditer(line)}
            found |= names_here
            built |= names_here if b"building '" in line else set()
    is_variant = bool(built - names_of_companions) or not found & names_of_companions
    relevant = found - names_of_companions if is_variant else found
    recipes = [by_name[name].keys() for name in relevant] or [{}.keys()]
    common = set(recipes[0]).intersection(*recipes)
    of_kind = relevant if is_variant else found & names_of_companions
    meant = {p.path: p for name in of_kind for key, p in by_name[name].items() if key in common}
    return next(iter(meant.values())) if len(meant) == 1 else None
