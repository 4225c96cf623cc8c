"""The machine that a person names: `--gpu "RTX 4090" --cpu zen4 --driver 550`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from build_pytorch.base.console import visible
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.hardware import detect, saved_machines
from build_pytorch.hardware.own_builds import flags_up_to, known_isas
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.known_hardware import NamedGpu
from build_pytorch.matrix.model import Matrix

_QUOTED: Final = 36  #: characters of a wrong value in an error
_LONGEST: Final = 200  #: characters of a name that is looked for
_CUDA: Final = re.compile(r"[1-9]\d?\.\d{1,2}", re.ASCII)
"""A version of CUDA in place of a driver's, which begin above 100."""


def described_machine(
    matrix: Matrix, *, file: str = "", gpu: str = "", cpu: str = "", driver: str = ""
) -> Machine:
    """Return this machine, that of a file (`-`: standard input), or one with the parts named.

    `gpu` are names or capabilities with commas, or `none`. A GPU that exists in ARM machines only
    brings their CPU. Raises BuildPytorchError.
    """
    words = [] if gpu in {"", "none"} else gpu.split(",")
    named = [_gpu(word.strip()[:_LONGEST]) for word in words]
    if not (cpu or file):
        cpu = next((it.processor for it in named if it.processor), "")
    if file:
        machine = saved_machines.load(Path(file))
    elif cpu:
        machine = Machine(platform="", cpu=Processor(flags=""))
    else:
        machine = detect.this_machine()
    if cpu:
        platform, processor = _cpu(cpu[:_LONGEST], matrix)
        machine = replace(machine, platform=platform, cpu=processor)
    if driver:
        machine = _with_driver(machine, driver)
    for it in named:
        is_arm = machine.platform.startswith("aarch64")
        if machine.platform.endswith("-darwin") or (it.processor and not is_arm):
            what = f"does not work on {machine.platform}"
            raise BuildPytorchError(f'--gpu: found "{visible(it.name[:_QUOTED])}", which {what}')
    if gpu:
        gpus = [
            MachineGpu(index=index, name=it.name, capability=it.capability)
            for index, it in enumerate(named)
        ]
        machine = replace(machine, gpus=tuple(gpus), other_gpus=(), notes=())
    return machine


def _unknown(option: str, found: str, allowed: str, known: Iterable[str]) -> BuildPytorchError:
    """Return the error for a value, with the known name that is near, else what is allowed."""
    hint = near_miss(found.lower(), map(str.lower, known), cutoff=0.8) or f"; allowed: {allowed}"
    return BuildPytorchError(f'--{option}: found "{visible(found[:_QUOTED])}"{hint}')


def _gpu(name: str) -> NamedGpu:
    """Return the GPU of a name or capability."""
    known = known_hardware.load()
    if found := known.gpu_named(name):
        return found
    allowed = "an NVIDIA GPU such as 'RTX 4090', a compute capability such as 8.9, none"
    raise _unknown("gpu", name, allowed, known.products)


def _cpu(name: str, matrix: Matrix) -> tuple[str, Processor]:
    """Return platform and CPU of an ISA, or of a generation or a name of CPUs."""
    known, isas = known_hardware.load(), known_isas(matrix)
    plain = {re.sub(r"[\W_]", "", key): key for key in isas}  # AVX-512 is avx512
    key = name if name in isas else plain.get(re.sub(r"[\W_]", "", name.lower()))
    if key:
        return isas[key].platform, Processor(model=isas[key].title, flags=flags_up_to(matrix, key))
    if processor := known.processor_named(name):
        flags = flags_up_to(matrix, processor.isa) if processor.isa else processor.flags
        return processor.platform, Processor(model=name, flags=flags)
    allowed = f"{', '.join(isas)}, or a name such as 'Zen 4' or 'Xeon Gold 6148'"
    raise _unknown("cpu", name, allowed, [*isas, *known.processor])


def _with_driver(machine: Machine, text: str) -> Machine:
    """Return a machine with a driver, or with one by the newest CUDA that it supports."""
    if text == "none" or _CUDA.fullmatch(text):
        return replace(machine, driver=None, cuda=None if text == "none" else text)
    try:
        return replace(machine, driver=msgspec.convert(text, saved_machines.Driver), cuda=None)
    except msgspec.ValidationError:
        allowed = "a driver version such as 550 or 580.65.06, a CUDA such as 12.8, none"
        raise _unknown("driver", text, allowed, ()) from None
