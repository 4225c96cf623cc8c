"""The versions of companions that belong to a PyTorch: companion_versions.toml."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

from build_pytorch.base import files
from build_pytorch.matrix import field_types

_FILE = Path(__file__).with_suffix(".toml")


class VersionSet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The versions that belong to one PyTorch; None for one that is not known."""

    torch: field_types.Version
    torchvision: field_types.Version | None = None
    torchaudio: field_types.Version | None = None
    triton: field_types.Version | None = None
    source: field_types.Origin
    checked: field_types.Date
    unconfirmed: field_types.Text | None = None


class KnownCompanion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package that may be a companion."""

    title: field_types.Text
    """How the package calls itself, such as TorchVision."""


class _Tables(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    companion: dict[str, KnownCompanion]
    set: tuple[VersionSet, ...]


@functools.cache
def _tables() -> _Tables:
    return msgspec.convert(tomllib.loads(files.read_named(_FILE).decode()), _Tables)


def known_companions() -> dict[str, KnownCompanion]:
    """Return the packages that may be companions, by their name in nixpkgs."""
    return _tables().companion


@functools.cache
def version_sets() -> dict[str, VersionSet]:
    """Return the known sets by the version of PyTorch."""
    return {found.torch: found for found in _tables().set}


def version_for(torch: str, companion: str) -> str | None:
    """Return the version of torchvision, torchaudio or triton for a PyTorch; None if unknown."""
    found = version_sets().get(torch)
    version: str | None = getattr(found, companion) if found else None
    return version


def torch_of(companion: str, version: str) -> str | None:
    """Return the PyTorch that a version of a companion belongs to; None if unknown."""
    sets = version_sets().values()
    return next((found.torch for found in sets if getattr(found, companion) == version), None)
