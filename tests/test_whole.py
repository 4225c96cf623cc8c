"""The stand-in for nixpkgs of `nox -s whole`, evaluated, and the log of a build with it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest
from conftest import PROJECT, needs_nix, write_recipes

from build_pytorch.build.log_file import diagnose
from build_pytorch.matrix import matrix_reader
from build_pytorch.results import ledger
from build_pytorch.smoke.judge import SmokeReport, judge

sys.path.insert(0, str(PROJECT / "tests/whole"))

from whole import HERE, make_nixpkgs

TEXT = (HERE / "matrix.toml").read_text().replace("CACHE", "/var/cache/x")


def evaluated(expression: str) -> str:
    """Return the value of a Nix expression, as JSON."""
    argv = ["nix-instantiate", "--eval", "--strict", "--json", "-E", expression]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_nix
def test_recipes_reach_the_torch_of_the_stand_in(tmp_path: Path) -> None:
    """Each recipe is PyTorch 2.6.0 with its BLAS and its GPU."""
    matrix = matrix_reader.parse(TEXT)
    write_recipes(tmp_path, matrix)
    make_nixpkgs(tmp_path / "source")
    files = {variant.id: f"{tmp_path}/{variant.path}" for variant in matrix.variants}
    expression = f"""
      let
        nixpkgs_pinned = import {tmp_path}/source {{
          system = "x86_64-linux"; config.allowUnfree = true; overlays = [ ];
        }};
        facts = path: let torch = import path {{ inherit nixpkgs_pinned; pkgs = {{ }}; }}; in {{
          inherit (torch) name drvPath BLAS preConfigure postPatch;
          openblas = torch ? OpenBLAS_HOME;
          version = torch.PYTORCH_BUILD_VERSION;
          magma = torch.USE_MAGMA or null;
        }};
      in builtins.mapAttrs (_: facts) {{ {" ".join(f'"{k}" = {v};' for k, v in files.items())} }}
    """
    facts = json.loads(evaluated(expression))
    assert facts.keys() == {v.id for v in matrix.variants}
    for variant in matrix.variants:
        found = facts[variant.id]
        is_mkl = variant.group.blas == "mkl"
        assert found["name"].endswith(f"-{variant.pname}-2.6.0")
        assert found["version"] == "2.6.0"
        assert (found["BLAS"], found["openblas"]) == ("MKL" if is_mkl else "OpenBLAS", not is_mkl)
        lists = re.findall(r'TORCH_CUDA_ARCH_LIST="(.*)"', found["preConfigure"])
        assert lists == ([variant.gpu.capability] if variant.gpu else [])
        assert found["magma"] == ("0" if variant.gpu else None)
        # The sources get their patch before the hooks of the recipe change them
        steps = re.findall(r"patch -p1|rm \S+|> \S+cmake|extras/CUPTI/lib64 ", found["postPatch"])
        module = "cmake/Modules/FindCUDAToolkit.cmake"
        of_gpu = [f"rm {module}", "patch -p1", f"> {module}", "extras/CUPTI/lib64 "]
        assert steps == (of_gpu if variant.gpu else [])


# --- its log ---

LOGS: Final = PROJECT / "tests/logs"
VARIANT_FOR_SM90: Final = next(
    v for v in matrix_reader.parse(TEXT).variants if v.id == "cuda13_0/sm90-avx2"
)
PHASES: Final = "unpack patch configure build fixup pythonImportsCheck"


@pytest.mark.parametrize(
    ("name", "identity", "last"),
    [
        ("openblas-avx2", "openblas/cpu-avx2", (1555, 1559)),  # ninja left four out
        ("mkl-avx2", "mkl/cpu-avx2", (1556, 1560)),
        ("mkl-avx512", "mkl/cpu-avx512", (1556, 1560)),
        ("cuda13_0-sm90-avx2", "cuda13_0/sm90-avx2", (2046, 2050)),
    ],
)
def test_the_log_of_a_whole_build_is_read_right_wherever_it_is_cut(
    name: str, identity: str, last: tuple[int, int]
) -> None:
    """It names no failure at any moment; phases come in order, and steps only grow."""
    matrix = matrix_reader.parse(TEXT)
    variant = next(v for v in matrix.variants if v.id == identity)
    lines = gzip.decompress((LOGS / f"whole-{name}.log.gz").read_bytes()).split(b"\n")
    phases, steps = [], []
    begins = [n for n, line in enumerate(lines, 1) if line.startswith(b"Running phase: ")]
    for cut in (*begins[:4], len(lines) // 3, begins[-2], len(lines)):
        found = diagnose(lines[:cut], variant)
        assert (found.rule, found.headline) == ("", None), cut
        phases.append(found.phase)
        steps.append(found.progress or (0, 0))
    assert " ".join(dict.fromkeys(phases)) == PHASES
    assert steps == sorted(steps)
    assert steps[-1] == last


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("no-cuda", "cuda-not-found"),  # no cudaSupport in the recipe
        ("two-gpus", "wrong-capability"),  # gpuTargets = [ "9.0" "12.0" ]
        ("no-cupti", "cupti-off"),  # without the paths of CUPTI
    ],
)
def test_a_gpu_build_that_was_made_wrong_is_stopped_before_it_compiles(
    name: str, rule: str
) -> None:
    lines = gzip.decompress((LOGS / f"whole-cuda-{name}.log.gz").read_bytes()).split(b"\n")
    found = diagnose(lines, VARIANT_FOR_SM90)
    assert (found.stops, found.rule) == (True, rule)
    assert not any(line.startswith(b"[1/") for line in lines)


def test_the_configuration_for_a_gpu_is_right_and_the_first_error_is_named() -> None:
    """Kineto of PyTorch 2.6.0 does not compile with CUDA 13.0, which no rule knows."""
    log = gzip.decompress((LOGS / "whole-cuda-kineto.log.gz").read_bytes())
    configured = log.index(b"[1/2050] ")
    found = diagnose(log[:configured].split(b"\n"), VARIANT_FOR_SM90)
    assert (found.rule, found.headline) == ("", None)
    assert b"--   USE_CUDA              : ON\n" in log
    found = diagnose(log.split(b"\n"), VARIANT_FOR_SM90)
    assert (found.rule, found.headline is None) == ("", False)
    assert re.search(
        r"CuptiNvPerfMetric.cpp:52:5: error: .NVPA_MetricsContext", str(found.headline)
    )


def test_the_ledger_of_the_whole_builds_is_read(tmp_path: Path) -> None:
    """What `nox -s whole` recorded, with other paths of the store and keys of an older version."""
    (tmp_path / ".build-pytorch").mkdir()
    shutil.copy(HERE / "ledger.jsonl", tmp_path / ".build-pytorch")
    history = ledger.read(tmp_path)
    built = [e for e in history.events if e.outcome == "built"]
    assert (len(built), history.skipped) == (4, 0)
    assert {e.subject for e in built} == {
        ("mkl", "cpu-avx512"),
        ("mkl", "cpu-avx2"),
        ("openblas", "cpu-avx2"),
        ("cuda13_0", "sm90-avx2"),
    }


# --- it ran on an H100 ---

NO_MAGMA: Final = "is built without MAGMA"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("smoke-h100", []),
        # NVRTC did not find its library of builtins, which cuDNN needs too
        ("smoke-h100-no-nvrtc", ["cuda cudnn attention bf16", "cuda nvrtc"]),
    ],
)
def test_what_ran_on_a_gpu_is_judged_as_it_was(name: str, wrong: list[str]) -> None:
    """The whole build on a real H100: MAGMA, which is off, is its only fault."""
    document = json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))
    report = msgspec.convert(document["script"], SmokeReport)
    found = judge(report, VARIANT_FOR_SM90)
    assert found.outcome == "failed"
    assert found.reasons[0] == NO_MAGMA
    assert [reason.partition(":")[0] for reason in found.reasons[1:]] == wrong
    assert list(found.reasons) == document["reasons"]
    outcomes = [test.outcome for test in report.tests if test.outcome != "not run"]
    assert outcomes.count("passed") == 29 - len(wrong)
    assert report.gpu
    assert (report.gpu.capability, report.torch.arch_list) == ("9.0", ("sm_90",))
