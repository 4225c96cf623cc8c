"""The plans of the five phases: what each would write and delete. Nothing is written here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from build_pytorch.base import files, paths
from build_pytorch.base.file_plan import Action, Change, Tree, plan_delete, plan_text
from build_pytorch.generate import docs, rendering
from build_pytorch.matrix.model import Cleanup, Matrix, Phase


def plan(
    phase: Phase, fleet: Matrix, tree: Tree, pages: Mapping[str, str] | None = None
) -> list[Change]:
    """Return what a phase would change in the tree.

    `pages` are generated pages that do not depend on the matrix, by path; phase 5 plans them if
    the tree has a matrix.toml. Raises WriteError if the tree cannot be read.
    """
    if phase is Phase.CLEAN_UP:
        return [*_clean_up(fleet, tree), *_unknown_files(fleet, tree)]
    if phase is not Phase.DOCS:
        return list(_recipes(phase, fleet, tree))
    planned = docs.plan(fleet, rendering.texts(fleet), tree)
    if pages and (tree.root / paths.MATRIX.name).exists():
        planned += [plan_text(tree, path, text) for path, text in pages.items()]
    return planned


def _entries(fleet: Matrix) -> dict[str, Cleanup]:
    """Return the entries of all clean-up lists by path."""
    releases = fleet.releases.values()
    return {f"{release.folder}/{e.file}": e for release in releases for e in release.cleanup}


def _clean_up(fleet: Matrix, tree: Tree) -> Iterator[Change]:
    phases = {variant.path: variant.phase for variant in fleet.variants}
    for path, entry in _entries(fleet).items():
        if entry.action == "delete":
            yield plan_delete(tree, path, entry.reason)
        elif (tree.root / path).exists():
            reason = f"left to phase {phases[path].number} ({entry.action})"
            yield Change(path=path, action=Action.UNCHANGED, reason=reason)


def _unknown_files(fleet: Matrix, tree: Tree) -> Iterator[Change]:
    known = {variant.path for variant in fleet.variants} | _entries(fleet).keys()
    for folder in dict.fromkeys(release.folder for release in fleet.releases.values()):
        found = {
            path.relative_to(tree.root).as_posix()
            for path in (tree.root / folder).rglob("*")
            # A kill may leave temporary files of our own.
            if not path.name.endswith(files.TEMPORARY) and (path.is_symlink() or not path.is_dir())
        }
        for path in sorted(found - known):
            yield Change(path=path, action=Action.UNKNOWN, reason="not in matrix.toml; left alone")


def _recipes(phase: Phase, fleet: Matrix, tree: Tree) -> Iterator[Change]:
    texts = rendering.texts(fleet)
    entries = _entries(fleet)
    for variant in fleet.variants:
        if variant.phase is phase:
            entry = entries.get(variant.path)
            yield plan_text(
                tree,
                variant.path,
                texts[variant.path],
                hand_written=entry.action if entry and entry.action != "delete" else "refuse",
                reason=entry.reason if entry else "",
                group=variant.gpu_label,
            )
