"""The versions to move a release to, and the values of matrix.toml that follow from them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.versions import digits, minor_version, underscored
from build_pytorch.matrix import field_types, matrix_errors
from build_pytorch.matrix.companion_versions import version_for
from build_pytorch.matrix.matrix_editor import Value
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import Release, Trail


class BumpTarget(Struct, frozen=True, kw_only=True):
    """The versions to move to. What is None stays as it is."""

    torch: field_types.Version | None = None
    nixpkgs: field_types.Rev40 | None = None
    cuda: field_types.CudaVersion | None = None
    python: field_types.Version | None = None


def checked(name: str, version: str) -> str:
    """Return a version that is well-formed, or empty. Raises BuildPytorchError as `target_of`."""
    if version:
        target_of(**{name: version})
    return version


def new_name(name: str) -> str:
    """Return the key of a new release. Raises BuildPytorchError for a malformed one."""
    try:
        return msgspec.convert(name, field_types.Key)
    except msgspec.ValidationError:
        what = f'found "{name[:60]}"; allowed: a-z, 0-9 and _ (a dot breaks Flox)'
        raise BuildPytorchError(f"name of the release: {what}") from None


def target_of(**versions: str) -> BumpTarget:
    """Return the target with those versions that are not empty.

    Raises BuildPytorchError for none, or for one that is malformed and must not reach a URL.
    """
    given = {name: version for name, version in versions.items() if version}
    if not given:
        options = "--torch VERSION, --nixpkgs REV, --cuda VERSION or --python VERSION"
        raise BuildPytorchError(f"nothing to do; give {options}")
    try:
        return msgspec.convert(given, BumpTarget)
    except msgspec.ValidationError as error:
        (name,), what = matrix_errors.explain(error, given, BumpTarget)[0]
        raise BuildPytorchError(f"--{name}: {what}") from None


def values(matrix: Matrix, name: str, target: BumpTarget) -> Iterator[tuple[Trail, Value]]:
    """Yield every value of matrix.toml that follows from the target. Pure.

    Raises BuildPytorchError for a CUDA version and a release without CUDA, for a PyTorch and a
    release with the torch of its pin, and for a pin that other releases have as well.
    """
    at: Trail = ("release", name)
    release = matrix.releases[name]
    if target.torch:
        if release.torch.is_of_pin:
            what = f"--torch: release {name} has the torch of its pin"
            fix = "make a release beside it with --as NAME, or move it with --nixpkgs"
            raise BuildPytorchError(f"{what}; {fix}")
        yield (*at, "torch", "version"), target.torch
        yield (*at, "torch", "rev"), f"v{target.torch}"
        yield from _companion_values(name, release, target.torch)
    if target.nixpkgs:
        yield from _pin_values(matrix, name, target.nixpkgs)
    if target.cuda:
        if release.cuda is None:
            raise BuildPytorchError(f"--cuda: release {name} has no CUDA")
        yield from _cuda_values(matrix, name, target.cuda)
    if target.python:
        yield (*at, "python", "version"), target.python
    yield from following_values(name, release, target)


def following_values(
    name: str, release: Release, target: BumpTarget
) -> Iterator[tuple[Trail, Value]]:
    """Yield the names and files of a release that contain the versions that change. Pure."""
    at: Trail = ("release", name)
    for field, value in _names(release, target):
        yield (*at, "names", field), value
    for index, file in _cleanup(release, target):
        yield (*at, "cleanup", index, "file"), file
    notes = _notes(release, target)
    if notes and notes != release.notes:
        yield (*at, "notes"), notes


def _companion_values(name: str, release: Release, torch: str) -> Iterator[tuple[Trail, Value]]:
    """Yield the versions of the companions that belong to a PyTorch.

    Raises BuildPytorchError for one whose version nobody has recorded.
    """
    for place, source in release.sources.items():
        if source is release.torch or source.is_of_pin:
            continue
        version, table = version_for(torch, place[-1]), f"release.{name}.{'.'.join(place)}"
        if version is None:
            what = f"--torch: no version of {place[-1]} is known for PyTorch {torch}"
            fix = "add it to build_pytorch/matrix/companion_versions.toml, or remove"
            raise BuildPytorchError(f"{what}; {fix} {table}")
        yield ("release", name, *place, "version"), version
        yield ("release", name, *place, "rev"), f"v{version}"


def _notes(release: Release, target: BumpTarget) -> str | None:
    """Return the page of build notes, whose name may contain versions."""
    notes, cuda = release.notes, release.cuda
    if notes and target.torch:
        old, new = minor_version(release.torch.version), minor_version(target.torch)
        notes = notes.replace(old, new)
    if notes and target.cuda and cuda:
        old, new = (version.split(".")[0] for version in (cuda.version, target.cuda))
        notes = notes.replace(f"cuda{old}", f"cuda{new}")
    return notes


def _names(release: Release, target: BumpTarget) -> Iterator[tuple[str, str]]:
    """Yield the parts of the names that contain versions which change."""
    pairs = []
    if target.torch:
        old, new = minor_version(release.torch.version), minor_version(target.torch)
        pairs.append(("pname", digits(old), digits(new)))
    if target.cuda and release.cuda:
        was, now = underscored(release.cuda.version), underscored(target.cuda)
        pairs.append(("gpu", f"cuda{was}", f"cuda{now}"))
    if target.python:
        was, now = digits(release.python.version), digits(target.python)
        pairs += [(field, f"python{was}", f"python{now}") for field in ("gpu", "cpu", "mps")]
    names: dict[str, str] = msgspec.to_builtins(release.names)
    for field, was, now in pairs:
        value = names[field].replace(was, now)
        if value != names[field]:
            names[field] = value
            yield field, value


def _cleanup(release: Release, target: BumpTarget) -> Iterator[tuple[int, str]]:
    """Yield the files of the clean-up list that are recipes, with their new names."""
    pairs = []
    if target.cuda and release.cuda:
        was, now = underscored(release.cuda.version), underscored(target.cuda)
        pairs.append((f"cuda{was}", f"cuda{now}"))
    if target.python:
        pairs.append((f"python{digits(release.python.version)}", f"python{digits(target.python)}"))
    for index, entry in enumerate(release.cleanup):
        file = entry.file
        for was, now in pairs:
            file = file.replace(was, now)
        if entry.action != "delete" and file != entry.file:
            yield index, file


def _cuda_values(matrix: Matrix, name: str, version: str) -> Iterator[tuple[Trail, Value]]:
    """Yield the CUDA of a release. A package set named by the major version is that of the pin."""
    release = matrix.releases[name]
    at, key = ("release", name, "cuda"), release.nixpkgs.pin
    is_exact = release.cuda is not None and release.cuda.package_set.count("_") > 1
    suffix = underscored(version) if is_exact else version.split(".", maxsplit=1)[0]
    package_set = f"cudaPackages_{suffix}"
    yield (*at, "version"), version
    yield (*at, "package_set"), package_set
    if matrix.pins[key].cuda.get(package_set) != version:
        yield ("pin", key, "cuda", package_set), version


def _pin_values(matrix: Matrix, name: str, rev: str) -> Iterator[tuple[Trail, Value]]:
    """Yield the values of another revision. Raises BuildPytorchError for a shared pin."""
    nixpkgs = matrix.releases[name].nixpkgs
    key = nixpkgs.pin
    others = [n for n, r in matrix.releases.items() if r.nixpkgs.pin == key and n != name]
    if others:
        what = f"--nixpkgs: pin {key} is also the pin of release {', '.join(others)}"
        raise BuildPytorchError(f"{what}; add a pin to matrix.toml and name it")
    retired = [*nixpkgs.retired, matrix.pins[key].rev]
    yield ("pin", key, "rev"), rev
    yield ("release", name, "nixpkgs", "retired"), [each for each in retired if each != rev]
