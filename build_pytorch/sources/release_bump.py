"""Move a release to other versions: what GitHub and the pin have, and what is left to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from packaging.version import Version

from build_pytorch.base import foreign_json, process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.hashed_sources import Source
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import Release
from build_pytorch.nix import quoting, store
from build_pytorch.sources.bump_values import BumpTarget
from build_pytorch.sources.fetchers import FetchedHash, explain, fetch
from build_pytorch.sources.github import NIXPKGS, GitHub, newest_version
from build_pytorch.sources.source_list import arguments


def refuse_pre_release(target: BumpTarget) -> None:
    """Raise BuildPytorchError for a PyTorch that is not final."""
    if target.torch and Version(target.torch).is_prerelease:
        raise BuildPytorchError(f"v{target.torch} is a pre-release; --pre accepts it")


def check_upstream(release: Release, target: BumpTarget, *, pre: bool) -> Iterator[str]:
    """Yield notes on the target's versions. Raises BuildPytorchError if GitHub lacks one.

    What GitHub marks as a pre-release is refused unless `pre` is set.
    """
    github, owner, repo = GitHub(), release.torch.owner, release.torch.repo
    if target.torch and not release.torch.is_of_pin:
        tag = f"v{target.torch}"
        if not github.has_tag(owner, repo, tag):
            raise BuildPytorchError(f"{owner}/{repo} has no tag {tag}")
        known = github.releases(owner, repo)
        if known.get(tag) and not pre:
            raise BuildPytorchError(f"GitHub marks {tag} as a pre-release; --pre accepts it")
        newest = newest_version(known)
        if newest and Version(newest) > Version(target.torch):
            yield f"PyTorch {newest} is newer than {target.torch}"
    if target.nixpkgs and not github.has_commit(*NIXPKGS, target.nixpkgs):
        raise BuildPytorchError(f"{'/'.join(NIXPKGS)} has no commit {target.nixpkgs}")


def fetch_changed(old: Matrix, new: Matrix, name: str, minutes: float) -> Iterator[FetchedHash]:
    """Fetch the sources of a release that changed, one by one. Raises ToolError."""
    before = {(source.place, source.taken_for) for source in old.sources()}
    for source in new.sources():
        is_changed = (source.place, source.taken_for) not in before
        if source.release == name and is_changed and source.recorded != source.taken_for:
            yield fetch(source, minutes)


def is_assumed(old: Matrix, new: Matrix, name: str) -> bool:
    """Return whether nobody has written down what the pin of a release contains."""
    key = new.releases[name].nixpkgs.pin
    pins = {**known_hardware.load().pin, **old.pins}
    return pins.get(key) != new.pins[key]


def pin_contradictions(matrix: Matrix, name: str, minutes: float) -> Iterator[str]:
    """Yield what the nixpkgs of a release has in other versions than its names say.

    The pin decides the CUDA of a package set such as cudaPackages_13, and the Python. Yields one
    line that begins with "not checked" if the pin cannot be evaluated here.
    """
    release = matrix.releases[name]
    (source,) = (s for s in matrix.sources() if s.place == ("pin", release.nixpkgs.pin))
    wanted = {"Python": release.python.version}
    pin = matrix.pins[release.nixpkgs.pin]
    interpreter = pin.python_set(release.python.version).removesuffix("Packages")
    attributes = {"Python": f"pkgs.{interpreter}.pythonVersion or null"}
    if release.cuda:
        cuda_set = f"pkgs.{quoting.attribute(release.cuda.package_set)}"
        wanted["CUDA"] = release.cuda.version
        attributes["CUDA"] = f"{cuda_set}.cudaMajorMinorVersion or ({cuda_set}.cudaVersion or null)"
    try:
        found = _evaluated(source, attributes, minutes)
    except ToolError as error:
        yield f"not checked: whether nixpkgs has {_versions(wanted)}: {error}"
        return
    for what, version in wanted.items():
        if found[what] != version:
            other = f"{what} {found[what]}" if found[what] else f"no {what}"
            where = f" in {release.cuda.package_set}" if what == "CUDA" and release.cuda else ""
            fix = "move to a nixpkgs that has it with --nixpkgs REV"
            yield f"nixpkgs {pin.rev} has {other}{where}, not {version}; {fix}"


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


def _versions(wanted: Mapping[str, str]) -> str:
    return " and ".join(f"{what} {version}" for what, version in sorted(wanted.items()))


def remaining_work(release: Release, target: BumpTarget) -> Iterator[str]:
    """Yield what a person has to decide after the move."""
    if target.torch and release.torch.is_nightly:
        yield "build one variant: texts that nixpkgs replaces and this source lacks stop it at once"
        yield f"compare the Triton of the pin with {release.torch.triton_rev}, for torch.compile"
        return
    if target.torch:
        yield "check whether the new PyTorch still needs each fix of the build notes"
        yield "update the prose of the build notes, which names the old version"
        yield f"check whether the nixpkgs pin has PyTorch {target.torch} itself"
        for companion, source in release.companion.packages.items():
            if source.patches == "keep" and not source.is_of_pin:
                yield f"check whether the patches of nixpkgs apply to {companion} {source.version}"
    if target.nixpkgs:
        pin = f"pin.{release.nixpkgs.pin}"
        yield f"check torch, python, cuda and has of {pin}: they describe the earlier revision"
    if target.cuda:
        yield f"check the oldest driver of CUDA {target.cuda}: release.*.cuda.driver is unchanged"
        yield f"check that pin {release.nixpkgs.pin} has this CUDA, and that the rules fit it"
        yield "check the name of the release's tables, which may contain the old CUDA"
    yield "build one variant before the others"
