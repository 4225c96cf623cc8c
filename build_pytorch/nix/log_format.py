"""The log of Nix: its JSON format, and the hash mismatches that it reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from build_pytorch.nix.quoting import to_sri

_ESCAPE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]+[0-~]"
)

# Activities and results of --log-format internal-json (Nix source, libutil/logging.hh).
_BUILD: Final = 105
_LOG_LINES: Final = {101, 107}
"""Lines of a build and of the post-build hook."""
_SET_PHASE: Final = 104
_DOWNLOADS: Final = {100, 101, 108}
"""Copy of a path, download of a file, fetch of a path from a cache."""


_MOST: Final = 10_000  #: derivations that build at once


class LogLine(msgspec.Struct, frozen=True):
    """One line of a build log."""

    derivation: str  #: the derivation that wrote the line; empty for Nix itself
    text: str  #: empty if `phase` or `began` is set
    phase: str = ""  #: the phase that the derivation entered
    began: bool = False  #: the derivation began to build
    where: str = ""  #: the remote builder on which it began; empty for this machine


class _Record(msgspec.Struct):
    action: str
    id: int = 0
    type: int = 0
    fields: list[Any] = []
    msg: str = ""
    text: str = ""


class NixLogReader:
    """Read `--log-format internal-json` line by line."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Record)
        self._building: dict[int, str] = {}

    def read(self, line: bytes) -> Iterator[LogLine]:
        """Yield the log lines of a line that begins with `@nix `.

        A record that is damaged is passed on as text of Nix itself.
        """
        try:
            record = self._decoder.decode(line[5:])
        except (msgspec.DecodeError, RecursionError, ValueError):
            yield LogLine("", plain_text(line.decode("utf-8", errors="replace")))
            return
        fields = record.fields
        match record.action:
            case "result" if record.type in _LOG_LINES and fields:
                yield LogLine(self._building.get(record.id, ""), plain_text(_text(fields[0])))
            case "start" if record.type == _BUILD and fields:
                if len(self._building) >= _MOST:  # a log that is made up
                    self._building.clear()
                self._building[record.id] = _text(fields[0])
                where = _text(fields[1]) if len(fields) > 1 else ""
                yield LogLine(_text(fields[0]), "", began=True, where=where)
            case "start" if record.type in _DOWNLOADS and record.text:
                yield LogLine("", plain_text(record.text))
            case "stop":
                self._building.pop(record.id, None)
            case "result" if record.type == _SET_PHASE and fields:
                yield LogLine(self._building.get(record.id, ""), "", phase=_text(fields[0]))
            case "msg":
                for text in record.msg.split("\n"):
                    yield LogLine("", plain_text(text))


def _text(field: object) -> str:
    """Return a field of a record: a text, or a number of a few digits."""
    return field if isinstance(field, str) else ascii(field)[:40]


def plain_text(line: str) -> str:
    """Return what a terminal shows of a line: no escape sequences, no overwritten start."""
    if "\x1b" in line:
        line = _ESCAPE.sub("", line)
    line = line.rstrip("\r\n")
    return line.rpartition("\r")[2].replace("\n", " ") if "\r" in line or "\n" in line else line


class HashMismatch(msgspec.Struct, frozen=True):
    """The specified and the actual hash of a source, both as SRI."""

    specified: str
    got: str


_HASH: Final = r"['\"]?((?:sha256[-:])?[A-Za-z0-9+/]{43,64}=?)['\"]?"

# Nix writes two lines ("wanted" until 2.3, "specified" since 2.4). The second may begin with the
# prefix of the program that shows the log.
_PAIR: Final = re.compile(rf"(?:specified|wanted|expected):\s*{_HASH}\s*\n[^\n]*?got:\s*{_HASH}")


def hash_mismatches(log: str) -> list[HashMismatch]:
    """Return every hash mismatch of a log once, in the order of the log."""
    text = _ESCAPE.sub("", log).replace("\r\n", "\n").replace("\r", "\n")
    pairs = dict.fromkeys((to_sri(old), to_sri(got)) for old, got in _PAIR.findall(text))
    return [HashMismatch(old, new) for old, new in pairs if old and new and old != new]
