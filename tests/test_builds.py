"""Builds, for real: recipes, real Nix, and a model of nixpkgs."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from conftest import OF_ANOTHER_USER, PROJECT, copied_project, needs_nix, unfolded
from test_sources import OTHER
from world import Site, World, kill_session, model, prepare, wait_until

from build_pytorch.base import git
from build_pytorch.results import ledger

pytestmark = needs_nix


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


def test_what_cannot_be_built_here_is_refused_for_one_reason(built: World) -> None:
    for id_, why in (
        ("sm121-avx2", "impossible-host: no x86_64-linux machine has SM121"),
        ("sm121-armv9", "this machine builds no aarch64-linux"),
    ):
        for words in ((id_,), (id_, "--dry-run")):
            done = built.build(*words)
            assert (done.returncode, "nothing to build: " in done.stderr) == (2, True)
            assert unfolded(done.stdout + done.stderr).count(why) == 1


def test_a_dry_run_builds_nothing(built: World) -> None:
    before = built.ledger()
    done = built.built("all", "--dry-run")
    assert done["returncode"] == 0
    counts = Counter(row["action"] for row in done["variants"])
    assert counts == {"build": 30, "up to date": 2, "skipped": 12}
    reasons = {row["reason"].split(":")[0] for row in done["variants"]}
    assert {"impossible-host", "wrong platform", "not built yet"} < reasons
    assert {"hours", "memory_gib", "disk_gib"} <= set(done)
    assert built.ledger() == before
    assert not built.link("cuda13_0-sm90-avx2").is_symlink()


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
    found = reader.built(*wanted)
    assert found["by_id"]["sm90-avx2"]["hours"] == found["hours"] == 3.95
    assert "hours" not in found["by_id"]["sm90-avx2+torchvision"]


def test_the_plan_of_a_dry_run_needs_no_network(changed: World) -> None:
    """It says what Nix says."""
    changed.project.edit("matrix.toml", model()[1], OTHER)  # a hash that the store does not have
    assert changed.project.invoke("phase2").returncode == 0
    changed.env |= dict.fromkeys(("https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9")
    changed.env["NIX_CONFIG"] += "\ndownload-attempts = 1"
    done = changed.build("sm90-avx2", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "  build       sm90-avx2" in done.stdout
    what = "the pinned nixpkgs cannot be downloaded"
    assert f"derivations not evaluated: {what}" in unfolded(done.stdout)
    done = changed.build("sm90-avx2")
    assert (done.returncode, what in done.stderr) == (2, True)


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
    argv = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    if subprocess.run(argv, check=False).returncode:
        pytest.skip("no tmpfs may be mounted here")
    try:
        world.scenario("default", "phases; yes xxxxxxxxxxxxxxxxxxxxxxxx | head -n 9000; finish")
        done = world.built("cpu-avx2,cpu-avx512")
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert done["returncode"] == 0, done["stderr"]
    assert "its log is incomplete: No space left on device" in done["stderr"]
    assert world.link("cpu-avx512").exists()


def test_two_runs_in_one_checkout_keep_apart(built: World) -> None:
    with ledger.only_run(built.root):
        second = built.build("sm90-avx2")
    assert (second.returncode, "another run builds or pub" in second.stderr) == (2, True)


SICK = {
    "sm90-avx2": ("wrong-capability", "capability=8.0; phases; configure"),
    "cpu-avx2": ("cuda-on", "cuda=ON; summary"),
}


def test_builds_that_can_only_end_badly_are_stopped_at_once(world: World) -> None:
    for variant, (_, line) in SICK.items():
        world.scenario(variant, f"{line}; sleep 600; finish")
    # The canary of the group succeeds, so no fault prevents the builds of its siblings.
    done = world.built(",".join(["sm120-avx2", *SICK]), "--backend", "nix", "--jobs", "3")
    rows = {id_: (row["outcome"], row["cause"]) for id_, row in done["by_id"].items()}
    assert rows.pop("sm120-avx2")[0] == "built"
    assert rows == {id_: ("stopped", rule) for id_, (rule, _) in SICK.items()}
    world.wait_for_no_builders()
    said = done["stderr"].partition("cpu-avx2: stopped after ")[2]
    assert "CPU-only variant is built with CUDA" in said
    assert "line of the log: --   USE_CUDA              : ON" in said
    assert "what to do: the recipe needs .override { cudaSupport = false; }" in said
    logs = re.findall(r"whole log: (\S+)", done["stderr"])
    assert [(world.root / path).is_file() for path in logs] == [True] * 2


def test_a_failure_without_a_name_is_shown_and_one_of_memory_tried_again(world: World) -> None:
    failing = "phases; summary; ninja; echo 'x: Connection refused'; echo 'x.cpp: boom'; exit 1"
    world.scenario("cpu-avx2", failing)
    memory = "echo 'virtual memory exhausted: Cannot allocate memory'; exit 1"
    world.scenario("cpu-avx512", f"[ $NIX_BUILD_CORES -le 2 ] || {{ {memory}; }}; good")
    done = world.built("cpu-avx2,cpu-avx512", "--cores", "4")
    assert (done["returncode"], done["by_id"]["cpu-avx512"]["outcome"]) == (1, "built")
    assert [len(world.logs(name)) for name in ("cpu-avx2", "cpu-avx512")] == [1, 2]
    unnamed = " in the phase build for a reason that no log rule names"
    _, found, last = done["stderr"].partition(unnamed)
    assert found, "a download that failed before compiling is not the cause of what fails later"
    shown = [line for line in last.partition("  whole log:")[0].splitlines() if line[:4] == "    "]
    assert ("    x.cpp: boom" in shown, len(shown)) == (True, 20)


def test_what_would_fail_again_is_not_built_again(world: World) -> None:
    error = "x.cpp:3:1: error: no type"
    world.scenario("cpu-avx2", f"phases; ninja; echo 'FAILED: x.o'; echo '{error}'; exit 1")
    world.scenario("cpu-avx512", "echo 'cp: error writing x: Disk quota exceeded'; exit 1")
    first = world.build("cpu-avx2,cpu-avx512", "--cores", "1")
    assert (first.returncode, "0 built, 2 not" in first.stdout) == (1, True), "2 is bad input"
    again = world.built("failed", "--cores", "1", "--with", "torchvision")["by_id"]
    assert again["cpu-avx2"]["reason"] == "would fail again (compiler error)"
    assert again["cpu-avx2+torchvision"]["reason"] == "cpu-avx2 failed, and this needs it"
    assert again["cpu-avx512"]["outcome"] == "failed", "a full disk is not of the recipe"
    done = world.build("cpu-avx2", "--cores", "1")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "0 built, 0 not; 1 failed before")
    world.scenario("cpu-avx2", "good")
    assert world.build("cpu-avx2", "--retry").returncode == 0


FAILING = """
phases
mkdir "$NIX_BUILD_TOP/source"
FROM_THE_BUILD=yes
export FROM_THE_BUILD
NIX_BUILD_TOP=/build TMPDIR=/build bash -c export >"$NIX_BUILD_TOP/env-vars"
echo "FAILED: a.o"
exit 1
"""
"""Fails in its build phase and leaves what stdenv leaves in a sandbox."""


def test_the_printed_commands_go_on_in_the_folder_of_a_failed_build_that_is_kept(
    world: World,
) -> None:
    world.scenario("cpu-avx2", FAILING)
    assert "its folder is kept" not in world.build("cpu-avx2", "--backend", "nix").stdout
    done = world.build("cpu-avx2", "--backend", "nix", "--keep-failed")
    lines = re.search(r"its folder is kept.*:\n +nix-shell (\S+)\n +(\. .*)\n", done.stdout)
    assert lines, done.stdout
    probe = 'echo "name=$name variable=$FROM_THE_BUILD"; ls -d source; touch "$(mktemp)"; pwd'
    argv = ["nix-shell", lines[1], "--run", f"{lines[2]}; {probe}"]
    shell = subprocess.run(
        argv, cwd=world.root, env=world.site.env, capture_output=True, text=True, check=True
    )
    name, source, folder = shell.stdout.splitlines()
    assert name == "name=python3.13-pytorch210-python313-cpu-avx2-2.10.0 variable=yes"
    assert (source, folder in lines[2]) == ("source", True)


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
    ends = [(row["outcome"], row["cause"]) for row in done["variants"]]
    assert ends == [("failed", "hash-mismatch"), *[("not started", "")] * 3]
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


def test_the_store_decides_what_is_built_not_the_ledger(world: World) -> None:
    """A torn line of the ledger is passed over."""
    assert world.build("cpu-avx2").returncode == 0
    target = str(world.link("cpu-avx2").resolve())
    book, torn = world.root / ledger.FILE, '{"event":"ended","at":"2026-'
    book.write_text(torn)
    assert world.built("cpu-avx2", "--backend", "nix")["by_id"]["cpu-avx2"]["outcome"] == "built"
    assert len(book.read_text().removeprefix(f"{torn}\n").splitlines()) == 2
    assert world.logs("cpu-avx2")[-1].count("[60/60]") == 0, "it was in the store"
    world.link("cpu-avx2").unlink()
    world.site.nix("nix-store", "--delete", "--ignore-liveness", target)
    row = world.built("cpu-avx2", "--dry-run")["by_id"]["cpu-avx2"]
    assert (row["action"], row["reason"]) == ("build", "not built yet")


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("number", "code", "end"),
    [
        (signal.SIGINT, 130, ["interrupted"]),
        pytest.param(signal.SIGTERM, 143, ["interrupted"], marks=SLOW),
        pytest.param(signal.SIGKILL, -9, [], marks=SLOW),
    ],
)
def test_a_signal_ends_builds_and_leaves_no_orphans(
    world: World, number: int, code: int, end: list[str]
) -> None:
    world.scenario("cpu-avx512", "phases; sleep 600; finish")
    run = world.start("cpu-avx2,cpu-avx512")
    world.wait_for("started", 2)
    run.send_signal(number)
    output, _ = run.communicate(timeout=30)
    assert (run.returncode, "Traceback" in output) == (code, False), output
    world.wait_for_no_builders()
    assert [e["outcome"] for e in world.ledger() if e["event"] == "ended"] == ["built", *end]
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
    dice, kills, outputs = random.Random(seed), 0, dict[str, str]()
    words = ("cpu-*,sm90-*", "--jobs", "2")
    world.scenario("default", "pause=0.01; steps=20; good")
    book = world.root / ledger.FILE

    def size() -> int:
        return book.stat().st_size if book.exists() else 0

    for _ in range(KILLS):
        run = world.start(*words)
        for _ in range(dice.randint(1, 4)):
            is_written = partial(lambda before: size() > before or run.poll() is not None, size())  # noqa: B023
            wait_until(is_written, "write of the ledger")
        time.sleep(dice.choice([0, dice.uniform(0, 0.3)]))
        kills += run.poll() is None
        kill_session(run)
        run.communicate()
        world.wait_for_no_builders()
        before, built = outputs, [e for e in ledger.read(world.root).events if e.outcome == "built"]
        outputs = {event.variant: event.outputs[0] for event in built}
        assert all(Path(output).exists() for output in outputs.values()), seed
        assert before.keys() <= outputs.keys(), seed
        if len(outputs) == 8:
            outputs = {}
            book.unlink()
            world.site.clear()
            world.scenario("default", "pause=0.01; steps=20; good")
    assert kills, seed
    for actions in ({"build", "up to date"}, {"up to date"}):
        done = world.built(*words)
        assert done["returncode"] == 0, (seed, done["stderr"])
        assert {row["action"] for row in done["variants"]} <= actions


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
    def said() -> str:
        done = changed.build("cpu-avx512vnni", "--dry-run")
        assert done.returncode == 2
        return unfolded(done.stderr)

    changed.program("flox", FLOX)
    changed.project.git("rm", "-q", "--cached", RECIPE)
    assert f"git add {RECIPE}" in said()
    with mock.patch.dict(changed.env, OF_ANOTHER_USER):
        assert f"Git refuses {changed.root}: detected dubious ownership" in said()
        assert "git config --global --add safe.directory" in said()
    (changed.root / ".git").rename(changed.folder / "git")
    assert "not a Git checkout" in said()


def test_without_flox_and_nix_it_says_what_to_install(reader: World) -> None:
    reader.env["PATH"] = f"{reader.bin}:{Path(sys.executable).parent}"
    for words, shown in ((), ""), (("--dry-run",), "  build       sm90-avx2  not built yet"):
        done = reader.build("sm90-avx2", *words)
        assert (done.returncode, "not installed: flox or nix-build" in done.stderr) == (2, True)
        assert shown in done.stdout


def test_the_project_has_no_state_in_git() -> None:
    state = [".build-pytorch/ledger.jsonl", "result-x"]
    assert git.run(PROJECT, "check-ignore", "--no-index", *state).splitlines() == state
