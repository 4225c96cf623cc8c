"""What stands in the way of builds, each with what to do: told before the first one begins."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from build_pytorch.base import process
from build_pytorch.build import builders, resources
from build_pytorch.build.step import Step
from build_pytorch.matrix.model import Build, Matrix, Variant
from build_pytorch.nix import store
from build_pytorch.results import artefacts
from build_pytorch.results.evidence import VariantResult

_FIRST: Final = 3
"""So many names stand for many in one line."""


def unverified(matrix: Matrix, root: Path, variants: Sequence[Variant]) -> Iterator[str]:
    """Why recipes do not deserve hours: one line for each that verification finds wrong."""
    if not variants:
        return
    from build_pytorch.verify import verification

    result = verification.verify(matrix, root, variants=variants)
    bad: dict[str, list[str]] = {}
    for finding in result.findings:
        if finding.problem.severity == "error":
            bad.setdefault(finding.problem.path, []).append(finding.check.id)
    for variant in variants:
        if ids := bad.get(variant.path):
            names = ", ".join(dict.fromkeys(ids))
            yield (
                f"{variant.id}: verification finds {names}; `nox -s verify -- {variant.id}` shows "
                "where, --force builds it all the same"
            )


def occupied(root: Path, variants: Sequence[Variant]) -> Iterator[str]:
    """Result links that cannot be made, because something else has their name."""
    for variant in variants:
        link = artefacts.link(root, variant)
        if link.exists() and not link.is_symlink():
            yield f"{link.name}: is no link; move it away, the result link gets this name"


def condemned(
    steps: Sequence[Step], known: Mapping[str, VariantResult], there: set[str]
) -> Iterator[str]:
    """Results that the store has although their build was stopped for what its log said."""
    for step in steps:
        cause = known[step.variant.package].stopped_by
        output = step.derivation.output if step.derivation else ""
        if cause and output in there:
            yield (
                f"{step.variant.id}: its build was stopped ({cause}), and yet the store has the "
                f"result: {store.delete_command(output)}"
            )


def untracked(root: Path, steps: Sequence[Step]) -> Iterator[str]:
    """Flox sees only what Git tracks."""
    listed = process.capture(
        ["git", "-C", str(root), "ls-files", "--", *(step.variant.path for step in steps)],
        check=False,
    )
    if listed.code:
        yield f"{root}: not a Git checkout, and Flox builds only what Git tracks; use --backend nix"
        return
    tracked = set(listed.stdout.splitlines())
    missing = [step.variant.path for step in steps if step.variant.path not in tracked]
    if missing:
        yield f"Flox sees only files that Git tracks: git add {_some(missing)}"


def lacking(
    steps: Sequence[Step],
    settings: store.NixSettings,
    remote: builders.Builders | None,
) -> Iterator[str]:
    """Features that recipes ask for and no machine has."""
    lacking: dict[str, list[str]] = {}
    for step in steps:
        needs = step.derivation.features if step.derivation else ()
        system = step.derivation.system if step.derivation else ""
        if remote and remote.find(system, needs):
            continue
        for feature in needs:
            if settings.features is not None and feature not in settings.features:
                lacking.setdefault(feature, []).append(step.variant.id)
    for feature, ids in lacking.items():
        yield (
            f"{_some(ids)}: the system feature {feature} is needed and not there; add it "
            "to system-features in nix.conf, or a builder that has it with --builders"
        )


def too_small(steps: Sequence[Step], jobs: int, cores: int) -> Iterator[str]:
    """Why this machine cannot take so many builds at once."""
    for build in needs(steps):
        jobs = min(jobs, len(steps))
        free = resources.free_memory()
        needed = (build.reserved_memory + build.job_memory * max(1, cores)) * jobs
        if free < needed:
            yield (
                f"memory: {jobs} at once with {max(1, cores)} compile jobs each need "
                f"{needed:.0f} GiB, {free:.0f} of {resources.memory():.0f} are free; end something, "
                "fewer --jobs or --cores, a larger machine with --builders, or --force"
            )
        for place in dict.fromkeys((store.folder(), Path(os.environ.get("TMPDIR", "/tmp")))):  # noqa: S108 - where Nix builds
            free = resources.free_disk(place)
            if free < build.disk * jobs:
                yield (
                    f"disk: {place} has {free:.0f} GiB free, {jobs} at once need "
                    f"{build.disk * jobs:.0f}; `nix-collect-garbage`, fewer --jobs, or --force"
                )


def tight(steps: Sequence[Step], jobs: int, cores: int) -> Iterator[str]:
    """What is allowed and takes longer than this machine's CPUs would need."""
    share = resources.cpus() // max(1, min(jobs, len(steps)))
    for build in needs(steps):
        if cores < min(share, build.max_jobs):
            yield (
                f"memory: {resources.memory():.0f} GiB allow {cores} compile jobs of {share}; "
                f"one takes up to {build.job_memory:g} GiB"
            )


def needs(steps: Sequence[Step]) -> list[Build]:
    """The different needs of what is built: one for each release."""
    found: list[Build] = []
    for step in steps:
        if step.variant.release.build not in found:
            found.append(step.variant.release.build)
    return found


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _FIRST
    return " ".join(names[:_FIRST]) + (f" and {rest} more" if rest > 0 else "")
