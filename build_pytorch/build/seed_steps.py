"""The seeds in a plan: which are built, and which steps need them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from build_pytorch.build.backends.base_backend import Step
from build_pytorch.build.build_obstacles import some
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.seeds import Seed, seeds_of
from build_pytorch.nix.derivations import Derivation
from build_pytorch.results.package_state import PackageState


def seeds_to_read(matrix: Matrix, steps: Sequence[Step], there: set[str]) -> dict[str, Seed]:
    """Return the seeds that builds read, by name: C++ first, which takes longer than CUDA.

    `there`: the outputs that the store has.
    """
    known = seeds_of(matrix.variants)
    found = [
        seed
        for step in steps
        if step.action == "build"
        and step.is_variant
        and not (step.derivation and step.derivation.output in there)
        for seed in known.get(step.variant.attribute, ())
    ]
    return {seed.name: seed for seed in sorted(found, key=lambda seed: seed.kind == "cuda")}


def derivation_of(seed: str, steps: Sequence[Step]) -> Derivation | None:
    """Return the derivation of a seed, None if the steps that read it are not evaluated."""
    found = (step.derivation.seeds.get(seed) for step in steps if step.derivation)
    return next(filter(None, found), None)


def current(result: PackageState, derivation: Derivation | None) -> PackageState:
    """Return what is known of a seed; a result of another derivation is stale."""
    if derivation and result.output not in {"", derivation.output}:
        return replace(result, output="", stale=result.output)
    return result


def with_needs(matrix: Matrix, steps: Sequence[Step], seeds: Sequence[Step]) -> list[Step]:
    """Return the steps of seeds and of variants, each variant with the seeds that it waits for."""
    known = seeds_of(matrix.variants)
    built = {step.name for step in seeds if step.action == "build"}
    return [
        *seeds,
        *(
            replace(
                step,
                needs=tuple(
                    seed.name
                    for seed in known.get(step.variant.attribute, ())
                    if step.action == "build" and step.is_variant and seed.name in built
                ),
            )
            for step in steps
        ),
    ]


def mixed(matrix: Matrix, results: Sequence[PackageState], *, share: bool) -> Iterator[str]:
    """Yield a note about results that were built in the other way."""
    known = seeds_of(matrix.variants)
    others = [
        r.variant.id
        for r in results
        if r.output and r.package.attribute in known and r.reads_seeds != share
    ]
    if others:
        how = "without" if share else "with"
        yield (
            f"{some(others)}: built {how} --share; a release is built in one way, and to build "
            "a result again in the other, remove its link"
        )
