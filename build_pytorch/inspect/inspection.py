"""An inspection: finds the files of a variant, runs the parts, records the result."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.inspect import closure, config, device_code, instructions, libraries
from build_pytorch.inspect.part import Part, PartResult, Progress, Target, has_libtorch
from build_pytorch.matrix.model import Variant
from build_pytorch.nix.store import requisites
from build_pytorch.results import artefacts, evidence
from build_pytorch.results.artefacts import Artefact

PARTS: Final = (
    Part(
        "files",
        "PyTorch's libraries are complete ELF files",
        "build the variant again from its recipe",
        libraries.look,
        needs_files=False,
    ),
    Part(
        "device-code",
        "PyTorch's device code is for the variant's GPU architecture, and for no other",
        "look at gpuTargets in the recipe and build again",
        device_code.look,
    ),
    Part(
        "instructions",
        "instructions of the variant's CPU ISA, and none above it in common code",
        "look at the recipe's cpuFlags and build again",
        instructions.look,
    ),
    Part(
        "config",
        "torch.__config__ agrees with the matrix",
        "build the variant again from its recipe",
        config.look,
    ),
    Part(
        "closure",
        "one CUDA version in the closure, and no more bytes than allowed",
        "look at the overlays in the recipe, or raise closure_gib in matrix.toml",
        closure.look,
        needs_result=True,
        needs_files=False,
    ),
)


class Inspection(Struct, frozen=True, kw_only=True):
    """The result for one variant; the fields are the keys of --json and of the report."""

    release: str
    variant: str
    package: str
    outcome: Literal["passed", "failed", "skipped", "not run"] = "not run"
    """Failed if one part failed, passed if no part was skipped, else skipped."""
    reasons: tuple[str, ...] = ()
    """Why the variant did not pass."""
    folder: str = ""
    output: str = ""
    recorded: bool = False
    report: str = ""
    """Path of the report below the root."""
    parts: tuple[PartResult, ...] = ()


def built_target(variant: Variant, artefact: Artefact) -> Target:
    """Return the built files of a variant; the whole result if PyTorch is not found in it.

    Raises ToolError if the store cannot be queried.
    """
    output = artefact.output
    candidates = [*sorted(output.glob("lib/python3*/site-packages/torch/lib")), output / "lib"]
    folder = next(filter(has_libtorch, candidates), None)
    if folder is None:  # a derivation with a separate output for libraries
        others = (Path(path) / "lib" for path in requisites(str(output)))
        folder = next(filter(has_libtorch, others), output)
    return Target(variant=variant, folder=folder.resolve(), artefact=artefact)


def folder_target(variant: Variant, folder: Path) -> Target:
    """Return the files of a folder given by the user. Raises BuildPytorchError."""
    if not folder.is_dir():
        raise BuildPytorchError(f"--path {folder}: no such folder")
    if not has_libtorch(folder):
        raise BuildPytorchError(
            f"--path {folder}: no libtorch_cpu.so in it; give the folder of PyTorch's libraries, "
            "such as .../site-packages/torch/lib"
        )
    return Target(variant=variant, folder=folder.resolve())


def inspect_result(root: Path, variant: Variant, progress: Progress) -> Inspection:
    """Inspect the result of a variant; save and record the report. Raises WriteError."""
    artefact = artefacts.find(root, variant)
    if artefact is None:
        return _not_run(variant, artefacts.absence(root, variant))
    try:
        target = built_target(variant, artefact)
    except (ToolError, OSError) as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        return _not_run(variant, f"{artefact.link.name}: {reason}")
    result = inspect_target(target, progress)
    report, recorded = evidence.record_evidence(
        root,
        variant,
        artefact,
        test="inspect",
        outcome=result.outcome,
        reasons=result.reasons,
        document=msgspec.to_builtins(result),
    )
    return msgspec.structs.replace(result, report=report, recorded=recorded)


def inspect_target(target: Target, progress: Progress) -> Inspection:
    """Run the parts that apply; the first one checks whether the libraries are complete."""
    results: list[PartResult] = []
    for part in PARTS:
        if part.needs_result and not target.artefact:
            continue
        if part.needs_files and results[0].state == "failed":
            results.append(part.skipped("the libraries are not complete"))
        else:
            results.append(part.inspect(target, progress))
    states = {part.state for part in results}
    undecided: Literal["skipped", "passed"] = "skipped" if "skipped" in states else "passed"
    return msgspec.structs.replace(
        _not_run(target.variant),
        outcome="failed" if "failed" in states else undecided,
        reasons=tuple(part.problem for part in results if part.state in {"failed", "skipped"}),
        folder=str(target.folder),
        output=target.output,
        parts=tuple(results),
    )


def _not_run(variant: Variant, *reasons: str) -> Inspection:
    return Inspection(
        release=variant.release_name, variant=variant.id, package=variant.package, reasons=reasons
    )
