"""An inspection: finds the files of a package, runs the parts, records the result."""

from __future__ import annotations

import contextlib
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
from build_pytorch.results import artefacts, evidence, ledger
from build_pytorch.results.artefacts import Artefact

Outcome = Literal["failed", "skipped", "warning", "passed"]
_STATES: Final[dict[str, Outcome]] = {
    "error": "failed", "undecided": "skipped", "warning": "warning",
}  # fmt: skip
"""The state of a part by the worst severity of its findings."""


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

    variant: str
    outcome: Literal["passed", "failed", "skipped", "not run"] = "not run"
    reasons: tuple[str, ...] = ()
    folder: str = ""
    recorded: bool = False
    report: str = ""  #: path below the root
    parts: tuple[PartResult, ...] = ()


def check_libraries(target: Target, _figures: dict[str, Any]) -> Iterator[InspectionFinding]:
    """Find libraries that are not complete ELF files of the platform."""
    product, platform = target.product, target.package.variant.platform
    if not target.has_main(target.folder):
        found = f"not in {target.folder}, nor in the closure"
        yield InspectionFinding("error", product.main[0], found, f"{product.title}'s library")
    for library in target.libraries():
        try:
            machine = read_elf(library).machine
            found = f"an ELF file for machine {machine}" * (machine != MACHINES[platform])
        except ToolError as error:
            found = f"not a complete ELF file: {error}"
        if found:
            expected = f"a 64-bit library for machine {MACHINES[platform]}, which is {platform}"
            yield InspectionFinding("error", library.name, found, expected)


_Check = Callable[[Target, dict[str, Any]], Iterator[InspectionFinding]]
_AGAIN: Final = "build the variant again from its recipe"
_COMPILE_IN: Final = "look for it in the summary of CMake in the log, and for a rule against it"
_CLOSURE: Final = "look at the overlays in the recipe, or raise closure_gib in matrix.toml"
PARTS: Final[dict[str, tuple[_Check, str]]] = {
    "files": (check_libraries, _AGAIN),
    "device-code": (check_device_code, "look at gpuTargets in the recipe and build again"),
    "config": (check_config, _AGAIN),
    "features": (check_features, _COMPILE_IN),
    "closure": (check_closure, _CLOSURE),
}
"""Each part: the check, which yields findings and adds to the figures, and the fix. A check raises
ToolError or OSError if it cannot look."""


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
    artefact, why = artefacts.find(root, package), ""
    if artefact is None:
        why = artefacts.absence(root, package)
    else:
        try:
            result = inspect_target(_built_target(root, package, artefact))
            return evidence.record_evidence(root, package, artefact, test="inspect", result=result)
        except (ToolError, OSError) as error:
            why = f"{artefact.link.name}: {error}".partition("\n")[0]
    return Inspection(variant=package.id, reasons=(why,))


def _built_target(root: Path, package: Package, artefact: Artefact) -> Target:
    """Return the built files of a package; the whole result if its library is not found in it.

    Raises ToolError if the store cannot be queried.
    """
    output, earlier = artefact.output, _earlier(root, package, str(artefact.output))
    target = Target(package=package, folder=output, artefact=artefact, earlier=earlier)
    places = sorted(output.glob(f"lib/python3*/site-packages/{target.product.folder}"))
    folder = next(filter(target.has_main, [*places, output / "lib"]), None)
    if folder is None and package.companion is None:
        # The libraries of PyTorch may be in another output of its derivation.
        others = (Path(path) / "lib" for path in target.closure())
        folder = next(filter(target.has_main, others), None)
    return structs.replace(target, folder=(folder or output).resolve())


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
    """Run the parts that apply."""
    left_out = {"closure"} if target.artefact is None else set()
    left_out |= {"features"} if target.package.companion else set()
    parts = tuple(look(name, target) for name in PARTS if name not in left_out)
    states = {part.state for part in parts}
    outcome: Literal["failed", "skipped", "passed"] = "passed"
    outcome = "failed" if "failed" in states else "skipped" if "skipped" in states else outcome
    # Why a part failed or was skipped: its first error, or what is undecided.
    reasons = [
        f"{part.id}: {finding.path}: {finding.found}"
        for part in parts
        for finding in [it for it in part.findings if _STATES.get(it.severity) == outcome][:1]
    ]
    return Inspection(
        variant=target.package.id,
        outcome=outcome,
        reasons=tuple(reasons),
        folder=str(target.folder),
        parts=parts,
    )


def look(name: str, target: Target) -> PartResult:
    """Run a part, which is undecided if a tool fails or a file cannot be read."""
    (check, fix), figures = PARTS[name], dict[str, Any]()
    try:
        findings = list(check(target, figures))
    except (ToolError, OSError) as error:
        findings = [InspectionFinding("undecided", name, str(error).partition("\n")[0])]
    for finding in findings:
        finding.fix = finding.fix or fix
    severities = {finding.severity for finding in findings}
    states = [state for severity, state in _STATES.items() if severity in severities]
    state = states[0] if states else "passed"
    return PartResult(id=name, state=state, findings=findings, figures=figures)
