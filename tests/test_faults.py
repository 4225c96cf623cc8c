"""What goes wrong with files: links, FIFOs, full disks, permissions, two runs, signals, kills."""

from __future__ import annotations

import fcntl
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import kills
import pytest
from conftest import Project, error_line, needs_nix, unfolded
from kills import change_everything
from test_process import is_gone
from world import wait_until

from build_pytorch.base import file_plan, files, git
from build_pytorch.base.errors import BuildPytorchError, WriteError
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.base.files import TEMPORARY
from build_pytorch.build.backends import BuildAction, BuildCommand, Step
from build_pytorch.build.build_attempt import BuildAttempt
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix.model import Matrix
from build_pytorch.results import evidence, ledger
from build_pytorch.smoke.judge import Judgement
from build_pytorch.smoke.smoke_case import case_of


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
    ids=["matrix", "folder", "page"],
)
def test_what_permissions_deny_is_one_line_that_says_what_to_do(
    project: Project, options: str, argv: list[str], says: str
) -> None:
    done = after(project, options, *argv, program=ORDINARY)
    (project.root / ".flox").chmod(0o755)
    assert done.returncode == 2
    assert says in error_line(done)
    assert done.stdout == "", "before any work"


@pytest.mark.slow
def test_a_read_only_checkout_can_be_verified_and_is_not_changed(project: Project) -> None:
    read_only = "chmod -R a-w ."
    assert after(project, read_only, "all", "--check", program=ORDINARY).returncode == 0
    after(project, "chmod -R u+w .", "status")
    change_everything(project)
    before = project.snapshot()
    done = after(project, read_only, "phase2", program=ORDINARY)
    assert (done.returncode, done.stdout) == (2, ""), "nothing is reported as done"
    assert "Permission denied" in error_line(done)
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
    assert (state / ".gitignore").read_text() == "*\n"


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


def test_an_output_in_ascii_is_no_traceback(project: Project) -> None:
    cpu = '[cpu.avx2]\ntitle = "AVX\u00b2"\nlacking = ["Ivy Br\u00fccke"]\n\n'
    project.edit("matrix.toml", "[pin.", f"{cpu}[pin.")
    done = project.run_process("invoke", "show", "cpu-avx2", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "AVX\\xb2" in done.stdout


CPU = ".flox/pkgs/pytorch-python313-cpu-avx2.nix"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Path.mkdir, "Is a directory"),
        (os.mkfifo, "not a regular file"),
        (lambda it: it.symlink_to("/dev/zero"), f"{CPU} is a symbolic link and is not followed"),
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
    assert (verified.returncode, reason in unfolded(verified.stdout)) == (1, True)


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
    wait_until(lambda: is_gone(child), "end of the program")


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
    done = Project(root).invoke_process("all")
    assert done.returncode == 0, done.stderr


# --- links, FIFOs, and a checkout of somebody else ---

SECRET = "the secret of another folder"  # noqa: S105 - it is to be recognised in an output


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the checkout with a file that nothing may read or change."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text(f"{SECRET}\n")
    return folder


def untouched(outside: Path) -> bool:
    names = [path.name for path in outside.iterdir()]
    return names == ["file"] and (outside / "file").read_text() == f"{SECRET}\n"


EVENT = ledger.Event(event="started", at="t", release="r", variant="v", digest="d", attempt="a")
WRITERS: dict[str, Callable[[Path, Any], object]] = {
    "builds.lock": lambda root, _: files.exclusive_lock(root, "builds.lock", "builds").__enter__(),
    "ledger.jsonl": lambda root, _: ledger.append(root, EVENT),
    "logs": lambda root, variant: BuildAttempt(
        root,
        Step(package=variant, action=BuildAction.BUILD, reason="", digest=""),
        BuildCommand([]),
        1,
    ).close(),
    "reports": lambda root, variant: evidence.record_evidence(
        root, variant, None, test="smoke", result=case_of(variant, Judgement(outcome="passed"))
    ),
}
"""What writes a file or into a folder of the state."""


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("is_folder", [True, False])
def test_nothing_is_written_through_a_link_in_the_state_folder(
    tmp_path: Path, outside: Path, matrix: Matrix, name: str, is_folder: bool
) -> None:
    state = tmp_path / "root/.build-pytorch"
    link = state if is_folder else state / name
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "file" if "." in name and not is_folder else outside)
    with pytest.raises(BuildPytorchError, match="is a symbolic link"):
        WRITERS[name](tmp_path / "root", matrix.variants[0])
    assert untouched(outside)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "command"),
    [
        *((".flox/pkgs", command) for command in ("all", "phase4", "verify")),
        *(("docs", command) for command in ("all", "phase5", "verify")),
    ],
)
def test_a_linked_folder_is_refused_by_name(
    project: Project, outside: Path, folder: str, command: str
) -> None:
    (outside / ".x.build-pytorch-tmp").write_text("of somebody else")
    shutil.rmtree(project.root / folder)
    (project.root / folder).symlink_to(outside)
    done = project.invoke(command, *(["--verbose"] if command != "verify" else []))
    said = unfolded(done.stdout + done.stderr)
    assert done.returncode in {1, 2}
    assert f"{folder} is a symbolic link and is not followed" in said
    assert SECRET not in said
    (outside / ".x.build-pytorch-tmp").unlink()
    assert untouched(outside)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "command"),
    [
        (".flox/pkgs/pytorch-python313-cpu-avx2.nix", "phase4"),
        ("README.md", "phase5"),
        ("release.nix", "phase5"),
    ],
)
def test_the_target_of_a_link_is_neither_shown_nor_changed(
    project: Project, outside: Path, path: str, command: str
) -> None:
    (project.root / path).unlink()
    (project.root / path).symlink_to(outside / "file")
    commands = [[command, "--verbose"], ["verify"]]
    for argv in [*commands, ["phase4", "--force"]] if command == "phase4" else commands:
        done = project.invoke(*argv)
        assert SECRET not in done.stdout + done.stderr
        assert done.returncode == 1, argv
        assert "is a symbolic link" in unfolded(done.stdout)
    assert untouched(outside)
    assert (project.root / path).is_symlink()


def test_a_matrix_that_is_a_link_is_refused(project: Project, outside: Path) -> None:
    (project.root / "matrix.toml").unlink()
    (project.root / "matrix.toml").symlink_to(outside / "file")
    done = project.invoke("all", "--check")
    assert "matrix.toml: cannot be read: matrix.toml is a symbolic link" in error_line(done)
    assert SECRET not in done.stderr


def test_a_name_that_leads_out_of_the_root_is_a_bug_and_not_a_file(tmp_path: Path) -> None:
    for name in ("../x", "a/../../x", "/etc/passwd", ""):
        with pytest.raises(ValueError, match="not the name of a file below a folder"):
            files.read_below(tmp_path, name)


@pytest.mark.parametrize("words", [("recommend", "--machine"), ("prefetch", "--from-log")])
def test_a_file_that_a_user_names_is_read_up_to_a_limit(
    project: Project, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "named"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    done = project.invoke(*words, str(path))
    assert done.returncode == 2
    assert f"{path}: cannot be read: larger than" in error_line(done)


@pytest.mark.slow
def test_a_named_file_may_be_standard_input(project: Project) -> None:
    here = project.invoke("recommend", "--describe").stdout
    (project.root / "here.json").write_text(here)
    named = project.invoke("recommend", "--json", "--machine", "here.json").stdout
    read = after(project, "exec <here.json", "recommend", "--json", "--machine", "-")
    assert read.stdout == named
    done = after(project, "exec < <(echo '[]')", "prefetch", "--from-log", "-")
    assert error_line(done).startswith("/dev/stdin: no hash mismatch in it")


def test_a_folder_that_only_looks_like_a_repository_is_none(legacy: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", "."], cwd=legacy, check=True)
    assert git.top(legacy) is None
    assert not Tree(legacy).is_modified(".flox/pkgs/x.nix")


def test_reading_changes_nothing_in_the_git_folder(legacy: Path) -> None:
    Project(legacy).commit()
    for path in legacy.rglob("*.nix"):
        path.touch()  # Git would refresh its index
    index = (legacy / ".git/index").read_bytes()
    assert not Tree(legacy).is_modified(".flox/pkgs")
    assert (legacy / ".git/index").read_bytes() == index


# --- kills ---


@pytest.mark.slow
@pytest.mark.parametrize(("command", "count"), [("phases", 24), ("bump --as", 5), ("bump", 5)])
def test_a_killed_change_is_finished_by_the_same_command(command: str, count: int) -> None:
    """At a few points, drawn anew each time; no file is torn."""
    seed = time.time_ns() % (1 << 30)
    counts = kills.changes(command, random.Random(seed), count)
    assert sum(counts.values()) == 2 * count, f"seed {seed}: {counts}"
    assert counts[f"{command}: new after the same command"], f"seed {seed}: {counts}"
