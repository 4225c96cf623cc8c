"""`invoke add`: add a GPU architecture, an ISA, a variant or a release to matrix.toml."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from build_pytorch.base.console import Screen, some
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import AddOptions
from build_pytorch.cli.matrix_change import carry_out, plan_files
from build_pytorch.hardware import possible, saved_machines
from build_pytorch.hardware.choose import choose
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.selection import require_release
from build_pytorch.sources import move_checks, official_source
from build_pytorch.sources.matrix_additions import Draft
from build_pytorch.sources.release_move import NewVersions, ReleaseMove, new_name, new_versions

_FORMS = (
    "sm75, cpu avx, sm90-armv9, companion NAME, release NAME --like OTHER, or --for-machine FILE"
)


def run(options: AddOptions) -> int:
    """Add, render and verify in memory; then write everything at once.

    Returns the exit code. Raises BuildPytorchError, with nothing written, for wrong arguments.
    """
    screen = Screen(sys.stdout)
    old = matrix_reader.load(options.root)
    draft = Draft(old)
    _add(draft, options, screen)
    new = draft.matrix
    if new.text == old.text:
        screen.line("nothing to do: matrix.toml has it")
        return EXIT_OK
    before = {package.path for package in old.packages}
    added = [package.id for package in new.packages if package.path not in before]
    names = new.releases.keys() - old.releases.keys()
    own = [v for v in new.variants if v.release_name in names and not v.source.is_of_pin]
    todo = [*draft.todo, *official_source.read_missing(new, own)]
    for key, pin in new.pins.items():
        if key not in old.pins and not pin.sha256:
            todo.append(f"pin.{key} has no hash; run `invoke prefetch --only nixpkgs`")
    if added:
        todo.append(f"build one of the new packages before the others: {some(added)}")
    else:
        todo.append("no group names it yet; `invoke add` with a variant such as sm90-armv9 does")
    return carry_out(old, new, plan_files(old, new), todo, dry_run=options.dry_run)


def _add(draft: Draft, options: AddOptions, screen: Screen) -> None:
    """Add what the words and options name. Raises BuildPytorchError."""
    words = list(options.what)
    wanted = new_versions(
        torch=options.torch,
        nixpkgs=options.nixpkgs,
        cuda=options.cuda,
        python=options.python,
        without=options.without,
    )
    if options.for_machine:
        if words:
            raise BuildPytorchError("--for-machine: takes no names beside it")
        _for_machine(draft, options.for_machine, options.release, screen)
    elif words[:1] == ["release"]:
        if len(words) != 2 or not options.like:  # noqa: PLR2004 - the word and a name
            raise BuildPytorchError("write: invoke add release NAME --like OTHER")
        require_release(draft.matrix, options.like, "--like")
        move = ReleaseMove(draft.matrix, options.like, wanted, beside=new_name(words[1]))
        move = move_checks.asked_move(move, options.assume, options.timeout)
        for reason in move.reasons():
            screen.fold("", reason, indent=2)
        draft.add_release(move)
    elif options.like or wanted.words or options.assume:
        given = "--like, --torch, --cuda, --python, --nixpkgs, --without, --assume"
        raise BuildPytorchError(f"{given}: only with `release`")
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
