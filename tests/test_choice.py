"""What is chosen for a machine: by hand for 61 machines, and by an oracle of the rows.

The oracle below judges by no code of the package: it reads available.toml and NVIDIA's rules.
"""

from __future__ import annotations

import tomllib
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from conftest import PROJECT, WHOLE
from msgspec.structs import replace

from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choose import Choice, Person, choose, judge_all
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.available import available_builds

MATRIX = matrix_reader.parse(WHOLE)
ROWS = tomllib.loads((PROJECT / "build_pytorch/matrix/available.toml").read_text())["build"]
CPUS = {
    "nehalem": ("x86_64-linux", "sse4_2"),
    "ivy": ("x86_64-linux", "avx"),
    "haswell": ("x86_64-linux", "avx avx2 fma f16c"),
    "zen4": (
        "x86_64-linux",
        "avx avx2 fma f16c avx512f avx512dq avx512vl avx512bw avx512_vnni avx512_bf16",
    ),
    "a72": ("aarch64-linux", "fp asimd"),
    "altra": ("aarch64-linux", "fp asimd fphp asimdhp asimddp"),
    "grace": ("aarch64-linux", "fp asimd fphp asimdhp asimddp sve sve2"),
    "m2": ("aarch64-darwin", ""),
    "riscv": ("riscv64-linux", ""),
}

# CPU | GPUs: capability, or name=capability | driver | CUDA of the driver, WSL | first answer
DRAWN_UP = """
haswell | 5.0                            | 450.80.02  |      | 2.7.1 cu118
zen4    | Tesla M60=5.2                  | 580.95.05  |      | 2.14.1 cu126
haswell | Tesla P100-PCIE-16GB=6.0       | 535.183.01 |      | 2.14.1 cu126
haswell | GeForce GTX 1060 6GB=6.1       | 470.199.02 |      | 2.7.1 cu118
zen4    | GeForce GTX 1080 Ti=6.1        | 575.64.03  |      | 2.14.1 cu126
haswell | NVIDIA TITAN V=7.0             | 545.29.06  |      | 2.14.1 cu126
haswell | Tesla T4=7.5                   | 450.119.04 |      | 2.7.1 cu118
haswell | GeForce GTX 1650=7.5           | 580.65.06  |      | 2.15.0 PyPI
zen4    | 8.0                            | 515.105.01 |      | 2.7.1 cu118
zen4    | NVIDIA A30=8.0                 | 525.60.13  |      | 2.14.1 cu126
zen4    | GeForce RTX 3060=8.6           | 535.261.03 |      | 2.14.1 cu126
zen4    | GeForce RTX 3090=8.6           | 590.44.01  |      | 2.15.0 PyPI
zen4    | GeForce RTX 3080=8.6           | 450.51.06  |      | CPU: 455.23.04
zen4    | NVIDIA L4=8.9                  | 535.261.03 |      | 2.14.1 cu126
haswell | RTX 4060 Laptop GPU=8.9        | 580.95.05  |      | 2.15.0 PyPI
zen4    | GeForce RTX 4090=8.9           | 470.256.02 |      | CPU: 520.56.06
zen4    | GeForce RTX 4090=8.9           |            |      | 2.15.0 PyPI
zen4    | NVIDIA H100 NVL=9.0            | 525.147.05 |      | 2.14.1 cu126
zen4    | H100 in a container=9.0        | 550.163.01 | 13.0 | 2.14.1 cu126
zen4    | NVIDIA B200=10.0               | 570.124.06 |      | 2.13.0 cu129
zen4    | NVIDIA B300=10.3               | 580.95.05  |      | 2.15.0 PyPI
zen4    | GeForce RTX 5070 Ti=12.0       | 570.86.16  |      | 2.13.0 cu129
zen4    | GeForce RTX 5090=12.0          | 550.163.01 |      | CPU: 570.26
haswell | Tesla K80=3.7                  | 470.256.02 |      | 2.7.1 cu118
haswell | Tesla K40m=3.5                 | 470.256.02 |      | CPU: nobody publishes code for 3.5
zen4    | A100-SXM4 MIG 1g.10gb=8.0      | 535.183.01 |      | 2.14.1 cu126
zen4    | H100 80GB HBM3 MIG 7g.80gb=9.0 | 590.44.01  |      | 2.15.0 PyPI
haswell | GRID T4-2B=7.5                 | 580.95.05  |      | CPU: A or B series
zen4    | GeForce RTX 3080=8.6           | 531.79     | 12.1 WSL | 2.14.1 cu126
zen4    | GeForce RTX 5090=12.0          | 572.16     | 12.8 WSL | 2.13.0 cu129
zen4    | GeForce RTX 4070=8.9           | 581.29     | 13.0 WSL | 2.15.0 PyPI
zen4    | GeForce RTX 5090=12.0          | 552.44     | 12.4 WSL | CPU: a driver of Windows for CUDA
grace   | NVIDIA GH200 480GB=9.0         | 535.183.01 |      | 2.14.1 cu126
grace   | NVIDIA GH200 480GB=9.0         | 590.44.01  |      | 2.15.0 PyPI
grace   | NVIDIA GB200=10.0              | 570.124.06 |      | 2.13.0 cu129
altra   | NVIDIA A100-PCIE-40GB=8.0      | 550.163.01 |      | 2.14.1 cu126
altra   | NVIDIA T4G=7.5                 | 580.95.05  |      | 2.13.0 conda-forge
altra   | NVIDIA T4G=7.5                 | 470.256.02 |      | CPU: 525.60.13
grace   | NVIDIA GB10=12.1               | 590.44.01  |      | 2.15.0 PyPI
grace   | NVIDIA Thor=11.0               | 580.00     | 13.0 | 2.14.1 PyPI
grace   | NVIDIA Thor=11.0               | 590.00     | 13.2 | 2.15.0 PyPI
altra   | Orin (nvgpu)=8.7               | 540.4.0    | 12.6 | 2.8.0 NVIDIA
altra   | Orin (nvgpu)=8.7               | 590.00     | 13.0 | 2.13.0 conda-forge
altra   | Orin (nvgpu)=8.7               | 595.00     | 13.4 | 2.14.0a0 NVIDIA
altra   | Xavier=7.2                     |            | 11.4 | CPU: nobody publishes code for 7.2
a72     |                                |            |      | 2.13.0 cpu
altra   |                                |            |      | 2.13.0 cpu
grace   |                                |            |      | 2.13.0 cpu
nehalem |                                |            |      | 2.13.0 cpu
ivy     |                                |            |      | 2.13.0 cpu
haswell |                                |            |      | 2.13.0 cpu
zen4    |                                |            |      | 2.13.0 cpu
m2      |                                |            |      | 2.15.0 PyPI
riscv   |                                |            |      | nothing
ivy     | GeForce GTX 970=5.2            | 535.183.01 |      | 2.14.1 cu126
nehalem | GeForce RTX 3060=8.6           | 580.95.05  |      | 2.15.0 PyPI
haswell | GTX 1080=6.1, RTX 5090=12.0    | 580.95.05  |      | 2.13.0 conda-forge
haswell | Tesla P100=6.0, RTX 5090=12.0  | 570.172.08 |      | 2.13.0 conda-forge
haswell | Tesla V100=7.0, A100=8.0       | 550.163.01 |      | 2.14.1 cu126
zen4    | RTX 3090=8.6, RTX 5090=12.0    | 570.172.08 |      | 2.13.0 cu129
haswell | Tesla K40=3.5, RTX 3090=8.6    | 470.256.02 |      | 2.7.1 cu118
""".strip().splitlines()


def machine_of(row: str) -> tuple[Machine, str]:
    """The machine of a row, and its first answer."""
    cpu, gpus, driver, cuda, answer = (cell.strip() for cell in row.split("|"))
    platform, flags = CPUS[cpu]
    named = [word.strip().rpartition("=") for word in gpus.split(",") if word]
    return Machine(
        platform=platform,
        cpu=Processor(flags=flags),
        gpus=tuple(
            MachineGpu(index=index, name=name or f"GPU {capability}", capability=capability)
            for index, (name, _, capability) in enumerate(named)
        ),
        driver=driver or None,
        cuda=cuda.removesuffix(" WSL") or None,
        is_wsl=cuda.endswith("WSL"),
    ), answer


# --- the oracle ---

TEGRA = {"5.3", "6.2", "7.2", "8.7", "10.1", "11.0"}
FIRST = {"8.6": "455.23.04", "8.9": "520.56.06", "9.0": "520.61.05", "10.0": "570.26"}
FIRST |= {"12.0": "570.26", "10.3": "580.65.06", "12.1": "580.65.06", "10.7": "0"}
FLOORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
FIRST_CUDA = {"8.6": 11.1, "8.9": 11.8, "9.0": 11.8, "10.0": 12.8, "12.0": 12.8, "10.3": 12.9}
FIRST_CUDA |= {"12.1": 12.9, "11.0": 13.0, "10.7": 13.4, "8.7": 11.4}


def version(text: str | None) -> list[int]:
    return [int(part) for part in (text or "0").replace("a", ".").split(".")]


def has_code(row: dict[str, Any], capability: str) -> bool:
    major, minor = version(capability)
    for code in row.get("code", []):
        if code == capability:
            return True
        its_major, its_minor = version(code)
        if not TEGRA & {code, capability} and its_major == major and its_minor <= minor:
            return True
    return any(version(ptx) <= version(capability) for ptx in row.get("ptx", []))


def drives(row: dict[str, Any], gpu: MachineGpu, machine: Machine) -> str:
    """`yes`, `no`, or `maybe`: whether the driver runs the row on the GPU."""
    capability, newest, driver = gpu.capability or "", machine.cuda, machine.driver
    major = version(row["cuda"])[0]
    is_tegra = capability in TEGRA
    if is_tegra or machine.is_wsl or driver is None:
        if newest is None:
            return "maybe"
        is_known = float(newest) >= FIRST_CUDA.get(capability, 0)
        if not is_known or version(newest)[0] < major:
            return "no"
        return "maybe" if is_tegra and version(newest) < version(row["cuda"]) else "yes"
    oldest = max(version(FLOORS[major]), version(FIRST.get(capability)))
    if version(driver) >= oldest or driver == str(oldest[0]):
        return "yes"
    return "maybe" if newest and version(newest)[0] >= major else "no"


def merit(row: dict[str, Any], machine: Machine) -> tuple[Any, ...] | None:
    """How good a row is for a machine, by the rule in words; None if it does not run."""
    flags = machine.cpu.flags.split()
    if row["platform"] != machine.platform:
        return None
    if not all(flag in flags for flag in row.get("cpu", "").split()):
        return None
    served, is_sure = [], True
    for gpu in machine.gpus:
        is_desktop = gpu.name.endswith(("2B", "2A"))
        if "cuda" not in row or not gpu.capability or is_desktop:
            continue
        if has_code(row, gpu.capability) and (answer := drives(row, gpu, machine)) != "no":
            served.append(version(gpu.capability))
            is_sure = is_sure and answer == "yes"
    if "cuda" in row and not served:
        return None
    newest = max(served, default=[])
    torch = version(row["versions"][-1] if row["versions"] else None)[:3]
    return len(served) == len(machine.gpus), newest, len(served), is_sure, torch


def check(machine: Machine, choice: Choice) -> None:
    """Compare what a choice says with the oracle."""
    merits = [it for it in (merit(row, machine) for row in ROWS) if it]
    assert bool(merits) == bool(choice.now)
    if not merits:
        assert choice.unused
        return
    first, commands = choice.now[0], [offer.command for offer in choice.now]
    own = ROWS[available_builds().index(first.build)]
    assert merit(own, machine) == max(merits), first.command
    assert not machine.gpus or max(merits)[0] or choice.unused
    assert len({*commands}) == len(commands) <= 3
    assert first.command not in {it for several in choice.rejected.values() for it in several}
    variant = next((it for it in MATRIX.variants if it.id == choice.build.variant), None)
    if choice.build.has_reason and variant and variant.gpu:
        code, torch = [variant.gpu.capability], version(variant.version)
        ready = [row for row in ROWS if row.get("code") == code and merit(row, machine)]
        assert all(version(row["versions"][-1]) < torch for row in ready), "it is published"


def short(choice: Choice) -> str:
    if not choice.now:
        return "nothing"
    build = choice.now[0].build
    return f"{build.version} {build.index or build.who}"


# --- machines that Hypothesis draws ---

KNOWN = known_hardware.load()
ISAS = list(KNOWN.cpu.values())
FLAGS = sorted({flag for isa in ISAS for flag in isa.cpuinfo})
CAPABILITIES = [*(gpu.capability for gpu in KNOWN.gpu.values()), "9.9", "1.3", None]


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """A machine with up to four GPUs; it has whole ISAs more often than random flags would."""
    isas = draw(st.lists(st.sampled_from(ISAS)))
    flags = {flag for isa in isas for flag in isa.cpuinfo} | draw(st.sets(st.sampled_from(FLAGS)))
    capabilities = draw(st.lists(st.sampled_from(CAPABILITIES), max_size=4))
    return Machine(
        platform=draw(st.sampled_from(["x86_64-linux", "aarch64-linux", "aarch64-darwin", "a-b"])),
        cpu=Processor(flags=" ".join(sorted(flags))),
        gpus=tuple(
            MachineGpu(index=index, name="NVIDIA", capability=capability)
            for index, capability in enumerate(capabilities)
        ),
        driver=draw(st.sampled_from([None, "470.1", "525", "550.54", "580.65.06", "600"])),
        cuda=draw(st.sampled_from([None, "11.4", "12.8", "13.0"])),
        is_wsl=draw(st.booleans()),
    )


# --- tests ---


@pytest.mark.parametrize("row", DRAWN_UP)
def test_a_machine_gets_the_newest_that_runs_on_it(row: str) -> None:
    machine, answer = machine_of(row)
    choice = choose(MATRIX, machine)
    if answer.startswith("CPU: "):
        assert answer.removeprefix("CPU: ") in choice.unused
        answer = "2.13.0 cpu"
    assert short(choice) == answer
    check(machine, choice)


def test_a_saved_machine_gets_what_the_oracle_finds() -> None:
    for path in (PROJECT / "tests/machines").glob("*.json"):
        machine = saved_machines.load(path)
        check(machine, choose(MATRIX, machine))


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(machines())
def test_a_drawn_machine_gets_what_the_oracle_finds(machine: Machine) -> None:
    check(machine, choose(MATRIX, machine))


def first(row: str, tools: str = "", python: str = "") -> Choice:
    person = Person(tools=frozenset(tools.split()), python=python)
    return choose(MATRIX, machine_of(f"{row} |")[0], person)


# A machine, as above without the answer | programs | Python | commands, the first ones
FLOX_86 = "flox install flox/pytorch-python313-cuda12_9-sm86-avx2"
COMMANDS = f"""
zen4 | RTX 3090=8.6 | 580.95.05 | |            |      | pip install torch==2.15.0; {FLOX_86}
zen4 | RTX 3090=8.6 | 580.95.05 | | uv conda   |      | uv pip install torch==2.15.0; conda install -c conda-forge pytorch-gpu cuda-version=13.0; {FLOX_86}
haswell | 6.1 | 535 | | uv pixi conda          |      | uv pip install torch==2.14.1 --torch-backend=cu126; pixi add pytorch-gpu cuda-version=12.9 'libcudnn<9.11'
altra | T4G=7.5 | 580.95.05 | |                |      | mamba install -c conda-forge pytorch-gpu cuda-version=13.0
altra | T4G=7.5 | 580.95.05 | | nix-shell      |      | nix-shell -p
zen4 | RTX 3090=8.6 | 580.95.05 | |            | 3.15 | pip install torch==2.15.0
zen4 | RTX 3090=8.6 | 580.95.05 | |            | 3.10 | pip install torch==2.14.1;
zen4 | RTX 3090=8.6 | 580.95.05 | |            | 3.9  | mamba install
zen4 | RTX 5090=12.0 | 570.172.08 | |          |      | pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cu129; pip install torch==2.11.0
zen4 | RTX 3090=8.6 | | |                      |      | pip install torch==2.15.0; pip install torch==2.14.1
"""  # noqa: E501 - a table


@pytest.mark.parametrize("row", COMMANDS.strip().splitlines())
def test_what_a_person_has_and_limits_decide_among_builds(row: str) -> None:
    *machine, tools, python, commands = (cell.strip() for cell in row.split("|"))
    choice = first(" | ".join(machine), tools, python)
    assert "; ".join([*(it.command for it in choice.now), ""]).startswith(commands)


# The same columns, and what the first line says.
REASONS = """
zen4    | 8.9         | 580.95.05  |      | CUDA 13.2, code for 8.6 runs on 8.9
haswell | 6.1         | 535.183.01 |      | the last official one for this GPU
zen4    | 8.9         | 550.163.01 |      | the newest for this driver
zen4    | 6.1, 8.6    | 580.95.05  |      | code for 6.1 and 8.6; the last official one for all
haswell | 3.5, 8.6    | 470.256.02 |      | code for 8.6; not for GPU 0
zen4    | 13.0        | 595.45.04  |      | PTX, which the driver compiles at the first start
zen4    | 8.9, 10.3   | 595.45.04  |      | code for 8.9 and 10.3
grace   | 11.0        |            |      | needs a JetPack with CUDA 13.2
haswell | 3.7         | 470.256.02 |      | unconfirmed
m2      |             |            |      | uses the GPU through Metal (MPS)
altra   | 7.5         | 580.95.05  |      | 2.13.0; CUDA 13.0, code for 7.5
zen4    | 12.0        | 570.172.08 |      | torch.compile fails below driver 580.65.06
zen4    | 8.6         |            |      | needs driver 580.65.06 or newer
""".strip().splitlines()

# What a newer driver makes possible.
UPDATES = """
zen4    | 8.9         | 550.163.01 |      | driver 580.65.06 or newer runs `pip install
zen4    | 12.0        | 550.54.15  |      | driver 580.65.06 or newer runs
zen4    | 8.6         | 531.79     | 12.1 WSL | a driver of Windows for CUDA 13 runs
altra   | 8.7         | 540.4.0    | 12.6 | a JetPack with CUDA 13.4 runs `docker run
haswell | 6.1         | 535.183.01 |      |
zen4    | 9.0         | 580.95.05  |      |
haswell | 3.5         | 470.256.02 |      |
zen4    | 8.6         |            |      |
""".strip().splitlines()

# The variant, and why to build it or not.
BUILDS = """
zen4    | 12.0        | 580.95.05  |      | cuda13_2/sm120-avx2: 2.13.0; for size
zen4    | 8.9         | 550.54.15  |      | cuda12_8/sm89-avx2: no reason: Flox has 2.9.1
haswell | 6.1         | 535.183.01 |      | cuda12_8/sm61-avx2: no reason: Flox has 2.9.1
haswell | 7.0         | 535.183.01 |      | cuda12_8/sm70-avx2: no reason: nothing newer than 2.8.0
haswell | 3.5         | 470.256.02 |      | cuda13_2/cpu-avx2: no reason: PyTorch chooses
zen4    | 8.6, 12.0   | 580.95.05  |      | cuda13_2/sm120-avx2: no reason: no release here can
altra   | 8.0         | 580.95.05  |      | cuda13_2/sm80-armv8_2: 2.13.0; for size
nehalem |             |            |      | : no reason: no instruction set
""".strip().splitlines()

# What does not run, published or of a release, with the reason.
REFUSALS = """
ivy     | 8.6         | 580.95.05  |      | the CPU lacks avx2, fma, f16c
haswell | 7.0         | 535.183.01 |      | release cuda13_0: CUDA 13.0 does not compile for 7.0
zen4    | 12.0        | 550.54.15  |      | release cuda12_8: needs driver 570.26 or newer; found
""".strip().splitlines()


@pytest.mark.parametrize("row", [*REASONS, *UPDATES, *BUILDS, *REFUSALS])
def test_a_choice_says_why_what_a_newer_driver_brings_and_what_to_build(row: str) -> None:
    machine, text = machine_of(row)
    choice = choose(MATRIX, machine)
    build = choice.build
    if row in REASONS:
        assert text in choice.now[0].says
    elif row in UPDATES:
        assert choice.update.startswith(text)
        assert bool(choice.update) == bool(text)
    elif row in BUILDS:
        assert f"{build.variant}: {build.says}".startswith(text)
        assert build.has_reason == ("no reason" not in text)
    else:
        said = [*choice.rejected, *(f"{name}: {why}" for name, why in build.rejected.items())]
        assert any(why.startswith(text) for why in said)


def test_what_runs_besides_uses_the_gpu_too_and_is_not_shown() -> None:
    choice = first("zen4 | RTX 3090=8.6 | 580.95.05 | ")
    shown = [offer.build for offer in choice.now]
    assert "conda-forge" in {build.who for build in choice.others}
    assert all(build.cuda and build not in shown for build in choice.others)
    assert not any(build.cuda for build in first("zen4 | | | ").others)


@pytest.mark.parametrize("row", ["haswell | V100=7.0 | 535.183.01 | ", "m2 | | | "])
def test_lines_for_the_matrix_make_the_variant_that_it_lacks(row: str) -> None:
    build = first(row).build
    assert build.lines.startswith("[[release.cuda1")
    more = matrix_reader.parse(f"{WHOLE}\n{build.lines}")
    again = choose(more, machine_of(f"{row} |")[0]).build
    assert (again.variant, again.lines) == (build.variant, "")


def test_a_published_variant_is_installed_and_a_newer_release_is_built() -> None:
    machine, _ = machine_of("zen4 | RTX 5090=12.0 | 580.95.05 | |")
    published = {"cuda13_2/sm120-avx2": "me"}
    choice = choose(MATRIX, machine, judged=judge_all(MATRIX, machine, published=published))
    package = "me/pytorch-python314-cuda13_2-sm120-avx2"
    assert [offer.command for offer in choice.now][1] == f"flox install {package}"
    assert choice.build.says.startswith("no reason: Flox has 2.13.0 for this GPU alone")
    release = MATRIX.releases["cuda13_0"]
    newer = replace(release, torch=replace(release.torch, version="2.99.0"))
    matrix = replace(MATRIX, releases={**MATRIX.releases, "cuda13_0": newer})
    assert choose(matrix, machine).build.says == "2.99.0; newer than everything that is ready"


def test_what_is_odd_about_a_machine_is_named() -> None:
    assert first("m2 | 8.9 | | ").unused.endswith("aarch64-darwin uses GPUs of NVIDIA")
    machine = machine_of("zen4 | | | |")[0]
    other = choose(MATRIX, replace(machine, other_gpus=("AMD GPU 1002:744c",)))
    assert other.unused.startswith("AMD GPU 1002:744c: ROCm and XPU are not")
    unknown = replace(machine_of("zen4 | 8.6 | 580 | |")[0], cpu=Processor(flags=""))
    assert any("flags are unknown" in why for why in choose(MATRIX, unknown).rejected)
