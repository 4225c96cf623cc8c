"""Seeds: which ones a selection needs, and the work that they save."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import WHOLE, Project

from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.selection import SharedWork, configuration, seeds_of, shared_work


def work_on(matrix: Matrix, variants: Sequence[Variant]) -> SharedWork:
    assert matrix.work
    return shared_work(variants, matrix.work, seeds_of(matrix.variants))


def test_44_variants_are_less_than_a_quarter_of_the_work(matrix: Matrix) -> None:
    work = work_on(matrix, matrix.variants)
    assert work.units == pytest.approx(9.006)
    assert work.units_unshared == pytest.approx(42.64)
    assert Counter((seed.variant.cpu.platform, seed.kind) for seed in work.seeds) == {
        ("x86_64-linux", "cxx"): 4,
        ("x86_64-linux", "cuda"): 9,
        ("aarch64-linux", "cxx"): 2,
        ("aarch64-linux", "cuda"): 2,
    }
    one = matrix.variants[0].release.build.core_hours
    assert sum(work.core_hours.values()) == pytest.approx(work.units * one)


def test_seeds_have_the_configuration_of_their_readers_and_others_are_misses() -> None:
    """AVX variants switch libraries off; sm61 has no cuDNN."""
    matrix = matrix_reader.parse(WHOLE)
    seeds = seeds_of(matrix.variants)
    variants = {variant.id: variant for variant in matrix.variants}
    for variant in matrix.variants:
        for seed in seeds.get(variant.attribute, ()):
            assert configuration(seed.variant) == configuration(variant)
    read = {
        name: [seed.variant.id for seed in seeds.get(variants[name].attribute, ())]
        for name in ("cuda12_8/sm120-avx2", "cuda12_8/sm120-avx", "cuda12_8/sm61-avx2")
    }
    assert read == {
        "cuda12_8/sm120-avx2": ["cuda12_8/sm100-avx2", "cuda12_8/sm120-avx2"],
        "cuda12_8/sm120-avx": ["cuda12_8/sm120-avx"],
        "cuda12_8/sm61-avx2": [],
    }
    alone, avx = (work_on(matrix, [variants[name]]) for name in list(read)[:0:-1])
    assert alone.units == alone.units_unshared
    assert matrix.work
    assert avx.units > matrix.work.cxx.share + matrix.work.cuda.share


def test_variants_that_a_machine_can_run_need_no_seed_of_others(matrix: Matrix) -> None:
    work = work_on(matrix, [v for v in matrix.variants if not v.impossible])
    assert work.units / work.units_unshared < 0.27
    assert len(work.seeds) == 15
    assert not any(seed.variant.impossible for seed in work.seeds)


def test_seeds_that_are_built_are_no_work(matrix: Matrix) -> None:
    assert matrix.work
    seeds = seeds_of(matrix.variants)
    whole = shared_work(matrix.variants, matrix.work, seeds)
    rest = shared_work(matrix.variants, matrix.work, seeds, [whole.seeds[0].name])
    assert whole.units - rest.units == pytest.approx(matrix.work.cxx.share)
    assert rest.seeds == whole.seeds


def test_cpu_only_variants_read_the_cxx_seed_of_their_isa(matrix: Matrix) -> None:
    work = work_on(matrix, [v for v in matrix.variants if not v.gpu])
    assert {seed.kind for seed in work.seeds} == {"cxx"}
    assert work.units_unshared == pytest.approx(4 * 0.66)


def test_the_seeds_of_a_variant_do_not_depend_on_the_selection(matrix: Matrix) -> None:
    whole = {seed.name for seed in work_on(matrix, matrix.variants).seeds}
    assert {seed.name for seed in work_on(matrix, matrix.variants[5:9]).seeds} < whole


def test_seeds_of_isas_are_made_from_different_architectures(matrix: Matrix) -> None:
    x86 = [v for v in matrix.variants if v.gpu and v.cpu.platform == "x86_64-linux"]
    seeds = [seed for seed in work_on(matrix, x86).seeds if seed.kind == "cxx"]
    assert len({seed.variant.gpu_key for seed in seeds}) == len(seeds)
    for package, own in seeds_of(matrix.variants).items():
        for seed in own:
            assert seed.key in {seed.variant.cpu_key, seed.variant.gpu_key}
            assert seed.key in package


def test_the_plan_of_a_shared_build_needs_no_nix(project: Project, tmp_path: Path) -> None:
    for old, new in (("disk = 60", "disk = 0.01"), ("job_memory = 5", "job_memory = 0.1")):
        project.edit("matrix.toml", old, new)
    project.edit("matrix.toml", "reserved_memory = 2", "reserved_memory = 0.1")
    project.edit("matrix.toml", "job_memory = 2.2, disk = 10", "job_memory = 0.1, disk = 0.01")
    for program in ("git", "env"):
        (tmp_path / program).symlink_to(shutil.which(program) or "/")
    argv = ("invoke", "build", "--all", "--share", "--dry-run")
    done = project.run(*argv, "--json", env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["units"] <= 0.27 * document["units_unshared"]
    assert len(document["seeds"]) == 15
    assert {seed["kind"] for seed in document["seeds"]} == {"cxx", "cuda"}
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("Shared: "))
    assert said.startswith("Shared: 15 seeds; about 8.1 units of work instead of 34.6")
    assert max(map(len, done.stderr.splitlines())) <= 80


def test_sharing_needs_nix(project: Project) -> None:
    done = project.invoke("build", "--all", "--share", "--dry-run", "--backend", "flox")
    assert done.returncode == 2
    assert "--share works only with Nix" in done.stderr
