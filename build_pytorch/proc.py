"""The one door to other programs: argument lists only, never a shell string."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from build_pytorch.errors import ToolError

INSTALL: Final = {
    "git": "install Git (Debian: apt-get install git)",
}
"""What to do where a program is missing."""

_KEPT_LINES: Final = 20


class Result:
    """What a program answered."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code = code
        self.stdout = stdout
        self.stderr = stderr

    @property
    def tail(self) -> str:
        """The last lines of what it said on stderr, for error messages."""
        return "\n".join(self.stderr.strip().splitlines()[-_KEPT_LINES:])


def capture(argv: Sequence[str], *, cwd: Path | None = None, check: bool = True) -> Result:
    """Run a program and return what it printed.

    Raises ToolError where it is missing, or where it fails and `check` is set.
    """
    try:
        done = subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, errors="replace", check=False
        )
    except FileNotFoundError:
        hint = INSTALL.get(argv[0], "put it on PATH")
        raise ToolError(f"{argv[0]}: not found; {hint}") from None
    except OSError as error:
        raise ToolError(f"{argv[0]}: cannot be run: {error.strerror}") from None
    result = Result(done.returncode, done.stdout, done.stderr)
    if check and result.code:
        raise ToolError(f"{' '.join(argv)}: exit code {result.code}\n{result.tail}")
    return result
