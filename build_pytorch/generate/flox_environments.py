"""The Flox environments of releases: those that are missing are made, all of them are checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base import paths
from build_pytorch.base.console import grouped
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import environment_of

_HEAD = "# It holds the recipes in ../pkgs and installs nothing.\nversion = 1\n\n[options]\n"


class _Options(Struct, frozen=True):
    systems: tuple[str, ...] = ()


class _EnvironmentFile(Struct, frozen=True):
    """What is checked in both files of an environment."""

    version: Literal[1]
    options: _Options = _Options()
    build: Any = None


def environments(matrix: Matrix) -> dict[str, list[str]]:
    """Return the platforms of each Flox environment by its folder; "." is the root."""
    places = [(environment_of(package.folder), package.platform) for package in matrix.packages]
    return {folder: sorted({*found}, reverse=True) for folder, found in grouped(places).items()}


def _texts(folder: str, platforms: list[str]) -> dict[str, str]:
    """Return the files of a new environment by path."""
    base = f"{folder}/.flox".removeprefix("./")
    name = "-".join(["build-pytorch", *PurePath(folder.removeprefix("releases/")).parts])
    systems = ", ".join(f'"{system}"' for system in platforms)
    return {
        f"{base}/env.json": f'{{\n  "name": "{name}",\n  "version": 1\n}}\n',
        f"{base}/env/manifest.toml": f"{_HEAD}systems = [{systems}]\n",
    }


def plan(matrix: Matrix, tree: Tree) -> Iterator[Change]:
    """Plan missing files of environments, and missing platforms; not in a clone's root."""
    for folder, platforms in environments(matrix).items():
        if folder == "." and paths.is_clone(tree.root):
            continue
        for path, text in _texts(folder, platforms).items():
            old, new = tree.read(path), text.encode()
            if old is None:
                yield Change(path=path, action=Action.CREATE, reason="missing", new=new)
                continue
            added = "".join(f', "{it}"' for it in platforms if it.encode() not in old)
            new = re.sub(rb'(?m)^(systems = \[".*")\]$', rb"\1" + added.encode() + b"]", old)
            if new != old:
                reason = "a new platform"
                yield Change(path=path, action=Action.REWRITE, reason=reason, old=old, new=new)


def faults(matrix: Matrix, tree: Tree) -> Iterator[tuple[str, str, str]]:
    """Yield path, what is wrong and what is expected in the files of environments."""
    for folder, platforms in environments(matrix).items():
        for path in _texts(folder, platforms):
            data, is_manifest = tree.read(path), path.endswith(".toml")
            if data is None:
                yield path, "missing", "a Flox environment"
                continue
            decode: Any = msgspec.toml.decode if is_manifest else msgspec.json.decode
            try:
                found = decode(data, type=_EnvironmentFile)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                yield path, str(error), "a file that Flox can read, of version 1"
                continue
            missing = {*platforms} - {*found.options.systems} if is_manifest else ()
            if missing:
                said = f"options.systems without {', '.join(sorted(missing))}"
                yield path, said, "the platforms of its recipes"
            if found.build is not None:  # Flox refuses a name that a recipe in pkgs has as well
                yield path, "a table [build]", "recipes in .flox/pkgs only"
