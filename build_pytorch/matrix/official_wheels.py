"""What the official wheels of PyTorch have compiled in: official_wheels.toml."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from build_pytorch.base import files
from build_pytorch.base.versions import numbers, plain_capability
from build_pytorch.matrix import compatibility
from build_pytorch.matrix import field_types as ft

_CODE: Final = r"(sm|compute)_[1-9][0-9]{1,2}[af]?"
GpuCode = Annotated[str, ft.like(_CODE, "sm_120 or compute_120, with a or f after it or without")]
NoCuda = Annotated[str, Meta(pattern=r"^([0-9]{1,2}\.[0-9])?$")]


class OfficialWheel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A wheel as PyTorch's own builds have it; the file explains the fields."""

    torch: ft.Version
    platform: ft.Platform
    cuda: NoCuda
    index: str
    sass: tuple[GpuCode, ...] = ()
    ptx: tuple[GpuCode, ...] = ()
    features: dict[str, str] = {}
    source: ft.Origin
    checked: ft.Date


class WheelTables(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of official_wheels.toml."""

    wheel: tuple[OfficialWheel, ...]


@functools.cache
def official_wheels() -> tuple[OfficialWheel, ...]:
    """Return all known wheels, in the order of the file."""
    text = files.own_text(__package__, "official_wheels.toml")
    return msgspec.toml.decode(text, type=WheelTables).wheel


def wheels_of(torch: str, platform: str) -> tuple[OfficialWheel, ...]:
    """Return the known wheels of a version of PyTorch for a platform such as `x86_64-linux`."""
    known = official_wheels()
    return tuple(wheel for wheel in known if (wheel.torch, wheel.platform) == (torch, platform))


def code_runs_on(
    codes: Iterable[str], capability: str
) -> Literal["exact", "compatible", "ptx"] | None:
    """Return what code such as sm_90a and compute_120 is for GPUs of a capability such as `12.1`.

    "exact" is machine code of this capability, "compatible" of an older one of the same major,
    "ptx" is compiled by the driver when the program starts; None for nothing.
    """
    known = [code for code in codes if re.fullmatch(_CODE, code)]
    sass = {_code_runs_on(code, capability) for code in known if code.startswith("sm")}
    if "exact" in sass:
        return "exact"
    if "compatible" in sass:
        return "compatible"
    is_ptx = any(_code_runs_on(code, capability) for code in known if code.startswith("compute"))
    return "ptx" if is_ptx else None


@functools.cache
def _code_runs_on(code: str, capability: str) -> Literal["exact", "compatible"] | None:
    """Return how one architecture such as `sm_90a` or `compute_120` runs on a capability."""
    kind, _, rest = code.partition("_")
    last = len(plain_capability(rest)) - 1
    built = f"{rest[:last]}.{rest[last:]}"
    if kind == "sm" or not rest.isdecimal():
        return compatibility.runs_on(built, capability)
    return "compatible" if numbers(built) <= numbers(capability) else None
