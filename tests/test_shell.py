"""The shell inside the recipes, run by a real Bash: what it sets, links and writes."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import ONE, PROJECT, needs_nix

from build_pytorch.matrix import matrix_reader
from build_pytorch.verify import recipe_evaluation
from build_pytorch.verify.check import Context

pytestmark = needs_nix


class Scripts(NamedTuple):
    """The two hooks of a recipe as Nix evaluates them, nixpkgs' own part cut off."""

    pre_configure: str
    post_patch: str


@functools.cache
def scripts(variant_id: str) -> Scripts:
    matrix = matrix_reader.parse(ONE)
    variant = next(variant for variant in matrix.variants if variant.id == variant_id)
    context = Context(matrix, PROJECT, [variant])
    facts = recipe_evaluation.evaluated(context).results[variant.path].facts
    assert facts
    pre_configure = facts["preConfigure"][facts["preConfigure"].index("# CPU instruction set") :]
    return Scripts(pre_configure, facts["postPatch"].rpartition("rm cmake/Modules/")[2])


def run(folder: Path, script: str, probe: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a hook as stdenv does (errors end it), with the store below a folder."""
    script = script.replace("/nix/store/", f"{folder}/store/")
    return subprocess.run(
        ["bash", "-e", "-c", f"{script}\n{probe}"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "NIX_BUILD_TOP": f"{folder}/build", **env},
        capture_output=True,
        text=True,
        check=True,
    )


PROBE = (
    'echo "cxx=$CXXFLAGS|c=$CFLAGS|cuda=$CUDAFLAGS|cores=$NIX_BUILD_CORES'
    '|v=$PYTORCH_BUILD_VERSION|uc=$USE_CUDA"'
)


def test_a_gpu_recipe_sets_flags_version_and_headers(tmp_path: Path) -> None:
    script = scripts("sm90-avx512").pre_configure
    done = run(tmp_path, script, PROBE, CXXFLAGS="-O1", CFLAGS="-O2", CUDAFLAGS="-lineinfo")
    build = f"-I{tmp_path}/build/cccl-compat"
    isa = "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma"
    last = done.stdout.splitlines()[-1]
    assert f"cxx={build} {isa} -O1|c={build} {isa} -O2|cuda={build} -lineinfo|" in last
    assert "|v=2.10.0|" in last
    assert (tmp_path / "version.txt").read_text() == "2.10.0\n"
    cccl = tmp_path / "build/cccl-compat/cccl"
    assert sorted(link.name for link in cccl.iterdir()) == ["cub", "cuda", "nv", "thrust"]
    for link in cccl.iterdir():
        assert str(link.readlink()).endswith(f"cuda_cccl-13.0.x/include/{link.name}")
    assert "GPU:       SM90 (9.0)" in done.stdout


def test_a_hook_may_run_twice(tmp_path: Path) -> None:
    script = scripts("sm90-avx512").pre_configure
    run(tmp_path, script, "true")
    run(tmp_path, script, "true")
    assert len(list((tmp_path / "build/cccl-compat/cccl").iterdir())) == 4


@pytest.mark.parametrize(
    ("given", "effective"),
    [("64", "32"), ("32", "32"), ("8", "8"), ("1", "1"), ("0", None), (None, None)],
)
def test_the_limit_of_jobs_is_effective(
    tmp_path: Path, given: str | None, effective: str | None
) -> None:
    script = scripts("cpu-avx2").pre_configure
    env = {} if given is None else {"NIX_BUILD_CORES": given}
    done = run(tmp_path, script, PROBE, **env)
    all_cores = str(min(32, len(os.sched_getaffinity(0))))
    assert f"|cores={effective or all_cores}|" in done.stdout


def test_a_cpu_only_recipe_switches_cuda_off(tmp_path: Path) -> None:
    done = run(tmp_path, scripts("cpu-avx2").pre_configure, PROBE, USE_CUDA="1")
    assert done.stdout.endswith("|uc=0\n")
    assert not (tmp_path / "build").exists()
