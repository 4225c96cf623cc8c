"""`invoke add`: add a GPU architecture, an ISA, a variant or a release to matrix.toml."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import AddOptions
from build_pytorch.cli.matrix_change import carry_out, change_release, plan_files, wanted_versions
from build_pytorch.hardware import possible, saved_machines
from build_pytorch.hardware.choose import choose
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import require_release
from build_pytorch.sources.matrix_additions import Draft
from build_pytorch.sources.new_versions import NewVersions, new_name
from build_pytorch.sources.release_move import ReleaseMove

_FORMS = (
    "sm75, cpu avx, sm90-armv9, companion NAME, release NAME --like OTHER, or --for-machine FILE"
)


def run(options: AddOptions) -> int:
    """Add, render and verify in memory; then write everything at once.

    Returns the exit code. Raises BuildPytorchError, with nothing written, for wrong arguments.
    """
    screen = Screen(sys.stdout)
    old = matrix_reader.load(options.root)
    if options.what[:1] == ("release",):
        return _add_release(old, options)
    draft = Draft(old)
    _add(draft, options, screen)
    new = draft.matrix
    if new.text == old.text:
        screen.line("nothing to do: matrix.toml has it")
        return EXIT_OK
    todo = list(draft.todo)
    for key, pin in new.pins.items():
        if key not in old.pins and not pin.sha256:
            todo.append(f"pin.{key} has no hash; run `invoke prefetch --only nixpkgs`")
    if len(new.packages) == len(old.packages):
        todo.append("no group names it yet; `invoke add` with a variant such as sm90-armv9 does")
    return carry_out(old, new, plan_files(old, new), todo, options)


def _add_release(old: Matrix, options: AddOptions) -> int:
    """Add a release that is like another one. Returns the exit code. Raises BuildPytorchError."""
    if len(options.what) != 2 or not options.like:  # noqa: PLR2004 - the word and a name
        raise BuildPytorchError("write: invoke add release NAME --like OTHER")
    require_release(old, options.like, "--like")
    beside = new_name(options.what[1])
    gpus = tuple(_named(word) for word in options.gpu)
    wanted = structs.replace(wanted_versions(old, options), gpus=gpus)
    return change_release(old, options.like, wanted, beside, options)


def _add(draft: Draft, options: AddOptions, screen: Screen) -> None:
    """Add what the words and options name. Raises BuildPytorchError."""
    words = list(options.what)
    for name in ("like", "torch", "cuda", "python", "nixpkgs", "gpu", "without", "assume", "pre"):
        if getattr(options, name):
            raise BuildPytorchError(f"--{name}: only with `release`")
    if options.for_machine:
        if words:
            raise BuildPytorchError("--for-machine: takes no names beside it")
        _for_machine(draft, options.for_machine, options.release, screen)
    else:
        _add_names(draft, words, options.release)


def _add_names(draft: Draft, words: Sequence[str], release: str) -> None:
    """Add GPU architectures, ISAs, variants or companions. Raises BuildPytorchError."""
    kind = words[0] if words and words[0] in {"gpu", "cpu", "companion"} else ""
    names = words[1:] if kind else words
    if not names:
        raise BuildPytorchError(f"nothing to add; write {_FORMS}")
    for word in names:
        if kind == "companion":
            draft.add_companion(word, release)
            continue
        name = _named(word)
        if kind == "cpu":
            draft.ensure_isa(name)  # first: its error says that an ISA is meant
        draft.add(name, release)


def _named(word: str) -> str:
    """Return what `Draft.add` takes; for the name of a GPU, such as `RTX 5090`, its key."""
    is_key = re.fullmatch(r"(.*/)?((sm\d|cpu-|darwin-).*|\w+\+.*)", word)
    known = known_hardware.load()
    return word if is_key or word in known.cpu else known.gpu_key(word) or word


def _for_machine(draft: Draft, path: Path, release: str, screen: Screen) -> None:
    """Add the variant that a machine should have."""
    matrix = draft.matrix
    machine = saved_machines.load(path)
    found = choose(matrix, machine, release=release or None).ideal
    if found is None:
        raise BuildPytorchError(
            f"{path}: no known CPU ISA fits this machine; `invoke recommend` has the reasons"
        )
    variant = found.variant
    screen.fold("", f"{variant.id}: {found.reason}", indent=2)
    if found.is_in_matrix:
        return
    if variant.release_name not in matrix.releases:
        cuda = variant.release.cuda.version if variant.release.cuda else ""
        groups = (draft.group_of(variant),)
        wanted = NewVersions(cuda=cuda or None)
        like, name = possible.newest_release(matrix), variant.release_name
        draft.add_release(ReleaseMove(draft.matrix, like, wanted, beside=name), groups)
    else:
        draft.add(f"{variant.release_name}/{variant.short_id}")
