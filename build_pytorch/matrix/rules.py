"""Rules: which of them apply to a variant, and what they change in its recipe. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from build_pytorch.matrix.model import Effects, Variant
from build_pytorch.matrix.tables import Condition, Patch, Rule
from build_pytorch.matrix.versions import in_range

FLAG_VARIABLES = frozenset({"NVCC_APPEND_FLAGS", "NIX_CXXFLAGS_COMPILE"})
"""Variables with flags for compilers, to which several rules may add."""


def holds(condition: Condition, variant: Variant) -> bool:
    """Return whether all parts of a condition hold for a variant."""
    gpu, torch, cuda = variant.gpu, variant.release.torch, variant.release.cuda
    bounds = condition.capability
    contents = variant.pin.contents(keeps_torch=torch.is_of_pin) if condition.pin_has else ()
    return (
        (not condition.kind or variant.kind in condition.kind)
        and (not condition.gpu or variant.gpu_key in condition.gpu)
        and (not condition.cpu or variant.cpu_key in condition.cpu)
        and (not bounds or (gpu is not None and in_range(gpu.capability, bounds)))
        and (not condition.cuda or (cuda is not None and in_range(cuda.version, condition.cuda)))
        and condition.torch_source in {None, torch.source}
        and (not condition.pin_has or not set(condition.pin_has).isdisjoint(contents))
        and (not condition.not_in_default_capabilities or lacks_code(variant))
    )


def lacks_code(variant: Variant) -> bool:
    """Return whether libraries of the pin's CUDA may lack code for a GPU; also if unknown."""
    if not (variant.gpu and variant.cuda):
        return False
    facts = variant.pin.facts
    known = facts.cuda_sets.get(variant.cuda.package_set) if facts else None
    return known is None or variant.gpu.capability not in known.capabilities


def is_ended(rule: Rule, variant: Variant) -> bool:
    """Return whether the `until` of a rule holds for a variant."""
    return rule.until is not None and holds(rule.until, variant)


def effects(variant: Variant, rules: Sequence[Rule], patches: Mapping[str, Patch]) -> Effects:
    """Return what rules change in the recipe of a variant, with the rules."""
    applied = [r for r in rules if holds(r.when, variant) and not is_ended(r, variant)]
    changes = [rule.effect for rule in applied]
    fixes = dict.fromkeys(fix for each in changes for fix in each.fixes)
    if "own-capabilities" in fixes:  # of all packages, NCCL and MAGMA among them
        fixes.pop("own-libraries", None)
    environment: dict[str, str] = {}
    for name, value in (item for each in changes for item in each.environment.items()):
        is_joined = name in FLAG_VARIABLES and name in environment
        environment[name] = f"{environment[name]} {value}" if is_joined else value
    return Effects(
        rules=tuple(applied),
        environment=environment,
        cmake_flags=tuple(dict.fromkeys(flag for each in changes for flag in each.cmake_flags)),
        patches=tuple(patches[key] for each in changes for key in each.patches),
        fixes=tuple(fixes),
    )
