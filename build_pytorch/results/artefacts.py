"""Packages on disk: the digests of recipes, result links, and the Python that runs a result."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

from build_pytorch.base import digest, files, process
from build_pytorch.base.errors import ToolError
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.tables import environment_of
from build_pytorch.nix import store
from build_pytorch.nix.quoting import without_comments

_NIX_FILE: Final = re.compile(r"(?<![\w./])\.{1,2}/[\w./+-]*\.nix\b")
"""A relative path in Nix code."""


def recipe_files(root: Path, package: Package) -> list[str]:
    """Return the path of a recipe and those of the Nix files that it names. Raises OSError."""
    recipe = files.read_below(root, package.path, files.LARGEST_TEXT)
    if b"./" not in recipe:  # recipes of variants name no file; to parse them takes longer
        return [package.path]
    named = _NIX_FILE.findall(without_comments(recipe.decode(errors="replace")))
    paths = (os.path.normpath(f"{package.folder}/{path}") for path in named)
    return list(dict.fromkeys([package.path, *paths]))


def recipe_digest(root: Path, package: Package) -> str:
    """Return the digest of a recipe and of the files that it names, or "" if one is unreadable.

    A local checkout of CUDA packages, which nobody else has, makes it another recipe.
    """
    try:
        names = recipe_files(root, package)
        texts = [files.read_below(root, name, files.LARGEST_TEXT) for name in names]
    except OSError:
        return ""
    if checkout := store.local_checkout(package.variant):
        texts.append(os.fsencode(checkout))
    return digest.of_bytes(b"\0".join(texts))


def find(root: Path, package: Package) -> Path:
    """Return the store path of a package's result.

    Raises ToolError, with what to do, if its link does not lead to one.
    """
    path = link(root, package)
    if output := target(path):
        return Path(output)
    what = "does not lead into the Nix store" if os.path.lexists(path) else "does not exist"
    raise ToolError(f"{path.name} {what}; run `invoke build {package.id}`")


def holds(output: Path, file: str) -> bool:
    """Return whether a file, such as the one that torch was imported from, is in a result."""
    try:
        return bool(file) and Path(os.path.realpath(file)).is_relative_to(output)
    except ValueError:  # a null byte
        return False


def link(root: Path, package: Package) -> Path:
    """Return the path of a package's result link: at the root, or in its Flox environment.

    Flox puts the link into the environment of the package; the newer one of two links counts.
    """
    of_flox = root / environment_of(package.folder) / f"result-{package.package}"
    found = [root / f"result-{package.attribute}", of_flox]
    return max(found, key=lambda path: path.lstat().st_mtime if os.path.lexists(path) else 0.0)


def target(path: Path) -> str:
    """Return the store path that a result link leads to, or "" if it leads elsewhere."""
    try:
        found = os.path.realpath(path, strict=True) if path.is_symlink() else ""
    except OSError:
        return ""
    return found if found.startswith(f"{store.folder()}/") else ""


def interpreter(output: Path, version: str) -> tuple[Path, dict[str, str | None]]:
    """Return the Python of a result's closure and the environment to import the result in.

    `version` is the Python version, such as `3.13`. Raises ToolError if the closure has no Python.
    """
    closure = [output]
    for path in closure:  # grows: nixpkgs lists a Python package's dependencies in this file
        with contextlib.suppress(OSError):
            words = (path / "nix-support/propagated-build-inputs").read_text("utf-8").split()
            closure += [Path(word) for word in words if Path(word) not in closure]
    if process.which(store.NIX_STORE):  # a package with several outputs has the file in `dev` only
        closure += [Path(path) for path in sorted(store.requisites(str(output)))]
    closure = list(dict.fromkeys(closure))
    name = re.compile(rf"[a-z0-9]+-python3-{re.escape(version)}[a-z0-9.]*")
    pythons = [path / "bin" / f"python{version}" for path in closure if name.fullmatch(path.name)]
    python = next((path for path in pythons if path.exists()), None)
    if python is None:
        raise ToolError(f"{output}: its closure has no Python {version}; is it a Python package?")
    folders = [path / "lib" / f"python{version}" / "site-packages" for path in closure]
    own = python.parents[1]
    search = [folder for folder in folders if folder.is_dir() and own not in folder.parents]
    return python, {
        "PYTHONPATH": ":".join(map(str, search)),
        "PYTHONNOUSERSITE": "1",  # ignore a torch in the user's site-packages
        "PYTHONSAFEPATH": "1",  # ignore the working directory; as -P, Python 3.11 and later
        "PYTHONHOME": None,
    }
