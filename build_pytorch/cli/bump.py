"""`invoke bump`: move a release to another PyTorch, nixpkgs, CUDA or Python."""

from __future__ import annotations

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.cli.commands import BumpOptions
from build_pytorch.cli.matrix_change import change_release, wanted_versions
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import only_release
from build_pytorch.sources import nightly
from build_pytorch.sources.release_move import NewVersions


def run(options: BumpOptions) -> int:
    """Move a release, or make one beside it. Returns the exit code. Raises BuildPytorchError."""
    old = matrix_reader.load(options.root)
    name, wanted = (_commit_wanted if options.nightly else _versions_wanted)(options, old)
    return change_release(old, name, wanted, options)


def _versions_wanted(options: BumpOptions, old: Matrix) -> tuple[str, NewVersions]:
    """Return the release and the versions to move it to. Raises BuildPytorchError."""
    wanted = wanted_versions(old, options)
    if not wanted.words:
        versions = "--torch VERSION, --nixpkgs REV, --cuda VERSION or --python VERSION"
        raise BuildPytorchError(f"nothing to do; give {versions}")
    name = only_release(old, options.release, list(old.releases))
    if wanted.torch and old.releases[name].torch.is_nightly:
        what = f"--torch: release {name} builds a commit of a moving branch"
        fix = "--nightly moves it; for a version, name another release with --release"
        raise BuildPytorchError(f"{what}; {fix}")
    return name, wanted


def _commit_wanted(options: BumpOptions, old: Matrix) -> tuple[str, NewVersions]:
    """Return the nightly and its new commit. Asks GitHub. Raises BuildPytorchError."""
    for other in ("torch", "nixpkgs", "cuda", "python", "without", "as_"):
        if getattr(options, other):
            shown = other.removesuffix("_")
            raise BuildPytorchError(f"--nightly: moves the source alone; leave --{shown} out")
    word = nightly.checked(options.nightly)
    name = nightly.chosen_release(old, options.release)
    return name, NewVersions(commit=nightly.known_commit(old.releases[name].torch, word))
