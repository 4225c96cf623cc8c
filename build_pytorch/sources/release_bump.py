"""Moving a release to another PyTorch, nixpkgs or CUDA: all of it, or nothing."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from build_pytorch.base import file_apply, paths
from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError, near_miss
from build_pytorch.base.file_plan import Action, Change, Tree, plan_text, print_plan
from build_pytorch.generate import docs, rendering
from build_pytorch.matrix import field_types, matrix_editor, matrix_reader
from build_pytorch.matrix.matrix_editor import Value
from build_pytorch.matrix.model import Matrix, Release, Trail
from build_pytorch.sources import source_fetch
from build_pytorch.sources.github import GitHub
from build_pytorch.sources.source_list import sources
from build_pytorch.verify import verification

_NIXPKGS: Final = ("NixOS", "nixpkgs")
_BRANCH: Final = "nixos-unstable"


class BumpOptions(Struct, frozen=True, kw_only=True):
    """What a person may ask."""

    torch: str = ""
    nixpkgs: str = ""
    cuda: str = ""
    release: str = ""
    pre: bool = False
    dry_run: bool = False
    timeout: int = source_fetch.TIMEOUT


def run(options: BumpOptions) -> int:
    """Check, edit, prefetch, render and verify in memory; then write everything at once.

    Returns the exit code. Raises BuildPytorchError, with nothing written, where a step fails.
    """
    _check(options)
    screen = Screen(sys.stdout)
    fleet = matrix_reader.load()
    name = _release(fleet, options.release)
    release = fleet.releases[name]
    notes = list(_ask_github(release, options))
    text = matrix_editor.edited(fleet.text, dict(_values(name, release, options)))
    text = _with_hashes(fleet, text, name, options, screen)
    new = matrix_reader.parse(text)
    planned = _plan(fleet, new, name)
    screen.diff(matrix_editor.change(paths.MATRIX, fleet.text, text).diff())
    print_plan(screen, "Files", planned)
    refused = [change for change in planned if change.action is Action.REFUSED]
    if refused:
        screen.line(f"{counted(len(refused), 'file')} edited by hand: nothing was written.")
        return EXIT_FINDINGS
    if not _verified(new, planned, screen):
        screen.line("The new recipes do not pass verification: nothing was written.")
        return EXIT_FINDINGS
    if not options.dry_run:
        file_apply.apply(paths.PROJECT, planned)
    screen.line("Dry run: nothing was written." if options.dry_run else "Written.")
    screen.line("What a person still has to look at:")
    for note in [*notes, *_still(release, options)]:
        screen.line(f"  - {note}")
    return EXIT_OK


def outdated(*, as_json: bool) -> int:
    """List what is newer than the matrix. Returns the exit code. Raises ToolError."""
    github = GitHub()
    fleet = matrix_reader.load()
    rows: list[dict[str, Any]] = []
    for name, release in fleet.releases.items():
        torch = release.torch
        newest = _newest(github.releases(torch.owner, torch.repo))
        is_newer = newest is not None and _number(newest) > _number(torch.version)
        rows.append(_row(name, "torch", torch.version, newest or "?", newer=is_newer))
        rev, date = github.head(*_NIXPKGS, _BRANCH)
        row = _row(name, "nixpkgs", release.nixpkgs.rev, rev, newer=rev != release.nixpkgs.rev)
        rows.append({**row, "date": date})
    if as_json:
        print_json(rows, sys.stdout)
        return EXIT_OK
    screen = Screen(sys.stdout)
    for row in rows:
        state = f"{row['newest']} is newer" if row["newer"] else "is the newest"
        date = f" ({_BRANCH} of {row['date']})" if "date" in row and row["newer"] else ""
        screen.line(f"{row['release']}  {row['name']} {row['ours']}: {state}{date}")
    return EXIT_OK


def _row(release: str, name: str, ours: str, newest: str, *, newer: bool) -> dict[str, Any]:
    return {"release": release, "name": name, "ours": ours, "newest": newest, "newer": newer}


def _release(fleet: Matrix, name: str) -> str:
    """The release to move: the only one, or the one that is named."""
    names = list(fleet.releases)
    if not name and len(names) == 1:
        return names[0]
    if name not in names:
        hint = near_miss(name, names) or f"; there are {', '.join(names)}"
        raise BuildPytorchError(f'--release "{name}": no such release{hint}')
    return name


def _check(options: BumpOptions) -> None:
    """Refuse what is no version and no revision, before it reaches a URL or the matrix."""
    if not (options.torch or options.nixpkgs or options.cuda):
        raise BuildPytorchError(
            "nothing to do; give --torch VERSION, --nixpkgs REV or --cuda VERSION"
        )
    kinds: dict[str, tuple[Any, str]] = {
        "torch": (field_types.Version, "a version such as 2.11.0"),
        "nixpkgs": (field_types.Rev40, "a full Git revision, 40 hex digits"),
        "cuda": (field_types.CudaVersion, "a CUDA version such as 13.1"),
    }
    for option, (kind, allowed) in kinds.items():
        value = getattr(options, option)
        try:
            if value:
                msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise BuildPytorchError(f'--{option}: found "{value}"; allowed: {allowed}') from None


def _ask_github(release: Release, options: BumpOptions) -> Iterator[str]:
    """What GitHub says of what was asked for. Raises BuildPytorchError where it does not exist."""
    if not (options.torch or options.nixpkgs):
        return
    github = GitHub()
    torch = release.torch
    if options.torch:
        tag = f"v{options.torch}"
        if "rc" in options.torch and not options.pre:
            raise BuildPytorchError(f"{tag} is a pre-release; --pre takes it all the same")
        if not github.has_tag(torch.owner, torch.repo, tag):
            raise BuildPytorchError(f"{torch.owner}/{torch.repo} has no tag {tag}")
        known = github.releases(torch.owner, torch.repo)
        if dict(known).get(tag) and not options.pre:
            raise BuildPytorchError(f"{tag} is marked a pre-release; --pre takes it all the same")
        newest = _newest(known)
        if newest and _number(newest) > _number(options.torch):
            yield f"PyTorch {newest} is newer than {options.torch}"
    if options.nixpkgs and not github.has_commit(*_NIXPKGS, options.nixpkgs):
        raise BuildPytorchError(f"{'/'.join(_NIXPKGS)} has no commit {options.nixpkgs}")


def _newest(releases: list[tuple[str, bool]]) -> str | None:
    """The newest final version among release tags."""
    versions = [
        tag[1:] for tag, is_pre in releases if not is_pre and re.fullmatch(r"v\d+(\.\d+){1,2}", tag)
    ]
    return max(versions, key=_number, default=None)


def _number(version: str) -> tuple[int, ...]:
    """A version for comparing; a release candidate comes before its release."""
    final, _, candidate = version.partition("rc")
    parts = [*map(int, final.split(".")), 0][:3]
    return (*parts, int(candidate) if candidate else 1_000_000)


def _values(name: str, release: Release, options: BumpOptions) -> Iterator[tuple[Trail, Value]]:
    """Every value of the matrix that follows from what was asked for."""
    at: Trail = ("release", name)
    names, notes = release.names, release.notes
    if options.torch:
        old, new = release.torch.version, options.torch
        yield (*at, "torch", "version"), new
        yield (*at, "torch", "rev"), f"v{new}"
        short_old, short_new = _short(old), _short(new)
        digits_old, digits_new = short_old.replace(".", ""), short_new.replace(".", "")
        yield (*at, "names", "pname"), names.pname.replace(digits_old, digits_new)
        notes = notes.replace(short_old, short_new)
    if options.nixpkgs:
        retired = [*release.nixpkgs.retired, release.nixpkgs.rev]
        yield (*at, "nixpkgs", "rev"), options.nixpkgs
        yield (*at, "nixpkgs", "retired"), [rev for rev in retired if rev != options.nixpkgs]
    if options.cuda:
        if release.cuda is None:
            raise BuildPytorchError(f"--cuda: release {name} has no CUDA")
        old, new = release.cuda.version, options.cuda
        yield (*at, "cuda", "version"), new
        is_exact = release.cuda.package_set.count("_") > 1
        suffix = new.replace(".", "_") if is_exact else new.split(".")[0]
        yield (*at, "cuda", "package_set"), f"cudaPackages_{suffix}"
        old_name, new_name = (f"cuda{version.replace('.', '_')}" for version in (old, new))
        yield (*at, "names", "gpu"), names.gpu.replace(old_name, new_name)
        for index, entry in enumerate(release.cleanup):
            if entry.action != "delete" and old_name in entry.file:
                yield (*at, "cleanup", index, "file"), entry.file.replace(old_name, new_name)
        notes = notes.replace(f"cuda{old.split('.')[0]}", f"cuda{new.split('.')[0]}")
    if notes != release.notes:
        yield (*at, "notes"), notes


def _short(version: str) -> str:
    """Major and minor number."""
    return ".".join(version.split(".")[:2])


def _with_hashes(fleet: Matrix, text: str, name: str, options: BumpOptions, screen: Screen) -> str:
    """The matrix with the hashes of what changed, fetched one by one."""
    old = {(s.release, s.name): s.request for s in sources(fleet)}
    new = [s for s in sources(matrix_reader.parse(text)) if s.release == name]
    values: dict[Trail, Value] = {}
    for source in new:
        if source.request != old.get((source.release, source.name)):
            fetched = source_fetch.fetch(source, options.timeout)
            screen.line(f"{source.label}: {fetched.hash} ({fetched.backend})")
            values[source.hash_trail] = fetched.hash
            values[source.recorded_trail] = source.taken_for
    return matrix_editor.edited(text, values)


def _plan(old: Matrix, new: Matrix, name: str) -> list[Change]:
    """The matrix, recipes and docs as they will be; what has another name then goes."""
    tree = Tree(paths.PROJECT)
    texts = rendering.texts(new)
    changes = [matrix_editor.change(paths.MATRIX, old.text, new.text)]
    changes += [plan_text(tree, v.path, texts[v.path], group=v.gpu_label) for v in new.variants]
    kept = {variant.path for variant in new.variants}
    for variant in old.variants:
        if variant.path not in kept and (data := tree.read(variant.path)) is not None:
            reason = "has another name now"
            changes.append(
                Change(
                    path=variant.path,
                    action=Action.DELETE,
                    reason=reason,
                    old=data,
                    is_deletion=True,
                )
            )
    planned = docs.plan(new, texts, tree)
    page, moved = old.releases[name].notes, new.releases[name].notes
    if page != moved:
        planned = [change for change in planned if change.path not in {page, moved}]
        planned = [_with_link(change, page, moved) for change in planned]
        planned += docs.moved(texts, tree, page, moved)
    return [*changes, *planned]


def _with_link(change: Change, page: str, moved: str) -> Change:
    """The change of a page, with its links to the notes leading to where they are now."""
    if change.path != paths.README or change.old is None:
        return change
    new = (change.new or change.old).replace(page.encode(), moved.encode())
    action = Action.REWRITE if change.action is Action.UNCHANGED else change.action
    return Change(path=change.path, action=action, reason=change.reason, old=change.old, new=new)


def _verified(fleet: Matrix, planned: list[Change], screen: Screen) -> bool:
    """Whether the new recipes pass, as they would stand in a tree of their own."""
    with tempfile.TemporaryDirectory() as folder:
        for change in planned:
            data = change.new if change.action.writes else change.old
            if data is not None and change.path.endswith(".nix"):
                path = Path(folder) / change.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        categories = ("inventory", "text", "mistakes", "syntax", "evaluation", "toolchain")
        result = verification.verify(fleet, Path(folder), only=categories)
    if result.exit_code != EXIT_OK:
        result.print(screen)
        return False
    screen.line(f"Verification: {result.summary}")
    return True


def _still(release: Release, options: BumpOptions) -> Iterator[str]:
    """What no program can decide."""
    patch = release.magma_patch
    if options.torch:
        yield "the fixes of the build notes: does the new PyTorch still need each of them?"
        yield "the prose of the build notes, which names the old version"
        yield f"does the nixpkgs pin ship PyTorch {options.torch} by itself by now?"
    if options.nixpkgs and patch:
        yield f"does the new pin have {patch.name} already? Then remove release.*.magma_patch"
    if options.nixpkgs:
        yield "is python3Packages of the new pin still the Python that release.*.python names?"
    if options.cuda:
        yield f"the oldest driver of CUDA {options.cuda}: release.*.cuda.driver is unchanged"
        yield "release.*.cuda.fixes and the MAGMA patch: are they for this CUDA?"
        yield "the name of the release's tables, which may say the old CUDA"
    yield "build one variant before the others"
