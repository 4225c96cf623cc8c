"""The structure of the package: rooms, the direction of imports, unique names, the lock."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest
from conftest import PROJECT
from packaging.requirements import Requirement

PACKAGE: Final = PROJECT / "build_pytorch"

ARCHITECTURE: Final = PROJECT / "docs/explanation/architecture.md"


def arrows() -> dict[str, set[str]]:
    """The rooms to which each room of the drawing has an arrow."""
    lines = re.findall(r'(?m)^    (\w+)\["\w+: [^"]*"\](?: --> (.*))?$', ARCHITECTURE.read_text())
    drawn = {name: set(targets.split(" & ")) if targets else set() for name, targets in lines}
    return {
        name.removeprefix("room_"): {target.removeprefix("room_") for target in targets}
        for name, targets in drawn.items()
    }


def below(room: str) -> set[str]:
    """The rooms to which the arrows of a room lead, also through others."""
    return {target for it in arrows()[room] for target in {it, *below(it)}}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def edges() -> dict[str, set[str]]:
    """The modules of the package that each module imports, in functions as well, as ruff finds."""
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed, which finds the imports")
    argv = [sys.executable, "-m", "ruff", "analyze", "graph", "--detect-string-imports"]
    done = subprocess.run(
        [*argv, "build_pytorch"], cwd=PROJECT, check=True, capture_output=True, text=True
    )
    known = {str(path.relative_to(PROJECT)): module for module, path in modules().items()}
    graph = json.loads(done.stdout)
    assert graph.keys() == known.keys()
    return {known[path]: {known[each] for each in graph[path]} for path in graph}


def room(module: str) -> str:
    """The room of a module; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def test_imports_follow_the_arrows_of_the_drawing() -> None:
    imported: dict[str, set[str]] = defaultdict(set)
    for module, targets in edges().items():
        imported[room(module)] |= {room(target) for target in targets} - {room(module)}
    own = {name: targets - {""} for name, targets in imported.items() if name}
    others = {name: targets - below(name) for name, targets in own.items()}
    assert not any(others.values()), f"imports without an arrow in {ARCHITECTURE.name}: {others}"
    unused = {name: targets - own[name] for name, targets in arrows().items() if name in own}
    assert not any(unused.values()), f"{ARCHITECTURE.name} has arrows that are no imports: {unused}"


def test_no_module_imports_itself_through_others() -> None:
    graphlib.TopologicalSorter(edges()).prepare()  # raises CycleError with the circle


def test_every_room_is_drawn_once() -> None:
    loose = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert loose == set()
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and list(path.rglob("*.py"))}
    assert arrows().keys() == rooms


def test_class_and_module_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        if path.name != "__init__.py" and room(module) != "tasks":  # there a command gives the name
            places[f"module {module.rpartition('.')[2]}"].append(module)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[f"class {node.name}"].append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


PROGRAMS: Final = re.compile(r'"(nix-(build|env|instantiate|prefetch-url|store))"')
"""Without the name `nix` alone, which is also that of a backend."""


def test_command_lines_of_nix_and_git_are_built_in_one_place() -> None:
    for module, path in modules().items():
        text = path.read_text()
        assert room(module) == "nix" or not PROGRAMS.search(text), f"{module}: use nix"
        begins = re.search(r'[\[(]\s*"git"', text)
        assert module == "build_pytorch.base.git" or not begins, f"{module}: use base.git"


WRITES: Final = re.compile(
    r"\.(write_text|write_bytes|mkdir|touch|unlink|rename|symlink_to|rmtree|copyfile|copy2)\("
)
WRITERS: Final = {
    "build_pytorch.base.files": "the one door to the files of a checkout",
    "build_pytorch.tasks.init": "the folder of a new project",
    "build_pytorch.smoke.upstream": "a temporary folder of its own",
    "build_pytorch.verify.hooks": "a temporary folder of its own",
}
"""The modules that change files themselves, with what they change."""


def test_files_of_a_checkout_are_written_in_one_module() -> None:
    found = {module for module, path in modules().items() if WRITES.search(path.read_text())}
    alone = {module for module in found if "import torch" in modules()[module].read_text()}
    assert found - alone <= WRITERS.keys(), "use build_pytorch.base.files"


def test_the_lock_has_a_version_with_hashes_for_every_requirement() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    groups = project["dependency-groups"].values()
    wanted = [*project["project"]["dependencies"], *itertools.chain.from_iterable(groups)]
    lock = (PROJECT / "requirements.txt").read_text()
    locked = re.findall(r"(?m)^([\w.-]+)==([^ \\]+)(?: ; [^\\\n]+)? \\\n    --hash=sha256:", lock)
    assert len(locked) == len(re.findall(r"(?m)^\w", lock))
    for requirement in map(Requirement, wanted):
        versions = [version for name, version in locked if name == requirement.name]
        assert versions, requirement
        assert any(requirement.specifier.contains(version) for version in versions), requirement
