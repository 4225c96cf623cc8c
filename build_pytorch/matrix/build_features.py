"""What a build of PyTorch may have compiled in: build_features.toml; what it lacks of a wheel."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from build_pytorch.matrix import field_types as ft
from build_pytorch.matrix.available import AvailableBuild, available_builds
from build_pytorch.matrix.model import Variant

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
    source: ft.Text

    def kinds(self, evidence: Evidence) -> dict[str, str]:
        """Return the regular expressions by kind, the best first; "" where there are no kinds."""
        patterns: str | dict[str, str] = getattr(self, evidence)
        return {"": patterns} if isinstance(patterns, str) else patterns


@functools.cache
def build_features() -> dict[str, BuildFeature]:
    """Return all known features by name, in the order of the file."""
    text = Path(__file__).with_name("build_features.toml").read_text("utf-8")
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


def wheel_for(variant: Variant) -> AvailableBuild | None:
    """Return the wheel to compare a variant with: that of its CUDA, else another of its version."""
    cuda = variant.cuda.version if variant.cuda else ""
    wanted = (variant.release.torch.version, variant.platform)
    wheels = [it for it in available_builds() if it.features]
    same = [it for it in wheels if (it.version, it.platform) == wanted]
    return min(same, key=lambda it: (it.cuda != cuda, not it.cuda), default=None)


def lacking(
    wheel: AvailableBuild, evidence: Evidence, found: Mapping[str, str], *, has_cuda: bool
) -> Iterator[tuple[str, str]]:
    """Yield the features that a wheel has and a build lacks, or has of a lesser kind only.

    Each has its name, and a text such as `NNPACK: missing; ` with what happens without it. `found`
    is what `seen` returns for the build. What only builds with CUDA have is none of it in one
    without.
    """
    for name, expected in wheel.features.items():
        feature, value = build_features()[name], found.get(name)
        patterns = feature.kinds(evidence)
        kinds = list(filter(None, patterns))
        if not any(patterns.values()) or (feature.cuda and not has_cuda):
            continue
        lacks = ""
        if value is None:
            lacks = "missing" * (feature.if_unseen == "missing")
        elif expected in kinds and kinds.index(value) > kinds.index(expected):
            lacks = f"{value}, not {expected}"
        if lacks:
            yield name, f"{feature.title}: {lacks}; {feature.consequence} ({feature.source})"
