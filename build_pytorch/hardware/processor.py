"""The CPU of this machine: its flags from /proc/cpuinfo, its name from archspec."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable

from build_pytorch.hardware.machine_model import Processor


def parse(cpuinfo: str, microarchitecture: str | None = None) -> Processor:
    """What the text of /proc/cpuinfo says, of x86 and of ARM.

    A flag counts where every processor has it: a program may run on any of them (big and little
    cores, sockets of two kinds). Empty flags where the text names none.
    """
    blocks = [_fields(block) for block in re.split(r"\n\s*\n", cpuinfo)]
    processors = [block for block in blocks if "processor" in block]
    lists = [(block.get("flags") or block.get("Features") or "").split() for block in processors]
    shared = set(lists[0]).intersection(*lists) if lists else set()
    sockets = {block["physical id"] for block in processors if "physical id" in block}
    return Processor(
        vendor=_joined(block.get("vendor_id") or _arm(block) for block in processors),
        model=_joined(block.get("model name") or _part(block) for block in processors),
        microarchitecture=microarchitecture,
        flags=" ".join(flag for flag in dict.fromkeys(lists[0]) if flag in shared) if lists else "",
        processors=len(processors) or None,
        sockets=len(sockets) or None,
    )


def microarchitecture() -> str | None:
    """The name archspec has for this machine's CPU, such as zen4, or None where it knows none."""
    try:
        import archspec.cpu
    except ModuleNotFoundError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where there is no /proc/cpuinfo
        try:
            return str(archspec.cpu.host().name)
        except (OSError, ValueError, KeyError):
            return None


def clean(text: str) -> str | None:
    """One visible line of what a machine says about itself, or None where nothing is left."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split()) or None


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _arm(block: dict[str, str]) -> str:
    """ARM's cpuinfo names companies and models by numbers; archspec's name says the same."""
    return f"implementer {code}" if (code := block.get("CPU implementer")) else ""


def _part(block: dict[str, str]) -> str:
    return f"part {code}" if (code := block.get("CPU part")) else ""


def _joined(values: Iterable[str]) -> str | None:
    return clean(" + ".join(dict.fromkeys(filter(None, values))))
