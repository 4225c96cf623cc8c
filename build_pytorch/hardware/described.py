"""The machine that a person names: `--gpu "RTX 4090" --cpu zen4 --driver 550`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from build_pytorch.base.console import visible
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.hardware import detect, saved_machines
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.model import Matrix

_QUOTED: Final = 36  #: characters of a wrong value in an error
_LONGEST: Final = 200  #: characters of a name that is looked for


def described_machine(
    matrix: Matrix, *, file: str = "", gpu: str = "", cpu: str = "", driver: str = ""
) -> Machine:
    """Return this machine, that of a file (`-`: standard input), or one with the parts named.

    `gpu` are names or capabilities with commas, `none`, or the number of one GPU of the machine.
    A GPU that exists in ARM machines only brings their CPU. Raises BuildPytorchError.
    """
    names = [word.strip()[:_LONGEST] for word in gpu.split(",")] if gpu else []
    if names and not (cpu or file):
        cpu = _cpu_beside(names)
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
    if len(names) == 1 and names[0].isdecimal() and len(names[0]) <= len("99"):
        gpus = tuple(it for it in machine.gpus if it.index == int(names[0]))
        known = ", ".join(str(it.index) for it in machine.gpus) or "none"
        if not gpus:
            raise _unknown("gpu", names[0], f"; the GPUs of the machine: {known}")
        machine = replace(machine, gpus=gpus)
    elif names:
        named = [it for it in names if not known_hardware.NO_GPU.fullmatch(it.lower())]
        found = [_gpu(name, index, machine.platform) for index, name in enumerate(named)]
        gpus = tuple(it for it in found if isinstance(it, MachineGpu))
        others = tuple(it for it in found if isinstance(it, str))
        machine = replace(machine, gpus=gpus, other_gpus=others, notes=())
    return machine


def _unknown(option: str, found: str, fix: str) -> BuildPytorchError:
    return BuildPytorchError(f'--{option}: found "{visible(found[:_QUOTED])}"{fix}')


def _cpu_beside(gpus: list[str]) -> str:
    """Return the processor beside GPUs that exist in ARM machines only, or an empty text."""
    known = known_hardware.load()
    found = (known.gpu_meant(name) for name in gpus)
    beside = (known.arm_processor(it[0], it[2]) for it in found if it and it[2])
    return next(filter(None, beside), "")


def _cpu(name: str, matrix: Matrix) -> tuple[str, Processor]:
    """Return platform and CPU of an ISA, or of a generation or a name of CPUs."""
    known = known_hardware.load()
    isas = {**known.cpu, **matrix.cpus}
    processor = None if name in isas else known.processor_named(name)
    if processor and not processor.isa:
        return processor.platform, Processor(model=name, flags=processor.flags)
    isa = isas.get(processor.isa if processor and processor.isa else name)
    if isa is None:
        allowed = f"; allowed: {', '.join(isas)}, or a name such as 'Zen 4' or 'Xeon Gold 6148'"
        raise _unknown("cpu", name, near_miss(name.lower(), [*isas, *known.processor]) or allowed)
    # CPUs with an ISA of these have the lower ones of their platform as well.
    below = [it for it in isas.values() if it.platform == isa.platform and it.level <= isa.level]
    flags = dict.fromkeys(flag for it in below for flag in it.cpuinfo)
    model = name if processor else isa.title
    return isa.platform, Processor(model=model, flags=" ".join(flags))


def _gpu(name: str, index: int, platform: str) -> MachineGpu | str:
    """Return the GPU of a name or capability; one of another vendor as its name."""
    known = known_hardware.load()
    found = known.gpu_meant(name)
    if found is None and known.other_vendor(name):
        return name
    if found is None:
        like = " or ".join(known.gpus_like(name))
        fix = "give its compute capability, such as 8.9, or a name such as 'RTX 4090'"
        fix = f"did you mean {like}?" if like else fix
        raise _unknown("gpu", name, f", an unknown GPU; {fix}")
    title, capability, product = found
    if product and known.arm_processor(title, product) is not None and "aarch64" not in platform:
        what = f", which exists on aarch64-linux only, and the machine is {platform}"
        raise _unknown("gpu", name, what)
    return MachineGpu(index=index, name=title, capability=capability)


def _with_driver(machine: Machine, text: str) -> Machine:
    """Return a machine with a driver, or with one by the newest CUDA that it supports."""
    if text.lower() in {"none", "unknown"}:
        return replace(machine, driver=None, cuda=None)
    if known_hardware.CUDA_NUMBER.fullmatch(text):
        return replace(machine, driver=None, cuda=text)
    try:
        driver = msgspec.convert(text, saved_machines.DriverOrBranch)
    except msgspec.ValidationError:
        allowed = "; allowed: a driver version such as 550 or 580.65.06, or a CUDA such as 12.8"
        raise _unknown("driver", text, allowed) from None
    return replace(machine, driver=driver, cuda=None)
