"""`invoke inspect`: the configuration, and results of a real Nix store."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from built_files import (
    AVX2,
    compile_library,
    looked,
    small_project,
    texts,
    variant_of,
    with_config,
)
from conftest import Project, unfolded

from build_pytorch.base import digest
from build_pytorch.inspect import inspection, target
from build_pytorch.inspect.configuration import cxx_flags, judge_config
from build_pytorch.inspect.target import Target
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.tables import ClosureBudget
from build_pytorch.results.ledger import Event, append, now, read

LEDGER = ".build-pytorch/ledger.jsonl"
SITE = "lib/python3.13/site-packages/torch"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return small_project(tmp_path / "project", "cpu-avx2")


# --- configuration ---


RIGHT = "-mavx2 -mfma -mf16c"
NO_CUPTI = "-DLIBKINETO_NOCUPTI"
ARM = "-march=armv8.2-a+fp16+dotprod"

# variant | version of the variant, if not 2.10.0 | stated version | stated CUDA | flags | findings
CONFIGURATIONS = f"""
cpu-avx2      |        | 2.10.0+cpu |      | {RIGHT}                                |
cpu-avx2      |        | 2.9.1      |      | {RIGHT}                                | error version 2.9.1
cpu-avx2      |        | 2.10.0     | 13.0 | {RIGHT}                                | error CUDA 13.0
cpu-avx2      |        | 2.10.0+x   |      | -mavx2 -mfma                           | error CXX_FLAGS without -mf16c
cpu-avx2      |        | 2.10.0     |      |                                        | error CXX_FLAGS without {RIGHT}
cpu-avx2      |        | 2.10.0     |      | {RIGHT} -mavx512f                      | error CXX_FLAGS with -mavx512f
cpu-avx2      |        | 2.10.0     |      | {RIGHT} -march=x86-64-v4               | error CXX_FLAGS with -march=x86-64-v4
cpu-avx2      |        | 2.10.0     |      | {RIGHT} -mtune=generic -mno-avx512f    |
cpu-avx2      |        | 2.10.0     |      | {RIGHT} {NO_CUPTI}                     |
cpu-avx2      | 2.14.0 | 2.14.0     |      | {RIGHT}                                |
sm110-armv8_2 |        | 2.10.0     | 13.0 | {ARM}                                  |
sm110-armv8_2 |        | 2.10.0     | 13.0 | -mavx2                                 | error CXX_FLAGS without {ARM}; error CXX_FLAGS with -mavx2
sm90-avx2     |        | 2.10.0     | 13.0 | {RIGHT}                                |
sm90-avx2     |        | 2.10.0     |      | {RIGHT}                                | error CUDA none
sm90-avx2     |        | 2.10.0     | 13.0 | {RIGHT} -DLIBKINETO_NOROCTRACER        |
sm90-avx2     |        | 2.10.0     | 13.0 | {RIGHT} {NO_CUPTI}                     | error CXX_FLAGS with {NO_CUPTI}
sm90-avx2     | 2.13.0 | 2.13.0     | 13.0 | {RIGHT}                                |
sm90-avx2     |        | 2.10.0     | 13.0 | ?                                      | undecided CXX_FLAGS not found
sm90-avx2     |        | ?          | 13.0 | {RIGHT}                                | undecided the version not found
sm90-avx2     |        | 2.10.0     | ?    | {RIGHT}                                | undecided the CUDA version not found
"""  # noqa: E501 - a table


@pytest.mark.parametrize("row", CONFIGURATIONS.strip().splitlines())
def test_the_configuration_is_compared(row: str) -> None:
    id_, torch, version, cuda, flags, says = (cell.strip() for cell in row.split("|"))
    variant = variant_of(id_, torch=torch or "2.10.0")
    texts_ = (version, cuda, f"-Wall {flags} -O2")
    stated = (None if "?" in text else text for text in texts_)
    findings = list(judge_config(variant, *stated))
    assert "; ".join(f"{one.severity} {one.found}" for one in findings) == says


def test_flags_are_a_whole_string_and_limited() -> None:
    mark = b"-fvisibility-inlines-hidden"
    assert cxx_flags([b"-Wl\0x", b"a\0-mavx " + mark + b" -O2\0b"]) == f"-mavx {mark.decode()} -O2"
    assert cxx_flags([b"no flags", b""]) is None
    assert len(cxx_flags([b"x" * 10**6 + mark + b"x" * 10**6]) or "") == 1 << 16


def test_the_configuration_is_read_from_the_files(project: Project, tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    with_config(lib, [*AVX2, "-mtune=generic"])
    done = project.run(
        "invoke", "inspect", "cpu-avx2", "--path", str(lib), env={"PATH": "/nowhere"}
    )
    assert done.returncode == 0, done.stdout
    assert not (project.root / LEDGER).exists()
    figures = looked("config", "cpu-avx2", lib)["figures"]
    assert figures["flags"] == f"{RIGHT} -mtune=generic -fvisibility-inlines-hidden -O2"
    assert (figures["version"], figures["cuda"]) == ("2.10.0", "")
    compile_library(lib)
    (tmp_path / "version.py").unlink()
    part = looked("config", "cpu-avx2", lib)
    unknown = "the version, the CUDA version, CXX_FLAGS not found"
    assert (part["state"], texts(part, "undecided")) == ("skipped", unknown)


# --- results of Nix ---

NIX_STORE = r"""#!/bin/sh
case $2 in
  --requisites) exec cat "$3/closure" ;;
  --size) shift 2; for it; do du -sb "$it" | cut -f 1; done ;;
esac
"""
NEEDS = {
    "right": [],
    "split": ["python3.13-torch-lib"],
    "empty": [],
    "second": ["cuda_cudart-13.0.96", "cuda_nvrtc-12.9.86"],
}
"""Results, with what is in their closures besides."""


class Results:
    """Results in a folder that a stand-in for nix-store knows, by name, and its environment."""

    def __init__(self, folder: Path) -> None:
        self.env = {"NIX_STORE_DIR": f"{folder}/store", "PATH": f"{folder}:{os.environ['PATH']}"}
        (folder / "nix-store").write_text(NIX_STORE)
        (folder / "nix-store").chmod(0o755)
        with_config(folder / "files/lib", AVX2)
        self.size = sum(file.stat().st_size for file in (folder / "files/lib").iterdir())
        self.outputs = {name: folder / f"store/{name:0<32}-result" for name in NEEDS}
        for name, output in self.outputs.items():
            needed = [output.with_name(f"{name:0<32}-{it}") for it in NEEDS[name]]
            for path in needed:
                shutil.copytree(folder / "files", path)
            site = output / SITE
            site.mkdir(parents=True)
            shutil.copy(folder / "files/version.py", site)
            if name == "split":  # libraries in another output
                (site / "lib").symlink_to(needed[0] / "lib")
            elif name != "empty":
                shutil.copytree(folder / "files/lib", site / "lib")
            (output / "closure").write_text("".join(f"{it}\n" for it in (output, *needed)))

    def link(self, root: Path, name: str, variant: Variant) -> None:
        """Let a checkout have this result of a variant."""
        link = root / f"result-{variant.package}"
        link.unlink(missing_ok=True)
        link.symlink_to(self.outputs[name])

    def inspected(self, root: Path, name: str, variant: Variant) -> tuple[str, dict[str, Any]]:
        """The folder of a result and what its last part reports, in this process."""
        self.link(root, name, variant)
        with mock.patch.dict(os.environ, self.env):
            result = inspection.inspect_result(root, variant)
        return result.folder, dict(msgspec.to_builtins(result.parts[-1]))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("results"))


def remember(project: Project, recipe: str, output: Path) -> None:
    """A line of the ledger: the result was built from a recipe with this digest."""
    event = Event(
        event="ended", at=now(), release="cuda13_0", variant="cpu-avx2",
        digest=recipe, attempt="1", outcome="built", seconds=1.0, outputs=(str(output),),
    )  # fmt: skip
    append(project.root, event)


OLDER = "sha256:of-an-older-recipe"


@pytest.mark.parametrize("recipes", [["current", OLDER], [OLDER], []])
def test_a_result_is_recorded_with_the_digest_of_the_recipe_that_it_was_built_from(
    project: Project, results: Results, recipes: list[str]
) -> None:
    results.link(project.root, "right", variant_of("cpu-avx2"))
    current = digest.of_bytes(project.recipe("cpu-avx2").read_bytes())
    for recipe in recipes:
        remember(project, current if recipe == "current" else recipe, results.outputs["right"])
    done = project.run("invoke", "inspect", "cpu-avx2", env=results.env)
    assert done.returncode == 0, done.stdout + done.stderr
    is_unknown = "not recorded: the ledger has no recipe for this result" in done.stdout
    assert is_unknown is not bool(recipes)
    assert (project.root / LEDGER).exists() is not is_unknown
    for event in read(project.root).events[-1:] if recipes else ():
        assert (event.event, event.by, event.outcome) == ("tested", "inspect", "passed")
        assert event.digest == (current if "current" in recipes else OLDER)
        assert (event.variant, event.output) == ("cpu-avx2", str(results.outputs["right"]))
        report = json.loads((project.root / event.report).read_text())
        assert (report["outcome"], report["digest"]) == ("passed", event.digest)
        ids = [part["id"] for part in report["parts"]]
        assert ids == ["libraries", "config", "features", "closure"]


def test_one_bad_result_is_a_row_and_the_others_are_inspected(
    project: Project, results: Results
) -> None:
    for name, id_ in (("right", "cpu-avx2"), ("empty", "cpu-avx512")):
        results.link(project.root, name, variant_of(id_))
    (project.root / "result-pytorch-python313-cpu-avx512vnni").symlink_to("result-pytorch")
    loop = project.root / "result-pytorch-python313-cpu-avx512bf16"
    loop.symlink_to(loop.name)
    unbuilt = project.run("invoke", "inspect", "sm90-avx2", env=results.env)
    assert (unbuilt.returncode, "run `invoke build sm90-avx2`" in unfolded(unbuilt.stdout)) == (
        3,
        True,
    )
    done = project.run("invoke", "inspect", "cpu-*", "--json", env=results.env)
    assert done.returncode == 1
    rows = {row["variant"]: row for row in json.loads(done.stdout)["variants"]}
    outcomes = {"cpu-avx2": "passed", "cpu-avx512": "failed"}
    outcomes |= dict.fromkeys(("cpu-avx512bf16", "cpu-avx512vnni"), "not run")
    assert {name: row["outcome"] for name, row in rows.items()} == outcomes
    (reason,) = rows["cpu-avx512"]["reasons"]  # not those of parts that were skipped
    assert "libraries: libtorch_cpu.so: not in " in reason
    assert "does not lead into the Nix store" in rows["cpu-avx512bf16"]["reasons"][0]


CUDA_NAMES = """
sm90-avx2 | cuda13.0-cuda_cudart-13.0.96 cuda13.0-libcublas-13.1.0.3 |
sm90-avx2 | cuda_cudart-13.0.96-lib libnvjitlink-13.0.88 libcublas-13.1.0.3 libcufft-12.0.0.61 |
sm90-avx2 | cuda_cudart-13.0.96 cuda_compat-12.8.1 cudnn-9.13.0.50 |
sm90-avx2 | cuda_cudart-13.0.96 cuda12.8-libcublas-12.8.4.1 | error another CUDA: cuda12.8-libcublas
sm90-avx2 | cuda_cudart-13.0.96 cuda_nvrtc-12.9.86          | error another CUDA: cuda_nvrtc-12.9.86
sm90-avx2 | cuda13.0-cuda_nvrtc-12.9.86                     | error another CUDA: cuda13.0-cuda_nv
sm90-avx2 | cuda-merged-12.8                                | error another CUDA: cuda-merged-12.8
sm90-avx2 | cudatoolkit-12.8.1 magma-cuda-static-2.9.0      | error another CUDA: cudatoolkit-12.8.1
sm90-avx2 | libcublas-13.1.0.3 cudnn-9.13.0.50              |
sm90-avx2 | glibc-2.40                                      | error no CUDA at all
cpu-avx2  | glibc-2.40                                      |
cpu-avx2  | libcublas-13.1.0.3                              | error CUDA in a CPU-only variant: lib
"""


@pytest.mark.parametrize("row", CUDA_NAMES.strip().splitlines())
def test_a_closure_holds_the_cuda_of_its_variant_and_no_other(row: str) -> None:
    id_, names, says = (cell.strip() for cell in row.split("|"))
    findings = list(target.check_names(variant_of(id_), names.split()))
    assert len(findings) == bool(says)
    assert "".join(f"{one.severity} {one.found}" for one in findings).startswith(says)


def test_a_closure_is_that_of_the_result(results: Results, tmp_path: Path) -> None:
    here, gpu, replace = variant_of("cpu-avx2"), variant_of("sm90-avx2"), msgspec.structs.replace
    folder, part = results.inspected(tmp_path, "split", here)  # libraries in another output
    assert part["state"] == "passed"
    assert [*part["figures"]["largest"]] == ["python3.13-torch-lib", "result"]
    assert folder == f"{results.outputs['split'] / SITE}/lib"
    _, part = results.inspected(tmp_path, "second", gpu)
    assert texts(part) == "another CUDA: cuda_nvrtc-12.9.86"
    build = replace(here.release.build, closure_gib=ClosureBudget(gpu=8, cpu=0))
    small = replace(here, release=replace(here.release, build=build))
    _, part = results.inspected(tmp_path, "right", small)
    assert texts(part) == "0.0 GiB; the largest: result 0.0"
    assert results.size < part["figures"]["bytes"] < 2 * results.size + 50_000


@pytest.mark.parametrize(("size", "is_wrong"), [(110, False), (111, True), (50, False)])
def test_a_closure_may_grow_by_a_tenth_over_an_earlier_build(size: int, is_wrong: bool) -> None:
    here = Target(package=variant_of("cpu-avx2"), folder=Path(), earlier=("inspect-1.json", 100))
    fix = "look at the overlays in the recipe; if it is meant, delete inspect-1.json"
    assert [one.fix for one in target.check_size(here, size, {})] == [fix] * is_wrong


def test_a_closure_is_compared_with_that_of_the_last_other_result(
    project: Project, results: Results
) -> None:
    variant, root = variant_of("cpu-avx2"), project.root
    for name in ("empty", "right"):
        remember(project, OLDER, results.outputs[name])
    results.inspected(root, "empty", variant)
    (report,) = (root / ".build-pytorch/reports").iterdir()
    for _ in range(2):  # what was inspected is not compared with itself
        _, part = results.inspected(root, "right", variant)
        assert texts(part) == "0.0 GiB; the largest: result 0.0"
        assert report.name in part["findings"][0]["fix"]
    report.unlink()
    assert results.inspected(root, "right", variant)[1]["state"] == "passed"
