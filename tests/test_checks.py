"""Verification: a clean tree passes, and for each check there is a tree that trips it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from conftest import LEGACY, ONE, PROJECT, Project, copied_project, needs_nix
from mutations import swap

from build_pytorch.matrix import matrix_reader
from build_pytorch.nix.evaluation import MOST_ERRORS
from build_pytorch.tasks.reference_pages import reference_pages
from build_pytorch.verify import check, verification
from build_pytorch.verify.verification import VerificationResult

GPU = "cuda13_0-sm90-avx512"
MATRIX = matrix_reader.parse(ONE)
GPU_RECIPE = f".flox/pkgs/pytorch-python313-{GPU}.nix"
CPU_RECIPE = ".flox/pkgs/pytorch-python313-cpu-avx512.nix"
PAGE = "docs/reference/releases.md"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which each test restores what it changed."""
    return copied_project(tmp_path_factory.mktemp("shared") / "project")


@contextlib.contextmanager
def changed(
    project: Project, path: str, edit: Callable[[str], str | bytes | None]
) -> Iterator[None]:
    """Change, create or remove (None) a file for a while."""
    file = project.root / path
    before = file.read_bytes() if file.exists() else None
    after = edit((before or b"").decode())
    _put(file, after.encode() if isinstance(after, str) else after)
    try:
        yield
    finally:
        _put(file, before)


def _put(file: Path, data: bytes | None) -> None:
    if data is None:
        file.unlink()
    else:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)


def gone(_: str) -> None:
    """Remove the file."""


def verified(project: Project, *only: str) -> VerificationResult:
    return verification.verify(MATRIX, project.root, only=only, pages=reference_pages)


def tripped(project: Project, *only: str) -> set[str]:
    return {finding.check for finding in verified(project, *only).findings}


MUTATIONS: list[tuple[str, str, Callable[[str], str | bytes | None]]] = [
    ("extra-recipe", ".flox/pkgs/pytorch-python313-cuda13_0-sm75-avx2.nix", lambda _: "{ }\n"),
    ("missing-recipe", GPU_RECIPE, gone),
    ("missing-recipe", GPU_RECIPE, lambda _: b"\xff\xfe"),
    ("extra-recipe", ".flox/pkgs/below/hello.nix", lambda _: "{ hello }: hello\n"),
    ("substitution-fails", GPU_RECIPE, swap("--replace-fail 'extras", "--replace-warn 'extras")),
    ("shell-files", "nix/compiler_cache.sh", lambda text: text + "if\n"),
    ("substitution-fails", GPU_RECIPE, swap("    substituteInPlace", "    sed -i s/a/b/ setup.py\n    s")),
    ("pattern-lines", GPU_RECIPE, swap("let\n", "let\n  # not cudaPackages_13 here\n")),
    ("pattern-lines", GPU_RECIPE, swap("final.cudaPackages_13.", "final.cudaPackages_12.")),
    ("pattern-lines", CPU_RECIPE, swap('version = "2.10.0";', 'version = "2.9.1";')),
    ("pattern-lines", CPU_RECIPE, swap("let\n", "let\n  # final.cudaPackages_13\n")),
    ("retired-pin", GPU_RECIPE, swap("let\n", "let\n  # was fe5e41d7ffc0421f0913e8472ce6238ed0daf8e3\n")),
    ("magma-enabled", GPU_RECIPE, swap('"-DCUDA_VERSION=13.0"', '"-DUSE_MAGMA=OFF"')),
    ("magma-enabled", GPU_RECIPE, swap("let\n", "let\n  filterMagma = x: x;\n")),
    ("gpu-arch", GPU_RECIPE, swap('gpuArchSM = "9.0"', 'gpuArchSM = "8.9"')),
    ("gpu-arch", GPU_RECIPE, swap('gpuArchNum = "90"', 'gpuArchNum = "9.0"')),
    ("gpu-arch", GPU_RECIPE, swap('  gpuArchSM = "9.0"', '  # gpuArchSM = "9.0"')),
    ("two-stage-override", GPU_RECIPE, swap("cudaSupport = true;\n  gpu", "cudaSupport = false;\n  gpu")),
    ("two-stage-override", GPU_RECIPE, swap("torch.override {", "torch.overide {")),
    ("generated-recipes", GPU_RECIPE, swap("# CPU instruction set", "# The CPU")),
    ("generated-docs", "README.md", swap("**44 variants**", "**43 variants**")),
    ("generated-docs", "README.md", swap("<!-- end generated: counts -->", "")),
    ("generated-docs", PAGE, swap("44 variants", "36 variants")),
    ("generated-docs", PAGE, gone),
    ("generated-docs", "docs/reference/checks.md", swap("# The checks", "# Checks")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("id_", "path", "edit"),
    MUTATIONS,
    ids=[f"{number}-{id_}" for number, (id_, *_) in enumerate(MUTATIONS)],
)
def test_a_broken_tree_trips_the_check(
    shared: Project, id_: str, path: str, edit: Callable[[str], str | bytes | None]
) -> None:
    with changed(shared, path, edit):
        assert id_ in tripped(shared, id_)


ELSEWHERE = {
    "compiler-flags": "test_verify.py",
    "nvcc-architectures": "test_verify.py",
    "eval-release-nix": "test_release_nix.py",
    "flox-environment": "test_docs.py",
    "eval-distinct": "test_mutations.py",
}
"""Checks that other tests trip; the table of mutations names most of the rest."""


def test_every_check_has_a_case_in_which_it_fails() -> None:
    caught = json.loads((PROJECT / "tests/fixtures/mutations.json").read_text())
    tripped_by_mutations = {id_ for checks in caught.values() for id_ in checks}
    here = {id_ for id_, *_ in MUTATIONS}
    missing = {each.id for each in check.chosen()} - tripped_by_mutations - here
    assert missing - ELSEWHERE.keys() == set()
    assert all(id_ in (PROJECT / "tests" / file).read_text() for id_, file in ELSEWHERE.items())


def test_a_schema_that_is_not_generated_again_is_found(project: Project) -> None:
    project.edit("build_pytorch/matrix/matrix.schema.json", '"family"', '"famly"')
    assert tripped(project, "generated-docs") == {"generated-docs"}
    assert project.invoke("phase5", "--force").returncode == 0
    assert tripped(project, "generated-docs") == set()


def test_templates_that_cannot_be_read_are_not_called_missing(project: Project) -> None:
    shutil.rmtree(project.root / "templates")
    (project.root / "templates").symlink_to("templates")
    done = project.invoke("verify", "--json", "--only", "generated-recipes")
    (finding,) = json.loads(done.stdout)["findings"]
    assert "cannot be read: " in finding["found"]
    assert "missing" not in finding["found"]


def test_a_clean_tree_has_no_finding_and_its_comments_count_for_the_digest_only(
    shared: Project,
) -> None:
    result = verified(shared)
    assert result.findings == []
    assert result.exit_code == 0
    with changed(shared, GPU_RECIPE, swap("let\n", "let\n\n  # A note of our own\n")):
        assert tripped(shared, "text", "generated") == {"generated-recipes"}


STOPPED: Final = re.compile(r"it also stops (\d+) companion")


@needs_nix
def test_after_20_recipes_that_end_nix_one_finding_stands_for_the_others(project: Project) -> None:
    for recipe in project.pkgs.glob("*.nix"):  # a missing attribute cannot be caught
        recipe.write_text(recipe.read_text().replace("\nlet\n", "\nassert builtins.no;\nlet\n"))
    *first, last = verified(project, "evaluates").findings
    assert len(first) == MOST_ERRORS
    assert all("attribute 'no' missing" in finding.found for finding in first), first
    stopped = sum(int(found[1]) for it in first if (found := STOPPED.search(it.found)))
    number = len(MATRIX.packages) - len(first) - stopped  # release.nix needs all of them
    why = f"{MOST_ERRORS} other recipes end Nix; correct these, then `invoke verify` goes on"
    assert last.found == f"{number} recipes not evaluated: {why}"


@needs_nix
def test_the_hand_written_canonical_recipe_builds_the_right_package(project: Project) -> None:
    name = "pytorch-python313-cuda13_0-sm120-avx512.nix"
    (project.pkgs / name).write_bytes((LEGACY / name).read_bytes())
    findings = verified(project).findings
    assert {f.check for f in findings if f.severity == "error"} == set()
    # Its MAX_JOBS has no effect, and its import leaves the system to the machine.
    # It has not what later builds taught: CUPTI, a stub by path, a log with the steps of Ninja,
    # a package that is not broken.
    assert {f.check for f in findings} <= {
        *("hook-jobs", "hook-files", "hook-environment", "eval-nixpkgs", "hook-ends"),
        *("eval-passthru", "eval-meta"),
    }
    project.edit(f".flox/pkgs/{name}", '"12.0"', '"9.0"')
    assert "gpu-arch" in tripped(project, "gpu-arch"), "kept and looked at all the same"


def test_a_tree_without_anything_is_findings_not_success(tmp_path: Path) -> None:
    empty = Project(tmp_path / "empty")
    empty.root.mkdir()
    result = verified(empty)
    assert result.exit_code == 1
    states = {outcome.id: outcome.state for outcome in result.checks}
    assert states["missing-recipe"] == "failed"
    assert states["gpu-arch"] == states["two-stage-override"] == "skipped"
    without_recipes = {each.id for each in check.chosen(["matrix", "compiler"])}
    without_recipes |= {"extra-recipe", "shell-files"}
    assert {id_ for id_, state in states.items() if state == "passed"} <= without_recipes


def test_findings_have_file_line_found_expected_and_fix(shared: Project) -> None:
    with changed(shared, GPU_RECIPE, swap('gpuArchSM = "9.0"', 'gpuArchSM = "8.9"')):
        words = ("verify", "--json", "--only", "gpu-arch,generated-recipes")
        done = shared.invoke(*words)
    assert done.returncode == 1
    findings = {f["check"]: f for f in json.loads(done.stdout)["findings"]}
    line = shared.recipe(GPU).read_text().split("gpuArchSM")[0].count("\n") + 1
    assert findings["gpu-arch"] == {
        "check": "gpu-arch",
        "severity": "error",
        "path": GPU_RECIPE,
        "line": line,
        "found": 'gpuArchSM = "8.9"',
        "expected": 'gpuArchSM = "9.0"',
        "fix": "run `invoke phase2 --force`, or: use the dotted capability for gpuArchSM, "
        "its digits for gpuArchNum",
    }
    assert findings["generated-recipes"]["path"] == GPU_RECIPE


HALF_BROKEN = ["", "{", "\x00", '"', "''", "# only a comment", "}" * 1000, '"${' * 500, "/*", "🦊"]


def test_half_broken_files_give_findings_and_no_crash(tmp_path: Path) -> None:
    """One recipe for each text, all verified in one run."""
    variants = [v for v in MATRIX.variants if v.gpu][: len(HALF_BROKEN)]
    for variant, text in zip(variants, HALF_BROKEN, strict=True):
        (tmp_path / variant.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / variant.path).write_text(text)
    for only in (["text", "evaluation", "hooks"], ["generated"]):
        result = verification.verify(MATRIX, tmp_path, only=only, pages=reference_pages)
        assert result.exit_code == 1
        if "text" in only:
            stages = {f.path for f in result.findings if f.check == "two-stage-override"}
            assert stages == {variant.path for variant in variants}
