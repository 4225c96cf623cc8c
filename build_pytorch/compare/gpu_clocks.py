"""The clock of a GPU, and what slows it down, while it is measured."""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec
import pynvml


class GpuClocks(msgspec.Struct, frozen=True, kw_only=True):
    """What slows a GPU down now, its clock in MHz and its free memory in bytes; 0: unknown."""

    throttled: tuple[str, ...] = ()
    clock: int = 0
    free: int = 0


_THROTTLED: Final = {
    "heat": pynvml.nvmlClocksEventReasonSwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "hardware": pynvml.nvmlClocksEventReasonHwSlowdown,
    "power brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
}
"""Reasons of NVML that come and go. The power cap is not one: large products always reach it."""


def gpu_clocks(index: int) -> GpuClocks:
    """Read the clock of a GPU and why it is lower than it could be."""
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        return GpuClocks(
            throttled=tuple(name for name, bits in _THROTTLED.items() if reasons & bits),
            clock=int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            free=int(pynvml.nvmlDeviceGetMemoryInfo(handle).free),
        )
    except pynvml.NVMLError:
        return GpuClocks()
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
