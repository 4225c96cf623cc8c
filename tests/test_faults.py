"""What goes wrong while files are written: kills, full disks, read-only folders, two runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Project, error_line

from build_pytorch.base import digest, file_apply
from build_pytorch.base.errors import WriteError
from build_pytorch.base.file_plan import Action, Change

KILL_AT = """
import os, signal, sys
wanted, seen = int(sys.argv.pop(1)), 0
def counted(call):
    def wrapper(*args, **options):
        global seen
        seen += 1
        if seen == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)
    return wrapper
for name in ("open", "fsync", "replace", "unlink", "fchmod"):
    setattr(os, name, counted(getattr(os, name)))
from build_pytorch.cli.entry import guarded
from build_pytorch.cli import phases
from build_pytorch.matrix.model import Phase
sys.exit(guarded(lambda: phases.run(list(Phase), phases.PhaseOptions(), verify=False)))
"""


def change_everything(project: Project) -> None:
    project.edit("matrix.toml", 'driver = "580.65.06"', 'driver = "590.44.01"')
    project.edit("matrix.toml", '"Zen and newer"', '"Zen"')


def kill_at(project: Project, call: int) -> subprocess.CompletedProcess[str]:
    """Run the five phases and kill -9 them right before the n-th system call that writes."""
    return project.run("kill_at", str(call))


def test_kill_9_at_any_moment_leaves_every_file_whole_and_the_next_run_finishes(
    project: Project,
) -> None:
    (project.root / "kill_at.py").write_text(KILL_AT)
    change_everything(project)
    shutil.copytree(project.root, project.root.parent / "wanted")
    wanted = Project(project.root.parent / "wanted")
    assert wanted.invoke("all").returncode == 0
    new = wanted.snapshot()
    old = project.snapshot()
    killed = 0
    for call in [*range(1, 12), *range(12, 400, 13)]:
        done = kill_at(project, call)
        if done.returncode == -signal.SIGKILL:
            killed += 1
        for path, data in project.snapshot().items():
            if not path.endswith(".build-pytorch-tmp"):
                assert data in (old[path], new[path]), f"{path} is half-written"
    assert killed > 10
    finished = project.invoke("all")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert project.snapshot() == new


def test_kill_9_at_random_times_of_the_whole_command(project: Project) -> None:
    """The same from outside: whatever the moment, recipes are whole."""
    for round_ in range(12):
        driver = "590.44.01" if round_ % 2 else "580.65.06"
        text = (project.root / "matrix.toml").read_text()
        old = "580.65.06" if round_ % 2 else "590.44.01"
        (project.root / "matrix.toml").write_text(text.replace(old, driver))
        process = subprocess.Popen(
            [sys.executable, "-m", "invoke", "all"],
            cwd=project.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.12 + 0.02 * round_)
        process.kill()
        process.wait()
        for recipe in project.pkgs.glob("*.nix"):
            assert digest.is_intact(recipe.read_text()), recipe
    done = project.invoke("all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(project.pkgs.glob(".*")) == []


def limited(project: Project, limit: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run invoke under a shell's limit, for instance on the size of files."""
    return subprocess.run(
        ["bash", "-c", f'{limit}; exec "$@"', "bash", sys.executable, "-m", "invoke", *argv],
        cwd=project.root,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_disk_that_takes_no_more_is_one_line_and_nothing_changes(project: Project) -> None:
    change_everything(project)
    before = project.snapshot()
    done = limited(project, "ulimit -f 4", "phase2")  # 4 KiB: less than a recipe
    assert done.returncode == 2
    assert "cannot be written: File too large" in error_line(done)
    assert project.snapshot() == before


def mounted(project: Project, options: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run invoke in a mount namespace of its own, in which `options` prepared the folder."""
    script = f'set -e; {options}; exec "$@"'
    return subprocess.run(
        ["unshare", "-rm", "bash", "-c", script, "bash", sys.executable, "-m", "invoke", *argv],
        cwd=project.root,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


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
    full = "mount -t tmpfs -o size=200k tmpfs .flox/pkgs"
    listing = f"{full}; trap 'ls -A .flox/pkgs >listing' EXIT; \"$@\"; exit $?"
    before = project.snapshot()
    done = mounted(project, listing, "all")
    assert done.returncode == 2
    assert "No space left on device" in error_line(done)
    assert (project.root / "listing").read_text() == "", "some fitted, none was kept"
    (project.root / "listing").unlink()
    assert project.snapshot() == before


@needs_mounts
def test_a_read_only_checkout_is_one_line_and_can_still_be_verified(project: Project) -> None:
    read_only = 'mount --bind . . && mount -o remount,ro,bind . && cd "$PWD"'
    assert mounted(project, read_only, "all", "--check").returncode == 0
    change_everything(project)
    before = project.snapshot()
    done = mounted(project, read_only, "phase2")
    assert done.returncode == 2
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
        assert project.invoke("all", "--check").returncode == 1, "reading needs no lock"
    assert project.invoke("phase2").returncode == 0


def test_two_runs_started_together_end_in_the_44(project: Project) -> None:
    change_everything(project)
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "invoke", "all"],
            cwd=project.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    ends = [(*run.communicate(), run.returncode) for run in runs]
    assert all("Traceback" not in err for _, err, _ in ends)
    assert {code for *_, code in ends} <= {0, 1, 2}
    assert project.invoke("all").returncode == 0
    assert project.invoke("all", "--check").returncode == 0


def test_a_file_that_changes_under_a_run_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "x.nix"
    target.write_text("one\n")
    change = Change(path="x.nix", action=Action.REWRITE, reason="", old=b"zero\n", new=b"two\n")
    with pytest.raises(WriteError, match="changed while the plan was made"):
        file_apply.apply(tmp_path, [change])
    assert target.read_text() == "one\n"


def test_ctrl_c_ends_with_one_line(project: Project) -> None:
    (project.root / "slow.py").write_text(
        "import os, signal, sys\n"
        "from build_pytorch.base import files\nfrom build_pytorch.cli import phases\n"
        "from build_pytorch.cli.entry import guarded\n"
        "from build_pytorch.matrix.model import Phase\n"
        "files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(guarded(lambda: phases.run(list(Phase), phases.PhaseOptions())))\n"
    )
    change_everything(project)
    before = project.snapshot()
    done = project.run("slow")
    assert done.returncode == 130
    assert done.stderr == "error: interrupted; every file is whole, run again to go on\n"
    assert project.snapshot() == before


def test_a_directory_where_a_recipe_belongs_is_refused_and_the_others_are_done(
    project: Project,
) -> None:
    for name in ("cpu-avx2", "cpu-avx512"):
        project.recipe(name).unlink()
    project.recipe("cpu-avx2").mkdir()
    done = project.invoke("phase4")
    assert done.returncode == 1
    assert "cannot be read: Is a directory; remove it by hand" in done.stdout
    assert project.recipe("cpu-avx512").is_file()
    verified = project.invoke("verify")
    assert verified.returncode == 1
    assert "Is a directory" in verified.stdout


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
    project.edit("matrix.toml", '"Ivy Bridge"', '"Ivy Br\u00fccke"')
    project.edit("matrix.toml", 'title = "AVX2"', 'title = "AVX\u00b2"')
    done = project.run("invoke", "phase2", "--diff", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "AVX\\xb2" in done.stdout


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_what_never_ends_is_not_read(project: Project, kind: str) -> None:
    recipe = project.recipe("cpu-avx2")
    recipe.unlink()
    if kind == "fifo":
        os.mkfifo(recipe)
    else:
        recipe.symlink_to("/dev/zero")
    done = project.invoke("phase4")
    assert done.returncode == 1
    assert "not a regular file" in done.stdout
    verified = project.invoke("verify", "--only", "inventory")
    assert verified.returncode == 1
    assert "not a regular file" in verified.stdout


def test_sigterm_ends_politely_and_takes_its_programs_along(project: Project) -> None:
    tools = project.root.parent / "tools"
    tools.mkdir()
    script = tools / "nurl"
    script.write_text(f"#!/bin/sh\necho $$ > {tools}/pid\nexec sleep 600\n")
    script.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "invoke", "prefetch", "--only", "torch"],
        cwd=project.root,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(100):
        time.sleep(0.05)
        if (tools / "pid").exists() and (tools / "pid").read_text().strip():
            break
    process.terminate()
    _, said = process.communicate(timeout=20)
    assert process.returncode == 143
    assert said == "error: terminated; every file is whole, run again to go on\n"
    child = int((tools / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_what_a_kill_left_behind_goes_with_the_next_run(project: Project) -> None:
    left = project.pkgs / ".pytorch-python313-cpu-avx2.nix.build-pytorch-tmp"
    left.write_text("half")
    assert project.invoke("all", "--check").returncode == 0
    assert left.exists(), "looking removes nothing"
    assert project.invoke("phase4").returncode == 0
    assert not left.exists()
