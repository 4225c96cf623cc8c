"""Detecting this machine: the CPU from /proc/cpuinfo, GPUs and driver from NVML."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import archspec.cpu
import hypothesis
import msgspec
import pynvml
import pytest
from conftest import PROJECT
from drawn_machines import machines
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
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        pytest.skip("no /proc/cpuinfo here")
    here = detect.this_machine()
    line = next(x for x in cpuinfo.read_text().splitlines() if x.startswith(("flags", "Features")))
    assert set(here.cpu.flags.split()) <= set(line.partition(":")[2].split())
    assert here.cpu.flags
    assert here.cpu.microarchitecture is None  # a hypervisor may hide flags: no guess
    assert here.platform == f"{platform.machine()}-linux"


# --- the GPUs: a stand-in for the driver's library, which the real pynvml loads ---

# Its answers come from the environment, so that one library serves every test. Errors are those of
# nvml.h: 3 not supported, 9 driver not loaded, 12 library not found, 15 GPU is lost.
LIBNVIDIA_ML = r"""
#include <stdio.h>
#include <stdlib.h>
static int number(const char *name) { return atoi(getenv(name)); }
static int text(const char *name, char *out, unsigned size) {
    snprintf(out, size, "%s", getenv(name));
    return 0;
}
int nvmlInitWithFlags(unsigned flags) { return number("NVML_INIT"); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) {
    return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "Not Found";
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number("NVML_COUNT"); return 0; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return text("NVML_DRIVER", out, size); }
int nvmlSystemGetCudaDriverVersion_v2(int *cuda) { *cuda = number("NVML_CUDA"); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(long)(index + 1);
    return (int)index == number("NVML_LOST") ? 15 : 0;
}
int nvmlDeviceGetName(void *handle, char *out, unsigned size) {
    return text("NVML_NAME", out, size);
}
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    return sscanf(getenv("NVML_CAPABILITY"), "%d.%d", major, minor) == 2 ? 0 : 3;
}
"""

# What a real H200 answered.
H200 = {
    "INIT": "0",
    "COUNT": "1",
    "DRIVER": "580.159.04",
    "CUDA": "13000",
    "LOST": "-1",
    "NAME": "NVIDIA H200",
    "CAPABILITY": "9.0",
}
GPU = MachineGpu(index=0, name="NVIDIA H200", capability="9.0")
NO_DRIVER = "no working NVIDIA driver (NVML:"
NO_FLAGS = "/proc/cpuinfo lists no CPU flags: the CPU's features are unknown"


class Driver:
    """A driver's library before the real one, if there is any. It starts as one that is missing."""

    def __init__(self, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        self.answers(INIT="12")

    def answers(self, **values: str) -> None:
        for name, value in {**H200, **values}.items():
            self.monkeypatch.setenv(f"NVML_{name}", value)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "nvml.c").write_text(LIBNVIDIA_ML)
    path = folder / "libnvidia-ml.so.1"
    if not shutil.which("cc"):
        pytest.skip("no C compiler for the stand-in of the driver's library")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, folder / "nvml.c"], check=True)
    return path


@pytest.fixture
def driver(library: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(library, monkeypatch)


@pytest.mark.parametrize(
    ("answers", "gpus", "version", "notes"),
    [
        ({}, [GPU], "580.159.04", []),
        ({"COUNT": "0"}, [], "580.159.04", []),  # a driver without GPUs is a driver
        (
            {"COUNT": "3", "LOST": "1"},
            [GPU, replace(GPU, index=2)],
            "580.159.04",
            ["GPU 1 cannot be read: GPU is lost"],
        ),
        ({"INIT": "12"}, [], None, [f"{NO_DRIVER} NVML Shared Library Not Found)"]),
        ({"INIT": "9"}, [], None, [f"{NO_DRIVER} Driver Not Loaded)"]),
        ({"DRIVER": "[N/A]"}, [GPU], None, []),
        ({"DRIVER": "580"}, [GPU], "580", []),
        ({"NAME": "bad\033[2J name"}, [replace(GPU, name="bad [2J name")], "580.159.04", []),
        ({"CAPABILITY": "0.0"}, [replace(GPU, capability=None)], "580.159.04", []),
    ],
    ids=range(9),
)
def test_nvml_reports_gpus_and_driver_or_why_not(
    driver: Driver,
    tmp_path: Path,
    answers: dict[str, str],
    gpus: list[MachineGpu],
    version: str | None,
    notes: list[str],
) -> None:
    driver.answers(**answers)
    here = detect.this_machine(tmp_path)
    assert (list(here.gpus), here.driver, list(here.notes)) == (gpus, version, [*notes, NO_FLAGS])
    assert here.cuda == (None if "INIT" in answers else "13.0")
    assert here.cpu.flags == ""
    assert read_again(here) == here


def test_a_machine_without_the_library_has_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real loader, which finds no such library where there is no driver."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        monkeypatch.setattr(pynvml, "nvmlLib", None)
        assert detect.this_machine().notes[0] == f"{NO_DRIVER} NVML Shared Library Not Found)"
    else:
        pytest.skip("this machine has the driver's library")


# --- the rest of the machine ---

NVIDIA = {"gpu": ("0x10de", "0x030200", "0x2684"), "sound": ("0x10de", "0x040300", "0x22ba")}
AMD = {
    "card": ("0x1002", "0x030000", "0x744c"),
    "instinct": ("0x1002", "0x120000", "0x74a1"),
    "odd": ("0x1002", "0x030000", "\x1b[2J"),
    "sound": ("0x1002", "0x040300", "0xab30"),
}


def tree(folder: Path, devices: dict[str, tuple[str, str, str]]) -> Path:
    """A made-up / with these PCI devices: vendor, class and number."""
    for name, values in devices.items():
        device = folder / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        for file, text in zip(("vendor", "class", "device"), values, strict=True):
            (device / file).write_text(f"{text}\n")
    (folder / "proc/sys/kernel").mkdir(parents=True)
    (folder / "proc/cpuinfo").write_text(X86.format(number=0, extra=""))
    return folder


def test_a_gpu_without_a_driver_is_noted_with_the_fix(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    root, note = tree(tmp_path, NVIDIA), "an NVIDIA GPU is on the PCI bus"
    assert detect.this_machine(root).notes[1:] == (f"{note}: install the NVIDIA driver",)
    (root / ".dockerenv").touch()
    fix = "start the container with its GPUs (--gpus all)"
    assert detect.this_machine(root).notes[1:] == (f"{note}: {fix}",)
    driver.answers()
    assert detect.this_machine(root).notes == ()  # the one that the driver reports


@pytest.mark.usefixtures("driver")
def test_amd_gpus_are_named_by_their_number(tmp_path: Path) -> None:
    here = detect.this_machine(tree(tmp_path, AMD))
    assert here.other_gpus == tuple(f"AMD GPU 1002:{it}" for it in ("744c", "74a1", "unknown"))
    assert read_again(here) == here
    assert len(here.notes) == 1, "none of NVIDIA"


@pytest.mark.usefixtures("driver")
def test_platform_and_wsl_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, uname = tree(tmp_path, {}), platform.uname()
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


@pytest.mark.parametrize("name", sorted(path.stem for path in MACHINES.glob("*.json")))
def test_the_saved_flags_are_those_that_archspec_lists_for_the_cpu(name: str) -> None:
    """An independent source: the table cannot be made to fit by inventing flags."""
    here = saved_machines.load(MACHINES / f"{name}.json")
    assert read_again(here) == here
    if name not in NOT_IN_ARCHSPEC:
        known = archspec.cpu.TARGETS[here.cpu.microarchitecture or ""].features
        in_cpuinfo = {"pni" if feature == "sse3" else feature for feature in known}
        assert in_cpuinfo
        assert in_cpuinfo <= set(here.cpu.flags.split())


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(machines())
def test_a_description_is_read_as_it_was_written(here: Machine) -> None:
    assert read_again(here) == here


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
