"""The command behind `invoke prove`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from build_pytorch.base.console import ProgressLine, Screen, print_json
from build_pytorch.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_UNDECIDED,
    BuildPytorchError,
    ToolError,
)
from build_pytorch.cli.commands import InspectOptions
from build_pytorch.inspect import closure, config, device_code, instructions, libraries
from build_pytorch.inspect.inspection import Part, Proof, Target, built, named
from build_pytorch.inspect.inspection_report import Proved, record, show
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.selection import select
from build_pytorch.results import artefacts
from build_pytorch.verify.check import CheckOutcome

PARTS: Final = (
    Part(
        id="files",
        title="PyTorch's libraries are whole ELF files",
        why="What is cut off, or is no library, cannot be read, and nothing is proved of it.",
        fix="build the variant again from its recipe",
        look=libraries.look,
        needs_files=False,
    ),
    Part(
        id="device-code",
        title="device code for the variant's GPU architecture, and for no other",
        why="A build for another architecture fails at the first kernel, a CPU-only one at the "
        "first tensor.",
        fix="look at gpuTargets in the recipe and build again",
        look=device_code.look,
    ),
    Part(
        id="instructions",
        title="instructions of the variant's CPU ISA, and none above it in common code",
        why="Code above the ISA ends with SIGILL on the CPUs that the variant is for; code below "
        "it is another build than its name says.",
        fix="look at the recipe's cpuFlags and build again",
        look=instructions.look,
    ),
    Part(
        id="config",
        title="torch.__config__ says what the matrix says",
        why="It is the build's own word on version, CUDA and flags.",
        fix="build the variant again from its recipe",
        look=config.look,
    ),
    Part(
        id="closure",
        title="one CUDA in the closure, which is no larger than it may be",
        why="Two CUDAs in one process fail in ways that nobody explains; a large closure cannot "
        "be uploaded.",
        fix="look at the overlays in the recipe, or raise closure_gib in matrix.toml",
        look=closure.look,
        needs_result=True,
        needs_files=False,
    ),
)


def run(options: InspectOptions) -> int:
    """Inspect the built files of variants, print the result, return the exit code.

    0: all passed; 1: one failed; 3: none failed and not all could be decided. Raises
    BuildPytorchError for bad input, WriteError if ledger or report cannot be written.
    """
    fleet = matrix_reader.load()
    base, path, json = options.root, options.path, options.json
    if not options.variants:
        raise BuildPytorchError("no variant given; for example: invoke inspect sm120-avx512")
    chosen = select(fleet, options.variants)
    if path and len(chosen) > 1:
        names = ", ".join(variant.id for variant in chosen[:3])
        raise BuildPytorchError(f"--path holds the files of one variant, not of {names}")
    screen = Screen(sys.stderr if json else sys.stdout)
    results = []
    for variant in chosen:
        result = _looked(variant, named(variant, path) if path else None, base)
        show(screen, result)
        results.append(result)
    code = _exit_code(results)
    if json:
        print_json({"variants": [r.as_dict() for r in results], "exit_code": code}, sys.stdout)
    return code


def _exit_code(results: Sequence[Proved]) -> int:
    states = {result.state for result in results}
    if "failed" in states:
        return EXIT_FINDINGS
    return EXIT_OK if states == {"passed"} else EXIT_UNDECIDED


def _looked(variant: Variant, target: Target | None, root: Path) -> Proved:
    """Prove one variant and record it. What is wrong with one result is no word on the others."""
    if target is None:
        found = artefacts.find(root, variant)
        if found is None:
            reason = artefacts.absence(root, variant)
            return Proved(variant=variant, target=None, reasons=(reason,))
        try:
            target = built(variant, found)
        except (ToolError, OSError) as error:
            why = str(error).split("\n", maxsplit=1)[0]
            return Proved(variant=variant, target=None, reasons=(f"{found.link.name}: {why}",))
    return record(root, _prove(variant, target))


def _prove(variant: Variant, target: Target) -> Proved:
    proofs: list[Proof] = []
    with _Line() as line:
        for part in PARTS:
            if part.needs_result and not target.artefact:
                continue
            if part.needs_files and proofs[0].state == "failed":
                reason = "the libraries are not whole"
                proofs.append(
                    Proof(outcome=CheckOutcome(check=part, not_run=(part.id,), reason=reason))
                )
            else:
                proofs.append(part.prove(target, line.tell))
    reasons = [_reason(proof) for proof in proofs if proof.state in {"failed", "skipped"}]
    return Proved(variant=variant, target=target, proofs=tuple(proofs), reasons=tuple(reasons))


def _reason(proof: Proof) -> str:
    """Why a part did not pass: what could not be decided, or the first thing that is wrong."""
    outcome = proof.outcome
    errors = [f for f in outcome.findings if f.severity == "error"]
    why = f"{errors[0].path}: {errors[0].found}" if errors else outcome.reason
    return f"{outcome.check.id}: {why}"


class _Line:
    """The progress line; several threads may tell."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress: ProgressLine | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.end()

    def tell(self, what: str, done: int, total: int) -> None:
        """Show that so much of a part is done."""
        with self._lock:
            if self._progress and self._progress.total != total:
                self._progress.end()
                self._progress = None
            self._progress = self._progress or ProgressLine(what, total)
            self._progress.what = what
            self._progress.at(done)
