"""Builds, for real: recipes as they are, real Nix, a model of nixpkgs behind a real download."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PROJECT, WHOLE, Project, unfolded
from fuzz import kills
from world import Site, World, programs, served, wait_until

from build_pytorch.matrix import matrix_reader
from build_pytorch.results import artefacts

pytestmark = pytest.mark.skipif(programs() is not None, reason=programs() or "")


def outcome(world: World, variant: str, *argv: str) -> dict[str, str]:
    """What came of one variant when it was built."""
    row: dict[str, str] = world.built(variant, "--backend", "nix", *argv)["by_id"][variant]
    return row


def outcome_of(world: World, variant: str, *argv: str) -> dict[str, str]:
    """The same with whatever backend there is."""
    row: dict[str, str] = world.built(variant, *argv)["by_id"][variant]
    return row


# --- a build, and what is left of it ---


def test_a_variant_is_built_linked_logged_and_remembered(world: World) -> None:
    done = world.built("sm90-avx512")
    row = done["by_id"]["sm90-avx512"]
    target = world.link("cuda13_0-sm90-avx512").resolve()
    assert done["returncode"] == 0
    assert row["outcome"] == "built"
    assert row["outputs"] == [str(target)]
    assert target.is_relative_to(world.site.store)
    assert "pytorch210-python313-cuda13_0-sm90-avx512-2.10.0" in target.name
    (log,) = world.logs("cuda13_0-sm90-avx512")
    assert "--   USE_CUDA              : ON" in log
    assert "[60/60] Building CXX object" in log
    started, ended = world.ledger()
    assert (started["event"], ended["event"], ended["outcome"]) == ("started", "ended", "built")
    assert started["attempt"] == ended["attempt"]
    assert ended["steps"] == 60


def test_the_commands_are_echoed_as_a_person_would_type_them(world: World) -> None:
    name = "pytorch-python313-cpu-avx2"
    done = world.build("cpu-avx2", "--cores", "2")
    assert f"$ nix-build .flox/pkgs/{name}.nix --out-link result-{name} --cores 2" in done.stdout


def test_nix_gets_the_cores_that_memory_allows(world: World) -> None:
    world.scenario("default", 'echo "NIX_BUILD_CORES=$NIX_BUILD_CORES"; good')
    world.project.edit("matrix.toml", "reserved_memory = 0.1", "reserved_memory = 0.001")
    assert outcome(world, "cpu-avx2", "--cores", "1")["outcome"] == "built"
    (log,) = world.logs("cpu-avx2")
    assert "NIX_BUILD_CORES=1" in log


def test_without_a_selection_nothing_is_built(world: World) -> None:
    done = world.build()
    assert done.returncode == 2
    assert "--all builds all 44" in done.stderr
    assert not (world.root / ".build-pytorch/ledger.jsonl").exists()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["sm90-avx521"], 'did you mean "sm90-avx512"?'),
        (["--gpu", "sm91"], 'did you mean "sm90"?'),
        (["--isa", "avx3"], 'did you mean "avx2"?'),
        (["--gpu", "sm90", "--isa", "armv9"], "no variant is all of sm90, armv9"),
        (["cpu-avx2", "--jobs", "0"], '--jobs: found "0"; allowed: a whole number from 1'),
        (["cpu-avx2", "--backend", "guix"], "there are flox and nix"),
        (["cpu-avx2", "--keep-going", "--fail-fast"], "choose one"),
        (["cpu-avx2", "--builders", "nowhere"], "--builders nowhere: cannot be read"),
        (
            ["cpu-avx2", "--builders", "matrix"],
            "matrix.toml: no builder in it; add a line, or [[builder]]",
        ),
        (["cpu-avx2", "--copy-to", "/srv/cache"], "not the URL of a store"),
        (["cpu-avx2", "--secret-key", "key"], "name the cache, too"),
        (["sm121-avx2"], "impossible-host: no x86_64-linux machine has SM121"),
        (["sm121-armv9"], "this machine builds no aarch64-linux"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(
    world: World, argv: list[str], says: str
) -> None:
    done = world.build(*argv)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (world.root / ".build-pytorch/ledger.jsonl").exists()


def test_options_select_like_patterns_and_together_they_narrow(world: World) -> None:
    done = world.built("--gpu", "cpu", "--isa", "avx2", "--isa", "avx512", "--dry-run")
    assert list(done["by_id"]) == ["cpu-avx2", "cpu-avx512"]
    done = world.built("sm8*", "sm90-*", "--isa", "avx2", "--dry-run")
    assert set(done["by_id"]) == {"sm80-avx2", "sm86-avx2", "sm89-avx2", "sm90-avx2"}


def test_a_dry_run_builds_nothing(world: World) -> None:
    done = world.built("--all", "--dry-run")
    assert done["returncode"] == 0
    actions = [row["action"] for row in done["variants"]]
    assert (actions.count("build"), actions.count("skipped")) == (32, 12)
    reasons = {row["reason"].split(":")[0] for row in done["variants"] if row["action"] != "build"}
    assert reasons == {"impossible-host", "wrong platform"}
    assert not (world.root / ".build-pytorch/ledger.jsonl").exists()
    assert not world.link("cpu-avx2").is_symlink()


# --- obstacles ---


def test_a_recipe_that_verification_refuses_is_not_built(world: World) -> None:
    world.project.edit(
        ".flox/pkgs/pytorch-python313-cpu-avx2.nix", "cudaSupport = false", "cudaSupport = true"
    )
    done = world.build("cpu-avx2")
    assert done.returncode == 2
    assert "verification finds" in done.stderr
    assert "`invoke verify cpu-avx2` shows where" in unfolded(done.stderr)
    assert world.build("cpu-avx2", "--force").returncode == 0


def test_a_recipe_that_is_out_of_date_is_not_built_and_the_fix_is_a_command(world: World) -> None:
    world.project.edit("matrix.toml", "max_jobs = 32", "max_jobs = 16")
    done = world.build("cpu-avx2", "cpu-avx512")
    assert done.returncode == 2
    assert "cpu-avx2 cpu-avx512: the recipe is missing or out of date; run `invoke all`" in (
        unfolded(done.stderr)
    )
    assert world.project.invoke("all").returncode == 0
    assert world.build("cpu-avx2", "--dry-run").returncode == 0


def test_a_missing_tmpdir_is_an_obstacle_and_lines_of_obstacles_fit(world: World) -> None:
    long = f"/nonexistent/{'a/' * 20}"
    world.env |= {"TMPDIR": long}
    for options in ([], ["--force"], ["--dry-run"]):
        done = world.build("cpu-avx2", *options)
        assert done.returncode == 2
        assert f"TMPDIR: {Path(long)} is no folder" in unfolded(done.stderr)
        assert all(len(line) <= 80 for line in done.stderr.splitlines())


def test_the_plan_of_a_dry_run_needs_no_network(world: World) -> None:
    pin = "6a030d535719c5190187c4cec156f335e95e3211"
    world.env |= {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    world.env |= {"XDG_CACHE_HOME": f"{world.folder}/empty"}
    done = world.build("--gpu", "cpu", "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Plan: nix, 1 at once, ")
    shown = " ".join(done.stdout.split())
    assert " hours in all; " in shown
    assert " GiB of memory and " in shown
    assert "derivations not evaluated: the pin cannot be reached from here" in shown
    assert [line.split()[:2] for line in lines if line.startswith("  build")] == [
        ["build", f"cpu-{isa}"] for isa in ("avx2", "avx512", "avx512bf16", "avx512vnni")
    ]
    assert all(len(line) <= 80 for line in lines)
    document = world.built("--gpu", "cpu", "--dry-run")
    assert {"hours", "memory_gib", "disk_gib"} <= set(document)
    assert {row["derivation"] for row in document["variants"]} == {None}
    done = world.build("--gpu", "cpu")
    assert done.returncode == 2
    assert "the pinned nixpkgs cannot be downloaded" in done.stderr
    assert pin in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("disk = 0.01", "disk = 60000", "GiB free, 1 at once need 60000"),
        ("job_memory = 0.1", "job_memory = 5000", "compile jobs each need 5000 GiB"),
    ],
)
def test_what_a_build_needs_and_the_machine_has_not_stops_before_it_begins(
    world: World, old: str, new: str, says: str
) -> None:
    world.project.edit("matrix.toml", old, new)
    done = world.build("cpu-avx2")
    assert done.returncode == 2
    assert says in unfolded(done.stderr)
    assert "--force" in done.stderr


def test_a_missing_system_feature_stops_before_the_build_begins(world: World) -> None:
    world.env["NIX_CONFIG"] += "\nsystem-features = kvm"
    done = world.build("cpu-avx2")
    assert done.returncode == 2
    assert "cpu-avx2: needs the system feature big-parallel" in unfolded(done.stderr)


LACKS_IT = ('"avx512_bf16", "fma"]', '"avx512_bf16", "fma", "future_isa"]')


def test_a_variant_is_not_built_on_a_cpu_that_cannot_run_it(world: World) -> None:
    """The build runs what it has compiled; it would end with an illegal instruction."""
    world.project.edit("matrix.toml", *LACKS_IT)
    done = world.build("cpu-avx512bf16")
    assert done.returncode == 2
    assert "nothing to build: wrong CPU: a build runs what it compiles, and " in done.stderr
    assert " lacks future_isa; no [[builder]] states gccarch-cooperlake; --force" in done.stderr
    both = world.built("cpu-avx512bf16", "cpu-avx2", "--dry-run")
    actions = {name: row["action"] for name, row in both["by_id"].items()}
    assert actions == {"cpu-avx512bf16": "skipped", "cpu-avx2": "build"}
    assert world.build("cpu-avx512bf16", "--force").returncode == 0


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ("big-parallel", "no [[builder]] states gccarch-cooperlake"),
        ('big-parallel", "gccarch-cooperlake', "--builders matrix: ssh://nix@big.example.org"),
    ],
)
def test_the_builders_that_could_build_it_are_named(world: World, features: str, says: str) -> None:
    world.project.edit("matrix.toml", *LACKS_IT)
    with (world.root / "matrix.toml").open("a") as file:
        file.write(
            '\n[[builder]]\nuri = "ssh://nix@big.example.org"\nplatforms = ["x86_64-linux"]\n'
            f'features = ["{features}"]\n'
        )
    assert says in world.build("cpu-avx512bf16").stderr
    done = world.built("cpu-avx512bf16", "--builders", "matrix", "--dry-run")
    (row,) = done["variants"]
    is_able = "cooperlake" in features
    assert (row["action"], row["where"]) == (
        ("build", "ssh://nix@big.example.org") if is_able else ("skipped", "")
    )


def test_a_recipe_that_does_not_evaluate_is_an_obstacle(world: World) -> None:
    world.project.edit(
        ".flox/pkgs/pytorch-python313-cpu-avx2.nix", "inherit (nixpkgs_pinned) lib;", ""
    )
    done = world.build("cpu-avx2", "cpu-avx512", "--force")
    assert done.returncode == 2
    assert "pytorch-python313-cpu-avx2: undefined variable 'lib'" in unfolded(done.stderr)


def test_recipes_that_do_not_evaluate_for_one_reason_are_one_obstacle(world: World) -> None:
    world.env |= {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none/cache"}
    done = world.build("cpu-*", "sm90-*", "--force")
    assert done.returncode == 2
    assert "1 obstacle:" in done.stderr
    assert " and 5 more: " in unfolded(done.stderr)


def test_something_with_the_name_of_the_result_link_is_an_obstacle(world: World) -> None:
    world.link("cpu-avx2").mkdir()
    done = world.build("cpu-avx2", "--backend", "nix")
    assert done.returncode == 2
    assert "result-pytorch-python313-cpu-avx2: not a link; move it away" in unfolded(done.stderr)


def test_a_link_that_leads_elsewhere_is_no_result(world: World) -> None:
    world.link("cpu-avx512").symlink_to("/etc/hostname")
    done = world.built("cpu-*", "--dry-run")
    assert {row["action"] for row in done["variants"]} == {"build"}


def test_a_stale_link_is_no_result_of_a_program_that_did_nothing(world: World) -> None:
    assert world.build("cpu-avx2", "--backend", "nix").returncode == 0
    world.link("cpu-avx512").symlink_to(world.link("cpu-avx2").resolve())
    world.program("flox", "#!/bin/sh\nexit 0\n")
    world.program("nix-build", "#!/bin/sh\nexit 0\n")
    world.project.commit()
    for backend in ("flox", "nix"):
        row = world.built("cpu-avx512", "--backend", backend)["by_id"]["cpu-avx512"]
        assert row["outcome"] == "failed"
        assert "no error, and no new result-pytorch-python313-cpu-avx512" in row["message"]


def test_a_recipe_that_changes_while_others_build_is_left_for_the_next_run(world: World) -> None:
    world.scenario("cpu-avx2", "phases; await go; finish")
    run = world.start("cpu-avx2", "cpu-avx512", "--json")
    world.wait_for("started")
    recipe = world.root / ".flox/pkgs/pytorch-python313-cpu-avx512.nix"
    recipe.write_text(recipe.read_text().replace("-j32", "-j31"))
    world.mark("go")
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "cpu-avx512: not started: its recipe has changed since the plan" in output
    assert [e["variant"] for e in world.ledger() if e["event"] == "started"] == ["cpu-avx2"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_full_state_folder_ends_no_build(world: World) -> None:
    folder = world.root / ".build-pytorch"
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("no tmpfs may be mounted here")
    try:
        world.scenario("default", "phases; yes xxxxxxxxxxxxxxxxxxxxxxxx | head -n 9000; finish")
        done = world.built("cpu-avx2", "cpu-avx512")
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert done["returncode"] == 0, done["stderr"]
    assert "its log is incomplete: No space left on device" in done["stderr"]
    assert world.link("cpu-avx512").exists()


def test_what_flox_left_running_is_ended_before_another_attempt(world: World) -> None:
    world.program("flox", '#!/bin/sh\n[ "$1" = build ] || exit 64\n/bin/sleep 4242 &\nkill -9 $$\n')
    world.project.commit()
    assert outcome_of(world, "cpu-avx2", "--cores", "2")["cause"] == "out-of-memory"
    ran = subprocess.run(["pgrep", "-f", "sleep 4242"], capture_output=True, check=False)
    assert ran.returncode == 1


def test_json_is_one_document_in_every_outcome(world: World) -> None:
    for argv, code in (
        (["sm121-avx2"], 2),
        (["cpu-avx2", "--copy-to", "file:///proc/nowhere"], 1),
        (["cpu-avx2"], 0),
    ):
        done = world.built(*argv)
        assert (done["returncode"], done["exit_code"]) == (code, code), done["stderr"]


def test_two_runs_in_one_checkout_keep_apart(world: World) -> None:
    world.scenario("default", "phases; sleep 30; finish")
    first = world.start("cpu-avx2")
    try:
        world.wait_for("started")
        second = world.build("cpu-avx512")
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=30)
    assert second.returncode == 2
    assert "another run builds or publishes here" in second.stderr


# --- builds that can only end badly are stopped ---


SICK = {
    "sm90-avx2": ("cuda-not-found", "warning 'PyTorch: CUDA cannot be found.'"),
    "sm90-avx512": ("not-compiling-cuda", "warning 'Not compiling with CUDA.'"),
    "sm90-avx512bf16": ("cuda-off", "cuda=OFF; summary"),
    "sm90-avx512vnni": (
        "magma-off",
        "summary; echo '-- MAGMA not found. Compiling without MAGMA support'",
    ),
    "sm89-avx2": ("wrong-capability", "capability=8.0; phases; configure"),
    "sm89-avx512": ("wrong-nvcc-flags", "number=80; summary"),
    "sm89-avx512bf16": (
        "wrong-architecture",
        "echo 'cmake -GNinja -DCMAKE_CUDA_ARCHITECTURES=52 -DX=1'",
    ),
    "sm89-avx512vnni": (
        "unknown-architecture",
        "warning 'Found Unknown CUDA Architecture Name in X: sm_89'",
    ),
    "sm86-avx2": ("wrong-cuda", "echo '--     CUDA version        : 12.8'"),
    "sm86-avx512": ("wrong-version", "echo 'Building wheel torch-2.9.1'"),
    "cpu-avx2": ("cuda-on", "cuda=ON; summary"),
}


def test_builds_that_can_only_end_badly_are_stopped_at_once(world: World) -> None:
    for variant, (_, line) in SICK.items():
        world.scenario(variant, f"{line}; sleep 600; finish")
    # The canary of the group succeeds, so no fault prevents the builds of its siblings.
    start = time.monotonic()
    rows = world.built("sm120-avx2", *SICK, "--backend", "nix", "--jobs", "4")["by_id"]
    assert time.monotonic() - start < 300
    assert rows.pop("sm120-avx2")["outcome"] == "built"
    assert {
        variant: (row["outcome"], row["cause"], bool(row["message"]))
        for variant, row in rows.items()
    } == {variant: ("stopped", rule, True) for variant, (rule, _) in SICK.items()}
    world.wait_for_no_builders()


def test_a_stopped_build_says_the_line_its_meaning_and_what_to_do(world: World) -> None:
    world.scenario("default", "cuda=OFF; summary; sleep 600")
    done = world.build("sm90-avx2")
    assert done.returncode == 1
    assert "line of the log: --   USE_CUDA              : OFF" in done.stdout
    assert "PyTorch's summary reports a CPU-only build" in done.stdout
    assert "what to do: the recipe needs .override { cudaSupport = true; }" in done.stdout
    log = re.search(r"whole log: (\S+)", done.stdout)
    assert log
    assert (world.root / log[1]).is_file()


# --- failures that have a name ---


KNOWN = {
    "sm90-avx2": (
        "out-of-memory",
        "echo 'nvcc error : cicc died due to signal 9 (Kill signal)'",
    ),
    "sm90-avx512": (
        "disk-full",
        "echo 'fatal error: error writing to /build/x.s: No space left on device'",
    ),
    "sm90-avx512bf16": (
        "magma-clock-rate",
        """echo "a.cu: error: 'cudaDeviceProp' has no member named 'clockRate'\"""",
    ),
    "sm90-avx512vnni": (
        "cccl-headers",
        "echo 'a.cpp:1: error: cuda/std/utility: No such file'",
    ),
    "sm89-avx2": (
        "torch-feature-version",
        "echo '#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_10_0'",
    ),
    "sm89-avx512": (
        "find-cuda-toolkit",
        """warning 'file INSTALL cannot find "/x/Modules/FindCUDAToolkit.cmake"' file""",
    ),
}


def test_known_failures_are_named_instead_of_dumped(world: World) -> None:
    for variant, (_, line) in KNOWN.items():
        world.scenario(variant, f"phases; summary; {line}; exit 1")
    done = world.built("sm120-avx2", *KNOWN, "--backend", "nix", "--cores", "1", "--jobs", "3")
    rows = done["by_id"]
    assert rows.pop("sm120-avx2")["outcome"] == "built"
    assert {variant: (row["outcome"], row["cause"]) for variant, row in rows.items()} == {
        variant: ("failed", rule) for variant, (rule, _) in KNOWN.items()
    }


def test_an_unknown_failure_shows_its_last_lines_and_its_log(world: World) -> None:
    world.scenario("default", "phases; summary; ninja; echo 'x.cpp:3: error: boom'; exit 1")
    done = world.build("cpu-avx2")
    assert done.returncode == 1
    assert "for a reason that no log rule names" in done.stdout
    _, _, last = done.stdout.partition("for a reason that no log rule names")
    shown = [line for line in last.splitlines() if line.startswith("    ")]
    assert "    x.cpp:3: error: boom" in shown
    assert len(shown) == 30


def test_out_of_memory_is_tried_once_more_with_half_the_cores(world: World) -> None:
    world.scenario(
        "default",
        'echo "cores $NIX_BUILD_CORES"; if [ "$NIX_BUILD_CORES" -gt 2 ]; then '
        "echo 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1; fi; good",
    )
    row = outcome(world, "cpu-avx2", "--cores", "4")
    assert row["outcome"] == "built"
    assert [log.split("cores ")[-1].split("\n")[0] for log in world.logs("cpu-avx2")] == ["4", "2"]
    world.scenario("default", "echo Killed; exit 1")
    assert outcome(world, "cpu-avx512", "--cores", "8")["cause"] == "out-of-memory"
    assert len(world.logs("cpu-avx512")) == 2


def test_a_download_that_fails_is_tried_again_and_then_named(world: World) -> None:
    world.scenario(
        "default",
        "echo 'error: unable to download https://x.org/y: Could not resolve host'; exit 1",
    )
    assert outcome(world, "cpu-avx2")["cause"] == "network"
    assert len(world.logs("cpu-avx2")) == 4


def test_a_download_that_failed_before_compiling_is_not_the_cause_of_what_fails_later(
    world: World,
) -> None:
    world.scenario(
        "default", "phases; ninja; echo 'test: Connection refused'; echo 'x.cpp: boom'; exit 1"
    )
    row = outcome(world, "cpu-avx2")
    assert row["cause"] is None
    assert len(world.logs("cpu-avx2")) == 1


def test_no_network_at_all_is_one_line(world: World, tmp_path: Path) -> None:
    world.env |= {"https_proxy": "http://127.0.0.1:1", "XDG_CACHE_HOME": str(tmp_path / "fresh")}
    world.env["NIX_CONFIG"] += "\ndownload-attempts = 1"
    done = world.build("cpu-avx2")
    assert done.returncode == 2
    assert "the pinned nixpkgs cannot be downloaded" in done.stderr


# --- hashes ---


@pytest.fixture
def strict_world(project: Project, tmp_path: Path) -> Iterator[World]:
    """A world in which sources have hashes, and not those of matrix.toml."""
    folder = tmp_path / "strict"
    folder.mkdir()
    with served(Site(folder, checks_hashes=True)) as site:
        yield World(project, site, tmp_path)


def test_a_wrong_hash_is_named_and_siblings_are_spared(strict_world: World) -> None:
    done = strict_world.built("cpu-*")
    causes = [row.get("cause") for row in done["variants"]]
    assert causes == ["hash-mismatch", None, None, None]
    outcomes = [row["outcome"] for row in done["variants"]]
    assert outcomes == ["failed", "not started", "not started", "not started"]
    assert done["returncode"] == 4
    log = done["variants"][0]["log"]
    assert f"`invoke prefetch --from-log {log}`" in done["stderr"]
    # The offer is good: it takes the hash, and the build then goes on.
    argv = ["prefetch", "--from-log", log]
    fixed = strict_world.project.run("invoke", *argv, env=strict_world.env)
    assert fixed.returncode == 1  # the tag is as it was, and its source is not
    fixed = strict_world.project.run("invoke", *argv, "--accept", env=strict_world.env)
    assert fixed.returncode == 0
    assert strict_world.build("cpu-avx2").returncode == 0


def test_with_fix_hashes_wrong_ones_are_taken_and_the_builds_go_on(strict_world: World) -> None:
    matrix = strict_world.root / "matrix.toml"
    # The hashes of other revisions, as in a matrix whose versions were edited by hand.
    before = re.sub('(?m)^(hash_of = "(https:.*)?).*"', '\\1x"', matrix.read_text())
    before = before.replace('hash_of = "x"', 'hash_of = "v2.9.1"')
    matrix.write_text(before)
    done = strict_world.built("sm90-avx2", "cpu-avx2", "--fix-hashes")
    assert [row["outcome"] for row in done["variants"]] == ["built", "built"]
    lines = zip(before.splitlines(), matrix.read_text().splitlines(), strict=True)
    changed = [old.split()[0] for old, new in lines if old != new]
    assert changed == ["hash", "hash_of"] * 2  # the source of torch, the patch of MAGMA


def test_with_fix_hashes_the_changed_hash_of_an_unchanged_tag_is_not_taken(
    strict_world: World,
) -> None:
    before = (strict_world.root / "matrix.toml").read_text()
    done = strict_world.built("cpu-avx2", "--fix-hashes")
    assert [row["cause"] for row in done["variants"]] == ["hash-mismatch"]
    assert "--accept takes the new hash" in " ".join(done["stderr"].split())
    assert (strict_world.root / "matrix.toml").read_text() == before


# --- resume ---


def test_a_second_run_builds_only_what_is_not_built(world: World) -> None:
    world.scenario("cpu-avx512", "phases; exit 1")
    assert world.built("cpu-*")["returncode"] == 1
    world.scenario("cpu-avx512", "good")
    again = world.built("cpu-*")
    actions = {row["variant"]: row["action"] for row in again["variants"]}
    assert actions.pop("cpu-avx512") == "build"
    assert set(actions.values()) == {"up to date"}
    assert world.built("cpu-*")["by_id"]["cpu-avx512"]["action"] == "up to date"


def test_the_store_decides_what_is_built_not_the_ledger(world: World) -> None:
    assert world.build("cpu-avx2").returncode == 0
    target = str(world.link("cpu-avx2").resolve())
    world.link("cpu-avx2").unlink()
    row = world.built("cpu-avx2", "--dry-run")["by_id"]["cpu-avx2"]
    assert (row["action"], row["reason"]) == (
        "build",
        "in the store already, only the link is missing",
    )
    world.site.nix("nix-store", "--delete", "--ignore-liveness", target)
    row = world.built("cpu-avx2", "--dry-run")["by_id"]["cpu-avx2"]
    assert (row["action"], row["reason"]) == ("build", "not built yet")


def test_a_changed_recipe_is_built_again(world: World) -> None:
    assert world.build("cpu-avx2").returncode == 0
    world.project.edit("matrix.toml", "max_jobs = 32", "max_jobs = 31")
    assert world.project.invoke("phase4").returncode == 0
    row = world.built("cpu-avx2")["by_id"]["cpu-avx2"]
    assert row["reason"] == "the result is of another recipe"
    assert row["outcome"] == "built"


def test_without_a_ledger_the_result_in_the_store_is_still_used(world: World) -> None:
    assert world.build("cpu-avx2").returncode == 0
    (world.root / ".build-pytorch/ledger.jsonl").unlink()
    row = world.built("cpu-avx2")["by_id"]["cpu-avx2"]
    assert row["outcome"] == "built"
    assert world.logs("cpu-avx2")[-1].count("[60/60]") == 0


def test_a_torn_last_line_of_the_ledger_is_passed_over(world: World) -> None:
    assert world.build("cpu-avx2").returncode == 0
    ledger = world.root / ".build-pytorch/ledger.jsonl"
    with ledger.open("a") as file:
        file.write('{"event":"ended","at":"2026-')
    assert world.built("cpu-avx2")["by_id"]["cpu-avx2"]["action"] == "up to date"
    assert world.build("cpu-avx512").returncode == 0
    lines = ledger.read_text().splitlines()
    torn = [line for line in lines if not line.endswith("}")]
    assert torn == ['{"event":"ended","at":"2026-']
    assert len(lines) == 5


def test_fail_fast_ends_everything_at_the_first_failure(world: World) -> None:
    world.scenario("cpu-avx2", "phases; exit 1")
    done = world.built("cpu-*", "--fail-fast")
    assert [row["outcome"] for row in done["variants"]] == ["failed", *["not started"] * 3]
    assert done["returncode"] == 4


def test_keep_going_is_the_default_and_the_exit_code_counts(world: World) -> None:
    world.scenario("cpu-avx2", "phases; exit 1")
    world.scenario("cpu-avx512bf16", "phases; exit 1")
    done = world.build("cpu-*")
    assert done.returncode == 2
    assert "2 built, 2 not" in done.stdout


def test_several_variants_are_built_at_once(world: World) -> None:
    others = ("cpu-avx512bf16", "cpu-avx512vnni")
    for one, other in (others, others[::-1]):
        world.scenario(one, f'phases; >"$control/{one}.runs"; await {other}.runs; finish')
    assert world.build("cpu-avx512*", "--jobs", "3").returncode == 0
    # The canary ran alone.
    events = [event["event"] for event in world.ledger()]
    assert events == ["started", "ended", "started", "started", "ended", "ended"]


# --- ends before their time ---


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_builds_politely_and_leaves_no_orphans(
    world: World, number: int, code: int
) -> None:
    world.scenario("cpu-avx512", "phases; sleep 600; finish")
    run = world.start("cpu-avx2", "cpu-avx512")
    world.wait_for("started", 2)
    run.send_signal(number)
    output, _ = run.communicate(timeout=30)
    assert run.returncode == code, output
    assert "Traceback" not in output
    world.wait_for_no_builders()
    assert [e["outcome"] for e in world.ledger() if e["event"] == "ended"] == [
        "built",
        "interrupted",
    ]
    assert world.link("cpu-avx2").exists()
    world.scenario("cpu-avx512", "good")
    assert world.build("cpu-avx2", "cpu-avx512").returncode == 0


def test_a_lost_terminal_ends_nothing(world: World) -> None:
    world.scenario("default", "phases; await go; finish")
    run = world.start("cpu-avx2", "cpu-avx512")
    world.wait_for("started")
    assert run.stdout is not None
    run.stdout.close()  # the reader is gone
    os.killpg(run.pid, signal.SIGHUP)
    world.mark("go")
    assert run.wait(timeout=60) == 0
    assert world.link("cpu-avx512").exists()


def test_a_second_ctrl_c_ends_what_does_not_want_to_end(world: World) -> None:
    # A stand-in for a Nix that ignores signals.
    asked, runs = world.folder / "asked", world.folder / "runs"
    world.program(
        "nix-build",
        f"#!/bin/sh\ntrap '>{asked}' INT\ntrap '' TERM\n>{runs}\nwhile :; do /bin/sleep 1; done\n",
    )
    run = world.start("cpu-avx2", "--backend", "nix")
    wait_until(runs.exists, "nix-build")
    run.send_signal(signal.SIGINT)
    wait_until(asked.exists, "SIGINT")
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=8)
    assert run.returncode == 130, output
    assert world.ledger()[-1]["outcome"] == "interrupted"


def test_kill_9_of_the_command_alone_ends_its_builds(world: World) -> None:
    world.scenario("default", "phases; sleep 600; finish")
    run = world.start("cpu-avx2")
    world.wait_for("started")
    run.kill()
    world.wait_for_no_builders()
    run.communicate()


KILLS = int(os.environ.get("BUILD_PYTORCH_TEST_KILLS", "10"))


def test_kill_9_at_any_moment_loses_no_finished_build(world: World) -> None:
    """Set BUILD_PYTORCH_TEST_KILLS for more rounds than the few of an ordinary run."""
    seed = int(os.environ.get("BUILD_PYTORCH_TEST_SEED", "0")) or time.time_ns() % (1 << 30)
    counts = kills.builds(world, random.Random(seed), KILLS)
    assert counts["build kills"], f"seed {seed}"


def test_a_log_of_200_mb_streams_in_constant_memory(world: World) -> None:
    megabytes = int(os.environ.get("BUILD_PYTORCH_TEST_LOG_MB", "50"))
    line = "x" * 999
    world.scenario("default", f"phases; yes {line} | head -n {megabytes * 1000}; finish")
    peaks = []
    for variant in ("cpu-avx2", "cpu-avx512"):
        if variant == "cpu-avx2":
            world.scenario(variant, "good")
        code = (
            "import resource, subprocess, sys\n"
            f"subprocess.run([sys.executable, '-m', 'invoke', 'build', '{variant}'], check=True)\n"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=world.root,
            env={**os.environ, **world.env},
            check=True,
            capture_output=True,
            text=True,
        )
        peaks.append(int(done.stdout.splitlines()[-1]))
    (log,) = (world.root / ".build-pytorch/logs").glob("*-cpu-avx512/*.log")
    assert log.stat().st_size > megabytes * 1_000_000
    # The largest process of all that ran, Nix included; a log in memory would be far above.
    assert peaks[1] - peaks[0] < 30_000


# --- Flox ---


FLOX = """#!/bin/bash
# Answers as `flox build NAME` does: a package of .flox/pkgs, Git-tracked, built with Nix.
[ "$1" = build ] || exit 64
git ls-files --error-unmatch ".flox/pkgs/$2.nix" >/dev/null 2>&1 || {
    echo "error: package '$2' not found" >&2; exit 1; }
echo "Building $2 in Nix expression mode"
printenv NIX_CONFIG | grep '^cores' > flox-cores
pname=pytorch210-${2#pytorch-}
set -o pipefail
nix-build ".flox/pkgs/$2.nix" -o "result-$2" 2>&1 | sed -u "s/^/python3.13-$pname> /"; code=$?
[ $code = 0 ] && echo "Completed build of $2" || echo "ERROR: failed to build"
exit $code
"""


def test_flox_is_taken_where_it_is_installed(world: World) -> None:
    world.program("flox", FLOX)
    world.project.commit()
    done = world.build("cpu-avx2", "--cores", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "$ flox build pytorch-python313-cpu-avx2" in done.stdout
    assert (world.root / "flox-cores").read_text() == "cores = 3\n"
    assert world.link("cpu-avx2").exists()
    assert world.ledger()[0]["backend"] == "flox"
    assert world.ledger()[1]["steps"] == 60


def test_flox_builds_in_the_environment_of_the_release(
    whole: Project, site: Site, tmp_path: Path
) -> None:
    """A release has an environment of its own where its recipes are in another .flox/pkgs."""
    world = World(whole, site, tmp_path)
    world.program("flox", "#!/bin/sh\necho $@ > flox-words\nexit 1\n")
    world.project.commit()
    done = world.build("cuda12_8/sm61-avx", "--force")
    package = "pytorch-python313-cuda12_8-sm61-avx"
    assert f"$ flox build --dir releases/cuda12_8 {package}" in done.stdout
    assert (world.root / "flox-words").read_text() == f"build --dir releases/cuda12_8 {package}\n"
    link = world.root / f"releases/cuda12_8/result-{package}"
    link.symlink_to(world.site.store / "0-nothing")
    variant = next(v for v in matrix_reader.parse(WHOLE).variants if v.package == package)
    assert artefacts.link(world.root, variant) == link


def test_flox_builds_only_what_git_tracks(world: World) -> None:
    world.program("flox", FLOX)
    done = world.build("cpu-avx2")
    assert done.returncode == 2
    assert "not a Git checkout" in done.stderr
    world.project.commit()
    world.project.git("rm", "-q", "--cached", ".flox/pkgs/pytorch-python313-cpu-avx2.nix")
    done = world.build("cpu-avx2")
    assert "git add .flox/pkgs/pytorch-python313-cpu-avx2.nix" in unfolded(done.stderr)


def test_floxs_output_is_watched_as_well(world: World) -> None:
    world.program("flox", FLOX)
    world.project.commit()
    world.scenario("default", "cuda=OFF; summary; sleep 60; finish")
    row = world.built("sm90-avx2")["by_id"]["sm90-avx2"]
    assert (row["outcome"], row["cause"]) == ("stopped", "cuda-off")


def test_without_flox_and_nix_it_says_what_to_install(world: World) -> None:
    python = Path(sys.executable).parent
    done = world.project.run(
        "invoke", "build", "cpu-avx2", env={**world.env, "PATH": f"{world.bin}:{python}"}
    )
    assert done.returncode == 2
    assert "neither flox nor nix-build is installed" in done.stderr


def test_without_flox_and_nix_the_plan_is_shown_with_the_obstacle(world: World) -> None:
    python = Path(sys.executable).parent
    env = {**world.env, "PATH": f"{world.bin}:{python}"}
    done = world.project.run("invoke", "build", "cpu-avx2", "--dry-run", env=env)
    assert done.returncode == 2
    assert "  build       cpu-avx2  not built yet" in done.stdout
    assert "\n  neither flox nor nix-build is installed" in done.stderr


# --- status ---


def test_status_says_of_each_variant_how_far_it_is(world: World) -> None:
    assert world.build("cpu-avx2").returncode == 0
    world.scenario("cpu-avx512", "phases; exit 1")
    world.build("cpu-avx512")
    world.project.edit(".flox/pkgs/pytorch-python313-cpu-avx512bf16.nix", "openblas", "openblas2")
    (world.root / ".flox/pkgs/pytorch-python313-cpu-avx512vnni.nix").unlink()
    done = world.project.run("invoke", "status", "cpu-*", "--json", env=world.env)
    document = json.loads(done.stdout)
    rows = {row["variant"]: row for row in document["variants"]}
    assert rows["cpu-avx2"]["built"] == "yes"
    assert rows["cpu-avx2"]["output"] == str(world.link("cpu-avx2").resolve())
    assert rows["cpu-avx512"]["built"] == "failed"
    assert rows["cpu-avx512bf16"]["recipe"] == "edited"
    assert rows["cpu-avx512bf16"]["verified"] != "yes"
    assert rows["cpu-avx512vnni"]["recipe"] == "missing"
    assert document["totals"]["built"] == 1
    table = world.project.run("invoke", "status", "cpu-*", env=world.env)
    assert "4 variants: 2 current, 2 verified, 1 built" in table.stdout


def test_status_notices_that_the_store_lost_a_result(world: World) -> None:
    assert world.build("cpu-avx2").returncode == 0
    target = str(world.link("cpu-avx2").resolve())
    world.site.nix("nix-store", "--delete", "--ignore-liveness", target)
    done = world.project.run("invoke", "status", "cpu-avx2", "--json", env=world.env)
    assert json.loads(done.stdout)["variants"][0]["built"] == "no"


# --- nox ---


def test_nox_has_a_session_with_tags_for_each_variant(world: World) -> None:
    done = world.project.nox("--list", "--json", "-t", "cuda13_0")
    sessions = json.loads(done.stdout)
    assert len(sessions) == 44
    assert sessions[0]["session"] == "build(sm120-avx2)"
    assert sessions[0]["tags"] == ["sm120", "avx2", "cuda13_0", "gpu"]
    chosen = world.project.nox("-t", "armv9", "--list")
    selected = [line.split()[1] for line in chosen.stdout.splitlines() if line.startswith("* ")]
    assert selected == ["build(sm110-armv9)", "build(sm121-armv9)"]


def test_a_nox_session_builds_its_variant(world: World) -> None:
    done = world.project.run("nox", "-s", "build(cpu-avx2)", env=world.env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert world.link("cpu-avx2").exists()


def test_a_tag_goes_on_behind_variants_that_are_skipped_or_fail(world: World) -> None:
    world.scenario("sm90-avx2", "phases; exit 1")
    done = world.project.run("nox", "-t", "avx2", "-k", "sm121 or sm90 or cpu", env=world.env)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "impossible-host" in said
    assert "build(sm121-avx2): skipped" in said
    assert "build(sm90-avx2): aborted" in said
    assert "build(cpu-avx2): success" in said


def test_nox_does_not_build_the_whole_fleet_by_accident(world: World) -> None:
    done = world.project.run("nox", "-s", "build", env=world.env)
    assert done.returncode == 2
    assert "name what to build, such as sm120-avx2 or --gpu sm90; --all builds" in done.stderr
    assert not (world.root / ".build-pytorch/ledger.jsonl").exists()
    options = ("cpu-avx2", "--isa", "avx2", "--dry-run")
    done = world.project.run("nox", "-s", "build", "--", *options, env=world.env)
    assert done.returncode == 0
    assert "build       cpu-avx2  not built yet" in done.stdout


def test_nox_lists_its_sessions_even_where_the_matrix_is_wrong(world: World) -> None:
    (world.root / "matrix.toml").write_text("nonsense")
    done = world.project.nox("--list")
    assert done.returncode == 0
    assert "verify" in done.stdout


def test_the_project_has_no_state_in_git() -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", ".build-pytorch/ledger.jsonl", "result-x"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ignored.stdout.split() == [".build-pytorch/ledger.jsonl", "result-x"]
