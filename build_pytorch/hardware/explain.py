"""Reasons of a choice, and remarks on a machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from build_pytorch.base.console import grouped
from build_pytorch.base.versions import digits, numbers, order
from build_pytorch.hardware.possible import PossibleVariants
from build_pytorch.hardware.saved_machines import Machine, MachineGpu
from build_pytorch.hardware.verdicts import Candidate, Obstacle, driver_limit, driver_need
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import TEGRA, compiles, cuda_window
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.tables import GpuArchitecture

_VGPU: Final = r"-[0-9]+(-[0-9]+)?"
"""The end of the name of a vGPU, such as GRID T4-16Q or NVIDIA A100-1-5C, before its series.

Source: NVIDIA, "Virtual GPU Software User Guide", vGPU types; checked 2026-11.
"""
_NAME_REMARKS: Final = {
    f"{_VGPU}(Q|C|CME)$": "is a vGPU: its driver belongs to the vGPU release of the host: "
    "update both together",
    f"{_VGPU}(A|B)$": "is a vGPU: vGPUs of the A and B series are for desktops and have no CUDA",
    r"\bMIG\b": "is a MIG instance: it has the capability of the whole GPU, and a program uses one "
    "instance",
}
"""Regular expressions for names of GPUs, with what to say about such a GPU."""
_LAST_OF_R580: Final = (7, 5)
"""GPUs below this capability have no driver after branch 580.

Source: NVIDIA, release notes of driver 580; checked 2026-11.
"""


def joined(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join the rows that have the same second text into one row."""
    subjects = grouped((text, subject) for subject, text in rows)
    return [(", ".join(several), text) for text, several in subjects.items()]


def why_best(best: Candidate) -> str:
    """Return why a candidate is the first of the ranking."""
    return f"{_gpu_code(best)}; {best.variant.cpu.title}"


def why_fallback(fallback: Candidate, best: Candidate) -> str:
    """Return how a fallback differs from the best."""
    variant, other = fallback.variant, best.variant
    parts = []
    if variant.release is not other.release:
        parts.append(f"PyTorch {variant.release.torch.version}")
    if variant.gpu_key != other.gpu_key:
        parts.append(_gpu_code(fallback))
    if variant.cpu_key != other.cpu_key:
        below = variant.cpu.level < other.cpu.level
        parts.append(f"{variant.cpu.title}, {'a lower' if below else 'the higher'} level")
    return "; ".join(parts) or "the same in another group"


def _why_gpu_code(gpu: GpuArchitecture, used: Iterable[MachineGpu]) -> str:
    """Return how the code of a build fits the GPUs that it is chosen for."""
    capabilities = list(dict.fromkeys(str(each.capability) for each in used))
    if len(capabilities) > 1:
        return f"code for {gpu.capability} runs on all GPUs: {' and '.join(capabilities)}"
    if gpu.capability == capabilities[0]:
        return f"code for exactly {gpu.capability}"
    return f"code for {gpu.capability}, which runs on {capabilities[0]}"


def why_ideal(
    possible: PossibleVariants,
    variant: Variant,
    machine: Machine,
    used: Sequence[MachineGpu],
    unused: Sequence[tuple[MachineGpu, str]],
) -> str:
    """Return why a variant is ideal for a machine; `unused` are GPUs, each with the reason."""
    parts: list[str] = []
    if variant.gpu and variant.cuda:
        parts += [_why_gpu_code(variant.gpu, used)]
        parts += _why_no_newer(possible, variant, variant.gpu, machine, used)
        for why in dict.fromkeys(why for _, why in unused):
            its = [str(gpu.index) for gpu, other in unused if other == why]
            parts.append(f"GPU {', '.join(its)} stay{'s' * (len(its) == 1)} unused: {why}")
    elif variant.kind == "mps":
        parts += ["Metal is the GPU of macOS"]
    else:
        without = "no NVIDIA GPU" if machine.other_gpus else "no GPU"
        parts += [f"CPU-only: {'; '.join(dict.fromkeys(why for _, why in unused)) or without}"]
    highest = ", the CPU's highest" if variant.cpu.cpuinfo else ""
    return "; ".join([*parts, f"{variant.cpu.title}{highest}"])


def _why_no_newer(
    possible: PossibleVariants,
    variant: Variant,
    gpu: GpuArchitecture,
    machine: Machine,
    used: Sequence[MachineGpu],
) -> Iterator[str]:
    """Yield why releases with a newer PyTorch do not do."""
    for name, release in possible.releases.items():
        is_newer = order(release.torch.version) > order(variant.version)
        if release.cuda is None or release.torch.is_nightly or not is_newer:
            continue
        if not compiles(release.cuda, gpu):
            cuda = release.cuda.version
            yield f"not {name}: CUDA {cuda} does not compile for {gpu.capability}"
            continue
        other = possible.variant(name, variant.gpu_key, variant.cpu_key)
        limits = (driver_limit(driver_need(other, each), machine, each) for each in used)
        yield from [f"not {name}: {it.text}" for it in limits if isinstance(it, Obstacle)][:1]


def why_unused(possible: PossibleVariants, machine: Machine, gpu: MachineGpu) -> str:
    """Return why no build uses a GPU."""
    if gpu.capability is None:
        return f"the capability of {gpu.name} is unknown"
    fitting = possible.fitting(gpu.capability)
    if not fitting:
        add = "docs/how-to/add-a-gpu.md adds one"
        return f"nothing known runs on {gpu.name}: {gpu.capability} is not known here; {add}"
    compiled = list(possible.on(machine, possible.releases, fitting))
    if not compiled:
        own = possible.gpus.get(f"sm{digits(gpu.capability)}")
        window = f": CUDA {cuda_window(own)} does" if own else ""
        return f"no CUDA of these releases compiles for {gpu.name} ({gpu.capability}){window}"
    for variant in compiled:
        limit = driver_limit(driver_need(variant, gpu), machine, gpu)
        if variant.impossible:
            return variant.impossible
        if isinstance(limit, Obstacle):
            return limit.text
    return f"no build has code for {gpu.name} and for the others"


def _gpu_code(candidate: Candidate) -> str:
    gpu, architecture = candidate.gpu, candidate.variant.gpu
    if architecture is None:
        return "leaves the GPU unused" if gpu else "no GPU"
    built = architecture.capability
    if candidate.grade == "exact":
        return f"built for exactly this GPU's capability {built}"
    return f"built for capability {built}, which runs on {gpu and gpu.capability}"


def which_driver(variant: Variant, others: Iterable[Variant], gpus: Iterable[MachineGpu]) -> str:
    """Return what to update for a variant, and with less for others that wait for a driver too."""
    cudas = {it.driver: f"CUDA {it.cuda.version}" for it in (*others, variant) if it.cuda}
    if any(gpu.capability in TEGRA for gpu in gpus):  # its drivers have other numbers
        return f"update JetPack to one for {cudas[variant.driver]}"
    known = known_hardware.load()
    own = max((known.first_driver(gpu.capability) for gpu in gpus), key=numbers, default="")
    oldest = max(own, variant.driver, key=numbers)
    lower = [driver for driver in cudas if numbers(own) <= numbers(driver) < numbers(oldest)]
    also = f" ({', '.join(f'{it} for {cudas[it]}' for it in lower)})" if lower else ""
    return f"update the NVIDIA driver to {oldest} or newer{also}"


def remarks(
    machine: Machine, gpus: Sequence[MachineGpu], variants: Sequence[Variant]
) -> Iterator[str]:
    """Yield what decides nothing: on a machine, on some of its GPUs, on variants chosen for it."""
    known = known_hardware.load()
    for name in machine.other_gpus:
        vendor = known.other_vendor(name)
        yield f"{name}: {known.other[vendor].says if vendor else 'no recipe uses it'}"
    for gpu in {gpu.capability: gpu for gpu in reversed(gpus)}.values():
        if gpu.capability and numbers(gpu.capability) < _LAST_OF_R580:
            last = "580 is the last driver branch for Maxwell, Pascal and Volta"
            yield f"{gpu.name}: {last}; update the driver no further"
    for name in dict.fromkeys(gpu.name for gpu in gpus):
        said = (text for pattern, text in _NAME_REMARKS.items() if re.search(pattern, name))
        yield from (f"{name} {text}" for text in said)
    yield from _driver_remarks(machine, gpus, variants)
    for key in dict.fromkeys(variant.cpu_key for variant in variants):
        if key in known.cpu and known.cpu[key].differs:
            yield f"{key} differs {known.cpu[key].differs}"
    if machine.platform == "aarch64-linux" and machine.cpu.vendor == "implementer 0x61":
        yield "Linux on an Apple CPU has no Metal; PyTorch on macOS itself uses the GPU (mps)"
    if machine.platform == "aarch64-darwin":
        yield "macOS: builds of kind mps use the GPU through Metal; nobody here has built one"


def _driver_remarks(
    machine: Machine, gpus: Iterable[MachineGpu], variants: Iterable[Variant]
) -> Iterator[str]:
    """Yield remarks on the driver.

    A driver may run a CUDA that is newer than itself, but not compile PTX of it. The drivers of
    Tegra GPUs have other numbers.
    """
    if machine.is_wsl:
        which = machine.cuda or "of its nvidia-smi"
        yield (
            "WSL2: the driver is that of Windows; install no Linux driver in WSL. CUDA "
            f"{which} decides, not the number of the driver"
        )
        return
    if any(gpu.capability in TEGRA for gpu in gpus):
        return
    known, driver = known_hardware.load().cuda, machine.driver or ""
    for cuda in dict.fromkeys(variant.cuda.version for variant in variants if variant.cuda):
        bundled = known[cuda].bundled if cuda in known else None
        is_same_branch = driver == (bundled or "").partition(".")[0]
        if bundled and driver and not is_same_branch and numbers(driver) < numbers(bundled):
            yield (
                f"driver {driver} is older than the one of CUDA {cuda} ({bundled}): it runs the "
                "build, but code that is compiled at run time (torch.compile) may fail"
            )
