"""`invoke remove`: take a release or variants out of matrix.toml, with their generated files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from build_pytorch.base import files, paths
from build_pytorch.base.console import counted
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.file_plan import Tree
from build_pytorch.cli.commands import RemoveOptions
from build_pytorch.cli.matrix_change import carry_out, plan_files
from build_pytorch.generate import flox_environments
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.matrix.selection import select_packages
from build_pytorch.results import artefacts
from build_pytorch.results.ledger import LOGS, Ledger
from build_pytorch.sources.matrix_removals import Removal


def run(options: RemoveOptions) -> int:
    """Remove, render and verify in memory; then delete and write everything at once.

    Returns the exit code. Raises BuildPytorchError, with nothing changed, for what cannot go.
    """
    words = options.what[1:] if options.what[:1] == ("release",) else options.what  # as for `add`
    if not words:
        raise BuildPytorchError("nothing to remove; name a release or a variant")
    old = matrix_reader.load(options.root)
    removal = Removal(old)
    for word in words:
        if word in old.releases:
            removal.remove_release(word)
            continue
        for package in select_packages(removal.matrix, [word]):
            if not isinstance(package, Variant):
                fix = f"name {package.variant.id}, or edit release.{package.release_name}.companion"
                raise BuildPytorchError(
                    f"{package.id}: a companion, which goes with its variant; {fix}"
                )
            removal.remove_variant(package)
    new = removal.matrix
    kept = {package.path for package in new.packages}
    gone = [package for package in old.packages if package.path not in kept]
    planned = plan_files(old, new)
    planned += flox_environments.plan_removal(old, new, Tree(old.root))
    return carry_out(old, new, planned, [*_left(old, new, gone)], options)


def _left(old: Matrix, new: Matrix, gone: Sequence[Package]) -> Iterator[str]:
    """Yield what no command deletes: evidence of builds, pins, and pages that are not generated."""
    ids = {(package.release_name, package.short_id) for package in gone}
    folders = {f"{paths.STATE}/{LOGS}/{package.package}" for package in gone}
    links = [artefacts.link(old.root, package) for package in gone]
    counts = {
        "log": sum(1 for folder in folders for _ in files.walk_below(old.root, folder)),
        "result link": sum(map(os.path.lexists, dict.fromkeys(links))),
        "ledger line": sum(event.subject in ids for event in Ledger(old.root).events()),
    }
    if found := [counted(number, what) for what, number in counts.items() if number]:
        yield f"left as it is: {', '.join(found)}"
    for key in old.pins.keys() - {release.nixpkgs.pin for release in new.releases.values()}:
        yield f"left as it is: pin.{key}, which no release uses now"
    for name in old.releases.keys() - new.releases.keys():
        if notes := old.releases[name].notes:
            yield f"left as it is: {notes}"
