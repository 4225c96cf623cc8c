"""The facts of docs/reference/choosing.md: decision tables that lead to a variant."""

from __future__ import annotations

from typing import Any, get_args

from build_pytorch.matrix.compatibility import runs_on
from build_pytorch.matrix.field_types import Platform
from build_pytorch.matrix.model import Matrix, Variant


def facts(matrix: Matrix) -> dict[str, Any]:
    """Return the values of the page's template, all of them from the matrix."""
    buildable = [variant for variant in matrix.variants if not variant.impossible]
    used = {variant.gpu_key for variant in buildable}
    built = {key: gpu.capability for key, gpu in matrix.gpus.items() if key in used}
    cells = {"exact": "best", "compatible": "runs", None: ""}
    return {
        "total": len(matrix.variants),
        "buildable": len(buildable),
        "releases": matrix.releases,
        "gpus": [
            (key, gpu, platform, products, _isas(buildable, key, platform))
            for key, gpu in matrix.gpus.items()
            for platform, products in gpu.hosts.items()
        ],
        "platforms": [
            _platform(matrix, platform, _isas(buildable, None, platform))
            for platform in get_args(Platform)
            if any(cpu.platform == platform for cpu in matrix.cpus.values())
        ],
        "built": [f"{key} ({capability})" for key, capability in built.items()],
        "devices": [
            (gpu.capability, [cells[runs_on(own, gpu.capability)] for own in built.values()])
            for gpu in matrix.gpus.values()
        ],
    }


def _isas(variants: list[Variant], gpu_key: str | None, platform: str) -> str:
    """Return the ISAs of the variants for an architecture or none, newest first."""
    here = [v for v in variants if v.gpu_key == gpu_key and v.cpu.platform == platform]
    here.sort(key=lambda variant: -variant.cpu.level)
    return ", ".join(dict.fromkeys(variant.cpu_key for variant in here)) or "no variant"


def _platform(matrix: Matrix, platform: str, cpu_only: str) -> dict[str, Any]:
    """Return the ISAs of a platform, newest first, and a grep pattern for all of their flags."""
    cpus = [(key, cpu) for key, cpu in matrix.cpus.items() if cpu.platform == platform]
    cpus.sort(key=lambda item: -item[1].level)
    flags = {flag for _, cpu in cpus for flag in cpu.cpuinfo}
    return {"name": platform, "cpus": cpus, "flags": "|".join(sorted(flags)), "cpu_only": cpu_only}
