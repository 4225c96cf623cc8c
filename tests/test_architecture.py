"""The structure of the package: rooms, the direction of imports, unique names, the lock."""

from __future__ import annotations

import ast
import functools
import graphlib
import itertools
import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import pytest
from conftest import PROJECT
from packaging.requirements import Requirement

PACKAGE: Final = PROJECT / "build_pytorch"

ARCHITECTURE: Final = PROJECT / "docs/explanation/architecture.md"


def rows() -> dict[str, int]:
    """The row of each room in the drawing of the architecture page; 0 is the lowest."""
    drawn = re.findall(r"(?s)subgraph row(\d)(.*?)\n    end\n", ARCHITECTURE.read_text())
    return {
        name: int(row)
        for row, text in drawn
        for name in re.findall(r'(?:room_)?(\w+)\["\1: ', text)
    }


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


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


def test_imports_run_downwards_only() -> None:
    row = rows()
    wrong = [
        f"{module} imports {target}"
        for module, targets in edges().items()
        for target in sorted(targets)
        if room(module) != room(target) and row[room(module)] <= row[room(target)]
    ]
    assert wrong == [], f"a room imports from lower rows of {ARCHITECTURE.name} only"


def test_no_module_imports_itself_through_others() -> None:
    graphlib.TopologicalSorter(edges()).prepare()  # raises CycleError with the circle


def test_an_import_is_seen_in_a_function_and_by_name() -> None:
    """Of the package that is imported late, and of the checks that a table names."""
    assert "build_pytorch.generate.recipes" in edges()["build_pytorch.tasks.show"]
    assert all(targets <= modules().keys() for targets in edges().values())


def test_every_room_is_drawn_once() -> None:
    loose = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert loose == set()
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and list(path.rglob("*.py"))}
    drawn = re.findall(r'(\w+)\["(\w+): ', ARCHITECTURE.read_text())
    assert sorted(name for _, name in drawn if name in rooms) == sorted(rooms)
    assert rows().keys() == rooms


def test_init_files_hold_a_docstring_only() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        body = parsed(path).body
        assert [type(node) for node in body] == [ast.Expr], f"{path} holds code"
        assert ast.get_docstring(parsed(path)), path


def test_class_and_module_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        if path.name != "__init__.py" and room(module) != "tasks":  # there a command gives the name
            places[f"module {module.rpartition('.')[2]}"].append(module)
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                places[f"class {node.name}"].append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


NIX_PROGRAMS: Final = {
    *("nix", "nix-build", "nix-collect-garbage", "nix-copy-closure", "nix-env"),
    *("nix-instantiate", "nix-prefetch-url", "nix-store"),
}
RUNNERS: Final = {"which", "start", "capture", "run", "Popen", "create_subprocess_exec"}


def program_calls(
    tree: ast.AST, programs: Collection[str], only_calls: Collection[str]
) -> Iterator[ast.expr]:
    """Places that name a program in order to run it.

    The names in `only_calls` have other meanings, so they count only as the start of a list and as
    the argument of a function that finds or runs a program. Text that contains more than the name
    is a message.
    """
    for node in ast.walk(tree):
        candidates: list[ast.expr] = []
        if isinstance(node, ast.List | ast.Tuple):
            candidates = node.elts[:1]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in RUNNERS:
            candidates = node.args[:1]
        elif isinstance(node, ast.Constant) and node.value not in only_calls:
            candidates = [node]
        for candidate in candidates:
            if isinstance(candidate, ast.Constant) and candidate.value in programs:
                yield candidate


def nix_commands(tree: ast.AST) -> list[ast.expr]:
    """Places that run a program of Nix: "nix" is also the name of a backend."""
    return list(program_calls(tree, NIX_PROGRAMS, {"nix"}))


def test_command_lines_of_nix_are_built_in_the_room_nix_only() -> None:
    elsewhere = {
        f"{path.relative_to(PROJECT)}:{place.lineno}: use build_pytorch.nix"
        for module, path in modules().items()
        if module != "build_pytorch" and room(module) != "nix"
        for place in nix_commands(parsed(path))
    }
    assert elsewhere == set()


@pytest.mark.parametrize(
    ("source", "is_command"),
    [
        ('argv = ["nix-store", "--query", path]', True),
        ('start(("nix", "copy", path))', True),
        ('process.which("nix")', True),
        ('program = "nix-build"', True),
        ('argv = [*limits, "nix-env"]', True),
        ('backends = ("flox", "nix")', False),
        ('name = "nix"', False),
        ('fix = "free some with `nix-collect-garbage`"', False),
    ],
)
def test_the_search_for_command_lines_of_nix_sees_each_way(source: str, is_command: bool) -> None:
    assert bool(nix_commands(ast.parse(source))) is is_command


def test_one_module_calls_git() -> None:
    callers = {
        module
        for module, path in modules().items()
        if list(program_calls(parsed(path), {"git"}, {"git"}))
    }
    assert callers == {"build_pytorch.base.git"}


FILE_CALLS: Final = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "touch", "unlink"),
    *("rename", "replace", "symlink_to", "hardlink_to", "copy", "copyfile", "move", "rmtree"),
    *("iterdir", "glob", "rglob"),
}
OPENS_FILES: Final = {
    "build_pytorch.base.console": "/dev/null",
    "build_pytorch.base.installed_torch": "runs alone, in the Python of a user",
    "build_pytorch.base.files": "the one door to the files of a checkout",
    "build_pytorch.build.build_obstacles": "limits in /sys",
    "build_pytorch.build.log_rules": "a table of the package",
    "build_pytorch.tasks.command": "/dev/null",
    "build_pytorch.hardware.detect": "/proc and /sys",
    "build_pytorch.inspect.configuration": "results in the Nix store",
    "build_pytorch.inspect.device_code": "results in the Nix store, and a table of the package",
    "build_pytorch.inspect.elf_file": "results in the Nix store",
    "build_pytorch.inspect.inspection": "results in the Nix store",
    "build_pytorch.inspect.target": "results in the Nix store",
    "build_pytorch.results.artefacts": "results in the Nix store",
    "build_pytorch.smoke.script": "runs alone, in the Python of a result",
    "build_pytorch.smoke.upstream": "a temporary folder of its own",
    "build_pytorch.smoke.upstream_plugin": "runs alone, in the Python of a result",
    "build_pytorch.tasks.init": "the folder of a new project",
    "build_pytorch.sources.planned_change": "a temporary folder of its own",
    "build_pytorch.verify.hooks": "a temporary folder of its own",
}
"""The modules that open or list files themselves, with what they open."""


def file_calls(tree: ast.AST) -> Iterator[str]:
    """Calls that open, list or change files, but for the methods of strings and locks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).split(".")[-1]
            function = ast.unparse(node.func)
            is_text = name in {"replace", "copy"} and not function.startswith("os.")
            if name in FILE_CALLS and not is_text and function != f"self.{name}":
                yield f"{function}:{node.lineno}"


def test_files_of_a_checkout_are_opened_in_one_module() -> None:
    found = {module: list(file_calls(parsed(path))) for module, path in modules().items()}
    callers = {module: calls for module, calls in found.items() if calls}
    others = {module: calls for module, calls in callers.items() if module not in OPENS_FILES}
    assert others == {}, "use build_pytorch.base.files"
    assert set(OPENS_FILES) - set(callers) == set(), "no longer needed in OPENS_FILES"


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
