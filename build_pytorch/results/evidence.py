"""Evidence: tests of results, recorded with their reports."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from build_pytorch.base import files
from build_pytorch.matrix.model import Package
from build_pytorch.results import ledger
from build_pytorch.results.ledger import TestKind
from build_pytorch.results.package_state import package_states

_Result = TypeVar("_Result", bound=msgspec.Struct)


def unknown_recipe(package: Package) -> str:
    """Return why a test of a result without a known recipe is not recorded, and what to do."""
    fix = f"run `invoke build {package.id}`, which records a finished result without building again"
    return f"the ledger has no recipe for this result; {fix}"


def record_evidence(
    root: Path,
    package: Package | None,
    output: Path | None,
    *,
    test: TestKind,
    result: _Result,
) -> _Result:
    """Save the report of a test and add a line to the ledger.

    `result` has the fields outcome, reasons, recorded and report. Returns it with the path of the
    report below the root, and whether the ledger got a line: only if `output`, the result of
    `package` that was tested, has a known recipe. In the report the result has the keys at and
    digest as well. Raises WriteError.
    """
    moment, found = ledger.now(), msgspec.to_builtins(result)
    stamp = moment.partition("+")[0].replace(":", "").replace(".", "-")
    report = f"{ledger.REPORTS}/{test}-{package.attribute if package else 'other'}-{stamp}Z.json"
    state = package_states(root, [package])[package.id] if package and output else None
    digest = state.origin if state else None
    added = {"recorded": bool(digest) and found["outcome"] != "not run", "report": report}
    document = msgspec.json.encode({"at": moment, **found, **added, "digest": digest})
    with files.write_errors(root / report):
        text = msgspec.json.format(document, indent=2) + b"\n"
        files.write_all(root, {**files.IGNORED, report: text})
    if package and output and added["recorded"]:
        event = ledger.event_of(
            package,
            "tested",
            digest=digest or "",
            by=test,
            outcome=found["outcome"],
            output=str(output),
            reason="; ".join(found["reasons"]),
            report=report,
        )
        ledger.append(root, event)
    return replace(result, **added)
