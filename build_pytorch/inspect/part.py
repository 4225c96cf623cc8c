"""What the parts of an inspection share: the files they look at, and the result they fill in."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import CompanionPackage, Package, Variant
from build_pytorch.matrix.source_tables import KnownCompanion, known_companions
from build_pytorch.results.artefacts import Artefact

Progress = Callable[[str, int, int], None]
"""Called with what is read, how much of it is done, and how much there is (0: unknown)."""

TORCH: Final = KnownCompanion(
    title="PyTorch",
    repository="pytorch/pytorch",
    folder="torch/lib",
    libraries=r"lib(?:torch|c10|caffe2|shm)\w*\.so",
    main=("libtorch_cpu.so",),
    device_code=("libtorch_cuda.so",),
)
"""PyTorch, described as companion_versions.toml describes the companions."""

_UNREADABLE: Final = (ArithmeticError, ValueError, LookupError, MemoryError, struct.error)
"""What reading a file that somebody else made may raise besides ToolError and OSError."""


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
    def product(self) -> KnownCompanion:
        """What the libraries are called and where they are."""
        if isinstance(self.package, CompanionPackage):
            return known_companions()[self.package.name]
        return TORCH

    def has_main(self, folder: Path) -> bool:
        """Whether a folder has the product's main library, of any file type."""
        return any(os.path.lexists(folder / name) for name in self.product.main)

    def libraries(self) -> list[Path]:
        """Return the product's own libraries."""
        ours = re.compile(self.product.libraries)
        return sorted(path for path in self.folder.iterdir() if ours.fullmatch(path.name))


class PartFinding(Struct):
    """A difference from the expected. `path` is one of the things that the part looked at."""

    path: str
    severity: Literal["error", "warning"]
    found: str
    expected: str
    fix: str = ""


class PartResult(Struct, kw_only=True):
    """The outcome of one part, which fills it in; the fields are keys of --json."""

    id: str
    title: str
    state: Literal["passed", "failed", "warning", "skipped"] = "skipped"
    reason: str = ""
    """Why the part was skipped, or what could not be decided; then it does not pass."""
    passed: list[str] = []
    """The files or other things that the part looks at; in the end those without a finding."""
    failed: list[str] = []
    findings: list[PartFinding] = []
    notes: list[str] = []
    """Facts for people that are neither right nor wrong."""
    figures: dict[str, Any] = {}

    def error(self, path: str, found: str, expected: str, fix: str = "") -> None:
        """Add a finding that fails the part."""
        self.findings.append(PartFinding(path, "error", found, expected, fix))

    def warning(self, path: str, found: str, expected: str, fix: str = "") -> None:
        """Add a finding that does not fail the part."""
        self.findings.append(PartFinding(path, "warning", found, expected, fix))

    def conclude(self, fix: str) -> None:
        """Decide the state from the findings; `fix` is for those that have none of their own."""
        with_finding = {finding.path for finding in self.findings}
        if any(finding.severity == "error" for finding in self.findings):
            self.state = "failed"
        elif not self.reason and self.passed:
            self.state = "warning" if self.findings else "passed"
        self.failed = [name for name in self.passed if name in with_finding]
        kept = [] if self.reason else self.passed
        self.passed = [name for name in kept if name not in with_finding]
        for finding in self.findings:
            finding.fix = finding.fix or fix

    @property
    def problem(self) -> str:
        """Why the part did not pass: its first error, or what could not be decided."""
        errors = (f"{f.path}: {f.found}" for f in self.findings if f.severity == "error")
        return f"{self.id}: {next(errors, self.reason)}"


class Part(Struct, frozen=True):
    """One part of an inspection: a stable id, a title, how to fix a violation, the check.

    In the title, {product} is PyTorch or the companion. `check` raises ToolError if it cannot look.
    `needs_result`: it looks at a store path, so a folder has nothing for it. `needs_files`: it
    reads the libraries. `of_torch`: companions have nothing for it.
    """

    id: str
    title: str
    fix: str
    check: Callable[[Target, PartResult, Progress], None]
    needs_result: bool = False
    needs_files: bool = True
    of_torch: bool = False

    def inspect(self, target: Target, progress: Progress) -> PartResult:
        """Check the files; skipped if a tool is missing or fails or a file cannot be read."""
        result = self.skipped(target)
        progress(self.id, 0, 0)
        try:
            self.check(target, result, progress)
        except (ToolError, OSError) as error:
            return self.skipped(target, str(error).partition("\n")[0])
        except _UNREADABLE as error:
            why = f"the files cannot be read: {type(error).__name__}: {error}"
            return self.skipped(target, why)
        result.conclude(self.fix)
        return result

    def skipped(self, target: Target, reason: str = "") -> PartResult:
        """Return the result of a part that has not looked."""
        title = self.title.format(product=target.product.title)
        return PartResult(id=self.id, title=title, reason=reason)
