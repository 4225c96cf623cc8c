"""The command `invoke inspect`: real folders, and results of a real Nix store."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from built_files import (
    AVX2,
    compile_library,
    inspect,
    looked,
    small_project,
    texts,
    variant_of,
    with_config,
)
from conftest import Project, error_line, needs_nix

from build_pytorch.base import digest
from build_pytorch.inspect import closure, inspection
from build_pytorch.inspect.configuration import judge_config
from build_pytorch.inspect.inspection import Inspection
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.tables import ClosureBudget
from build_pytorch.results.ledger import Event, append, now, read

LEDGER = ".build-pytorch/ledger.jsonl"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return small_project(tmp_path / "project", "cpu-avx2")


# --- folders ---


def test_everything_passes_where_the_files_are_those_of_the_variant(
    project: Project, tmp_path: Path
) -> None:
    with_config(tmp_path / "lib", AVX2)
    done = inspect(project, "cpu-avx2", "--path", str(tmp_path / "lib"), env={"PATH": "/nowhere"})
    assert done.returncode == 0, done.stdout
    assert not (project.root / LEDGER).exists()


# --- configuration ---


RIGHT = "-mavx2 -mfma -mf16c"
NO_CUPTI = "-DLIBKINETO_NOCUPTI"


@pytest.mark.parametrize(
    ("id_", "flags", "version", "cuda", "found"),
    [
        ("cpu-avx2", RIGHT, "2.10.0+cpu", "", ""),
        ("cpu-avx2", RIGHT, "2.9.1", "", "version 2.9.1"),
        ("cpu-avx2", RIGHT, "2.10.0", "13.0", "CUDA 13.0"),
        ("cpu-avx2", "-mavx2 -mfma", "2.10.0+x", "", "CXX_FLAGS without -mf16c"),
        ("cpu-avx2", f"{RIGHT} -mavx512f", "2.10.0", "", "CXX_FLAGS with -mavx512f"),
        ("cpu-avx2", f"{RIGHT} -march=x86-64-v4", "2.10.0", "", "with -march=x86-64-v4"),
        ("sm110-armv8_2", "-march=armv8.2-a+fp16+dotprod", "2.10.0", "13.0", ""),
        ("sm110-armv8_2", RIGHT, "2.10.0", "13.0", "CXX_FLAGS without -march=armv8.2-a"),
        ("cpu-avx2", f"{RIGHT} -mtune=generic -mno-avx512f", "2.10.0", "", ""),
        ("cpu-avx2", f"{RIGHT} {NO_CUPTI}", "2.10.0", "", ""),
        ("sm90-avx2", RIGHT, "2.10.0", "13.0", ""),
        ("sm90-avx2", RIGHT, "2.10.0", "", "CUDA none"),
        ("sm90-avx2", f"{RIGHT} -DLIBKINETO_NOROCTRACER", "2.10.0", "13.0", ""),
        ("sm90-avx2", f"{RIGHT} {NO_CUPTI}", "2.10.0", "13.0", f"CXX_FLAGS with {NO_CUPTI}"),
    ],
)
def test_the_configuration_is_compared(
    id_: str, flags: str, version: str, cuda: str, found: str
) -> None:
    findings = list(judge_config(variant_of(id_), version, cuda, f"-Wall {flags} -O2"))
    assert {one.severity for one in findings} == ({"error"} if found else set())
    assert not found or found in findings[0].found
    assert ("records no CUDA activity" in str(findings)) == found.count(NO_CUPTI)


def test_the_configuration_is_read_from_the_files(tmp_path: Path) -> None:
    with_config(tmp_path / "lib", [*AVX2, "-mtune=generic"])
    part = looked("config", "cpu-avx2", tmp_path / "lib")
    assert (
        part["figures"]["flags"]
        == "-mavx2 -mfma -mf16c -mtune=generic -fvisibility-inlines-hidden -O2"
    )
    assert (part["state"], part["figures"]["version"]) == ("passed", "2.10.0")
    compile_library(tmp_path / "lib")
    (tmp_path / "version.py").unlink()
    part = looked("config", "cpu-avx2", tmp_path / "lib")
    unknown = "the version, the CUDA version, CXX_FLAGS not found"
    assert (part["state"], texts(part, "undecided")) == ("skipped", unknown)


# --- results of Nix ---

EXPRESSION = """
{ files, path }:
let
  make = name: script: derivation {
    inherit name; system = builtins.currentSystem;
    builder = "/bin/sh"; args = [ "-ec" script ]; PATH = path;
  };
  named = name: make name "mkdir $out; echo ${name} > $out/name";
  site = "lib/python3.13/site-packages/torch";
  result = needs: more: make "result" ''
    mkdir -p $out/${site}; cp ${files}/version.py $out/${site}
    ${more}
    echo ${toString needs} > $out/needs
  '';
  whole = "cp -r ${files}/lib $out/${site}/lib";
  libraries = make "python3.13-torch-lib" "mkdir $out; cp -r ${files}/lib $out/lib";
in {
  right = result [ ] whole;
  split = result [ ] "ln -s ${libraries}/lib $out/${site}/lib";
  empty = result [ ] "";
  second = result (map named [ "cuda_cudart-13.0.96" "cuda_nvrtc-12.9.86" ]) whole;
}
"""
NAMES = re.findall(r"(?m)^  (\w+) = result [\[(]", EXPRESSION)


class Results:
    """Results in a Nix store of its own, by name, and the environment of that store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "NIX_REMOTE": "local",
            "NIX_STORE_DIR": f"{folder}/nix/store",
            "NIX_STATE_DIR": f"{folder}/nix/state",
            "NIX_LOG_DIR": f"{folder}/nix/log",
            "NIX_CONFIG": "substituters =\nbuild-users-group =\nsandbox = false",
            "XDG_CACHE_HOME": f"{folder}/cache",
        }
        with_config(folder / "files/lib", AVX2)
        (folder / "all.nix").write_text(EXPRESSION)
        argv = ["nix-build", "all.nix", "--no-out-link", "--arg", "files", "./files"]
        argv += ["--argstr", "path", os.environ["PATH"]]
        for name in NAMES:
            argv += ["-A", name]
        env = {**os.environ, **self.env}
        done = subprocess.run(
            argv, cwd=folder, env=env, check=True, stdout=subprocess.PIPE, text=True
        )
        self.outputs = dict(zip(NAMES, done.stdout.split(), strict=True))

    def link(self, root: Path, name: str, id_: str = "cpu-avx2") -> None:
        """Let a checkout have this result of a variant."""
        (root / f"result-{variant_of(id_).package}").symlink_to(self.outputs[name])

    def inspected(self, root: Path, name: str, variant: str | Variant = "cpu-avx2") -> Inspection:
        """The inspection of a result, in this process."""
        variant = variant_of(variant) if isinstance(variant, str) else variant
        self.link(root, name, variant.id)
        with pytest.MonkeyPatch.context() as patch:
            for key, value in self.env.items():
                patch.setenv(key, value)
            return inspection.inspect_result(root, variant)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("results"))


def named(result: Inspection, part_id: str) -> dict[str, Any]:
    (part,) = [part for part in result.parts if part.id == part_id]
    return dict(msgspec.to_builtins(part))


def remember(project: Project, recipe: str) -> None:
    """A line of the ledger: the result was built from a recipe with this digest."""
    output = str((project.root / f"result-{project.recipe('cpu-avx2').stem}").resolve())
    event = Event(
        event="ended", at=now(), release="cuda13_0", variant="cpu-avx2",
        digest=recipe, attempt="1", outcome="built", seconds=1.0, outputs=(output,),
    )  # fmt: skip
    append(project.root, event)


OLDER = "sha256:of-an-older-recipe"


@needs_nix
@pytest.mark.parametrize("built_from", ["current", "older", "unknown"])
def test_a_result_is_recorded_with_the_digest_of_the_recipe_that_it_was_built_from(
    project: Project, results: Results, built_from: str
) -> None:
    results.link(project.root, "right")
    current = digest.of_bytes(project.recipe("cpu-avx2").read_bytes())
    for known in {"current": [current, OLDER], "older": [OLDER], "unknown": []}[built_from]:
        remember(project, known)
    done = inspect(project, "cpu-avx2", env=results.env)
    assert done.returncode == 0, done.stdout + done.stderr
    is_unknown = "not recorded: the ledger has no recipe for this result" in done.stdout
    assert is_unknown is (built_from == "unknown")
    if is_unknown:
        assert not (project.root / LEDGER).exists()
        return
    *_, event = read(project.root).events
    assert event.event == "tested"
    assert (event.by, event.outcome, event.variant) == ("inspect", "passed", "cpu-avx2")
    assert event.digest == (current if built_from == "current" else OLDER)
    assert event.output == results.outputs["right"]
    report = json.loads((project.root / event.report).read_text())
    assert (report["outcome"], report["digest"]) == ("passed", event.digest)
    ids = [part["id"] for part in report["parts"]]
    assert ids == ["files", "device-code", "config", "features", "closure"]


@needs_nix
def test_one_bad_result_is_a_row_and_the_others_are_inspected(
    project: Project, results: Results
) -> None:
    results.link(project.root, "right")
    results.link(project.root, "empty", "cpu-avx512")
    (project.root / "result-pytorch-python313-cpu-avx512vnni").symlink_to("result-pytorch")
    loop = project.root / "result-pytorch-python313-cpu-avx512bf16"
    loop.symlink_to(loop.name)
    done = inspect(project, "cpu-*", "--json", env=results.env)
    assert done.returncode == 1
    rows = {row["variant"]: row for row in json.loads(done.stdout)["variants"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "cpu-avx2": "passed",
        "cpu-avx512": "failed",
        "cpu-avx512bf16": "not run",
        "cpu-avx512vnni": "not run",
    }
    (reason,) = rows["cpu-avx512"]["reasons"]  # not those of parts that were skipped
    assert "files: libtorch_cpu.so: not in " in reason
    assert "does not lead into the Nix store" in rows["cpu-avx512bf16"]["reasons"][0]


@needs_nix
def test_a_second_cuda_in_the_closure_is_found(results: Results, tmp_path: Path) -> None:
    part = named(results.inspected(tmp_path, "second", "sm90-avx2"), "closure")
    assert (part["state"], texts(part)) == ("failed", "CUDA 12.9: cuda_nvrtc-12.9.86")


@needs_nix
def test_libraries_may_be_in_another_output(results: Results, tmp_path: Path) -> None:
    result = results.inspected(tmp_path, "split")
    assert result.outcome == "passed"
    assert result.folder.endswith("-python3.13-torch-lib/lib")
    assert named(result, "config")["figures"]["version"] == "2.10.0"


@pytest.mark.parametrize(
    ("id_", "names", "found"),
    [
        ("sm90-avx2", "cuda13.0-cuda_cudart-13.0.96 cuda13.0-libcublas-13.1.0.3", ""),
        ("sm90-avx2", "cuda_cudart-13.0.96 cuda12.8-libcublas-12.8.4.1", "CUDA 12.8: cuda12.8-lib"),
        ("sm90-avx2", "cuda_cudart-13.0.96 cuda_nvrtc-12.9.86", "CUDA 12.9: cuda_nvrtc-12.9.86"),
        ("sm90-avx2", "glibc-2.40", "no CUDA at all"),
        ("cpu-avx2", "glibc-2.40", ""),
        ("cpu-avx2", "libcublas-13.1.0.3", "CUDA in a CPU-only variant: libcublas-13.1.0.3"),
    ],
)
def test_a_closure_holds_the_cuda_of_its_variant_and_no_other(
    id_: str, names: str, found: str
) -> None:
    findings = list(closure.check_cuda(variant_of(id_), names.split()))
    assert [finding.severity for finding in findings] == ["error"] * bool(found)
    assert not found or findings[0].found.startswith(found)


@needs_nix
def test_a_closure_above_its_budget_is_found(results: Results, tmp_path: Path) -> None:
    replace, here = msgspec.structs.replace, variant_of("cpu-avx2")
    build = replace(here.release.build, closure_gib=ClosureBudget(gpu=8, cpu=0))
    small = replace(here, release=replace(here.release, build=build))
    part = named(results.inspected(tmp_path, "right", small), "closure")
    assert part["state"] == "failed"
    assert "0.0 GiB; the largest: result 0.0" in texts(part)
    assert list(part["figures"]["largest"]) == ["result"]
    own = sum(file.stat().st_size for file in (results.folder / "files/lib").iterdir())
    assert own < part["figures"]["bytes"] < 2 * own + 10_000


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("cuda13.0-cuda_cudart-13.0.96", "13.0"),
        ("cuda_cudart-13.0.96-lib", "13.0"),
        ("cuda-merged-12.8", "12.8"),
        ("libnvjitlink-13.0.88", "13.0"),
        ("cuda13.0-libcublas-13.1.0.3", "13.0"),
        ("libcublas-13.1.0.3", None),  # of CUDA 13.0 Update 2
        ("libcufft-12.0.0.61", None),  # of CUDA 13.0
        ("cuda_compat-13.0.1", None),  # a driver's
        ("cudnn-9.13.0.50", None),
    ],
)
def test_the_name_of_a_store_path_has_its_cuda_version(name: str, version: str | None) -> None:
    found = closure.cuda_versions([name])
    assert list(found) == ([version] if version else [])


# --- bad input ---


def test_a_variant_that_was_not_built_is_one_line_with_the_command(project: Project) -> None:
    done = inspect(project, "cpu-avx2")
    assert (done.returncode, "passed" in done.stdout) == (3, False)
    assert "run `invoke build cpu-avx2`" in done.stdout


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["cpu-avx2", "--path", "nowhere"], "no such folder"),
        (["cpu-avx2", "--path", ".flox"], "no libtorch_cpu.so in it"),
        (["cpu-*", "--path", ".flox"], "the files of one variant"),
        (["cpu-avx3"], 'did you mean "cpu-avx2"?'),
    ],
)
def test_bad_input_is_one_line(project: Project, argv: list[str], says: str) -> None:
    before = project.snapshot()
    done = inspect(project, *argv)
    assert done.returncode == 2
    assert says in error_line(done)
    assert project.snapshot() == before
