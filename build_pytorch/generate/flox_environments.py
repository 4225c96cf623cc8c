"""The Flox environments of releases: those that are missing are made, all of them are checked."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import PurePath

from build_pytorch.base import paths
from build_pytorch.base.console import grouped
from build_pytorch.base.file_plan import Action, Change, Tree
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.tables import environment_of


def environments(matrix: Matrix) -> dict[str, list[Package]]:
    """Return the packages of each Flox environment by its folder; "." is the root."""
    return grouped((environment_of(package.folder), package) for package in matrix.packages)


def plan(matrix: Matrix, tree: Tree) -> Iterator[Change]:
    """Plan the files of environments that are missing; not the one of a clone's root."""
    for folder, packages in environments(matrix).items():
        if folder == "." and paths.is_clone(tree.root):
            continue
        for path, text in _texts(folder, packages).items():
            if tree.read(path) is None:
                new = text.encode()
                yield Change(path=path, action=Action.CREATE, reason="missing", new=new)


def _texts(folder: str, packages: list[Package]) -> dict[str, str]:
    """Return the files of a new environment by path."""
    base = f"{folder}/.flox".removeprefix("./")
    name = "-".join(["build-pytorch", *PurePath(folder.removeprefix("releases/")).parts])
    systems = ", ".join(f'"{system}"' for system in _systems(packages))
    return {
        f"{base}/env.json": f'{{\n  "name": "{name}",\n  "version": 1\n}}\n',
        _MANIFEST % base: "# It holds the recipes in ../pkgs and installs nothing.\n"
        f"version = 1\n\n[options]\nsystems = [{systems}]\n",
    }


def faults(matrix: Matrix, tree: Tree) -> Iterator[tuple[str, str, str]]:
    """Yield path, what is wrong and what is expected in the files of environments."""
    for folder, packages in environments(matrix).items():
        base = ".flox" if folder == "." else f"{folder}/.flox"
        for path, parse in ((f"{base}/env.json", json.loads), (_MANIFEST % base, tomllib.loads)):
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
                for found, expected in _manifest_faults(
                    table, packages, has_tools=folder == "." and paths.is_clone(tree.root)
                ):
                    yield path, found, expected


_MANIFEST = "%s/env/manifest.toml"


def _systems(packages: list[Package]) -> list[str]:
    return sorted({package.platform for package in packages}, reverse=True)


def _manifest_faults(
    table: dict[str, object], packages: list[Package], *, has_tools: bool
) -> Iterator[tuple[str, str]]:
    options, install = table.get("options"), table.get("install")
    systems = options.get("systems") if isinstance(options, dict) else None
    missing = {*_systems(packages)} - {*(systems if isinstance(systems, list) else ())}
    if missing:
        yield (
            f"options.systems without {', '.join(sorted(missing))}",
            "the platforms of its recipes",
        )
    if "build" in table:  # Flox refuses a name that a recipe in pkgs has as well
        yield "a table [build]", "recipes in .flox/pkgs only"
    if has_tools:
        python = install.get("python3") if isinstance(install, dict) else None
        found = python.get("pkg-path") if isinstance(python, dict) else None
        wanted = f"python{packages[0].release.python.version.replace('.', '')}"
        if found != wanted:
            yield f"install.python3.pkg-path = {found}", wanted
