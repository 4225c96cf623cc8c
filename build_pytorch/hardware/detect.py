"""Detect this machine: CPU, NVIDIA GPUs, driver, platform, and what a person has.

Nothing here raises: what cannot be detected becomes a note of the machine.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pynvml
from msgspec.structs import replace

from build_pytorch.hardware.choose import Person
from build_pytorch.hardware.saved_machines import Driver, Machine, MachineGpu, Processor
from build_pytorch.matrix.field_types import Capability, CudaVersion

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""Machine names of macOS, BSD and Windows -> the ones that Nix and Linux use."""
_TOOLS: Final = ("uv", "flox", "pixi", "mamba", "conda", "nix-shell")
_NVIDIA: Final = "0x10de"
_AMD: Final = "0x1002"


def person_here() -> Person:
    """Return the programs on PATH that install packages, and the version of an active Python."""
    tools = {name for name in _TOOLS if shutil.which(name)}
    if tools & {"pixi", "mamba"}:
        tools.add("conda")
    active = Path(os.environ.get("VIRTUAL_ENV", "/nonexistent"))
    version = re.search(r"(?m)^version\w* *= *(\d+\.\d+)", file_text(active / "pyvenv.cfg"))
    return Person(tools=frozenset(tools), python=version[1] if version else "")


def this_machine(root: Path = Path("/")) -> Machine:
    """Describe this machine. `root` is the folder of its proc, sys and run."""
    kernel, devices = file_text(root / "proc/sys/kernel/osrelease").lower(), list(_graphics(root))
    uname = platform.uname()  # an emulated Python (Rosetta, qemu) reports the emulated machine
    machine = uname.machine.lower()
    found = Machine(
        platform=f"{_MACHINES.get(machine, machine)}-{uname.system.lower()}",
        cpu=parse_cpuinfo(file_text(root / "proc/cpuinfo")),
        other_gpus=tuple(f"AMD GPU 1002:{name}" for vendor, name in devices if vendor == _AMD),
        is_wsl="microsoft" in kernel and "wsl" in kernel,
    )
    found = _with_driver(found)
    notes = list(found.notes)
    if not found.cpu.flags:
        notes.append("/proc/cpuinfo lists no CPU flags: the CPU's features are unknown")
    if not found.gpus and any(vendor == _NVIDIA for vendor, _ in devices):
        marks = (root / ".dockerenv", root / "run/.containerenv")
        is_container = "KUBERNETES_SERVICE_HOST" in os.environ or any(it.exists() for it in marks)
        fix = "start the container with its GPUs (--gpus all)" * is_container
        notes.append(f"an NVIDIA GPU is on the PCI bus: {fix or 'install the NVIDIA driver'}")
    return replace(found, notes=tuple(notes))


def parse_cpuinfo(text: str) -> Processor:
    """Parse the text of /proc/cpuinfo, of x86 and of ARM.

    Only flags that every processor has are kept, because a program may run on any of them (big and
    little cores, sockets of two kinds). ARM has numbers in place of names: `part 0xd85`.
    """
    blocks = []
    for block in re.split(r"\n\s*\n", text):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        blocks += [fields] if "processor" in fields else []
    flags = [(it.get("flags") or it.get("Features") or "").split() for it in blocks] or [[]]
    models = [it.get("model name") or f"part {it.get('CPU part', 'unknown')}" for it in blocks]
    return Processor(
        model=_clean(" + ".join(dict.fromkeys(models))),
        flags=" ".join(it for it in dict.fromkeys(flags[0]) if all(it in own for own in flags)),
    )


def _with_driver(machine: Machine) -> Machine:
    """Return a machine with its GPUs, its driver and the newest CUDA that the driver supports."""
    gpus: list[MachineGpu] = []
    notes: list[str] = []
    try:
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
                name = _clean(pynvml.nvmlDeviceGetName(handle)) or "a GPU without a name"
            except pynvml.NVMLError as error:  # lost from the bus, or no permission
                notes.append(f"GPU {index} cannot be read: {_clean(str(error))}")
            else:
                capability = _valid(f"{major}.{minor}", Capability)
                gpus.append(MachineGpu(index=index, name=name, capability=capability))
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()  # 13000 is 13.0
        return replace(
            machine,
            gpus=tuple(gpus),
            driver=_valid(pynvml.nvmlSystemGetDriverVersion(), Driver),
            cuda=_valid(f"{cuda // 1000}.{cuda % 1000 // 10}", CudaVersion) if cuda else None,
            notes=tuple(notes),
        )
    except pynvml.NVMLError as error:
        return replace(machine, notes=(f"no working NVIDIA driver (NVML: {_clean(str(error))})",))


def _graphics(root: Path) -> Iterator[tuple[str, str]]:
    """Yield vendor and number of the display controllers and accelerators (Instinct) on PCI."""
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        if file_text(device / "class").startswith(("0x03", "0x12")):
            number = re.match("0x([0-9a-f]{4})$", file_text(device / "device"))
            yield file_text(device / "vendor").strip(), number[1] if number else "unknown"


def _clean(text: str) -> str | None:
    """Return the text as one line without control characters, or None if nothing is left."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split()) or None


def _valid(value: str, kind: Any) -> Any:  # noqa: ANN401 - a type of saved_machines
    """Return the value if the type allows it, else None: a driver may report `[N/A]`."""
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(value, kind)
    return None


def file_text(path: Path) -> str:
    """Return the text of a file in /proc or /sys; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
