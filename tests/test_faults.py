"""What goes wrong with files: links, FIFOs, full disks, permissions, two runs, signals, kills."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

import psutil
import pytest
from conftest import Project, copied_project, error_line, needs_nix, run_in_process, unfolded
from test_process import is_gone
from world import World, wait_until

from build_pytorch.base import file_plan, files
from build_pytorch.base.errors import BuildPytorchError, WriteError
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.base.files import TEMPORARY
from build_pytorch.build.backends import BuildAction, BuildCommand, Step
from build_pytorch.build.build_attempt import BuildAttempt
from build_pytorch.matrix.model import Matrix
from build_pytorch.results import evidence, ledger
from build_pytorch.smoke.judge import Judgement
from build_pytorch.smoke.smoke_case import case_of
from build_pytorch.sources import fetchers
from build_pytorch.verify import reports, verification

ORDINARY: Final = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
"""What takes from root the right to read and write what permissions deny."""


def after(project: Project, options: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run invoke in a shell of an ordinary user that did something first, such as set a limit."""
    return subprocess.run(
        [
            *(ORDINARY if os.geteuid() == 0 else ()),
            *("bash", "-c", f'set -e; {options}; exec "$@"', "bash"),
            *(sys.executable, "-m", "invoke", *argv),
        ],
        cwd=project.root,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def change_everything(project: Project) -> None:
    """Change two values that every recipe has one of: of GPU recipes, and of an ISA."""
    set_ = 'package_set = "cudaPackages_13"\n'
    project.edit("matrix.toml", set_, f'{set_}driver = "590.44.01"\n')
    cpu = '[cpu.avx2]\ncpus = ["Haswell and newer", "Zen"]\n\n'
    project.edit("matrix.toml", "[pin.", f"{cpu}[pin.")


def test_a_disk_that_takes_no_more_is_one_line_and_nothing_changes(project: Project) -> None:
    change_everything(project)
    before = project.snapshot()
    # 4 KiB: less than a recipe
    done = after(project, "unset COVERAGE_PROCESS_CONFIG; ulimit -f 4", "phase2")
    assert done.returncode == 2
    assert "cannot be written: File too large" in error_line(done)
    assert project.snapshot() == before


@pytest.mark.parametrize(
    ("options", "argv", "says"),
    [
        ("chmod 000 matrix.toml", "status", "Permission denied; let this user read it"),
        ("rm matrix.toml; mkdir matrix.toml", "verify", "Is a directory; put its text into a reg"),
        ("mkdir d; chmod 555 d", "status --page d/x", "d/x: cannot be written: Permission denied"),
    ],
)
def test_what_permissions_deny_is_one_line_that_says_what_to_do(
    project: Project, options: str, argv: str, says: str
) -> None:
    done = after(project, options, *argv.split())
    assert done.returncode == 2
    assert says in error_line(done)
    assert done.stdout == "", "before any work"


@pytest.mark.slow
def test_a_read_only_checkout_can_be_verified_and_is_not_changed(project: Project) -> None:
    read_only = "chmod -R a-w ."
    assert after(project, read_only, "all", "--check").returncode == 0
    after(project, "chmod -R u+w .", "status")
    change_everything(project)
    before = project.snapshot()
    done = after(project, read_only, "phase2")
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
    change_everything(project)
    before = project.snapshot()
    with mock.patch.object(os, "fsync", side_effect=lambda _: signal.raise_signal(signal.SIGINT)):
        done = project.invoke("all")
    ended = "error: interrupted; every file is whole, run again to go on\n"
    assert (done.returncode, done.stderr) == (130, ended)
    assert project.snapshot() == before


HARMLESS: Final = ("invoke --list", "invoke", "invoke --help build", "nox -l", "invoke status")
JUDGING: Final = ("invoke verify --only text", "invoke all", "nox -s verify -- --only text")


@pytest.mark.parametrize(
    ("command", "output"),
    [
        *((JUDGING[0], output) for output in (">&-", "2>&-", "| true", "> /dev/full")),
        *(
            pytest.param(command, "| head -n 1", marks=pytest.mark.slow)
            for command in (*HARMLESS, *JUDGING)
        ),
    ],
)
def test_an_output_that_nobody_takes_ends_neither_the_work_nor_the_verdict(
    project: Project, command: str, output: str
) -> None:
    project.recipe("cpu-avx2").write_text("{ }")
    project.recipe("cuda13_0-sm90-avx2").unlink()
    script = f"{sys.executable} -m {command} {output}; echo code ${{PIPESTATUS[0]}} >&2"
    argv = ["bash", "-c", script]
    done = subprocess.run(argv, cwd=project.root, capture_output=True, text=True, check=False)
    assert not re.search("Traceback|Broken", done.stderr)
    code = 2 if "full" in output else 1
    assert command in HARMLESS or done.stderr.endswith(f"code {code}\n")
    assert project.recipe("cuda13_0-sm90-avx2").exists() == (command == "invoke all")


def test_an_output_in_ascii_is_no_traceback(project: Project) -> None:
    cpu = '[cpu.avx2]\ntitle = "AVX\u00b2"\nlacking = ["Ivy Br\u00fccke"]\n\n'
    project.edit("matrix.toml", "[pin.", f"{cpu}[pin.")
    done = project.run_process("invoke", "show", "cpu-avx2", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "AVX\\xb2" in done.stdout


@pytest.mark.parametrize(
    ("make", "reason"), [(Path.mkdir, "Is a directory"), (os.mkfifo, "not a regular file")]
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
    project: Project, tmp_path: Path, number: signal.Signals, says: str
) -> None:
    script, pid = tmp_path / "nix-prefetch", tmp_path / "pid"
    script.write_text(f"#!/bin/sh\necho $$ >{pid}.new; mv {pid}.new {pid}\nexec sleep 600\n")
    script.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "invoke", "prefetch", "--only", "torch"],
        cwd=project.root,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(pid.exists, "start of the program")
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert said == f"error: {says}; every file is whole, run again to go on\n"
    wait_until(lambda: is_gone(int(pid.read_text())), "end of the program")


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


# --- links, FIFOs, and a checkout of somebody else ---

SECRET = "the secret of another folder"  # noqa: S105 - it is to be recognised in an output


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the checkout with files that nothing may read, change or remove."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in OF_OTHERS:
        (folder / name).write_text(f"{SECRET}\n")
    return folder


OF_OTHERS = {"file", f".x{TEMPORARY}"}


def untouched(outside: Path) -> bool:
    texts = {path.name: path.read_text() for path in outside.iterdir()}
    return texts == dict.fromkeys(OF_OTHERS, f"{SECRET}\n")


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


LINKS = """
matrix.toml | all --check
.flox/pkgs  | all --verbose; phase4 --verbose; verify
docs        | all --verbose; phase5 --verbose; verify
README.md   | phase5 --verbose; verify
release.nix | phase5 --verbose; verify
.flox/pkgs/pytorch-python313-cpu-avx2.nix | phase4 --verbose; verify; phase4 --force
"""


@pytest.mark.slow
@pytest.mark.parametrize("line", LINKS.strip().splitlines())
def test_a_link_is_refused_by_name_and_its_target_neither_shown_nor_changed(
    project: Project, outside: Path, line: str
) -> None:
    name, commands = map(str.strip, line.split("|"))
    path = project.root / name
    target = outside if path.is_dir() else outside / "file"
    path.rename(outside.parent / "moved")
    path.symlink_to(target)
    for command in commands.split("; "):
        done = project.invoke(*command.split())
        said = unfolded(done.stdout + done.stderr)
        assert done.returncode in {1, 2}, command
        assert f"{name} is a symbolic link and is not followed" in said
        assert SECRET not in said
    assert untouched(outside)
    assert path.readlink() == target


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
    log = after(project, "exec < <(echo x.cpp: error: boom)", "diagnose", "-").stdout
    assert "/dev/stdin: 1 line" in log
    done = after(project, "exec < <(echo '[]')", "prefetch", "--from-log", "-")
    assert error_line(done).startswith("/dev/stdin: no hash mismatch in it")


# --- kills and signals at any moment; a failing test prints the seed ---

CHANGES: Final = {
    "phases": ["phase1", "phase2", "phase3", "phase4", "phase5"],
    "bump --as": ["bump", "--release", "cuda12_8", "--python", "3.12", "--as", "other"],
    "bump": ["bump", "--release", "cuda13_0", "--torch", "2.11.0", "--python", "3.12"],
}
"""A command line of each command that writes matrix.toml or files that follow from it."""


def disorder(project: Project) -> None:
    """Leave recipes to rewrite, to create and to delete: old, missing, and in no matrix."""
    change_everything(project)
    matrix = project.root / "matrix.toml"
    matrix.write_text(re.sub(r'(?m)^(cpu = .*), "avx512vnni"', r"\1", matrix.read_text()))
    for recipe in sorted(project.pkgs.glob("*-sm*.nix"))[1::2]:
        recipe.unlink()


def run_alone(project: Project, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of CHANGES without downloads and verification, which write nothing."""
    verified = mock.Mock(exit_code=0)
    with (
        mock.patch.object(verification, "verify", return_value=verified),
        mock.patch.object(reports, "show"),
        mock.patch.object(fetchers, "fetch_moved", return_value=[]),
    ):
        return run_in_process(project.root, CHANGES[command], {})


def run_killed(project: Project, command: str, point: int = 0) -> tuple[int | None, int]:
    """Run a command of CHANGES in a child that ends by kill -9 before a rename or a deletion.

    Returns its exit code and the number of such points that it came to.
    """
    context = multiprocessing.get_context("fork")
    seen = context.Value("i")

    def counted(function: Callable[..., None]) -> Callable[..., None]:
        def wrapper(*args: Any, **options: Any) -> None:
            seen.value += 1
            if seen.value == point:
                os.kill(os.getpid(), signal.SIGKILL)
            function(*args, **options)

        return wrapper

    def run() -> None:
        os.replace, os.unlink = counted(os.replace), counted(os.unlink)
        sys.exit(run_alone(project, command).returncode)

    child = context.Process(target=run)
    child.start()
    child.join()
    return child.exitcode, seen.value


@pytest.mark.slow
@pytest.mark.parametrize(("command", "count"), [("phases", 24), ("bump --as", 5), ("bump", 5)])
def test_a_killed_change_is_finished_by_the_same_command(
    tmp_path: Path, command: str, count: int
) -> None:
    """At a few points, drawn anew each time, and the last, where matrix.toml is renamed."""
    project = copied_project(tmp_path / "project", is_whole=command != "phases")
    if command == "phases":
        disorder(project)
    project.commit()
    old = project.snapshot()
    for _ in range(2):  # the first run also makes the folder of the state, which Git ignores
        restore(project)
        code, points = run_killed(project, command)
    new = project.snapshot()
    assert (code, new != old) == (0, True)
    seed = time.time_ns() % (1 << 30)
    drawn = random.Random(seed).sample(range(1, points - 1), min(count - 2, points - 2))
    ends = []
    for point in (*drawn, points - 1, points):
        where = (seed, point)
        restore(project)
        assert run_killed(project, command, point)[0] == -signal.SIGKILL, where
        halfway = project.snapshot()
        torn = [p for p, data in halfway.items() if data not in {old.get(p), new.get(p)}]
        assert all(TEMPORARY in path for path in torn), where
        done = run_alone(project, command)
        # Had it ended, `exists already` would be right.
        assert done.returncode == 0 or halfway == new, (where, done.stderr)
        ends.append(project.snapshot())
        assert ends[-1] in (old, new), where
    assert new in ends


def restore(project: Project) -> None:
    """Bring a checkout into the state of its commit."""
    project.git("clean", "-fdq")
    project.git("checkout", "-q", ".")


NUMBERS: Final = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAYS_STATE: Final = re.compile("every file is whole|stopping the builds|run again|were not started")
COMMANDS: Final = (
    "build sm{} --backend nix",
    "verify",
    "all",
    "prefetch --only torch --dry-run",
    "smoke cpu-avx2 --python {}/slow",
    "inspect cpu-avx2",
)
UNBUILT: Final = [f"{gpu}-avx{end}" for gpu in (90, 89, 86, 80, 100) for end in ("2", "512")]


@pytest.mark.slow
@needs_nix
def test_a_signal_at_any_moment_ends_a_command_with_a_line(world: World) -> None:
    """Once our modules are loaded. Files are whole, and nothing that it started runs on."""
    seed = time.time_ns() % (1 << 30)
    dice = random.Random(seed)
    slow = f"#!{sys.executable}\nimport time\ntime.sleep(0.7)\n"
    for name in ("nix-prefetch", "slow"):
        world.program(name, slow)
    assert world.build("cpu-avx2", "--backend", "nix").returncode == 0
    world.scenario("default", "pause=0.01; steps=20; good")
    path, trees = world.root / "matrix.toml", []
    texts = [path.read_text().replace("580.65.06", driver) for driver in ("580.65.07", "580.65.06")]
    for text in texts:
        path.write_text(text)
        assert world.project.invoke("all").returncode == 0
        trees.append(world.project.snapshot())
    for number in dice.choices(NUMBERS, k=12):
        path.write_text(dice.choice(texts))
        command = dice.choice(COMMANDS)
        words = command.format(world.bin if "slow" in command else dice.choice(UNBUILT)).split()
        run = world.start(*words, command="")
        wait_until(lambda: run.poll() is not None or catches_sigterm(run.pid), "start")  # noqa: B023
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(dice.uniform(0, 3))
        run.send_signal(number)
        said, _ = run.communicate(timeout=60)
        what = (seed, words, number, run.returncode, said)
        assert not re.search("Traceback|Exception ignored", said), what
        # Python's own end comes after all is done: its default for a signal has no output.
        assert run.returncode in {128 + number, -number, *range(4)}, what
        assert run.returncode != 128 + number or SAYS_STATE.search(said), what
        world.wait_for_no_builders()
        wait_until(lambda: not members(run.pid), f"end of all processes: {what}")  # noqa: B023
        for name, data in world.project.snapshot().items():
            assert data in [tree.get(name) for tree in trees], (what, name)
    assert world.project.invoke("all").returncode == 0, seed


def catches_sigterm(pid: int) -> bool:
    with contextlib.suppress(OSError):
        found = re.search(r"SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
        return found is not None and bool(int(found[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def members(session: int) -> list[int]:
    """Return the processes of a session that run."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == session and not is_gone(pid):
                found.append(pid)
    return found
