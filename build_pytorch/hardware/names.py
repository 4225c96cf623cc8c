"""The GPU and the CPU that a person means, by names of products and generations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.known_hardware import KnownProcessor, of_capability

_FILLER: Final = re.compile(
    r"\((r|tm)\)|\b(nvidia|geforce|tesla|grid|intel|amd|arm|core|cpu|processor|\d+th gen)\b"
)
"""What does not count in the name of a GPU or a CPU, in lower case."""


class NamedGpu(NamedTuple):
    """A GPU that a person names."""

    name: str
    capability: str
    processor: str | None
    """Key of the processor beside it, where it exists in ARM machines only."""


def products() -> dict[str, str]:
    """Return the keys of the known GPU architectures by the names of their products."""
    gpus = known_hardware.load().gpu.items()
    return {name: key for key, gpu in gpus for name in (*gpu.names, *gpu.arm_only)}


def gpu_named(name: str) -> NamedGpu | None:
    """Return the GPU of a product's name, such as `NVIDIA A100-SXM4-40GB`, or of a capability.

    A capability such as 8.9 may be unknown. It is also named by sm89, sm_89 or compute_89, and
    a product without the first word of its name, such as 4090 or A4000.
    """
    key = re.sub("^(sm|compute)_", "sm", name.lower())
    known = known_hardware.load().gpu
    gpu = known.get(key) or of_capability(name)
    if gpu or re.fullmatch(r"[1-9]\d?\.\d", name, re.ASCII):
        capability = gpu.capability if gpu else name
        is_arm = gpu is not None and "x86_64-linux" not in gpu.hosts
        beside = next(iter(gpu.arm_only.values())) if gpu and is_arm else None
        return NamedGpu(f"a GPU of capability {capability}", capability, beside)
    keys = products()
    product = _best_match({product: (_gpu_pattern(product),) for product in keys}, name)
    if product is None:
        return None
    gpu = known[keys[product]]
    return NamedGpu(name, gpu.capability, gpu.arm_only.get(product))


def processor_named(name: str) -> KnownProcessor | None:
    """Return the generation of a CPU by its key or name, such as `Ryzen 9 7950X`."""
    known = known_hardware.load().processor
    names = {key: it.names for key, it in known.items()}
    key = name if name in names else _best_match(names, name)
    if not key and name[:1].isalpha():
        key = _best_match(names, f"xeon {name}")  # such as E5-2680 v4, Gold 6148
    return known[key] if key else None


def _words(name: str) -> str:
    """Return what counts in a name: runs of letters and of digits in lower case."""
    return " ".join(re.findall("[a-z]+|[0-9]+", _FILLER.sub(" ", name.lower())))


def _gpu_pattern(product: str) -> str:
    """Return a regular expression for the words of a GPU's name; GTX 780M is no GTX 780."""
    words = _words(product)
    if re.search(" .*[0-9]", product):
        words = re.sub("^([a-z]+) ", r"(\1 )?", words)
    return f"{words}(?! m( |$))"


def _best_match(patterns: Mapping[str, Iterable[str]], name: str) -> str | None:
    """Return the key of the pattern that matches most of the first words of a name, or None."""
    words, found = _words(name), {}
    for key, regular in patterns.items():
        for each in regular:
            if match := re.match(f"(?:{each})(?![^ ])", words):
                found[match.end()] = key
    return found[max(found)] if found else None
