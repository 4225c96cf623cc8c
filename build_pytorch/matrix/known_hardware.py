"""What is known of GPUs, CPUs, CUDA, nixpkgs, rules and companions without a matrix."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.tables import CpuIsa, GpuArchitecture, Patch, Pin, Rule, TomlTable
from build_pytorch.matrix.versions import in_range, numbers

_KINDS: Final = ("gpu", "cpu", "processor", "cuda", "pin", "rule", "patch", "source")


class KnownGpu(GpuArchitecture, frozen=True, kw_only=True):
    """A GPU architecture with the names of its products."""

    names: tuple[str, ...] = ()
    arm_only: dict[str, str] = msgspec.field(default_factory=dict)
    """Those that exist in ARM machines only, with the processor beside each."""


class KnownProcessor(TomlTable, frozen=True, kw_only=True):
    """CPUs of a generation, with the highest ISA that they have."""

    title: ft.Text
    platform: ft.Platform
    isa: ft.Key | None = None
    flags: str = ""  #: some of their flags, where they have no ISA
    archspec: str = ""  #: its name in archspec, with which a test compares the ISA
    names: tuple[str, ...]  #: regular expressions for the words of their names
    source: ft.Text
    checked: ft.Date


class KnownCuda(msgspec.Struct, frozen=True, kw_only=True):
    """A version of CUDA: the oldest Linux driver that runs it, and the one that came with it."""

    driver: ft.DriverVersion
    bundled: ft.DriverVersion | None = None
    source: ft.Text
    checked: ft.Date


class KnownCompanion(TomlTable, frozen=True, kw_only=True):
    """A package that may be a companion; the file explains the fields."""

    title: ft.Text
    repository: ft.Text
    folder: ft.Text
    libraries: str
    main: tuple[str, ...]
    device_code: tuple[str, ...]
    no_device_code: ft.Range | None = None


class KnownVersions(TomlTable, frozen=True, kw_only=True):
    """The versions of a package, each with the versions of PyTorch that it is for."""

    source: ft.Text
    checked: ft.Date
    torch: dict[ft.Version, ft.Range]


class KnownHardware(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The content of the files in known/."""

    gpu: dict[ft.Key, KnownGpu]
    cpu: dict[ft.Key, CpuIsa]
    processor: dict[ft.Key, KnownProcessor]
    cuda: dict[ft.CudaVersion, KnownCuda]
    pin: dict[ft.Key, Pin]
    rule: tuple[Rule, ...]
    patch: dict[ft.Key, Patch]
    companion: dict[str, KnownCompanion]  #: what may be a companion, by the name in nixpkgs
    versions: dict[str, KnownVersions]
    raw: dict[str, Any] = {}  #: the tables as they are written


@functools.cache
def load() -> KnownHardware:
    """Read the facts that come with the program."""
    raw: dict[str, Any] = {}
    for name in (*(f"known/{kind}.toml" for kind in _KINDS), "companion_versions.toml"):
        raw |= tomllib.loads((Path(__file__).parent / name).read_text("utf-8"))
    return msgspec.structs.replace(msgspec.convert(raw, KnownHardware), raw=raw)


@functools.cache
def of_capability(capability: str | None) -> KnownGpu | None:
    """Return the known GPU architecture of a compute capability, or None."""
    return next((gpu for gpu in load().gpu.values() if gpu.capability == capability), None)


def repository_of(package: str) -> tuple[str, str]:
    """Return owner and repository on GitHub of torch or a companion."""
    known = load().companion.get(package)
    owner, _, repo = (known.repository if known else "pytorch/pytorch").partition("/")
    return owner, repo


def required_torch(package: str, version: str) -> str | None:
    """Return the versions of PyTorch that a version of a companion or of triton is for.

    It is such as `==2.10.0` or `>=2.14.0`; None if unknown.
    """
    known = load().versions.get(package)
    return known.torch.get(version) if known else None


def version_for(torch: str, package: str) -> str | None:
    """Return the newest version of a companion or of triton for a PyTorch; None if unknown.

    None is known for a nightly, which has the ABI of no release.
    """
    known = {} if ".dev" in torch else load().versions[package].torch
    fitting = [version for version, bounds in known.items() if in_range(torch, bounds)]
    return max(fitting, key=numbers, default=None)
