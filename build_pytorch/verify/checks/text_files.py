"""Checks of which recipe files exist. The expected set comes from the matrix, not from the disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from msgspec import structs

from build_pytorch.base.console import counted
from build_pytorch.base.errors import ToolError
from build_pytorch.base.file_plan import recipes_elsewhere
from build_pytorch.verify.check import TREE, CheckList, CheckSkipped, Context, Finding

CHECKS: Final = CheckList(TREE)


def _count(kind: Literal["gpu", "cpu-only"], name: str) -> None:
    """Add a check that counts `PREFIX-*.nix` in the folder of each release."""

    @CHECKS.add(
        f"There are as many {name} recipes as the matrix has {name} variants",
        name=f"{kind.removesuffix('-only')}-count",
        why="A missing recipe has no failing check of its own: all that exist pass.",
        fix="run `invoke all`; delete recipes of no variant, or list them in matrix.toml",
    )
    def _check(context: Context) -> Iterator[Finding]:
        stems: dict[str, list[str]] = {}
        for path in (*context.recipes, *context.unreadable):
            folder, _, name = path.rpartition("/")
            stems.setdefault(folder, []).append(name.removesuffix(".nix"))
        for release_name, release in context.matrix.releases.items():
            own = {
                v.package for v in context.matrix.of_release(release_name) if v.group.kind == kind
            }
            places = release.variant_folders
            others = {v.package for v in context.matrix.variants if v.folder in places} - own
            prefix = release.names.gpu if kind == "gpu" else release.names.cpu
            start = f"{release.names.package}-{prefix}-"
            here = {stem for place in places for stem in stems.get(place, ())} - others
            found = sum(stem.startswith(start) for stem in here)
            if found != len(own):
                files = f"{counted(found, 'file')} {start}*.nix"
                yield Finding(files, str(len(own)), path=release.folder)


_count("gpu", "GPU")
_count("cpu-only", "CPU-only")


@CHECKS.add(
    "Every variant and every companion has its recipe",
    why="`flox build` finds only packages that have a file.",
    fix="run `invoke all`",
)
def missing_recipe(context: Context) -> Iterator[Finding]:
    for package in context.matrix.packages:
        if package.path not in context.recipes and package.path not in context.unreadable:
            fix = f"run `invoke phase{package.phase.number}`"
            yield Finding("no such file", f"the recipe of {package.id}", path=package.path, fix=fix)


@CHECKS.add(
    "Every recipe can be read as UTF-8 text",
    why="A file that cannot be read cannot be verified, and Nix cannot evaluate it.",
    fix="delete the file and run `invoke all`",
)
def unreadable_recipe(context: Context) -> Iterator[Finding]:
    context.recipe_paths()
    for path, reason in context.unreadable.items():
        yield Finding(reason, "a readable UTF-8 text file", path=path)


_FIX_ELSEWHERE: Final = (
    "run `invoke phase1`, which deletes it unless it was edited; else delete it, or take the line "
    "with the digest out of a recipe that is your own"
)


@CHECKS.add(
    "Every recipe belongs to a variant or a companion of the matrix",
    why="Flox takes every .nix file in the folder for a package, stale copies included.",
    fix="run `invoke phase1`, which deletes what was generated and not edited; else delete it, or "
    "move it to another Flox environment",
)
def extra_recipe(context: Context) -> Iterator[Finding]:
    expected = {package.path for package in context.matrix.packages}
    paths = context.recipe_paths()
    try:
        elsewhere = list(recipes_elsewhere(context.root, context.matrix.folders))
    except ToolError as error:
        raise CheckSkipped(str(error)) from None
    for path in paths:
        if path not in expected:
            yield Finding("a recipe of no variant", "only recipes of the matrix", path=path)
    for path in elsewhere:
        found = "a generated recipe in a folder that matrix.toml does not name"
        yield Finding(found, "only recipes of the matrix", path=path, fix=_FIX_ELSEWHERE)


@CHECKS.add(
    "Every source has a hash, which belongs to the revision beside it",
    why="Nix finds an old source by its old hash and builds it without a message.",
    fix="run `invoke prefetch`",
)
def stale_hash(context: Context) -> Iterator[Finding]:
    for source in context.matrix.sources():
        table = ".".join(map(str, source.place))
        expected = f"the hash of {source.taken_for}"
        fix = f"run `invoke prefetch --only {source.name}`, which sets {source.trail[-1]}"
        if source.hash and source.recorded != source.taken_for:
            found = f"{table}: the hash of {source.recorded or 'an unknown revision'}"
            yield context.matrix_finding(f"[{table}]", found, expected, fix)
        elif not (source.hash or source.may_wait):
            found = f"{table}: no hash yet; recipes evaluate, and cannot be built"
            finding = context.matrix_finding(f"[{table}]", found, expected, fix)
            yield structs.replace(finding, severity="warning")


def _no_suffix(suffix: str, why: str) -> None:
    @CHECKS.add(
        f"No recipe is named -{suffix}, unless a variant of the matrix is",
        name=f"no-{suffix}-suffix",
        why=why,
        fix="run `invoke phase1`, or delete the file",
    )
    def _check(context: Context) -> Iterator[Finding]:
        expected = {package.path for package in context.matrix.packages}
        for path in context.recipe_paths():
            if path.endswith(f"-{suffix}.nix") and path not in expected:
                yield Finding(f"the suffix -{suffix}", "no recipe of that name", path=path)


_no_suffix("magma", "Every GPU recipe has MAGMA; a second name means a second build of the same.")
_no_suffix("nightly", "A nightly follows a moving revision and cannot be built twice.")
_no_suffix("avx", "Plain AVX needs switches that other recipes lack; avx2 replaced it.")
