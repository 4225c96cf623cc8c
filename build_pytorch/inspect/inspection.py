"""An inspection: finds the files of a package, runs the parts, records the result."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, structs

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.inspect import closure, compiled_features, config, device_code
from build_pytorch.inspect.elf_file import MACHINES, read_elf
from build_pytorch.inspect.part import TORCH, Part, PartResult, Progress, Target
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.nix import store
from build_pytorch.results import artefacts, evidence
from build_pytorch.results.artefacts import Artefact


def check_libraries(target: Target, result: PartResult, _progress: Progress) -> None:
    """Find libraries that are not complete ELF files of the platform. Only headers are read."""
    libraries, product = target.libraries(), target.product
    platform = target.variant.platform
    result.passed = [library.name for library in libraries]
    if not target.has_main(target.folder):
        found = f"not in {target.folder}, nor in the closure"
        result.error(product.main[0], found, f"{product.title}'s library")
    for library in libraries:
        place = os.path.realpath(library)
        if target.artefact and not place.startswith(f"{store.folder()}/"):
            found = f"a link that leads out of the Nix store: {place}"
            result.error(library.name, found, "a file of the result")
            continue
        try:
            machine = read_elf(library).machine
        except ToolError as error:
            expected = "a shared library of 64 bits, little-endian"
            result.error(library.name, f"not a complete ELF file: {error}", expected)
        else:
            if machine != MACHINES[platform]:
                found = f"an ELF file for machine {machine}"
                result.error(library.name, found, f"{MACHINES[platform]}, which is {platform}")


PARTS: Final = (
    Part(
        "files",
        "{product}'s libraries are complete ELF files",
        "build the variant again from its recipe",
        check_libraries,
        needs_files=False,
    ),
    Part(
        "device-code",
        "{product}'s device code is for the variant's GPU architecture, and for no other",
        "look at gpuTargets in the recipe and build again",
        device_code.check_device_code,
    ),
    Part(
        "config",
        "{product}'s build configuration agrees with the matrix",
        "build the variant again from its recipe",
        config.check_config,
    ),
    Part(
        "features",
        "{product} has what the official wheel of its version has",
        "compile it in, or name it with a reason in `without` of matrix.toml",
        compiled_features.check_features,
        of_torch=True,
    ),
    Part(
        "closure",
        "one CUDA version in the closure, and no more bytes than allowed",
        "look at the overlays in the recipe, or raise closure_gib in matrix.toml",
        closure.check_closure,
        needs_result=True,
        needs_files=False,
    ),
)


class Inspection(Struct, frozen=True, kw_only=True):
    """The result for one package; the fields are the keys of --json and of the report."""

    release: str
    variant: str
    package: str
    outcome: Literal["passed", "failed", "skipped", "not run"] = "not run"
    """Failed if one part failed, passed if no part was skipped, else skipped."""
    reasons: tuple[str, ...] = ()
    folder: str = ""
    output: str = ""
    recorded: bool = False
    report: str = ""
    """Path of the report below the root."""
    parts: tuple[PartResult, ...] = ()


def built_target(package: Package, artefact: Artefact) -> Target:
    """Return the built files of a package; the whole result if its library is not found in it.

    Raises ToolError if the store cannot be queried.
    """
    output = artefact.output
    target = Target(package=package, folder=output, artefact=artefact)
    places = sorted(output.glob(f"lib/python3*/site-packages/{target.product.folder}"))
    folder = next(filter(target.has_main, [*places, output / "lib"]), None)
    if folder is None and isinstance(package, Variant):
        # The libraries of PyTorch may be in another output of its derivation.
        others = (Path(path) / "lib" for path in store.requisites(str(output)))
        folder = next(filter(target.has_main, others), None)
    return structs.replace(target, folder=(folder or output).resolve())


def folder_target(package: Package, folder: Path) -> Target:
    """Return the files of a folder given by the user. Raises BuildPytorchError."""
    if not folder.is_dir():
        raise BuildPytorchError(f"--path {folder}: no such folder")
    target = Target(package=package, folder=folder.resolve())
    product = target.product
    if not target.has_main(folder):
        raise BuildPytorchError(
            f"--path {folder}: no {product.main[0]} in it; give the folder of {product.title}'s "
            f"libraries, such as .../site-packages/{product.folder}"
        )
    return target


def inspect_result(root: Path, package: Package, progress: Progress) -> Inspection:
    """Inspect the result of a package; save and record the report. Raises WriteError."""
    artefact = artefacts.find(root, package)
    if artefact is None:
        return _not_run(package, artefacts.absence(root, package))
    try:
        target = built_target(package, artefact)
    except (ToolError, OSError) as error:
        reason = str(error).partition("\n")[0]
        return _not_run(package, f"{artefact.link.name}: {reason}")
    result = inspect_target(target, progress)
    return evidence.record_evidence(root, package, artefact, test="inspect", result=result)


def inspect_target(target: Target, progress: Progress) -> Inspection:
    """Run the parts that apply; the first one checks whether the libraries are complete."""
    results: list[PartResult] = []
    for part in PARTS:
        if (part.needs_result and not target.artefact) or (
            part.of_torch and target.product is not TORCH
        ):
            continue
        if part.needs_files and results[0].state == "failed":
            results.append(part.skipped(target, "the libraries are not complete"))
        else:
            results.append(part.inspect(target, progress))
    states = {result.state for result in results}
    outcome = "failed" if "failed" in states else "skipped" if "skipped" in states else "passed"
    return structs.replace(
        _not_run(target.package),
        outcome=outcome,
        reasons=tuple(part.problem for part in results if part.state == outcome != "passed"),
        folder=str(target.folder),
        output=str(target.artefact.output) if target.artefact else "",
        parts=tuple(results),
    )


def _not_run(package: Package, *reasons: str) -> Inspection:
    return Inspection(
        release=package.release_name, variant=package.id, package=package.package, reasons=reasons
    )
