"""The official wheel beside the build, and what measurements change in a recommendation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import WHOLE, Project
from msgspec.structs import replace
from sample_fleet import LAST, SampleFleet
from test_recommend import machine, shown_for

from build_pytorch.hardware import wheels
from build_pytorch.hardware.choice import Choice
from build_pytorch.hardware.choose import choose
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.hardware.wheels import ChosenWheel, Measurement, choose_wheel
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.official_wheels import OfficialWheel, official_wheels
from build_pytorch.results import ledger

MATRIX = matrix_reader.parse(WHOLE)
Plant = Callable[..., None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """A function that lets the table of wheels be others."""

    def planted(*changes: dict[str, Any]) -> None:
        base = replace(official_wheels()[0], torch="2.10.0", platform="x86_64-linux")
        known = tuple(replace(base, **change) for change in changes)
        monkeypatch.setattr(wheels, "official_wheels", lambda: known)

    return planted


def wheel(torch: str, cuda: str, sass: str, ptx: str = "", index: str = "") -> dict[str, Any]:
    codes = {"sass": tuple(sass.split()), "ptx": tuple(ptx.split())}
    return {"torch": torch, "cuda": cuda, "index": index, **codes}


def chosen(here: Machine, torch: str = "2.10.0") -> tuple[OfficialWheel, ChosenWheel]:
    found = choose_wheel(here, here.gpus, torch)
    assert found is not None
    return found.wheel, found


def test_the_wheel_of_the_same_pytorch_comes_first_and_else_the_newest(plant: Plant) -> None:
    plant(*(wheel(torch, "12.8", "sm_120") for torch in ("2.9.1", "2.10.0", "2.11.0")))
    here = machine("rtx5090-zen4")
    assert chosen(here)[0].torch == "2.10.0"
    assert chosen(here, "2.8.0")[0].torch == "2.11.0"


NOTHING, PTX = wheel("2.10.0", "13.0", "sm_90"), wheel("2.9.0", "13.0", "sm_90", "compute_90")
CODE, NEW = wheel("2.8.0", "12.8", "sm_120"), wheel("2.10.0", "13.0", "sm_89", index="cu130")
OLD = wheel("2.8.0", "12.6", "sm_86", index="cu126")
TOO_OLD = "CUDA 13 needs driver 580.65.06 or newer; found driver 550.163.01"


@pytest.mark.parametrize(
    ("name", "wheels", "command", "code", "limit", "runs"),
    [
        ("rtx5090-zen4", [NOTHING, PTX, CODE], "2.8.0", "machine code for 12.0; needs", "", 1),
        ("rtx5090-zen4", [NOTHING, PTX], "2.9.0", "PTX, which the driver compiles", "", 1),
        ("rtx5090-zen4", [NOTHING], "whl/cpu", "no code for 12.0, which stays unused", "", 0),
        ("rtx4090-driver-550", [NEW, OLD], "pytorch.org/whl/cu126", "machine code", "", 1),
        ("rtx4090-driver-550", [NEW], "pytorch.org/whl/cu130", "", TOO_OLD, 0),
        ("ice-lake", [CODE], "pytorch.org/whl/cpu", "runs on the CPU", "", 0),
    ],
)
def test_of_wheels_that_run_the_one_with_machine_code_is_named(
    plant: Plant, name: str, wheels: list[Any], command: str, code: str, limit: str, runs: int
) -> None:
    plant(*wheels)
    found = chosen(machine(name))[1]
    assert found.command.endswith(command)
    assert found.code.startswith(code)
    assert ("".join(found.limits), found.runs_on) == (limit, runs)


def test_ptx_needs_the_driver_that_came_with_its_cuda(plant: Plant) -> None:
    plant(wheel("2.10.0", "12.8", "sm_80", "compute_80"))
    here = replace(machine("h100-sapphire-rapids"), driver="550.54", cuda="12.4")
    assert "needs driver 570.26 or newer" in chosen(here)[1].limits[0]
    plant(wheel("2.10.0", "12.8", "sm_90", "compute_80"))
    assert chosen(here)[1].limits == ()


def test_a_wheel_that_uses_the_gpu_comes_before_a_cpu_build(
    plant: Plant, whole: Project, tmp_path: Path
) -> None:
    plant(wheel("2.10.0", "12.8", "sm_70"))
    here = machine("v100-broadwell")
    assert choose(MATRIX, here).is_wheel_first
    lines = shown_for(here, tmp_path, whole)
    titles = [line.partition(":")[0] for line in lines if line[:5] in {"Wheel", "Best:", "Ideal"}]
    assert titles == ["Wheel", "Best", "Ideal"]
    plant(wheel("2.10.0", "12.8", "sm_90"))
    assert not choose(MATRIX, here).is_wheel_first


# --- measurements ---

BF16, AVX512, AVX2 = (f"cuda13_0/sm120-{isa}" for isa in ("avx512bf16", "avx512", "avx2"))


RTX5090 = "AMD Ryzen 9 7950X 16-Core Processor, 16 cores, NVIDIA GeForce RTX 5090"
H200 = "AMD Ryzen 9 7950X 16-Core Processor, 16 cores, NVIDIA H200"
XEON = "Intel(R) Xeon(R) w5-3435X, 16 cores, NVIDIA GeForce RTX 5090"
OFFICIAL = "wheel 2.10.0+cu130"


def measured(package: str, against: str, verdict: Any, **changes: str) -> Measurement:
    known = {"machine_class": RTX5090, "figures": "0: 1.00 (0.99 to 1.01)", "date": "2026-11-22"}
    return Measurement(package=package, against=against, verdict=verdict, **{**known, **changes})


def with_measurements(*measurements: Measurement) -> Choice:
    return choose(MATRIX, machine("rtx5090-zen4"), measurements=measurements)


def test_without_a_measurement_nothing_is_claimed() -> None:
    elsewhere = [measured(BF16, OFFICIAL, "faster", machine_class=it) for it in (H200, XEON)]
    of_another = measured(AVX2, OFFICIAL, "faster")
    for choice in (with_measurements(), with_measurements(*elsewhere, of_another)):
        assert choice.compared == "not measured on this class of machine"


def test_the_newest_comparison_with_the_wheel_is_quoted() -> None:
    old = measured(BF16, OFFICIAL, "faster", date="2026-01-01")
    new = measured(BF16, OFFICIAL, "slower")
    assert with_measurements(new, old).compared == (
        f"slower on {RTX5090}, 2026-11-22 (0: 1.00 (0.99 to 1.01))"
    )
    cpu_alone = RTX5090.rpartition(", ")[0]
    later = measured(BF16, OFFICIAL, "no difference", date="2026-11-23", machine_class=cpu_alone)
    assert with_measurements(new, later).compared.startswith("no difference on AMD Ryzen 9")


def test_the_command_quotes_what_the_ledger_has(whole: Project, tmp_path: Path) -> None:
    """A comparison of the current recipe; one of an older recipe counts no more."""
    sample, (slower, noisy, faster, equal) = SampleFleet(whole.root), ledger.Verdict
    variant = next(it for it in matrix_reader.load(whole.root).variants if it.id == BF16)

    def compared(against: str, outcome: Any, **verdicts: ledger.Verdict) -> None:
        ratios = dict.fromkeys(verdicts, 0.5)  # what a comparison decided is not decided again
        facts = ledger.ComparedFacts(
            against=against, machine=RTX5090, ratios=ratios, verdicts=verdicts
        )
        event = ledger.Event(
            event="tested",
            **sample.common(variant, LAST),
            by="compare",
            outcome=outcome,
            output="/nix/store/x",
            reason="0: figures",
            compared=facts,
        )
        sample.append(event)

    def shown() -> str:
        return " ".join(" ".join(shown_for(machine("rtx5090-zen4"), tmp_path, whole)).split())

    compared(OFFICIAL, "failed", gpu=slower, cpu=faster)
    assert f"{BF16} against it: slower on {RTX5090}" in shown()
    compared(AVX2, "passed", gpu=equal, cpu=faster)
    assert f"Best: {BF16}" in shown()  # it is faster on the CPU
    compared(AVX2, "skipped", gpu=equal, cpu=noisy)
    assert f"Best: {BF16}" in shown()
    compared(AVX2, "passed", gpu=equal, cpu=equal)
    assert f"Best: {AVX2}" in shown()
    assert "avx2 is enough: no difference on AMD Ryzen 9" in shown()
    recipe = whole.root / variant.path
    recipe.write_text(recipe.read_text() + "# changed\n")
    assert f"{BF16} against it: not measured on this class of machine" in shown()


def test_of_isas_that_are_equal_the_lowest_is_recommended_with_the_reason() -> None:
    equal = [measured(BF16, AVX512, "no difference"), measured(AVX2, BF16, "no difference")]
    for measurements in (equal, equal[::-1]):
        choice = with_measurements(*measurements)
        assert choice.best is not None
        assert choice.best.variant.id == AVX2
        assert choice.best.reason.endswith(
            f"avx2 is enough: no difference on {RTX5090}, 2026-11-22 (0: 1.00 (0.99 to 1.01))"
        )
        assert choice.better is None  # the ideal build is the same one


@pytest.mark.parametrize(
    "other",
    [
        measured(BF16, AVX2, "too noisy"),
        measured(BF16, AVX2, "faster"),
        measured(BF16, AVX2, "no difference", machine_class=H200),
        measured(BF16, "cuda13_0/cpu-avx2", "no difference"),
        measured(BF16, "cuda12_8/sm120-avx2", "no difference"),
        measured(AVX512, AVX2, "no difference"),
        measured(BF16, "cuda13_0/sm120-none", "no difference"),
    ],
)
def test_nothing_else_lowers_the_isa(other: Measurement) -> None:
    best = with_measurements(other).best
    assert best is not None
    assert best.variant.id == BF16
