"""The five phases: what they write, what they refuse, and what they print."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import LEGACY, PROJECT, Project, error_line, needs_nix, unfolded

from build_pytorch.base import digest

BROKEN = ("sm120-avx512-magma", "sm120-avx", "sm121-armv9-nightly")
PREFIX = "pytorch-python313-cuda13_0-"


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The output without the line breaks that keep it within 80 columns."""
    return unfolded(done.stdout)


def names(root: Path) -> set[str]:
    return {path.name for path in (root / ".flox/pkgs").iterdir()}


# --- from six hand-written recipes to the 44 generated ones ---


def test_the_phases_turn_the_legacy_checkout_into_the_44(project: Project, legacy: Path) -> None:
    canonical = (LEGACY / f"{PREFIX}sm120-avx512.nix").read_bytes()

    done = project.invoke("all", "--root", str(legacy))

    assert done.returncode == 0, done.stdout + done.stderr
    assert names(legacy) == names(PROJECT)
    assert len(names(legacy)) == 44
    for name in names(legacy):
        written = (legacy / ".flox/pkgs" / name).read_bytes()
        if name == f"{PREFIX}sm120-avx512.nix":
            assert written == canonical, "the clean-up list says keep"
        else:
            assert written == (PROJECT / ".flox/pkgs" / name).read_bytes()
    again = project.invoke("all", "--root", str(legacy))
    assert re.search(r"(?m)^Total: \d+ unchanged, 1 kept, 3 skipped$", again.stdout)
    assert again.returncode == 0


@pytest.mark.slow
def test_phases_run_alone_and_in_any_order(project: Project, legacy: Path) -> None:
    for phase in ("phase4", "phase3", "phase5", "phase2", "phase1"):
        done = project.invoke(phase, "--root", str(legacy))
        assert done.returncode == 0, done.stdout + done.stderr
    assert names(legacy) == names(PROJECT)


def test_phase1_deletes_only_what_the_list_names(project: Project, legacy: Path) -> None:
    stranger = legacy / ".flox/pkgs/my-own-package.nix"
    stranger.write_text("{ hello }: hello\n")
    nested = legacy / ".flox/pkgs/lib/helper.nix"
    nested.parent.mkdir()
    nested.write_text("{ }\n")
    before = names(legacy)

    done = project.invoke("phase1", "--root", str(legacy))

    assert before - names(legacy) == {f"{PREFIX}{name}.nix" for name in BROKEN}
    assert stranger.read_text() == "{ hello }: hello\n"
    assert nested.exists()
    assert done.stdout.count("unknown") >= 2
    assert "my-own-package.nix: not in matrix.toml; left alone" in said(done)
    assert done.returncode == 0


# --- options of a run ---


def test_a_second_run_changes_nothing(project: Project) -> None:
    before = project.snapshot()
    done = project.invoke("all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"(?m)^Total: \d+ unchanged$", done.stdout)
    assert project.snapshot() == before


def test_check_is_quiet_on_a_clean_tree_and_fails_when_something_would_change(
    project: Project,
) -> None:
    assert project.invoke("all", "--check").returncode == 0
    project.recipe("cuda13_0-sm90-avx2").unlink()
    before = project.snapshot()
    done = project.invoke("all", "--check")
    assert done.returncode == 1
    assert "(nothing written)" in said(done)
    assert "Verification not run" in said(done)
    assert project.snapshot() == before


def test_dry_run_shows_the_plan_and_writes_nothing(project: Project, legacy: Path) -> None:
    before = {name: (legacy / ".flox/pkgs" / name).read_bytes() for name in names(legacy)}
    done = project.invoke("all", "--dry-run", "--root", str(legacy))
    assert done.returncode == 0
    assert {name: (legacy / ".flox/pkgs" / name).read_bytes() for name in names(legacy)} == before
    assert sorted(path.name for path in legacy.iterdir()) == [".flox"]
    for word in ("create", "rewrite", "delete", "kept"):
        assert word in done.stdout


def test_diff_shows_what_changes(project: Project) -> None:
    project.edit("matrix.toml", 'driver = "580.65.06"', 'driver = "590.44.01"')
    done = project.invoke("phase2", "--dry-run", "--diff")
    assert done.stdout.count("+      Driver: NVIDIA 590.44.01 or newer") == 36
    assert "--- a/.flox/pkgs/pytorch-python313-cuda13_0-sm120-avx2.nix" in said(done)


def test_json_is_one_document_on_stdout(project: Project) -> None:
    project.recipe("cpu-avx2").unlink()
    done = project.invoke("all", "--json")
    document = json.loads(done.stdout)
    assert [phase["phase"] for phase in document["phases"]] == [1, 2, 3, 4, 5]
    number = sum(len(phase["changes"]) for phase in document["phases"])
    assert document["totals"] == {"unchanged": number - 1, "create": 1}
    assert document["written"] is True
    assert document["exit_code"] == done.returncode == 0
    created = [c for p in document["phases"] for c in p["changes"] if c["action"] == "create"]
    assert created == [
        {
            "path": ".flox/pkgs/pytorch-python313-cpu-avx2.nix",
            "action": "create",
            "reason": "missing",
        }
    ]
    assert document["verification"]["exit_code"] == 0


def test_a_changed_matrix_rewrites_what_depends_on_it(project: Project) -> None:
    project.commit()
    project.edit("matrix.toml", '"RTX 5090 to 5050"', '"RTX 5090"')
    done = project.invoke("all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SM120 rewrite" in said(done)
    # 4 recipes, and 5 pages: README, notes, tables, picker
    assert re.search(r"(?m)^Total: 9 rewrite, \d+ unchanged$", done.stdout)
    # An intact digest allows the rewrite, committed or not.
    project.edit("matrix.toml", '"RTX 5090"', '"RTX 5090 to 5050"')
    assert "9 rewrite" in project.invoke("all").stdout


@pytest.mark.parametrize("root", ["none", "matrix.toml"])
def test_a_root_that_is_no_folder_is_bad_input(project: Project, root: str) -> None:
    done = project.invoke("phase1", "--root", root)
    assert done.returncode == 2
    assert "no such folder" in error_line(done)


# --- generated and hand-edited files ---


def test_a_recipe_edited_by_hand_is_refused_with_its_diff_and_the_others_are_done(
    project: Project,
) -> None:
    edited = project.recipe("cuda13_0-sm90-avx512")
    text = edited.read_text().replace("MAX_JOBS=32", "MAX_JOBS=16")
    edited.write_text(text)
    project.recipe("cuda13_0-sm80-avx2").unlink()

    done = project.invoke("phase2")

    assert done.returncode == 1
    assert "refused" in done.stdout
    assert "edited by hand; --force overwrites it" in said(done)
    assert "-    export MAX_JOBS=16\n+    export MAX_JOBS=32" in done.stdout
    assert edited.read_text() == text
    assert project.recipe("cuda13_0-sm80-avx2").exists()

    forced = project.invoke("phase2", "--force")
    assert forced.returncode == 0
    assert "forced: edited by hand" in forced.stdout
    assert digest.is_intact(edited.read_text())


def test_a_copy_of_another_recipe_is_refused(project: Project) -> None:
    shutil.copy(project.recipe("cuda13_0-sm90-avx2"), project.recipe("cuda13_0-sm80-avx2"))
    done = project.invoke("phase2")
    assert done.returncode == 1
    assert "generated for another file and copied here" in said(done)


def test_a_hand_written_recipe_where_a_variant_belongs_is_refused(project: Project) -> None:
    recipe = project.recipe("cuda13_0-sm90-avx2")
    recipe.write_text("{ hello }: hello\n")
    done = project.invoke("phase2")
    assert done.returncode == 1
    assert "written by hand; --force overwrites it" in said(done)
    assert "-{ hello }: hello" in said(done)
    assert recipe.read_text() == "{ hello }: hello\n"
    assert project.invoke("phase2", "--force").returncode == 0
    assert digest.is_intact(recipe.read_text())


def test_the_kept_recipe_is_replaced_only_by_force(project: Project, legacy: Path) -> None:
    canonical = legacy / f".flox/pkgs/{PREFIX}sm120-avx512.nix"
    kept = project.invoke("phase2", "--root", str(legacy))
    assert kept.returncode == 0
    assert "kept" in kept.stdout
    project.invoke("phase2", "--root", str(legacy), "--force")
    assert digest.is_intact(canonical.read_text())


@pytest.mark.parametrize(("name", "phase"), [("sm120-avx", "phase1"), ("sm110-armv9", "phase3")])
def test_listed_files_with_uncommitted_changes_are_refused(
    project: Project, legacy: Path, name: str, phase: str
) -> None:
    checkout = Project(legacy)
    checkout.commit()
    changed = legacy / f".flox/pkgs/{PREFIX}{name}.nix"
    changed.write_text(changed.read_text() + "# not committed\n")

    done = project.invoke(phase, "--root", str(legacy))

    assert done.returncode == 1
    assert "not committed in Git as it is" in said(done)
    assert "# not committed" in changed.read_text()
    assert "delete   " in done.stdout or "create" in done.stdout  # the others are done
    assert project.invoke(phase, "--root", str(legacy), "--force").returncode == 0
    assert not changed.exists() or digest.is_intact(changed.read_text())


@pytest.mark.parametrize("git", [True, False])
def test_listed_files_that_are_untracked_or_without_git_are_refused(
    project: Project, legacy: Path, git: bool
) -> None:
    Project(legacy).git("init", "-q")
    tools = legacy.parent / "tools"
    tools.mkdir()
    (tools / "python").symlink_to(shutil.which("python3") or "")
    env = {} if git else {"PATH": str(tools)}
    done = project.run("invoke", "phase1", "--root", str(legacy), env=env)
    assert done.returncode == 1
    assert said(done).count("not committed in Git as it is; --force deletes it") == 3
    assert len(names(legacy)) == 6


def test_the_repository_of_a_git_hook_is_not_used_for_another_root(
    project: Project, legacy: Path
) -> None:
    project.commit()
    Project(legacy).commit()
    env = {"GIT_DIR": str(project.root / ".git"), "LANGUAGE": "de", "LC_ALL": "de_DE.UTF-8"}
    done = project.run("invoke", "phase1", "--root", str(legacy), env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(names(legacy)) == 3


def test_a_root_within_a_larger_repository_asks_git_for_the_right_files(
    project: Project, legacy: Path
) -> None:
    outer = Project(legacy.parent / "outer")
    shutil.copytree(legacy, outer.root / "inner")
    outer.commit()
    changed = outer.root / f"inner/.flox/pkgs/{PREFIX}sm120-avx.nix"
    changed.write_text("# changed\n")
    done = project.invoke("phase1", "--root", str(outer.root / "inner"))
    assert done.returncode == 1
    assert changed.exists()


def test_the_mode_of_a_file_stays(project: Project) -> None:
    recipe = project.recipe("cpu-avx2")
    recipe.chmod(0o640)
    project.edit("matrix.toml", '"Zen and newer"', '"Zen"')
    assert project.invoke("phase4").returncode == 0
    assert recipe.stat().st_mode & 0o777 == 0o640


# --- recipes and packages that people write ---

MANUAL = """
[[release.cuda13_0.manual]]
file = "{file}"
reason = "for the small machine"
"""


def manual(project: Project, file: str, waive: str = "") -> None:
    with (project.root / "matrix.toml").open("a") as matrix:
        matrix.write(MANUAL.format(file=file) + waive)


def findings(project: Project, severity: str) -> list[dict[str, str]]:
    done = project.invoke("verify", "--json")
    document = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode
    return [finding for finding in document["findings"] if finding["severity"] == severity]


@pytest.mark.slow
@pytest.mark.parametrize("old", ["# CPU: AVX2", "# Digest of", "# pytorch-python313-cpu-avx2"])
def test_one_entry_keeps_an_edited_recipe(project: Project, old: str) -> None:
    project.edit(".flox/pkgs/pytorch-python313-cpu-avx2.nix", old, f"{old} or so")
    text = project.recipe("cpu-avx2").read_text()
    assert project.invoke("phase4").returncode == 1
    manual(project, "pytorch-python313-cpu-avx2.nix")
    for argv in (["all"], ["phase4", "--force"]):
        done = project.invoke(*argv)
        assert done.returncode == 0, done.stdout
        assert "written by hand: for the small machine" in said(done)
        assert project.recipe("cpu-avx2").read_text() == text
    assert findings(project, "error") == []
    (note,) = findings(project, "note")
    assert (note["check"], note["found"]) == ("generated-recipes", "a text written by hand")
    assert "1 note" in said(project.invoke("verify", "-v"))


@needs_nix
def test_release_nix_imports_a_kept_recipe_as_it_is(project: Project) -> None:
    project.recipe("cpu-avx2").write_text('{ }: "anything"\n')
    manual(project, "pytorch-python313-cpu-avx2.nix")
    assert project.invoke("phase5").returncode == 0
    argv = ["nix-instantiate", "--eval", "release.nix", "-A", "pytorch-python313-cpu-avx2"]
    done = subprocess.run(argv, cwd=project.root, capture_output=True, text=True, check=False)
    assert done.stdout == '"anything"\n', done.stderr


def test_a_kept_recipe_is_checked_and_single_checks_can_be_waived(project: Project) -> None:
    project.edit(".flox/pkgs/pytorch-python313-cuda13_0-sm90-avx2.nix", '"9.0"', '"8.9"')
    name = "pytorch-python313-cuda13_0-sm90-avx2.nix"
    manual(project, name)
    assert project.invoke("phase5").returncode == 0, "release.nix imports it as it is"
    failing = {finding["check"] for finding in findings(project, "error")}
    assert "gpu-arch" in failing
    project.edit(
        "matrix.toml", 'small machine"\n', 'small machine"\n[release.cuda13_0.manual.waive]\n'
    )
    with (project.root / "matrix.toml").open("a") as matrix:
        matrix.writelines(f'{check} = "tried on an L40"\n' for check in failing)
    assert project.invoke("phase5").returncode == 0
    assert findings(project, "error") == []
    waived = [note for note in findings(project, "note") if "waived" in note["found"]]
    assert {note["check"] for note in waived} == failing
    assert all("(waived: tried on an L40)" in note["found"] for note in waived)
    shown = said(project.invoke("verify"))
    assert shown.count("(waived: tried on an L40)") == len(waived)
    assert project.invoke("verify", "--github").stdout.count("::notice ") == len(waived) + 1


def test_a_waiver_of_no_check_is_bad_input(project: Project) -> None:
    manual(project, "pytorch-python313-cpu-avx2.nix", 'waive = { gpu-arc = "a typing error" }\n')
    assert 'waives "gpu-arc", no check; did you mean "gpu-arch"?' in error_line(
        project.invoke("verify")
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (MANUAL.format(file="a.nix") + MANUAL.format(file="a.nix"), "twice"),
        (MANUAL.format(file="../a.nix"), "without .."),
        (MANUAL.format(file=f"{PREFIX}sm120-avx.nix"), "once, in cleanup or manual"),
        (MANUAL.format(file="a.nix") + 'waive = { pname = "x" }\n', "no check looks at"),
    ],
)
def test_a_wrong_entry_is_bad_input(project: Project, entry: str, message: str) -> None:
    with (project.root / "matrix.toml").open("a") as matrix:
        matrix.write(entry)
    said = error_line(project.invoke("all"))
    assert message in said
    assert "release.cuda13_0.manual[" in said


@pytest.mark.slow
def test_foreign_packages_are_neither_touched_nor_reported(project: Project) -> None:
    own = {"tool.nix": "{ hello }: hello\n", "mine/default.nix": "broken {", "mine/x.patch": "x"}
    for name, text in own.items():
        path = project.pkgs / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert project.invoke("all").returncode == 1
    manual(project, "tool.nix")
    manual(project, "mine")
    done = project.invoke("all", "--force")
    assert done.returncode == 0, done.stdout
    for name, text in own.items():
        assert name not in done.stdout
        assert (project.pkgs / name).read_text() == text
    assert findings(project, "note") == []


def test_a_missing_kept_recipe_begins_as_the_generated_one(project: Project) -> None:
    text = project.recipe("cpu-avx2").read_text()
    project.recipe("cpu-avx2").unlink()
    manual(project, "pytorch-python313-cpu-avx2.nix")
    assert project.invoke("phase4").returncode == 0
    assert project.recipe("cpu-avx2").read_text() == text


# --- variants that leave the matrix ---


def test_recipes_of_a_removed_isa_are_deleted_but_not_edited_or_copied_ones(
    project: Project,
) -> None:
    matrix = (project.root / "matrix.toml").read_text()
    matrix = re.sub(r'(?m)^(cpu = .*), "avx512vnni"', r"\1", matrix)
    head, _, tail = matrix.partition("[cpu.avx512vnni]")
    (project.root / "matrix.toml").write_text(head + "[" + tail.partition("\n[")[2])
    edited = project.recipe("cuda13_0-sm90-avx512vnni")
    edited.write_text(edited.read_text().replace("MAX_JOBS=32", "MAX_JOBS=16"))
    copied = project.pkgs / "copy.nix"
    shutil.copy(project.recipe("cuda13_0-sm80-avx512vnni"), copied)
    before = names(project.root)
    done = project.invoke("phase1")
    assert done.returncode == 0, done.stdout + done.stderr
    gone = before - names(project.root)
    assert len(gone) == 9
    assert all(name.endswith("-avx512vnni.nix") for name in gone)
    assert "generated, and no longer in matrix.toml" in said(done)
    assert edited.exists()
    assert copied.exists()
    edited.unlink()
    copied.unlink()
    rest = project.invoke("all")
    assert rest.returncode == 0, rest.stdout


@pytest.mark.slow
def test_recipes_of_a_folder_that_the_matrix_named_before_are_found(project: Project) -> None:
    table = "[release.cuda13_0.companion.torchvision]\n"
    moved = 'folder = "vision/.flox/pkgs"\n'
    stem = "torchvision-python313-cpu-avx2"
    place = f"vision/.flox/pkgs/{stem}.nix"
    project.commit()
    project.edit("matrix.toml", table, table + moved)
    assert project.invoke("all").returncode == 0
    assert not (project.root / f"companions/.flox/pkgs/{stem}.nix").exists()
    project.edit(place, "maxJobs = 32", "maxJobs = 16")
    # None of these is ours: a package of the user, a renamed copy, and another checkout.
    recipe = (project.root / place).read_text()
    others = ("own/.flox/pkgs/hello.nix", "own/.flox/pkgs/copy.nix", f"other/.flox/pkgs/{stem}.nix")
    texts = ("{ hello }: hello\n", recipe, recipe)
    for path, text in zip((*others, "other/matrix.toml"), (*texts, ""), strict=True):
        (project.root / path).parent.mkdir(parents=True, exist_ok=True)
        (project.root / path).write_text(text)

    project.edit("matrix.toml", moved, "")
    found = project.invoke("verify", "--only", "extra-recipe", "--json")
    paths = [finding["file"] for finding in json.loads(found.stdout)["findings"]]
    assert len(paths) == 44
    assert place in paths
    assert {path.partition("/")[0] for path in paths} == {"vision"}
    assert project.invoke("phase1", "--release", "cuda13_0", "--check").returncode == 0
    assert project.invoke("phase1", "--check").returncode == 1
    done = project.invoke("all")
    assert done.returncode == 1
    assert f"{place}: generated and edited, and not in matrix.toml; left alone" in said(done)
    assert [path.name for path in (project.root / "vision/.flox/pkgs").iterdir()] == [f"{stem}.nix"]
    assert "take the line with the digest out of a recipe that is your own" in unfolded(
        done.stdout + done.stderr
    )

    text = (project.root / place).read_text()
    (project.root / place).write_text(re.sub(r"(?m)^# Digest .*\n", "", text))
    assert all((project.root / path).exists() for path in others)
    done = project.invoke("all")
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_said_about_clean_up_files_that_nobody_has(project: Project) -> None:
    done = project.invoke("all", "--json")
    first, *others = json.loads(done.stdout)["phases"]
    assert first["changes"] == []
    paths = [change["path"] for phase in others for change in phase["changes"]]
    assert len(paths) == len(set(paths)), "each file once"


@pytest.mark.parametrize("command", ["all", "phase2", "verify"])
def test_a_folder_that_is_no_checkout_is_refused(
    project: Project, tmp_path: Path, command: str
) -> None:
    done = project.invoke(command, "--root", str(tmp_path / "project/docs"))
    assert done.returncode == 2
    assert "not a checkout: neither matrix.toml nor .flox" in error_line(done)


# --- digests ---


@pytest.mark.slow
def test_a_value_that_looks_like_a_digest_makes_no_recipe_edited_by_hand(project: Project) -> None:
    value = "sha256:" + "0" * 64
    project.edit("matrix.toml", 'title = "AVX2"', f'title = "AVX2 {value}"')
    project.edit("matrix.toml", '"Zen and newer"', f'"sha256:{"a" * 64}"')
    project.edit("matrix.toml", "RTX 5090 to 5050", f"Digest of this file, with zeros: {value}")
    for _ in range(2):
        done = project.invoke("all")
        assert done.returncode == 0, done.stdout
    assert re.search(r"(?m)^Total: \d+ unchanged$", done.stdout)
    project.edit("matrix.toml", f"AVX2 {value}", "AVX2")
    assert project.invoke("all").returncode == 0, "the old ones are generated, too"


# --- a check of the recipes with grep ---


def test_grep_finds_the_expected_versions_in_the_expected_number_of_recipes(
    project: Project,
) -> None:
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
        ["bash"], input=block, cwd=project.root, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["40", "4", "4", "4", "6"]
    assert done.stderr == ""
