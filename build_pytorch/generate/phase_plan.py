"""The plans of the five phases: what each would write and delete. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from build_pytorch.base import files, paths
from build_pytorch.base.file_plan import Action, Change, Tree, plan_delete, plan_text
from build_pytorch.generate import docs, rendering
from build_pytorch.matrix.model import Cleanup, Matrix, Phase, Variant


def plan(
    phase: Phase, fleet: Matrix, tree: Tree, pages: Mapping[str, str] | None = None
) -> list[Change]:
    """Return what a phase would change in the tree.

    `pages` are generated pages that do not depend on the matrix, by path; phase 5 plans them in
    a tree that has a matrix of its own. Raises WriteError if the tree cannot be read.
    """
    match phase:
        case Phase.CLEAN_UP:
            return _plan_clean_up(fleet, tree)
        case Phase.DOCS:
            has_matrix = (tree.root / paths.MATRIX.name).exists()
            reference = (pages or {}) if has_matrix else {}
            return [
                *docs.plan(fleet, rendering.texts(fleet), tree),
                *(plan_text(tree, path, text) for path, text in reference.items()),
            ]
        case _:
            return _plan_recipes(phase, fleet, tree)


def cleanup_of(variant: Variant) -> Cleanup | None:
    """What the clean-up list says of a hand-written recipe where this variant belongs."""
    entries = variant.release.cleanup
    return next((entry for entry in entries if entry.file == f"{variant.package}.nix"), None)


def _plan_clean_up(fleet: Matrix, tree: Tree) -> list[Change]:
    planned: list[Change] = []
    recipe_paths = {variant.path: variant for variant in fleet.variants}
    listed: set[str] = set()
    for release in fleet.releases.values():
        for entry in release.cleanup:
            path = f"{release.folder}/{entry.file}"
            listed.add(path)
            if entry.action == "delete":
                planned.append(plan_delete(tree, path, entry.reason))
            elif (tree.root / path).exists():
                number = recipe_paths[path].phase.number
                planned.append(
                    Change(
                        path=path,
                        action=Action.UNCHANGED,
                        reason=f"left to phase {number} ({entry.action})",
                    )
                )
    for folder in dict.fromkeys(release.folder for release in fleet.releases.values()):
        planned.extend(
            Change(path=path, action=Action.UNKNOWN, reason="not in matrix.toml; left alone")
            for path in sorted(_files_below(tree.root, folder))
            if path not in recipe_paths and path not in listed
        )
    return planned


def _files_below(root: Path, folder: str) -> list[str]:
    """Files in a recipe folder, ours that a kill left half-written aside."""
    return [
        path.relative_to(root).as_posix()
        for path in (root / folder).rglob("*")
        if not path.name.endswith(files.TEMPORARY) and (path.is_symlink() or not path.is_dir())
    ]


def _plan_recipes(phase: Phase, fleet: Matrix, tree: Tree) -> list[Change]:
    texts = rendering.texts(fleet)
    planned = []
    for variant in fleet.variants:
        if variant.phase is not phase:
            continue
        entry = cleanup_of(variant)
        planned.append(
            plan_text(
                tree,
                variant.path,
                texts[variant.path],
                hand_written=entry.action if entry and entry.action != "delete" else "refuse",
                reason=entry.reason if entry else "",
                group=variant.gpu_label,
            )
        )
    return planned
