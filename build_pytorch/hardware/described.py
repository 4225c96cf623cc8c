"""The machine that the options of `recommend` and `doctor` describe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from build_pytorch.base.console import visible
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import missing_cpu_flags
from build_pytorch.matrix.model import Matrix

_WIDTH: Final = 36
"""Maximum width of a quoted value, in characters."""
_LONGEST: Final = 200
"""Maximum length of a GPU's name."""
_LAST_GPU: Final = 1023
_NO_DRIVER: Final = {"none", "unknown", "?", "-"}


def described_machine(
    matrix: Matrix, file: str = "", gpu: Sequence[str] = (), cpu: str = "", driver: str = ""
) -> tuple[Machine, int | None]:
    """Return the machine of a file, or this one, changed by words, and the GPU that counts.

    `gpu` are names or capabilities, or one number of a GPU of the machine; the GPU that counts is
    such a number, None for all. Raises BuildPytorchError.
    """
    numbers = [word for word in gpu if _is_index(word)]
    names = [word for word in gpu if not _is_index(word)]
    if numbers and (names or len(numbers) > 1):
        raise BuildPytorchError("--gpu: give one number of this machine, or names of GPUs")
    machine = Machine(platform="x86_64-linux", cpu=Processor(flags=""))
    if file:
        machine = saved_machines.load(Path(file))
    elif not cpu:
        from build_pytorch.hardware import detect  # loads the module of NVML

        here = detect.this_machine()
        cpu = "" if here.platform.startswith("aarch64-") else _cpu_beside(names)
        machine = machine if cpu else here  # with another CPU nothing of this machine matters
    changes: dict[str, Any] = {}
    if cpu:
        changes |= _cpu(cpu, matrix)
    if driver:
        changes |= _driver(driver)
    if names:
        host = changes.get("platform", machine.platform)
        what = f"--cpu {cpu}" if cpu else "the machine"
        named = [] if all(map(_is_none, names)) else names
        flags = changes["cpu"].flags.split() if cpu else []
        gpus = [_gpu(name, index, host, what, flags) for index, name in enumerate(named)]
        changes["gpus"] = tuple(it for it in gpus if isinstance(it, MachineGpu))
        changes["other_gpus"] = tuple(it for it in gpus if isinstance(it, str))
        changes["notes"] = ()
    number = int(numbers[0]) if numbers else None
    return msgspec.structs.replace(machine, **changes), number


def _unknown(option: str, found: str, fix: str) -> BuildPytorchError:
    return BuildPytorchError(f'--{option}: found "{visible(found[:_WIDTH])}"{fix}')


def _cpu(name: str, matrix: Matrix) -> dict[str, Any]:
    """Return platform and CPU of an ISA, or of a generation or a name of CPUs."""
    known = known_hardware.load()
    isas = {**known.cpu, **matrix.cpus}
    wanted = known_hardware.squashed(name)
    titles = {known_hardware.squashed(it): key for key in isas for it in (key, isas[key].title)}
    processor = None if wanted in titles else known.processor_named(name[:_LONGEST])
    if processor and not processor.isa:
        cpu = Processor(model=processor.title, flags=processor.flags)
        return {"platform": processor.platform, "cpu": cpu}
    isa = isas.get((processor and processor.isa) or titles.get(wanted, ""))
    if isa is None:
        hint = near_miss(name, isas) or f"; allowed: {', '.join(isas)}, or a name such as 'Zen 4'"
        raise _unknown("cpu", name, hint)
    # CPUs with an ISA of these have the lower ones of their platform as well.
    below = [it for it in isas.values() if it.platform == isa.platform and it.level <= isa.level]
    flags = dict.fromkeys(flag for it in below for flag in it.cpuinfo)
    model = processor.title if processor else f"a CPU with {isa.title}"
    return {"platform": isa.platform, "cpu": Processor(model=model, flags=" ".join(flags))}


def _cpu_beside(gpus: Iterable[str]) -> str:
    """Return the known processor beside GPUs that exist in ARM machines only, or an empty text."""
    known = known_hardware.load()
    found = (known.gpu_meant(name[:_LONGEST]) for name in gpus)
    beside = (known.arm_processor(it[0], it[2]) for it in found if it and it[2])
    return next(filter(None, beside), "")


def _is_none(name: str) -> bool:
    return known_hardware.NO_GPU.fullmatch(name.strip().lower()) is not None


def _gpu(name: str, index: int, platform: str, host: str, flags: Sequence[str]) -> MachineGpu | str:
    """Return the GPU of a name or capability; one of another vendor as its name.

    Raises BuildPytorchError for an unknown one, and for one that is built together with an ARM CPU
    where `host`, which is named in the error, has another platform, or `flags` of a higher ISA.
    """
    known, short = known_hardware.load(), name[:_LONGEST]
    found = known.gpu_meant(short)
    if found is None:
        if known.other_vendor(short):
            return short
        fix = "give its compute capability, such as 8.9, or a name such as 'RTX 4090'"
        if like := known.gpus_like(short):
            fix = f"did you mean {' or '.join(like)}?"
        raise _unknown("gpu", name, f", an unknown GPU; {fix}")
    # A card fits into any machine; a GPU that exists on ARM only shares a package with its CPU.
    title, capability, product = found
    processor = known.arm_processor(title, product) if product else None
    if processor is not None and not platform.startswith("aarch64-"):
        isa = f": --cpu {known.processor[processor].isa}" if processor else " with --cpu"
        raise BuildPytorchError(
            f"--gpu: {visible(name[:_WIDTH])} exists on aarch64-linux only, and {host} is "
            f"{platform}; give the CPU of its machine{isa}"
        )
    if (higher := _higher_isa(processor, flags)) and processor:
        own = known.processor[processor]
        raise BuildPytorchError(
            f"--gpu: {visible(name[:_WIDTH])} is built together with a CPU that has {own.isa}, and "
            f"{host} has {higher}; give --cpu {processor}"
        )
    return MachineGpu(index=index, name=title, capability=capability)


def _higher_isa(processor: str | None, flags: Sequence[str]) -> str:
    """Return an ISA that flags have and a known processor lacks, or an empty text."""
    known = known_hardware.load()
    isa = processor and known.processor[processor].isa
    level, platform = (known.cpu[isa].level, known.cpu[isa].platform) if isa else (0, "")
    return next(
        (
            key
            for key, it in known.cpu.items()
            if it.platform == platform and it.level > level and not missing_cpu_flags(it, flags)
        ),
        "",
    )


def _is_index(word: str) -> bool:
    """Return whether a value is the number of a GPU. `4090` is a name: no number is that high.

    Raises BuildPytorchError for any other number above the highest.
    """
    if not word.isdecimal():
        return False
    is_high = len(word) > len(str(_LAST_GPU)) or int(word) > _LAST_GPU
    if is_high and len(word) != len("4090"):
        raise _unknown("gpu", word, f"; allowed: a number from 0 to {_LAST_GPU}, or a name")
    return not is_high


def _driver(text: str) -> dict[str, Any]:
    """Return the driver of an option; a CUDA version is the newest one that the driver supports."""
    if text.lower() in _NO_DRIVER:
        return {"driver": None, "cuda": None}
    if known_hardware.CUDA_NUMBER.fullmatch(text):
        return {"driver": None, "cuda": text}
    try:
        return {"driver": msgspec.convert(text, saved_machines.DriverOrBranch), "cuda": None}
    except msgspec.ValidationError:
        allowed = "; allowed: a driver version such as 550 or 580.65.06"
        raise _unknown("driver", text, allowed) from None
