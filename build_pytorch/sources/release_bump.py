"""Move a release to another PyTorch, nixpkgs or CUDA: the new values, files and their checks.

Nothing here writes to the checkout.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from packaging.version import Version

from build_pytorch.base import digest, foreign_json, paths, process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.file_plan import Action, Change, Tree
from build_pytorch.base.versions import digits, minor_version, underscored
from build_pytorch.generate import docs, rendering
from build_pytorch.generate.phase_plan import plan_recipe
from build_pytorch.matrix import field_types, known_hardware, matrix_editor, matrix_errors
from build_pytorch.matrix.companion_versions import version_for
from build_pytorch.matrix.matrix_editor import Value
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.selection import require_release
from build_pytorch.matrix.tables import Release, Trail
from build_pytorch.nix import quoting, store
from build_pytorch.sources.fetchers import FetchedHash, explain, fetch
from build_pytorch.sources.github import NIXPKGS, GitHub, newest_version
from build_pytorch.sources.source_list import Source, sources
from build_pytorch.verify import registry, verification
from build_pytorch.verify.verification import VerificationResult


class BumpTarget(Struct, frozen=True, kw_only=True):
    """The versions to move to. What is None stays as it is."""

    torch: field_types.Version | None = None
    nixpkgs: field_types.Rev40 | None = None
    cuda: field_types.CudaVersion | None = None
    python: field_types.Version | None = None


def checked(name: str, version: str) -> str:
    """Return a version that is well-formed, or empty. Raises BuildPytorchError as `target_of`."""
    if version:
        target_of(**{name: version})
    return version


def new_name(name: str) -> str:
    """Return the key of a new release. Raises BuildPytorchError for a malformed one."""
    try:
        return msgspec.convert(name, field_types.Key)
    except msgspec.ValidationError:
        what = f'found "{name[:60]}"; allowed: a-z, 0-9 and _ (a dot breaks Flox)'
        raise BuildPytorchError(f"name of the release: {what}") from None


def target_of(**versions: str) -> BumpTarget:
    """Return the target with those versions that are not empty.

    Raises BuildPytorchError for none, or for one that is malformed and must not reach a URL.
    """
    given = {name: version for name, version in versions.items() if version}
    if not given:
        options = "--torch VERSION, --nixpkgs REV, --cuda VERSION or --python VERSION"
        raise BuildPytorchError(f"nothing to do; give {options}")
    try:
        return msgspec.convert(given, BumpTarget)
    except msgspec.ValidationError as error:
        (name,), what = matrix_errors.explain(error, given, BumpTarget)[0]
        raise BuildPytorchError(f"--{name}: {what}") from None


def chosen_release(matrix: Matrix, name: str) -> str:
    """Return the release with a name, or the only one. Raises BuildPytorchError."""
    names = list(matrix.releases)
    if not name and len(names) == 1:
        return names[0]
    if not name:
        raise BuildPytorchError(f"--release: name one of {', '.join(names)}")
    require_release(matrix, name)
    return name


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


def values(matrix: Matrix, name: str, target: BumpTarget) -> Iterator[tuple[Trail, Value]]:
    """Yield every value of matrix.toml that follows from the target. Pure.

    Raises BuildPytorchError for a CUDA version and a release without CUDA, for a PyTorch and a
    release with the torch of its pin, and for a pin that other releases have as well.
    """
    at: Trail = ("release", name)
    release = matrix.releases[name]
    if target.torch:
        if release.torch.is_of_pin:
            what = f"--torch: release {name} has the torch of its pin"
            fix = "make a release beside it with --as NAME, or move it with --nixpkgs"
            raise BuildPytorchError(f"{what}; {fix}")
        yield (*at, "torch", "version"), target.torch
        yield (*at, "torch", "rev"), f"v{target.torch}"
        yield from _companion_values(name, release, target.torch)
    if target.nixpkgs:
        yield from _pin_values(matrix, name, target.nixpkgs)
    if target.cuda:
        if release.cuda is None:
            raise BuildPytorchError(f"--cuda: release {name} has no CUDA")
        yield from _cuda_values(matrix, name, target.cuda)
    if target.python:
        yield (*at, "python", "version"), target.python
    yield from following_values(name, release, target)


def following_values(
    name: str, release: Release, target: BumpTarget
) -> Iterator[tuple[Trail, Value]]:
    """Yield the names and files of a release that contain the versions that change. Pure."""
    at: Trail = ("release", name)
    for field, value in _names(release, target):
        yield (*at, "names", field), value
    for index, file in _cleanup(release, target):
        yield (*at, "cleanup", index, "file"), file
    notes = _notes(release, target)
    if notes and notes != release.notes:
        yield (*at, "notes"), notes


def _companion_values(name: str, release: Release, torch: str) -> Iterator[tuple[Trail, Value]]:
    """Yield the versions of the companions that belong to a PyTorch.

    Raises BuildPytorchError for one whose version nobody has recorded.
    """
    for place, source in release.sources.items():
        if source is release.torch or source.is_of_pin:
            continue
        version, table = version_for(torch, place[-1]), f"release.{name}.{'.'.join(place)}"
        if version is None:
            what = f"--torch: no version of {place[-1]} is known for PyTorch {torch}"
            fix = "add it to build_pytorch/matrix/companion_versions.toml, or remove"
            raise BuildPytorchError(f"{what}; {fix} {table}")
        yield ("release", name, *place, "version"), version
        yield ("release", name, *place, "rev"), f"v{version}"


def _notes(release: Release, target: BumpTarget) -> str | None:
    """Return the page of build notes, whose name may contain versions."""
    notes, cuda = release.notes, release.cuda
    if notes and target.torch:
        old, new = minor_version(release.torch.version), minor_version(target.torch)
        notes = notes.replace(old, new)
    if notes and target.cuda and cuda:
        old, new = (version.split(".")[0] for version in (cuda.version, target.cuda))
        notes = notes.replace(f"cuda{old}", f"cuda{new}")
    return notes


def _names(release: Release, target: BumpTarget) -> Iterator[tuple[str, str]]:
    """Yield the parts of the names that contain versions which change."""
    pairs = []
    if target.torch:
        old, new = minor_version(release.torch.version), minor_version(target.torch)
        pairs.append(("pname", digits(old), digits(new)))
    if target.cuda and release.cuda:
        was, now = underscored(release.cuda.version), underscored(target.cuda)
        pairs.append(("gpu", f"cuda{was}", f"cuda{now}"))
    if target.python:
        was, now = digits(release.python.version), digits(target.python)
        pairs += [(field, f"python{was}", f"python{now}") for field in ("gpu", "cpu", "mps")]
    names: dict[str, str] = msgspec.to_builtins(release.names)
    for field, was, now in pairs:
        value = names[field].replace(was, now)
        if value != names[field]:
            names[field] = value
            yield field, value


def _cleanup(release: Release, target: BumpTarget) -> Iterator[tuple[int, str]]:
    """Yield the files of the clean-up list that are recipes, with their new names."""
    pairs = []
    if target.cuda and release.cuda:
        was, now = underscored(release.cuda.version), underscored(target.cuda)
        pairs.append((f"cuda{was}", f"cuda{now}"))
    if target.python:
        pairs.append((f"python{digits(release.python.version)}", f"python{digits(target.python)}"))
    for index, entry in enumerate(release.cleanup):
        file = entry.file
        for was, now in pairs:
            file = file.replace(was, now)
        if entry.action != "delete" and file != entry.file:
            yield index, file


def _cuda_values(matrix: Matrix, name: str, version: str) -> Iterator[tuple[Trail, Value]]:
    """Yield the CUDA of a release. A package set named by the major version is that of the pin."""
    release = matrix.releases[name]
    at, key = ("release", name, "cuda"), release.nixpkgs.pin
    is_exact = release.cuda is not None and release.cuda.package_set.count("_") > 1
    suffix = underscored(version) if is_exact else version.split(".", maxsplit=1)[0]
    package_set = f"cudaPackages_{suffix}"
    yield (*at, "version"), version
    yield (*at, "package_set"), package_set
    if matrix.pins[key].cuda.get(package_set) != version:
        yield ("pin", key, "cuda", package_set), version


def _pin_values(matrix: Matrix, name: str, rev: str) -> Iterator[tuple[Trail, Value]]:
    """Yield the values of another revision. Raises BuildPytorchError for a shared pin."""
    nixpkgs = matrix.releases[name].nixpkgs
    key = nixpkgs.pin
    others = [n for n, r in matrix.releases.items() if r.nixpkgs.pin == key and n != name]
    if others:
        what = f"--nixpkgs: pin {key} is also the pin of release {', '.join(others)}"
        raise BuildPytorchError(f"{what}; add a pin to matrix.toml and name it")
    retired = [*nixpkgs.retired, matrix.pins[key].rev]
    yield ("pin", key, "rev"), rev
    yield ("release", name, "nixpkgs", "retired"), [each for each in retired if each != rev]


def fetch_changed(old: Matrix, new: Matrix, name: str, minutes: float) -> Iterator[FetchedHash]:
    """Fetch the sources of a release that changed, one by one. Raises ToolError."""
    before = {(source.release, source.name, source.request) for source in sources(old)}
    for source in sources(new):
        is_new = source.release == name and (name, source.name, source.request) not in before
        if is_new and source.recorded != source.taken_for:
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
    (source,) = (s for s in sources(matrix, ("nixpkgs",)) if s.release == name)
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
    given = {**source.arguments, "sha256": source.hash}
    arguments = " ".join(f"{k} = {quoting.literal(v)};" for k, v in given.items() if v)
    items = " ".join(f"{name} = {code};" for name, code in attributes.items())
    options = '{ system = "x86_64-linux"; config = { }; overlays = [ ]; }'
    pkgs = f"import (builtins.fetchTarball {{ {arguments} }}) {options}"
    argv = store.evaluate_argv(f"let pkgs = {pkgs}; in {{ {items} }}")
    result = process.start(argv).finish(minutes * 60)
    try:
        document = foreign_json.decode("" if result.code else result.stdout)
        return msgspec.convert(document, dict[str, str | None])
    except ValueError:
        raise ToolError(explain(source, result)) from None


def _versions(wanted: Mapping[str, str]) -> str:
    return " and ".join(f"{what} {version}" for what, version in sorted(wanted.items()))


def plan(old: Matrix, new: Matrix, root: Path, name: str = "") -> list[Change]:
    """Plan the matrix, recipes and docs; files that get another name are deleted.

    `name` is the release whose page of build notes may have another name.
    """
    tree = Tree(root)
    texts = rendering.texts(new)
    changes = [matrix_editor.change(paths.MATRIX, old.text, new.text)]
    changes += [plan_recipe(new, tree, each, texts[each.path]) for each in new.packages]
    kept = {package.path for package in new.packages}
    for path in dict.fromkeys(package.path for package in old.packages):
        if path not in kept and (data := tree.read(path)) is not None:
            is_ours = digest.is_intact(data.decode("utf-8", errors="replace"))
            action = Action.DELETE if is_ours else Action.REFUSED
            reason = "has another name now" if is_ours else "edited by hand, and has another name"
            changes.append(Change(path=path, action=action, reason=reason, old=data))
    planned = docs.plan(new, texts, tree)
    page, moved = (m.releases[name].notes if name in m.releases else None for m in (old, new))
    if page and moved and page != moved:
        planned = [_with_link(c, page, moved) for c in planned if c.path not in {page, moved}]
        planned += docs.moved(texts, tree, page, moved)
    return [*changes, *planned]


def _with_link(change: Change, page: str, moved: str) -> Change:
    """Return the change of a page with the README's links to the notes at their new place."""
    if change.path != paths.README or change.old is None:
        return change
    new = (change.new or change.old).replace(page.encode(), moved.encode())
    action = Action.REWRITE if change.action is Action.UNCHANGED else change.action
    return msgspec.structs.replace(change, action=action, new=new)


def verified(
    matrix: Matrix,
    planned: Iterable[Change],
    variants: Sequence[Variant] | None = None,
    only: Sequence[str] = (),
) -> VerificationResult:
    """Check the planned recipes in a temporary folder, by all categories but `generated`.

    `variants` and `only` limit the recipes and the categories.
    """
    with tempfile.TemporaryDirectory() as folder:
        for change in planned:
            data = change.new if change.action.writes else change.old
            if data is not None and change.path.endswith(".nix"):
                path = Path(folder) / change.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        only = only or [name for name in registry.CATEGORIES if name != "generated"]
        root = Path(folder)
        return verification.verify(matrix, root, variants=variants, only=only, trusted=True)


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
