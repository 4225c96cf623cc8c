"""Which recipe files there are. The expected set comes from the matrix, never from the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from build_pytorch.base import paths
from build_pytorch.base.console import counted
from build_pytorch.verify.check import Check, Context, Problem, TreeCheck


def _count(kind: str) -> Callable[[Context], Iterator[Problem]]:
    """Count `PREFIX-*.nix` in each release's folder, as the plan's `ls ... | wc -l` does."""

    def test(context: Context) -> Iterator[Problem]:
        for name, release in context.matrix.releases.items():
            variants = context.matrix.of_release(name)
            wanted = [variant for variant in variants if variant.group.kind == kind]
            others = {variant.path for variant in variants} - {v.path for v in wanted}
            prefix = release.names.gpu if kind == "gpu" else release.names.cpu
            start = f"{release.folder}/{release.names.package}-{prefix}-"
            found = sum(
                path.startswith(start) and "/" not in path[len(start) :] and path not in others
                for path in (*context.recipes, *context.unreadable)
            )
            if found != len(wanted):
                yield Problem(
                    path=release.folder,
                    found=f"{counted(found, 'file')} {release.names.package}-{prefix}-*.nix",
                    expected=f"{len(wanted)}",
                )

    return test


def _missing(context: Context) -> Iterator[Problem]:
    for variant in context.matrix.variants:
        if variant.path not in context.recipes and variant.path not in context.unreadable:
            yield Problem(
                path=variant.path,
                found="no such file",
                expected=f"the recipe of {variant.id}",
                fix=f"run `invoke phase{variant.phase.number}`",
            )


def _unreadable(context: Context) -> Iterator[Problem]:
    context.skip_without_recipes()
    for path, problem in context.unreadable.items():
        yield Problem(path=path, found=problem, expected="a readable UTF-8 text file")


def _extra(context: Context) -> Iterator[Problem]:
    context.skip_without_recipes()
    expected = {variant.path for variant in context.matrix.variants}
    for path in (*context.recipes, *context.unreadable):
        if path not in expected:
            yield Problem(
                path=path, found="a recipe of no variant", expected="only recipes of the matrix"
            )


def _no_suffix(suffix: str) -> Callable[[Context], Iterator[Problem]]:
    def test(context: Context) -> Iterator[Problem]:
        context.skip_without_recipes()
        for path in (*context.recipes, *context.unreadable):
            if path.endswith(f"-{suffix}.nix"):
                yield Problem(
                    path=path, found=f"the suffix -{suffix}", expected="no recipe of that name"
                )

    return test


def _stale_hash(context: Context) -> Iterator[Problem]:
    for name, release in context.matrix.releases.items():
        torch, nixpkgs, patch = release.torch, release.nixpkgs, release.magma_patch
        taken = [("torch", "hash_of", torch.hash_of, torch.rev)]
        if nixpkgs.sha256:
            taken.append(("nixpkgs", "sha256_of", nixpkgs.sha256_of, nixpkgs.rev))
        if patch:
            taken.append(("magma_patch", "hash_of", patch.hash_of, patch.url))
        for table, field, found, wanted in taken:
            if found != wanted:
                before = context.matrix.text.partition(f"[release.{name}.{table}]")[0]
                yield Problem(
                    path=paths.MATRIX.name,
                    line=before.count("\n") + 1,
                    found=f"the hash of {found or 'nobody knows what'} in release.{name}.{table}",
                    expected=f"that of {wanted}",
                    fix=f"run `nox -s prefetch -- --only {table}`, which sets hash and {field}",
                )


CHECKS: tuple[Check, ...] = (
    TreeCheck(
        id="gpu-count",
        title="As many GPU recipes as the matrix has GPU variants",
        why="A recipe that drops out of a list leaves every later summary green.",
        fix="run `invoke all`; remove or list in matrix.toml what is not a variant's recipe",
        source="seed 004, Verification: `ls pytorch-python313-cuda13_0-*.nix | wc -l` is 40",
        test=_count("gpu"),
    ),
    TreeCheck(
        id="cpu-count",
        title="As many CPU-only recipes as the matrix has CPU-only variants",
        why="A recipe that drops out of a list leaves every later summary green.",
        fix="run `invoke all`; remove or list in matrix.toml what is not a variant's recipe",
        source="seed 004, Verification: `ls pytorch-python313-cpu-*.nix | wc -l` is 4",
        test=_count("cpu-only"),
    ),
    TreeCheck(
        id="missing-recipe",
        title="Every variant has its recipe",
        why="`flox build` knows only the packages that have a file.",
        fix="run `invoke all`",
        source="seed 004, Target: 44 variants",
        test=_missing,
    ),
    TreeCheck(
        id="unreadable-recipe",
        title="Every recipe can be read as UTF-8 text",
        why="What cannot be read cannot be verified, nor evaluated by Nix.",
        fix="delete the file and run `invoke all`",
        source="Flox: every .nix file below .flox/pkgs is a package",
        test=_unreadable,
    ),
    TreeCheck(
        id="extra-recipe",
        title="No recipe that the matrix does not know",
        why="Flox takes every .nix file there for a package, stale copies included.",
        fix="delete it, or name it in the clean-up list of matrix.toml and run `invoke phase1`",
        source="seed 004, Current State: copies with a wrong pin stood beside the good one",
        test=_extra,
    ),
    TreeCheck(
        id="stale-hash",
        title="Every hash was taken for the rev that stands beside it",
        why="Nix finds the old source by the old hash, and builds that without a word.",
        fix="run `nox -s prefetch`",
        source="seed 001, step 3; builds that were called by a new version and held the old one",
        test=_stale_hash,
    ),
    TreeCheck(
        id="no-magma-suffix",
        title="No recipe named -magma",
        why="Every GPU recipe has MAGMA; a second name for it is a second build of the same.",
        fix="run `invoke phase1`, or delete the file",
        source="seed 004, Verification: `ls *-magma.nix` is empty",
        test=_no_suffix("magma"),
    ),
    TreeCheck(
        id="no-nightly-suffix",
        title="No recipe named -nightly",
        why="A nightly follows a moving revision and cannot be built twice.",
        fix="run `invoke phase1`, or delete the file",
        source="seed 004, Verification: `ls *-nightly.nix` is empty",
        test=_no_suffix("nightly"),
    ),
    TreeCheck(
        id="no-avx-suffix",
        title="No recipe named -avx",
        why="Plain AVX is no ISA of the matrix; avx2 took its place.",
        fix="run `invoke phase1`, or delete the file",
        source="seed 004, Verification: `ls *-avx.nix` is empty",
        test=_no_suffix("avx"),
    ),
)
