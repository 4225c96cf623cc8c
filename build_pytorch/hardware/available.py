"""What a person can install today in place of a build: available.toml explains the fields."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Collection
from typing import Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base import files
from build_pytorch.base.versions import numbers
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.compatibility import TEGRA, runs_on

INDEX: Final = "https://download.pytorch.org/whl/"
"""PyTorch's own indexes of wheels, such as .../cu128; pytorch.org, "Get started", 2026-11-22."""
_CONDA: Final = {
    "pixi": "pixi add",
    "mamba": "mamba install -c conda-forge",
    "conda": "conda install -c conda-forge",
}
_FRESH: Final = dt.timedelta(days=90)

Fit = Literal["exact", "compatible", "ptx"]
"""Machine code of this capability, of an older one of the same major, PTX for the driver."""


class AvailableBuild(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A PyTorch that somebody publishes, or another one in the same terms."""

    who: Literal["PyPI", "index", "Flox", "conda-forge", "NVIDIA", "nixpkgs", "matrix", "installed"]
    versions: tuple[ft.Text, ...]
    newest: bool = False
    platform: str
    cuda: str = ""
    code: tuple[ft.Capability, ...] = ()
    ptx: str = ""
    cpu: str = ""
    driver: str = "0"
    blackwell_compile: str = ""
    pythons: tuple[ft.Text, ...] = ()
    index: str | None = None
    spec: str = ""
    old_gpus: str = ""
    command: str = ""
    size: str = ""
    remark: str = ""
    source: ft.Origin = ""
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
        return _fit(self.code, self.ptx, capability)

    def install(self, tools: Collection[str] = (), *, for_old_gpu: bool = False) -> str:
        """Return the command that installs it, for a person who has `tools`."""
        if self.spec:
            program = next((it for it in _CONDA if it in tools), "mamba")
            return f"{_CONDA[program]} {self.spec} {self.old_gpus * for_old_gpu}".rstrip()
        if self.command:
            return self.command.replace("{version}", self.version)
        torch = "torch" if self.newest else f"torch=={self.version}"
        if "uv" in tools:
            return f"uv pip install {torch} --torch-backend={self.index or ''}".removesuffix(
                " --torch-backend="
            )
        return f"pip install {torch} --index-url {INDEX}{self.index}".removesuffix(
            f" --index-url {INDEX}"
        )


@functools.cache
def _fit(codes: tuple[str, ...], ptx: str, capability: str) -> Fit | None:
    if fits := {runs_on(code, capability) for code in codes} - {None}:
        return "exact" if "exact" in fits else "compatible"
    is_newer = bool(ptx) and numbers(ptx) <= numbers(capability)
    is_other_tegra = ptx != capability and bool(TEGRA & {ptx, capability})
    return "ptx" if is_newer and not is_other_tegra else None


@functools.cache
def available_builds() -> tuple[AvailableBuild, ...]:
    """Return all rows, in the order of the file."""
    text = files.own_text(__package__, "available.toml")
    return msgspec.toml.decode(text, type=dict[str, tuple[AvailableBuild, ...]])["build"]


def stale_builds(today: dt.date) -> str:
    """Return one line that names the rows which nobody has checked for 90 days, or ""."""
    old = [build for build in available_builds() if today - build.checked > _FRESH]
    names = ", ".join(dict.fromkeys(build.who for build in old))
    return f"available.toml: {len(old)} rows not checked for 90 days: {names}" if old else ""
