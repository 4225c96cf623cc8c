"""The NVIDIA GPUs of this machine: asked through NVML, else through nvidia-smi."""

from __future__ import annotations

import contextlib
import re
from typing import Final, get_args

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import process
from build_pytorch.base.errors import ToolError
from build_pytorch.hardware.machine_model import Driver, MachineGpu
from build_pytorch.hardware.processor import clean
from build_pytorch.matrix.field_types import Capability, CudaVersion

_SECONDS: Final = 30
"""nvidia-smi takes a few where the driver's daemon does not run, and forever where a GPU hangs."""


_LINE: Final = 120
"""Characters of what somebody said that are kept."""

_OLD_FIELDS: Final = "index,driver_version,memory.total,name"


def _pattern(kind: object) -> str:
    (meta,) = (entry for entry in get_args(kind) if isinstance(entry, Meta))
    return meta.pattern or ""


_DRIVER: Final = _pattern(Driver)
_CUDA: Final = _pattern(CudaVersion)
_CAPABILITY: Final = _pattern(Capability)


class Found(Struct, frozen=True, kw_only=True):
    """What there is. `answered` says that a driver was reached, with or without GPUs."""

    answered: bool
    gpus: tuple[MachineGpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    notes: tuple[str, ...] = ()


def read() -> Found:
    """The GPUs, the driver, and the newest CUDA that it runs; notes say what did not answer."""
    found = _by_nvml()
    if found.answered:
        return found
    second = _by_smi()
    if second.answered:
        return second
    why = "; ".join((*found.notes, *second.notes))
    return Found(answered=False, notes=(f"no NVIDIA driver answers ({why})",))


def _by_nvml() -> Found:
    try:
        import pynvml
    except ModuleNotFoundError:
        return _silent("NVML", "the Python package nvidia-ml-py is missing")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _silent("NVML", str(error))
    gpus: list[MachineGpu] = []
    notes: list[str] = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpus.append(_nvml_gpu(index))
            except pynvml.NVMLError as error:  # fallen off the bus, or not ours to see
                notes.append(f"GPU {index} does not answer: {clean(str(error))}")
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()  # 13000 is 13.0
        return Found(
            answered=True,
            gpus=tuple(gpus),
            driver=_matching(_DRIVER, pynvml.nvmlSystemGetDriverVersion()),
            cuda=_matching(_CUDA, f"{number // 1000}.{number % 1000 // 10}"),
            notes=tuple(notes),
        )
    except pynvml.NVMLError as error:
        return _silent("NVML", str(error))
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _nvml_gpu(index: int) -> MachineGpu:
    """One GPU. Raises NVMLError where it does not answer."""
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    try:
        memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) or None
    except pynvml.NVMLError:  # what it shares with the CPU is not its own
        memory = None
    return MachineGpu(
        index=index,
        name=_name(pynvml.nvmlDeviceGetName(handle)),
        capability=_matching(_CAPABILITY, f"{major}.{minor}"),
        memory=memory,
    )


def _by_smi() -> Found:
    if process.which("nvidia-smi") is None:
        return _silent("nvidia-smi", "not found")
    # The name comes last: it is the one field in which a comma could stand.
    for fields in ("index,compute_cap,driver_version,memory.total,name", _OLD_FIELDS):
        try:
            result = _ask(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        except ToolError as error:
            return _silent("nvidia-smi", str(error).removeprefix("nvidia-smi: "))
        if result.expired:
            return _silent("nvidia-smi", f"no answer within {_SECONDS} s")
        said = result.stdout.strip() or result.stderr.strip()
        if said.startswith("No devices were found"):
            return Found(answered=True)
        if result.code == 0:
            return _smi_found(result.stdout, fields.count(",") + 1)
        if "not a valid field" not in said:  # older drivers know no compute_cap
            break
    return _silent("nvidia-smi", next(iter(said.splitlines()), f"exit code {result.code}"))


def _smi_found(text: str, columns: int) -> Found:
    rows = [line.split(", ", columns - 1) for line in text.splitlines() if line.strip()]
    if not rows or any(len(row) != columns or not row[0].isdecimal() for row in rows):
        return _silent("nvidia-smi", f"an answer that is no table: {text.strip()}")
    notes: list[str] = []
    if columns == _OLD_FIELDS.count(",") + 1:
        notes.append("nvidia-smi is too old to tell the compute capability")
        rows = [[row[0], "", *row[1:]] for row in rows]
    try:
        gpus = tuple(
            _checked(
                MachineGpu(
                    index=int(index),
                    name=_name(name),
                    capability=_matching(_CAPABILITY, capability),
                    memory=(int(memory) << 20 or None) if memory.isdecimal() else None,  # MiB
                )
            )
            for index, capability, _, memory, name in rows
        )
    except ValueError as error:  # msgspec's, or thousands of digits
        return _silent("nvidia-smi", f"an answer that cannot be true: {error}")
    return Found(
        answered=True,
        gpus=gpus,
        driver=_matching(_DRIVER, rows[0][2]),
        cuda=_smi_cuda(),
        notes=tuple(notes),
    )


def _checked(gpu: MachineGpu) -> MachineGpu:
    """A GPU that a description may hold. Raises msgspec.ValidationError."""
    return msgspec.convert(msgspec.to_builtins(gpu), MachineGpu)


def _smi_cuda() -> str | None:
    """The newest CUDA that the driver runs: no field of a query, but in the head of the log."""
    said = _ask("-q", "-d", "COMPUTE").stdout
    found = re.search(r"(?m)^CUDA Version\s*: (\S+)", said)
    return _matching(_CUDA, found[1]) if found else None


def _ask(*options: str) -> process.ProcessResult:
    """Ask nvidia-smi. Raises ToolError where it cannot be started."""
    return process.start(["nvidia-smi", *options]).finish(_SECONDS)


def _silent(who: str, why: str) -> Found:
    said = clean(f"{who}: {why}") or who
    short = said if len(said) <= _LINE else f"{said[: _LINE - 3]}..."
    return Found(answered=False, notes=(short,))


def _name(name: str) -> str:
    return clean(name) or "a GPU without a name"


def _matching(pattern: str, text: str) -> str | None:
    """The text where it is what a description may hold: [N/A] and the like are no versions."""
    return text if re.search(pattern, text) else None
