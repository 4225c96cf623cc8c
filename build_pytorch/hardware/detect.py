"""The machine: this one, detected, or one that a person names: `--gpu "RTX 4090" --cpu zen4`.

Nothing raises while this one is detected: what cannot be detected becomes a note of the machine.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pynvml
from msgspec.structs import replace

from build_pytorch.base.console import visible
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choose import Person
from build_pytorch.hardware.own_builds import flags_up_to
from build_pytorch.hardware.saved_machines import Driver, Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.field_types import Capability, CudaVersion
from build_pytorch.matrix.known_hardware import KnownGpu, KnownProcessor, of_capability
from build_pytorch.matrix.model import Matrix

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}  #: of macOS, BSD, Windows: of Linux
_TOOLS: Final = ("uv", "flox", "pixi", "mamba", "conda", "nix-shell")
_QUOTED: Final = 36  #: characters of a wrong value in an error
_LONGEST: Final = 200  #: characters of a name that is looked for
_CUDA: Final = re.compile(r"[1-9]\d?\.\d{1,2}", re.ASCII)  #: versions of drivers begin above 100
_FILLER: Final = re.compile(
    r"\((r|tm)\)|\b(nvidia|geforce|tesla|grid|intel|amd|arm|core|cpu|processor|\d+th gen)\b"
)
"""What does not count in the name of a GPU or a CPU, in lower case."""


class NamedGpu(NamedTuple):
    """A GPU that a person names."""

    name: str
    capability: str
    processor: str | None  #: key of the one beside it, where it exists in ARM machines only


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
        other_gpus=tuple(f"AMD GPU 1002:{name}" for vendor, name in devices if vendor == "0x1002"),
        is_wsl="microsoft" in kernel and "wsl" in kernel,
    )
    found = _with_gpus(found)
    notes = list(found.notes)
    if not found.cpu.flags:
        notes.append("/proc/cpuinfo lists no CPU flags: the CPU's features are unknown")
    if not found.gpus and any(vendor == "0x10de" for vendor, _ in devices):
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


def _with_gpus(machine: Machine) -> Machine:
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


def described_machine(
    matrix: Matrix, *, file: str = "", gpu: str = "", cpu: str = "", driver: str = ""
) -> Machine:
    """Return this machine, that of a file (`-`: standard input), or one with the parts named.

    `gpu` are names or capabilities with commas, or `none`. A GPU that exists in ARM machines only
    brings their CPU. Raises BuildPytorchError.
    """
    named: list[NamedGpu] = []
    for word in [] if gpu in {"", "none"} else gpu.split(","):
        found = gpu_named(word.strip()[:_LONGEST])
        if found is None:
            allowed = "an NVIDIA GPU such as 'RTX 4090', a compute capability such as 8.9, none"
            raise _unknown("gpu", word.strip(), allowed, products())
        named.append(found)
    if not (cpu or file):
        cpu = next((it.processor for it in named if it.processor), "")
    machine = saved_machines.load(Path(file)) if file else None
    if cpu:
        platform, processor = _cpu(cpu[:_LONGEST], matrix)
        machine = machine or Machine(platform=platform, cpu=processor)
        machine = replace(machine, platform=platform, cpu=processor)
    machine = machine or this_machine()
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


def _cpu(name: str, matrix: Matrix) -> tuple[str, Processor]:
    """Return platform and CPU of an ISA, or of a generation or a name of CPUs."""
    isas = matrix.cpus
    plain = {re.sub(r"[\W_]", "", key): key for key in isas}  # AVX-512 is avx512
    key = name if name in isas else plain.get(re.sub(r"[\W_]", "", name.lower()))
    if key:
        return isas[key].platform, Processor(model=isas[key].title, flags=flags_up_to(matrix, key))
    if processor := processor_named(name):
        flags = flags_up_to(matrix, processor.isa) if processor.isa else processor.flags
        return processor.platform, Processor(model=name, flags=flags)
    allowed = f"{', '.join(isas)}, or a name such as 'Zen 4' or 'Xeon Gold 6148'"
    raise _unknown("cpu", name, allowed, [*isas, *known_hardware.load().processor])


def _with_driver(machine: Machine, text: str) -> Machine:
    """Return a machine with a driver, or with one by the newest CUDA that it supports."""
    if text == "none" or _CUDA.fullmatch(text):
        return replace(machine, driver=None, cuda=None if text == "none" else text)
    if driver := _valid(text, Driver):
        return replace(machine, driver=driver, cuda=None)
    allowed = "a driver version such as 550 or 580.65.06, a CUDA such as 12.8, none"
    raise _unknown("driver", text, allowed, ())


# --- names of products ---


def products() -> dict[str, KnownGpu]:
    """Return the known GPU architectures by the names of their products."""
    gpus = known_hardware.load().gpu.values()
    return {name: gpu for gpu in gpus for name in (*gpu.names, *gpu.arm_only)}


def gpu_named(name: str) -> NamedGpu | None:
    """Return the GPU of a product's name, such as `NVIDIA A100-SXM4-40GB`, or of a capability.

    A capability such as 8.9 may be unknown. It is also named by sm89, sm_89 or compute_89, and
    a product without the first word of its name, such as 4090 or A4000.
    """
    key = re.sub("^(sm|compute)_", "sm", name.lower())
    gpu = known_hardware.load().gpu.get(key) or of_capability(name)
    if gpu or re.fullmatch(r"[1-9]\d?\.\d", name, re.ASCII):
        capability = gpu.capability if gpu else name
        beside = [*gpu.arm_only.values()] if gpu and "x86_64-linux" not in gpu.hosts else [None]
        return NamedGpu(f"a GPU of capability {capability}", capability, beside[0])
    patterns = []
    for product in products():
        words = _words(product)
        if re.search(" .*[0-9]", product):
            words = re.sub("^([a-z]+) ", r"(\1 )?", words)
        patterns.append((product, f"{words}(?! m( |$))"))  # GTX 780M is no GTX 780
    product = _best_match(patterns, name)
    gpu = products().get(product)
    return NamedGpu(name, gpu.capability, gpu.arm_only.get(product)) if gpu else None


def processor_named(name: str) -> KnownProcessor | None:
    """Return the generation of a CPU by its key or name, such as `Ryzen 9 7950X`."""
    known = known_hardware.load().processor
    patterns = [(key, it) for key, row in known.items() for it in row.names]
    key = name if name in known else _best_match(patterns, name)
    if not key and name[:1].isalpha():
        key = _best_match(patterns, f"xeon {name}")  # such as E5-2680 v4, Gold 6148
    return known.get(key)


def _best_match(patterns: Iterable[tuple[str, str]], name: str) -> str:
    """Return the key of the pattern that matches most of the first words of a name, or ""."""
    words = _words(name)
    matches = [(re.match(f"(?:{it})(?![^ ])", words), key) for key, it in patterns]
    found = {match.end(): key for match, key in matches if match}
    return found[max(found)] if found else ""


def _words(name: str) -> str:
    """Return what counts in a name: runs of letters and of digits in lower case."""
    return " ".join(re.findall("[a-z]+|[0-9]+", _FILLER.sub(" ", name.lower())))
