"""Machines for property tests, drawn by Hypothesis."""

from __future__ import annotations

from typing import Final

import hypothesis.strategies as st

from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware

KNOWN: Final = known_hardware.load()
ISAS: Final = list(KNOWN.cpu.values())
FLAGS: Final = sorted({flag for isa in ISAS for flag in isa.cpuinfo})
CAPABILITIES: Final = [*(gpu.capability for gpu in KNOWN.gpu.values()), "9.9", "1.3", None]


@st.composite
def machines(draw: st.DrawFn, *, may_be_wsl: bool = True) -> Machine:
    """A machine with up to four GPUs; it has whole ISAs more often than random flags would."""
    isas = draw(st.lists(st.sampled_from(ISAS)))
    flags = {flag for isa in isas for flag in isa.cpuinfo} | draw(st.sets(st.sampled_from(FLAGS)))
    capabilities = draw(st.lists(st.sampled_from(CAPABILITIES), max_size=4))
    return Machine(
        platform=draw(st.sampled_from(["x86_64-linux", "aarch64-linux", "aarch64-darwin", "a-b"])),
        cpu=Processor(flags=" ".join(sorted(flags))),
        gpus=tuple(
            MachineGpu(index=index, name="NVIDIA", capability=capability)
            for index, capability in enumerate(capabilities)
        ),
        driver=draw(st.sampled_from([None, "470.1", "525", "550.54", "580.65.06", "600"])),
        cuda=draw(st.sampled_from([None, "11.4", "12.8", "13.0"])),
        is_wsl=may_be_wsl and draw(st.booleans()),
    )
