"""What a user should know about a machine, and what decides nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from build_pytorch.base.versions import numbers
from build_pytorch.hardware.saved_machines import Machine, MachineGpu
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import TEGRA
from build_pytorch.matrix.model import Variant

VGPU: Final = re.compile(r"-\d+(?:-\d+)?(?P<series>Q|C|CME|B|A)\Z")
"""The end of the name of a vGPU, such as GRID T4-16Q or NVIDIA A100-1-5C.

Source: NVIDIA, "Virtual GPU Software User Guide", vGPU types; checked 2026-11.
"""
LAST_OF_R580: Final = (7, 5)
"""GPUs below this capability have no driver after branch 580.

Source: NVIDIA, release notes of driver 580; checked 2026-11.
"""
MIG: Final = re.compile(r"\bMIG\b")
APPLE: Final = "implementer 0x61"


def remarks(
    machine: Machine, gpus: Sequence[MachineGpu], variants: Sequence[Variant] = ()
) -> Iterator[str]:
    """Yield remarks on a machine, on some of its GPUs, and on variants that run on them."""
    known = known_hardware.load()
    for name in machine.other_gpus:
        vendor = known.other_vendor(name)
        yield f"{name}: {known.other[vendor].says if vendor else 'no recipe uses it'}"
    for gpu in {(it.name, it.capability): it for it in gpus}.values():
        yield from _of_gpu(gpu)
    if machine.is_wsl:
        yield (
            "WSL2: the driver is that of Windows; install no Linux driver in WSL. CUDA "
            f"{machine.cuda or 'of its nvidia-smi'} decides, not the number of the driver"
        )
    elif not any(gpu.capability in TEGRA for gpu in gpus):  # its drivers have other numbers
        yield from _of_driver(machine.driver or "", variants)
    for key in dict.fromkeys(variant.cpu_key for variant in variants):
        if key in known.cpu and known.cpu[key].differs:
            yield f"{key} differs {known.cpu[key].differs}"
    if machine.platform == "aarch64-linux" and machine.cpu.vendor == APPLE:
        yield "Linux on an Apple CPU has no Metal; PyTorch on macOS itself uses the GPU (mps)"
    if machine.platform == "aarch64-darwin":
        yield "macOS: builds of kind mps use the GPU through Metal; nobody here has built one"


def _of_gpu(gpu: MachineGpu) -> Iterator[str]:
    if gpu.capability and numbers(gpu.capability) < LAST_OF_R580:
        last = "580 is the last driver branch for Maxwell, Pascal and Volta"
        yield f"{gpu.name}: {last}; update the driver no further"
    if found := VGPU.search(gpu.name):
        text = "its driver belongs to the vGPU release of the host: update both together"
        if found["series"] in {"A", "B"}:
            text = "vGPUs of the A and B series are for desktops and have no CUDA"
        yield f"{gpu.name} is a vGPU: {text}"
    if MIG.search(gpu.name):
        text = "it has the capability of the whole GPU, and a program uses one instance"
        yield f"{gpu.name} is a MIG instance: {text}"


def _of_driver(driver: str, variants: Sequence[Variant]) -> Iterator[str]:
    """A driver may run a CUDA that is newer than itself, but not compile PTX of it."""
    known = known_hardware.load().cuda
    for cuda in dict.fromkeys(variant.cuda.version for variant in variants if variant.cuda):
        bundled = known[cuda].bundled if cuda in known else None
        is_same_branch = driver == (bundled or "").partition(".")[0]
        if bundled and driver and not is_same_branch and numbers(driver) < numbers(bundled):
            yield (
                f"driver {driver} is older than the one of CUDA {cuda} ({bundled}): it runs the "
                "build, but code that is compiled at run time (torch.compile) may fail"
            )
