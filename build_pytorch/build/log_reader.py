"""Which derivation wrote a line of a log: of a running build, or of a file of any origin."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from enum import IntEnum, auto
from pathlib import Path
from typing import Final

from build_pytorch.base import files
from build_pytorch.nix.log_format import LogLine, NixLogReader, plain_text

_LONGEST: Final = 1 << 16  #: characters of a command line that are examined

_PHASE: Final = re.compile(
    r"(?:Running phase: (?P<name>\w+?)(?:Phase)?|(?P<unpack>unpacking sources)"
    r"|(?P<patch>patching sources)|(?P<configure>configuring|\*\*\* Configuring CMake\.\.\.)"
    r"|(?P<build>building|\*\*\* Building project with .*)"
    r"|(?P<install>installing|\*\*\* Installing project into .*)"
    r"|(?P<pythonImportsCheck>(?:Executing pythonImportsCheckPhase"
    r"|Check whether the following modules can be imported:.*)))$"
)
_FIRST_PHASES: Final = ("unpack", "patch", "configure")

_BUILDING: Final = re.compile(r"building '/\S+/[a-z0-9]{32}-(\S+)\.drv'")
_COMMAND: Final = re.compile(r"(?:\S*/)?(?:flox build|nix build|nix-build)\b")
_OUR_COMMANDS: Final = ("$ nix-build ", "$ nix build ", "$ flox build ")
NAME_PREFIX: Final = re.compile(r"([\w.+-]+)> ")
"""The name of a derivation before its line."""

ERRORS: Final = ("error: ", "builder for '")  #: how errors of Nix begin
FAILED: Final = re.compile(
    r"(?:error: )?(?:builder for|Cannot build|building of) "
    r"'/nix/store/\w{32}-([^\s'!]+?)(?:\.drv)?(?:!\S*?)?'"
)
"""How Nix begins to report a derivation that failed; versions before 2.4 write no `error: `."""

_QUOTED_BY_NIX: Final = re.compile(r" {7}> ?")
"""Before the last lines of a log, which Nix repeats in its error."""

_OF_TORCH: Final = re.compile(r"(?:/nix/store/\w{32}-)?(?:python[\d.]+-)?(?:py)?torch(?:\d|-\d|$)")
"""A derivation that builds PyTorch, in a log that names no variant."""

NIXPKGS_TORCH: Final = re.compile(
    r"(?:\S*/)?(?:\w{32}-)?(?P<python>python[\d.]+-)?(?:py)?torch(?:-(?:x86_64|aarch64)-linux)?"
    r"(?:-\d[^\s-]*)?(?:\.drv)?(?:!\S*)?$"
)
"""The whole name of the torch of nixpkgs, whatever its variant."""


class Sign(IntEnum):
    """How certain it is that the variant's own build has begun. What came before is not its own."""

    NONE = 0
    PHASE = auto()
    TORCH = auto()  #: the torch of nixpkgs is built
    COMMAND = auto()
    NAME = auto()


def phase_of(text: str) -> str:
    """Return the phase that begins with a line of Nix's scripts, or an empty text."""
    found = _PHASE.match(text)
    return found["name"] or found.lastgroup or "" if found else ""


def names_of(package: str) -> re.Pattern[str]:
    """Return what the whole name of a derivation or package of this variant matches.

    The name is followed by nothing but a version: `sm120-avx512` is not `sm120-avx512bf16`.
    Without a package it is any derivation that builds PyTorch.
    """
    if not package:
        return _OF_TORCH
    base, _, suffix = map(re.escape, package.partition("-"))
    return re.compile(
        rf"(?:\S*/)?(?:\w{{32}}-)?(?:[\w.]+-)*{base}\d*-{suffix}"
        r"(?:-\d[^\s-]*)?(?:\.drv|\.nix)?(?:!\S*)?$"
    )


def named(line: LogLine) -> LogLine:
    """Return the line of a dependency as the log of a variant shows it: with its name."""
    name = re.sub(r"^.*/[a-z0-9]{32}-|\.drv$", "", line.derivation)
    text = f"{name}> {line.text}" if line.text else f"building {name}" * line.began
    return LogLine(line.derivation, text)


class TextLogReader:
    """Reads the output of Nix or Flox, plain or structured, also one that a build here wrote.

    Without a `package`, lines of any derivation of PyTorch are owned by it. With one, the torch of
    nixpkgs stands for the variant until the variant's own name is seen.
    """

    def __init__(self, package: str) -> None:
        self.package = package
        self.started = Sign.NONE  #: the most certain sign so far
        self._own = names_of(package)
        self._current = package  #: the owner of lines without a prefix: what began last
        self._nix = NixLogReader()
        self._base = package.partition("-")[0]
        self._in_error = False  #: of Nix, which goes on in indented lines
        self._is_ours: bool | None = None  #: whether a build here wrote it; None before line 1
        self._failed: str | None = None  #: the owner of the lines that Nix repeats in an error
        self._torch = ""  #: the first name, of Python as well, under which nixpkgs builds torch

    def read(self, line: bytes) -> Iterator[LogLine]:
        """Return the line with its owner: `package` for the variant's own build."""
        text = plain_text(line.decode("utf-8", errors="replace"))
        self._follow(text)
        if text.startswith("@nix "):
            for found in self._nix.read(text.encode("utf-8", errors="replace")):
                owner = self._owner(found.derivation, Sign.NAME) if found.derivation else ""
                yield LogLine(owner, found.text, found.phase, found.began, found.where)
        elif quoted := _QUOTED_BY_NIX.match(text):
            owner = self._current if self._failed is None else self._failed
            yield LogLine(owner, text[quoted.end() :])
        elif self._in_error and text.startswith(" " * 7):
            yield LogLine("" if self._failed == self.package else self._failed or "", text)
        elif text.startswith("building '") and (built := _BUILDING.match(text)):
            self._current = self._owner(built[1], Sign.NAME)
            yield LogLine("", text)
        elif "> " in text[:100] and (prefix := NAME_PREFIX.match(text)):
            if not self._is_ours:
                self._current = ""  # this program writes prefixes: a line without one is its own
            yield LogLine(self._owner(prefix[1], Sign.NAME), text[prefix.end() :])
        else:
            # A line that begins so is Nix's: compilers name a file before the word.
            owner = "" if text.startswith("error: ") else self._current
            if not self.started and owner == self.package and phase_of(text) in _FIRST_PHASES:
                self.started = Sign.PHASE
            yield LogLine(owner, text)

    def is_of_others(self, line: LogLine) -> bool:
        """Whether a line is of another derivation, although the variant's build has begun."""
        is_built = self.started in {Sign.TORCH, Sign.NAME}
        return is_built and line.derivation not in {"", self.package}

    def _owner(self, name: str, sign: Sign) -> str:
        """Return the owner of lines of a derivation: `package` or its name.

        `sign`: how certain it is that the derivation is being built.
        """
        if self._own.match(name):
            self.started = max(self.started, sign)
            return self.package
        torch = NIXPKGS_TORCH.match(name) if self.started <= Sign.TORCH else None
        if not torch or (torch["python"] and self._torch not in {"", torch["python"]}):
            return name
        self._torch = self._torch or torch["python"] or ""
        self.started = max(self.started, min(sign, Sign.TORCH))
        return self.package

    def _follow(self, text: str) -> None:
        """Update the state from a line that describes the lines after it."""
        if self._is_ours is None:
            self._is_ours = text.startswith(_OUR_COMMANDS)
        if not text.startswith("  "):
            self._in_error = text.startswith(ERRORS)
        if self._base and self._base in text and "build " in text[:100]:
            self._follow_command(text)
        if self._in_error and (failed := FAILED.match(text)):
            self._failed = self._owner(failed[1], Sign.NONE)

    def _follow_command(self, text: str) -> None:
        """Update the state from a command line that names what is built."""
        plain = re.sub(r"^(?:[$+>#] )+", "", text[:_LONGEST])
        if not _COMMAND.match(plain):
            return
        names = [word.strip("'\"") for word in plain.split()]
        names = [re.split(r"[#/]", name)[-1] for name in names]
        names = [name for name in names if re.match(rf"{re.escape(self._base)}\d*-", name)]
        if names and not any(map(self._own.match, names)):
            self._current = names[-1]
            self._is_ours = False
        elif len(names) == 1:
            self._current = self._owner(names[0], Sign.COMMAND)


def split_lines(chunks: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """Yield the lines of a text that comes in pieces; a longer line is split."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > longest:
            yield rest
            rest = b""
    if rest:
        yield rest


def ends_below(root: Path, name: str | Path, most: int) -> tuple[bytes, bytes]:
    """Return the first line and the whole lines in the last bytes of a log, `most` of each.

    The first line is empty if it is among the last ones. Raises LinkError and OSError.
    """
    with os.fdopen(files.open_below(root, name), "rb") as file:
        start = max(0, os.fstat(file.fileno()).st_size - most)
        tail = os.pread(file.fileno(), most, start)
        head = os.pread(file.fileno(), most, 0) if start else b""
    return (head.partition(b"\n")[0], tail.partition(b"\n")[2]) if start else (b"", tail)
