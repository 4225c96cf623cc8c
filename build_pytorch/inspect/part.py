"""The parts of an inspection: what they look at, what they report, and their results."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct, structs

from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.companion_versions import known_companions
from build_pytorch.matrix.model import CompanionPackage, Package, Variant
from build_pytorch.results.artefacts import Artefact

Progress = Callable[[str, int, int], None]
"""Called with what is read, how much of it is done, and how much there is (0: unknown)."""

_UNREADABLE: Final = (ArithmeticError, ValueError, LookupError, MemoryError, struct.error)
"""What reading a file that somebody else made may raise besides ToolError and OSError."""


class Product(Struct, frozen=True, kw_only=True):
    """Where the libraries of PyTorch or of a companion are, and what they are called."""

    title: str
    place: str
    """The folder of the libraries, below site-packages."""
    libraries: str
    """A pattern of the names of its own libraries, without those that a wheel bundles."""
    main: tuple[str, ...]
    """The names that the library with most of its CPU code may have."""
    cuda: tuple[str, ...]
    """The names that the library with its device code may have."""

    def main_of(self, folder: Path) -> str:
        """Return the name of the main library that is there, of any file type, or ""."""
        return next((name for name in self.main if os.path.lexists(folder / name)), "")


PRODUCTS: Final = {
    "torch": Product(
        title="PyTorch",
        place="torch/lib",
        libraries=r"lib(?:torch|c10|caffe2|shm)\w*\.so",
        main=("libtorch_cpu.so",),
        cuda=("libtorch_cuda.so",),
    )
} | {
    name: Product(
        title=companion.title,
        place=companion.folder,
        libraries=companion.libraries,
        main=companion.main,
        cuda=companion.device_code,
    )
    for name, companion in known_companions().items()
}
"""By name of the companion; `torch` for a variant."""


class Target(Struct, frozen=True, kw_only=True):
    """The built files of a package. Without an artefact: a folder given by the user."""

    package: Package
    folder: Path
    """The folder of the main library, or where it should be."""
    artefact: Artefact | None = None

    @property
    def variant(self) -> Variant:
        """The variant; for a companion the one that it is for."""
        return self.package.variant

    @property
    def product(self) -> Product:
        """What is inspected."""
        package = self.package
        return PRODUCTS[package.name if isinstance(package, CompanionPackage) else "torch"]

    def libraries(self) -> list[Path]:
        """Return the product's own libraries."""
        ours = re.compile(self.product.libraries)
        return sorted(path for path in self.folder.iterdir() if ours.fullmatch(path.name))


class PartFinding(Struct, frozen=True):
    """A difference from the expected. `path` is one of the part's subjects."""

    path: str
    severity: Literal["error", "warning"]
    found: str
    expected: str
    fix: str = ""


Findings = Iterator[PartFinding]
PartState = Literal["passed", "failed", "warning", "skipped"]


def error(path: str, found: str, expected: str, fix: str = "") -> PartFinding:
    """Return a finding that fails the part."""
    return PartFinding(path, "error", found, expected, fix)


def warning(path: str, found: str, expected: str, fix: str = "") -> PartFinding:
    """Return a finding that does not fail the part."""
    return PartFinding(path, "warning", found, expected, fix)


class PartRun(Struct):
    """The input of a part, and what it reports besides its findings."""

    target: Target
    progress: Progress
    subjects: list[str] = []
    """The files or other things that the part looks at."""
    figures: dict[str, Any] = {}
    notes: list[str] = []
    """Facts for people that are neither right nor wrong."""
    undecided: str = ""
    """What could not be decided; if not empty, the part does not pass."""


class PartResult(Struct, frozen=True, kw_only=True):
    """The outcome of one part; the fields are keys of --json."""

    id: str
    title: str
    state: PartState = "skipped"
    reason: str = ""
    """Why the part was skipped, or what could not be decided."""
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    findings: tuple[PartFinding, ...] = ()
    notes: tuple[str, ...] = ()
    figures: dict[str, Any] = {}

    @property
    def problem(self) -> str:
        """Why the part did not pass: its first error, or what could not be decided."""
        errors = (f"{f.path}: {f.found}" for f in self.findings if f.severity == "error")
        return f"{self.id}: {next(errors, self.reason)}"


class Part(Struct, frozen=True):
    """One part of an inspection: a stable id, a title, how to fix a violation, what looks.

    In the title, {product} is PyTorch or the companion. `look` yields findings and raises ToolError
    if it cannot look. `needs_result`: it looks at a store path, so a folder has nothing for it.
    `needs_files`: it reads the libraries.
    """

    id: str
    title: str
    fix: str
    look: Callable[[PartRun], Findings]
    needs_result: bool = False
    needs_files: bool = True

    def inspect(self, target: Target, progress: Progress) -> PartResult:
        """Look at the files; skipped if a tool is missing or fails or a file cannot be read."""
        run = PartRun(target, progress)
        try:
            findings = tuple(structs.replace(f, fix=f.fix or self.fix) for f in self.look(run))
        except (ToolError, OSError) as reason:
            return self.skipped(target, str(reason).partition("\n")[0])
        except _UNREADABLE as reason:
            why = f"the files cannot be read: {type(reason).__name__}: {reason}"
            return self.skipped(target, why)
        bad = {finding.path for finding in findings}
        state: PartState = "warning" if findings else "passed"
        if run.undecided or not run.subjects:
            state = "skipped"
        if any(finding.severity == "error" for finding in findings):
            state = "failed"
        return structs.replace(
            self.skipped(target, run.undecided),
            state=state,
            passed=() if run.undecided else tuple(n for n in run.subjects if n not in bad),
            failed=tuple(name for name in run.subjects if name in bad),
            findings=findings,
            notes=tuple(run.notes),
            figures=run.figures,
        )

    def skipped(self, target: Target, reason: str) -> PartResult:
        """Return the result of a part that could not look."""
        title = self.title.format(product=target.product.title)
        return PartResult(id=self.id, title=title, reason=reason)
