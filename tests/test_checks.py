"""Verification: a clean tree passes, and for each check there is a tree that trips it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import LEGACY, ONE, PROJECT, Project, needs_nix

from build_pytorch.cli.reference_pages import reference_pages
from build_pytorch.matrix import matrix_reader
from build_pytorch.verify import registry, verification
from build_pytorch.verify.verification import VerificationResult

GPU = "cuda13_0-sm90-avx512"
CPU = "cpu-avx512"
MATRIX = matrix_reader.parse(ONE)
PAGE = "docs/reference/releases/cuda13_0.md"


def verified(project: Project, *only: str) -> VerificationResult:
    return verification.verify(MATRIX, project.root, only=only, pages=reference_pages)


def tripped(project: Project, *only: str) -> set[str]:
    return {finding.check for finding in verified(project, *only).findings}


def replace(name: str, old: str, new: str) -> Callable[[Project], None]:
    return lambda project: project.edit(f".flox/pkgs/pytorch-python313-{name}.nix", old, new)


def write(path: str, text: str) -> Callable[[Project], None]:
    def mutate(project: Project) -> None:
        (project.root / path).parent.mkdir(parents=True, exist_ok=True)
        (project.root / path).write_text(text)

    return mutate


def remove(path: str) -> Callable[[Project], None]:
    return lambda project: (project.root / path).unlink()


def damage(path: str) -> Callable[[Project], None]:
    def mutate(project: Project) -> None:
        (project.root / path).write_bytes(b"\xff\xfe")

    return mutate


MUTATIONS: list[tuple[str, Callable[[Project], None]]] = [
    ("gpu-count", remove(f".flox/pkgs/pytorch-python313-{GPU}.nix")),
    ("gpu-count", write(".flox/pkgs/pytorch-python313-cuda13_0-sm75-avx2.nix", "{ }\n")),
    ("cpu-count", remove(f".flox/pkgs/pytorch-python313-{CPU}.nix")),
    ("missing-recipe", remove(f".flox/pkgs/pytorch-python313-{GPU}.nix")),
    ("unreadable-recipe", damage(f".flox/pkgs/pytorch-python313-{GPU}.nix")),
    ("extra-recipe", write(".flox/pkgs/hello.nix", "{ hello }: hello\n")),
    ("extra-recipe", write(".flox/pkgs/below/hello.nix", "{ hello }: hello\n")),
    ("no-magma-suffix", write(".flox/pkgs/pytorch-python313-cuda13_0-sm120-avx512-magma.nix", "")),
    ("no-nightly-suffix", write(".flox/pkgs/pytorch-python313-cuda13_0-sm121-nightly.nix", "")),
    ("no-avx-suffix", write(".flox/pkgs/pytorch-python313-cuda13_0-sm120-avx.nix", "")),
    ("substitution-fails", replace(GPU, "--replace-fail", "--replace-warn")),
    (
        "substitution-fails",
        replace(GPU, "    substituteInPlace", "    sed -i s/a/b/ setup.py\n    s"),
    ),
    ("gpu-pattern-lines", replace(GPU, 'version = "2.10.0";', 'version = "2.9.1";')),
    ("gpu-pattern-lines", replace(GPU, "let\n", "let\n  # not cudaPackages_13 here\n")),
    ("gpu-pattern-lines", replace(GPU, "final.cudaPackages_13;", "final.cudaPackages_12;")),
    ("cpu-pattern-lines", replace(CPU, 'version = "2.10.0";', 'version = "2.9.1";')),
    ("cpu-pattern-lines", replace(CPU, "let\n", "let\n  # final.cudaPackages_13\n")),
    (
        "retired-pin",
        replace(GPU, "let\n", "let\n  # was fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3\n"),
    ),
    ("magma-enabled", replace(GPU, '"-DCUDA_VERSION=13.0"', '"-DUSE_MAGMA=OFF"')),
    ("magma-enabled", replace(CPU, "export USE_CUDA=0", "export USE_CUDA=0 USE_MAGMA=0")),
    ("magma-enabled", replace(GPU, "let\n", "let\n  filterMagma = x: x;\n")),
    ("gpu-arch", replace(GPU, 'gpuArchSM = "9.0"', 'gpuArchSM = "8.9"')),
    ("gpu-arch", replace(GPU, 'gpuArchSM = "9.0"', 'gpuArchSM = "sm_90"')),
    ("gpu-arch", replace(GPU, 'gpuArchNum = "90"', 'gpuArchNum = "9.0"')),
    ("gpu-arch", replace(GPU, '  gpuArchSM = "9.0"', '  # gpuArchSM = "9.0"')),
    (
        "two-stage-override",
        replace(GPU, "cudaSupport = true;\n  gpu", "cudaSupport = false;\n  gpu"),
    ),
    ("two-stage-override", replace(GPU, "torch.override {", "torch.overide {")),
    ("two-stage-override", replace(CPU, "cudaSupport = false;", "cudaSupport = true;")),
    ("generated-recipes", replace(GPU, "MAX_JOBS=32", "MAX_JOBS=16")),
    ("generated-recipes", replace(GPU, "# CPU instruction set", "# The CPU")),
    ("docs-numbers", lambda p: p.edit("README.md", "## Status", "All 45 variants:")),
    (
        "docs-numbers",
        lambda p: p.edit(
            "docs/explanation/build-notes-2.10-cuda13.md", "## Memory", "41 GPU recipes"
        ),
    ),
    ("generated-docs", lambda p: p.edit("README.md", "**44 variants**", "**43 variants**")),
    ("generated-docs", lambda p: p.edit("README.md", "<!-- end generated: counts -->", "")),
    (
        "generated-docs",
        lambda p: p.edit(PAGE, "36 buildable", "44 buildable"),
    ),
    (
        "generated-docs",
        lambda p: p.edit("docs/reference/matrix.schema.json", '"family"', '"famly"'),
    ),
    ("generated-docs", remove("docs/reference/releases.md")),
    ("generated-docs", remove("README.md")),
    (
        "reference-docs",
        lambda p: p.edit("docs/reference/checks.md", "# The checks", "# Checks"),
    ),
]


@pytest.mark.parametrize(
    ("check", "mutate"), MUTATIONS, ids=[f"{n}-{check}" for n, (check, _) in enumerate(MUTATIONS)]
)
def test_a_broken_tree_trips_the_check(
    project: Project, check: str, mutate: Callable[[Project], None]
) -> None:
    mutate(project)
    assert check in tripped(project, check)


ELSEWHERE = {
    "compiler-flags": "test_verify.py",
    "nvcc-architectures": "test_verify.py",
    "eval-release-nix": "test_release_nix.py",
    "eval-distinct": "test_mutations.py",
}
"""Checks that other tests trip; the table of mutations names most of the rest."""


def test_every_check_has_a_case_in_which_it_fails() -> None:
    page = (PROJECT / "docs/reference/mutations.md").read_text()
    tripped_by_mutations = set(re.findall(r"[a-z]+(?:-[a-z]+)*", page))
    here = {check for check, _ in MUTATIONS}
    missing = {check.id for check in registry.chosen()} - tripped_by_mutations - here
    assert missing - ELSEWHERE.keys() == set()
    assert all(check in (PROJECT / "tests" / file).read_text() for check, file in ELSEWHERE.items())


def test_checks_have_distinct_ids_a_reason_and_a_fix() -> None:
    every = registry.chosen()
    assert len({check.id for check in every}) == len(every)
    for check in every:
        assert check.title
        assert check.why.endswith(".")
        assert check.fix


def test_there_are_seven_categories_and_every_module_of_checks_is_in_one() -> None:
    wanted = ["matrix", "text", "generated", "compiler", "syntax", "evaluation", "hooks"]
    assert list(registry.CATEGORIES) == wanted
    listed = {module for category in registry.CATEGORIES.values() for module in category.modules}
    folder = PROJECT / "build_pytorch/verify/checks"
    holding = {p.stem for p in folder.glob("*.py") if "@CHECKS.add(" in p.read_text()}
    assert listed == holding


def test_templates_that_cannot_be_read_are_not_called_missing(project: Project) -> None:
    shutil.rmtree(project.root / "templates")
    (project.root / "templates").symlink_to("templates")
    done = project.invoke("verify", "--json", "--only", "generated-recipes")
    (finding,) = json.loads(done.stdout)["findings"]
    assert "cannot be read: is a symbolic link" in finding["found"]
    assert "missing" not in finding["found"]


def test_a_clean_tree_has_no_finding(project: Project) -> None:
    result = verified(project)
    assert result.findings == []
    assert result.exit_code == 0


def test_a_missing_tarball_hash_is_a_note_of_the_matrix() -> None:
    line = ONE.split("\n").index("[pin.early_2026]") + 1
    assert [note.partition(" has no ")[0] for note in MATRIX.notes] == [
        f"matrix.toml:{line}: pin.early_2026"
    ]
    sri = "sha256-" + "B" * 42 + "A="
    with_hash = matrix_reader.parse(ONE.replace('sha256 = ""', f'sha256 = "{sri}"', 1))
    assert with_hash.notes == ()


@needs_nix
def test_the_hand_written_canonical_recipe_builds_the_right_package(project: Project) -> None:
    name = "pytorch-python313-cuda13_0-sm120-avx512.nix"
    (project.pkgs / name).write_bytes((LEGACY / name).read_bytes())
    findings = verified(project).findings
    # Without a manual entry, release.nix passes it an argument that it does not have.
    assert {f.check for f in findings if f.severity == "error"} == {"eval-release-nix"}
    # Its MAX_JOBS has no effect, and its import leaves the system to the machine.
    # It has not what later builds taught: CUPTI, a stub by path, a package that is not broken.
    assert {f.check for f in findings} <= {
        *("hook-jobs", "hook-files", "eval-nixpkgs"),
        *("eval-passthru", "eval-meta", "eval-release-nix"),
    }
    project.edit(f".flox/pkgs/{name}", '"12.0"', '"9.0"')
    assert "gpu-arch" in tripped(project, "gpu-arch"), "kept and looked at all the same"


def test_comments_and_blank_lines_trip_only_the_digest(project: Project) -> None:
    recipe = project.recipe(GPU)
    text = recipe.read_text().replace("let\n", "let\n\n  # A note of our own\n", 1)
    recipe.write_text(text)
    assert tripped(project) == {"generated-recipes"}


def test_a_tree_without_anything_is_findings_not_success(tmp_path: Path) -> None:
    empty = Project(tmp_path / "empty")
    empty.root.mkdir()
    result = verified(empty)
    assert result.exit_code == 1
    states = {outcome.check.id: outcome.state for outcome in result.outcomes}
    assert states["missing-recipe"] == "failed"
    assert states["gpu-arch"] == states["two-stage-override"] == "skipped"
    of_the_matrix = {"compiler-flags", "nvcc-architectures", "stale-hash"}
    of_the_matrix |= {"rules-needed", "rules-agree", "copied-packages", "companion-version"}
    assert {check for check, state in states.items() if state == "passed"} <= of_the_matrix


def test_findings_have_file_line_found_expected_and_fix(project: Project) -> None:
    replace(GPU, 'gpuArchSM = "9.0"', 'gpuArchSM = "8.9"')(project)
    done = project.invoke("verify", "--json")
    assert done.returncode == 1
    findings = {f["check"]: f for f in json.loads(done.stdout)["findings"]}
    line = project.recipe(GPU).read_text().split("gpuArchSM")[0].count("\n") + 1
    assert findings["gpu-arch"] == {
        "check": "gpu-arch",
        "severity": "error",
        "file": f".flox/pkgs/pytorch-python313-{GPU}.nix",
        "line": line,
        "column": 3,
        "found": 'gpuArchSM = "8.9"',
        "expected": 'gpuArchSM = "9.0"',
        "fix": "run `invoke phase2 --force`, or: use the dotted capability for gpuArchSM, "
        "its digits for gpuArchNum",
    }
    assert findings["generated-recipes"]["line"] > 1


@pytest.mark.parametrize(
    "text", ["", "{", "\x00", '"', "''", "# only a comment", "}" * 1000, '"${' * 500, "/*", "🦊"]
)
def test_a_half_broken_file_gives_findings_and_no_crash(project: Project, text: str) -> None:
    project.recipe(GPU).write_text(text)
    assert "two-stage-override" in tripped(project)
