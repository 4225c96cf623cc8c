"""What docs/choosing.md says: the decision tables by which people find their variant."""

from __future__ import annotations

from typing import Any, get_args

from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.field_types import Platform
from build_pytorch.matrix.model import CpuIsa, Matrix, Variant


def facts(matrix: Matrix) -> dict[str, Any]:
    """The values of the page's template, all of them from the matrix."""
    buildable = [variant for variant in matrix.variants if not variant.impossible]
    used = {variant.gpu_key for variant in buildable}
    built = [(key, gpu.capability) for key, gpu in matrix.gpus.items() if key in used]
    return {
        "total": len(matrix.variants),
        "buildable": len(buildable),
        "releases": [
            {
                "name": name,
                "torch": release.torch.version,
                "cuda": release.cuda.version if release.cuda else "none",
                "driver": release.cuda.driver if release.cuda else "none",
            }
            for name, release in matrix.releases.items()
        ],
        "gpus": [
            {
                "key": key,
                "capability": gpu.capability,
                "platform": platform,
                "products": ", ".join(products),
                "isas": _isas(buildable, key, platform),
            }
            for key, gpu in matrix.gpus.items()
            for platform, products in gpu.hosts.items()
        ],
        "platforms": [
            {
                "name": platform,
                "cpus": [_cpu(key, cpu) for key, cpu in _newest_first(matrix, platform)],
                "words": _words(matrix, platform),
                "alone": _isas(buildable, None, platform),
            }
            for platform in get_args(Platform)
            if any(cpu.platform == platform for cpu in matrix.cpus.values())
        ],
        "built": [f"{key} ({capability})" for key, capability in built],
        "devices": [
            {
                "capability": gpu.capability,
                "cells": [
                    {"exact": "best", "compatible": "runs", None: ""}[
                        runs_on(capability, gpu.capability)
                    ]
                    for _, capability in built
                ],
            }
            for gpu in matrix.gpus.values()
        ],
    }


def _isas(variants: list[Variant], gpu_key: str | None, platform: str) -> str:
    """The ISAs with which variants of an architecture (or of none) are built for a platform."""
    here = [v for v in variants if v.gpu_key == gpu_key and v.cpu.platform == platform]
    here.sort(key=lambda variant: -variant.cpu.level)
    return ", ".join(dict.fromkeys(variant.cpu_key for variant in here))


def _newest_first(matrix: Matrix, platform: str) -> list[tuple[str, CpuIsa]]:
    here = [(key, cpu) for key, cpu in matrix.cpus.items() if cpu.platform == platform]
    return sorted(here, key=lambda item: -item[1].level)


def _cpu(key: str, cpu: CpuIsa) -> dict[str, str]:
    return {
        "key": key,
        "flags": " ".join(cpu.cpuinfo),
        "good_for": ", ".join(cpu.good_for),
        "cpus": ", ".join(cpu.cpus),
        "lacking": ", ".join(cpu.lacking),
    }


def _words(matrix: Matrix, platform: str) -> str:
    """The flags that tell the ISAs of a platform apart, as a pattern for grep."""
    flags = (flag for _, cpu in _newest_first(matrix, platform) for flag in cpu.cpuinfo)
    return "|".join(sorted(set(flags)))
