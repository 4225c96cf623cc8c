"""Builds, for real: recipes, real Nix, and a model of nixpkgs."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import kills
import pytest
from conftest import OF_ANOTHER_USER, PROJECT, Project, copied_project, needs_nix, unfolded
from test_prefetch import OTHER
from world import Site, World, model, prepare

from build_pytorch.base import files, git
from build_pytorch.matrix import matrix_reader

pytestmark = needs_nix


def outcome(world: World, variant: str, *argv: str, backend: str = "nix") -> dict[str, str]:
    """What came of one variant when it was built."""
    row: dict[str, str] = world.built(variant, "--backend", backend, *argv)["by_id"][variant]
    return row


# --- a build, and what is left of it ---


def test_a_variant_is_built_linked_logged_and_remembered(built: World) -> None:
    name = "pytorch-python313-cpu-avx512"
    target = built.link("cpu-avx512").resolve()
    assert target.is_relative_to(built.site.store)
    assert "pytorch210-python313-cpu-avx512-2.10.0" in target.name
    (log,) = built.logs("cpu-avx512")
    assert "--   USE_CUDA              : OFF" in log
    assert "[60/60] Building CXX object" in log
    assert "NIX_BUILD_CORES=1" in log
    started, ended = (event for event in built.ledger() if event["variant"] == "cpu-avx512")
    assert (started["event"], ended["event"], ended["outcome"]) == ("started", "ended", "built")
    assert started["attempt"] == ended["attempt"]
    assert ended["outputs"] == [str(target)]
    assert built.first_build
    said = built.first_build.stdout
    built_by = f"$ nix-build .flox/pkgs/{name}.nix --out-link result-{name} --cores 1 --log-format"
    assert f"{built_by} internal-json\n" in said
    assert re.search(rf"cpu-avx512: built in [\d:]+: {target}\n", said)
    assert said.endswith("2 built, 0 not\n")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["sm90-avx521"], 'did you mean "sm90-avx512"?'),
        (["cpu-avx2,sm91-*"], 'no package matches "sm91-*"'),
        (["cpu-avx2", "--jobs", "0"], '--jobs: found "0"; allowed: a whole number from 1'),
        (["cpu-avx2", "--backend", "guix"], "there are flox and nix"),
        (["cpu-avx2", "--cores", "many"], '--cores: found "many"; allowed: a whole number from 0'),
        (["cpu-avx2", "--builders", "ssh://x", "--backend", "flox"], "only with Nix"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(
    built: World, argv: list[str], says: str
) -> None:
    before = built.ledger()
    done = built.build(*argv)
    assert done.returncode == 2
    assert says in done.stderr
    assert built.ledger() == before


@pytest.mark.parametrize(
    ("id_", "why"),
    [
        ("sm121-avx2", "impossible-host: no x86_64-linux machine has SM121"),
        ("sm121-armv9", "this machine builds no aarch64-linux"),
    ],
)
def test_what_cannot_be_built_here_is_refused_for_one_reason(
    built: World, id_: str, why: str
) -> None:
    for words in ((id_,), (id_, "--dry-run")):
        done = built.build(*words)
        assert (done.returncode, "nothing to build: " in done.stderr) == (2, True)
        assert unfolded(done.stdout + done.stderr).count(why) == 1


def test_patterns_with_commas_and_states_select_what_is_built(built: World) -> None:
    done = built.built("sm8*-avx2, cpu-avx2", "--dry-run")
    assert set(done["by_id"]) == {"sm80-avx2", "sm86-avx2", "sm89-avx2", "cpu-avx2"}
    assert list(built.built("built", "--dry-run")["by_id"]) == ["cpu-avx2", "cpu-avx512"]
    assert len(built.built("not-built", "--with", "torchaudio", "--dry-run")["by_id"]) > 44


def test_a_dry_run_builds_nothing(built: World) -> None:
    before = built.ledger()
    done = built.built("all", "--dry-run")
    assert done["returncode"] == 0
    actions = [row["action"] for row in done["variants"]]
    counts = {action: actions.count(action) for action in set(actions)}
    assert counts == {"build": 30, "up to date": 2, "skipped": 12}
    reasons = {row["reason"].split(":")[0] for row in done["variants"]}
    assert {"impossible-host", "wrong platform", "not built yet"} < reasons
    assert {"hours", "memory_gib", "disk_gib"} <= set(done)
    assert built.ledger() == before
    assert not built.link("cuda13_0-sm90-avx2").is_symlink()


# --- obstacles ---


RECIPE = ".flox/pkgs/pytorch-python313-cpu-avx512vnni.nix"


def test_obstacles_stop_all_before_it_begins(changed: World) -> None:
    """Each with what to do; --force builds what verification refuses."""
    changed.project.edit("matrix.toml", "disk = 0.01", "disk = 60000")
    changed.project.edit("matrix.toml", "job_memory = 1", "job_memory = 5000")
    said = unfolded(changed.build("sm90-avx2", "--dry-run").stderr)
    assert re.search(r"disk: \d+ GiB free in .*, 1 at once need 60000; ", said)
    assert "compile jobs each need 5000 GiB" in said
    changed.link("cpu-avx512vnni").mkdir()
    changed.project.edit(RECIPE, "cudaSupport = false", "cudaSupport = true")
    wanted = ("cpu-avx512bf16,cpu-avx512vnni", "--dry-run")
    done = changed.build(*wanted)
    said = unfolded(done.stderr)
    assert (done.returncode, "a build cannot start: 2 obstacles:" in said) == (2, True)
    assert "result-pytorch-python313-cpu-avx512vnni: not a link; move it away" in said
    assert "cpu-avx512vnni: verification finds " in said
    assert "`invoke all` writes recipes again, `invoke verify --packages cpu-avx512vnni`" in said
    changed.link("cpu-avx512vnni").rmdir()
    assert changed.build(*wanted, "--force").returncode == 0
    changed.project.edit(RECIPE, "inherit (nixpkgs_pinned) lib;", "")
    done = changed.build(*wanted, "--force")
    assert done.returncode == 2
    assert "pytorch-python313-cpu-avx512vnni: undefined variable 'lib'" in unfolded(done.stderr)


def test_a_dry_run_says_its_hours(reader: World) -> None:
    wanted = ("sm90-avx2,sm90-avx2+torchvision", "--dry-run", "--cores", "2")
    done = reader.build(*wanted)
    shown = unfolded(done.stdout)
    for text in (
        "2 cores each, about 4.0 hours in all (estimate)",
        "4.0 hours, estimate of matrix.toml: sm90-avx2",
        "unknown time: sm90-avx2+torchvision",
        "note Nix builds 2 derivations and fetches 0",
    ):
        assert text in shown
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    document = json.loads(reader.build(*wanted, "--json").stdout)
    rows = {row["variant"]: row for row in document["variants"]}
    assert rows["sm90-avx2"]["hours"] == document["hours"] == 3.95
    assert "hours" not in rows["sm90-avx2+torchvision"]


def test_the_plan_of_a_dry_run_needs_no_network(changed: World) -> None:
    changed.project.edit("matrix.toml", model()[1], OTHER)  # a hash that the store does not have
    assert changed.project.invoke("phase2").returncode == 0
    changed.env |= dict.fromkeys(("https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9")
    changed.env["NIX_CONFIG"] += "\ndownload-attempts = 1"
    done = changed.build("sm90-avx2", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "  build       sm90-avx2" in done.stdout
    assert "derivations not evaluated: the pin cannot be reached from here" in unfolded(done.stdout)
    done = changed.build("sm90-avx2")
    assert done.returncode == 2
    assert "the pinned nixpkgs cannot be downloaded" in done.stderr


def test_a_stale_link_is_no_result_of_a_program_that_did_nothing(changed: World) -> None:
    name = "cpu-avx512bf16"
    changed.link(name).symlink_to(changed.link("cpu-avx2").resolve())
    changed.program("flox", "#!/bin/sh\nexit 0\n")
    changed.program("nix-build", "#!/bin/sh\nexit 0\n")
    for backend in ("flox", "nix"):
        row = changed.built(name, "--backend", backend)["by_id"][name]
        assert row["outcome"] == "failed"
        assert f"no error, and no new result-pytorch-python313-{name}" in row["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.slow
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
        done = world.built("cpu-avx2,cpu-avx512")
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert done["returncode"] == 0, done["stderr"]
    assert "its log is incomplete: No space left on device" in done["stderr"]
    assert world.link("cpu-avx512").exists()


def test_what_flox_left_running_is_ended_before_another_attempt(changed: World) -> None:
    changed.program(
        "flox", '#!/bin/sh\n[ "$1" = build ] || exit 64\n/bin/sleep 4242 &\nkill -9 $$\n'
    )
    assert outcome(changed, "sm90-avx2", "--cores", "1", backend="flox")["cause"] == "out-of-memory"
    ran = subprocess.run(["pgrep", "-f", "sleep 4242"], capture_output=True, check=False)
    assert ran.returncode == 1


def test_two_runs_in_one_checkout_keep_apart(built: World) -> None:
    with files.exclusive_lock(built.root, "builds.lock", "builds or publishes"):
        second = built.build("sm90-avx2")
    assert second.returncode == 2
    assert "another run builds or publishes here" in second.stderr


# --- builds that can only end badly are stopped ---


SICK = {
    "sm90-avx2": (
        "cuda-not-found",
        "echo 'CMake Error at cmake/public/cuda.cmake:31 (message):'; "
        "echo '  PyTorch: CUDA cannot be found.'",
    ),
    "sm89-avx2": ("wrong-capability", "capability=8.0; phases; configure"),
    "cpu-avx2": ("cuda-on", "cuda=ON; summary"),
}


def test_builds_that_can_only_end_badly_are_stopped_at_once(world: World) -> None:
    for variant, (_, line) in SICK.items():
        world.scenario(variant, f"{line}; sleep 600; finish")
    # The canary of the group succeeds, so no fault prevents the builds of its siblings.
    done = world.built(",".join(["sm120-avx2", *SICK]), "--backend", "nix", "--jobs", "4")
    rows = done["by_id"]
    assert rows.pop("sm120-avx2")["outcome"] == "built"
    assert {
        variant: (row["outcome"], row["cause"], bool(row["message"]))
        for variant, row in rows.items()
    } == {variant: ("stopped", rule, True) for variant, (rule, _) in SICK.items()}
    world.wait_for_no_builders()
    said = done["stderr"].partition("cpu-avx2: stopped after ")[2]
    assert "PyTorch's summary" in said or "CPU-only variant is built with CUDA" in said
    assert "line of the log: --   USE_CUDA              : ON" in said
    assert "what to do: the recipe needs .override { cudaSupport = false; }" in said
    log = re.search(r"whole log: (\S+)", said)
    assert log
    assert (world.root / log[1]).is_file()


# --- failures ---


FAILURES = {
    "cpu-avx2": "phases; summary; ninja; echo 'x: Connection refused'; echo 'x.cpp: boom'; exit 1",
    "cpu-avx512": 'echo "cores $NIX_BUILD_CORES"; [ "$NIX_BUILD_CORES" -le 2 ] || { '
    "echo 'virtual memory exhausted: Cannot allocate memory'; exit 1; }; good",
    "cpu-avx512vnni": "echo 'error: unable to download https://x/y: Could not resolve host'; "
    "exit 1",
}


def test_failures_are_shown_named_or_tried_again(world: World) -> None:
    for variant, script in FAILURES.items():
        world.scenario(variant, script)
    done = world.built(",".join(FAILURES), "--cores", "4")
    assert done["returncode"] == 1
    unnamed = " in the phase build for a reason that no log rule names"
    _, found, last = done["stderr"].partition(unnamed)
    assert found, "a download that failed before compiling is not the cause of what fails later"
    shown = [line for line in last.partition("  whole log:")[0].splitlines() if line[:4] == "    "]
    assert "    x.cpp: boom" in shown
    assert len(shown) == 20
    assert len(world.logs("cpu-avx2")) == 1
    assert done["by_id"]["cpu-avx512"]["outcome"] == "built"
    cores = [log.split("cores ")[-1].split("\n")[0] for log in world.logs("cpu-avx512")]
    assert cores == ["4", "2"]
    assert done["by_id"]["cpu-avx512vnni"]["cause"] == "network"
    assert len(world.logs("cpu-avx512vnni")) == 1


def test_what_would_fail_again_is_not_built_again(world: World) -> None:
    error = "x.cpp:3:1: error: no type"
    world.scenario("cpu-avx2", f"phases; ninja; echo 'FAILED: x.o'; echo '{error}'; exit 1")
    world.scenario("cpu-avx512", "echo 'cp: error writing x: Disk quota exceeded'; exit 1")
    both = ("cpu-avx2,cpu-avx512", "--cores", "1")
    first = world.build(*both)
    assert (first.returncode, "0 built, 2 not" in first.stdout) == (1, True), "2 is bad input"
    again = world.built("failed", "--cores", "1", "--with", "torchvision")
    rows = again["by_id"]
    assert rows["cpu-avx2"]["reason"] == "would fail again (compiler error)"
    assert rows["cpu-avx2+torchvision"]["reason"] == "cpu-avx2 failed, and this needs it"
    assert rows["cpu-avx512"]["outcome"] == "failed", "a full disk is not of the recipe"
    done = world.build("cpu-avx2", "--cores", "1")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "0 built, 0 not; 1 failed before")
    world.scenario("default", "good")
    for name in ("cpu-avx2", "cpu-avx512"):
        world.scenario(name, "good")
    assert world.build("cpu-avx2", "--retry").returncode == 0
    rows = world.built("cpu-avx2,cpu-avx512")["by_id"]
    assert (rows["cpu-avx2"]["action"], rows["cpu-avx512"]["outcome"]) == ("up to date", "built")


# --- hashes ---


@pytest.fixture
def strict_world(tmp_path: Path) -> World:
    """A world in which sources have hashes, and not those of matrix.toml."""
    folder = tmp_path / "strict"
    folder.mkdir()
    # The two sources that matrix.toml has hashes of; those of the model's own are made up.
    checks = '(args.rev or "") == "v2.10.0" || (args.name or "") == "cuda-13.0-clockrate-fix.patch"'
    project = prepare(copied_project(tmp_path / "project"), checks=checks)
    return World(project, Site(folder, checks), tmp_path)


@pytest.mark.slow
def test_a_wrong_hash_is_named_and_siblings_are_spared(strict_world: World) -> None:
    done = strict_world.built("cpu-*")
    causes = [row.get("cause") for row in done["variants"]]
    assert causes == ["hash-mismatch", None, None, None]
    outcomes = [row["outcome"] for row in done["variants"]]
    assert outcomes == ["failed", "not started", "not started", "not started"]
    assert done["returncode"] == 1
    log = done["variants"][0]["log"]
    assert f"`invoke prefetch --from-log {log}`" in done["stderr"]
    # The offer is good: it takes the hash, and the build then goes on.
    argv = ["prefetch", "--from-log", log]
    fixed = strict_world.project.run("invoke", *argv, env=strict_world.env)
    assert fixed.returncode == 1  # the tag is as it was, and its source is not
    fixed = strict_world.project.run("invoke", *argv, "--accept", env=strict_world.env)
    assert fixed.returncode == 0
    assert strict_world.build("cpu-avx2").returncode == 0


# --- resume ---


def test_the_store_decides_what_is_built_not_the_ledger(world: World) -> None:
    """A torn line of the ledger is passed over."""
    assert world.build("cpu-avx2").returncode == 0
    target = str(world.link("cpu-avx2").resolve())
    ledger, torn = world.root / ".build-pytorch/ledger.jsonl", '{"event":"ended","at":"2026-'
    ledger.write_text(torn)
    assert outcome(world, "cpu-avx2")["outcome"] == "built"
    assert len(ledger.read_text().removeprefix(f"{torn}\n").splitlines()) == 2
    assert world.logs("cpu-avx2")[-1].count("[60/60]") == 0, "it was in the store"
    world.link("cpu-avx2").unlink()
    world.site.nix("nix-store", "--delete", "--ignore-liveness", target)
    row = world.built("cpu-avx2", "--dry-run")["by_id"]["cpu-avx2"]
    assert (row["action"], row["reason"]) == ("build", "not built yet")


# --- ends before their time ---


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_builds_and_leaves_no_orphans(world: World, number: int, code: int) -> None:
    world.scenario("cpu-avx512", "phases; sleep 600; finish")
    run = world.start("cpu-avx2,cpu-avx512")
    world.wait_for("started", 2)
    run.send_signal(number)
    output, _ = run.communicate(timeout=30)
    assert run.returncode == code, output
    assert "Traceback" not in output
    world.wait_for_no_builders()
    ends = [e["outcome"] for e in world.ledger() if e["event"] == "ended"]
    assert ends == ["built", *(["interrupted"] if number != signal.SIGKILL else [])]
    assert (world.link("cpu-avx2").exists(), world.processes()) == (True, [])
    world.scenario("cpu-avx512", "good")
    assert world.build("cpu-avx2,cpu-avx512").returncode == 0


@pytest.mark.slow
def test_a_lost_terminal_ends_nothing(world: World) -> None:
    world.scenario("default", "phases; await go; finish")
    run = world.start("cpu-avx2,cpu-avx512")
    world.wait_for("started")
    assert run.stdout is not None
    run.stdout.close()  # the reader is gone
    os.killpg(run.pid, signal.SIGHUP)
    world.mark("go")
    assert run.wait(timeout=60) == 0
    assert world.link("cpu-avx512").exists()


KILLS = int(os.environ.get("BUILD_PYTORCH_TEST_KILLS", "10"))


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_no_finished_build(world: World) -> None:
    """Set BUILD_PYTORCH_TEST_KILLS for more rounds than the few of an ordinary run."""
    seed = int(os.environ.get("BUILD_PYTORCH_TEST_SEED", "0")) or time.time_ns() % (1 << 30)
    counts = kills.builds(world, random.Random(seed), KILLS)
    assert counts["build kills"], f"seed {seed}"


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


def test_flox_is_taken_where_it_is_installed_and_its_output_is_watched(world: World) -> None:
    world.program("flox", FLOX)
    world.project.commit()
    world.scenario("sm90-avx2", "cuda=OFF; summary; sleep 60; finish")
    done = world.built("cpu-avx2,sm90-avx2", "--cores", "3")
    assert done["returncode"] == 1, done["stderr"]
    assert "$ flox build pytorch-python313-cpu-avx2" in done["stderr"]
    assert (world.root / "flox-cores").read_text() == "cores = 3\n"
    assert world.link("cpu-avx2").exists()
    row = done["by_id"]["sm90-avx2"]
    assert (row["outcome"], row["cause"]) == ("stopped", "cuda-off")


def test_flox_builds_only_what_git_tracks(changed: World) -> None:
    changed.program("flox", FLOX)
    changed.project.git("rm", "-q", "--cached", RECIPE)
    done = changed.build("cpu-avx512vnni", "--dry-run")
    assert f"git add {RECIPE}" in unfolded(done.stderr)
    with mock.patch.dict(changed.env, OF_ANOTHER_USER):
        said = unfolded(changed.build("cpu-avx512vnni", "--dry-run").stderr)
    assert f"Git refuses {changed.root}: detected dubious ownership" in said
    assert "git config --global --add safe.directory" in said
    (changed.root / ".git").rename(changed.folder / "git")
    done = changed.build("cpu-avx512vnni", "--dry-run")
    assert done.returncode == 2
    assert "not a Git checkout" in unfolded(done.stderr)


def test_without_flox_and_nix_it_says_what_to_install(reader: World) -> None:
    reader.env["PATH"] = f"{reader.bin}:{Path(sys.executable).parent}"
    done = reader.build("sm90-avx2")
    assert done.returncode == 2
    assert "not installed: flox or nix-build" in done.stderr
    done = reader.build("sm90-avx2", "--dry-run")
    assert done.returncode == 2
    assert "  build       sm90-avx2  not built yet" in done.stdout
    assert "\n  not installed: flox or nix-build" in done.stderr


# --- nox ---


def test_nox_has_a_session_with_tags_for_each_variant() -> None:
    project = Project(PROJECT)
    done = project.nox("--list", "--json", "-t", "cuda13_0")
    sessions = json.loads(done.stdout)
    matrix = matrix_reader.load(PROJECT)
    assert len(sessions) == len([v for v in matrix.of_release("cuda13_0") if not v.alias_of])
    assert sessions[0]["session"] == "build(cuda13_0/sm120-avx2)"
    aliases = json.loads(project.nox("--list", "--json", "-t", "alias").stdout)
    assert len(aliases) == len([v for v in matrix.variants if v.alias_of])
    assert sessions[0]["tags"] == ["sm120", "avx2", "cuda13_0", "x86_64-linux", "gpu", "buildable"]
    chosen = project.nox("-t", "armv9", "--list")
    selected = [line.split()[1] for line in chosen.stdout.splitlines() if line.startswith("* ")]
    assert {"build(cuda13_0/sm110-armv9)", "build(cuda13_0/sm121-armv9)"} <= set(selected)
    assert all("-armv9" in name for name in selected)


@pytest.mark.slow
def test_a_tag_goes_on_behind_variants_that_are_skipped_or_fail(world: World) -> None:
    world.scenario("sm90-avx2", "phases; exit 1")
    done = world.project.run("nox", "-t", "avx2", "-k", "sm121 or sm90 or cpu", env=world.env)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "`invoke show sm121-avx2` says why it cannot be built" in said
    assert "build(sm121-avx2): skipped" in said
    assert "build(sm90-avx2): failed" in said
    assert "build(cpu-avx2): success" in said
    assert world.link("cpu-avx2").exists()


@pytest.mark.slow
def test_a_broken_matrix_leaves_the_sessions_that_do_not_need_it(changed: World) -> None:
    (changed.root / "matrix.toml").write_text("nonsense")
    done = changed.project.nox("--list")
    assert (done.returncode, "verify" in done.stdout) == (0, True)


def test_the_project_has_no_state_in_git() -> None:
    state = [".build-pytorch/ledger.jsonl", "result-x"]
    assert git.run(PROJECT, "check-ignore", "--no-index", *state).splitlines() == state
