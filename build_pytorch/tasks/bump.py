"""`invoke bump`: move a release to other versions; `invoke outdated`: which are newer."""

from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.matrix.model import Matrix
    from build_pytorch.sources.github import NightlyCommit


@command(optional=("nightly",), texts={"release": "the release, if matrix.toml has several"})
def bump(
    c: Context,
    release: str = "",
    torch: str = "",
    nixpkgs: str = "",
    cuda: str = "",
    python: str = "",
    nightly: str | bool = "",
    as_: str = "",
    dry_run: bool = False,
) -> int:
    """Move a release to another PyTorch, nixpkgs or CUDA."""
    from build_pytorch.matrix import matrix_reader, matrix_text
    from build_pytorch.matrix.selection import only_release
    from build_pytorch.sources import fetchers, github
    from build_pytorch.sources.release_move import Move, left_to_do, moved
    from build_pytorch.tasks import phases

    if not (torch or nixpkgs or cuda or python or nightly):
        words = "--torch VERSION, --nixpkgs REV, --cuda VERSION, --python VERSION or --nightly"
        raise BuildPytorchError(f"nothing to do; give {words}")
    old, screen = load(), Screen(sys.stdout)
    nightlies = [key for key, it in old.releases.items() if it.torch.is_nightly]
    name = only_release(old, release, nightlies if nightly else list(old.releases))
    if torch and name in nightlies:
        what = f"--torch: release {name} builds a commit of a moving branch"
        fix = "--nightly moves it; for a version, name another release with --release"
        raise BuildPytorchError(f"{what}; {fix}")
    if nixpkgs in github.FLOX_BRANCHES and nixpkgs not in old.pins:
        nixpkgs = github.head("flox/nixpkgs", nixpkgs).rev
    commit = _commit(old, name, nightly) if nightly else None
    versions = {"torch": torch, "nixpkgs": nixpkgs, "cuda": cuda, "python": python}
    move = Move(matrix=old, name=name, beside=as_, commit=commit, **versions)
    after, by_reason = moved(move)
    if not by_reason:
        screen.line(f"nothing to do: release.{name} has these versions")
        return EXIT_OK
    for reason, values in by_reason.items():
        tables = dict.fromkeys(".".join(map(str, trail[:-1])) for trail in values)
        screen.fold("", f"{reason}: {', '.join(tables)}", indent=2)
    fetched = fetchers.fetch_moved(old, after, move.new_name)
    text = matrix_text.with_values(after.text, fetchers.hash_values(fetched))
    new = matrix_reader.parse(text, root=old.root)
    screen.diff(matrix_text.change(old.text, text).diff())
    code = phases.run([1, 2, 3, 4, 5], moved=(old, new), dry_run=dry_run, verify=True)
    if code or dry_run:
        return code
    screen.line("Written; `git diff` shows it.")
    first = next((v.id for v in new.of_release(move.new_name) if not v.impossible), "")
    build = f"build one variant before the others: `git add -A`, `invoke build {first}`"
    for note in (*left_to_do(move, new), build):
        screen.fold("  - ", note, indent=4)
    return EXIT_OK


def _commit(matrix: Matrix, name: str, nightly: str | bool) -> NightlyCommit:
    """Return the commit that --nightly names. Raises BuildPytorchError for another release."""
    from build_pytorch.sources import github

    torch = matrix.releases[name].torch
    if not torch.is_nightly:
        nightlies = [key for key, it in matrix.releases.items() if it.torch.is_nightly]
        what = f"release {name} builds version {torch.version}"
        raise BuildPytorchError(f"--nightly: {what}; nightlies: {', '.join(nightlies)}")
    return github.nightly_commit(torch, "" if nightly is True else str(nightly))


@command(texts={"check": "exit 1 if something is newer or has ended (CI)"})
def outdated(c: Context, check: bool = False, json: bool = False) -> int:
    """List newer versions of PyTorch and nixpkgs, and ended rules."""
    from build_pytorch.matrix import rules
    from build_pytorch.matrix.available import stale_builds
    from build_pytorch.sources.github import upstream_versions

    matrix, screen = load(), Screen(sys.stderr if json else sys.stdout)
    ended = []
    for rule in matrix.own_rules:
        variants = [variant for variant in matrix.variants if rules.holds(rule.when, variant)]
        if variants and all(rules.is_ended(rule, variant) for variant in variants):
            ended.append(rule.id)
    for name in ended:  # also without a network
        screen.line(f"rule {name}: its `until` holds for all its variants; delete it")
    if stale := stale_builds(dt.datetime.now(dt.UTC).date()):
        screen.fold("", stale, "yellow")
    versions = list(upstream_versions(matrix))
    for row in versions:
        date = f" ({row.date})" if row.date else ""
        state = "is the newest" if row.newest == row.ours else f"{row.newest}{date} is newer"
        screen.line(f"{row.release}  {row.name} {row.ours}: {state}")
    if json:
        print_json({"versions": versions, "ended_rules": ended}, sys.stdout)
    is_outdated = ended or any(row.newest != row.ours for row in versions)
    return EXIT_FINDINGS if check and is_outdated else EXIT_OK
