"""Reading this machine: the CPU from /proc/cpuinfo, GPUs from NVML or nvidia-smi, or neither."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import PROJECT, Project, error_line

from build_pytorch.base.errors import WriteError
from build_pytorch.hardware import detect, nvidia, processor, saved_machines
from build_pytorch.hardware.machine_model import Machine

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
    cpu = processor.parse(text)
    assert cpu.flags == "fpu avx2 fma f16c"
    assert cpu.vendor == "GenuineIntel"
    assert cpu.model == "Intel(R) Xeon(R) Platinum 8480+"
    assert (cpu.processors, cpu.sockets) == (4, 2)


def test_arm_has_its_features_and_numbers_for_names() -> None:
    text = "".join(ARM.format(number=n, part="0xd4f", extra="sve sve2") for n in range(3))
    cpu = processor.parse(text)
    assert cpu.flags == "fp asimd fphp sve sve2"
    assert cpu.vendor == "implementer 0x41"
    assert cpu.model == "part 0xd4f"
    assert (cpu.processors, cpu.sockets) == (3, None)


def test_a_flag_counts_where_every_processor_has_it() -> None:
    """Big and little cores, or two sockets of two kinds: a program may run on any of them."""
    big = ARM.format(number=0, part="0xd85", extra="sve sve2")
    little = ARM.format(number=1, part="0xd87", extra="sve")
    cpu = processor.parse(big + little)
    assert cpu.flags == "fp asimd fphp sve"
    assert cpu.model == "part 0xd85 + part 0xd87"
    assert cpu.lacks(("sve", "sve2")) == ("sve2",)


def test_a_block_that_is_no_processor_takes_no_flag_away() -> None:
    text = ARM.format(number=0, part="0xd08", extra="") + "Hardware\t: BCM2835\nModel\t\t: Pi\n"
    assert processor.parse(text).flags == "fp asimd fphp"


@pytest.mark.parametrize("text", ["", "\n\n", "processor\t: 0\n", "model name: x\n"])
def test_a_cpuinfo_without_flags_is_a_cpu_without_flags(text: str) -> None:
    assert processor.parse(text).flags == ""


def test_this_machine_has_what_the_kernel_says() -> None:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        pytest.skip("no /proc/cpuinfo here")
    here = detect.this_machine()
    line = next(x for x in cpuinfo.read_text().splitlines() if x.startswith(("flags", "Features")))
    assert set(here.cpu.flags.split()) <= set(line.partition(":")[2].split())
    assert here.cpu.flags
    assert here.cpu.microarchitecture
    assert here.platform == f"{platform.machine()}-linux"
    assert here.memory is not None
    assert here.memory > 1 << 28


# --- the GPUs: stand-ins for pynvml and nvidia-smi ---

PYNVML = """
class NVMLError(Exception):
    pass

def nvmlInit():
    if {init!r}:
        raise NVMLError({init!r})

def nvmlShutdown():
    pass

def nvmlDeviceGetCount():
    return {count}

def nvmlSystemGetDriverVersion():
    return {driver!r}

def nvmlSystemGetCudaDriverVersion_v2():
    return {cuda}

def nvmlDeviceGetHandleByIndex(index):
    if index in {lost!r}:
        raise NVMLError("GPU is lost")
    return index

def nvmlDeviceGetName(handle):
    return {name!r}

def nvmlDeviceGetCudaComputeCapability(handle):
    return {capability!r}

class Memory:
    total = 150754820096

def nvmlDeviceGetMemoryInfo(handle):
    if {unified}:
        raise NVMLError("Not Supported")
    return Memory
"""

# What a real H200 answered.
H200 = {
    "init": "",
    "count": 1,
    "driver": "580.159.04",
    "cuda": 13000,
    "lost": (),
    "name": "NVIDIA H200",
    "capability": (9, 0),
    "unified": False,
}
SMI_ROW = "0, 9.0, 580.159.04, 143771, NVIDIA H200"
SMI_LOG = """
==============NVSMI LOG==============

Timestamp                                              : Sat Nov 21 03:03:09 2026
Driver Version                                         : 580.159.04
CUDA Version                                           : 13.0

Attached GPUs                                          : 1
GPU 00000000:00:06.0
    Compute Mode                                       : Default
"""


class StandIns:
    """A pynvml module and an nvidia-smi program before the real ones, if there are any."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.modules = folder / "modules"
        self.tools = folder / "tools"
        for path in (self.modules, self.tools):
            path.mkdir()
        monkeypatch.setenv("PATH", f"{self.tools}:/usr/bin:/bin")
        monkeypatch.syspath_prepend(str(self.modules))
        self.nvml(init="NVML Shared Library Not Found")

    def nvml(self, **values: Any) -> None:
        (self.modules / "pynvml.py").write_text(PYNVML.format(**{**H200, **values}))
        self.monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    def no_nvml_module(self) -> None:
        (self.modules / "pynvml.py").write_text("raise ModuleNotFoundError(name='pynvml')")
        self.monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    def smi(self, script: str) -> None:
        tool = self.tools / "nvidia-smi"
        tool.write_text("#!/bin/sh\n" + textwrap.dedent(script))
        tool.chmod(0o755)

    def smi_rows(self, rows: str, log: str = SMI_LOG) -> None:
        self.smi(f'case "$1" in -q) cat <<"E"\n{log}\nE\n;; *) cat <<"E"\n{rows}\nE\n;; esac\n')


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    # A module that is rewritten within a second keeps its compiled form otherwise.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return StandIns(tmp_path, monkeypatch)


def test_nvml_tells_gpus_driver_and_cuda(stand_ins: StandIns) -> None:
    stand_ins.nvml()
    found = nvidia.read()
    (gpu,) = found.gpus
    assert (gpu.index, gpu.name, gpu.capability) == (0, "NVIDIA H200", "9.0")
    assert gpu.memory == 150754820096
    assert (found.driver, found.cuda, found.notes) == ("580.159.04", "13.0", ())


def test_nvidia_smi_tells_the_same(stand_ins: StandIns) -> None:
    """The rows and the log are those of a real H200; NVML's memory there was the same number."""
    stand_ins.smi_rows(SMI_ROW)
    by_smi = nvidia.read()
    stand_ins.nvml()
    assert by_smi == nvidia.read()


def test_nvml_goes_before_nvidia_smi(stand_ins: StandIns) -> None:
    stand_ins.nvml(name="by NVML")
    stand_ins.smi_rows(SMI_ROW)
    assert [gpu.name for gpu in nvidia.read().gpus] == ["by NVML"]


def test_without_the_python_package_nvidia_smi_is_asked(stand_ins: StandIns) -> None:
    stand_ins.no_nvml_module()
    stand_ins.smi_rows(SMI_ROW)
    assert [gpu.name for gpu in nvidia.read().gpus] == ["NVIDIA H200"]


def test_memory_that_a_gpu_shares_with_the_cpu_is_not_its_own(stand_ins: StandIns) -> None:
    stand_ins.nvml(name="NVIDIA GB10", capability=(12, 1), unified=True)
    (by_nvml,) = nvidia.read().gpus
    stand_ins.nvml(init="Driver Not Loaded")
    stand_ins.smi_rows("0, 12.1, 580.95.05, [N/A], NVIDIA GB10")
    (by_smi,) = nvidia.read().gpus
    assert by_nvml == by_smi
    assert by_smi.memory is None


def test_a_lost_gpu_is_a_note_and_the_others_keep_their_numbers(stand_ins: StandIns) -> None:
    stand_ins.nvml(count=3, lost=(1,))
    found = nvidia.read()
    assert [gpu.index for gpu in found.gpus] == [0, 2]
    assert found.notes == ("GPU 1 does not answer: GPU is lost",)


def test_a_comma_in_a_name_is_part_of_it(stand_ins: StandIns) -> None:
    stand_ins.smi_rows(
        "0, 9.0, 580.1.2, 143771, Graphics Device, rev 2\n1, 8.0, 580.1.2, 40960, A100"
    )
    assert [gpu.name for gpu in nvidia.read().gpus] == ["Graphics Device, rev 2", "A100"]


def test_an_nvidia_smi_that_knows_no_capability_says_the_rest(stand_ins: StandIns) -> None:
    """The wording is that of a real nvidia-smi for a field that it does not know."""
    stand_ins.smi(
        """
        case "$*" in
        -q*) echo 'CUDA Version : 11.4' ;;
        *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2 ;;
        *) echo '0, 470.256.02, 16160, Tesla V100-SXM2-16GB' ;;
        esac
        """
    )
    found = nvidia.read()
    assert [(gpu.name, gpu.capability) for gpu in found.gpus] == [("Tesla V100-SXM2-16GB", None)]
    assert (found.driver, found.cuda) == ("470.256.02", "11.4")
    assert found.notes == ("nvidia-smi is too old to tell the compute capability",)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            'echo "NVIDIA-SMI has failed because it couldn\'t communicate"; exit 9',
            "nvidia-smi: NVIDIA-SMI has failed because it couldn't communicate",
        ),
        ("exit 12", "nvidia-smi: exit code 12"),
        ("echo 'Unable to determine the device handle' >&2; exit 15", "Unable to determine"),
        ("echo nonsense", "an answer that is no table: nonsense"),
        ("true", "an answer that is no table"),
        ("printf 'bad\\033[2Jnews'; exit 1", "nvidia-smi: bad [2Jnews"),
    ],
)
def test_where_nothing_answers_the_note_has_both_reasons(
    stand_ins: StandIns, script: str, says: str
) -> None:
    stand_ins.smi(script)
    found = nvidia.read()
    assert not found.answered
    (note,) = found.notes
    assert note.startswith("no NVIDIA driver answers (NVML: NVML Shared Library Not Found; ")
    assert says in note


def test_no_device_is_an_answer(stand_ins: StandIns) -> None:
    stand_ins.smi("echo 'No devices were found'; exit 6")
    found = nvidia.read()
    assert found.answered
    assert found.gpus == ()


@pytest.mark.parametrize(
    "row",
    [
        "5000, 12.1, 580.95.05, 10, NVIDIA GB10",
        f"{'1' * 5000}, 12.1, 580.95.05, 10, NVIDIA GB10",
        f"0, 12.1, 580.95.05, {'9' * 40}, NVIDIA GB10",
        "no table " * 100,
    ],
)
def test_an_answer_that_cannot_be_true_is_a_note_of_one_short_line(
    stand_ins: StandIns, row: str
) -> None:
    stand_ins.smi_rows(row)
    found = nvidia.read()
    assert found.gpus == ()
    (note,) = found.notes
    assert "nvidia-smi: an answer that" in note
    assert "\n" not in note
    assert len(note) < 300


def test_an_nvidia_smi_that_hangs_is_ended(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvidia, "_SECONDS", 0.2)
    stand_ins.smi("exec sleep 60")
    (note,) = nvidia.read().notes
    assert "no answer within 0.2 s" in note


@pytest.mark.parametrize("version", ["N/A", "[N/A]", "", "580", "unknown"])
def test_a_version_that_is_none_is_unknown(stand_ins: StandIns, version: str) -> None:
    stand_ins.nvml(driver=version, cuda=0)
    found = nvidia.read()
    assert found.driver is None
    assert (
        saved_machines.parse(saved_machines.text_of(machine_of(found)).encode(), "f").driver is None
    )


def machine_of(found: nvidia.Found) -> Machine:
    return Machine(
        platform="x86_64-linux",
        cpu=processor.parse(""),
        gpus=found.gpus,
        driver=found.driver,
        cuda=found.cuda,
    )


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


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    ("container", "says"),
    [(True, "start the container with its GPUs (--gpus all)"), (False, "install its driver")],
)
def test_a_gpu_that_nothing_answers_for_is_noted_with_the_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, *, container: bool
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "root").mkdir()
    here = detect.this_machine(tree(tmp_path / "root", container=container))
    assert here.notes[1:] == (f"1 NVIDIA GPU is on the PCI bus all the same: {says}",)
    assert here.memory == 131981020 * 1024


def test_a_gpu_that_answers_is_not_noted(stand_ins: StandIns, tmp_path: Path) -> None:
    stand_ins.nvml()
    (tmp_path / "root").mkdir()
    assert detect.this_machine(tree(tmp_path / "root", container=True)).notes == ()


@pytest.mark.usefixtures("stand_ins")
def test_a_machine_without_proc_is_described_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    here = detect.this_machine(tmp_path / "root")
    assert here.cpu.flags == ""
    assert here.notes[-1] == ("/proc/cpuinfo cannot be read here: what the CPU can do is unknown")
    assert saved_machines.parse(saved_machines.text_of(here).encode(), "f") == here


@pytest.mark.usefixtures("stand_ins")
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
    from build_pytorch.hardware import processor as cpu

    monkeypatch.setattr(cpu, "microarchitecture", lambda: None)
    told = platform.uname()._replace(system=system, machine=name)
    monkeypatch.setattr(platform, "uname", lambda: told)
    assert detect.this_machine(tmp_path).platform == expected


# --- the commands ---


def environment(stand_ins: StandIns) -> dict[str, str]:
    return {"PYTHONPATH": str(stand_ins.modules), "PATH": os.environ["PATH"]}


def test_describe_machine_prints_what_recommend_reads(
    project: Project, stand_ins: StandIns
) -> None:
    stand_ins.nvml()
    done = project.run("invoke", "describe-machine", env=environment(stand_ins))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["gpus"][0]["name"] == "NVIDIA H200"
    (project.root / "here.json").write_text(done.stdout)
    by_file = project.invoke("recommend", "--machine", "here.json", "--json")
    directly = project.run("invoke", "recommend", "--json", env=environment(stand_ins))
    assert json.loads(by_file.stdout) == json.loads(directly.stdout)


def test_describe_machine_by_nvidia_smi_alone(project: Project, stand_ins: StandIns) -> None:
    stand_ins.smi_rows(SMI_ROW)
    done = project.run("invoke", "describe-machine", env=environment(stand_ins))
    document = json.loads(done.stdout)
    assert document["driver"] == "580.159.04"
    assert document["gpus"][0]["capability"] == "9.0"


def test_a_description_names_no_machine(project: Project) -> None:
    words = set(re.findall(r"[\w.-]+", project.invoke("describe-machine").stdout.lower()))
    assert "platform" in words
    assert not {platform.node().lower(), "uuid", "serial", "hostname"} & words


def test_describe_machine_writes_a_file_and_replaces_an_older_one(project: Project) -> None:
    for _ in range(2):
        done = project.invoke("describe-machine", "--output", "here.json")
        assert done.returncode == 0, done.stderr
        assert "written to here.json" in done.stderr
    assert saved_machines.load(project.root / "here.json").cpu.flags
    assert [path.name for path in project.root.glob("*here.json*")] == ["here.json"]


def test_describe_machine_prints_where_the_file_is_a_dash(project: Project) -> None:
    done = project.invoke("describe-machine", "--output", "-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["format"] == "build-pytorch machine 1"
    assert not (project.root / "-").exists()


def test_describe_machine_needs_a_name_where_it_is_given_one(project: Project) -> None:
    done = project.invoke("describe-machine", "--output", "")
    assert done.returncode == 2
    assert "--output: found nothing, as from a variable that was not set" in error_line(done)


def test_describe_machine_writes_through_a_link(project: Project) -> None:
    assert project.invoke("describe-machine", "--output", "here.json").returncode == 0
    (project.root / "here.json").write_bytes(
        (PROJECT / "tests/machines/dgx-spark.json").read_bytes()
    )
    link = project.root / "link.json"
    link.symlink_to("here.json")
    assert project.invoke("describe-machine", "--output", "link.json").returncode == 0
    assert link.is_symlink()
    assert "GB10" not in (project.root / "here.json").read_text()


def test_describe_machine_replaces_nothing_else(project: Project) -> None:
    before = project.snapshot()
    done = project.invoke("describe-machine", "--output", "matrix.toml")
    assert done.returncode == 2
    assert error_line(done) == "matrix.toml: exists and describes no machine; name another file"
    assert project.snapshot() == before


def test_a_folder_that_is_not_there_is_one_line(project: Project) -> None:
    done = project.invoke("describe-machine", "--output", "none/here.json")
    assert done.returncode == 2
    assert error_line(done) == "none/here.json: cannot be written: No such file or directory"


def test_a_link_is_not_followed_to_a_file_that_is_none_of_ours(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("x")
    link = tmp_path / "here.json"
    link.symlink_to(target)
    with pytest.raises(WriteError, match="describes no machine"):
        saved_machines.save(Machine(platform="x86_64-linux", cpu=processor.parse("")), link)
    assert target.read_text() == "x"
