"""What goes wrong while files are written: kills, full disks, read-only folders, two runs."""

from __future__ import annotations

import fcntl
import os
import random
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import kills
import pytest
from conftest import Project, error_line, needs_nix, unfolded
from kills import change_everything

from build_pytorch.base import file_plan
from build_pytorch.base.errors import WriteError
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.base.files import TEMPORARY


def after(
    project: Project, options: str, *argv: str, program: Sequence[str] = ("bash",)
) -> subprocess.CompletedProcess[str]:
    """Run invoke in a shell that did something first, such as set a limit."""
    script = f'set -e; {options}; exec "$@"'
    return subprocess.run(
        [*program, "-c", script, "bash", sys.executable, "-m", "invoke", *argv],
        cwd=project.root,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_disk_that_takes_no_more_is_one_line_and_nothing_changes(project: Project) -> None:
    change_everything(project)
    before = project.snapshot()
    # 4 KiB: less than a recipe
    done = after(project, "unset COVERAGE_PROCESS_CONFIG; ulimit -f 4", "phase2")
    assert done.returncode == 2
    assert "cannot be written: File too large" in error_line(done)
    assert project.snapshot() == before


def mounted(project: Project, options: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run invoke in a mount namespace of its own, in which `options` prepared the folder."""
    return after(project, options, *argv, program=("unshare", "-rm", "bash"))


ORDINARY: Final = (
    ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "bash")
    if os.geteuid() == 0
    else ("bash",)
)
"""A shell without the right of root to read and write what permissions deny."""


@pytest.mark.parametrize(
    ("options", "argv", "says"),
    [
        ("chmod 000 matrix.toml", ["status"], "Permission denied; let this user read it"),
        (
            "rm matrix.toml; mkdir matrix.toml",
            ["verify"],
            "Is a directory; put its text into a regular file of at most 1 MiB in its place",
        ),
        (
            "mkdir d; chmod 555 d",
            ["status", "--page", "d/x.html"],
            "x.html: cannot be written: Perm",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_permissions_deny_is_one_line_that_says_what_to_do(
    project: Project, options: str, argv: list[str], says: str
) -> None:
    done = after(project, options, *argv, program=ORDINARY)
    (project.root / ".flox").chmod(0o755)
    assert done.returncode == 2
    assert says in error_line(done)
    assert done.stdout == "", "before any work"


def can_mount() -> bool:
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


needs_mounts = pytest.mark.skipif(not can_mount(), reason="no mount namespaces here")


@needs_mounts
def test_a_full_disk_is_one_line_and_nothing_changes(project: Project) -> None:
    shutil.rmtree(project.pkgs)
    project.pkgs.mkdir()
    full = "mount -t tmpfs -o size=100k tmpfs .flox/pkgs"
    listing = f"{full}; trap 'ls -A .flox/pkgs >listing' EXIT; \"$@\"; exit $?"
    before = project.snapshot()
    done = mounted(project, listing, "phase2")
    assert done.returncode == 2
    assert "No space left on device" in error_line(done)
    assert (project.root / "listing").read_text() == "", "some fitted, none was kept"
    (project.root / "listing").unlink()
    assert project.snapshot() == before


@pytest.mark.slow
@needs_mounts
def test_a_read_only_checkout_is_one_line_and_can_still_be_verified(project: Project) -> None:
    read_only = 'mount --bind . . && mount -o remount,ro,bind . && cd "$PWD"'
    assert mounted(project, read_only, "all", "--check").returncode == 0
    change_everything(project)
    before = project.snapshot()
    done = mounted(project, read_only, "phase2")
    assert done.returncode == 2
    assert done.stdout == "", "nothing is reported as done"
    assert "Read-only file system" in error_line(done)
    assert project.snapshot() == before


def test_two_runs_keep_apart(project: Project) -> None:
    change_everything(project)
    before = project.snapshot()
    state = project.root / ".build-pytorch"
    state.mkdir(exist_ok=True)
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = project.invoke("phase2")
        assert done.returncode == 2
        assert "another run is writing here" in error_line(done)
        assert project.snapshot() == before
        assert project.invoke("phase2", "--check").returncode == 1, "reading needs no lock"
    assert project.invoke("phase2").returncode == 0


@pytest.mark.slow
def test_two_runs_started_together_end_in_the_44(project: Project) -> None:
    change_everything(project)
    argv = [sys.executable, "-m", "invoke", "all"]
    runs = [
        subprocess.Popen(
            argv, cwd=project.root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert all("Traceback" not in run.communicate()[1] for run in runs)
    assert {run.returncode for run in runs} <= {0, 1, 2}
    assert project.invoke("all").returncode == 0
    assert project.invoke("all", "--check").returncode == 0


def test_a_file_that_changes_under_a_run_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "x.nix"
    target.write_text("one\n")
    change = Change(path="x.nix", action=Action.REWRITE, reason="", old=b"zero\n", new=b"two\n")
    with pytest.raises(WriteError, match="changed while the plan was made"):
        file_plan.apply(tmp_path, [change])
    assert target.read_text() == "one\n"


def test_ctrl_c_ends_with_one_line(project: Project) -> None:
    (project.root / "slow.py").write_text(
        "import os, signal, sys\n"
        "from build_pytorch.base import files\nfrom build_pytorch.tasks import menu, phases\n"
        "from build_pytorch.tasks.command import guarded\n"
        "files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(guarded(lambda: phases.run([1, 2, 3, 4, 5])))\n"
    )
    change_everything(project)
    before = project.snapshot()
    done = project.run("slow")
    assert done.returncode == 130
    assert done.stderr == "error: interrupted; every file is whole, run again to go on\n"
    assert project.snapshot() == before


@pytest.mark.parametrize(
    ("redirect", "code"), [(">&-", 0), ("> /dev/full", 2), ("| true", 0), ("2>&-", 0)]
)
def test_an_output_that_takes_nothing_is_no_traceback(
    project: Project, redirect: str, code: int
) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m invoke verify --only text {redirect}"],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == code


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("phase2", 12),
        *(
            pytest.param(command, number, marks=pytest.mark.slow)
            for command in ("verify", "all", "status", "recommend")
            for number in (8, 32)
        ),
    ],
)
def test_a_limit_of_open_files_is_one_line_at_most(
    project: Project, command: str, number: int
) -> None:
    """What fits into the limit is done; what does not ends the command, and no file is torn."""
    words = f"ulimit -n {number}; exec {shlex.quote(sys.executable)} -m invoke {command}"
    before = project.snapshot()
    done = subprocess.run(
        ["sh", "-c", words], cwd=project.root, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    if done.returncode not in {0, 1}:
        assert done.returncode == 2
        assert "Too many open files" in error_line(done)
    after = project.snapshot()
    assert {path: after.get(path) for path in before} == before


def test_an_output_in_ascii_is_no_traceback(project: Project) -> None:
    cpu = '[cpu.avx2]\ntitle = "AVX\u00b2"\nlacking = ["Ivy Br\u00fccke"]\n\n'
    project.edit("matrix.toml", "[pin.", f"{cpu}[pin.")
    done = project.run_process("invoke", "show", "cpu-avx2", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "AVX\\xb2" in done.stdout


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Path.mkdir, "Is a directory"),
        (os.mkfifo, "not a regular file"),
        (lambda recipe: recipe.symlink_to("/dev/zero"), "is a symbolic link"),
    ],
    ids=["folder", "fifo", "device"],
)
def test_what_is_no_file_in_place_of_a_recipe_is_refused_and_the_others_are_done(
    project: Project, make: Callable[[Path], object], reason: str
) -> None:
    recipe, other = project.recipe("cpu-avx2"), project.recipe("cpu-avx512")
    recipe.unlink()
    other.unlink()
    make(recipe)
    done = project.invoke("phase4")
    assert done.returncode == 1
    assert f"cannot be read: {reason}; remove it by hand" in unfolded(done.stdout)
    assert other.is_file()
    verified = project.invoke("verify", "--only", "text")
    assert (verified.returncode, reason in verified.stdout) == (1, True)


@pytest.mark.parametrize(
    ("number", "says"),
    [(signal.SIGTERM, "terminated"), (signal.SIGHUP, "the terminal was closed")],
)
def test_a_signal_ends_the_run_with_one_line_and_its_programs_as_well(
    project: Project, number: signal.Signals, says: str
) -> None:
    tools = project.root.parent / "tools"
    tools.mkdir()
    os.mkfifo(tools / "pid")
    script = tools / "nix-prefetch"
    script.write_text(f"#!/bin/sh\necho $$ >{tools}/pid\nexec sleep 600\n")
    script.chmod(0o755)
    # Opened for both, a FIFO can be waited for with a limit.
    fifo = os.open(tools / "pid", os.O_RDWR)
    process = subprocess.Popen(
        [sys.executable, "-m", "invoke", "prefetch", "--only", "torch"],
        cwd=project.root,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert select.select([fifo], [], [], 60)[0], "the program was not started"
    child = int(os.read(fifo, 20))
    os.close(fifo)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert said == f"error: {says}; every file is whole, run again to go on\n"
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_what_a_kill_left_behind_goes_with_the_next_run(project: Project) -> None:
    recipe = project.pkgs / f".pytorch-python313-cpu-avx2.nix{TEMPORARY}"
    recipe.write_text("half")
    pages = project.root / "docs/reference"
    page = Path(shutil.copy(pages / "releases.md", pages / f".releases.md.4711{TEMPORARY}"))
    done = project.invoke("all", "--check")
    assert done.returncode == 0, done.stdout
    assert recipe.exists(), "looking removes nothing"
    assert project.invoke("phase4").returncode == project.invoke("phase5").returncode == 0
    assert not recipe.exists()
    assert not page.exists()


@needs_nix
def test_a_folder_whose_name_is_not_utf_8_is_no_obstacle(project: Project) -> None:
    root = Path(os.fsdecode(bytes(project.root) + b"\xff"))
    project.own_program()
    project.root.rename(root)
    done = Project(root).invoke_process("all", "--json")
    assert done.returncode == 0, done.stderr


# --- kills ---


@pytest.mark.slow
@pytest.mark.parametrize(("command", "count"), [("phases", 24), ("bump --as", 5), ("bump", 5)])
def test_a_killed_change_is_finished_by_the_same_command(command: str, count: int) -> None:
    """At a few points, drawn anew each time; no file is torn."""
    seed = time.time_ns() % (1 << 30)
    counts = kills.changes(command, random.Random(seed), count)
    assert sum(counts.values()) == 2 * count, f"seed {seed}: {counts}"
    assert counts[f"{command}: new after the same command"], f"seed {seed}: {counts}"
