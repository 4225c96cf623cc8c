"""Reading the machine that this runs on. Whatever cannot be read is a note, never an error."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from build_pytorch.hardware import nvidia, processor
from build_pytorch.hardware.machine_model import Machine

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""What macOS, BSD and Windows call the machines for which Nix has Linux's name."""


def this_machine(root: Path = Path("/")) -> Machine:
    """Describe this machine. `root` is where its proc, sys and run are."""
    cpuinfo = _text(root / "proc/cpuinfo")
    cpu = processor.parse(cpuinfo, processor.microarchitecture())
    found = nvidia.read()
    notes = list(found.notes)
    if not cpu.flags:
        where = "names no CPU flags" if cpuinfo else "cannot be read here"
        notes.append(f"/proc/cpuinfo {where}: what the CPU can do is unknown")
    if not found.gpus:
        notes.extend(_unreached(root))
    return Machine(
        platform=_platform(),
        cpu=cpu,
        gpus=found.gpus,
        driver=found.driver,
        cuda=found.cuda,
        memory=_memory(root),
        notes=tuple(notes),
    )


def _platform() -> str:
    """The platform as Nix names it; an emulated Python (Rosetta, qemu) tells the emulated one."""
    uname = platform.uname()
    machine = uname.machine.lower()
    return f"{_MACHINES.get(machine, machine)}-{uname.system.lower()}"


def _unreached(root: Path) -> Iterator[str]:
    """NVIDIA GPUs that the PCI bus has and no driver answers for: in a container, or without one.

    A container sees the host's /sys, whichever devices it was given.
    """
    gpus = [
        device
        for device in sorted((root / "sys/bus/pci/devices").glob("*"))
        if _text(device / "vendor").strip() == "0x10de"  # NVIDIA
        and _text(device / "class").startswith("0x03")  # display controllers; not their sound
    ]
    if not gpus:
        return
    what = "1 NVIDIA GPU is" if len(gpus) == 1 else f"{len(gpus)} NVIDIA GPUs are"
    marks = (root / ".dockerenv", root / "run/.containerenv")
    inside = any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ
    yield f"{what} on the PCI bus all the same: " + (
        "start the container with its GPUs (--gpus all)" if inside else "install its driver"
    )


def _memory(root: Path) -> int | None:
    """The machine's memory in bytes; a container's limit may be lower."""
    found = re.search(r"(?m)^MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo"))
    return int(found[1]) << 10 or None if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
