"""What a plan with sharing says: seeds, units and times over builders."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from conftest import Project, needs_nix
from world import Site, World

from build_pytorch.build import shared_work
from build_pytorch.build.shared_work import Job, SharedWork, makespan
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.seeds import seeds_of


def work_on(fleet: Matrix, variants: Sequence[Variant]) -> SharedWork:
    assert fleet.work
    one_import = dict.fromkeys((v.attribute for v in fleet.variants), "one")
    return shared_work.shared_work(variants, fleet.work, seeds_of(fleet.variants), one_import)


def counted_seeds(work: SharedWork) -> Counter[tuple[str, str]]:
    return Counter((seed.variant.cpu.platform, seed.kind) for seed in work.seeds)


def of_x86(fleet: Matrix) -> list[Variant]:
    return [v for v in fleet.variants if v.gpu and v.cpu.platform == "x86_64-linux"]


def test_44_variants_are_a_quarter_of_the_work(fleet: Matrix) -> None:
    work = work_on(fleet, fleet.variants)
    assert work.units_unshared == pytest.approx(42.06)
    assert work.units == pytest.approx(10.45)
    assert work.units / work.units_unshared < 0.25
    assert counted_seeds(work) == {
        ("x86_64-linux", "cxx"): 4,
        ("x86_64-linux", "cuda"): 9,
        ("aarch64-linux", "cxx"): 2,
        ("aarch64-linux", "cuda"): 2,
    }


def test_36_buildable_variants(fleet: Matrix) -> None:
    variants = [v for v in fleet.variants if not v.impossible]
    work = work_on(fleet, variants)
    assert len(variants) == 36
    assert work.units / work.units_unshared < 0.27
    assert counted_seeds(work) == {
        ("x86_64-linux", "cxx"): 4,
        ("x86_64-linux", "cuda"): 7,
        ("aarch64-linux", "cxx"): 2,
        ("aarch64-linux", "cuda"): 2,
    }
    assert not any(seed.variant.impossible for seed in work.seeds)


def test_x86_over_builders(fleet: Matrix) -> None:
    """The figures of the study: time for the 36 GPU variants of x86, without and with seeds."""
    assert fleet.work
    free = msgspec.structs.replace(fleet.work.nccl, share=0)
    without = msgspec.structs.replace(fleet.work, nccl=free, magma=free)
    work = shared_work.shared_work(of_x86(fleet), without, seeds_of(fleet.variants), {})
    assert work.units == pytest.approx(7.94)
    expected = {1: (36, 7.94), 2: (18, 4.0), 4: (9, 2.0), 8: (5, 1.1), 13: (3, 0.65)}
    for builders, (alone, together) in expected.items():
        found = [
            makespan([*work.dependencies, *jobs], builders) for jobs in (work.unshared, work.shared)
        ]
        assert found == [pytest.approx(alone), pytest.approx(together, abs=0.05)]


def test_the_seeds_of_a_variant_do_not_depend_on_the_selection(fleet: Matrix) -> None:
    some = fleet.variants[5:9]
    whole = {seed.name for seed in work_on(fleet, fleet.variants).seeds}
    assert {seed.name for seed in work_on(fleet, some).seeds} < whole


def test_seeds_of_isas_are_made_from_different_architectures(fleet: Matrix) -> None:
    seeds = [s for s in work_on(fleet, of_x86(fleet)).seeds if s.kind == "cxx"]
    assert len({seed.variant.gpu_key for seed in seeds}) == len(seeds)
    for package, own in seeds_of(fleet.variants).items():
        for seed in own:
            assert seed.key in {seed.variant.cpu_key, seed.variant.gpu_key}
            assert seed.key in package


def test_nccl_and_magma_are_compiled_once_for_an_import_in_both_ways(fleet: Matrix) -> None:
    assert fleet.work
    variants = of_x86(fleet)
    seeds = seeds_of(fleet.variants)
    imports = {v.attribute: "thor" if v.gpu_key == "sm110" else "rest" for v in variants}
    work = shared_work.shared_work(variants, fleet.work, seeds, imports)
    one = fleet.work.nccl.share + fleet.work.magma.share
    assert work.units_dependencies == pytest.approx(2 * one)
    for jobs in (work.shared, work.unshared):
        assert {need for job in jobs for need in job.needs} >= {j.name for j in work.dependencies}
    # Nothing that links them is faster than they are.
    assert makespan([*work.dependencies, *work.shared], 1000) >= fleet.work.magma.share


def test_a_cpu_only_fleet_has_no_dependencies(fleet: Matrix) -> None:
    work = work_on(fleet, [v for v in fleet.variants if not v.gpu])
    assert {seed.kind for seed in work.seeds} == {"cxx"}
    assert work.units_unshared == pytest.approx(4 * 0.515)


def test_jobs_that_wait_for_ever_are_an_error() -> None:
    with pytest.raises(ValueError, match="waits for ever"):
        makespan([Job(name="a", units=1, hours=1, needs=("b",))], 2)
    assert makespan([], 2) == 0


@pytest.fixture
def small(project: Project) -> Project:
    """A project whose plans have no obstacles on a small machine."""
    for old, new in (("disk = 60", "disk = 0.01"), ("job_memory = 5", "job_memory = 0.1")):
        project.edit("matrix.toml", old, new)
    project.edit("matrix.toml", "reserved_memory = 2", "reserved_memory = 0.1")
    return project


def test_the_plan_of_the_fleet_is_made_without_nix(small: Project, tmp_path: Path) -> None:
    for program in ("git", "env"):
        (tmp_path / program).symlink_to(shutil.which(program) or "/")
    done = small.run(
        *("invoke", "build", "--all", "--share", "--dry-run", "--json"),
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["units"] <= 0.27 * document["units_unshared"]
    assert len(document["seeds"]) == 15
    assert {seed["kind"] for seed in document["seeds"]} == {"cxx", "cuda"}
    assert [row["builders"] for row in document["builders"]] == [1, 2, 4, 8, 13]
    hours = [row["hours"] for row in document["builders"]]
    assert hours == sorted(hours, reverse=True)
    assert all(row["hours"] < row["hours_unshared"] for row in document["builders"])
    assert document["assumptions"]
    assert document["work"]["link"]["basis"] == "assumed"


def test_the_plan_names_what_is_assumed(small: Project) -> None:
    done = small.invoke("build", "--all", "--share", "--dry-run", "--backend", "nix")
    assert done.returncode == 0, done.stderr
    for text in ("15 seeds", "builders", "assumed", "extrapolated"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_sharing_needs_nix_and_the_model(project: Project) -> None:
    done = project.invoke("build", "--all", "--share", "--dry-run", "--backend", "flox")
    assert done.returncode == 2
    assert "--share" in done.stderr


@needs_nix
def test_a_shared_build_makes_its_seeds_first_and_is_recorded(world: World) -> None:
    world.scenario("default", 'good\necho "build-pytorch: compiler cache: 42 hits, 1 misses"')
    found = world.built("sm120-avx2", "--share", "--backend", "nix")
    assert found["returncode"] == 0, found["stderr"]
    assert [seed["key"] for seed in found["seeds"]] == ["avx2", "sm120"]
    *of_seeds, started, ended = world.ledger()
    assert [event["event"] for event in of_seeds] == ["started", "ended"] * 2
    assert started["shared"]
    assert (ended["cache_hits"], ended["cache_misses"]) == (42, 1)
    (output,) = ended["outputs"]
    needed = world.site.nix("nix-store", "--query", "--requisites", started["derivation"])
    assert "seed-cuda13_0-x86_64-linux-avx2-2.10.0.drv" in needed
    assert "seed-cuda13_0-x86_64-linux-sm120-2.10.0.drv" in needed
    kept = world.site.nix("nix-store", "--query", "--requisites", output)
    assert "seed" not in kept, "a result does not need its seeds"

    again = world.built("sm120-avx2", "--share", "--backend", "nix")
    assert again["by_id"]["sm120-avx2"]["action"] == "up to date"


@needs_nix
def test_a_variant_with_many_misses_is_reported(world: World) -> None:
    world.scenario("default", 'good\necho "build-pytorch: compiler cache: 20 hits, 22 misses"')
    done = world.build("sm120-avx2", "--share")
    assert done.returncode == 0, done.stderr
    assert "22 of 42 objects were not in its seeds" in done.stdout


@needs_nix
def test_seed_and_variant_differ_in_nothing_that_reaches_a_compiler(
    project: Project, site: Site
) -> None:
    """Their hooks and variables are equal, apart from the place of the cache."""
    argv = ["nix-instantiate", "release.nix", "--arg", "share", "true"]
    names = ["seed-cuda13_0-x86_64-linux-avx2", "pytorch-python313-cuda13_0-sm90-avx2"]
    text = [
        subprocess.run(
            [*argv, "-A", name], cwd=project.root, env={**os.environ, **site.env},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for name in names
    ]  # fmt: skip
    shown = [json.loads(site.nix(*_SHOW, drv)) for drv in text]
    seed, variant = (next(iter(each.values()))["env"] for each in shown)
    own = {"name", "pname", "out", "dev", "lib", "cxxdev", "dist", "outputs", "phases"}
    own |= {"buildPhase", "postBuild", "preBuild", "builder", "meta"}
    ours = {"preConfigure"}  # of another architecture, which C++ does not see
    differing = {k for k in seed.keys() | variant.keys() if seed.get(k) != variant.get(k)}
    assert differing <= own | ours | {"cmakeFlags"}, differing - own - ours
    assert re.sub("REMOTE_STORAGE=.*", "", seed["preBuild"]) == re.sub(
        "REMOTE_STORAGE=.*", "", variant["preBuild"]
    )
    assert "-mavx2 -mfma" in seed["preConfigure"]


_SHOW = ("nix", "--extra-experimental-features", "nix-command", "show-derivation")
