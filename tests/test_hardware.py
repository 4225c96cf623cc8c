"""Detecting this machine: the CPU from /proc/cpuinfo, GPUs and driver from NVML."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import archspec.cpu
import msgspec
import pynvml
import pytest
from conftest import PROJECT
from msgspec.structs import replace

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.hardware import detect, saved_machines
from build_pytorch.hardware.choose import Person
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor

MACHINES = PROJECT / "tests/machines"
NOT_IN_ARCHSPEC = {"h200-recorded", "macbook", "dgx-spark", "jetson-orin"}


def read_again(machine: Machine) -> Machine:
    return saved_machines.parse(msgspec.json.encode(machine), "f")


# --- the CPU ---

X86 = """\
processor\t: {number}
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8480+
flags\t\t: fpu avx2 fma {extra}
bugs\t\t: spectre_v1

"""
ARM = """\
processor\t: {number}
Features\t: fp asimd fphp {extra}
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: {part}

"""


def test_a_cpu_has_the_flags_that_every_processor_has() -> None:
    """A program may run on big and little cores; what is no processor takes no flag away."""
    text = "".join(X86.format(number=n, extra="f16c" if n < 3 else "f16c avx") for n in range(4))
    xeon = "Intel(R) Xeon(R) Platinum 8480+"
    assert detect.parse_cpuinfo(text) == Processor(flags="fpu avx2 fma f16c", model=xeon)
    big = [ARM.format(number=n, part="0xd85", extra="sve sve2") for n in range(2)]
    little = ARM.format(number=2, part="0xd87", extra="sve")
    board = "Hardware\t: BCM2835\nModel\t\t: Pi\n"
    assert detect.parse_cpuinfo("".join([*big, little, board])) == Processor(
        flags="fp asimd fphp sve", model="part 0xd85 + part 0xd87"
    )
    assert detect.parse_cpuinfo("model name: x\n") == Processor(flags="")


def test_this_machine_has_what_the_kernel_says() -> None:
    text, here = detect.file_text(Path("/proc/cpuinfo")), detect.this_machine()
    assert here.platform == f"{platform.machine()}-{platform.system().lower()}"
    assert {*here.cpu.flags.split()} <= {*text.split()}
    assert bool(here.cpu.flags) == bool(text)
    assert here.cpu.microarchitecture is None  # a hypervisor may hide flags: no guess


# --- the GPUs: a stand-in for the driver's library, which the real pynvml calls ---

# What a real H200 answered. Errors are those of nvml.h: 3 not supported, 9 driver not loaded,
# 12 library not found, 15 GPU is lost.
H200 = {"INIT": "0", "COUNT": "1", "DRIVER": "580.159.04", "CUDA": "13000", "LOST": "-1"}
H200 |= {"NAME": "NVIDIA H200", "CAPABILITY": "9.0"}
GPU = MachineGpu(index=0, name="NVIDIA H200", capability="9.0")
NO_DRIVER = "no working NVIDIA driver (NVML:"
NO_FLAGS = "/proc/cpuinfo lists no CPU flags: the CPU's features are unknown"
MESSAGES = {9: b"Driver Not Loaded", 15: b"GPU is lost"}


class Driver:
    """A driver in place of the real one, if there is any. It starts as one that is missing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values = {**H200, "INIT": "12"}
        functions = {
            name: lambda *given, it=it: it(self.values, *given) for name, it in NVML.items()
        }
        monkeypatch.setattr(pynvml, "nvmlLib", SimpleNamespace(**functions))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def answers(self, **values: str) -> None:
        self.values = {**H200, **values}


def put(*pairs: tuple[Any, Any]) -> int:
    """Store values behind pointers and in buffers, and return success, as NVML does."""
    for place, value in pairs:
        getattr(place, "_obj", place).value = value
    return 0


NVML: dict[str, Callable[..., Any]] = {
    "nvmlInitWithFlags": lambda own, _: int(own["INIT"]),
    "nvmlErrorString": lambda _, code: MESSAGES.get(code.value, b"Not Found"),
    "nvmlDeviceGetCount_v2": lambda own, out: put((out, int(own["COUNT"]))),
    "nvmlSystemGetDriverVersion": lambda own, out, _: put((out, own["DRIVER"].encode())),
    "nvmlSystemGetCudaDriverVersion_v2": lambda own, out: put((out, int(own["CUDA"]))),
    "nvmlDeviceGetHandleByIndex_v2": lambda own, at, _: 15 * (at.value == int(own["LOST"])),
    "nvmlDeviceGetName": lambda own, _, out, __: put((out, own["NAME"].encode())),
    "nvmlDeviceGetCudaComputeCapability": lambda own, _, *outs: put(
        *zip(outs, map(int, own["CAPABILITY"].split(".")), strict=True)
    ),
}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


LOST = {"COUNT": "3", "LOST": "1"}
ANSWERS: list[tuple[dict[str, str], list[MachineGpu], str | None, str]] = [
    ({}, [GPU], "580.159.04", ""),
    ({"COUNT": "0"}, [], "580.159.04", ""),  # a driver without GPUs is a driver
    (LOST, [GPU, replace(GPU, index=2)], "580.159.04", "GPU 1 cannot be read: GPU is lost"),
    ({"INIT": "12"}, [], None, f"{NO_DRIVER} NVML Shared Library Not Found)"),
    ({"INIT": "9"}, [], None, f"{NO_DRIVER} Driver Not Loaded)"),
    ({"DRIVER": "[N/A]"}, [GPU], None, ""),
    ({"DRIVER": "580"}, [GPU], "580", ""),
    ({"NAME": "bad\033[2J name"}, [replace(GPU, name="bad [2J name")], "580.159.04", ""),
    ({"CAPABILITY": "0.0"}, [replace(GPU, capability=None)], "580.159.04", ""),
]


@pytest.mark.parametrize(("answers", "gpus", "version", "note"), ANSWERS, ids=range(9))
def test_nvml_reports_gpus_and_driver_or_why_not(
    driver: Driver,
    tmp_path: Path,
    answers: dict[str, str],
    gpus: list[MachineGpu],
    version: str | None,
    note: str,
) -> None:
    driver.answers(**answers)
    here = detect.this_machine(tmp_path)
    assert (list(here.gpus), here.driver) == (gpus, version)
    assert list(here.notes) == [note] * bool(note) + [NO_FLAGS]
    assert here.cuda == (None if "INIT" in answers else "13.0")
    assert here.cpu.flags == ""
    assert read_again(here) == here


# --- the rest of the machine ---

# device | vendor, class and number
PCI = """
nvidia | 0x10de 0x030200 0x2684
sound  | 0x10de 0x040300 0x22ba
amd    | 0x1002 0x030000 0x744c
amd-2  | 0x1002 0x120000 0x74a1
odd    | 0x1002 0x030000 \x1b[2J
other  | 0x1002 0x040300 0xab30
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up / with PCI devices."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for row in PCI.strip().splitlines():
        name, values = (cell.strip() for cell in row.split("|"))
        device = tmp_path / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        for file, text in zip(("vendor", "class", "device"), values.split(), strict=True):
            (device / file).write_text(f"{text}\n")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/cpuinfo").write_text(X86.format(number=0, extra=""))
    return tmp_path


def test_gpus_on_the_bus_are_named_by_number_or_noted_with_the_fix(
    driver: Driver, root: Path
) -> None:
    here, note = detect.this_machine(root), "an NVIDIA GPU is on the PCI bus"
    assert here.other_gpus == tuple(f"AMD GPU 1002:{it}" for it in ("744c", "74a1", "unknown"))
    assert here.notes[1:] == (f"{note}: install the NVIDIA driver",)
    assert read_again(here) == here
    (root / ".dockerenv").touch()
    fix = "start the container with its GPUs (--gpus all)"
    assert detect.this_machine(root).notes[1:] == (f"{note}: {fix}",)
    driver.answers()
    assert detect.this_machine(root).notes == ()  # the one that the driver reports


@pytest.mark.usefixtures("driver")
def test_platform_and_wsl_are_recognised(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uname = platform.uname()
    for system, name, expected in (
        ("Linux", "aarch64", "aarch64-linux"),
        ("Darwin", "arm64", "aarch64-darwin"),
        ("Windows", "AMD64", "x86_64-windows"),
        ("Linux", "riscv64", "riscv64-linux"),
    ):
        other = uname._replace(system=system, machine=name)
        monkeypatch.setattr(platform, "uname", lambda other=other: other)
        assert detect.this_machine(root).platform == expected
    for kernel in ("6.6.87.2-microsoft-standard-WSL2+", "6.8.0-1021-azure"):
        (root / "proc/sys/kernel/osrelease").write_text(f"{kernel}\n")
        assert detect.this_machine(root).is_wsl is ("WSL" in kernel)


def test_programs_and_the_active_python_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("uv", "mamba"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert detect.person_here() == Person(tools=frozenset({"uv", "mamba", "conda"}))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    for line in ("version = 3.10.12", "version_info = 3.10.12.final.0"):
        (tmp_path / "pyvenv.cfg").write_text(f"home = /usr/bin\n{line}\n")
        assert detect.person_here().python == "3.10"


# --- descriptions in files ---


@pytest.mark.parametrize("path", sorted(MACHINES.glob("*.json")), ids=lambda path: path.stem)
def test_the_saved_flags_are_those_that_archspec_lists_for_the_cpu(path: Path) -> None:
    """An independent source: the table cannot be made to fit by inventing flags."""
    here = saved_machines.load(path)
    assert read_again(here) == here
    if path.stem not in NOT_IN_ARCHSPEC:
        known = archspec.cpu.TARGETS[here.cpu.microarchitecture or ""].features
        in_cpuinfo = {"pni" if feature == "sse3" else feature for feature in known}
        assert set() < in_cpuinfo <= set(here.cpu.flags.split())


GOOD = (MACHINES / "dgx-spark.json").read_bytes()
TWO = (MACHINES / "a100-and-rtx3090.json").read_bytes()
WRONG = [
    (GOOD.replace(b'"12.1"', b'"sm_121"'), ["gpus[0].capability: found"]),
    (GOOD.replace(b'"flags"', b'"flgs"'), ["cpu.flgs: unknown key"]),
    (GOOD.replace(b'"580', b'"v580'), ["driver: found"]),
    (GOOD.replace(b"machine 1", b"machine 2"), ["format: found"]),
    (GOOD.replace(b'"fp asimd', b'"fp\\nasimd'), ["cpu.flags: found"]),
    (GOOD.replace(b'"index": 0', b'"index": -1'), ["gpus[0].index: found -1"]),
    (GOOD.replace(b'"notes": []', b'"notes": ["\\u001b[2J"]'), ["notes[0]: found"]),
    (GOOD.replace(b"}", b"", 1), ["not JSON ("]),
    (b"[]", ["top level: found []; allowed: a table of keys"]),
    (b"[" * 100_000, ["not JSON (nested too deeply); write one with"]),
    (b'{"cpu": [], "gpus": {}}', ["platform: missing", "cpu: found []", "gpus: found {}"]),
    (TWO.replace(b'x": 1', b'x": 0'), ["gpus: found an index twice"]),
]


@pytest.mark.parametrize(("data", "errors"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_description_has_a_line_for_each_place(data: bytes, errors: list[str]) -> None:
    with pytest.raises(BuildPytorchError) as caught:
        saved_machines.parse(data, "file")
    found = str(caught.value).splitlines()
    assert len(found) == len(errors)
    for line, error in zip(found, errors, strict=True):
        assert line.startswith(f"file: {error}")
