"""The Flox environments of releases: those that are missing are made, all of them are checked."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from build_pytorch.base import paths
from build_pytorch.base.console import grouped
from build_pytorch.base.file_plan import Action, Change, Tree
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import environment_of

_HEAD = "# It holds the recipes in ../pkgs and installs nothing.\nversion = 1\n\n[options]\n"


def environments(matrix: Matrix) -> dict[str, list[str]]:
    """Return the platforms of each Flox environment by its folder; "." is the root."""
    places = [(environment_of(package.folder), package.platform) for package in matrix.packages]
    return {folder: sorted({*found}, reverse=True) for folder, found in grouped(places).items()}


def plan(matrix: Matrix, tree: Tree) -> Iterator[Change]:
    """Plan the files of environments that are missing; not the one of a clone's root."""
    for folder, platforms in environments(matrix).items():
        if folder == "." and paths.is_clone(tree.root):
            continue
        name = "-".join(["build-pytorch", *PurePath(folder.removeprefix("releases/")).parts])
        systems = ", ".join(f'"{system}"' for system in platforms)
        texts = (
            f'{{\n  "name": "{name}",\n  "version": 1\n}}\n',
            f"{_HEAD}systems = [{systems}]\n",
        )
        for path, text in zip(_files(folder), texts, strict=True):
            if tree.read(path) is None:
                new = text.encode()
                yield Change(path=path, action=Action.CREATE, reason="missing", new=new)


def _files(folder: str) -> tuple[str, str]:
    base = f"{folder}/.flox".removeprefix("./")
    return f"{base}/env.json", f"{base}/env/manifest.toml"


def faults(matrix: Matrix, tree: Tree) -> Iterator[tuple[str, str, str]]:
    """Yield path, what is wrong and what is expected in the files of environments."""
    for folder, platforms in environments(matrix).items():
        for path, parse in zip(_files(folder), (json.loads, tomllib.loads), strict=True):
            data = tree.read(path)
            if data is None:
                yield path, "missing", "a Flox environment"
                continue
            try:
                table = parse(data.decode())
            except (ValueError, RecursionError) as error:
                yield path, str(error), "a file that Flox can read"
                continue
            if not isinstance(table, dict) or table.get("version") != 1:
                yield path, "no version 1", "version 1"
            elif path.endswith(".toml"):
                for found, expected in _manifest_faults(table, platforms):
                    yield path, found, expected


def _manifest_faults(table: dict[str, Any], platforms: list[str]) -> Iterator[tuple[str, str]]:
    options = table.get("options")
    systems = options.get("systems") if isinstance(options, dict) else None
    missing = {*platforms} - {*(systems if isinstance(systems, list) else ())}
    if missing:
        said = f"options.systems without {', '.join(sorted(missing))}"
        yield said, "the platforms of its recipes"
    if "build" in table:  # Flox refuses a name that a recipe in pkgs has as well
        yield "a table [build]", "recipes in .flox/pkgs only"
