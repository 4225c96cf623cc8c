"""What GitHub and the pin say of a moved release, and the hashes of its new sources."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.versions import is_revision
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.source_tables import Pin
from build_pytorch.matrix.tables import Release
from build_pytorch.sources import pin_facts
from build_pytorch.sources.fetchers import FetchedHash, fetch
from build_pytorch.sources.github import NIXPKGS, GitHub, newest_version
from build_pytorch.sources.release_move import CONTENTS, NewVersions, ReleaseMove


def check_upstream(release: Release, wanted: NewVersions, *, pre: bool) -> Iterator[str]:
    """Yield notes on the versions. Raises BuildPytorchError if GitHub lacks one.

    What GitHub marks as a pre-release is refused unless `pre` is set.
    """
    github, owner, repo = GitHub(), release.torch.owner, release.torch.repo
    if wanted.torch and not release.torch.is_of_pin:
        tag = f"v{wanted.torch}"
        if not github.has_tag(owner, repo, tag):
            raise BuildPytorchError(f"{owner}/{repo} has no tag {tag}")
        known = github.releases(owner, repo)
        if known.get(tag) and not pre:
            raise BuildPytorchError(f"GitHub marks {tag} as a pre-release; --pre accepts it")
        newest = newest_version(known)
        if newest and Version(newest) > Version(wanted.torch):
            yield f"PyTorch {newest} is newer than {wanted.torch}"
    pins = {pin.rev for pin in known_hardware.load().pin.values()}
    is_new = is_revision(wanted.nixpkgs or "") and wanted.nixpkgs not in pins
    if wanted.nixpkgs and is_new and not github.commit(*NIXPKGS, wanted.nixpkgs):
        raise BuildPytorchError(f"{'/'.join(NIXPKGS)} has no commit {wanted.nixpkgs}")


def fetch_changed(
    old: Matrix, new: Matrix, name: str, minutes: float
) -> Iterator[FetchedHash | str]:
    """Fetch the sources of a release that changed, one by one.

    Yields why a pin that is known has no hash: Nix needs it in pure evaluation only. Raises
    ToolError if another download fails.
    """
    before = {(source.place, source.taken_for) for source in old.sources()}
    for source in new.sources():
        is_changed = (source.place, source.taken_for) not in before
        if source.release == name and is_changed and source.recorded != source.taken_for:
            try:
                yield fetch(source, minutes)
            except ToolError as error:
                if not isinstance(source.table, Pin):
                    raise
                take = "`invoke prefetch --only nixpkgs` takes its hash"
                yield f"pin.{source.place[-1]} has no hash; {take}: {error}"


def asked_move(move: ReleaseMove, assume: str, minutes: float) -> ReleaseMove:
    """Return a move to a pin that has its versions.

    If nobody has asked the pin for them, it is evaluated; with `assume` it contains what the pin of
    that key does. Raises ToolError if that fails, and BuildPytorchError if the pin lacks a version.
    """
    matrix, key = move.matrix, move.pin
    pin = move.pins.get(key) or matrix.pins[key]
    is_new = CONTENTS in move.unknown
    if assume and not is_new:
        raise BuildPytorchError(f"--assume: it is known what pin.{key} contains; leave it out")
    if not move.unknown:
        return move
    if assume:
        pin = pin_facts.assumed(matrix, pin, assume)
    else:
        try:
            pin = pin_facts.learned(matrix, key, pin, minutes)
        except ToolError as error:
            what = f"pin.{key}, {', '.join(move.unknown)}: not known; {error}"
            raise ToolError(f"{what}; {pin_facts.OR_ASSUME}" if is_new else what) from None
    return ReleaseMove(matrix, move.name, move.wanted, beside=move.beside, pin=pin)
