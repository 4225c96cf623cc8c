"""What an inspection looks at, and what it finds."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.known_hardware import KnownCompanion
from build_pytorch.matrix.model import Package
from build_pytorch.nix import store
from build_pytorch.results.artefacts import Artefact

TORCH: Final = KnownCompanion(
    title="PyTorch",
    repository="pytorch/pytorch",
    folder="torch/lib",
    libraries=r"lib(?:torch|c10|caffe2|shm)\w*\.so",
    main=("libtorch_cpu.so",),
    device_code=("libtorch_cuda.so",),
)
"""PyTorch, described as companion_versions.toml describes the companions."""


class Target(Struct, frozen=True, kw_only=True):
    """The built files of a package: a result, or without an artefact a folder of the user."""

    package: Package
    folder: Path  #: of the main library, or where it should be
    artefact: Artefact | None = None
    earlier: tuple[str, int] = ("", 0)  #: report and bytes of the closure of an earlier result

    @property
    def product(self) -> KnownCompanion:
        """What the libraries are called and where they are."""
        if self.package.companion:
            return known_hardware.load().companion[self.package.name]
        return TORCH

    def closure(self) -> list[str]:
        """Return the store paths of a result; none for a folder. Raises ToolError."""
        return store.requisites(str(self.artefact.output)) if self.artefact else []

    def has_main(self, folder: Path) -> bool:
        """Whether a folder has the product's main library, of any file type."""
        return any(os.path.lexists(folder / name) for name in self.product.main)

    def libraries(self) -> list[Path]:
        """Return the product's own libraries."""
        ours = re.compile(self.product.libraries)
        return sorted(path for path in self.folder.iterdir() if ours.fullmatch(path.name))


class InspectionFinding(Struct):
    """What is not as expected; undecided: it could not be read; note: neither right nor wrong."""

    severity: Literal["error", "undecided", "warning", "note"]
    path: str  #: the library or other thing that has it
    found: str
    expected: str = ""
    fix: str = ""
