"""The two lines about a machine with which `recommend` and `doctor` begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from build_pytorch.base.console import WIDTH, Screen, shortened
from build_pytorch.hardware import explain
from build_pytorch.hardware.saved_machines import Machine, MachineGpu
from build_pytorch.matrix.compatibility import missing_cpu_flags
from build_pytorch.matrix.tables import CpuIsa

_INDENT = len("machine  ")


def print_machine(screen: Screen, machine: Machine, isas: Iterable[CpuIsa]) -> None:
    """Print what is known of a machine, and what could not be detected.

    Of the CPU, the highest of `isas` that it has.
    """
    for line in machine_lines(machine, isas):
        screen.fold("", shortened(line, 2 * WIDTH - _INDENT), indent=_INDENT)
    for note in machine.notes:
        screen.fold("note     ", note, "yellow", indent=_INDENT)


def machine_lines(machine: Machine, isas: Iterable[CpuIsa]) -> list[str]:
    """Return what is known of a machine, without its notes. May hold control characters."""
    cpu, flags = machine.cpu, machine.cpu.flags.split()
    here = [
        isa
        for isa in isas
        if isa.platform == machine.platform and not missing_cpu_flags(isa, flags)
    ]
    highest = max(here, key=lambda isa: isa.level, default=None)
    name = cpu.model or cpu.vendor or "an unknown CPU"
    has = f", {highest.title}" if highest and flags and highest.title not in name else ""
    kinds = explain.joined(
        (str(gpu.index), f"{gpu.name} ({', '.join(_facts(gpu))})") for gpu in machine.gpus
    )
    gpus = [f"{indices}: {text}" for indices, text in kinds]
    if len(kinds) == 1:
        count = len(machine.gpus)
        gpus = [f"{count} x {kinds[0][1]}" if count > 1 else kinds[0][1]]
    versions = (("driver", machine.driver), ("CUDA", machine.cuda))
    driver = ", ".join(f"{name} {version}" for name, version in versions if version)
    found = ", ".join([*gpus, *machine.other_gpus]) or "none with a working driver"
    return [
        f"machine  {machine.platform}, {name}{has}",
        f"gpu      {found}{driver and f'; {driver}'}",
    ]


def _facts(gpu: MachineGpu) -> Iterator[str]:
    yield gpu.capability or "capability unknown"
    if gpu.memory:
        yield f"{gpu.memory / 2**30:.0f} GiB"
