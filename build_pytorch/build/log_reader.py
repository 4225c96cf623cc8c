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
from build_pytorch.nix.log_format import LogLine, hash_mismatches, plain_text

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
PHASE: Final = re.compile(
    r"(?:Running phase: (?P<name>\w+?)(?:Phase)?|(?P<unpack>unpacking sources)"
    r"|(?P<patch>patching sources)|(?P<configure>configuring|\*\*\* Configuring CMake\.\.\.)"
    r"|(?P<build>building|\*\*\* Building project with .*)"
    r"|(?P<install>installing|\*\*\* Installing project into .*)"
    r"|(?P<pythonImportsCheck>(?:Executing pythonImportsCheckPhase"
    r"|Check whether the following modules can be imported:.*)))$"
)
PHASE_STARTS: Final = (
    *("Running phase: ", "unpacking sources", "patching sources", "configuring", "building"),
    *("installing", "*** ", "Executing pythonImp", "Check whether the following"),
)
_BEFORE: Final = frozenset({"", "dependencies"})  #: phases in which a build waits for others
_LATE_PHASES: Final = frozenset({"install", "installCheck", "check", "fixup", "pythonImportsCheck"})
_PASSED: Final = re.compile(
    r"^(?!.*\b[1-9]\d* (?:failed|errors?)\b)(?:"
    r"(?:=+ )?\d+ passed\b|(?:OK|ok)(?: \(.*\))?$|.*\.\.\. (?:ok|PASSED)$"
    r"|post-installation fixup$|/nix/store/\w{32}-\S+$)"
)
"""A line that says, after the build proper, that what came before went well."""

_CMAKE_HEAD: Final = re.compile(r"CMake (?:Error|Warning|Deprecation Warning)\b.*:$")
_BUILDING: Final = re.compile(r"building '/\S+/[a-z0-9]{32}-(\S+)\.drv'")
PREFIX: Final = re.compile(r"([\w.+-]+)> ")
FAILED: Final = re.compile(
    r"(?:error: )?(?:builder for|Cannot build|building of) "
    r"'/nix/store/\w{32}-([^\s'!]+?)(?:\.drv)?(?:!\S*?)?'"
)
"""How Nix begins to report a derivation that failed; versions before 2.4 write no `error: `."""

_OF_TORCH: Final = re.compile(r"(?:/nix/store/\w{32}-)?(?:python[\d.]+-)?(?:py)?torch(?:\d|-\d|$)")
"""A derivation that builds PyTorch, in a log that names no variant."""

NIXPKGS_TORCH: Final = re.compile(
    r"(?:\S*/)?(?:\w{32}-)?(?P<python>python[\d.]+-)?(?:py)?torch(?:-(?:x86_64|aarch64)-linux)?"
    r"(?:-\d[^\s-]*)?(?:\.drv)?(?:!\S*)?$"
)
"""The whole name of the torch of nixpkgs, whatever its variant."""

# Signs of where a build begins, from weak to certain. What came before was not its own.
BY_PHASE: Final = 1
BY_TORCH: Final = 2
BY_COMMAND: Final = 3
BY_NAME: Final = 4


def names_of(*packages: str) -> re.Pattern[str]:
    """Return what the whole name of a derivation or package of these variants matches.

    The name is followed by nothing but a version: `sm120-avx512` is not `sm120-avx512bf16`.
    """
    parts = [map(re.escape, package.partition("-")) for package in packages]
    names = "|".join(rf"{base}\d*-{suffix}" for base, _, suffix in parts)
    return re.compile(
        rf"(?:\S*/)?(?:\w{{32}}-)?(?:[\w.]+-)*(?:{names})"
        r"(?:-\d[^\s-]*)?(?:\.drv|\.nix)?(?:!\S*)?$"
    )


class PlainReader:
    """Reads output without structure; a line may have its derivation's name as a prefix."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.started = 0  #: the most certain sign so far that the variant's own build began
        self._own = names_of(package) if package else _OF_TORCH
        self._current = package  #: the owner of lines without a prefix: what began last

    def read(self, line: bytes) -> Iterator[LogLine]:
        """Return the line with its owner: `package` for the variant's own build."""
        return self.owned(plain_text(line.decode("utf-8", errors="replace")))

    def owned(self, text: str) -> Iterator[LogLine]:
        """Return a line as text with its owner."""
        if text.startswith("building '") and (built := _BUILDING.match(text)):
            self._current = self.owner(built[1], BY_NAME)
            yield LogLine("", text)
        elif "> " in text[:100] and (prefix := PREFIX.match(text)):
            self._current = ""  # this program writes prefixes: a line without one is its own
            yield LogLine(self.owner(prefix[1], BY_NAME), text[prefix.end() :])
        else:
            # A line that begins so is Nix's: compilers name a file before the word.
            yield LogLine("" if text.startswith("error: ") else self._current, text)

    def owner(self, name: str, sign: int = 0) -> str:
        """Return the owner of lines of a derivation: `package` or its name.

        `sign`: how certain it is that the derivation is being built.
        """
        if not self._own.match(name):
            return name
        self.started = max(self.started, sign)
        return self.package


def _prefix_length(text: str) -> int:
    prefix = PREFIX.match(text)
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
        self._own_matches: set[str] = set()  #: ids of rules that the build's own lines matched
        self._own = names_of(variant.package) if variant else _OF_TORCH
        self._in_others_error = False  #: whether Nix reports the failure of another derivation

    def begin_again(self) -> None:
        """Forget what lines showed that the variant's own build did not write after all."""
        self.found.clear()
        self._at.clear()
        self._own_matches.clear()
        self._mismatches.clear()
        self._after_mismatch = 0
        self._matcher = LogMatcher(self.variant)
        self._compiles = self._in_failed_step = self._in_others_error = False
        self._cmake.clear()
        self.done = self.total = 0
        self.first_step, self.phase = 0.0, ""

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
                self._pass()
                self.phase = line.phase.removesuffix("Phase")
        self.latest = None
        text = line.text if len(line.text) <= _LONGEST else line.text[:_LONGEST]
        if not text or text.isspace() or self._is_of_others(line, text, own=own):
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

    def _is_of_others(self, line: LogLine, text: str, *, own: bool) -> bool:
        """Whether the line is about another derivation, once the variant's own build has begun.

        Nothing that is still built then is a dependency: its failure is not that of the variant.
        """
        if self.phase in _BEFORE:
            return False
        if line.derivation:
            return not own
        if not text.startswith("       "):  # the lines in which Nix goes on
            self._in_others_error = bool(
                text.startswith(("error: ", "builder for '"))
                and (failed := FAILED.match(text))
                and not (self._own.match(failed[1]) or NIXPKGS_TORCH.match(failed[1]))
            )
        return self._in_others_error

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
            (self._own_matches.add if own else self._own_matches.discard)(rule.id)
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
        elif text.startswith(PHASE_STARTS) and (phase := PHASE.match(text)):
            self._pass()
            self.phase = phase["name"] or phase.lastgroup or ""
        elif self._own_matches and self.phase in _LATE_PHASES and _PASSED.search(text[:200]):
            self._pass()

    def _pass(self) -> None:
        """Forget failures that the build's own lines named: it went on after them."""
        self._in_failed_step = False
        for key in self._own_matches:
            self._at.pop(key, None)
        self._own_matches.clear()

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
