"""Reading a build's output as it streams: whose line it is, how far the build is, what goes wrong.

Nothing is held but the last lines; the log itself is a file.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from build_pytorch.build.log_rules import HASH_MISMATCH, KNOWN, WATCHED, Rule, first_found
from build_pytorch.matrix.model import Variant
from build_pytorch.nix.hash_mismatch import mismatches

TAIL: Final = 30
"""Lines that are shown of a failure nobody knows."""

RECENT: Final = 200
"""Lines within which a mark has to stand to name a failure: what ends a build stands at its end."""

_MOST: Final = 1 << 16
"""Characters of a line that are looked at; some compile commands have no end."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_NINJA: Final = re.compile(r"^\[(\d+)/(\d+)\]")
_PHASE: Final = re.compile(
    r"^(?:Running phase: (\w+)|(unpacking|patching) sources|(building|configuring|installing))$"
)
_BUILDING: Final = re.compile(r"^building '/\S+/[a-z0-9]{32}-(\S+)\.drv'")
_PREFIX: Final = re.compile(r"^([\w.+-]+)> ")

# What Nix calls its activities and results in --log-format internal-json (Nix source, logging.hh).
_ACT_BUILD: Final = 105
_LOG_LINE: Final = 101
_POST_BUILD_LINE: Final = 107
_SET_PHASE: Final = 104
_DOWNLOADS: Final = {100: "copying", 101: "downloading", 108: "fetching"}


class Line(msgspec.Struct, frozen=True):
    """One line of output: the derivation that wrote it (none: Nix itself), its text.

    `phase` instead of text says that the derivation entered a phase; `where` that it began, on
    which machine (empty: this one).
    """

    derivation: str
    text: str
    phase: str = ""
    began: bool = False
    where: str = ""


class _Record(msgspec.Struct):
    action: str
    id: int = 0
    type: int = 0
    fields: list[Any] = []
    msg: str = ""
    text: str = ""


class NixReader:
    """Reads `--log-format internal-json`: each line of it is told to be some derivation's."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Record)
        self._building: dict[int, str] = {}

    def read(self, line: bytes) -> Iterator[Line]:
        """What one line of the output says."""
        if not line.startswith(b"@nix "):
            yield Line("", _clean(line.decode("utf-8", errors="replace")))
            return
        try:
            record = self._decoder.decode(line[5:])
        except msgspec.DecodeError:
            return
        match record.action:
            case "start" if record.type == _ACT_BUILD and record.fields:
                self._building[record.id] = str(record.fields[0])
                where = str(record.fields[1]) if len(record.fields) > 1 else ""
                yield Line(str(record.fields[0]), "", began=True, where=where)
            case "start" if record.type in _DOWNLOADS and record.text:
                yield Line("", _clean(record.text))
            case "stop":
                self._building.pop(record.id, None)
            case "result" if record.type in {_LOG_LINE, _POST_BUILD_LINE} and record.fields:
                text = _clean(str(record.fields[0]))
                yield Line(self._building.get(record.id, ""), text)
            case "result" if record.type == _SET_PHASE and record.fields:
                yield Line(self._building.get(record.id, ""), "", phase=str(record.fields[0]))
            case "msg":
                for text in _clean(record.msg).split("\n"):
                    yield Line("", text)


class PlainReader:
    """Reads what Flox prints: lines, some with the name of their derivation before them."""

    def __init__(self, package: str) -> None:
        self.package = package
        self._suffix = package.split("-", 1)[-1]
        self._current = package
        """Whose an unnamed line is: the variant's, until something else is said to be built."""

    def read(self, line: bytes) -> Iterator[Line]:
        """What one line of the output says. A line without a name is taken for the variant's."""
        text = _clean(line.decode("utf-8", errors="replace"))
        if built := _BUILDING.match(text):
            self._current = self._owner(built[1])
            yield Line("", text)
        elif prefix := _PREFIX.match(text):
            self._current = ""  # lines have names here, so one without is nobody's
            yield Line(self._owner(prefix[1]), text[prefix.end() :])
        else:
            yield Line(self._current, text)

    def _owner(self, name: str) -> str:
        return self.package if self._suffix in name else name


def _clean(text: str) -> str:
    return _COLOUR.sub("", text).rstrip("\r\n").rpartition("\r")[2]


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

    def see(self, line: Line, now: float, *, own: bool) -> Rule | None:
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
            if is_recent and (rule.id != HASH_MISMATCH or mismatches(self.mismatch)):
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
