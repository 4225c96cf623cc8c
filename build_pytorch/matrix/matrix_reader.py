"""The only reader of matrix.toml: returns a consistent Matrix or raises all its errors."""

from __future__ import annotations

import itertools
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from build_pytorch.base import files, paths
from build_pytorch.base.errors import MatrixError
from build_pytorch.matrix import consistency, defaults, matrix_text, rules
from build_pytorch.matrix.field_types import Fault, Kind, Trail, dotted, message, misfits
from build_pytorch.matrix.model import Matrix, Package, Phase
from build_pytorch.matrix.tables import Group, MatrixFile, companion_folder_of
from build_pytorch.matrix.versions import digits, numbers

_RESTORE: Final = (
    "restore it with `git checkout matrix.toml`; outside a checkout of build-pytorch, "
    "install the package from one with `pip install -e .`"
)
_MAKE_REGULAR: Final = "put its text into a regular file of at most 1 MiB in its place"


def load(root: Path = paths.PROJECT, *, learning: bool = False) -> Matrix:
    """Read and check the matrix of a checkout; that of this package if it has none.

    With `learning`, nobody needs to know what its pins contain, or the true hashes. Raises
    MatrixError with file, line, TOML path, the value found and the values allowed.
    """
    path = paths.in_use(root, paths.MATRIX)
    try:
        data = files.read_below(path.parent, path.name, files.LARGEST_TEXT)
    except FileNotFoundError:
        raise MatrixError(f"{path}: no such file; {_RESTORE}") from None
    except OSError as error:
        fix = "let this user read it" if isinstance(error, PermissionError) else _MAKE_REGULAR
        raise MatrixError(f"{path}: cannot be read: {error.strerror}; {fix}") from None
    return decode(data, root, learning=learning)


def decode(data: bytes, root: Path = paths.PROJECT, *, learning: bool = False) -> Matrix:
    """Parse the content of a matrix file. Raises MatrixError as `load` does."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise MatrixError(f"{paths.MATRIX}:{line}: {what}") from None
    if text.startswith("\ufeff"):
        what = "begins with a byte order mark; save the file without one"
        raise MatrixError(f"{paths.MATRIX}:1: top level: {what}")
    return parse(text, root, learning=learning)


def parse(text: str, root: Path = paths.PROJECT, *, learning: bool = False) -> Matrix:
    """Parse the text of a matrix file. Raises MatrixError as `load` does.

    `root` is the checkout that the matrix describes.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits
        line, what = matrix_text.syntax_error(text, str(error))
        raise MatrixError(f"{paths.MATRIX}:{line}: {what}") from None
    if not raw:
        what = f"empty; `{paths.SCRIPT} init DIR` writes one"
        raise MatrixError(f"{paths.MATRIX}:1: top level: {what}")
    _refuse(text, raw, defaults.complete(raw))
    with_known = defaults.with_known(raw)
    _refuse(text, raw, misfits(with_known, MatrixFile))
    spec = msgspec.convert(with_known, MatrixFile)
    stages = [consistency.unknown_keys, consistency.contradictions]
    stages += [] if learning else [consistency.unknown_pins, consistency.shared_hashes]
    for stage in stages:
        _refuse(text, raw, stage(spec))
    variants = _variants(spec)
    companions = tuple(
        _companion(variant, name) for variant in variants for name in variant.release.companions
    )
    _refuse(text, raw, consistency.collisions(spec, (*variants, *companions)))
    return Matrix(
        **structs.asdict(spec),
        variants=variants,
        companions=companions,
        own_rules=spec.rules[: len(raw.get("rule", ()))],
        text=text,
        root=root,
    )


def _refuse(text: str, raw: dict[str, Any], faults: Iterable[Fault]) -> None:
    """Raise one error that holds the first problem of each wrong value, in order of the lines.

    A value that a release inherits is reported where it is written.
    """
    found: dict[Trail, str] = {}
    for trail, what in faults:
        found.setdefault(trail, what)
    if not found:
        return
    lines = {trail: matrix_text.line_of(text, trail) for trail in found}
    errors = [
        f"{paths.MATRIX}:{lines[trail]}: {dotted(trail)}: {found[trail]}"
        for trail in sorted(found, key=lambda trail: lines[trail])
        if found.get(_inherited_from(raw, trail)) != found[trail]
    ]
    raise MatrixError(message(errors))


def _inherited_from(raw: dict[str, Any], trail: Trail) -> Trail:
    """Return the path of a value in the release that its release is like; () without one."""
    if trail[0] != "release" or len(trail) <= len(("release", "NAME")) or trail[-1] == "like":
        return ()
    release = raw["release"][trail[1]]
    like = release.get("like") if isinstance(release, dict) else None
    return ("release", like, *trail[2:]) if isinstance(like, str) else ()


def _variants(spec: MatrixFile) -> tuple[Package, ...]:
    """Return every variant, in the order of releases, groups, GPU architectures and CPU ISAs."""
    found = [
        variant
        for name, release in spec.releases.items()
        for group in release.group
        for variant in _of_group(spec, name, group)
    ]
    counts = Counter(variant.package for variant in found)
    variants: list[Package] = []
    for variant in found:
        packages = variant.packages_from  # of a wrapper, which comes after its plain variant
        is_same = packages and packages.rev and packages.same_of == packages.rev
        whole = structs.replace(
            variant,
            effects=rules.effects(variant, spec.rules, spec.patches),
            attribute=f"{variant.release_name}-" * (counts[variant.package] > 1) + variant.package,
            same_build_as=variants[-1] if is_same else None,
        )
        variants.append(whole)
    return tuple(variants)


def _of_group(spec: MatrixFile, release_name: str, group: Group) -> Iterator[Package]:
    """Yield the variants of a group, without what depends on other variants and on rules."""
    release = spec.releases[release_name]
    names, prefix = release.names, f"{release_name}/" * (len(spec.releases) > 1)
    has_wrappers = group.gpu and release.cuda and release.cuda.packages_from
    ends = ("", "-wrapper") if has_wrappers else ("",)
    pin, python = spec.pins[release.nixpkgs.pin], release.python.version
    for gpu_key, cpu_key, end in itertools.product(group.gpu or (None,), group.cpu, ends):
        cpu, gpu = spec.cpus[cpu_key], spec.gpus[gpu_key] if gpu_key else None
        phase = Phase.GPU_X86 if cpu.platform == "x86_64-linux" else Phase.GPU_ARM
        label, impossible = (gpu_key or "").upper(), None
        if gpu and cpu.platform not in gpu.hosts:
            real = f"{', '.join(gpu.products)} on {' and '.join(gpu.hosts)} only"
            impossible = f"no {cpu.platform} machine has {label}: {real}"
        drivers = [release.cuda.driver, gpu.driver or ""] if gpu and release.cuda else [""]
        feature = cpu.builder_feature if release.build.require_builder_feature else None
        support = ("cudaSupport",) if gpu else ()
        kind: Kind = "gpu" if gpu_key else "cpu-only"
        short_id = f"{gpu_key or 'cpu'}-{cpu_key}{end}"
        stem = f"{names.gpu}-{gpu_key}-{cpu_key}" if gpu_key else f"{names.cpu}-{cpu_key}"
        if cpu.platform.endswith("-darwin"):
            kind, short_id, stem = "mps", "darwin-mps", names.mps
        alias = f"{prefix}{gpu_key or 'cpu'}-{cpu.same_as}{end}"
        yield Package(
            release_name=release_name,
            release=release,
            pin=pin,
            group=group,
            gpu_key=gpu_key,
            gpu=gpu,
            cpu_key=cpu_key,
            cpu=cpu,
            platform=cpu.platform,
            kind=kind,
            phase=phase if gpu else Phase.CPU_ONLY,
            gpu_label=label,
            products=gpu.hosts.get(cpu.platform, gpu.products) if gpu else (),
            impossible=impossible,
            status="impossible-host" if impossible else "buildable",
            driver=max(drivers, key=numbers),
            builder_features=(*release.build.system_features, *filter(None, [feature])),
            config=tuple(dict.fromkeys((*release.nixpkgs.config, *support))),
            python_set=f"python{3 if python == pin.python else digits(python)}Packages",
            short_id=short_id,
            id=f"{prefix}{short_id}",
            package=f"{names.package}-{stem}{names.suffix}{end}",
            pname=f"{names.pname}-{stem}{names.suffix}{end}",
            attribute="",
            folder=group.folder or release.folder,
            alias_of=alias if cpu.same_as in group.cpu else "",
            is_wrapper=bool(end),
        )


def _companion(variant: Package, name: str) -> Package:
    """Return a companion of a variant."""
    package = f"{name}{variant.package.removeprefix(variant.release.names.package)}"
    return structs.replace(
        variant,
        name=name,
        companion=variant.release.companions[name],
        torch=variant,
        short_id=f"{variant.short_id}+{name}",
        id=f"{variant.id}+{name}",
        package=package,
        pname=package,
        attribute=f"{variant.attribute.removesuffix(variant.package)}{package}",
        folder=companion_folder_of(variant.folder),
        alias_of=f"{variant.alias_of}+{name}" if variant.alias_of else "",
    )
