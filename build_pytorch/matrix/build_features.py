"""What a build of PyTorch may have compiled in: build_features.toml; what it lacks of a wheel."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from build_pytorch.base import files
from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.official_wheels import OfficialWheel, wheels_of

Evidence = Literal["files", "config"]
"""Where features are seen: in the files, or in what torch.__config__ prints."""


class BuildFeature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that may be compiled in; the file explains the fields."""

    title: ft.Text
    files: str | dict[ft.Key, str]
    config: str | dict[ft.Key, str] = ""
    cuda: bool = False
    if_unseen: Literal["missing", "unknown"] = "missing"
    consequence: ft.Text
    source: ft.Origin

    def kinds(self, evidence: Evidence) -> dict[str, str]:
        """Return the regular expressions by kind, the best first; "" where there are no kinds."""
        patterns: str | dict[str, str] = getattr(self, evidence)
        return {"": patterns} if isinstance(patterns, str) else patterns


class LackingFeature(msgspec.Struct, frozen=True):
    """A feature that an official wheel has and a build lacks, or has of a lesser kind only."""

    name: str
    feature: BuildFeature
    found: str  #: the kind, or "" for none
    expected: str

    @property
    def problem(self) -> str:
        """What is wrong, such as `NNPACK: missing`."""
        lacks = f"{self.found}, not {self.expected}" if self.found else "missing"
        return f"{self.feature.title}: {lacks}"

    @property
    def explanation(self) -> str:
        """What happens without it, and who says so."""
        return f"{self.feature.consequence} ({self.feature.source})"


@functools.cache
def build_features() -> dict[str, BuildFeature]:
    """Return all known features by name, in the order of the file."""
    text = files.own_text(__package__, "build_features.toml")
    return msgspec.toml.decode(text, type=dict[ft.Key, BuildFeature])


def seen(texts: Sequence[bytes], evidence: Evidence) -> dict[str, str]:
    """Return the features that are seen in texts, each with its kind or version, or ""."""
    found = {}
    for name, feature in build_features().items():
        for kind, pattern in feature.kinds(evidence).items():
            compiled = re.compile(pattern.encode())
            match = next(filter(None, map(compiled.search, texts)), None) if pattern else None
            if match:
                version = match[match.lastindex] if match.lastindex else b""
                found[name] = kind or version.decode(errors="replace")
                break
    return found


def other_blas(variant: Variant, found: Mapping[str, str]) -> str:
    """Return the BLAS that a build has in place of one that the matrix asks for, or "".

    OpenBLAS is what nobody asked for: another one is no fault then.
    """
    asked, has = variant.group.blas, found.get("blas", "")
    return has if has != asked != "openblas" else ""


def wheel_for(variant: Variant) -> OfficialWheel | None:
    """Return the wheel to compare a variant with: that of its CUDA, else another of its version."""
    cuda = variant.release.cuda.version if variant.gpu and variant.release.cuda else ""
    return wheel_like(variant.release.torch.version, variant.cpu.platform, cuda)


def wheel_like(torch: str, platform: str, cuda: str) -> OfficialWheel | None:
    """Return the wheel of a PyTorch for a CUDA ("": without), else another of the version."""
    wheels = wheels_of(torch, platform)
    best = sorted(wheels, key=lambda wheel: (wheel.cuda != cuda, not wheel.cuda))
    return best[0] if best else None


def lacking(
    wheel: OfficialWheel, evidence: Evidence, found: Mapping[str, str], *, has_cuda: bool
) -> Iterator[LackingFeature]:
    """Yield what a wheel has and a build lacks; `found` is what `seen` returns for the build.

    What only builds with CUDA have is none of it in one without.
    """
    for name, expected in wheel.features.items():
        feature, value = build_features()[name], found.get(name)
        patterns = feature.kinds(evidence)
        kinds = list(filter(None, patterns))
        is_judged = any(patterns.values()) and (has_cuda or not feature.cuda)
        is_unknown = value is None and feature.if_unseen == "unknown"
        if not is_judged or is_unknown:
            continue
        if value is None or (expected in kinds and kinds.index(value) > kinds.index(expected)):
            yield LackingFeature(name, feature, found=value or "", expected=expected)
