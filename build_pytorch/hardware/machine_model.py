"""A machine, as far as it decides which variant runs there. The structs are the file format.

A description never identifies one machine: no host name, serial number or UUID.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from build_pytorch.matrix.field_types import Capability, CudaVersion, Text, like

System = Annotated[
    str, like("[a-z0-9_]+-[a-z0-9]+", "a platform in Nix's notation, such as x86_64-linux")
]
Flags = Annotated[
    str,
    like("([a-z0-9_.-]+( [a-z0-9_.-]+)*)?", "flags of /proc/cpuinfo, separated by one space"),
]
Driver = Annotated[
    str, like(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", "a driver version such as 580.65.06")
]
Index = Annotated[int, Meta(ge=0, le=1023, description="a number from 0 to 1023")]
Count = Annotated[int, Meta(ge=1, le=1 << 20, description="a number above 0")]
Bytes = Annotated[int, Meta(ge=1, le=1 << 60, description="a number of bytes")]


class Processor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The CPU.

    Only `flags` decides which variants run: those of /proc/cpuinfo that every logical processor
    has. `microarchitecture` is archspec's name, for display; a hypervisor that hides one flag
    changes it to that of an older CPU. `processors` counts logical ones.
    """

    vendor: Text | None = None
    model: Text | None = None
    microarchitecture: Text | None = None
    flags: Flags
    processors: Count | None = None
    sockets: Count | None = None


class MachineGpu(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An NVIDIA GPU.

    `index` is its number in nvidia-smi. `memory` is None if it shares the CPU's (GB10, Thor).
    """

    index: Index
    name: Text
    capability: Capability | None = None
    memory: Bytes | None = None


class Machine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine.

    `cuda` is the newest CUDA version that the driver supports by its own report; `notes` list what
    could not be detected.
    """

    format: Literal["build-pytorch machine 1"] = "build-pytorch machine 1"
    platform: System
    cpu: Processor
    gpus: tuple[MachineGpu, ...] = ()
    driver: Driver | None = None
    cuda: CudaVersion | None = None
    memory: Bytes | None = None
    notes: tuple[Text, ...] = ()
