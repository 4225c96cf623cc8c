"""Rules: which of them apply to a variant, and what they change in its recipe. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from build_pytorch.matrix.model import Effects, Matrix, Variant
from build_pytorch.matrix.tables import Condition, Patch, Rule
from build_pytorch.matrix.versions import in_range

FLAG_VARIABLES = frozenset({"NVCC_APPEND_FLAGS", "NIX_CXXFLAGS_COMPILE"})
"""Variables with flags for compilers, to which several rules may add."""


def holds(condition: Condition, variant: Variant) -> bool:
    """Return whether all parts of a condition hold for a variant."""
    gpu, torch, cuda = variant.gpu, variant.release.torch, variant.release.cuda
    contents = variant.pin.contents(keeps_torch=torch.is_of_pin) if condition.pin_has else ()
    return (
        (not condition.kind or variant.kind in condition.kind)
        and (not condition.gpu or variant.gpu_key in condition.gpu)
        and (not condition.cpu or variant.cpu_key in condition.cpu)
        and (
            not condition.capability
            or (gpu is not None and in_range(gpu.capability, condition.capability))
        )
        and (not condition.cuda or (cuda is not None and in_range(cuda.version, condition.cuda)))
        and condition.torch_source in {None, torch.source}
        and (not condition.pin_has or not set(condition.pin_has).isdisjoint(contents))
        and (not condition.not_in_default_capabilities or lacks_code(variant))
    )


def lacks_code(variant: Variant) -> bool:
    """Return whether libraries of the pin's CUDA may lack code for a GPU; also if unknown."""
    if not (variant.gpu and variant.cuda):
        return False
    defaults = variant.pin.cuda_facts(variant.cuda.package_set).capabilities
    return variant.gpu.capability not in defaults


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


class RuleProblem(NamedTuple):
    """A rule that does not do what it says: what is wrong, and what would be right."""

    rule: Rule
    found: str
    expected: str
    is_error: bool = False


def problems(matrix: Matrix) -> Iterator[RuleProblem]:
    """Yield own rules that never apply or are no longer needed, and contradicting rules."""
    combinations = {tuple(r.id for r in v.effects.rules): v for v in matrix.variants}
    applied = {name for names in combinations for name in names}
    for rule in matrix.own_rules:
        if rule.id in applied:
            continue
        found, expected = f"{rule.id} applies to no variant", "a condition that holds"
        if matching := sum(holds(rule.when, variant) for variant in matrix.variants):
            found = f"{rule.id}: its `until` holds for all {matching} variants of its `when`"
            expected = "no rule that is no longer needed"
        yield RuleProblem(rule, found, expected)
    seen: set[tuple[str, str]] = set()
    for variant in combinations.values():
        values: dict[str, tuple[str, Rule]] = {}
        for rule in variant.effects.rules:
            switches = dict(flag.split("=", 1) for flag in rule.effect.cmake_flags)
            for name, value in (rule.effect.environment | switches).items():
                other, first = values.setdefault(name, (value, rule))
                is_contradiction = other != value and name not in FLAG_VARIABLES
                if is_contradiction and (first.id, rule.id) not in seen:
                    seen.add((first.id, rule.id))
                    found = f"{rule.id} and {first.id} set {name} to different values"
                    yield RuleProblem(rule, found, f"one value for {variant.id}", is_error=True)
