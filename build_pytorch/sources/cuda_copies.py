"""Copies of the files with CUDA packages that `-wrapper` recipes call. Nothing is written here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from build_pytorch.base import digest, files, git
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.base.file_plan import Action, Change, Tree
from build_pytorch.base.versions import is_revision
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.selection import only_release
from build_pytorch.matrix.source_tables import CUDA_PACKAGES, CudaToolkit
from build_pytorch.matrix.tables import Release
from build_pytorch.nix import derivations
from build_pytorch.nix.syntax_tree import parse


def chosen_release(matrix: Matrix, name: str) -> tuple[str, CudaToolkit]:
    """Return the release that gets the copies: the named one, or the only one that takes some.

    Raises BuildPytorchError for an unknown release and for one without CUDA.
    """
    with_source = [k for k, it in matrix.releases.items() if it.cuda and it.cuda.packages_from]
    name = only_release(matrix, name, with_source)
    if (cuda := matrix.releases[name].cuda) is None:
        raise BuildPytorchError(f"--release {name}: it has no CUDA")
    return name, cuda


def read_checkout(checkout: Path, cuda: CudaToolkit) -> dict[str, bytes]:
    """Return the files of a checkout by name. Raises BuildPytorchError if one is not usable."""
    found = {}
    for package in CUDA_PACKAGES:
        name = cuda.package_file(package)
        path = checkout / derivations.CHECKOUT_FOLDER / name
        try:
            found[name] = files.read_named(path, files.LARGEST_TEXT)
        except OSError as error:
            fix = "--from takes the root of a checkout of build-cudatoolkit"
            raise BuildPytorchError(f"{path}: cannot be read: {error.strerror}; {fix}") from None
        text = found[name].decode(errors="replace")
        if "\ufffd" in text or parse(text).root_node.has_error:
            raise BuildPytorchError(f"{path}: not valid Nix; nothing was copied")
    return found


def refuse_broken(
    checkout: Path,
    cuda: CudaToolkit,
    copies: Mapping[str, bytes],
    tried: Callable[[Mapping[str, bytes]], str],
) -> None:
    """Raise BuildPytorchError that names the file of a checkout with which recipes do not evaluate.

    `tried` returns the error of the recipes with the contents of the files; empty if there is none.
    If there is one, each file is tried with the packages of nixpkgs in place of the others.
    """
    if not tried(copies):
        return
    own = {
        cuda.package_file(package): f"{{ {cuda.package_set} }}: {cuda.package_set}.{package}\n"
        for package in CUDA_PACKAGES
    }
    stand_ins = {name: text.encode() for name, text in own.items()}
    if tried(stand_ins):
        return  # the recipes are wrong, not the files
    for name, data in copies.items():
        if problem := tried(stand_ins | {name: data}):
            path = checkout / derivations.CHECKOUT_FOLDER / name
            what = f"{path}: not a package of this CUDA: {problem}"
            raise BuildPytorchError(f"{what}; nothing was copied")


def origin(checkout: Path) -> str:
    """Return where the files of a checkout are from: its address and revision, if it has them."""
    try:
        rev = git.run(checkout, "rev-parse", "HEAD").stdout.strip()
        if git.top(checkout) is None or not is_revision(rev):
            return "a folder without Git"
        url = urlsplit(git.run(checkout, "remote", "get-url", "origin").stdout.strip())
        changed = " with changes" if git.uncommitted(checkout) else ""
    except (ToolError, ValueError):
        return "a folder without Git"
    # Without a user name or a token; the path of a local repository says nothing elsewhere.
    place = f"{url.hostname}{url.path}" if url.scheme in {"https", "ssh"} and url.hostname else ""
    place = re.sub(r"[^A-Za-z0-9._/~-]", "", place) or "a local repository"
    return f"{place} {rev}{changed}"


def table(release: Release, copies: dict[str, bytes], place: str) -> dict[str, Any]:
    """Return the values of `packages_from` for copies."""
    old = release.cuda.packages_from if release.cuda else None
    above = "" if release.environment == "." else f"{release.environment}/"
    return {
        "folder": (old.folder if old else "") or f"{above}cuda-packages",
        "origin": place,
        "digests": {name: digest.of_bytes(data) for name, data in copies.items()},
    }


def plan(cuda: CudaToolkit, folder: str, copies: dict[str, bytes], tree: Tree) -> Iterator[Change]:
    """Plan the copies. A file that somebody edited is refused. Raises LinkError and OSError."""
    before = cuda.packages_from
    for name, data in copies.items():
        path = f"{folder}/{name}"
        present = tree.read(path)
        known = before.digests.get(name) if before else None
        action, reason, new = Action.UNCHANGED, "as it is", None
        if present is None:
            action, reason, new = Action.CREATE, "a copy", data
        elif present != data and digest.of_bytes(present) == known:
            action, reason, new = Action.REWRITE, "another copy", data
        elif present != data:
            action, reason = Action.REFUSED, "not the copy that matrix.toml records; move it away"
        yield Change(path=path, action=action, reason=reason, old=present, new=new)
