"""The five phases: what they write, what they refuse, and what they print."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import (
    LEGACY,
    ONE,
    PROJECT,
    Project,
    error_line,
    run_in_process,
    unfolded,
)

from build_pytorch.base import digest, file_plan, git
from build_pytorch.base.console import Screen
from build_pytorch.base.file_plan import Action, Change
from build_pytorch.generate import phase_plan, recipes
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Phase

BROKEN = ("sm120-avx512-magma", "sm120-avx", "sm121-armv9-nightly")
PREFIX = "pytorch-python313-cuda13_0-"


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The output without the line breaks that keep it within 80 columns."""
    return unfolded(done.stdout)


def names(root: Path) -> set[str]:
    return {path.name for path in (root / ".flox/pkgs").iterdir()}


@pytest.fixture
def checkout(legacy: Path) -> Project:
    """The six hand-written recipes with a matrix of their own."""
    (legacy / "matrix.toml").write_text(ONE)
    return Project(legacy)


# --- from six hand-written recipes to the 44 generated ones ---


def test_the_phases_turn_the_legacy_checkout_into_the_44(checkout: Project) -> None:
    done = checkout.invoke("all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"(?m)^Total: .* 1 kept$", done.stdout)
    assert names(checkout.root) == names(PROJECT)
    assert len(names(checkout.root)) == 44
    for name in names(checkout.root):
        is_kept = name == f"{PREFIX}sm120-avx512.nix"  # by the clean-up list
        wanted = LEGACY / name if is_kept else PROJECT / ".flox/pkgs" / name
        assert (checkout.pkgs / name).read_bytes() == wanted.read_bytes()


@pytest.mark.slow
def test_phases_run_alone_and_in_any_order(checkout: Project) -> None:
    for phase in ("phase4", "phase3", "phase5", "phase2", "phase1"):
        done = checkout.invoke(phase)
        assert done.returncode == 0, done.stdout + done.stderr
    assert names(checkout.root) == names(PROJECT)


def test_phase1_deletes_only_what_the_list_names(checkout: Project) -> None:
    checkout.commit()
    strangers = [checkout.pkgs / "my-own-package.nix", checkout.pkgs / "lib/helper.nix"]
    for stranger in strangers:
        stranger.parent.mkdir(exist_ok=True)
        stranger.write_text("{ hello }: hello\n")
    before = names(checkout.root)
    done = checkout.invoke("phase1")
    assert before - names(checkout.root) == {f"{PREFIX}{name}.nix" for name in BROKEN}
    assert [it.read_text() for it in strangers] == ["{ hello }: hello\n"] * 2
    assert "unknown 2 (" in said(done)
    assert "my-own-package.nix): not in matrix.toml; left alone" in said(done)
    assert done.returncode == 0


# --- options of a run ---


def test_a_second_run_changes_nothing_and_each_file_is_of_one_phase(project: Project) -> None:
    before = project.snapshot()
    done = project.invoke("all")
    assert (done.returncode, project.snapshot() == before) == (0, True)
    first, *others = done.stdout.splitlines()
    assert re.fullmatch(r"Total: \d+ unchanged", first)
    assert not any("unchanged" in line or ".flox" in line for line in others)
    assert len(others) <= 5, "what was skipped, with a reason for each missing program"
    matrix, tree = matrix_reader.load(project.root), Tree(project.root)
    changes = [change for phase in Phase for change in phase_plan.plan(phase, matrix, tree)]
    assert {change.action for change in changes} == {Action.UNCHANGED}
    assert len({change.path for change in changes}) == len(changes)


def test_check_and_dry_run_write_nothing(project: Project, checkout: Project) -> None:
    project.recipe("cpu-avx2").unlink()
    before = project.snapshot()
    done = project.invoke("all", "--check")
    assert done.returncode == 1
    assert "(nothing written)" in said(done)
    assert "Verification not run" in said(done)
    assert project.snapshot() == before
    done = project.invoke("phase4")
    assert "create .flox/pkgs/pytorch-python313-cpu-avx2.nix missing" in said(done)
    before = checkout.snapshot()
    done = checkout.invoke("all", "--dry-run")
    assert done.returncode == 0
    assert checkout.snapshot() == before
    for word in ("create", "rewrite", "delete", "kept"):
        assert word in done.stdout


def test_a_changed_matrix_rewrites_what_depends_on_it(project: Project) -> None:
    project.commit()
    gpu = '[gpu.sm120]\nhosts.x86_64-linux = ["RTX 5090"]\n\n'
    project.edit("matrix.toml", "[pin.", f"{gpu}[pin.")
    done = project.invoke("phase2", "phase5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rewrite 4 (.flox/pkgs/pytorch-python313-cuda13_0-sm120-avx2.nix " in said(done)
    # 4 recipes, and the page: the table of choices has what is published, whatever the matrix has
    assert re.findall(r"(?m)^Total: (\d+) rewrite, \d+ unchanged$", done.stdout) == ["4", "1"]
    assert "rewrite docs/site/index.html" in said(done)
    # An intact digest allows the rewrite, committed or not.
    project.edit("matrix.toml", gpu, "")
    assert "4 rewrite" in project.invoke("phase2").stdout


def test_a_folder_without_a_project_is_bad_input(tmp_path: Path) -> None:
    done = run_in_process(tmp_path, ["all"], {})
    assert done.returncode == 2
    assert "no matrix.toml here or in a folder above; `build-pytorch init DIR`" in error_line(done)


# --- generated and hand-edited files ---


def test_recipes_of_a_person_are_refused_with_a_diff_and_the_others_are_done(
    project: Project,
) -> None:
    edited, copied, own, missing = map(
        project.recipe,
        (f"cuda13_0-sm90-{isa}" for isa in ("avx512", "avx2", "avx512bf16", "avx512vnni")),
    )
    before, text = copied.read_text(), edited.read_text().replace("MAX_JOBS=32", "MAX_JOBS=16")
    edited.write_text(text)
    shutil.copy(project.recipe("cuda13_0-sm80-avx2"), copied)  # generated, of another name
    own.write_text("{ hello }: hello\n")
    missing.unlink()
    done = project.invoke("phase2")
    assert done.returncode == 1
    assert "edited by hand; --force overwrites it" in said(done)
    assert "written by hand; --force overwrites it" in said(done)
    assert "-    export MAX_JOBS=16\n+    export MAX_JOBS=32" in done.stdout
    assert "-{ hello }: hello" in said(done)
    assert (edited.read_text(), own.read_text()) == (text, "{ hello }: hello\n")
    assert copied.read_text() == before
    assert missing.exists()
    forced = project.invoke("phase2", "--force")
    assert forced.returncode == 0
    assert "forced: edited by hand" in said(forced)
    assert digest.is_intact(edited.read_text())
    assert digest.is_intact(own.read_text())


@pytest.mark.parametrize(("name", "phase"), [("sm120-avx", "phase1"), ("sm110-armv9", "phase3")])
def test_listed_files_with_uncommitted_changes_are_refused(
    checkout: Project, name: str, phase: str
) -> None:
    checkout.commit()
    changed = checkout.recipe(f"cuda13_0-{name}")
    changed.write_text(changed.read_text() + "# not committed\n")
    done = checkout.invoke(phase)
    assert done.returncode == 1
    assert "not committed in Git as it is" in said(done)
    assert "# not committed" in changed.read_text()
    assert "delete   " in done.stdout or "create" in done.stdout  # the others are done
    assert checkout.invoke(phase, "--force").returncode == 0
    assert not changed.exists() or digest.is_intact(changed.read_text())


def test_git_is_asked_for_a_file_in_its_own_repository(
    checkout: Project, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a hook of another one, or where the folder is a part of a larger one."""
    broken, correct = (f".flox/pkgs/{PREFIX}{name}.nix" for name in ("sm120-avx", "sm120-avx512"))

    def modified(root: Path) -> list[str]:
        return [path for path in (broken, correct) if Tree(root).is_modified(path)]

    outer = Project(tmp_path / "outer")
    inner = Path(shutil.copytree(checkout.root, outer.root / "inner"))
    assert modified(inner) == [], "no checkout"
    outer.git("init", "-q", "--bare", ".")
    assert (git.top(outer.root), modified(outer.root)) == (None, [])
    shutil.rmtree(outer.root)
    shutil.copytree(checkout.root, inner)
    outer.git("init", "-q")
    assert modified(inner) == [broken, correct], "untracked"
    outer.commit()
    (inner / broken).write_text("# changed\n")
    (inner / correct).touch()  # Git would refresh its index
    index = (outer.root / ".git/index").read_bytes()
    project.commit()
    monkeypatch.setenv("GIT_DIR", str(project.root / ".git"))
    monkeypatch.setenv("LANGUAGE", "de")
    assert modified(inner) == [broken]
    assert (outer.root / ".git/index").read_bytes() == index
    monkeypatch.setenv("PATH", str(tmp_path))
    assert modified(inner) == [broken, correct], "no Git"


# --- variants that leave the matrix ---


def test_recipes_of_a_removed_isa_are_deleted_but_not_edited_or_copied_ones(
    project: Project,
) -> None:
    matrix = project.root / "matrix.toml"
    matrix.write_text(re.sub(r'(?m)^(cpu = .*), "avx512vnni"', r"\1", matrix.read_text()))
    edited, copied = project.recipe("cuda13_0-sm90-avx512vnni"), project.pkgs / "copy.nix"
    edited.write_text(edited.read_text().replace("MAX_JOBS=32", "MAX_JOBS=16"))
    shutil.copy(project.recipe("cuda13_0-sm80-avx512vnni"), copied)
    before = names(project.root)
    done = project.invoke("phase1")
    assert done.returncode == 0, done.stdout + done.stderr
    gone = before - names(project.root)
    assert gone == {name for name in before - {edited.name} if name.endswith("-avx512vnni.nix")}
    assert "generated, and no longer in matrix.toml" in said(done)
    assert copied.exists()


# --- digests ---


def test_a_value_that_looks_like_a_digest_makes_no_recipe_edited_by_hand() -> None:
    value = "sha256:" + "0" * 64
    cpu = f'[cpu.avx2]\ntitle = "AVX2 {value}"\ncpus = ["sha256:{"a" * 64}"]\n'
    gpu = f'[gpu.sm120]\nhosts.x86_64-linux = ["Digest of this file, with zeros: {value}"]\n'
    matrix = matrix_reader.parse(ONE.replace("[pin.", f"{cpu}{gpu}[pin.", 1))
    texts = recipes.render(matrix)
    assert any(value in text for text in texts.values())
    assert all(map(digest.is_intact, texts.values()))


# --- a check of the recipes with grep ---


def test_grep_finds_the_expected_versions_in_the_expected_number_of_recipes() -> None:
    block = r"""
ls .flox/pkgs/pytorch-python313-cuda13_0-*.nix | wc -l  # Should be 40 (36 x86 + 4 ARM)
ls .flox/pkgs/pytorch-python313-cpu-*.nix | wc -l       # Should be 4
ls .flox/pkgs/pytorch-python313-cuda13_0-*-magma.nix 2>/dev/null  # Should be empty
ls .flox/pkgs/pytorch-python313-cuda13_0-*-nightly.nix 2>/dev/null  # Should be empty
ls .flox/pkgs/pytorch-python313-cuda13_0-*-avx.nix 2>/dev/null  # Should be empty
for f in .flox/pkgs/pytorch-python313-cuda13_0-*.nix; do
  count=$(grep -c 'cudaPackages_13\|cuda-13.0-clockrate-fix.patch\|version = "2.10.0"' "$f")
  if [ "$count" -ne 3 ]; then
    echo "BROKEN: $f (expected 3 patterns, found $count)"
  fi
done
for f in .flox/pkgs/pytorch-python313-cpu-*.nix; do
  count=$(grep -c 'version = "2.10.0"' "$f")
  cuda=$(grep -c 'cudaPackages_13' "$f")
  if [ "$count" -ne 1 ] || [ "$cuda" -ne 0 ]; then
    echo "BROKEN: $f"
  fi
done
grep -l 'fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3' .flox/pkgs/pytorch-python313-*.nix
grep -c 'gpuArchSM = "9.0"' .flox/pkgs/pytorch-python313-cuda13_0-sm90-*.nix | wc -l
grep -h 'gpuArchSM = "8.6"' .flox/pkgs/pytorch-python313-cuda13_0-sm86-*.nix | wc -l
grep -h 'gpuArchSM = "12.1"' .flox/pkgs/pytorch-python313-cuda13_0-sm121-*.nix | wc -l
"""
    done = subprocess.run(
        ["bash"], input=block, cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["40", "4", "4", "4", "6"]
    assert done.stderr == ""


# --- what is printed ---


def test_many_files_are_counted_and_named_if_verbose() -> None:
    changes = [
        Change(path=f"releases/a/{n}.nix", action=Action.CREATE, reason="missing", new=b"")
        for n in range(9)
    ]
    changes.append(Change(path="README.md", action=Action.REWRITE, reason="forced: x", new=b""))
    short, long = io.StringIO(), io.StringIO()
    file_plan.print_plan(Screen(short), changes)
    assert unfolded(short.getvalue()) == (
        "create 9 (releases/a/0.nix releases/a/1.nix releases/a/2.nix and 6 more): missing "
        "rewrite README.md forced: x Total: 9 create, 1 rewrite"
    )
    file_plan.print_plan(Screen(long), changes, verbose=True)
    assert long.getvalue().count("releases/a/") == 9
