"""What a person can install today in place of a build: available.toml explains the fields."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct, structs

from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.compatibility import Fit, fit
from build_pytorch.matrix.versions import numbers

INDEX: Final = "https://download.pytorch.org/whl/"
"""PyTorch's own indexes of wheels, such as .../cu128; pytorch.org, "Get started", 2026-11-22."""
_CONDA: Final = {
    "pixi": "pixi add",
    "mamba": "mamba install -c conda-forge",
    "conda": "conda install -c conda-forge",
}
_DRIVERS: Final = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}
"""The oldest Linux driver of each major version of CUDA: docs.nvidia.com/deploy/cuda-compatibility,
"Minor Version Compatibility"; checked 2026-11-24."""
WITH_CUDNN: Final = (7, 5)
"""GPUs below this capability get no cuDNN of 9.11 or newer: NVIDIA, support matrix, 2026-11."""


class AvailableBuild(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A PyTorch that somebody publishes, or another one in the same terms."""

    who: Literal["PyPI", "index", "Flox", "conda-forge", "NVIDIA", "nixpkgs", "matrix", "installed"]
    versions: tuple[ft.Text, ...]
    newest: bool = False
    platform: str
    cuda: str = ""
    code: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    cpu: str = ""
    driver: str = "0"  #: by default that of its CUDA
    blackwell_compile: str = ""
    pythons: tuple[ft.Text, ...] = ()
    index: str | None = None
    spec: str = ""
    old_gpus: str = ""
    command: str = ""
    features: dict[str, str] = {}
    remark: str = ""
    source: ft.Text = ""
    checked: dt.date = dt.date.max
    unconfirmed: str = ""

    @property
    def version(self) -> str:
        """The newest version of PyTorch, or an empty text where none is known."""
        return self.versions[-1] if self.versions else ""

    @property
    def installer(self) -> str:
        """The program that installs it, such as pip, conda or flox."""
        words = [word for word in self.command.split() if "=" not in word]
        return "conda" if self.spec else words[0] if words else "pip"

    def fit(self, capability: str) -> Fit | None:
        """Return what it has for a GPU of a compute capability; None for nothing."""
        return fit(self.code, self.ptx, capability)

    def install(self, tools: Collection[str] = (), gpus: Collection[str] = ()) -> str:
        """Return the command that installs it, for a person who has `tools` and GPUs."""
        if self.spec:
            is_old = any(numbers(capability) < WITH_CUDNN for capability in gpus)
            program = next((it for it in _CONDA if it in tools), "mamba")
            return f"{_CONDA[program]} {self.spec} {self.old_gpus * is_old}".rstrip()
        if self.command:
            return self.command.replace("{version}", self.version)
        torch = "torch" if self.newest else f"torch=={self.version}"
        if "uv" in tools:
            index = f" --torch-backend={self.index}" if self.index else ""
            return f"uv pip install {torch}{index}"
        index = f" --index-url {INDEX}{self.index}" if self.index else ""
        return f"pip install {torch}{index}"


@functools.cache
def available_builds() -> tuple[AvailableBuild, ...]:
    """Return all rows, in the order of the file."""
    text = Path(__file__).with_name("available.toml").read_text("utf-8")
    rows = msgspec.toml.decode(text, type=dict[str, tuple[AvailableBuild, ...]])["build"]
    return tuple(structs.replace(row, driver=driver_of(row.cuda)) for row in rows)


def driver_of(cuda: str) -> str:
    """Return the oldest Linux driver of a CUDA; 0 for none and for an unknown one."""
    return _DRIVERS.get(cuda.partition(".")[0], "0")


def stale_builds(today: dt.date) -> str:
    """Return one line that names the rows which nobody has checked for 90 days, or ""."""
    old = [build for build in available_builds() if today - build.checked > dt.timedelta(days=90)]
    names = ", ".join(dict.fromkeys(build.who for build in old))
    return f"available.toml: {len(old)} rows not checked for 90 days: {names}" if old else ""
