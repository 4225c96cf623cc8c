"""SIGINT, SIGTERM and SIGHUP at any moment of a command, once our modules are loaded.

The command ends with the exit code of the signal and one line that says what state it left, or it
had ended before. It prints no traceback, every file is whole, and nothing that it started runs on.
`invoke build` goes on after SIGHUP, as builds outlive their terminal.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import psutil
import pytest
from conftest import needs_nix
from kills import own_world
from world import World, wait_until

from build_pytorch.base.files import TEMPORARY

NUMBERS: Final = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STATE: Final = re.compile(r"every file is whole|stopping the builds|run again|were not started")
"""What a command that was ended says about what it left."""
PACKAGE: Final = "cpu-avx2"
SLOW: Final = f"#!{sys.executable}\nimport time\ntime.sleep(0.7)\n"
EDIT: Final = ('driver = "580.65.06"', 'driver = "580.65.07"')


class Target:
    """A checkout with a built variant, and slow programs in place of others."""

    def __init__(self, world: World) -> None:
        self.world = world
        done = world.project.invoke("all")  # the pages of a world are of another matrix
        assert done.returncode == 0, done.stdout + done.stderr
        assert world.build(PACKAGE, "--backend", "nix").returncode == 0
        world.program("nix-prefetch", SLOW)
        world.program("slow-python", SLOW)
        world.scenario("default", "pause=0.01; steps=20; good")
        self.unbuilt = [
            f"sm{gpu}-avx{end}" for gpu in (90, 89, 86, 80, 100) for end in ("2", "512")
        ]
        self.tree = world.project.snapshot()
        self.changed: dict[str, bytes] = {}  #: files after `invoke all` with the other matrix

    def arguments(self, command: str) -> list[str]:
        """Return the command line of a command, with something to do."""
        if command == "all":
            path = self.world.root / "matrix.toml"
            text = path.read_text()
            path.write_text(text.replace(*EDIT) if EDIT[0] in text else text.replace(*EDIT[::-1]))
        rest = {
            "build": [*self.unbuilt[:1], "--backend", "nix"],
            "prefetch": ["--only", "torch", "--dry-run"],
            "smoke": [PACKAGE, "--python", str(self.world.bin / "slow-python")],
            "inspect": [PACKAGE],
        }
        return [command, *rest.get(command, [])]

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a command in a session of its own; return when our modules are being loaded."""
        run = self.world.start(*self.arguments(command), command="")
        wait_until(lambda: run.poll() is not None or _catches_sigterm(run.pid), "start")
        return run

    def interrupt(self, command: str, number: signal.Signals, seconds: float) -> None:
        """Send a signal so many seconds after the start."""
        run = self.start(command)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(seconds)
        run.send_signal(number)
        said, _ = run.communicate(timeout=60)
        what = (command, number.name, seconds, run.returncode, said)
        assert "Traceback" not in said, what
        assert "Exception ignored" not in said, what
        # Python's own end comes after all is done: its default for a signal has no output.
        assert run.returncode in {128 + number, -number, *range(4)}, what
        if run.returncode == 128 + number:
            assert STATE.search(said), what
        if command == "build" and run.returncode == 0:
            self.unbuilt.pop(0)
        self._check_rest(run.pid, what)

    def _check_rest(self, session: int, what: object) -> None:
        self.world.wait_for_no_builders()
        wait_until(lambda: not _members(session), f"end of all processes: {what}")
        root = self.world.root
        assert not [*root.rglob(f".*{TEMPORARY}")], what
        for path, data in self.world.project.snapshot().items():
            assert path in self.tree, (what, path)
            if data != self.tree[path]:
                self.changed.setdefault(path, data)
                assert data == self.changed[path], (what, path)


def _catches_sigterm(pid: int) -> bool:
    with contextlib.suppress(OSError):
        found = re.search(r"SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
        return found is not None and bool(int(found[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def _members(session: int) -> list[int]:
    """Return the processes of a session that run."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


COMMANDS: Final = ("build", "verify", "all", "prefetch", "smoke", "inspect")


@pytest.mark.slow
@needs_nix
def test_a_signal_at_any_moment_ends_a_command_with_a_line(tmp_path: Path) -> None:
    seed = time.time_ns() % (1 << 30)
    dice = random.Random(seed)
    it = Target(own_world(tmp_path))
    for _ in range(12):
        command = dice.choice(COMMANDS) if it.unbuilt else "verify"
        it.interrupt(command, dice.choice(NUMBERS), dice.uniform(0, 3))
    last = it.world.project.invoke("all")
    assert last.returncode == 0, f"seed {seed}: {last.stdout}{last.stderr}"
