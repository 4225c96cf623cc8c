"""What becomes of a package in a plan of builds, decided on values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import WHOLE

from build_pytorch.build import build_obstacles
from build_pytorch.build.backends import (
    FLOX,
    NIX,
    BuildAction,
    BuildBackend,
    BuildSettings,
    Step,
)
from build_pytorch.build.build_plan import decide, estimated_seconds, in_order, reason_to_skip
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.nix.derivations import Derivation
from build_pytorch.nix.store import MissingPaths, NixSettings
from build_pytorch.results.ledger import Event, event_of
from build_pytorch.results.package_state import PackageState

DIGEST, OUTPUT = "sha256:1", "/nix/store/x-torch"
HOST = NixSettings(("x86_64-linux",), ())
HERE = {"link": OUTPUT, "origin": DIGEST}


def named(matrix: Matrix, id_: str) -> Package:
    return next(package for package in matrix.packages if package.id == id_)


def backend(name: str = NIX, **settings: Any) -> BuildBackend:
    return BuildBackend(name, BuildSettings(root=Path("/nowhere"), **settings), HOST)


def ended(package: Package, outcome: str, **fields: Any) -> Event:
    values = {"digest": DIGEST, "outcome": outcome, **fields}
    return event_of(package, "ended", **values)


AGAIN = {"outcome": "failed", "cause": "cccl-headers", "fails_again": True}
PASSES = {"outcome": "failed", "cause": "network"}
STOPPED = {"outcome": "stopped", "cause": "cuda-on", "outputs": (OUTPUT,)}
REMOTE = {"builders": "ssh://x"}


@pytest.mark.parametrize(
    ("id_", "event", "state", "settings", "is_present", "wanted"),
    [
        ("cpu-avx2", {}, HERE, {}, True, "up to date the store has the current recipe's result"),
        ("cpu-avx2", {}, {}, {}, False, "build not built yet"),
        ("cpu-avx2", {}, {}, {}, True, "build in the store already, only the link is missing"),
        ("cpu-avx2", {}, {"link": OUTPUT}, {}, False, "build the result is of another recipe"),
        ("cpu-avx2", AGAIN, {}, {}, False, "failed would fail again (cccl-headers)"),
        ("cpu-avx2", AGAIN, {}, {"retry": True}, False, "build not built yet"),
        ("cpu-avx2", AGAIN, {}, {"force": True}, False, "build not built yet"),
        ("cpu-avx2", AGAIN, {}, {"keep_failed": True}, False, "build not built yet"),
        ("cpu-avx2", {**AGAIN, "digest": "other"}, {}, {}, False, "build not built yet"),
        ("cpu-avx2", PASSES, {}, {}, False, "build not built yet"),
        ("cpu-avx2", STOPPED, HERE, {}, True, "failed its build was stopped (cuda-on), but"),
        ("cpu-avx2", STOPPED, {}, {"force": True}, True, "build in the store already"),
        ("sm121-armv9", {}, {}, {}, False, "skipped wrong platform: this machine builds no aarch"),
        ("sm121-armv9", {}, {}, REMOTE, False, "build remotely not built yet"),
        ("cpu-avx512", {}, {}, {}, False, "skipped wrong CPU: a build runs what it compiles"),
        ("cpu-avx512", {}, {}, {"force": True}, False, "build not built yet"),
        ("cpu-avx512", {}, {}, REMOTE, False, "build remotely not built yet"),
    ],
)
def test_what_becomes_of_a_package(
    matrix: Matrix,
    monkeypatch: pytest.MonkeyPatch,
    id_: str,
    event: dict[str, Any],
    state: dict[str, Any],
    settings: dict[str, Any],
    is_present: bool,
    wanted: str,
) -> None:
    known = tuple(named(matrix, "cpu-avx2").cpu.cpuinfo)
    monkeypatch.setattr(build_obstacles, "_cpu", lambda: ("a CPU", known))
    package = named(matrix, id_)
    events = (ended(package, **event),) if event else ()
    found = PackageState(package=package, digest=DIGEST, events=events, **state)
    derivation = Derivation("/nix/store/x.drv", {"out": OUTPUT}, package.platform)
    present = {OUTPUT} if is_present else set()
    action, reason = decide(found, backend(**settings), derivation, present, torch=None, skip="")
    assert f"{action} {reason}".startswith(wanted)


@pytest.mark.parametrize(
    ("id_", "covered", "wanted"),
    [
        ("cuda13_0/cpu-avx2", (), ""),
        ("cuda13_0/sm121-avx2", (), "impossible-host: no x86_64-linux machine has SM121"),
        ("nightly/sm121-armv9", (), "matrix.toml: release.nightly.torch has no hash yet; `in"),
        ("nightly/sm121-armv9-wrapper", ["nightly/sm121-armv9"], "the same build as nightly/s"),
    ],
)
def test_what_is_skipped_whatever_is_known_of_it(id_: str, covered: list[str], wanted: str) -> None:
    """Nothing is with --force."""
    package = named(matrix_reader.parse(WHOLE), id_)
    found = reason_to_skip(package, (), covered, force=False)
    assert (found.startswith(wanted), bool(found)) == (True, bool(wanted))
    assert reason_to_skip(package, (), covered, force=True) == ""


def test_what_needs_a_variant_shares_its_lot(matrix: Matrix) -> None:
    package = named(matrix, "cpu-avx2+torchvision")
    state = PackageState(package=package, digest=DIGEST)
    for action in (BuildAction.SKIPPED, BuildAction.FAILED):
        torch = Step(package=package.variant, action=action, reason="", digest="")
        found = decide(state, backend(), None, (), torch=torch, skip="")
        assert found == (action, f"cpu-avx2 {action}, and this needs it")
    assert decide(state, backend(), None, (), torch=None, skip="why") == ("skipped", "why")


def test_the_commands_of_the_two_backends() -> None:
    matrix, line = matrix_reader.parse(WHOLE), "ssh://a x86_64-linux - 1 1 big-parallel"

    def argv(id_: str, name: str, action: BuildAction = BuildAction.BUILD, **given: Any) -> str:
        step = Step(package=named(matrix, id_), action=action, reason="", digest="")
        return " ".join(backend(name, **given).command(step, 3).argv)

    package = "pytorch-python313-cuda12_8-sm61-avx"
    assert argv("cuda12_8/sm61-avx", FLOX) == f"flox build --dir releases/cuda12_8 {package}"
    plain = argv("cuda13_0/cpu-avx2", NIX, keep_failed=True, builders=line)
    assert plain.startswith(
        "nix-build .flox/pkgs/pytorch-python313-cpu-avx2.nix --out-link result-"
    )
    assert plain.endswith(f"--log-format internal-json --keep-failed --builders {line}")
    # What this CPU cannot run is not built here; another platform cannot be.
    there = (NIX, BuildAction.REMOTE)
    assert "--max-jobs 0" in argv("cuda13_0/cpu-avx2", *there, builders=line)
    assert "--max-jobs" not in argv("cuda13_0/sm121-armv9", *there, builders=line)


def test_the_first_of_each_group_comes_first_and_cpu_only_variants_last(matrix: Matrix) -> None:
    ids = [v.id for v in in_order(matrix.variants)]
    assert sorted(ids) == sorted(v.id for v in matrix.variants)
    assert ids[:3] == ["sm120-avx2", "sm110-armv8_2", "cpu-avx2"]
    assert ids[-3:] == ["cpu-avx512", "cpu-avx512bf16", "cpu-avx512vnni"]
    # A companion comes after its variant, which is added.
    wanted = [named(matrix, id_) for id_ in ("sm90-avx512+torchvision", "cpu-avx2")]
    ids = [package.id for package in in_order(wanted)]
    assert ids == ["sm90-avx512", "sm90-avx512+torchvision", "cpu-avx2"]


@pytest.mark.parametrize(
    ("memory", "jobs"), [(16, 2), (32, 6), (64, 12), (128, 25), (4, 1), (256, 32)]
)
def test_compile_jobs_follow_from_memory(matrix: Matrix, memory: int, jobs: int) -> None:
    build = matrix.variants[0].release.build
    assert build.cores(memory, cpus=64) == jobs
    assert build.cores(memory, cpus=4) == min(jobs, 4)


@pytest.mark.parametrize(
    ("built", "with_magma"),
    [
        (None, [True, False, True]),
        (["x-magma-2.9", "y-magma-2.9", "x-nccl-2"], [True, False, True]),
        (["x-magma-2.9", "x-torch"], [True, False, False]),
        (["x-torch"], [False, False, False]),
    ],
)
def test_the_first_variant_of_a_gpu_architecture_compiles_its_libraries(
    built: list[str] | None, with_magma: list[bool]
) -> None:
    """At most as often as Nix says that it builds MAGMA, if it was asked."""
    matrix = matrix_reader.parse(WHOLE)
    ids = ("sm90-avx2", "sm90-avx512", "sm120-avx2", "cpu-avx2", "cpu-avx2+torchvision")
    steps = [
        Step(
            package=named(matrix, f"cuda13_0/{id_}"), action=BuildAction.BUILD, reason="", digest=""
        )
        for id_ in ids
    ]
    build = steps[0].package.variant.build
    work = MissingPaths(tuple(built), 3) if built else None
    found = [3600 * hours / 2 for hours in (build.core_hours, build.magma_core_hours)]
    wanted = [found[0] + has_magma * found[1] for has_magma in with_magma]
    cpu_only = 3600 * steps[3].package.variant.build.core_hours / 2
    assert list(estimated_seconds(steps, 2, work).values()) == [*wanted, cpu_only]
    assert found[1] > found[0] > cpu_only
