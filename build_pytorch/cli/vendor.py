"""`invoke vendor`: copy the files with CUDA packages of another repository into this one."""

from __future__ import annotations

from collections.abc import Mapping

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.base.file_plan import Action, Change, Tree
from build_pytorch.cli.commands import VendorOptions
from build_pytorch.cli.matrix_change import carry_out, plan_files, verify_planned
from build_pytorch.matrix import matrix_editor, matrix_reader
from build_pytorch.matrix.field_types import Trail
from build_pytorch.matrix.source_tables import CUDA_PACKAGES_SOURCE
from build_pytorch.sources import cuda_copies


def run(options: VendorOptions) -> int:
    """Read the files, edit the matrix, render and verify in memory; then write everything at once.

    Returns the exit code. Raises BuildPytorchError, with nothing written, if a step fails.
    """
    if options.what != (CUDA_PACKAGES_SOURCE,) or options.from_ is None:
        raise BuildPytorchError(f"write `invoke vendor {CUDA_PACKAGES_SOURCE} --from DIR`")
    old = matrix_reader.load(options.root)
    name, cuda = cuda_copies.chosen_release(old, options.release)
    release = old.releases[name]
    copies = cuda_copies.read_checkout(options.from_, cuda)
    values = cuda_copies.table(release, copies, cuda_copies.origin(options.from_))
    trail: Trail = ("release", name, "cuda", "packages_from")
    new = matrix_reader.parse(matrix_editor.with_new_table(old.text, trail, values), root=old.root)
    planned = plan_files(old, new)
    wrappers = [variant for variant in new.of_release(name) if variant.packages_from]
    recipes = [change for change in planned if change.path in {v.path for v in wrappers}]

    def tried(files: Mapping[str, bytes]) -> str:
        """Return the first error of the recipes with these files in place of the copies."""
        written = [
            Change(path=f"{values['folder']}/{file}", action=Action.CREATE, reason="", new=data)
            for file, data in files.items()
        ]
        result = verify_planned(new, [*recipes, *written], wrappers, ["evaluation"])
        errors = (each.found for each in result.findings if each.severity == "error")
        return next(errors, "")

    cuda_copies.refuse_broken(options.from_, cuda, copies, tried)
    planned += cuda_copies.plan(cuda, values["folder"], copies, Tree(options.root))
    return carry_out(old, new, planned, (), options)
