"""What to type to get a variant, and why it is this one: the words of a recommendation."""

from __future__ import annotations

from build_pytorch.hardware.fit import Fit
from build_pytorch.matrix.field_types import Workload
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.results.evidence import VariantResult


def commands(matrix: Matrix, variant: Variant, result: VariantResult) -> dict[str, list[str]]:
    """The commands that install, build and publish a variant.

    `result` knows the organization that the current recipe's result was published to.
    """
    ids = [other.id for other in matrix.variants]
    name = variant.id if ids.count(variant.id) == 1 else variant.package
    organization = result.published.organization if result.published else ""
    return {
        "install": [f"flox install {organization or 'ORG'}/{variant.package}"],
        "build": [f"invoke build {name}", f'nox -s "build({name})"'],
        "publish": [f"invoke publish {name}"],
    }


def state(result: VariantResult) -> str:
    """How far the current recipe of a variant has come, as this checkout knows it."""
    if result.published:
        return "published from this checkout"
    if result.output:
        return "built in this checkout"
    return "neither built nor published from this checkout"


def why_best(fit: Fit, workload: Workload) -> str:
    """Why it is the best of those that run."""
    return f"{_gpu(fit)}; {_cpu(fit, workload)}"


def why_fallback(fit: Fit, best: Fit) -> str:
    """What one gives up by taking it in place of the best."""
    variant, other = fit.variant, best.variant
    parts = []
    if variant.release is not other.release:
        parts.append(f"PyTorch {variant.release.torch.version}")
    if variant.gpu_key != other.gpu_key:
        parts.append(_gpu(fit))
    if variant.cpu_key != other.cpu_key:
        below = variant.cpu.level < other.cpu.level
        parts.append(f"{variant.cpu.title}, {'a lower' if below else 'the higher'} level")
    return "; ".join(parts) or "the same in another group"


def _gpu(fit: Fit) -> str:
    if fit.variant.gpu is None:
        return "leaves the GPU unused" if fit.gpu else "no GPU"
    built = fit.variant.gpu.capability
    if fit.grade == "exact":
        return f"built for exactly this GPU's capability {built}"
    return f"built for capability {built}, which runs on {fit.gpu and fit.gpu.capability}"


def _cpu(fit: Fit, workload: Workload) -> str:
    cpu = fit.variant.cpu
    suits = f", good for {workload}" if workload in cpu.good_for else ""
    return f"{cpu.title}{suits}"
