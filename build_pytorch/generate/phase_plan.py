"""The plans of the five phases: what each would write and delete. Nothing is written here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath

from build_pytorch.base import digest, files, paths
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.generate import docs, recipes
from build_pytorch.generate.text_plan import Tree, plan_text
from build_pytorch.matrix.model import Matrix, Package, Phase
from build_pytorch.matrix.tables import Cleanup


def plan(
    phase: Phase, matrix: Matrix, tree: Tree, pages: Mapping[str, str] | None = None
) -> list[Change]:
    """Return what a phase would change in the tree.

    `pages` are generated pages that do not depend on the matrix, by path; phase 5 plans them if
    the tree is a clone. Raises WriteError if the tree cannot be read.
    """
    if phase is Phase.CLEAN_UP:
        return list(_clean_up(matrix, tree))
    if phase is not Phase.DOCS:
        return list(_recipes(phase, matrix, tree))
    shown = pages if pages and paths.is_clone(tree.root) else {}
    return docs.plan(matrix, tree) + [plan_text(tree, *page) for page in shown.items()]


def _entries(matrix: Matrix) -> dict[str, Cleanup]:
    """Return the entries of the clean-up lists by path."""
    releases = matrix.releases.values()
    return {f"{release.folder}/{e.file}": e for release in releases for e in release.cleanup}


def plan_recipe(matrix: Matrix, tree: Tree, package: Package, text: str) -> Change:
    """Plan the recipe of a package. Raises BuildPytorchError for a link."""
    return plan_text(tree, package.path, text, _entries(matrix).get(package.path))


def _clean_up(matrix: Matrix, tree: Tree) -> Iterator[Change]:
    """Plan what belongs to no package: listed files, and recipes that nobody edited, are deleted.

    Recipes in folders that the matrix does not name are left alone.
    """
    entries = _entries(matrix)
    for path, entry in entries.items():
        if entry.action == "delete":
            change = plan_text(tree, path, None, entry)
            if change.action is not Action.UNCHANGED:
                yield change
    known = {package.path for package in matrix.packages} | entries.keys()
    known |= recipes.nixpkgs_imports(matrix, recipes.render(matrix)).keys()
    own = [folder for release in matrix.releases.values() for folder in release.folders]
    for folder in dict.fromkeys([*own, paths.NIXPKGS_IMPORTS]):
        for path in files.walk_below(tree.root, folder):
            if path not in known:
                yield _leftover(tree, path)


def _leftover(tree: Tree, path: str) -> Change:
    """Plan to delete a recipe that was generated for its file name and that nobody edited."""
    try:
        old = tree.read(path) if path.endswith(".nix") else None
    except OSError:
        old = None
    text = (old or b"").decode(errors="replace")
    if text.startswith(f"# {PurePath(path).stem}\n") and digest.is_intact(text):
        reason = "generated, and no longer in matrix.toml"
        return Change(path=path, action=Action.DELETE, reason=reason, old=old)
    reason = "not in matrix.toml; left alone"
    return Change(path=path, action=Action.UNKNOWN, reason=reason, old=old)


def shared_files(matrix: Matrix, tree: Tree) -> Iterator[Change]:
    """Plan copies of the files that recipes import, unless the tree has its own."""
    for path in [paths.COMPANION_FUNCTION] if matrix.companions else []:
        old = tree.read(path)
        if old is None or digest.is_intact(old.decode(errors="replace")) is not None:
            text = files.read_named(paths.SHIPPED / path).decode()
            header = f"Digest of this file, with zeros in place of it: {digest.PLACEHOLDER}"
            copied = f"# {path}, as build-pytorch has it\n# {header}\n\n{text}"
            yield plan_text(tree, path, digest.seal(copied))


def _recipes(phase: Phase, matrix: Matrix, tree: Tree) -> Iterator[Change]:
    texts = recipes.render(matrix)
    for path, variants in recipes.nixpkgs_imports(matrix, texts).items():
        if variants[0].phase is phase:
            yield plan_text(tree, path, texts[path])
    if matrix.variants[0].phase is phase:
        yield from shared_files(matrix, tree)
    for package in matrix.packages:
        if package.phase is phase:
            yield plan_recipe(matrix, tree, package, texts[package.path])
