"""Run the smoke script with a Python and read its report."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch.base import process
from build_pytorch.smoke import script, smoke_report

SCRIPT: Final = Path(script.__file__)

_GRACE: Final = 5.0
"""Maximum seconds between the script's own limit and the kill; a short limit has a short one."""


class SmokeRun(msgspec.Struct, frozen=True, kw_only=True):
    """A report, also as it was printed (`raw`), or the reason why there is none."""

    report: smoke_report.SmokeReport | None = None
    raw: dict[str, Any] = {}
    problem: str = ""


def run(
    python: Path,
    env: Mapping[str, str | None],
    *,
    device: int,
    seconds: float,
    on_wait: Callable[[int], None],
) -> SmokeRun:
    """Run the script on one GPU for at most `seconds`; call `on_wait` while it runs.

    Raises ToolError where the Python cannot be started.
    """
    maximum = seconds + min(seconds, _GRACE)
    argv = [str(python), str(SCRIPT), "--device", str(device), "--limit", str(seconds)]
    # A user's own setting would make torch slower, and the build would be blamed for it.
    started = process.start(argv, env={**env, "ATEN_CPU_CAPABILITY": None})
    result = started.finish(maximum, on_wait)
    if result.expired:
        return SmokeRun(problem=f"no answer after {maximum:g} s; it was killed")
    if result.code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return SmokeRun(problem=f"Python was ended by {names.get(-result.code, -result.code)}")
    if result.code:
        return SmokeRun(problem=f"Python ended with exit code {result.code}: {result.last_line}")
    try:
        raw = msgspec.json.decode(result.stdout)
        report = smoke_report.parse(result.stdout)
    except ValueError as error:  # msgspec's errors, and lone surrogates
        return SmokeRun(problem=f"its output is not a report: {error}")
    if raw.get("declared") != script.declarations():
        return SmokeRun(problem="its report does not declare the tests of this script")
    return SmokeRun(report=report, raw=raw)
