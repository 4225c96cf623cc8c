"""What prevents builds, each with what to do, apart from what the machine lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from build_pytorch.base import files, process
from build_pytorch.base.console import some
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.file_plan import Tree, plan_text
from build_pytorch.build.build_backend import BuildBackend, BuildSettings, Step
from build_pytorch.build.build_machine import temporary_folder
from build_pytorch.generate import rendering
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.source_tables import CUDA_PACKAGES_SOURCE, CUDA_PACKAGES_VARIABLE
from build_pytorch.nix import derivations, store
from build_pytorch.results import artefacts
from build_pytorch.results.package_state import PackageState
from build_pytorch.verify import verification

_SIGNING_KEY: Final = re.compile(r"[^\s:]+:[A-Za-z0-9+/]{86}==\s*")
"""A name and 64 bytes in Base64, as Nix writes it."""


def check_cache(url: str, key: Path | None) -> None:
    """Raise BuildPytorchError for what is no URL of a binary cache, or no signing key."""
    if not url:
        return
    if not process.which(store.NIX):
        raise ToolError("--copy-to: nix not found, and only Nix can copy to a cache; install it")
    if "://" not in url:
        good = "file:///srv/cache, s3://bucket or ssh://host"
        raise BuildPytorchError(f"--copy-to {url}: not the URL of a store; use {good}")
    if key:
        try:
            text = files.read_named(key, files.LARGEST_TEXT).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            text = ""
        if not _SIGNING_KEY.fullmatch(text):
            how = "`nix-store --generate-binary-cache-key NAME SECRET PUBLIC`"
            raise BuildPytorchError(f"--secret-key {key}: not a signing key; make one with {how}")


def before_evaluation(
    matrix: Matrix, packages: Sequence[Package], settings: BuildSettings
) -> Iterator[str]:
    """Yield a missing TMPDIR, taken names of links, sources without hash, recipes with errors."""
    root = settings.root
    if packages and not (folder := temporary_folder()).is_dir():
        yield f"TMPDIR: {folder} is no folder; create it, or unset TMPDIR"
    for package in packages:
        link = artefacts.link(root, package)
        if link.exists() and not link.is_symlink():
            yield f"{link.name}: not a link; move it away, the result link needs this name"
    yield from derivations.unreadable_checkouts([package.variant for package in packages])
    if settings.force or not packages:
        return
    untaken = [source for package in packages for source in missing_hashes(package, settings)]
    for name, place in dict.fromkeys(untaken):
        yield f"matrix.toml: {place} has no hash yet; `invoke prefetch --only {name}` takes it"
    yield from _wrong_recipes(matrix, root, packages)


def _wrong_recipes(matrix: Matrix, root: Path, packages: Sequence[Package]) -> Iterator[str]:
    """Yield recipes with errors: those that `invoke all` would write, and others."""
    variants = {package.variant.path: package.variant for package in packages}
    findings = verification.verify(matrix, root, variants=list(variants.values())).findings
    errors = [finding for finding in findings if finding.severity == "error"]
    texts = rendering.texts(matrix) if errors else {}
    stale, wrong = [], []
    for package in packages:
        path = package.path
        if ids := dict.fromkeys(error.check for error in errors if error.path == path):
            if plan_text(Tree(root), path, texts[path]).action.writes:  # and nobody edited it
                stale.append(package.id)
                continue
            wrong.append(
                f"{package.id}: verification finds {', '.join(ids)}; "
                f"`invoke verify {package.variant.id}` shows where, --force builds it anyway"
            )
    if stale:
        yield f"{some(stale)}: the recipe is missing or out of date; run `invoke all`"
    yield from wrong


def missing_hashes(package: Package, settings: BuildSettings) -> Iterator[tuple[str, str]]:
    """Yield the names and places of the sources without a hash for which no build begins.

    Nix takes a local checkout without one. With --fix-hashes the failed build tells those of
    sources that Nix fetches while it builds; it fetches CUDA packages before that.
    """
    is_local = bool(derivations.local_checkout(package.variant))
    for name, place in package.untaken_hashes:
        is_early = name == CUDA_PACKAGES_SOURCE
        if not (is_local if is_early else settings.fix_hashes):
            yield name, place


def local_packages(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the local checkout that CUDA packages of builds come from."""
    for path in dict.fromkeys(step.local_packages for step in steps if step.local_packages):
        ids = some([step.variant.id for step in steps if step.local_packages == path])
        variable = f"{CUDA_PACKAGES_VARIABLE}={path}"
        yield f"{ids}: CUDA packages of {variable}; the result is not for publishing"


def stopped_results(
    steps: Sequence[Step], results: Mapping[str, PackageState], there: set[str]
) -> Iterator[str]:
    """Yield results in the store whose build was stopped by a log rule."""
    for step in steps:
        cause = results[step.id].stopped_by
        output = step.derivation.output if step.derivation else ""
        if cause and output in there:
            how = store.delete_command(output)
            yield f"{step.id}: its build was stopped ({cause}), but the store has the result: {how}"


def not_evaluated(failures: Mapping[str, str]) -> Iterator[str]:
    """Yield why recipes do not evaluate; those with the same reason together."""
    for why in dict.fromkeys(failures.values()):
        yield f"{some([name for name, reason in failures.items() if reason == why])}: {why}"


def missing_features(steps: Sequence[Step], backend: BuildBackend) -> Iterator[str]:
    """Yield system features that recipes need and no machine has."""
    if (here := backend.host.features) is None:
        return
    missing: dict[str, list[str]] = {}
    for step in steps:
        drv = step.derivation
        if drv and not backend.builder(step.variant, drv):
            for feature in set(drv.features) - set(here):
                missing.setdefault(feature, []).append(step.id)
    for feature, ids in sorted(missing.items()):
        yield (
            f"{some(ids)}: needs the system feature {feature}; add it to system-features in "
            "nix.conf, or a builder that has it with --builders"
        )
