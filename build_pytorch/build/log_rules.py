"""Log rules: patterns in the output of a build that name a failure. They are in log_rules.toml."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base.versions import digits
from build_pytorch.matrix.model import Variant

HASH_MISMATCH: Final = "hash-mismatch"
OUT_OF_MEMORY: Final = "out-of-memory"


class LogRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known failure; the fields are explained in log_rules.toml."""

    id: str
    patterns: tuple[str, ...]
    meaning: str
    fix: str
    kinds: tuple[Literal["gpu", "cpu-only"], ...] = ("gpu", "cpu-only")
    stops: bool = False
    shared: bool = False
    differs: Literal["", "capabilities", "architectures", "nvcc-flags", "cuda", "torch"] = ""
    retry: Literal["", "fewer-cores", "later"] = ""


def _words(text: str) -> set[str]:
    return set(re.split(r"[\s;,]+", text.strip(" \"';")))


def _code(variant: Variant) -> set[str]:
    """Return the variant's capability as compilers write it: 120 for 12.0."""
    return {digits(variant.gpu.capability)} if variant.gpu else set()


def _capabilities_differ(text: str, variant: Variant) -> bool:
    """TORCH_CUDA_ARCH_LIST: capabilities with a dot, separated by blanks or semicolons."""
    return variant.gpu is not None and _words(text) != {variant.gpu.capability}


def _architectures_differ(text: str, variant: Variant) -> bool:
    """CMAKE_CUDA_ARCHITECTURES: 120 or 120-real; OFF where PyTorch sets the flags itself."""
    found = {word.removesuffix("-real").rstrip("af") for word in _words(text)}
    return found != _code(variant) and text.upper() not in {"OFF", "FALSE"}


def _flags_differ(text: str, variant: Variant) -> bool:
    """PyTorch's flags for nvcc: code=sm_120 for each architecture."""
    found = set(re.findall(r"code=sm_(\d+)[a-z]?", text))
    return bool(found) and found != _code(variant)


def _cuda_differs(text: str, variant: Variant) -> bool:
    cuda = variant.release.cuda
    return cuda is not None and not f"{text}.".startswith(f"{cuda.version}.")


def _torch_differs(text: str, variant: Variant) -> bool:
    """PyTorch's version; a release candidate or local suffix does not count."""
    return re.split(r"[+a-z]", text)[0] != re.split(r"[+a-z]", variant.release.torch.version)[0]


_DIFFERS: Final[dict[str, Callable[[str, Variant], bool]]] = {
    "capabilities": _capabilities_differ,
    "architectures": _architectures_differ,
    "nvcc-flags": _flags_differ,
    "cuda": _cuda_differs,
    "torch": _torch_differs,
}

RULES: Final = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, tuple[LogRule, ...]]
)["rule"]

# One search for each pattern takes half the time of a search for all alternatives together.
_COMPILED: Final = [(rule, [re.compile(pattern) for pattern in rule.patterns]) for rule in RULES]


def first_match(line: str, variant: Variant) -> LogRule | None:
    """Return the first rule that a line of a variant's log matches, or None."""
    for rule, patterns in _COMPILED:
        for match in filter(None, (pattern.search(line) for pattern in patterns)):
            is_other = not rule.differs or _DIFFERS[rule.differs](match[1], variant)
            if is_other and variant.group.kind in rule.kinds:
                return rule
    return None
