"""What GitHub and the pin say of a moved release, and the hashes of its new sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from packaging.version import Version

from build_pytorch.base import foreign_json, process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.versions import is_revision
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.hashed_sources import Source
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import Release
from build_pytorch.nix import quoting, store
from build_pytorch.sources.fetchers import FetchedHash, arguments, explain, fetch
from build_pytorch.sources.github import NIXPKGS, GitHub, newest_version
from build_pytorch.sources.release_move import NewVersions


def refuse_pre_release(wanted: NewVersions) -> None:
    """Raise BuildPytorchError for a PyTorch that is not final."""
    if wanted.torch and Version(wanted.torch).is_prerelease:
        raise BuildPytorchError(f"v{wanted.torch} is a pre-release; --pre accepts it")


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
    is_rev = is_revision(wanted.nixpkgs or "")
    if wanted.nixpkgs and is_rev and not github.commit(*NIXPKGS, wanted.nixpkgs):
        raise BuildPytorchError(f"{'/'.join(NIXPKGS)} has no commit {wanted.nixpkgs}")


def fetch_changed(old: Matrix, new: Matrix, name: str, minutes: float) -> Iterator[FetchedHash]:
    """Fetch the sources of a release that changed, one by one. Raises ToolError."""
    before = {(source.place, source.taken_for) for source in old.sources()}
    for source in new.sources():
        is_changed = (source.place, source.taken_for) not in before
        if source.release == name and is_changed and source.recorded != source.taken_for:
            yield fetch(source, minutes)


def pin_contradictions(old: Matrix, new: Matrix, name: str, minutes: float) -> Iterator[str]:
    """Yield what the nixpkgs of a release has in other versions than its names say.

    The pin decides the CUDA of a package set such as cudaPackages_13, and the Python. It is
    evaluated unless its facts are known already. Yields one line that begins with "not checked" if
    the pin cannot be evaluated here.
    """
    release = new.releases[name]
    key, python = release.nixpkgs.pin, release.python.version
    pin, before = new.pins[key], {**known_hardware.load().pin, **old.pins}.get(key)
    pythons = {r.python.version for r in old.releases.values() if r.nixpkgs.pin == key}
    is_same = before and (before.rev, before.cuda) == (pin.rev, pin.cuda)
    if is_same and python in {pin.python, *pythons}:
        return
    (source,) = (s for s in new.sources() if s.place == ("pin", key))
    wanted, where, attributes = {"Python": python}, {"Python": ""}, {}
    interpreter = pin.python_set(python).removesuffix("Packages")
    attributes["Python"] = f"pkgs.{interpreter}.pythonVersion or null"
    if release.cuda:
        cuda_set = f"pkgs.{quoting.attribute(release.cuda.package_set)}"
        wanted["CUDA"], where["CUDA"] = release.cuda.version, f" in {release.cuda.package_set}"
        attributes["CUDA"] = f"{cuda_set}.cudaMajorMinorVersion or ({cuda_set}.cudaVersion or null)"
    try:
        found = _evaluated(source, attributes, minutes)
    except ToolError as error:
        versions = " and ".join(f"{what} {version}" for what, version in sorted(wanted.items()))
        yield f"not checked: whether nixpkgs has {versions}: {error}"
        return
    for what, version in wanted.items():
        if found[what] != version:
            other = f"{what} {found[what]}" if found[what] else f"no {what}"
            fix = "move to a nixpkgs that has it with --nixpkgs REV"
            yield f"nixpkgs {pin.rev} has {other}{where[what]}, not {version}; {fix}"


def _evaluated(
    source: Source, attributes: Mapping[str, str], minutes: float
) -> dict[str, str | None]:
    """Return attributes of a pinned nixpkgs by name. Raises ToolError with one line."""
    given = {**arguments(source), "sha256": source.hash}
    given_code = " ".join(f"{k} = {quoting.literal(v)};" for k, v in given.items() if v)
    items = " ".join(f"{name} = {code};" for name, code in attributes.items())
    options = '{ system = "x86_64-linux"; config = { }; overlays = [ ]; }'
    pkgs = f"import (builtins.fetchTarball {{ {given_code} }}) {options}"
    argv = store.evaluate_argv(f"let pkgs = {pkgs}; in {{ {items} }}")
    result = process.start(argv).finish(minutes * 60)
    try:
        document = foreign_json.decode("" if result.code else result.stdout)
        return msgspec.convert(document, dict[str, str | None])
    except ValueError:
        raise ToolError(explain(source, result)) from None
