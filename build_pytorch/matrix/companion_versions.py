"""The packages that may be companions, and their versions by PyTorch: companion_versions.toml."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

from build_pytorch.base import files
from build_pytorch.matrix import field_types

_FILE = Path(__file__).with_suffix(".toml")
_REPOSITORIES = {"torch": "pytorch/pytorch", "triton": "triton-lang/triton"}


class KnownCompanion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package that may be a companion; the file explains the fields."""

    title: field_types.Text
    repository: field_types.Text
    folder: field_types.Text
    libraries: str
    main: tuple[str, ...]
    device_code: tuple[str, ...]


class VersionSet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The versions that belong to one PyTorch, by package; one that is missing is not known."""

    torch: field_types.Version
    versions: dict[str, field_types.Version]
    source: field_types.Origin
    checked: field_types.Date
    unconfirmed: field_types.Text | None = None


class _Tables(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    companion: dict[str, KnownCompanion]
    set: tuple[VersionSet, ...]


@functools.cache
def _tables() -> _Tables:
    return msgspec.convert(tomllib.loads(files.read_named(_FILE).decode()), _Tables)


def known_companions() -> dict[str, KnownCompanion]:
    """Return the packages that may be companions, by their name in nixpkgs."""
    return _tables().companion


def repository_of(package: str) -> tuple[str, str]:
    """Return owner and repository on GitHub of torch, triton or a companion."""
    known = known_companions().get(package)
    owner, _, repo = (known.repository if known else _REPOSITORIES[package]).partition("/")
    return owner, repo


def version_sets() -> dict[str, VersionSet]:
    """Return the known sets by the version of PyTorch."""
    return {versions.torch: versions for versions in _tables().set}


def version_for(torch: str, package: str) -> str | None:
    """Return the version of a companion or of triton for a PyTorch; None if unknown."""
    known = version_sets().get(torch)
    return known.versions.get(package) if known else None


def torch_of(package: str, version: str) -> str | None:
    """Return the PyTorch that a version of a companion belongs to; None if unknown."""
    sets = version_sets().values()
    return next((known.torch for known in sets if known.versions.get(package) == version), None)
