"""Moving a release: the changed values, and the command that writes everything or nothing."""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import ONE, PROJECT, WHOLE, Project, error_line, needs_nix, unfolded
from invoke.collection import Collection
from invoke.parser import Parser
from test_sources import NEW_PIN, OTHER, OTHER_REV, archive, commit, git, github, nixpkgs, tool

from build_pytorch.base.errors import BuildPytorchError, MatrixError
from build_pytorch.generate.flox_environments import environments
from build_pytorch.matrix import matrix_reader
from build_pytorch.sources.github import NightlyCommit
from build_pytorch.sources.release_move import Move, left_to_do, moved
from build_pytorch.tasks.bump import bump as task

__all__ = ["github", "nixpkgs"]  # fixtures

PIN = "6a030d535719c5190187c4cec156f335e95e3211"
CUDA_PIN = "2017d6d515f8a7b289fe06d3a880a7ec588c3900"
"""The revision that is known to have CUDA 13.1."""


class Moved:
    """A matrix and what a move makes of it."""

    def __init__(self, text: str, name: str = "cuda13_0", **wanted: Any) -> None:
        self.old = matrix_reader.parse(text)
        move = Move(matrix=self.old, name=name, **wanted)
        self.new, self.values = moved(move)
        self.text, self.release = self.new.text, self.new.releases[move.new_name]
        self.pin = self.new.pins[self.release.nixpkgs.pin]
        self.todo = list(left_to_do(move, self.new))
        rows = difflib.ndiff(text.splitlines(), self.text.splitlines())
        self.added = [row[2:].split("   #")[0].rstrip() for row in rows if row.startswith("+ ")]
        """The lines that the move adds, without their comments."""


# --- the changed values ---


def test_a_new_pytorch_changes_every_place_that_follows() -> None:
    move = Moved(ONE, torch="2.11.0")
    assert move.added == [
        *('version = "2.11.0"', 'rev = "v2.11.0"', 'hash = ""', 'hash_of = ""'),
        *('version = "0.26.0"', 'rev = "v0.26.0"', 'hash = ""', 'hash_of = ""'),
        *('version = "2.11.0"', 'rev = "v2.11.0"', 'hash = ""', 'hash_of = ""'),
    ]
    assert list(move.values) == ["PyTorch 2.11.0"]
    assert Moved(move.text, torch="2.11.0").values == {}


@pytest.mark.parametrize(
    ("wanted", "gpu", "cpu"),
    [
        ({"cuda": "13.1"}, "python313-cuda13_1", "python313-cpu"),
        ({"python": "3.12"}, "python312-cuda13_0", "python312-cpu"),
    ],
)
def test_names_follow_the_versions_and_the_list_of_old_files_goes(
    wanted: dict[str, str], gpu: str, cpu: str
) -> None:
    move = Moved(WHOLE, **wanted)
    assert Moved(move.text, **wanted).values == {}
    assert (move.release.names.gpu, move.release.names.cpu) == (gpu, cpu)
    assert (bool(move.old.releases["cuda13_0"].cleanup), move.release.cleanup) == (True, ())
    heads = [line for line in WHOLE.splitlines() if line.startswith("# --- ")]
    assert [line for line in move.text.splitlines() if line.startswith("# --- ")] == heads


@pytest.mark.parametrize("beside", ["", "next"])
def test_a_companion_without_a_version_is_left_out(beside: str) -> None:
    move = Moved(ONE, beside=beside, torch="2.7.0")
    assert move.release.companions == {}
    assert bool(move.new.releases["cuda13_0"].companions) is bool(beside)
    assert "torchaudio is left out: no version for PyTorch 2.7.0 is known" in move.todo
    assert ('torchaudio = "none"' in move.text) is bool(beside)
    assert "# Hand-written files from before" in move.text  # the comment of the next table


# --- pins ---


PYTHON = """python3.pythonVersion = "3.13"; python313.pythonVersion = "3.13";
python313Packages.x = 1; python3Packages.torch.version = "2.9.1";"""
CUDA_13_0 = 'cudaPackages_13.cudaMajorMinorVersion = "13.0";'
CUDA_13_3 = 'cudaPackages_13_3.cudaMajorMinorVersion = "13.3";'
UNREADABLE = f"nixpkgs {PIN} cannot be evaluated: "


def offer(folder: Path, rev: str, versions: str) -> None:
    """Offer a nixpkgs with some versions as the tarball of a revision."""
    (folder / "tree").mkdir()
    (folder / "tree/default.nix").write_text(f"_: {{ {versions} }}")
    archive(folder, rev, folder / "tree")


@needs_nix
@pytest.mark.parametrize(
    ("wanted", "versions", "says"),
    [
        ({"cuda": "13.3"}, PYTHON + CUDA_13_3.replace('"13.3"', '"13.1"'), "13.1; --nixpkgs REV"),
        ({"cuda": "13.3"}, "syntax error", UNREADABLE),
        ({"cuda": "13.3"}, "python3.pythonVersion = 3;" + CUDA_13_3, UNREADABLE),
        ({"nixpkgs": NEW_PIN}, PYTHON, "has no CUDA 13.0: none;"),
        ({"nixpkgs": NEW_PIN}, PYTHON.replace("13", "14") + CUDA_13_0, "no Python 3.13: 3.14;"),
    ],
)
def test_a_version_that_the_pin_does_not_have_is_refused(
    nixpkgs: Path, wanted: dict[str, str], versions: str, says: str
) -> None:
    offer(nixpkgs, wanted.get("nixpkgs", PIN), versions)
    with pytest.raises(BuildPytorchError, match=re.escape(says)) as caught:
        Moved(ONE, **wanted)
    assert "\n" not in str(caught.value)


@needs_nix
def test_a_version_is_found_by_an_evaluation_of_the_pin(nixpkgs: Path) -> None:
    offer(nixpkgs, PIN, PYTHON + CUDA_13_3)
    move = Moved(ONE, cuda="13.3")
    assert move.release.cuda
    assert move.release.cuda.package_set == "cudaPackages_13_3"
    assert move.pin.cuda == {"cudaPackages_13_3": "13.3"}


@needs_nix
def test_a_new_revision_moves_the_pin_of_one_release_where_it_is(nixpkgs: Path) -> None:
    """No other release uses it. One that others use stays, and a new pin has the new revision."""
    offer(nixpkgs, NEW_PIN, PYTHON + CUDA_13_0)
    move = Moved(WHOLE, nixpkgs=NEW_PIN)
    pin = move.new.pins["early_2026"]
    assert pin.facts
    assert (pin.rev, pin.torch, pin.sha256, pin.facts.of) == (NEW_PIN, "2.9.1", "", NEW_PIN)
    assert move.release.nixpkgs.retired[-1] == PIN
    assert move.new.releases["nightly"] == move.old.releases["nightly"]
    shared = Moved(SHARED, nixpkgs=NEW_PIN)
    assert (shared.release.nixpkgs.pin, shared.pin.rev) == ("cuda13_0", NEW_PIN)
    assert shared.new.pins["early_2026"].rev == PIN


_BEFORE, _NIGHTLY, _REST = WHOLE.partition("[release.nightly]")
SHARED = _BEFORE + _NIGHTLY + _REST.replace('"february_2026"', '"early_2026"', 1)
"""The matrix with a nightly on the pin of the main release."""


@pytest.mark.parametrize(
    ("name", "wanted", "pin"),
    [
        ("cuda13_0", {"nixpkgs": "february_2026"}, "february_2026"),
        ("cuda13_0", {"cuda": "13.1"}, "cuda13_1"),
        ("nightly", {"python": "3.12"}, "early_2026"),
        ("cuda12_8", {"torch": "2.9.1"}, "february_2026"),
        ("cuda12_8", {"torch": "2.11.0"}, "autumn_2025"),
        ("cuda12_8", {"torch": "2.9.1", "beside": "other"}, "february_2026"),
    ],
)
def test_a_moved_release_leaves_the_others_as_they_are(
    name: str, wanted: dict[str, str], pin: str
) -> None:
    move = Moved(SHARED, name, **wanted)
    moved, changed = move.release, wanted.get("beside", name)
    assert moved.nixpkgs.pin == pin
    assert wanted.get("torch", moved.torch.version) == moved.torch.version
    assert wanted.get("python", moved.python.version) == moved.python.version
    assert moved.cuda
    assert wanted.get("cuda", moved.cuda.version) == moved.cuda.version
    others = {name: it for name, it in move.new.releases.items() if name != changed}
    assert others == {name: it for name, it in move.old.releases.items() if name != changed}
    assert {key: move.new.pins[key].rev for key in move.old.pins} == {
        key: pin.rev for key, pin in move.old.pins.items()
    }


def test_a_release_moves_over_itself_as_beside_itself() -> None:
    wanted = {"torch": "2.9.1", "python": "3.12"}
    over = Moved(WHOLE, "cuda12_8", **wanted)
    beside = Moved(WHOLE, "cuda12_8", beside="other", **wanted)
    for field in ("torch", "companion", "cuda", "python", "names", "group", "build"):
        assert getattr(over.release, field) == getattr(beside.release, field)
    assert over.pin == beside.pin


# --- nightlies ---


def test_a_commit_changes_every_place_that_follows() -> None:
    found = NightlyCommit(rev=OTHER_REV, version="2.12.0.dev20260630", triton_rev=NEW_PIN)
    move = Moved(WHOLE, "nightly", commit=found)
    assert move.added == [
        'version = "2.12.0.dev20260630"',
        f'rev = "{OTHER_REV}"',
        f'triton_rev = "{NEW_PIN}"',
    ]  # there was no hash
    assert f"compare the Triton of the pin with {NEW_PIN}, for torch.compile" in move.todo
    assert Moved(move.text, "nightly", commit=found).values == {}


@pytest.mark.parametrize(
    ("day", "torch"), [("20260720", "2.9.1"), ("20260721", "2.9.1"), ("20261101", "2.14.0")]
)
def test_a_day_without_a_setup_py_is_refused_where_the_pin_runs_it(day: str, torch: str) -> None:
    pin = "[pin.february_2026]"
    text = WHOLE.replace(pin, f'{pin}\ntorch = "{torch}"')
    found = NightlyCommit(rev=OTHER_REV, version=f"2.12.0.dev{day}", triton_rev=NEW_PIN)
    if day != "20260721":
        assert Moved(text, "nightly", commit=found).values
        return
    says = f'torch.version: found "2.12.0.dev{day}"; allowed: a day up to 20260720, or a pin'
    with pytest.raises(MatrixError, match=re.escape(f"{says} with torch 2.14 or newer")):
        Moved(text, "nightly", commit=found)


def test_the_value_of_the_option_may_be_left_out() -> None:
    for words, value in (
        (["--nightly"], True),
        (["--nightly", "--dry-run"], True),
        ([f"--nightly={OTHER_REV}"], OTHER_REV),
    ):
        context = Parser(contexts=Collection(task).to_contexts()).parse_argv(["bump", *words])
        assert context[0].args["nightly"].value == value


# --- the command ---


def bump(project: Project, *argv: str, hash_: str = OTHER) -> subprocess.CompletedProcess[str]:
    """Run bump with a stand-in for the download: nix-prefetch and nix-prefetch-url give a hash."""
    letters = 'case "$*" in *vision*) x=CC;; *audio*) x=DD;; *) x=BB;; esac'
    env = tool(project, "nix-prefetch", f"{letters}\necho {hash_} | sed s/BB/$x/")
    tool(project, "nix-prefetch-url", f"echo {hash_}")
    return project.run("invoke", "bump", *argv, env=env)


@needs_nix
def test_everything_is_written(project: Project) -> None:
    project.commit()
    before = project.snapshot()
    done = bump(project, "--torch", "2.11.0", "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(nothing written)" in done.stdout
    assert '+version = "2.11.0"' in done.stdout
    assert "0 errors, 0 warnings" in unfolded(done.stdout)
    assert project.snapshot() == before
    done = bump(project, "--torch", "2.11.0")
    assert done.returncode == 0, done.stdout + done.stderr
    release = matrix_reader.load(project.root).releases["cuda13_0"]
    assert {(s.hash, s.hash_of) for s in release.sources.values()} == {
        (OTHER, "v2.11.0"),
        (OTHER.replace("BB", "CC", 1), "v0.26.0"),
        (OTHER.replace("BB", "DD", 1), "v2.11.0"),
    }
    recipe = project.recipe("cuda13_0-sm90-avx2").read_text()
    for part in ('pname = "pytorch211-', OTHER, "PYTORCH_BUILD_VERSION=2.11.0"):
        assert part in recipe
    for line in (
        "PyTorch 2.11.0: torch, companion.torchvision, companion.torchaudio",
        '+version = "2.11.0"',
        "Written; `git diff` shows it.",
    ):
        assert line in done.stdout.splitlines()
    assert "build one variant before the others: " in done.stdout
    before = project.snapshot()
    again = bump(project, "--torch", "2.11.0")
    assert again.returncode == 0
    assert again.stdout == "nothing to do: release.cuda13_0 has these versions\n"
    assert project.snapshot() == before
    assert project.invoke("all", "--check").returncode == 0


@pytest.mark.slow
@needs_nix
def test_a_new_cuda_renames_the_recipes(project: Project, nixpkgs: Path) -> None:
    """The pin is one that is known to have it: Nix does not evaluate it."""
    offer(nixpkgs, CUDA_PIN, "")
    done = project.invoke("bump", "--cuda", "13.1")
    assert done.returncode == 0, done.stdout + done.stderr
    release = matrix_reader.load(project.root).releases["cuda13_0"]
    assert release.nixpkgs.pin == "cuda13_1"
    assert PIN in release.nixpkgs.retired
    assert not list(project.pkgs.glob("*cuda13_0*"))
    assert len(list(project.pkgs.glob("*cuda13_1*"))) == 40
    assert project.invoke("all", "--check").returncode == 0


@needs_nix
def test_what_cannot_be_taken_leaves_the_tree_as_it_was(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILD_PYTORCH_GITHUB", "http://127.0.0.1:9")
    before = project.snapshot()
    done = project.invoke("bump", "--torch", "2.11.0")
    assert done.returncode == 2
    assert "and that http://127.0.0.1:9/pytorch/pytorch v2.11.0 exists" in error_line(done)
    assert project.snapshot() == before


@needs_nix
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cpu-avx2", ("edited by hand; --force overwrites it", "1 refused (nothing written)")),
        ("cpu-other", ("a recipe of no variant", "1 unknown (nothing written)")),
    ],
)
def test_what_must_not_be_written_leaves_the_tree_as_it_was(
    project: Project, name: str, says: tuple[str, str]
) -> None:
    """A recipe that a person changed stays, and recipes that do not pass verification."""
    recipe = project.recipe("cpu-avx2").read_text()
    project.recipe(name).write_text(recipe.replace("MAX_JOBS=32", "MAX_JOBS=8"))
    before = project.snapshot()
    for options in ((), ("--dry-run",)):
        done = bump(project, "--torch", "2.11.0", *options)
        assert done.returncode == 1, done.stdout + done.stderr
        for words in says:
            assert words in unfolded(done.stdout)
        assert "Written" not in done.stdout
    assert project.snapshot() == before


IMPOSSIBLE = """
                                    | nothing to do; give --torch VERSION
    --torch ../../x                 | allowed: a version such as 2.10.0
    --nixpkgs main                  | found "main"; allowed: 40 hex digits of a revision, key of a
    --cuda 12.8                     | GPUs of CUDA 12.8; this one needs CUDA 12.9 or newer
    --torch 2.11.0 --release cuda130 | did you mean "cuda13_0"?
    --torch 2.9.1 --as cuda12_8     | release "cuda12_8" exists already
    --torch 2.9.1 --as a.b          | found "a.b"; allowed: a-z, 0-9 and _
    --python 3                      | --python: found
    --as other                      | nothing to do; give --torch VERSION
    --nightly                       | release cuda13_0 builds version 2.10.0; nightlies: nightly
    --nightly --release other       | --release "other": no such release
    --nightly=main --release nightly | found "main"; allowed: a day
    --torch 2.11.0 --release nightly | a commit of a moving branch; --nightly moves it
"""


def test_an_impossible_target_is_a_line_for_each_error() -> None:
    for row in IMPOSSIBLE.strip("\n").splitlines():
        words, says = row.split(" | ")
        release = [] if "--release" in words else ["--release", "cuda13_0"]
        done = Project(PROJECT).invoke("bump", *release, *words.split(), "--dry-run")
        assert (done.returncode, says in done.stderr) == (2, True), row
        assert all(line.startswith("error: ") for line in done.stderr.splitlines()), row


@pytest.mark.slow
@needs_nix
def test_a_release_with_the_torch_of_its_pin_needs_a_pin_and_no_network(whole: Project) -> None:
    """2.9.1 on CUDA 12.8 is in a revision that is known with its hash."""
    before = (whole.root / "matrix.toml").read_text()
    done = whole.invoke("bump", "--release", "cuda12_8", "--torch", "2.9.1", "--as", "cuda12_8_t29")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (whole.root / "matrix.toml").read_text()
    assert [line for line in before.splitlines() if line not in text.splitlines()] == []
    new = matrix_reader.parse(text)
    old, beside = new.releases["cuda12_8"], new.releases["cuda12_8_t29"]
    assert (old.torch.version, beside.torch.version) == ("2.8.0", "2.9.1")
    pin = new.pins[beside.nixpkgs.pin]
    assert (pin.torch, pin.cuda["cudaPackages_12_8"]) == ("2.9.1", "12.8")
    ids = [variant.short_id for variant in new.of_release("cuda12_8_t29")]
    assert ids == [variant.short_id for variant in new.of_release("cuda12_8")]
    recipe = new.of_release("cuda12_8_t29")[0].path
    assert pin.rev in (whole.root / recipe).read_text()
    assert {"releases/cuda12_8_t29", "releases/cuda12_8_t29/companions"} < {*environments(new)}
    assert whole.invoke("all", "--check").returncode == 0
    shutil.rmtree(whole.root / "releases/cuda12_8_t29/companions/.flox/env")
    verified = whole.invoke("verify", "--only", "flox-environment")
    assert verified.returncode == 1
    assert "releases/cuda12_8_t29/companions/.flox" in verified.stdout


@pytest.mark.slow
@needs_nix
def test_a_nightly_moves_and_has_nothing_to_do_then(github: Path, whole: Project) -> None:
    done = bump(whole, "--nightly")
    assert done.returncode == 0, done.stdout + done.stderr
    rev = git(github / "pytorch/pytorch", "rev-parse", "HEAD")
    recipe = next((whole.root / "releases/nightly/.flox/pkgs").glob("*-nightly.nix")).read_text()
    for part in (f'rev = "{rev}"', "PYTORCH_BUILD_VERSION=2.12.0.dev20260630", OTHER):
        assert part in recipe
    assert "nothing to do: release.nightly has" in bump(whole, "--nightly", rev).stdout


@needs_nix
def test_bump_takes_the_revision_of_a_branch_of_flox(
    github: Path, nixpkgs: Path, project: Project
) -> None:
    options = ("--nixpkgs", "lts", "--dry-run")
    done = bump(project, *options)
    assert (done.returncode, "/flox/nixpkgs" in error_line(done)) == (2, True)
    rev = commit(github / "flox/nixpkgs", "lts", "2026-10-30", {})
    offer(nixpkgs, rev, PYTHON + CUDA_13_0)
    done = bump(project, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f'+rev = "{rev}"' in done.stdout.splitlines()
