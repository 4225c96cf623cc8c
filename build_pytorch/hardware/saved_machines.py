"""Machine descriptions: the facts that decide what runs, read and written as JSON files.

The structs are the file format. A description never identifies one machine: no host name, serial
number or UUID.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, convert

from build_pytorch.base import files, foreign_json
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.matrix import field_types
from build_pytorch.matrix.field_types import Capability, CudaVersion, Text, like

System = Annotated[
    str, like("[a-z0-9_]+-[a-z0-9]+", "a platform in Nix's notation, such as x86_64-linux")
]
_WORDS = "([a-z0-9_.-]+( [a-z0-9_.-]+)*)?"
Flags = Annotated[str, like(_WORDS, "flags of /proc/cpuinfo, with one space", longest=20_000)]
Driver = Annotated[
    str, like(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}", "a driver version such as 580.65.06 or 550")
]


class Processor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The CPU. Only `flags` decide what runs; the rest are notes."""

    vendor: Text | None = None
    model: Text | None = None
    microarchitecture: Text | None = None
    flags: Flags  #: those that every logical processor has


class MachineGpu(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An NVIDIA GPU; `index` is its number in nvidia-smi."""

    index: Annotated[int, Meta(ge=0, le=1023, description="a number from 0 to 1023")]
    name: Text
    capability: Capability | None = None


class Machine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine."""

    format: Literal["build-pytorch machine 1"] = "build-pytorch machine 1"
    platform: System
    cpu: Processor
    gpus: tuple[MachineGpu, ...] = ()
    driver: Driver | None = None  #: a version, or a branch alone
    cuda: CudaVersion | None = None  #: the newest that the driver supports by its own report
    other_gpus: tuple[Text, ...] = ()  #: those that are not of NVIDIA
    is_wsl: bool = False  #: in WSL, whose driver is that of Windows
    notes: tuple[Text, ...] = ()  #: what could not be detected


def load(path: Path) -> Machine:
    """Read a description. Raises BuildPytorchError as `parse`."""
    return parse(files.read_input(path, files.LARGEST_TEXT), str(path))


def parse(data: bytes, name: str) -> Machine:
    """Parse a description; `name` is its file in errors.

    Raises BuildPytorchError that names the file, the key, what was found and what is allowed.
    """
    try:
        raw = foreign_json.decode(data)
    except ValueError as error:
        fix = "write one with `invoke recommend --describe`"
        raise BuildPytorchError(f"{name}: not JSON ({error}); {fix}") from None
    if faults := field_types.misfits(raw, Machine):
        lines = [f"{name}: {field_types.dotted(at)}: {what}" for at, what in faults]
        raise BuildPytorchError(field_types.message(lines))
    machine = convert(raw, Machine)
    if len({gpu.index for gpu in machine.gpus}) < len(machine.gpus):
        raise BuildPytorchError(f"{name}: gpus: found an index twice; allowed: each GPU once")
    return machine
