"""The only reader of matrix.toml: text in, a consistent Matrix out, or one clear error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from build_pytorch import paths
from build_pytorch.errors import MatrixError
from build_pytorch.model import Group, Matrix, MatrixFile, Release, Variant

Step = str | int
Trail = tuple[Step, ...]
"""Where a value stands: keys of tables and indices of arrays."""


def load(path: Path = paths.MATRIX) -> Matrix:
    """Read and cross-check a matrix file.

    Raises MatrixError with file, line, TOML path, what was found and what is allowed.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise MatrixError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise MatrixError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8") from None
    return parse(text, path.name)


def parse(text: str, name: str = "matrix.toml") -> Matrix:
    """Parse the text of a matrix file; `name` is the file that errors mention. Raises MatrixError."""
    source = _Source(text, name)
    raw = source.parse()
    try:
        spec = msgspec.convert(raw, MatrixFile, strict=True)
    except msgspec.ValidationError as error:
        from build_pytorch.matrix_errors import explain

        trail, problem = explain(error, raw)
        source.fail(trail, problem)
    variants = tuple(variant for name in spec.release for variant in _variants(source, spec, name))
    _check_paths(source, spec, variants)
    return Matrix(releases=spec.release, gpus=spec.gpu, cpus=spec.cpu, variants=variants, text=text)


class _Source:
    """The text of the file, and the one way to say that something in it is wrong."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name

    def parse(self) -> dict[str, Any]:
        import tomllib

        try:
            return tomllib.loads(self.text)
        except RecursionError:
            raise MatrixError(f"{self.name}: nested too deeply to be a matrix") from None
        except ValueError as error:  # TOMLDecodeError, and integers of thousands of digits
            place = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
            where = f":{place[1]}:{place[2]}" if place else ""
            what = str(error).replace(place[0], "") if place else str(error)
            raise MatrixError(f"{self.name}{where}: not valid TOML: {what}") from None

    def fail(self, trail: Trail, problem: str) -> NoReturn:
        """Raise MatrixError for the value at `trail`."""
        from build_pytorch.matrix_errors import dotted, line_of

        line = line_of(self.text, trail)
        raise MatrixError(f"{self.name}:{line}: {dotted(trail) or 'top level'}: {problem}")


def _variants(source: _Source, spec: MatrixFile, name: str) -> Iterator[Variant]:
    """The variants of one release, once everything that the release says is consistent."""
    release = spec.release[name]
    at: Trail = ("release", name)
    _check_release(source, release, at)
    seen: dict[str, int] = {}
    for number, group in enumerate(release.group):
        here = (*at, "group", number)
        _check_group(source, spec, release, group, here)
        for gpu_key in group.gpu or (None,):
            for cpu_key in group.cpu:
                variant = Variant(
                    release_name=name,
                    release=release,
                    group=group,
                    gpu_key=gpu_key,
                    gpu=spec.gpu[gpu_key] if gpu_key else None,
                    cpu_key=cpu_key,
                    cpu=spec.cpu[cpu_key],
                )
                if variant.id in seen:
                    source.fail(
                        here,
                        f"found {variant.id} twice (also in group[{seen[variant.id]}]); "
                        "allowed: each variant once",
                    )
                seen[variant.id] = number
                yield variant


def _check_release(source: _Source, release: Release, at: Trail) -> None:
    """What the single values of a release cannot show: that they agree with each other."""
    torch, names, cuda = release.torch, release.names, release.cuda
    if torch.rev.startswith("v") and torch.rev != f"v{torch.version}":
        source.fail(
            (*at, "torch", "rev"),
            f'found "{torch.rev}"; allowed: "v{torch.version}", the tag of torch.version, '
            "or 40 hex digits",
        )
    hashes = {
        ("torch", "hash"): torch.hash,
        ("nixpkgs", "sha256"): release.nixpkgs.sha256,
        ("magma_patch", "hash"): release.magma_patch and release.magma_patch.hash,
    }
    for trail, value in hashes.items():
        if value and set(value[7:-1]) == {"A"}:
            source.fail((*at, *trail), "found a fake hash; allowed: the hash of the real source")
    if release.nixpkgs.rev in release.nixpkgs.retired:
        source.fail(
            (*at, "nixpkgs", "rev"), "found a pin that nixpkgs.retired names; allowed: another"
        )
    if {".git", "..", "."} & set(release.folder.split("/")):
        source.fail((*at, "folder"), f'found "{release.folder}"; allowed: a folder of recipes')
    if release.notes == paths.VARIANTS_DOC:
        source.fail((*at, "notes"), f'found "{release.notes}", which is generated whole')

    # Named one version, built with another: the mistake that copies of recipes carry on.
    python = f"python{release.python.version.replace('.', '')}"
    tokens = [("pname", "".join(torch.version.split(".")[:2])), ("gpu", python), ("cpu", python)]
    if cuda:
        tokens.append(("gpu", f"cuda{cuda.version.replace('.', '_')}"))
        allowed = {"cudaPackages_" + cuda.version.replace(".", "_")}
        allowed.add("cudaPackages_" + cuda.version.split(".")[0])
        if cuda.package_set not in allowed:
            source.fail(
                (*at, "cuda", "package_set"),
                f'found "{cuda.package_set}"; allowed for CUDA {cuda.version}: '
                + " or ".join(sorted(allowed)),
            )
    for field, token in tokens:
        value = getattr(names, field)
        if token not in value:
            source.fail(
                (*at, "names", field),
                f'found "{value}"; allowed: a name with "{token}", as the release\'s versions say',
            )


def _check_group(
    source: _Source, spec: MatrixFile, release: Release, group: Group, at: Trail
) -> None:
    if group.kind == "gpu" and not group.gpu:
        source.fail(at, 'found kind "gpu" without gpu; allowed: a list of GPU architectures')
    if group.kind == "cpu-only" and group.gpu:
        source.fail((*at, "gpu"), 'found a list; allowed with kind "cpu-only": no gpu at all')
    if group.kind == "gpu" and release.cuda is None:
        source.fail(at, "found a GPU group; allowed only in a release that has a cuda table")
    for field, keys, known in (("gpu", group.gpu, spec.gpu), ("cpu", group.cpu, spec.cpu)):
        for index, key in enumerate(keys):
            if key not in known:
                from build_pytorch.matrix_errors import near_miss

                source.fail(
                    (*at, field, index),
                    f'found "{key}"; allowed: {", ".join(known)}{near_miss(key, known)}',
                )
    for index, key in enumerate(group.cpu):
        if spec.cpu[key].platform != group.platform:
            source.fail(
                (*at, "cpu", index),
                f'found "{key}", which is for {spec.cpu[key].platform}; '
                f"allowed: CPU ISAs of {group.platform}",
            )
    for index, key in enumerate(group.gpu):
        gpu = spec.gpu[key]
        if key != f"sm{gpu.capability.replace('.', '')}":
            source.fail(
                ("gpu", key, "capability"),
                f'found "{gpu.capability}"; allowed for {key}: the same digits with a dot',
            )
        cuda = release.cuda.version if release.cuda else gpu.first_cuda
        last = gpu.last_cuda or cuda
        if not number(gpu.first_cuda) <= number(cuda) <= number(last):
            until = f" to {gpu.last_cuda}" if gpu.last_cuda else " or newer"
            source.fail(
                (*at, "gpu", index),
                f'found "{key}" with CUDA {cuda}; allowed: CUDA {gpu.first_cuda}{until}',
            )


def _check_paths(source: _Source, spec: MatrixFile, variants: tuple[Variant, ...]) -> None:
    """No two variants share a file, and the clean-up list does not contradict the variants."""
    recipes: dict[str, Variant] = {}
    for variant in variants:
        if other := recipes.get(variant.path):
            source.fail(
                ("release", variant.release_name, "names"),
                f"found {variant.path}, which release.{other.release_name} writes as well; "
                "allowed: another folder or other names",
            )
        recipes[variant.path] = variant
    notes: dict[str, str] = {}
    for name, release in spec.release.items():
        if release.notes in notes:
            source.fail(
                ("release", name, "notes"),
                f'found "{release.notes}", the notes of release.{notes[release.notes]} as well; '
                "allowed: a file of its own",
            )
        notes[release.notes] = name
        files: set[str] = set()
        for index, entry in enumerate(release.cleanup):
            at = ("release", name, "cleanup", index, "file")
            if entry.file in files:
                source.fail(at, f'found "{entry.file}" twice; allowed: each file once')
            files.add(entry.file)
            is_variant = f"{release.folder}/{entry.file}" in recipes
            if entry.action == "delete" and is_variant:
                source.fail(
                    at,
                    f'found "{entry.file}", the recipe of a variant; '
                    "allowed with action delete: a file that no variant needs",
                )
            if entry.action != "delete" and not is_variant:
                source.fail(
                    at,
                    f'found "{entry.file}", which is no variant\'s recipe; '
                    f"allowed with action {entry.action}: the recipe of a variant",
                )


def number(version: str) -> tuple[int, ...]:
    """A dotted version as numbers, so that 13.0 comes after 9.0."""
    return tuple(int(part) for part in version.split("."))
