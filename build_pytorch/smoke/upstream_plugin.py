"""A plugin of pytest that runs in the tested Python: every n-th test, and a line for each result.

UPSTREAM_RESULTS names the file of the results, UPSTREAM_SHARE is n. It needs nothing beside it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep every n-th test."""
    items[:] = items[:: int(os.environ["UPSTREAM_SHARE"])]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Write which test begins: it may end the process."""
    _write({"test": nodeid})


def pytest_runtest_logreport(report: Any) -> None:
    """Write the outcome of a test, and of a set-up that skips it or fails."""
    if report.when == "call" or report.outcome != "passed":
        error = getattr(report.longrepr, "reprcrash", None)
        why = error.message.partition("\n")[0][:300] if error else ""
        _write({"test": report.nodeid, "outcome": report.outcome, "why": why})


def _write(line: dict[str, str]) -> None:
    with Path(os.environ["UPSTREAM_RESULTS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
