"""Detect this machine: CPU, NVIDIA GPUs, driver, platform, memory.

Nothing here raises: what cannot be detected becomes a note of the machine.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pynvml

from build_pytorch.hardware.saved_machines import Bytes, Driver, Machine, MachineGpu, Processor
from build_pytorch.matrix.field_types import Capability, CudaVersion

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""Machine names of macOS, BSD and Windows -> the ones that Nix and Linux use."""


class NvmlFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What NVML reports. Without a working driver only `notes` has content."""

    gpus: tuple[MachineGpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    notes: tuple[str, ...] = ()


def this_machine(root: Path = Path("/")) -> Machine:
    """Describe this machine. `root` is the folder of its proc, sys and run."""
    cpuinfo = file_text(root / "proc/cpuinfo")
    cpu = parse_cpuinfo(cpuinfo)
    nvml = read_nvml()
    notes = list(nvml.notes)
    if not cpu.flags:
        why = "lists no CPU flags" if cpuinfo else "cannot be read"
        notes.append(f"/proc/cpuinfo {why}: the CPU's features are unknown")
    if not nvml.gpus and (unreachable := _unreachable_gpus(root)):
        notes.append(unreachable)
    kernel = file_text(root / "proc/sys/kernel/osrelease").lower()
    uname = platform.uname()  # an emulated Python (Rosetta, qemu) reports the emulated machine
    machine = uname.machine.lower()
    memory = re.search(r"(?m)^MemTotal:\s+(\d+) kB", file_text(root / "proc/meminfo"))
    return Machine(
        platform=f"{_MACHINES.get(machine, machine)}-{uname.system.lower()}",
        cpu=cpu,
        gpus=nvml.gpus,
        driver=nvml.driver,
        cuda=nvml.cuda,
        memory=_valid(int(memory[1]) << 10, Bytes) if memory else None,
        other_gpus=tuple(_others(root)),
        is_wsl="microsoft" in kernel and "wsl" in kernel,
        notes=tuple(notes),
    )


def parse_cpuinfo(text: str) -> Processor:
    """Parse the text of /proc/cpuinfo, of x86 and of ARM.

    Only flags that every processor has are kept, because a program may run on any of them (big and
    little cores, sockets of two kinds). ARM gives numbers in place of vendor and model names.
    """
    blocks = [_fields(block) for block in re.split(r"\n\s*\n", text)]
    processors = [block for block in blocks if "processor" in block]
    lists = [(block.get("flags") or block.get("Features") or "").split() for block in processors]
    first, *others = lists or [[]]
    shared = set(first).intersection(*others)
    sockets = {block["physical id"] for block in processors if "physical id" in block}
    return Processor(
        vendor=_named(processors, "vendor_id", "CPU implementer"),
        model=_named(processors, "model name", "CPU part"),
        flags=" ".join(flag for flag in dict.fromkeys(first) if flag in shared),
        processors=len(processors) or None,
        sockets=len(sockets) or None,
    )


def read_nvml() -> NvmlFacts:
    """Read the GPUs, the driver version, and the newest CUDA version that the driver supports."""
    gpus: list[MachineGpu] = []
    notes: list[str] = []
    try:
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpus.append(_gpu(index))
            except pynvml.NVMLError as error:  # lost from the bus, or no permission
                notes.append(f"GPU {index} cannot be read: {_clean(str(error))}")
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()  # 13000 is 13.0
        return NvmlFacts(
            gpus=tuple(gpus),
            driver=_valid(pynvml.nvmlSystemGetDriverVersion(), Driver),
            cuda=_valid(f"{cuda // 1000}.{cuda % 1000 // 10}", CudaVersion) if cuda else None,
            notes=tuple(notes),
        )
    except pynvml.NVMLError as error:
        return NvmlFacts(notes=(f"no working NVIDIA driver (NVML: {_clean(str(error))})",))
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


class GpuClocks(msgspec.Struct, frozen=True, kw_only=True):
    """What slows a GPU down now, its clock in MHz and its free memory in bytes; 0: unknown."""

    throttled: tuple[str, ...] = ()
    clock: int = 0
    free: int = 0


_THROTTLED: Final = {
    "heat": pynvml.nvmlClocksEventReasonSwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "hardware": pynvml.nvmlClocksEventReasonHwSlowdown,
    "power brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
}
"""Reasons of NVML that come and go. The power cap is not one: large products always reach it."""


def gpu_clocks(index: int) -> GpuClocks:
    """Read the clock of a GPU and why it is lower than it could be."""
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        return GpuClocks(
            throttled=tuple(name for name, bits in _THROTTLED.items() if reasons & bits),
            clock=int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            free=int(pynvml.nvmlDeviceGetMemoryInfo(handle).free),
        )
    except pynvml.NVMLError:
        return GpuClocks()
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _gpu(index: int) -> MachineGpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = None
    with contextlib.suppress(pynvml.NVMLError):  # not supported if it shares the CPU's memory
        memory = _valid(int(pynvml.nvmlDeviceGetMemoryInfo(handle).total), Bytes)
    return MachineGpu(
        index=index,
        name=_clean(pynvml.nvmlDeviceGetName(handle)) or "a GPU without a name",
        capability=_valid(f"{major}.{minor}", Capability),
        memory=memory,
    )


def _unreachable_gpus(root: Path) -> str:
    """Return the number of NVIDIA GPUs on the PCI bus, with what to do; empty if there is none.

    A container sees all PCI devices of its host in /sys.
    """
    gpus = _pci_devices(root, "0x10de", "0x03")
    if not gpus:
        return ""
    found = "1 NVIDIA GPU is" if len(gpus) == 1 else f"{len(gpus)} NVIDIA GPUs are"
    marks = (root / ".dockerenv", root / "run/.containerenv")
    fix = "install the NVIDIA driver"
    if any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ:
        fix = "start the container with its GPUs (--gpus all)"
    return f"{found} on the PCI bus: {fix}"


def _others(root: Path) -> Iterator[str]:
    """Yield the AMD GPUs on the PCI bus, with the numbers of their models."""
    amd = "0x1002"
    # 0x12: processing accelerators, which is what an Instinct is on the PCI bus.
    for device in _pci_devices(root, amd, "0x03") + _pci_devices(root, amd, "0x12"):
        number = file_text(device / "device").strip().removeprefix("0x")
        yield f"AMD GPU 1002:{number}" if re.fullmatch("[0-9a-f]{4}", number) else "AMD GPU"


def _pci_devices(root: Path, vendor: str, kind: str) -> list[Path]:
    """Return the PCI devices of a vendor and a class: 0x03 are display controllers."""
    return [
        device
        for device in sorted((root / "sys/bus/pci/devices").glob("*"))
        if file_text(device / "vendor").strip() == vendor
        and file_text(device / "class").startswith(kind)
    ]


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _named(processors: Iterable[dict[str, str]], x86: str, arm: str) -> str | None:
    """Return the distinct values of a field: `part 0xd85 + part 0xd87` for ARM's `CPU part`."""
    kind = arm.removeprefix("CPU ")
    names = [it.get(x86) or (f"{kind} {it[arm]}" if it.get(arm) else "") for it in processors]
    return _clean(" + ".join(dict.fromkeys(filter(None, names))))


def _clean(text: str) -> str | None:
    """Return the text as one line without control characters, or None if nothing is left."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split()) or None


def _valid(value: str | int, kind: Any) -> Any:  # noqa: ANN401 - a type of saved_machines
    """Return the value if the type allows it, else None: a driver may report `[N/A]` or 0."""
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(value, kind)
    return None


def file_text(path: Path) -> str:
    """Return the text of a file in /proc or /sys; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
