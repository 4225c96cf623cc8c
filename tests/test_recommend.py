"""The right variant: real machines with the answers they should get, and the rules behind them."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import archspec.cpu
import msgspec
import picker_machines
import pytest
from conftest import ONE, PROJECT, Project, error_line
from drawn_machines import machines
from hypothesis import given, settings
from sample_fleet import LAST, SampleFleet

from build_pytorch.base.console import Screen
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.cli import describe_machine, recommend
from build_pytorch.hardware import explain, saved_machines
from build_pytorch.hardware.choice import Answer, Choice
from build_pytorch.hardware.choose import choose
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.results import ledger
from build_pytorch.results.package_state import PackageState

MACHINES = PROJECT / "tests/machines"
ALL_MACHINES = {path.stem for path in MACHINES.glob("*.json")}
NOT_IN_ARCHSPEC = {"h200-recorded", "macbook", "dgx-spark", "jetson-orin"}
SECOND = (PROJECT / "tests/second-release.toml").read_text()


def machine(name: str) -> Machine:
    return saved_machines.load(MACHINES / f"{name}.json")


def answer(matrix: Matrix, name: str, **options: Any) -> Answer:
    (only,) = choose(matrix, machine(name), **options).answers
    return only


def best_of(found: Answer) -> str | None:
    return found.best.variant.id if found.best else None


def reasons(found: Answer) -> dict[str, str]:
    return {miss.subject: miss.text for miss in found.reasons}


# --- real machines ---


class Expected(NamedTuple):
    best: str | None
    fallbacks: list[str]
    shows: list[str]
    """What the command prints about it, among other things."""


def with_isas(gpu: str, *isas: str) -> list[str]:
    return [f"{gpu}-{isa}" for isa in isas]


AVX512_TO_AVX2 = ("avx512vnni", "avx512", "avx2")
ALL_X86 = ("avx512bf16", *AVX512_TO_AVX2)

REAL = {
    "dgx-spark": Expected(
        "sm121-armv9",
        ["sm121-armv8_2"],
        [
            "built for exactly this GPU's capability 12.1",
            "a recipe; nobody here has built it yet build invoke build sm121-armv9",
        ],
    ),
    "rtx5090-zen4": Expected(
        "sm120-avx512bf16",
        [*with_isas("sm120", *AVX512_TO_AVX2), *with_isas("cpu", *ALL_X86)],
        [
            "capability 12.0; AVX-512 with BF16",
            "sm110, sm103, sm100, sm90, sm89, sm86, sm80  built for another major version",
        ],
    ),
    "a100-zen3": Expected(
        "sm80-avx2",
        ["cpu-avx2"],
        [
            "the CPU lacks avx512f, avx512dq, avx512vl, avx512bw, avx512_bf16",
            "sm89, sm86  built for a higher minor version than this GPU's 8.0",
        ],
    ),
    "a100-zen3-old-driver": Expected(
        "cpu-avx2",
        [],
        [
            "First update the NVIDIA driver to 580.65.06 or newer. Then: Best: sm80-avx2",
            "Until then: cpu-avx2; leaves the GPU unused",
            "cuda13_0 CUDA 13.0 needs driver 580.65.06 or newer; found driver 570.172.08",
        ],
    ),
    "gh200": Expected(
        None,
        [],
        [
            "No variant runs here.",
            "Ideal: sm90-armv9 (not in matrix.toml)",
            "[[release.cuda13_0.group]]",
            "built for another major version than this GPU's 9.0",
            "x86_64-linux  this machine is aarch64-linux",
        ],
    ),
    "a64fx": Expected(
        None,
        [],
        ["armv8_2  the CPU lacks asimddp"],
    ),
    "ice-lake": Expected(
        "cpu-avx512vnni",
        with_isas("cpu", "avx512", "avx2"),
        ["no GPU; AVX-512 with VNNI", "avx512bf16    the CPU lacks avx512_bf16"],
    ),
    "ivy-bridge": Expected(
        None,
        [],
        [
            "Ideal: cpu-avx (not in matrix.toml)",
            "avx2           the CPU lacks avx2, fma",
        ],
    ),
    "jetson-thor": Expected(
        "sm110-armv9",
        ["sm110-armv8_2"],
        ["check: driver 580.00 is older than 580.65.06, but supports CUDA 13.0"],
    ),
    "t4-cascade-lake": Expected(
        "cpu-avx512vnni",
        with_isas("cpu", "avx512", "avx2"),
        [
            "leaves the GPU unused",
            "Ideal: sm75-avx512vnni",
        ],
    ),
    "container-without-gpus": Expected(
        "cpu-avx512bf16",
        with_isas("cpu", *AVX512_TO_AVX2),
        ["start the container with its GPUs (--gpus all)"],
    ),
    "macbook": Expected(
        None,
        [],
        ["Ideal: darwin-mps", "this machine is aarch64-darwin"],
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_a_machine_gets_its_variant_with_the_reasons(
    name: str, still: Project, matrix: Matrix
) -> None:
    expected, found = REAL[name], answer(matrix, name)
    assert best_of(found) == expected.best
    assert [fit.variant.id for fit in found.accepted[1:]] == expected.fallbacks
    done = still.invoke("recommend", "--machine", str(MACHINES / f"{name}.json"), "--verbose")
    shown = done.stdout
    assert done.returncode == (0 if expected.best else 1)
    assert ("No variant runs here." in shown) is (expected.best is None)
    if expected.best:
        assert re.search(f"(Best|Until then): {expected.best}[;\n]", shown)
    text_shown = " ".join(shown.split())  # columns are as wide as their rows need
    for text in expected.shows:
        assert " ".join(text.split()) in text_shown
    commands = [line for line in shown.splitlines() if line.startswith("  build ")]
    assert len(commands) == len(set(commands))
    assert "good for" not in shown  # no advantage is claimed that nobody measured
    assert not re.search("(?<!difference, )in (training|inference)", shown)


@pytest.mark.parametrize("name", sorted(ALL_MACHINES - NOT_IN_ARCHSPEC))
def test_the_saved_flags_are_those_that_archspec_lists_for_the_cpu(name: str) -> None:
    """An independent source: the table cannot be made to fit by inventing flags."""
    cpu = machine(name).cpu
    known = archspec.cpu.TARGETS[cpu.microarchitecture or ""].features
    in_cpuinfo = {"pni" if feature == "sse3" else feature for feature in known}
    assert in_cpuinfo
    assert in_cpuinfo <= set(cpu.flags.split())


def test_a_saved_machine_is_as_describe_machine_writes_it() -> None:
    for path in MACHINES.glob("*.json"):
        assert saved_machines.text_of(saved_machines.load(path)) == path.read_text()


# --- the CPU ---


def test_the_cpu_is_shown_by_its_name_and_its_highest_isa(matrix: Matrix) -> None:
    """A virtual machine on Sapphire Rapids that lacks some flags looks like an Ice Lake."""
    here = machine("h200-recorded")
    guessed = msgspec.structs.replace(here.cpu, microarchitecture="icelake")
    lines = describe_machine.machine_lines(
        msgspec.structs.replace(here, cpu=guessed), matrix.cpus.values()
    )
    assert lines[0] == f"machine  x86_64-linux, {here.cpu.model}, AVX-512 with BF16"
    assert "icelake" not in "".join(lines)
    few = msgspec.structs.replace(here, cpu=Processor(flags="avx2 fma f16c sse4_2"))
    assert describe_machine.machine_lines(few, matrix.cpus.values())[0] == (
        "machine  x86_64-linux, an unknown CPU, AVX2"
    )


def test_the_order_of_isas_is_data(matrix: Matrix) -> None:
    """Another level in matrix.toml is another answer."""
    lower = matrix.text
    for old, new in (("level = 4\n", "level = 50\n"), ("level = 5\n", "level = 40\n")):
        lower = lower.replace(old, new, 1)
    assert best_of(answer(matrix_reader.parse(lower), "rtx5090-zen4")) == "sm120-avx512vnni"


# --- several GPUs ---


def mixed(matrix: Matrix, **options: Any) -> Choice:
    return choose(matrix, machine("a100-and-rtx3090"), **options)


@pytest.mark.parametrize(("index", "best"), [(0, "sm80-avx2"), (1, "sm86-avx2")])
def test_one_gpu_may_be_named(matrix: Matrix, index: int, best: str) -> None:
    result = mixed(matrix, gpu=index)
    assert [best_of(found) for found in result.answers] == [best]
    assert result.for_all is None


def test_a_gpu_that_is_not_there_is_refused(matrix: Matrix) -> None:
    with pytest.raises(BuildPytorchError, match="--gpu: found 2; allowed: 0, 1"):
        mixed(matrix, gpu=2)


# --- drivers ---


def with_driver(name: str, driver: str | None, cuda: str | None) -> Machine:
    return msgspec.structs.replace(machine(name), driver=driver, cuda=cuda)


@pytest.mark.parametrize(
    ("driver", "cuda", "runs", "doubtful"),
    [
        ("580.65.06", None, True, False),
        ("580.105.08", None, True, False),  # 105 comes after 65
        ("1000.1", None, True, False),
        ("580.65.05", None, False, False),
        ("580.9.1", None, False, False),
        ("580.65.05", "12.9", False, False),
        ("580.00", "13.0", True, True),
        (None, "13.0", True, False),
        (None, "12.9", False, False),
        (None, None, True, True),
    ],
)
def test_the_driver_is_judged_by_its_version_or_by_the_cuda_it_runs(
    matrix: Matrix, driver: str | None, cuda: str | None, *, runs: bool, doubtful: bool
) -> None:
    here = with_driver("h100-sapphire-rapids", driver, cuda)
    (found,) = choose(matrix, here).answers
    assert best_of(found) == ("sm90-avx512bf16" if runs else "cpu-avx512bf16")
    assert bool(found.best and found.best.doubts) is doubtful
    waits = found.waits_for_driver
    assert (waits and waits.variant.id) == (None if runs else "sm90-avx512bf16")
    if not runs:
        assert "needs driver 580.65.06 or newer" in reasons(found)["cuda13_0"]


@pytest.mark.parametrize(
    ("name", "runs"),
    [("NVIDIA GeForce RTX 5090", False), ("NVIDIA RTX PRO 6000 Blackwell", True), ("B200", True)],
)
def test_a_newer_libcuda_than_the_driver_does_not_help_a_geforce(
    matrix: Matrix, name: str, *, runs: bool
) -> None:
    here = with_driver("rtx5090-zen4", "570.26", "13.0")
    gpu = msgspec.structs.replace(here.gpus[0], name=name)
    (found,) = choose(matrix, msgspec.structs.replace(here, gpus=(gpu,))).answers
    assert found.best is not None
    assert bool(found.best.variant.gpu) is runs
    if not runs:
        assert reasons(found)["cuda13_0"].endswith("does not run on this GPU (error 804)")


@pytest.mark.parametrize(
    ("gpu", "oldest", "driver", "runs"),
    [
        ("9.0", "525.60.13", "530.30.02", True),
        ("12.0", "570.26", "530.30.02", False),
        ("12.0", "570.26", "570.26", True),
    ],
)
def test_the_oldest_driver_belongs_to_a_release_and_a_gpu(
    matrix: Matrix, gpu: str, oldest: str, driver: str, *, runs: bool
) -> None:
    """CUDA 12.9 runs on 525.60.13, and a Blackwell GPU only on a driver that knows it."""
    second = SECOND.replace('driver = "570.26"', 'driver = "525.60.13"')
    assert second != SECOND
    two = matrix_reader.parse(matrix.text + second)
    known = {v.gpu.capability: v.driver for v in two.of_release("cuda12_9") if v.gpu}
    assert known[gpu] == oldest
    here = with_driver("rtx5090-zen4", driver, None)
    one = msgspec.structs.replace(here.gpus[0], capability=gpu)
    here = msgspec.structs.replace(here, gpus=(one,))
    (found,) = choose(two, here, release="cuda12_9").answers
    assert bool(found.best and found.best.variant.gpu) is runs
    if not runs:
        assert reasons(found)["cuda12_9"].startswith("SM120 needs driver 570.26 or newer")


def test_of_equal_variants_the_one_that_runs_is_best_and_none_waits(matrix: Matrix) -> None:
    """A release for a newer CUDA is no better where both have the same PyTorch."""
    newer = matrix.releases["cuda13_0"]
    assert newer.cuda
    cuda = msgspec.structs.replace(newer.cuda, version="12.8", driver="570.26")
    older = msgspec.structs.replace(newer, cuda=cuda)
    copies = [
        msgspec.structs.replace(variant, release_name="older", release=older)
        for variant in matrix.variants
    ]
    two = msgspec.structs.replace(matrix, variants=(*matrix.variants, *copies))
    here = with_driver("h100-sapphire-rapids", "570.26", "12.8")
    (found,) = choose(two, here).answers
    assert found.best is not None
    assert found.best.variant.release_name == "older"
    assert found.waits_for_driver is None


# --- releases ---


def test_the_newest_pytorch_comes_first_and_the_older_is_a_fallback(matrix: Matrix) -> None:
    two = matrix_reader.parse(matrix.text + SECOND)
    found = answer(two, "rtx5090-zen4")
    assert found.best is not None
    assert found.best.variant.release_name == "cuda13_0"
    older = [f for f in found.accepted[1:] if f.variant.release_name == "cuda12_9"]
    assert [fit.variant.short_id for fit in older] == [
        "sm120-avx512bf16",
        "sm120-avx512vnni",
        "sm120-avx512",
        "sm120-avx2",
    ]
    assert explain.why_fallback(older[0], found.best) == "PyTorch 2.8.0"


def test_a_release_may_be_named(matrix: Matrix) -> None:
    two = matrix_reader.parse(matrix.text + SECOND)
    found = answer(two, "a100-zen3", release="cuda12_9")
    assert best_of(found) is None  # it has sm86 only, a minor above
    assert reasons(found)["sm86"] == "built for a higher minor version than this GPU's 8.0"
    with pytest.raises(
        BuildPytorchError, match=r'--release "cuda13": no such release; did you mean "cuda13_0"'
    ):
        answer(two, "a100-zen3", release="cuda13")


def test_commands_name_the_release_where_there_is_more_than_one(matrix: Matrix) -> None:
    two = matrix_reader.parse(matrix.text + SECOND)
    variant = next(v for v in two.variants if v.short_id == "sm120-avx2")
    alone = next(v for v in matrix.variants if v.id == "sm120-avx2")
    for package in (variant, alone):
        commands = recommend.commands(package, PackageState(package=package, digest=""))
        assert commands["publish"] == [f"invoke publish {package.id}"]
        assert "install" not in commands  # nobody has published it


def test_a_result_is_installed_from_where_it_was_published(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the recipe is the one that was published."""
    monkeypatch.setenv("PATH", str(tmp_path))  # without Nix, a store path that exists is valid
    monkeypatch.setenv("NIX_STORE_DIR", str(tmp_path / "store"))
    recipe, sample = project.recipe("cuda13_0-sm121-armv9"), SampleFleet(project.root)
    matrix = matrix_reader.load(project.root)
    variant = next(v for v in matrix.variants if v.id == "sm121-armv9")

    def said() -> str:
        argv = ["recommend", "--machine", str(MACHINES / "dgx-spark.json")]
        return project.invoke(*argv).stdout

    output = Path(sample.built(variant, tmp_path / "store"))
    assert "  built here\n  publish  invoke publish sm121-armv9\n" in said()
    output.rmdir()
    nothing = "  a recipe; nobody here has built it yet\n  build    invoke build sm121-armv9\n"
    assert nothing in said()
    sample.append(ledger.Published(**sample.common(variant, LAST), organization="acme"))
    assert f"  built and published by acme\n  install  flox install acme/{recipe.stem}\n" in said()
    recipe.write_text(recipe.read_text() + "# changed\n")
    assert nothing in said()
    assert "flox install" not in said()


# --- hosts ---


def test_a_variant_that_no_machine_can_run_is_never_recommended(matrix: Matrix) -> None:
    """Also if a description claims to be such a machine."""
    here = machine("rtx5090-zen4")
    claimed = MachineGpu(index=0, name="NVIDIA GB10", capability="12.1")
    (found,) = choose(matrix, msgspec.structs.replace(here, gpus=(claimed,))).answers
    assert best_of(found) == "sm120-avx512bf16"
    assert found.best is not None
    assert found.best.grade == "compatible"
    assert reasons(found)["sm121"] == (
        "no x86_64-linux machine has SM121: GB10 (DGX Spark) on aarch64-linux only"
    )


@pytest.mark.parametrize("capability", ["8.7", "11.0"])
def test_jetson_runs_only_what_is_built_for_it(matrix: Matrix, capability: str) -> None:
    """Orin has 8.7 and Thor 11.0; code for 8.0, 8.6 or 10.x runs on neither."""
    text = matrix.text.replace('gpu = ["sm110", "sm121"]', 'gpu = ["sm121", "sm80", "sm86"]')
    for name in ("armv8_2", "armv9"):  # the clean-up list names two variants of sm110
        old = f'"pytorch-python313-cuda13_0-sm110-{name}.nix"'
        text = text.replace(old, old.replace("sm110", "sm121"))
    here = machine("jetson-thor")
    tegra = MachineGpu(index=0, name="Orin (nvgpu)", capability=capability)
    here = msgspec.structs.replace(here, gpus=(tegra,), driver="600.1")
    (found,) = choose(matrix_reader.parse(text), here).answers
    assert best_of(found) is None
    if capability == "8.7":
        assert reasons(found)["sm86"] == (
            "Tegra GPUs run only code built for them, and this GPU has 8.7"
        )


def test_unknown_cpu_flags_are_called_unknown(matrix: Matrix) -> None:
    here = machine("rtx5090-zen4")
    blind = msgspec.structs.replace(here, cpu=Processor(flags=""))
    (found,) = choose(matrix, blind).answers
    texts = list(reasons(found).values())
    assert any("the CPU's flags are unknown" in text for text in texts)
    assert not any("lacks" in text or "needs" in text for text in texts)


def test_a_gpu_of_unknown_capability_is_left_unused_and_named(matrix: Matrix) -> None:
    here = machine("rtx5090-zen4")
    nameless = MachineGpu(index=3, name="NVIDIA GPU")
    (found,) = choose(matrix, msgspec.structs.replace(here, gpus=(nameless,))).answers
    assert best_of(found) == "cpu-avx512bf16"
    assert reasons(found)["GPU variants"].startswith("the capability of NVIDIA GPU is unknown")


# --- the rule of NVIDIA ---


@pytest.mark.parametrize(
    ("built", "device", "expected"),
    [
        ("8.0", "8.0", "exact"),
        ("8.0", "8.6", "compatible"),
        ("8.0", "8.7", None),  # Orin
        ("8.6", "8.7", None),
        ("8.7", "8.9", None),
        ("8.7", "8.7", "exact"),
        ("7.0", "7.2", None),
        ("11.0", "11.0", "exact"),
        ("8.0", "8.9", "compatible"),
        ("8.6", "8.9", "compatible"),
        ("10.0", "10.3", "compatible"),
        ("12.0", "12.1", "compatible"),
        ("8.6", "8.0", None),
        ("12.1", "12.0", None),
        ("8.9", "9.0", None),
        ("9.0", "10.0", None),
        ("1.2", "12.0", None),
        ("10.0", "1.0", None),
        ("12.1a", "12.1", "exact"),
        ("12.0a", "12.1", None),
        ("10.0f", "10.0", "exact"),
        ("10.0f", "10.3", "compatible"),
        ("10.3f", "10.0", None),
        ("11.0a", "11.0", "exact"),  # Jetson
    ],
)
def test_code_runs_on_the_same_major_with_an_equal_or_higher_minor(
    built: str, device: str, expected: str | None
) -> None:
    assert runs_on(built, device) == expected


@pytest.mark.parametrize("wrong", ["sm_120", "120", "12.", ".0", "", "12.0x"])
def test_what_is_no_dotted_capability_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="not a dotted compute capability"):
        runs_on(wrong, "12.0")
    with pytest.raises(ValueError, match="not a dotted compute capability"):
        runs_on("12.0", wrong)
    with pytest.raises(ValueError, match="not a dotted compute capability"):
        runs_on("12.0", "12.0a")  # no GPU has features alone


# --- any machine ---

MATRIX = matrix_reader.parse(ONE)


def may_run(variant: Variant, here: Machine, gpu: MachineGpu | None) -> bool:
    """An independent statement of the rules, without code of the resolver."""
    if variant.cpu.platform != here.platform or variant.status != "buildable":
        return False
    if any(flag not in here.cpu.flags.split() for flag in variant.cpu.cpuinfo):
        return False
    if variant.gpu is None:
        return True
    if gpu is None or gpu.capability is None or variant.release.cuda is None:
        return False
    built, device = float(variant.gpu.capability), float(gpu.capability)
    if int(built) != int(device) or built > device or (device == 8.7 and built != device):
        return False
    new_enough = here.driver in {"580.65.06", "600"} or here.cuda == "13.0"
    return new_enough or (here.driver is None and here.cuda is None)


@settings(max_examples=100, deadline=None)
@given(here=machines(may_be_wsl=False))
def test_what_runs_is_accepted_in_order_and_what_does_not_has_a_reason(here: Machine) -> None:
    choice = choose(MATRIX, here)
    assert [gpu for found in choice.answers for gpu in found.gpus] != [] or not here.gpus
    for found in choice.answers:
        named = [candidate.variant for candidate in found.accepted]
        for gpu in found.gpus or (None,):
            assert {v.id for v in named} == {v.id for v in MATRIX.variants if may_run(v, here, gpu)}
        assert all(candidate.obstacles for candidate in found.rejected)
        assert len(named) + len(found.rejected) == len(MATRIX.variants)
        for better, worse in itertools.pairwise(named):
            assert (better.gpu is None) <= (worse.gpu is None)
            if better.gpu and worse.gpu:
                assert float(better.gpu.capability) >= float(worse.gpu.capability)
            if better.gpu_key == worse.gpu_key:
                assert better.cpu.level > worse.cpu.level
    shared = {
        v.id for v in MATRIX.variants if v.gpu and all(may_run(v, here, g) for g in here.gpus)
    }
    if len(choice.answers) > 1:
        assert (choice.for_all is None) is (not shared)
        assert choice.for_all is None or choice.for_all.id in shared


@settings(max_examples=100, deadline=None)
@given(here=machines())
def test_a_description_is_read_as_it_was_written(here: Machine) -> None:
    assert saved_machines.parse(saved_machines.text_of(here).encode(), "file") == here


# --- the command ---


def shown_for(here: Machine, tmp_path: Path, whole: Project, *options: str) -> list[str]:
    path = tmp_path / "machine.json"
    path.write_text(saved_machines.text_of(here))
    return whole.invoke("recommend", "--machine", str(path), *options).stdout.splitlines()


def test_the_first_screen_is_short_on_every_machine(whole: Project, tmp_path: Path) -> None:
    """At most 20 lines of 80 columns, and every command can be copied as it stands.

    24 for several GPUs. No reason is cut.
    """
    machines = picker_machines.saved() | picker_machines.drawn(20)
    for name, here in machines.items():
        everything = shown_for(here, tmp_path, whole)
        lines = [line for line in everything if not line.startswith("    ")]  # of matrix.toml
        is_one = len(here.gpus) + len(here.other_gpus) < 2
        assert len(lines) <= (20 if is_one else 24), (name, lines)
        assert "..." not in "".join(lines), (name, lines)
        assert all(len(line) <= 80 for line in lines), (name, lines)
        shown = "\n".join(lines).replace("\\\n", "")
        commands = re.findall(r"(?m)^  (?:build|add it) +(.*)$", shown)
        assert all(shlex.split(command)[0] in {"invoke", "to"} for command in commands), (
            name,
            lines,
        )
        assert commands or "No variant runs here." in lines, (name, lines)


def test_a_long_command_continues_after_a_backslash(capsys: pytest.CaptureFixture[str]) -> None:
    text = "flox install " + " ".join(f"ORG/pytorch-python313-cuda13_0-sm{n}" for n in range(5))
    Screen(sys.stdout).command("  install  ", f"{text} 'two words'")
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 80 for line in lines)
    assert shlex.split(shown.replace("\\\n", ""))[1:] == shlex.split(f"{text} 'two words'")


def test_a_driver_that_is_too_old_comes_first_and_the_cpu_build_last(
    whole: Project, tmp_path: Path
) -> None:
    here = with_driver("rtx5090-zen4", "550.54", None)
    blackwell = msgspec.structs.replace(here.gpus[0], name="NVIDIA B200", capability="10.0")
    here = msgspec.structs.replace(here, gpus=(blackwell,))
    lines = [line for line in shown_for(here, tmp_path, whole) if not line.startswith(" ")][3:-2]
    assert lines == [
        "First update the NVIDIA driver to 580.65.06 or newer (570.26 for CUDA 12.8).",
        "Best: cuda13_0/sm100-avx512bf16",
        "Until then: cuda13_0/cpu-avx512bf16; leaves the GPU unused; AVX-512 with BF16",
        "Wheel: torch 2.10.0 for CUDA 12.8",
    ]
    newer = msgspec.structs.replace(blackwell, name="NVIDIA B300", capability="10.3")
    update = choose(
        matrix_reader.load(whole.root), msgspec.structs.replace(here, gpus=(newer,))
    ).update
    assert update is not None  # no driver before 580.65.06 knows it, whatever CUDA 12.8 needs
    assert update.says == "update the NVIDIA driver to 580.65.06 or newer"


def test_a_driver_that_runs_an_older_release_is_told_what_an_update_gives(
    whole: Project, tmp_path: Path
) -> None:
    lines = shown_for(machine("a100-zen3-old-driver"), tmp_path, whole)
    assert "Best: cuda12_8/sm80-avx2" in lines
    assert (
        "Better: update the NVIDIA driver to 580.65.06 or newer, then cuda13_0/sm80-avx2" in lines
    )


def test_jetpack_and_not_a_driver_is_updated_on_a_jetson(matrix: Matrix) -> None:
    update = choose(matrix, with_driver("jetson-thor", "540.4.0", "12.6")).update
    assert update is not None
    assert (update.says, update.is_first) == ("update JetPack to one for CUDA 13.0", True)


def test_json_has_every_variant_with_its_verdict(still: Project, matrix: Matrix) -> None:
    path = MACHINES / "gh200.json"
    done = still.invoke("recommend", "--machine", str(path), "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["exit_code"] == 1
    assert document["machine"] == json.loads(path.read_text())
    (found,) = document["answers"]
    assert found["best"] is None
    assert [row["variant"] for row in found["variants"]] == [v.id for v in matrix.variants]
    verdict = next(row for row in found["variants"] if row["variant"] == "sm90-avx2")
    assert verdict["runs"] is False
    assert [obstacle["kind"] for obstacle in verdict["obstacles"]] == ["platform"]


def test_a_short_name_of_a_gpu_is_understood(still: Project) -> None:
    cpu = ("--cpu", "zen4", "--driver", "580.95.05", "--json")
    answers = [
        json.loads(still.invoke("recommend", "--gpu", name, *cpu).stdout)
        for name in ("RTX 4090", "RTX4090", "4090")
    ]
    assert answers[0]["best"]["gpu"] == "sm89"
    assert answers[1:] == answers[:1] * 2


@pytest.mark.parametrize("name", ["none", "cpu", "None"])
def test_a_machine_without_a_gpu_may_be_described(still: Project, name: str) -> None:
    done = still.invoke("recommend", "--gpu", name, "--cpu", "zen4", "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)["answers"]
    assert answer["best"]["variant"] == "cpu-avx512bf16"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--gpu", "RTX 4095"], "an unknown GPU; did you mean RTX 4090?"),
        (["--gpu", "5000"], "an unknown GPU; did you mean RTX PRO 5000 Blackwell or RTX 5000 Ada"),
        (["--gpu", "dgxspark", "--cpu", "zen4"], "exists on aarch64-linux only"),
        (["--gpu", "one"], '--gpu: found "one", an unknown GPU; give its compute capability'),
        (["--gpu", "x" * 5000], f'--gpu: found "{"x" * 36}", an unknown GPU; give its'),
        (["--gpu", "1" * 5000], f'--gpu: found "{"1" * 36}"; allowed: a number from 0 to 1023'),
        (["--gpu", "0", "--gpu", "A100"], "--gpu: give one number of this machine, or names"),
        (["--cpu", "avx3"], '--cpu: found "avx3"; did you mean "avx'),
        (["--driver", "v550"], '--driver: found "v550"; allowed: a driver version such as 550'),
        (["--gpu", ""], "--gpu: found an empty value, as from a variable that is not set"),
        (["--machine", ""], "--machine: found an empty value, as from a variable that is not set"),
        (["--gpu", "9"], "--gpu: found 9; allowed: 0"),
        (["--machine", "none.json"], "none.json: cannot be read: No such file or directory"),
        (["--release", "cuda13_1"], 'did you mean "cuda13_0"?'),
    ],
)
def test_wrong_options_are_one_line(still: Project, options: list[str], says: str) -> None:
    machine = [] if "--machine" in options else ["--machine", str(MACHINES / "dgx-spark.json")]
    done = still.invoke("recommend", *machine, *options)
    assert done.returncode == 2
    assert says in error_line(done)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"capability": "12.1"', '"capability": "sm_121"', "gpus[0].capability: found"),
        ('"flags"', '"flgs"', "cpu.flgs: unknown key; allowed: vendor, model, micro"),
        ('"platform": "aarch64-linux",', "", "platform: missing; add it"),
        ('"driver": "580', '"driver": "v580', "a driver version such as 580.65.06"),
        ('"format": "build-pytorch machine 1"', '"format": "2"', "format: found"),
        ('"fp asimd', '"fp\\nasimd', "cpu.flags: found"),
        ("}", "", "not JSON"),
        ('"memory": null', '"memory": -1', "gpus[0].memory: found -1; allowed: a number of bytes"),
        ('"notes": []', '"notes": ["\\u001b[2J"]', "notes[0]: found"),
    ],
)
def test_a_wrong_description_is_one_line_with_the_place(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    text = (MACHINES / "dgx-spark.json").read_text()
    assert old in text
    path = tmp_path / "machine.json"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BuildPytorchError) as caught:
        saved_machines.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("data", "errors"),
    [
        (b"", ["not JSON ("]),
        (b"[]", ["top level: found []; allowed: an object"]),
        (b"\xff\xfe", ["not JSON ("]),
        (b"[" * 100_000, ["not JSON (nested too deeply); write one with"]),
        (b"{}", ["platform: missing; add it", "cpu: missing; add it"]),
        (
            b'{"platform": "x86_64-linux", "cpu": [], "gpus": {}}',
            ["cpu: found []; allowed: an object", "gpus: found {}; allowed: a list"],
        ),
        (
            (MACHINES / "a100-and-rtx3090.json").read_bytes().replace(b'x": 1', b'x": 0'),
            ["gpus[1].index: found 0 twice"],
        ),
    ],
    ids=range(7),
)
def test_a_file_that_is_not_a_description_has_an_error_for_each_place(
    data: bytes, errors: list[str]
) -> None:
    with pytest.raises(BuildPytorchError) as caught:
        saved_machines.parse(data, "file")
    found = str(caught.value).splitlines()
    assert len(found) == len(errors)
    for line, error in zip(found, errors, strict=True):
        assert line.startswith(f"file: {error}")
