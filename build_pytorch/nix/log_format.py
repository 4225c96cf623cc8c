"""The structured log that Nix writes with --log-format internal-json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")

# The numbers of activities and results, from Nix's source: src/libutil/logging.hh.
_ACT_BUILD: Final = 105
_LOG_LINES: Final = {101, 107}
"""A line of a build and of its post-build hook."""
_SET_PHASE: Final = 104
_DOWNLOADS: Final = {100, 101, 108}
"""Copying a path, downloading a file, fetching a path from a cache."""


class Line(msgspec.Struct, frozen=True):
    """One line of a build's output.

    `derivation` is what wrote it, empty for Nix itself. A line without text reports an event:
    the derivation entered `phase`, or it `began` on the machine `where` (empty: this one).
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
    """Reads the structured log, in which each line names its derivation."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Record)
        self._building: dict[int, str] = {}

    def read(self, line: bytes) -> Iterator[Line]:
        """Return the lines that one line of Nix's output stands for."""
        if not line.startswith(b"@nix "):
            yield Line("", without_colour(line.decode("utf-8", errors="replace")))
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
                yield Line("", without_colour(record.text))
            case "stop":
                self._building.pop(record.id, None)
            case "result" if record.type in _LOG_LINES and record.fields:
                text = without_colour(str(record.fields[0]))
                yield Line(self._building.get(record.id, ""), text)
            case "result" if record.type == _SET_PHASE and record.fields:
                yield Line(self._building.get(record.id, ""), "", phase=str(record.fields[0]))
            case "msg":
                for text in without_colour(record.msg).split("\n"):
                    yield Line("", text)


def without_colour(text: str) -> str:
    """Return a line without terminal colours, and what a carriage return left of it."""
    return _COLOUR.sub("", text).rstrip("\r\n").rpartition("\r")[2]
