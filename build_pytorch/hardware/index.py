"""The index: what exists and what is known of it, for people and programs without a checkout.

`$schema`, `default-priorities` and `variants` are those of PEP 825 (draft of 2026, schema 0.1.1),
`providers` is what its reference implementation adds (variantlib 0.2.2). `build-pytorch` is ours:
the tables that decide, and the packages. The picker and torch-for-me.pyz read the same structs.
Checked 2026-11-23.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base import foreign_json
from build_pytorch.base.console import grouped
from build_pytorch.base.errors import DocumentError, MatrixError
from build_pytorch.base.versions import digits, order
from build_pytorch.hardware.wheels import Measurement
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.matrix.tables import environment_of

FORMAT: Final = "build-pytorch index 1"
SCHEMA: Final = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
LARGEST: Final = 4 << 20
"""Maximum size of an index in bytes; that of 300 packages has 200,000."""
_OWN: Final = "build_pytorch"
_LONGEST: Final = 16
"""Maximum length of a label, as in the first drafts of PEP 825."""
_PROVIDERS: Final = {
    "nvidia": "nvidia-variant-provider",
    "x86_64": "provider-variant-x86-64",
    "aarch64": "provider-variant-aarch64",
}
"""Packages on PyPI that tell what a machine has of a namespace."""

Label = Annotated[str, ft.like("[0-9a-z_.]{0,16}", "at most 16 of a-z, 0-9, _ and .")]
Name = Annotated[str, ft.like("[a-z0-9_]+", "a-z, 0-9 and _")]
Value = Annotated[str, ft.like("[a-z0-9_.]+", "a-z, 0-9, _ and .")]
Word = Annotated[str, ft.like("[A-Za-z0-9_.][A-Za-z0-9_.+/-]*", "a name or a path without spaces")]
StorePath = Annotated[str, ft.like("(/[A-Za-z0-9+._?=-]+)*", "the path of a store, or empty")]
Features = dict[Name, tuple[Value, ...]]


class IndexedPackage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One package: its names, and what is known of its builds."""

    label: Label = ""
    """Its key in `variants`; empty for companions, and where no machine can run it."""
    about: ft.Text
    package: Word
    """Its name in the catalogue of Flox."""
    environment: Word = "."
    """The Flox environment with its recipe, below the root; "." is the root."""
    attribute: Word | None = None
    """Its attribute in release.nix and flake.nix, if that is not the name of the package."""
    companions: tuple[ft.Name, ...] = ()
    """What is compiled against it, such as torchvision: with `+` before it the end of an id."""
    output: StorePath = ""
    """The store path of the current recipe's result."""
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 50, description="a number of bytes")] = 0
    """Size of that path in bytes; 0 if it is not in this store."""
    organizations: tuple[ft.Organization, ...] = ()
    """Where the result is published on FloxHub; an empty name is a user's own account."""
    evidence: dict[Name, ft.Text] = {}
    """What inspection, smoke test and comparison found, by `inspect`, `smoke` and `compare`."""
    comparisons: tuple[Measurement, ...] = ()


class Priorities(Struct, frozen=True):
    """`default-priorities`."""

    namespace: tuple[Name, ...]


class Provider(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who tells what a machine has of a namespace."""

    requires: tuple[ft.Text, ...] = ()
    static_properties: Features = msgspec.field(default_factory=dict, name="static-properties")
    feature_order: tuple[Name, ...] = msgspec.field(default=(), name="feature-order")


class OwnPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What PEP 825 does not have."""

    format: Literal["build-pytorch index 1"] = FORMAT
    matrix: dict[str, Any]
    """The tables of matrix.toml without build machines: `choose` decides from them."""
    packages: dict[str, IndexedPackage]
    """Variants and companions by id."""


class Index(Struct, frozen=True, kw_only=True):
    """The document."""

    schema: ft.Text = msgspec.field(default=SCHEMA, name="$schema")
    priorities: Priorities = msgspec.field(name="default-priorities")
    providers: dict[Name, Provider]
    variants: dict[Label, dict[Name, Features]]
    own: OwnPart = msgspec.field(name="build-pytorch")


def packages(matrix: Matrix) -> dict[str, IndexedPackage]:
    """Return all packages by id, without what a ledger knows."""
    every: tuple[Package, ...] = (*matrix.variants, *matrix.companions)
    companions: dict[str, list[str]] = {}
    for each in matrix.companions:
        companions.setdefault(each.variant.id, []).append(each.name)
    return {
        package.id: IndexedPackage(
            label=_label(package) if isinstance(package, Variant) else "",
            about=about(package),
            package=package.package,
            environment=environment_of(package.folder),
            attribute=package.attribute if package.shares_name else None,
            companions=tuple(companions.get(package.id, ())),
        )
        for package in every
    }


def about(package: Package) -> str:
    """Return what a package is, in words."""
    if not isinstance(package, Variant):
        return f"{package.name} {package.version}"
    on = f"on CUDA {package.cuda.version}" if package.cuda else "without CUDA"
    python = package.release.python.version
    return f"PyTorch {package.version} {on}, Python {python}, {package.cpu.title}"


def index_of(matrix: Matrix, known: Mapping[str, IndexedPackage]) -> Index:
    """Return the index of a matrix with what is known of its packages.

    Raises MatrixError for two variants with one label.
    """
    labels = grouped((label, v) for v in matrix.variants if (label := known[v.id].label))
    for label, (first, *others) in labels.items():
        if others:
            what = f"{first.id} and {others[0].id} have one label in the index, {label}"
            raise MatrixError(f"matrix.toml: {what}; give one of their releases another name")
    found = {label: properties(variant) for label, (variant,) in labels.items()}
    used = {name for each in found.values() for name in each} - {_OWN}
    releases = sorted(
        matrix.releases,
        key=lambda name: (
            not matrix.releases[name].torch.is_nightly,
            order(matrix.releases[name].torch.version),
        ),
        reverse=True,
    )
    own = Provider(
        static_properties={"release": tuple(releases), "wrapper": ("on",)},
        feature_order=("release", "wrapper"),
    )
    providers = {
        name: Provider(requires=(_PROVIDERS[name],)) for name in _PROVIDERS if name in used
    }
    tables = matrix_reader.tables(matrix.text)
    return Index(
        priorities=Priorities((*providers, _OWN)),
        providers={**providers, _OWN: own},
        variants=found,
        own=OwnPart(
            matrix={key: table for key, table in tables.items() if key != "builder"},
            packages=dict(known),
        ),
    )


def properties(variant: Variant) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the variant properties of PEP 825: by namespace and feature, the values."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    if variant.gpu and variant.cuda:
        codes = [f"{digits(capability)}_real" for capability in variant.gpu.capabilities]
        codes += [codes[-1].replace("real", "virtual")] if variant.gpu.ptx else []
        bound = {"cuda_version_lower_bound": (variant.cuda.version,)}
        found["nvidia"] = {"sm_arch": tuple(codes), **bound}
    if variant.cpu.cpuinfo:
        found[variant.platform.partition("-")[0]] = dict.fromkeys(variant.cpu.cpuinfo, ("on",))
    found[_OWN] = {"release": (variant.release_name,)}
    if variant.is_wrapper:
        found[_OWN]["wrapper"] = ("on",)
    return found


def _label(variant: Variant) -> str:
    """Return the id as a label, or its end and a digest if too long; "" if nothing runs it."""
    if variant.impossible:
        return ""
    words = re.sub("[^a-z0-9.]", "_", variant.id)
    if len(words) <= _LONGEST:
        return words
    digest = hashlib.sha256(variant.id.encode()).hexdigest()
    return f"{(variant.gpu_key or 'cpu')[:7]}.{digest[:8]}"


def parse(data: bytes, name: str) -> tuple[Matrix, Index]:
    """Return the matrix and the index of a document; `name` is its source in errors.

    Raises BuildPytorchError that names what is wrong and what is allowed.
    """
    try:
        raw = foreign_json.decode(data, max_bytes=LARGEST)
    except ValueError as error:
        raise DocumentError(f"{name}: not an index: {error}") from None
    index = ft.converted(raw, Index, f"{name}: ")
    return matrix_reader.of_tables(index.own.matrix, name), index
