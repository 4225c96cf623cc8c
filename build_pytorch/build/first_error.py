"""What the log of a failed build says where no rule names the failure; what fails again."""

from __future__ import annotations

import re
from typing import Final

from build_pytorch.base.console import shortened
from build_pytorch.build.log_rules import QUOTES, RULES_BY_ID

FAILED_STEP: Final = "FAILED: "
"""How ninja begins the line about a step that failed."""

_STEP: Final = re.compile(r"\[\d+/\d+\] ")
_COMPILER_ERROR: Final = re.compile(
    r"(?:^|: )(?:fatal |catastrophic )?error: |\): (?:catastrophic )?error |^nvcc fatal"
)
_ERROR: Final = re.compile(
    rf"{_COMPILER_ERROR.pattern}|: internal compiler error: |: undefined reference to "
    r"|^CMake Error\b|^(?:nvcc|ptxas|nvlink) (?:error|fatal) *: "
    r"|^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): "
)
"""Errors of compilers, linkers, CMake and Python."""

_HINTS: Final = ("rror", "undefined reference", "fatal", "Exception: ")
"""One of these is in every line with an error."""

_LONGEST: Final = 500  #: characters that are kept


class FirstError:
    """Finds the first error since the build last went on, else the first step that failed.

    `text` is that line, with the whole message where CMake wrote it; empty so far.
    """

    def __init__(self) -> None:
        self.text = ""
        self._has_failed_step = False
        self._is_cmake = False  #: whether the line before was of the message of CMake in `text`

    def see(self, line: str) -> None:
        """Take in a line that is not blank. After a step that failed, ninja ends."""
        if self._is_cmake and line.startswith("  "):
            self.text = shortened(f"{self.text} {' '.join(line.split())}", _LONGEST)
            return
        self._is_cmake = False
        if not self._has_failed_step and line.startswith(FAILED_STEP):
            self.text, self._has_failed_step = line.strip()[:_LONGEST], True
        elif not self._has_failed_step and _STEP.match(line):
            self.text = ""
        elif not self.text or self.text.startswith(FAILED_STEP):
            is_possible = any(map(line.__contains__, _HINTS))
            if is_possible and _ERROR.search(line) and not QUOTES.search(line):
                self.text = shortened(line.strip(), _LONGEST)
                self._is_cmake = line.startswith("CMake Error")

    def forget(self) -> None:
        """Forget all: the build went on."""
        self.text, self._has_failed_step, self._is_cmake = "", False, False


def fails_again(cause: str, message: str) -> bool:
    """Whether a build that failed will fail again while its recipe is the same.

    `cause` is the id of the rule that names the failure, or empty; `message` the line of the log.
    """
    if rule := RULES_BY_ID.get(cause):
        return not (rule.retry or rule.machine)
    return bool(_COMPILER_ERROR.search(message))
