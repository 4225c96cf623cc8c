"""Logs of any origin: pasted, of CI systems with several jobs, or written by a build here.

Removes what other programs write before each line, and names the derivation that wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from build_pytorch.build.log_reader import (
    BY_COMMAND,
    BY_NAME,
    BY_PHASE,
    BY_TORCH,
    FAILED,
    NIXPKGS_TORCH,
    PHASE,
    PHASE_STARTS,
    PREFIX,
    PlainReader,
    names_of,
)
from build_pytorch.nix.log_format import LogLine, NixLogReader, plain_text

HEAD: Final = 200  #: lines from which the frame of a log is found

_FRAMED: Final = 3  #: lines that a log has at least for a frame: single lines begin in any way
_LONGEST: Final = 1 << 16  #: characters of a command line that are examined
_MOST_JOBS: Final = 500  #: jobs of a CI run whose lines are told apart
_IS_BUILT: Final = frozenset({BY_TORCH, BY_NAME})  #: signs that the variant's build has begun
_FIRST_PHASES: Final = frozenset({"unpack", "patch", "configure"})
_COMMAND: Final = re.compile(r"(?:\S*/)?(?:flox build|nix build|nix-build)\b")

_QUOTED_BY_NIX: Final = re.compile(r" {7}> ?")
"""Before the last lines of a log, which Nix repeats in its error."""

_DATE: Final = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?"
_STAMP: Final = re.compile(
    r"\ufeff?(?:(?P<job>[^\t]{1,100})\t[^\t]{1,100}\t\ufeff?)?(?:"
    rf"(?:\[?{_DATE}\]? (?:[0-9a-f]{{2}}[OE][ +]|std(?:out|err) [FP] )?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )"
    r"(?:\S{1,100} [\w./@-]{1,100}\[\d+\]: )?"
    r"|\d\d:\d\d:\d\d(?:\.\d+)? {1,2}|\[\d\d:\d\d:\d\d(?:\.\d+)?\] |\d{10}\.\d{3,9} "
    r"|#\d+ \d+\.\d+ |\u2503 ?)?"
)
"""Before a line: the time that CI systems write, `gh run view` after job and step; GitLab with the
stream, Kubernetes and journald with more; BuildKit's number and time; nix-output-monitor's bar."""

_FRAMES: Final = (
    r"> ?",
    r"[A-Za-z][\w.-]{0,60} +\| ?",
    r"\[\d+\]\(https?://[^\s()]{1,300}\)",
    r" *(?P<number>\d+)(?:\t|:| {2}|$)",
    r"(?:\d\d:\d\d:\d\d(?:\.\d+)?)?(?P<margin> +)",
)
"""Before every line of a pasted log: a quotation mark, a container's name, a link, a number, a
margin, which can follow a time."""


def frame_of(head: Sequence[bytes]) -> re.Pattern[str] | None:
    """Return a pattern of what is before each of the first lines of a log, or None."""
    texts = [text for text in (plain_text(line.decode(errors="replace")) for line in head) if text]
    for frame in _FRAMES if len(texts) >= _FRAMED else ():
        found = [re.match(frame, text) for text in texts]
        matches = [match for match in found if match]
        if len(matches) < 0.9 * len(texts):
            continue
        if "<number>" in frame:
            numbers = [int(match["number"][:9]) for match in matches]
            if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
                continue
        if "<margin>" in frame:
            width = min(len(match["margin"]) for match in matches)
            time = frame.partition("(?P")[0]
            return re.compile(f"{time} {{{width}}}") if len(matches) == len(texts) else None
        return re.compile(frame)
    return None


class _JobReader(PlainReader):
    """Reads a log of one job, of any origin: plain or structured, or one that a build here wrote.

    Without a `package`, lines of any derivation of PyTorch are owned by it. With one, the torch of
    nixpkgs stands for the variant until the variant's own name is seen.
    """

    def __init__(self, package: str) -> None:
        super().__init__(package)
        self._nix = NixLogReader()
        self._base = package.partition("-")[0]
        self._is_ours: bool | None = None  #: whether a build here wrote it; None before line 1
        self._is_script = False  #: within a script that GitHub Actions shows before it runs it
        self._failed: str | None = None  #: the owner of the lines that Nix repeats in an error
        self._is_in_error = False  #: whether the last lines are an error of Nix
        self._quotes_plainly = False  #: whether Nix before 2.4 repeats lines with two blanks
        self._torch = ""  #: the first name, of Python as well, under which nixpkgs builds torch

    def owner(self, name: str, sign: int = 0) -> str:
        """Return the owner of lines of a derivation: `package` or its name."""
        owner = super().owner(name, sign)
        if owner == self.package or self.started > BY_TORCH:
            return owner
        torch = NIXPKGS_TORCH.match(name)
        if not torch or (torch["python"] and self._torch not in {"", torch["python"]}):
            return owner
        self._torch = self._torch or torch["python"] or ""
        self.started = max(self.started, min(sign, BY_TORCH))
        return self.package

    def read_line(self, text: str) -> Iterator[LogLine]:
        """Return the lines of the log in one line of the file, which has no stamp any more."""
        self._take_sign(text)
        if self._is_script:
            yield LogLine("", f"##{text}")
        elif text.startswith("@nix "):
            for found in self._nix.read(text.encode("utf-8", errors="replace")):
                owner = self.owner(found.derivation, BY_NAME) if found.derivation else ""
                yield LogLine(owner, found.text, found.phase, found.began, found.where)
        elif text.startswith("  ") and (line := self._of_error(text)):
            yield line
        elif self._is_ours and not self._is_in_error:
            # Lines of dependencies have a prefix, those of the variant have none.
            prefix = PREFIX.match(text)
            yield LogLine(prefix[1] if prefix else self.package, text)
        else:
            for line in self.owned(text):
                if not self.started and line.derivation == self.package:
                    self._follow_phase(line.text)
                yield line

    def _of_error(self, text: str) -> LogLine | None:
        """Return the line of a log that Nix repeats in an error, or a line of the error itself."""
        if quoted := _QUOTED_BY_NIX.match(text):
            return LogLine(
                self._current if self._failed is None else self._failed, text[quoted.end() :]
            )
        if self._quotes_plainly and self._failed is not None:
            return LogLine(self._failed, text[2:])
        if not (self._is_in_error and text.startswith(" " * 7)):
            return None
        owner = self._failed or ""
        return LogLine(owner if owner != self.package else "", text)

    def _take_sign(self, text: str) -> None:
        """Update the state from a line that describes the lines after it."""
        if self._is_ours is None:
            self._is_ours = text.startswith(("$ nix-build ", "$ nix build ", "$ flox build "))
        if text.startswith("##["):
            self._is_script = text.startswith("##[group]Run ")
        if self._base and self._base in text and "build " in text[:100]:
            self._follow_command(text)
        if not text.startswith("  "):
            self._is_in_error = text.startswith(("error: ", "builder for '"))
        if self._is_in_error and text[0] != " ":
            self._quotes_plainly = False
            if failed := FAILED.match(text):
                self._failed = self.owner(failed[1])
                self._quotes_plainly = text.endswith("log lines:") and "; last " in text

    def _follow_command(self, text: str) -> None:
        """Update the state from a command line that names what is built."""
        plain = re.sub(r"^(?:##\[group\]Run |\[command\]|[$+>#] )+", "", text[:_LONGEST])
        if not _COMMAND.match(plain):
            return
        names = [word.strip("'\"") for word in plain.split()]
        names = [re.split(r"[#/]", name)[-1] for name in names]
        names = [name for name in names if re.match(rf"{re.escape(self._base)}\d*-", name)]
        if names and not any(map(self._own.match, names)):
            self._current = names[-1]
            self._is_ours = False
        elif len(names) == 1:
            self._current = self.owner(names[0], BY_COMMAND)

    def _follow_phase(self, text: str) -> None:
        if self._current == self.package and text.startswith(PHASE_STARTS):
            phase = PHASE.match(text)
            if phase and (phase["name"] or phase.lastgroup) in _FIRST_PHASES:
                self.started = BY_PHASE


class ForeignReader:
    """Reads a log of any origin, also of several jobs of a CI run, one after the other or mixed.

    Leaves out what the builds of `siblings` wrote: packages on which `package` does not depend.
    `frame`: what is before every line, as `frame_of` returns it.
    """

    def __init__(
        self,
        package: str,
        siblings: Sequence[str] = (),
        frame: re.Pattern[str] | None = None,
    ) -> None:
        self.package = package
        self._siblings = names_of(*siblings) if siblings else None
        self._is_sibling: dict[str, bool] = {package: False}  #: answers for owners of lines
        self.started = 0  #: rises where lines so far turn out not to be the variant's own
        self._frame = frame
        self._jobs: dict[str, _JobReader] = {}

    def read(self, line: bytes) -> Iterator[LogLine]:
        """Return the lines of the log in one line of the file.

        Lines of a job in which another variant is built are left out. Once the variant is built,
        so are those of other derivations: it waits for none then.
        """
        text = plain_text(line.decode("utf-8", errors="replace"))
        if self._frame and (frame := self._frame.match(text)):
            text = text[frame.end() :]
        name = ""
        if (
            text[:2].isdigit()
            or text[:1] in {"[", "#", "\ufeff", "\u2503"}
            or text[9:10] == ":" == text[12:13]
            or "\t" in text[:200]
        ) and (stamp := _STAMP.match(text)):
            name = stamp["job"] or ""
            text = text[stamp.end() :]
            if (inner := _STAMP.match(text)) and not inner["job"]:  # of a program within the job
                text = text[inner.end() :]
        job = self._jobs.get(name)
        if not job:
            if len(self._jobs) >= _MOST_JOBS:
                name = next(reversed(self._jobs))
            job = self._jobs.setdefault(name, _JobReader(self.package))
        for found in job.read_line(text):
            self.started = max(self.started, job.started)
            is_elsewhere = len(self._jobs) > 1 and job.started < self.started
            is_later = job.started in _IS_BUILT and found.derivation not in {"", self.package}
            if not (is_elsewhere or is_later or self._of_sibling(found)):
                yield found

    def _of_sibling(self, line: LogLine) -> bool:
        owner = line.derivation
        if not owner and line.text.startswith("error: ") and (failed := FAILED.match(line.text)):
            owner = failed[1]
        if owner not in self._is_sibling:
            self._is_sibling[owner] = bool(self._siblings and self._siblings.match(owner))
        return self._is_sibling[owner]
