"""Kill -9 at any moment: commands while they write files, builds while they run. Nothing is lost.

Points are drawn from a seed, which a failing test prints.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

from conftest import Project, copied_project, run_in_process
from world import Site, World, kill_session, prepared_project, wait_until

from build_pytorch.base import digest
from build_pytorch.base.files import TEMPORARY
from build_pytorch.sources import fetchers
from build_pytorch.verify import reports, verification

KILLED: Final = -9


def change_everything(project: Project) -> None:
    """Change two values that every recipe has one of: of GPU recipes, and of an ISA."""
    set_ = 'package_set = "cudaPackages_13"\n'
    project.edit("matrix.toml", set_, f'{set_}driver = "590.44.01"\n')
    cpu = '[cpu.avx2]\ncpus = ["Haswell and newer", "Zen"]\n\n'
    project.edit("matrix.toml", "[pin.", f"{cpu}[pin.")


def disorder(project: Project) -> None:
    """Leave recipes to rewrite, to create and to delete: old, missing, and in no matrix."""
    change_everything(project)
    recipes = sorted(project.pkgs.glob("*-sm*.nix"))
    for recipe in recipes[1::2]:
        recipe.unlink()
    for recipe in recipes[::8]:
        name = recipe.stem.replace("-sm", "-sm7")
        text = recipe.read_text().replace(f"# {recipe.stem}\n", f"# {name}\n", 1)
        sealed = digest.seal(re.sub("sha256:[0-9a-f]{64}", digest.PLACEHOLDER, text))
        recipe.with_name(f"{name}.nix").write_text(sealed)


# --- builds ---


def builds(world: World, dice: random.Random, count: int) -> Counter[str]:
    """Kill `invoke build` with all that it started so many times; then finish the builds."""
    counts: Counter[str] = Counter()
    world.scenario("default", "pause=0.01; steps=20; good")
    finished: set[str] = set()
    path = world.root / ".build-pytorch/ledger.jsonl"

    def size() -> int:
        return path.stat().st_size if path.exists() else 0

    def wait_for_a_write(run: subprocess.Popen[str]) -> None:
        before = size()
        wait_until(lambda: size() > before or run.poll() is not None, "write of the ledger")

    for _ in range(count):
        run = world.start("cpu-*,sm90-*", "--jobs", "2")
        for _ in range(dice.randint(1, 4)):
            wait_for_a_write(run)
        time.sleep(dice.choice([0, dice.uniform(0, 0.3)]))
        if run.poll() is None:
            counts["build kills"] += 1
        kill_session(run)
        run.communicate()
        world.wait_for_no_builders()
        # A kill may leave an incomplete last line.
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        built = {
            event["variant"]: event["outputs"][0]
            for event in map(json.loads, lines)
            if event["event"] == "ended" and event["outcome"] == "built"
        }
        for variant, output in built.items():
            assert Path(output).exists(), f"{variant} is lost"
        assert finished <= set(built)
        finished = set(built)
        if len(finished) == 8:
            counts["fleets"] += 1
            finished = set()
            path.unlink()
            world.site.clear()
            world.scenario("default", "pause=0.01; steps=20; good")
    world.scenario("default", "good")
    done = world.built("cpu-*,sm90-*", "--jobs", "2")
    assert done["returncode"] == 0, done["stderr"]
    for row in done["variants"]:
        assert row["action"] == "up to date" or row["outcome"] == "built"
    again = world.built("cpu-*,sm90-*")
    assert {row["action"] for row in again["variants"]} == {"up to date"}
    return counts


# --- commands that write files ---

CHANGES: Final = {
    "phases": ["phase1", "phase2", "phase3", "phase4", "phase5"],
    "bump --as": ["bump", "--release", "cuda12_8", "--python", "3.12", "--as", "other"],
    "bump": ["bump", "--release", "cuda13_0", "--torch", "2.11.0", "--python", "3.12"],
}
"""A command line of each command that writes matrix.toml or files that follow from it."""


class ChangeKiller:
    """A Git checkout in which a command of CHANGES is killed before one of its renames.

    Downloads and verification, which write nothing, are left out.
    """

    def __init__(self, project: Project, command: str) -> None:
        self.project, self.words = project, CHANGES[command]
        if command == "phases":
            disorder(project)
        project.commit()
        self.old = project.snapshot()
        self.run(0)  # the first run also makes the folder of the state, which Git ignores
        self.restore()
        code, self.points = self.run(0)
        self.new = project.snapshot()
        assert (code, self.new != self.old) == (0, True), command

    def restore(self) -> None:
        """Bring the checkout into the state of its commit."""
        self.project.git("clean", "-fdq")
        self.project.git("checkout", "-q", ".")

    def run(self, point: int) -> tuple[int, int]:
        """Run the command in a child that ends by kill -9 before a rename or a deletion.

        Returns its exit code and, if it was not killed, the number of such points.
        """
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            seen = 0

            def counted(function: Callable[..., None]) -> Callable[..., None]:
                def wrapper(*args: Any, **options: Any) -> None:
                    nonlocal seen
                    seen += 1
                    if seen == point:
                        os.kill(os.getpid(), signal.SIGKILL)
                    function(*args, **options)

                return wrapper

            os.replace, os.unlink = counted(os.replace), counted(os.unlink)
            code, _ = self.run_again()
            os.write(writer, b"%d" % seen)
            os._exit(code)
        os.close(writer)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with os.fdopen(reader) as seen_points:
            return code, int(seen_points.read() or 0)

    def run_again(self) -> tuple[int, str]:
        """Run the command to its end. Return the exit code and what it says."""
        verified = mock.Mock(exit_code=0)
        with (
            mock.patch.object(verification, "verify", return_value=verified),
            mock.patch.object(reports, "show"),
            mock.patch.object(fetchers, "fetch_moved", return_value=[]),
        ):
            done = run_in_process(self.project.root, self.words, {})
        return done.returncode, done.stdout + done.stderr

    def kill(self, point: int) -> str:
        """Kill the command, run it again. Return what it left, `new`, `old` or what is wrong."""
        self.restore()
        code, _ = self.run(point)
        assert code == KILLED, (self.words, point, code)
        halfway = self.project.snapshot()
        for path, data in halfway.items():
            if data not in (self.old.get(path), self.new.get(path)) and TEMPORARY not in path:
                return f"torn: {path}"
        code, said = self.run_again()
        if code and halfway != self.new:  # had it ended, `exists already` would be right
            return f"refused: {said[-2000:]}"
        found = self.project.snapshot()
        for what, tree in (("new", self.new), ("old", self.old)):
            if found == tree:
                return what
        wrong = [path for path in {*found, *self.new} if found.get(path) != self.new.get(path)]
        return f"neither new nor old: {sorted(wrong)[:5]}"


def drawn(dice: random.Random, points: int, count: int) -> Sequence[int]:
    """Return so many of the points; the last two, where matrix.toml is renamed, are among them."""
    last = range(max(points - 1, 1), points + 1)
    others = dice.sample(range(1, last[0]), min(last[0] - 1, max(count - len(last), 0)))
    return sorted([*others, *last])


def changes(command: str, dice: random.Random, count: int) -> Counter[str]:
    """Kill a command of CHANGES at so many points, or at all if it has fewer."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        project = copied_project(Path(name) / "project", is_whole=command != "phases")
        killer = ChangeKiller(project, command)
        for point in drawn(dice, killer.points, count):
            left = killer.kill(point)
            assert left in {"new", "old"}, f"{command}, killed at {point}: {left}"
            counts[f"{command} kills of {killer.points} points"] += 1
            counts[f"{command}: {left} after the same command"] += 1
    return counts


def own_world(folder: Path) -> World:
    """A Git checkout in which builds run for real, without the fixtures of pytest."""
    site = folder / "site"
    site.mkdir()
    project = prepared_project(folder / "builds")
    project.commit()
    return World(project, Site(site), folder)
