"""Starts the script with a Python, and reads what it reports."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from build_pytorch.base import process
from build_pytorch.smoke import smoke_report

SCRIPT: Final = Path(__file__).with_name("script.py")

GRACE: Final = 5.0
"""Seconds after its own limit in which the script has to answer, before it is ended."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: a report, or the reason why there is none."""

    report: smoke_report.Report | None = None
    raw: dict[str, object] = {}
    """The report as it was printed."""
    problem: str = ""


def run(
    python: Path,
    env: Mapping[str, str | None],
    *,
    device: int,
    seconds: float,
    tell: Callable[[int], None],
) -> Ran:
    """Run the script on one GPU for at most so many seconds, and tell that it runs.

    Raises ToolError where the Python cannot be started.
    """
    argv = [str(python), str(SCRIPT), "--device", str(device), "--limit", str(seconds)]
    # What a person set to slow torch down would be judged as a fault of the build.
    result = process.start(argv, env={**env, "ATEN_CPU_CAPABILITY": None}).watch(
        tell, seconds + GRACE
    )
    if result.expired:
        return Ran(problem=f"no answer after {seconds + GRACE:g} s; it was ended")
    if result.code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return Ran(problem=f"Python was ended by {names.get(-result.code, -result.code)}")
    last = result.tail.splitlines()[-1:] or ["it said nothing"]
    if result.code:
        return Ran(problem=f"Python ended with exit code {result.code}: {last[0]}")
    try:
        return Ran(report=smoke_report.parse(result.stdout), raw=msgspec.json.decode(result.stdout))
    except ValueError as error:  # msgspec's errors, and lone surrogates
        return Ran(problem=f"what it printed is no report: {error}")
