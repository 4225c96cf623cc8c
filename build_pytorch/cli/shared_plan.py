"""The plan of `invoke build --share`: seeds, units of work, hours over builders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import asdict

from build_pytorch.base.console import Screen, counted
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build import shared_work
from build_pytorch.build.build_plan import BuildPlan
from build_pytorch.build.shared_work import SharedWork
from build_pytorch.generate import rendering
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.seeds import seeds_of
from build_pytorch.matrix.tables import Work
from build_pytorch.nix.nix_evaluation import shared_import

_KINDS = {"cxx": "C++", "cuda": "CUDA"}


def show(
    screen: Screen,
    matrix: Matrix,
    variants: Sequence[Variant],
    plan: BuildPlan,
    there: Collection[str],
) -> dict[str, Any]:
    """Print the seeds and the work on variants, and return them for --json.

    `there`: names of seeds that are built already. Raises BuildPytorchError without `work` in the
    matrix.
    """
    if not matrix.work:
        tables = ", ".join(f"[work.{name}]" for name in Work.__struct_fields__)
        raise BuildPytorchError(f"matrix.toml: work: missing; --share needs the tables {tables}")
    texts = rendering.texts(matrix)
    imports = {v.attribute: shared_import(texts[v.path]) or "" for v in matrix.variants if v.gpu}
    seeds = seeds_of(matrix.variants)
    work = shared_work.shared_work(variants, matrix.work, seeds, imports, there)
    cores = plan.cores or 1
    rows = [
        {
            "builders": builders,
            "hours": round(work.hours(builders, cores, is_shared=True), 1),
            "hours_unshared": round(work.hours(builders, cores, is_shared=False), 1),
        }
        for builders in shared_work.BUILDERS
    ]
    _print(screen, work, matrix.work, rows, cores)
    return {
        "hours": round(work.hours(plan.jobs, cores, is_shared=True), 1),
        "units": round(work.units, 4),
        "units_unshared": round(work.units_unshared, 4),
        "units_dependencies": round(work.units_dependencies, 4),
        "seeds": [
            {
                "name": seed.name,
                "kind": seed.kind,
                "platform": seed.variant.cpu.platform,
                "key": seed.key,
                "variant": seed.variant.id,
            }
            for seed in work.seeds
        ],
        "cores_of_builder": cores,
        "builders": rows,
        "assumptions": list(shared_work.ASSUMPTIONS),
        "work": {name: asdict(value) for name, value in asdict(matrix.work).items()},
    }


def _print(
    screen: Screen, work: SharedWork, inputs: Work, rows: Sequence[dict[str, Any]], cores: int
) -> None:
    counts = Counter((seed.variant.cpu.platform, seed.kind) for seed in work.seeds)
    kinds = ", ".join(f"{n} {_KINDS[kind]} for {p}" for (p, kind), n in counts.items())
    screen.fold("Shared: ", f"{counted(len(work.seeds), 'seed')}: {kinds}", "bold")
    part = work.units / work.units_unshared if work.units_unshared else 1.0
    units = f"{work.units:.1f} units instead of {work.units_unshared:.1f} ({part:.0%})"
    units += f", and {work.units_dependencies:.1f} for NCCL and MAGMA in both"
    screen.fold("  work        ", units, indent=14)
    screen.line(
        f"  {'builders':<10}  {'hours':>7}  without sharing ({counted(cores, 'core')} each)"
    )
    for row in rows:
        screen.line(f"  {row['builders']:<10}  {row['hours']:>7.1f}  {row['hours_unshared']:.1f}")
    for name, item in asdict(inputs).items():
        screen.fold("  input       ", f"{name} {item.share:g}: {item.basis}", "dim", indent=14)
    for assumption in shared_work.ASSUMPTIONS:
        screen.fold("  assumed     ", assumption, "dim", indent=14)
