"""Kill -9 at any moment: phases while they write, builds while they run. Nothing may be lost.

Points are drawn from a seed, which a failing test prints.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
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
from build_pytorch.sources import fetchers, planned_change
from build_pytorch.verify import reports

KILLED: Final = -9
LAST: Final = 1 << 30  #: the number of a call that no run reaches

SERVER: Final = """
import os, signal, sys
from build_pytorch.base import file_plan
from build_pytorch.tasks import menu, phases
from build_pytorch.tasks.command import guarded

def run(wanted, count):
    seen = 0
    def counted(call):
        def wrapper(*args, **options):
            nonlocal seen
            seen += 1
            if seen == wanted:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)
        return wrapper
    apply = file_plan.apply
    def applied(*args):
        for name in ("open", "fsync", "replace", "unlink", "fchmod", "mkdir"):
            setattr(os, name, counted(getattr(os, name)))
        apply(*args)
        os.write(count, b"%d " % seen)
    file_plan.apply = applied
    sys.stdout = open(os.devnull, "w")
    return guarded(lambda: phases.run([1, 2, 3, 4, 5]))

for line in sys.stdin:
    reader, count = os.pipe()
    child = os.fork()
    if not child:
        os._exit(run(int(line), count))
    os.close(count)
    calls = os.read(reader, 20).decode() or "0"
    os.close(reader)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), calls, flush=True)
"""
"""Runs the five phases once for each line, killed before so many calls that change files.

Prints the exit code and, of a run that was not killed, the number of calls."""

Tree = dict[str, bytes | None]
"""Content by path; None for no file."""


def change_everything(project: Project) -> None:
    """Change two values that every recipe has one of: of GPU recipes, and of an ISA."""
    set_ = 'package_set = "cudaPackages_13"\n'
    project.edit("matrix.toml", set_, f'{set_}driver = "590.44.01"\n')
    cpu = '[cpu.avx2]\ncpus = ["Haswell and newer", "Zen"]\n\n'
    project.edit("matrix.toml", "[pin.", f"{cpu}[pin.")


class PhaseKiller:
    """A Git checkout whose phases are started and killed, each time from one of several states."""

    def __init__(self, project: Project) -> None:
        self.project = project
        project.commit()
        (project.root / "kills.py").write_text(SERVER)
        before = project.snapshot()
        change_everything(project)
        self._server = subprocess.Popen(
            [sys.executable, "kills.py"],
            cwd=project.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.run()[0] == 0
        after = project.snapshot()
        self.new: Tree = {p: data for p, data in after.items() if before.get(p) != data}
        del self.new["matrix.toml"]
        recipes = sorted(path for path in self.new if path.endswith(".nix"))
        rewritten: Tree = {path: before[path] for path in self.new}
        left: Tree = {
            path.replace("-sm", "-sm7"): _renamed(before[path], path) for path in recipes[4::9]
        }
        self.new |= dict.fromkeys(left)
        none: Tree = dict.fromkeys(left)
        self.states: dict[str, Tree] = {
            "rewrite": rewritten | none,
            "create": self.new | none | dict.fromkeys(recipes[::2]),
            "delete": self.new | left,
            "all three": rewritten | left | dict.fromkeys(recipes[1::2]),
        }
        self.calls: dict[str, int] = {}
        for name in self.states:
            self.restore(name)
            code, self.calls[name] = self.run()
            found = self.found()
            wrong = [path for path in self.new if found[path] != self.new[path]]
            assert (code, wrong) == (0, []), (name, code, wrong[:5])

    def run(self, call: int = LAST) -> tuple[int, int]:
        """Run the phases to the end or the kill. Return the exit code and the number of calls."""
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(f"{call}\n")
        self._server.stdin.flush()
        code, calls = map(int, self._server.stdout.readline().split())
        return code, calls

    def end(self) -> None:
        self._server.communicate()

    def restore(self, state: str) -> None:
        """Write the files of a state, and remove what a killed run left behind."""
        for path in self.temporary():
            path.unlink()
        for name, data in self.states[state].items():
            path = self.project.root / name
            if data is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(data)

    def found(self) -> Tree:
        root = self.project.root
        paths = {path: root / path for path in self.new}
        return {p: path.read_bytes() if path.exists() else None for p, path in paths.items()}

    def temporary(self) -> list[Path]:
        root = self.project.root
        folders = {(root / path).parent for path in self.new}
        return [path for folder in folders for path in folder.glob(f".*{TEMPORARY}")]


def _renamed(data: bytes, path: str) -> bytes:
    """The recipe as generated for another name, which is in no matrix."""
    stem = Path(path).stem
    text = data.decode().replace(f"# {stem}\n", f"# {stem.replace('-sm', '-sm7')}\n", 1)
    return digest.seal(re.sub("sha256:[0-9a-f]{64}", digest.PLACEHOLDER, text)).encode()


def phases(killer: PhaseKiller, dice: random.Random, count: int) -> Counter[str]:
    """Kill the phases so many times, each at a drawn call; finish every fourth run."""
    counts: Counter[str] = Counter()
    whole = killer.project.snapshot()
    others = {path: data for path, data in whole.items() if path not in killer.new}
    while counts["phase kills"] < count:
        state = dice.choice(list(killer.states))
        old = killer.states[state]
        killer.restore(state)
        where = f"call {(call := dice.randint(1, killer.calls[state]))}"
        code, _ = killer.run(call)
        assert code == KILLED, f"{state}, {where}: ended with {code}"
        counts["phase kills"] += 1
        found = killer.found()
        for path, data in found.items():
            assert data in (old[path], killer.new[path]), f"{state}, {where}: {path} is torn"
        counts["halfway"] += old != found != killer.new
        counts["temporary files"] += bool(killer.temporary())
        if counts["phase kills"] % 4 == 0:
            code, _ = killer.run()
            assert (code, killer.found(), killer.temporary()) == (0, killer.new, []), where
            counts["finished"] += 1
    killer.restore("rewrite")
    assert killer.run()[0] == 0
    rest = {path: data for path, data in killer.project.snapshot().items() if path in others}
    assert rest == others, "files that no phase writes are as before"
    return counts


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


# --- commands that change matrix.toml ---

CHANGES: Final = {
    "bump --as": ["bump", "--release", "cuda12_8", "--python", "3.12", "--as", "other"],
    "bump": ["bump", "--release", "cuda13_0", "--torch", "2.11.0", "--python", "3.12"],
}
"""A command line of each command that writes matrix.toml and other files; for a whole matrix."""


class ChangeKiller:
    """A Git checkout in which a command of CHANGES is killed before one of its renames.

    Downloads and verification, which write nothing, are left out.
    """

    def __init__(self, project: Project, command: str) -> None:
        self.project, self.words = project, CHANGES[command]
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
            mock.patch.object(planned_change, "verify_planned", return_value=verified),
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
        project = copied_project(Path(name) / "project", is_whole=True)
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
