"""An inspection: finds the files of a package, runs the parts, records the result."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct, structs

from build_pytorch.base import files, foreign_json
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.inspect.closure import check_closure
from build_pytorch.inspect.configuration import check_config, check_features
from build_pytorch.inspect.device_code import check_device_code
from build_pytorch.inspect.elf_file import MACHINES, read_elf
from build_pytorch.inspect.target import InspectionFinding, Target
from build_pytorch.matrix.model import Package
from build_pytorch.nix import store
from build_pytorch.results import artefacts, evidence, ledger
from build_pytorch.results.artefacts import Artefact

Outcome = Literal["passed", "failed", "warning", "skipped"]
_STATES: Final[tuple[tuple[str, Outcome], ...]] = (
    ("error", "failed"), ("undecided", "skipped"), ("warning", "warning"),
)  # fmt: skip


class PartResult(Struct, kw_only=True):
    """The outcome of one part; the fields are keys of --json. skipped: something is undecided."""

    id: str
    state: Outcome
    findings: list[InspectionFinding] = []
    figures: dict[str, Any] = {}


class Inspection(Struct, frozen=True, kw_only=True):
    """The result for one package; the fields are the keys of --json and of the report.

    It failed if one part failed, and passed if none was skipped either.
    """

    release: str
    variant: str
    package: str
    outcome: Literal["passed", "failed", "skipped", "not run"] = "not run"
    reasons: tuple[str, ...] = ()
    folder: str = ""
    output: str = ""
    recorded: bool = False
    report: str = ""  #: path below the root
    parts: tuple[PartResult, ...] = ()


def check_libraries(target: Target, _figures: dict[str, Any]) -> Iterator[InspectionFinding]:
    """Find libraries that are not complete ELF files of the platform, or not of the result."""
    product, platform = target.product, target.package.variant.platform
    if not target.has_main(target.folder):
        found = f"not in {target.folder}, nor in the closure"
        yield InspectionFinding("error", product.main[0], found, f"{product.title}'s library")
    for library in target.libraries():
        place = os.path.realpath(library)
        try:
            machine = read_elf(library).machine
            found = f"an ELF file for machine {machine}" * (machine != MACHINES[platform])
        except ToolError as error:
            found = f"not a complete ELF file: {error}"
        if target.artefact and not place.startswith(f"{store.folder()}/"):
            found = f"a link that leads out of the Nix store: {place}"
        if found:
            expected = f"a 64-bit library for machine {MACHINES[platform]}, which is {platform}"
            yield InspectionFinding("error", library.name, found, expected)


_Check = Callable[[Target, dict[str, Any]], Iterator[InspectionFinding]]
PARTS: Final[dict[str, tuple[_Check, str]]] = {
    "files": (check_libraries, "build the variant again from its recipe"),
    "device-code": (check_device_code, "look at gpuTargets in the recipe and build again"),
    "config": (check_config, "build the variant again from its recipe"),
    "features": (
        check_features,
        "compile it in, or name it with a reason in `without` of matrix.toml",
    ),
    "closure": (
        check_closure,
        "look at the overlays in the recipe, or raise closure_gib in matrix.toml",
    ),
}
"""Each part: the check, which yields findings and adds to the figures, and the fix. A check raises
ToolError or OSError if it cannot look."""


def built_target(package: Package, artefact: Artefact) -> Target:
    """Return the built files of a package; the whole result if its library is not found in it.

    Raises ToolError if the store cannot be queried.
    """
    output = artefact.output
    target = Target(package=package, folder=output, artefact=artefact)
    places = sorted(output.glob(f"lib/python3*/site-packages/{target.product.folder}"))
    folder = next(filter(target.has_main, [*places, output / "lib"]), None)
    if folder is None and package.companion is None:
        # The libraries of PyTorch may be in another output of its derivation.
        others = (Path(path) / "lib" for path in target.closure())
        folder = next(filter(target.has_main, others), None)
    return structs.replace(target, folder=(folder or output).resolve())


def folder_target(package: Package, folder: Path) -> Target:
    """Return the files of a folder given by the user. Raises BuildPytorchError."""
    target = Target(package=package, folder=folder.resolve())
    product = target.product
    if not target.has_main(folder):
        raise BuildPytorchError(
            f"--path {folder}: no {product.main[0]} in it; give the folder of {product.title}'s "
            f"libraries, such as .../site-packages/{product.folder}"
        )
    return target


def inspect_result(root: Path, package: Package) -> Inspection:
    """Inspect the result of a package; save and record the report. Raises WriteError."""
    artefact = artefacts.find(root, package)
    if artefact is None:
        return _not_run(package, artefacts.absence(root, package))
    try:
        target = built_target(package, artefact)
    except (ToolError, OSError) as error:
        reason = str(error).partition("\n")[0]
        return _not_run(package, f"{artefact.link.name}: {reason}")
    earlier = _earlier(root, package, str(artefact.output))
    result = inspect_target(structs.replace(target, earlier=earlier))
    return evidence.record_evidence(root, package, artefact, test="inspect", result=result)


def _earlier(root: Path, package: Package, output: str) -> tuple[str, int]:
    """Return the last report on another result of a package, and the bytes of its closure."""
    for event in reversed(ledger.read(root).events):
        is_own = event.by == "inspect" and event.subject == ledger.subject_of(package)
        if is_own and event.output != output:
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                data = files.read_below(root, event.report, files.LARGEST_TEXT)
                return event.report, int(foreign_json.decode(data)["parts"][-1]["figures"]["bytes"])
            break  # deleted, or without a closure
    return "", 0


def inspect_target(target: Target) -> Inspection:
    """Run the parts that apply; where the libraries are not complete, none that reads them."""
    left_out = [] if target.artefact else ["closure"]
    left_out += ["features"] if target.package.companion else []
    results: list[PartResult] = []
    for name in (name for name in PARTS if name not in left_out):
        is_readable = not results or results[0].state != "failed" or name == "closure"
        results.append(look(name, target, "" if is_readable else "the libraries are not complete"))
    states = {result.state for result in results}
    outcome = "failed" if "failed" in states else "skipped" if "skipped" in states else "passed"
    reasons = [_reason(part) for part in results if part.state == outcome != "passed"]
    return structs.replace(
        _not_run(target.package, *reasons),
        outcome=outcome,
        folder=str(target.folder),
        output=str(target.artefact.output) if target.artefact else "",
        parts=tuple(results),
    )


def look(name: str, target: Target, obstacle: str = "") -> PartResult:
    """Run a part; undecided for an obstacle, if a tool fails or if a file cannot be read."""
    (check, fix), figures = PARTS[name], dict[str, Any]()
    try:
        findings = [] if obstacle else list(check(target, figures))
    except (ToolError, OSError) as error:
        obstacle = str(error).partition("\n")[0]
    if obstacle:
        findings, figures = [InspectionFinding("undecided", name, obstacle)], {}
    severities = {finding.severity for finding in findings}
    states = [state for severity, state in _STATES if severity in severities]
    for finding in findings:
        finding.fix = finding.fix or fix
    state = (*states, "passed")[0]
    return PartResult(id=name, state=state, findings=findings, figures=figures)


def _reason(part: PartResult) -> str:
    """Return why a part failed or was skipped: its first error, or what is undecided."""
    word = "error" if part.state == "failed" else "undecided"
    first = next(finding for finding in part.findings if finding.severity == word)
    return f"{part.id}: {first.path}: {first.found}"


def _not_run(package: Package, *reasons: str) -> Inspection:
    return Inspection(
        release=package.release_name, variant=package.id, package=package.package, reasons=reasons
    )
