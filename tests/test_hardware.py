"""Detecting this machine: the CPU from /proc/cpuinfo, GPUs and driver from NVML."""

from __future__ import annotations

import ctypes
import json
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pynvml
import pytest
from conftest import Project, error_line
from msgspec.structs import replace

from build_pytorch.hardware import detect, saved_machines
from build_pytorch.hardware.saved_machines import MachineGpu, Processor

# --- the CPU ---

X86 = """\
processor\t: {number}
vendor_id\t: GenuineIntel
cpu family\t: 6
model name\t: Intel(R) Xeon(R) Platinum 8480+
physical id\t: {socket}
flags\t\t: fpu avx2 fma {extra}
bugs\t\t: spectre_v1

"""

ARM = """\
processor\t: {number}
BogoMIPS\t: 2000.00
Features\t: fp asimd fphp {extra}
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: {part}
CPU revision\t: 1

"""


def test_x86_has_its_flags_its_model_and_its_sockets() -> None:
    text = "".join(X86.format(number=n, socket=n // 2, extra="f16c") for n in range(4))
    assert detect.parse_cpuinfo("model name: x\n").flags == ""
    assert detect.parse_cpuinfo(text) == Processor(
        flags="fpu avx2 fma f16c",
        vendor="GenuineIntel",
        model="Intel(R) Xeon(R) Platinum 8480+",
        processors=4,
        sockets=2,
    )


def test_arm_has_its_features_and_numbers_for_names() -> None:
    """A flag counts where every processor has it: a program may run on big and little cores."""
    big = [ARM.format(number=n, part="0xd85", extra="sve sve2") for n in range(2)]
    little = ARM.format(number=2, part="0xd87", extra="sve")
    board = "Hardware\t: BCM2835\nModel\t\t: Pi\n"  # no processor: it takes no flag away
    assert detect.parse_cpuinfo("".join([*big, little, board])) == Processor(
        flags="fp asimd fphp sve",
        vendor="implementer 0x41",
        model="part 0xd85 + part 0xd87",
        processors=3,
    )


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
    assert here.memory is not None
    assert here.memory > 1 << 28


# --- the GPUs: a stand-in for the driver's library, which the real pynvml loads ---

# Its answers come from the environment, so that one library serves every test. Errors are those of
# nvml.h: 3 not supported, 9 driver not loaded, 12 library not found, 15 GPU is lost.
LIBNVIDIA_ML = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *name) { return atoi(getenv(name)); }
static int text(const char *name, char *out, unsigned size) {
    snprintf(out, size, "%s", getenv(name));
    return 0;
}
int nvmlInitWithFlags(unsigned flags) { return number("NVML_INIT"); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case 9: return "Driver Not Loaded";
    case 12: return "NVML Shared Library Not Found";
    case 15: return "GPU is lost";
    default: return "Not Supported";
    }
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
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory) {
    memset(memory, 0, 3 * sizeof *memory);
    memory[0] = atoll(getenv("NVML_MEMORY"));
    return memory[0] ? 0 : 3;
}
"""

# What a real H200 answered.
H200 = {
    "NVML_INIT": "0",
    "NVML_COUNT": "1",
    "NVML_DRIVER": "580.159.04",
    "NVML_CUDA": "13000",
    "NVML_LOST": "-1",
    "NVML_NAME": "NVIDIA H200",
    "NVML_CAPABILITY": "9.0",
    "NVML_MEMORY": "150754820096",
}


H200_GPU = MachineGpu(index=0, name="NVIDIA H200", capability="9.0", memory=150754820096)
NO_DRIVER = "no working NVIDIA driver (NVML:"


class Driver:
    """A driver's library before the real one, if there is any. It starts as one that is missing."""

    def __init__(self, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.library = library
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        self.answers(init="12")

    def answers(self, **values: str) -> None:
        self.values = H200 | {f"NVML_{name.upper()}": value for name, value in values.items()}
        for name, value in self.values.items():
            self.monkeypatch.setenv(name, value)

    @property
    def environment(self) -> dict[str, str]:
        """For another process, which loads the library as if it were the real one."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), **self.values}


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
    ("answers", "gpus", "driver_version", "notes"),
    [
        ({}, [H200_GPU], "580.159.04", ()),
        ({"count": "0"}, [], "580.159.04", ()),  # a driver without GPUs is a driver
        ({"memory": "0"}, [replace(H200_GPU, memory=None)], "580.159.04", ()),  # the CPU's
        (
            {"count": "3", "lost": "1"},
            [H200_GPU, replace(H200_GPU, index=2)],
            "580.159.04",
            ("GPU 1 cannot be read: GPU is lost",),
        ),
        ({"init": "12"}, [], None, (f"{NO_DRIVER} NVML Shared Library Not Found)",)),
        ({"init": "9"}, [], None, (f"{NO_DRIVER} Driver Not Loaded)",)),
        ({"driver": "[N/A]"}, [H200_GPU], None, ()),
        ({"driver": "580"}, [H200_GPU], None, ()),
        ({"name": "bad\033[2J name"}, [replace(H200_GPU, name="bad [2J name")], "580.159.04", ()),
    ],
    ids=range(9),
)
def test_nvml_reports_gpus_and_driver_or_why_not(
    driver: Driver,
    tmp_path: Path,
    answers: dict[str, str],
    gpus: list[MachineGpu],
    driver_version: str | None,
    notes: tuple[str, ...],
) -> None:
    driver.answers(**answers)
    here = detect.this_machine(tmp_path)
    assert (list(here.gpus), here.driver, here.notes[:-1]) == (gpus, driver_version, notes)
    assert here.cuda == (None if "init" in answers else "13.0")
    assert here.cpu.flags == ""
    assert here.notes[-1] == "/proc/cpuinfo cannot be read: the CPU's features are unknown"
    assert saved_machines.parse(saved_machines.text_of(here).encode(), "f") == here


def test_a_machine_without_the_library_has_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real loader, which finds no such library where there is no driver."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        monkeypatch.setattr(pynvml, "nvmlLib", None)
        found = detect.read_nvml()
        assert found.notes == ("no working NVIDIA driver (NVML: NVML Shared Library Not Found)",)
    else:
        pytest.skip("this machine has the driver's library")


# --- the rest of the machine ---


def tree(folder: Path, *, container: bool) -> Path:
    """A made-up /: one NVIDIA GPU with its sound device, and a network card."""
    devices = {"gpu": ("0x10de", "0x030200"), "sound": ("0x10de", "0x040300")}
    for name, (vendor, kind) in {**devices, "net": ("0x8086", "0x020000")}.items():
        device = folder / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    (folder / "proc").mkdir()
    (folder / "proc/meminfo").write_text("MemTotal:       131981020 kB\nMemFree: 1 kB\n")
    (folder / "proc/cpuinfo").write_text(X86.format(number=0, socket=0, extra=""))
    if container:
        (folder / ".dockerenv").touch()
    return folder


@pytest.mark.parametrize(
    ("container", "says"),
    [
        (True, "start the container with its GPUs (--gpus all)"),
        (False, "install the NVIDIA driver"),
    ],
)
def test_a_gpu_without_a_driver_is_noted_with_the_fix(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, *, container: bool
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    root = tree(tmp_path, container=container)
    here = detect.this_machine(root)
    assert here.notes[1:] == (f"1 NVIDIA GPU is on the PCI bus: {says}",)
    driver.answers()
    assert detect.this_machine(root).notes == ()  # the one that the driver reports
    assert here.memory == 131981020 * 1024


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("system", "name", "expected"),
    [
        ("Linux", "aarch64", "aarch64-linux"),
        ("Darwin", "arm64", "aarch64-darwin"),
        ("Windows", "AMD64", "x86_64-windows"),
        ("Linux", "riscv64", "riscv64-linux"),
    ],
)
def test_a_platform_has_the_name_that_nix_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, name: str, expected: str
) -> None:
    uname = platform.uname()._replace(system=system, machine=name)
    monkeypatch.setattr(platform, "uname", lambda: uname)
    assert detect.this_machine(tmp_path).platform == expected


@pytest.mark.usefixtures("driver")
def test_amd_gpus_are_named_by_their_number(tmp_path: Path) -> None:
    root = tree(tmp_path, container=False)
    found = {"card": ("0x030000", "0x744c"), "instinct": ("0x120000", "0x74a1")}
    for name, (kind, device) in {**found, "sound-amd": ("0x040300", "0xab30")}.items():
        folder = root / "sys/bus/pci/devices" / name
        folder.mkdir()
        for file, text in (("vendor", "0x1002"), ("class", kind), ("device", device)):
            (folder / file).write_text(f"{text}\n")
    here = detect.this_machine(root)
    assert here.other_gpus == ("AMD GPU 1002:744c", "AMD GPU 1002:74a1")
    assert saved_machines.parse(saved_machines.text_of(here).encode(), "f") == here
    (root / "sys/bus/pci/devices/card/device").write_text("\x1b[2J")
    assert detect.this_machine(root).other_gpus[0] == "AMD GPU"


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("kernel", "is_wsl"),
    [
        ("6.6.87.2-microsoft-standard-WSL2+", True),
        ("6.8.0-1021-azure", False),
    ],
)
def test_wsl_is_recognised_by_its_kernel(tmp_path: Path, kernel: str, *, is_wsl: bool) -> None:
    folder = tmp_path / "proc/sys/kernel"
    folder.mkdir(parents=True)
    (folder / "osrelease").write_text(f"{kernel}\n")
    here = detect.this_machine(tmp_path)
    assert here.is_wsl is is_wsl
    assert ('"is_wsl"' in saved_machines.text_of(here)) is is_wsl


# --- the commands ---


def test_describe_machine_prints_what_recommend_reads(project: Project, driver: Driver) -> None:
    """By the real loader, which finds the stand-in for the driver's library."""
    driver.answers()
    done = project.run_process("invoke", "describe-machine", env=driver.environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["gpus"][0]["name"] == "NVIDIA H200"
    words = set(re.findall(r"[\w.-]+", done.stdout.lower()))
    assert not {platform.node().lower(), "uuid", "serial", "hostname"} & words
    (project.root / "here.json").write_text(done.stdout)
    by_file = project.invoke("recommend", "--machine", "here.json", "--json")
    assert json.loads(by_file.stdout) == json.loads(project.invoke("recommend", "--json").stdout)


def test_describe_machine_writes_a_file_and_replaces_an_older_one(project: Project) -> None:
    for _ in range(2):
        done = project.invoke("describe-machine", "--output", "here.json")
        assert (done.returncode, "written to here.json" in done.stderr) == (0, True)
    assert saved_machines.load(project.root / "here.json").cpu.flags
    assert [path.name for path in project.root.glob("*here.json*")] == ["here.json"]
    done = project.invoke("describe-machine", "--output", "-")
    assert json.loads(done.stdout)["format"] == "build-pytorch machine 1"
    assert not (project.root / "-").exists()


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("", "--output: found an empty value, as from a variable that is not set"),
        ("link.json", "link.json: is a symbolic link; refusing to overwrite it"),
        ("matrix.toml", "matrix.toml: not a machine description; refusing to overwrite it"),
        ("none/here.json", "none/here.json: cannot be written: No such file or directory"),
    ],
)
def test_describe_machine_writes_to_nothing_else(project: Project, output: str, says: str) -> None:
    (project.root / "link.json").symlink_to("README.md")
    before = project.snapshot()
    done = project.invoke("describe-machine", "--output", output)
    assert done.returncode == 2
    assert error_line(done).startswith(says)
    assert project.snapshot() == before
