"""The plans of the five phases: what each would write and delete. Nothing is written here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Literal

from build_pytorch.base import digest, files, paths
from build_pytorch.base.file_plan import (
    Action,
    Change,
    Tree,
    is_generated_for,
    plan_delete,
    plan_text,
    recipes_elsewhere,
)
from build_pytorch.generate import docs, recipes
from build_pytorch.matrix.model import Matrix, Package, Phase
from build_pytorch.matrix.tables import Cleanup


def plan(
    phase: Phase,
    matrix: Matrix,
    tree: Tree,
    pages: Mapping[str, str] | None = None,
    release: str = "",
) -> list[Change]:
    """Return what a phase would change in the tree; phases 1 to 4 for one release if it is given.

    `pages` are generated pages that do not depend on the matrix, by path; phase 5 plans them if
    the tree is a clone. Raises WriteError if the tree cannot be read.
    """
    if phase is Phase.CLEAN_UP:
        names = [release] if release else list(matrix.releases)
        former = [] if release else _former_recipes(matrix, tree)
        return [*_clean_up(matrix, tree, names), *_other_files(matrix, tree, names), *former]
    if phase is not Phase.DOCS:
        return list(_recipes(phase, matrix, tree, release))
    planned = docs.plan(matrix, tree)
    if pages and paths.is_clone(tree.root):
        planned += [plan_text(tree, path, text) for path, text in pages.items()]
    return planned


def _entries(matrix: Matrix, names: Iterable[str]) -> dict[str, Cleanup]:
    """Return the entries of the clean-up lists of releases by path."""
    releases = [matrix.releases[name] for name in names]
    return {f"{release.folder}/{e.file}": e for release in releases for e in release.cleanup}


def plan_recipe(matrix: Matrix, tree: Tree, package: Package, text: str) -> Change:
    """Plan the recipe of a package. Raises LinkError."""
    path = package.path
    entry = _entries(matrix, matrix.releases).get(path)
    action: Literal["refuse", "rewrite", "keep"] = "refuse"
    if entry and entry.action != "delete":
        action = entry.action
    reason = entry.reason if entry else ""
    return plan_text(tree, path, text, hand_written=action, reason=reason)


def _clean_up(matrix: Matrix, tree: Tree, names: Iterable[str]) -> Iterator[Change]:
    for path, entry in _entries(matrix, names).items():
        if entry.action == "delete" and (change := plan_delete(tree, path, entry.reason)):
            yield change


def _other_files(matrix: Matrix, tree: Tree, names: Sequence[str]) -> Iterator[Change]:
    """Plan what belongs to no package: recipes that we generated and nobody edited are deleted."""
    known = {p.path for p in matrix.packages} | _entries(matrix, matrix.releases).keys()
    known |= recipes.nixpkgs_imports(matrix, recipes.render(matrix)).keys()
    folders = [place for name in names for place in matrix.releases[name].folders]
    if len(names) == len(matrix.releases):
        folders.append(paths.NIXPKGS_IMPORTS)
    for folder in dict.fromkeys(folders):
        for path in files.walk_below(tree.root, folder):
            if path in known:
                continue
            yield _leftover(tree, path) or Change(
                path=path, action=Action.UNKNOWN, reason="not in matrix.toml; left alone"
            )


def _former_recipes(matrix: Matrix, tree: Tree) -> Iterator[Change]:
    """Plan recipes in folders that matrix.toml named before: those that nobody edited go."""
    for path in recipes_elsewhere(tree.root, matrix.folders):
        yield _leftover(tree, path) or Change(
            path=path,
            action=Action.UNKNOWN,
            reason="generated and edited, and not in matrix.toml; left alone",
        )


def _leftover(tree: Tree, path: str) -> Change | None:
    """Plan to delete a recipe of a package that matrix.toml no longer has; None for other files."""
    if not path.endswith(".nix"):
        return None
    try:
        old = tree.read(path)
    except OSError:
        return None
    if old is None or not is_generated_for(old, PurePath(path).stem):
        return None
    reason = "generated, and no longer in matrix.toml"
    return Change(path=path, action=Action.DELETE, reason=reason, old=old)


def shared_files(matrix: Matrix, tree: Tree) -> Iterator[Change]:
    """Plan copies of the files that recipes import, unless the tree has its own."""
    for path in [paths.COMPANION_FUNCTION] if matrix.companions else []:
        old = tree.read(path)
        if old is None or digest.has_digest(old.decode(errors="replace")):
            text = files.read_named(paths.SHIPPED / path).decode()
            header = f"Digest of this file, with zeros in place of it: {digest.PLACEHOLDER}"
            copied = f"# {path}, as build-pytorch has it\n# {header}\n\n{text}"
            yield plan_text(tree, path, digest.seal(copied))


def _recipes(phase: Phase, matrix: Matrix, tree: Tree, release: str) -> Iterator[Change]:
    texts = recipes.render(matrix)
    for path, variants in recipes.nixpkgs_imports(matrix, texts).items():
        if variants[0].phase is phase and release in {"", variants[0].release_name}:
            yield plan_text(tree, path, texts[path])
    if matrix.variants[0].phase is phase:
        yield from shared_files(matrix, tree)
    for package in matrix.packages:
        if package.phase is phase and release in {"", package.release_name}:
            yield plan_recipe(matrix, tree, package, texts[package.path])
