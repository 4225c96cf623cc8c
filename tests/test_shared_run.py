"""Runs of `invoke build --share`: seeds, what needs them, and what other commands know of them."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from world import World, programs, wait_until

from build_pytorch.matrix import matrix_reader
from build_pytorch.publish.publication import decide
from build_pytorch.results.package_state import package_states

pytestmark = pytest.mark.skipif(programs() is not None, reason=programs() or "")

AVX2, AVX512, SM90 = (f"seed-cuda13_0-x86_64-linux-{key}" for key in ("avx2", "avx512", "sm90"))


def started(world: World) -> list[str]:
    return [e["variant"] for e in world.ledger() if e["event"] == "started"]


def ended(world: World) -> dict[str, dict[str, Any]]:
    return {e["variant"]: e for e in world.ledger() if e["event"] == "ended"}


def test_seeds_are_built_first_and_once(world: World) -> None:
    """A variant with many misses is reported with what to compare."""
    for name, counts in {
        "default": "39 hits, 1 misses",
        "sm90-avx512": "20 hits, 20 misses",
    }.items():
        world.scenario(name, f'good; echo "build-pytorch: compiler cache: {counts}"')
    done = world.built("--share", "--jobs", "2", "sm90-avx2", "sm90-avx512")
    assert done["returncode"] == 0, done["stderr"]
    assert sorted(started(world)[:3]) == sorted([AVX2, AVX512, SM90])
    assert sorted(started(world)[3:]) == ["sm90-avx2", "sm90-avx512"]
    assert {seed["name"]: seed["outcome"] for seed in done["seeds"]} == dict.fromkeys(
        (AVX2, AVX512, SM90), "built"
    )
    output = str(world.link("cuda13_0-sm90-avx2").resolve())
    kept = world.site.nix("nix-store", "--query", "--requisites", output)
    assert "seed" not in kept, "a result does not need its seeds"
    event = ended(world)["sm90-avx2"]
    assert (event["shared"], event["cache_hits"], event["cache_misses"]) == (True, 39, 1)
    assert "shared" not in ended(world)[AVX2]
    assert (world.root / f"result-{AVX2}").resolve().is_dir()
    said = " ".join(done["stderr"].split())
    assert "sm90-avx512: 20 of 40 objects were not in its seeds" in said
    assert "sm90-avx2: 1 of" not in said
    compared = {seed["derivation"] for seed in done["seeds"] if seed["name"] != AVX2}
    compared.add(done["by_id"]["sm90-avx512"]["derivation"])
    assert set(said.partition("nix show-derivation ")[2].split()[:3]) == compared
    more = world.built("--share", "--dry-run", "sm120-avx2", "sm90-avx2", "sm90-avx512")
    assert [row["action"] for row in more["variants"]].count("up to date") == 2
    assert {seed["name"]: seed["action"] for seed in more["seeds"]} == {
        AVX2: "up to date",
        "seed-cuda13_0-x86_64-linux-sm120": "build",
    }


@pytest.mark.slow
def test_ctrl_c_in_a_seed_and_resume(world: World) -> None:
    """No variant begins; the next run builds the seed again, and only what is missing."""
    world.scenario(AVX2, 'touch "$control/runs"; await go')
    running = world.start("--share", "--jobs", "2", "sm90-avx2")
    world.wait_for("ended")
    wait_until((world.site.scenarios / "runs").exists, "a build of the seed")
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGINT
    assert ended(world)[AVX2]["outcome"] == "interrupted"
    assert ended(world)[SM90]["outcome"] == "built"
    assert "sm90-avx2  " in said
    assert "not started" in said
    shown = json.loads(world.project.run("invoke", "status", "--json", env=world.env).stdout)
    assert shown["seeds"] == {AVX2: "interrupted", SM90: "yes"}
    world.mark("go")
    again = world.built("--share", "sm90-avx2")
    assert again["returncode"] == 0, again["stderr"]
    assert {seed["name"]: seed["action"] for seed in again["seeds"]} == {
        AVX2: "build",
        SM90: "up to date",
    }
    assert again["by_id"]["sm90-avx2"]["outcome"] == "built"


def test_what_reads_a_seed_that_failed_is_not_started(world: World) -> None:
    """The report names the seed and its log; what does not need it is built."""
    world.scenario(AVX512, "echo 'x.cpp:1: error: no'; exit 1")
    done = world.built("--share", "sm90-avx2", "sm90-avx512")
    assert done["returncode"] == 1
    assert [seed["outcome"] for seed in done["seeds"]].count("failed") == 1
    rows = done["by_id"]
    assert rows["sm90-avx2"]["outcome"] == "built"
    assert rows["sm90-avx512"]["outcome"] == "not started"
    assert rows["sm90-avx512"]["message"] == f"{AVX512} failed, and this needs it"
    assert f".build-pytorch/logs/{AVX512}/" in done["stderr"]


@pytest.mark.slow
def test_other_commands_know_what_was_built_with_seeds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence counts; Flox publishes another store path, so the result is not published."""
    for name, value in world.env.items():
        monkeypatch.setenv(name, value)
    assert world.build("--share", "sm90-avx2").returncode == 0
    assert "2 seeds: 2 built" in world.project.run("invoke", "status", env=world.env).stdout
    table = world.project.run("invoke", "status", "sm90-avx2", env=world.env).stdout
    assert table.splitlines()[1].endswith("shared")
    plain = world.built("--dry-run", "sm90-avx2", "cpu-avx2")
    assert plain["by_id"]["sm90-avx2"]["action"] == "up to date"
    assert plain["by_id"]["sm90-avx2"]["reason"].endswith("built with --share")
    assert any("built with --share; a release is built in one" in w for w in plain["warnings"])
    matrix = matrix_reader.load(world.root)
    variant = next(v for v in matrix.variants if v.id == "sm90-avx2")
    result = package_states(world.root, [variant])[variant.id]
    assert result.reads_seeds
    decided = decide(result, "", without_evidence=True)
    assert decided.action == "refused"
    assert "Flox publishes a build of the recipe alone" in decided.reason
    world.link(variant.package.removeprefix("pytorch-python313-")).unlink()
    assert world.build("sm90-avx2").returncode == 0
    result = package_states(world.root, [variant])[variant.id]
    assert result.output
    assert not result.reads_seeds


@pytest.mark.slow
def test_a_seed_of_another_recipe_is_stale(world: World) -> None:
    assert world.build("--share", "sm90-avx2").returncode == 0
    world.project.edit("matrix.toml", '"-mavx2", "-mfma"', '"-mavx2", "-mbmi", "-mfma"')
    assert world.project.run("invoke", "all").returncode == 0
    shown = json.loads(world.project.run("invoke", "status", "--json", env=world.env).stdout)
    assert shown["seeds"][AVX2] == "stale"
    plan = world.built("--share", "--dry-run", "sm90-avx2")
    seed = next(seed for seed in plan["seeds"] if seed["name"] == AVX2)
    assert (seed["action"], seed["reason"]) == ("build", "the result is of another recipe")


@pytest.mark.slow
def test_builders_get_seeds_before_any_variant(world: World, tmp_path: Path) -> None:
    """One Nix builds all seeds, the next one all variants."""
    machines = tmp_path / "machines"
    machines.write_text("ssh://x.invalid aarch64-linux - 1 1 big-parallel\n")
    done = world.built("--share", "sm90-avx2", "sm90-avx512", "--builders", str(machines))
    assert done["returncode"] == 0, done["stderr"]
    calls = [line for line in done["stderr"].splitlines() if line.startswith("$ nix-store")]
    assert [call.count(".drv") for call in calls] == [3, 2]
    assert [call.count("-seed-") for call in calls] == [3, 0]
    assert {event["outcome"] for event in ended(world).values()} == {"built"}
    assert ended(world)["sm90-avx2"]["shared"]


def test_seeds_and_variants_get_what_the_recipe_gets(built: World) -> None:
    """Everything that reaches a compiler is the same; only the store of the cache differs."""
    expression = """
      let
        plain = import ./release.nix { };
        shared = import ./release.nix { share = true; };
        names = a: b: builtins.filter (n: !(a ? ${n} && b ? ${n} && a.${n} == b.${n}))
          (builtins.attrNames (a // b));
        differing = package: d: names plain.${package}.drvAttrs d.drvAttrs;
        readers = builtins.filter (n: shared.${n} ? seeds) (builtins.attrNames plain);
        seeds = builtins.filter (n: !(plain ? ${n})) (builtins.attrNames shared);
        made = seed: builtins.head (builtins.filter
          (n: builtins.match ".* ${n} .*" " ${shared.${seed}.meta.description} " != null) readers);
      in {
        variants = map (n: differing n shared.${n}) readers;
        seeds = map (n: differing (made n) shared.${n}) seeds;
        hooks = map (n: [ shared.${n}.preBuild shared.${made n}.preBuild ]) seeds;
      }
    """
    argv = ("nix-instantiate", "--eval", "--strict", "--json", "-E", expression)
    found = json.loads(built.site.nix(*argv, env={"PWD": str(built.root)}, cwd=built.root))
    assert len(found["variants"]) == 44
    assert len(found["seeds"]) == 4 + 9 + 2 + 2
    random = "NIX_OUTPATH_USED_AS_RANDOM_SEED"
    for names in found["variants"]:
        assert set(names) == {"preBuild", "postBuild", random}
    for names in found["seeds"]:
        own = {"name", "pname", "outputs", "preBuild", "buildPhase", "phases"}
        assert set(names) <= {*own, random}
    for of_seed, of_variant in found["hooks"]:
        storage = re.compile(r'CCACHE_REMOTE_STORAGE="[^"]*"')
        assert storage.sub("", of_seed) == storage.sub("", of_variant)
        assert storage.search(of_seed) != storage.search(of_variant)
