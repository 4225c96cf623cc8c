"""Rules: which of them apply to a variant, and what they change in its recipe. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from build_pytorch.base.versions import in_range
from build_pytorch.matrix.field_types import Fault, Trail, quoted, wrong
from build_pytorch.matrix.model import Effects, Variant
from build_pytorch.matrix.source_tables import Patch, Pin
from build_pytorch.matrix.tables import (
    Condition,
    Effect,
    Group,
    MatrixFile,
    Release,
    Rule,
)


def may_hold(condition: Condition, release: Release, pin: Pin) -> bool:
    """Return whether those parts of a condition hold that a release decides."""
    torch, cuda = release.torch, release.cuda
    asked = condition.pin_has or condition.pin_lacks
    contents = pin.contents(keeps_torch=torch.is_of_pin) if asked else frozenset()
    return (
        (not condition.pin or release.nixpkgs.pin in condition.pin)
        and (not condition.pin_has or not contents.isdisjoint(condition.pin_has))
        and contents.isdisjoint(condition.pin_lacks)
        and condition.torch_source in {None, torch.source}
        and (not condition.cuda or (cuda is not None and in_range(cuda.version, condition.cuda)))
        and (not condition.torch or in_range(torch.version, condition.torch))
    )


def holds(condition: Condition, variant: Variant) -> bool:
    """Return whether all parts of a condition hold for a variant."""
    capabilities = variant.gpu.capabilities if variant.gpu else ()
    wanted = condition.capability
    return (
        (not condition.kind or variant.kind in condition.kind)
        and (not condition.platform or variant.cpu.platform in condition.platform)
        and (not condition.gpu or variant.gpu_key in condition.gpu)
        and (not condition.cpu or variant.cpu_key in condition.cpu)
        and (not wanted or any(in_range(capability, wanted) for capability in capabilities))
        and (not condition.not_in_default_capabilities or _lacks_code(variant))
        and may_hold(condition, variant.release, variant.pin)
    )


def _lacks_code(variant: Variant) -> bool:
    """Return whether libraries of the pin's CUDA may lack code for a GPU; also if unknown."""
    if not (variant.gpu and variant.cuda):
        return False
    defaults = variant.pin.cuda_facts(variant.cuda.package_set).capabilities
    return not {*variant.gpu.devices} <= {*defaults}


def is_ended(rule: Rule, variant: Variant) -> bool:
    """Return whether the `until` of a rule holds for a variant."""
    return rule.until is not None and holds(rule.until, variant)


def effects(variant: Variant, rules: Sequence[Rule], patches: Mapping[str, Patch]) -> Effects:
    """Return what rules change in the recipe of a variant, with the rules."""
    applied = [r for r in rules if holds(r.when, variant) and not is_ended(r, variant)]
    changes = [rule.effect for rule in applied]
    blas = (variant.group.blas, variant.release.blas, *(each.blas for each in reversed(changes)))
    fixes = dict.fromkeys(fix for each in changes for fix in each.fixes)
    if "own-capabilities" in fixes:  # of all packages, NCCL and MAGMA among them
        fixes.pop("own-libraries", None)
    return Effects(
        rules=tuple(applied),
        environment={name: value for each in changes for name, value in each.environment.items()},
        cmake_flags=tuple(dict.fromkeys(flag for each in changes for flag in each.cmake_flags)),
        patches=tuple(patches[key] for each in changes for key in each.patches),
        fixes=tuple(fixes),
        config=tuple(dict.fromkeys(option for each in changes for option in each.config)),
        blas=next(filter(None, blas), "openblas"),
    )


class RuleProblem(Struct, frozen=True):
    """A rule that does not do what it says: what is wrong, and what would be right."""

    rule: Rule
    found: str
    expected: str
    is_error: bool = False


def problems(rules: Sequence[Rule], variants: Sequence[Variant]) -> Iterator[RuleProblem]:
    """Yield rules that never apply, rules that are no longer needed, and contradicting rules."""
    combinations = {tuple(r.id for r in v.effects.rules): v for v in variants}
    applied = {name for names in combinations for name in names}
    for rule in rules:
        if rule.id in applied:
            continue
        matching = [variant for variant in variants if holds(rule.when, variant)]
        found, expected = f"{rule.id} applies to no variant", "a condition that holds"
        if matching:
            found = f"{rule.id}: its `until` holds for all {len(matching)} variants of its `when`"
            expected = "no rule that is no longer needed"
        yield RuleProblem(rule, found, expected)
    seen: set[tuple[str, str]] = set()
    for variant in combinations.values():
        values: dict[str, tuple[str, Rule]] = {}
        for rule in variant.effects.rules:
            switches = dict(flag.split("=", 1) for flag in rule.effect.cmake_flags)
            switches |= {"blas": rule.effect.blas} if rule.effect.blas else {}
            for name, value in (rule.effect.environment | switches).items():
                other, first = values.setdefault(name, (value, rule))
                if other != value and (first.id, rule.id) not in seen:
                    seen.add((first.id, rule.id))
                    found = f"{rule.id} and {first.id} set {name} to different values"
                    yield RuleProblem(rule, found, f"one value for {variant.id}", is_error=True)


def wrong_blas(spec: MatrixFile, variants: Sequence[Variant]) -> Iterator[Fault]:
    """Yield each BLAS of a group, a release or a rule that the platform of a variant lacks."""
    for variant in variants:
        release, group = variant.release, variant.group
        at: Trail = ("release", variant.release_name)
        named: list[tuple[Trail, str | None]] = [
            ((*at, "group", release.group.index(group), "blas"), group.blas),
            ((*at, "blas"), release.blas),
        ]
        named += [
            (("rule", spec.rule.index(rule), "effect", "blas"), rule.effect.blas)
            for rule in reversed(variant.effects.rules)
        ]
        place, name = next((pair for pair in named if pair[1]), ((), ""))
        found = f"{quoted(name or '')} for {variant.id}"
        if name and variant.kind == "mps":
            yield place, wrong(found, "none, as PyTorch takes the BLAS of macOS there")
        elif name == "mkl" and variant.platform != "x86_64-linux":
            yield place, wrong(found, f'"openblas" on {variant.platform}: MKL is for x86-64')
        elif name == "mkl" and "allowUnfree" not in variant.config:
            yield place, wrong(found, '"mkl" with allowUnfree in nixpkgs.config: MKL is not free')


def wrong_acl(spec: MatrixFile) -> Iterator[Fault]:
    """Yield each request for the Arm Compute Library: it would have no effect."""
    tables: list[tuple[Trail, Effect | Release | Group]] = []
    tables += [(("rule", number, "effect"), rule.effect) for number, rule in enumerate(spec.rule)]
    for name, release in spec.release.items():
        tables.append((("release", name), release))
        tables += [(("release", name, "group", n), group) for n, group in enumerate(release.group)]
    for at, table in tables:
        if isinstance(table, Group) and table.acl and table.platform != "aarch64-linux":
            yield (*at, "acl"), wrong(f"true on {table.platform}", "false: ACL is for ARM")
        elif table.acl:
            allowed = "false: PyTorch needs ACL_ROOT_DIR with a built ACL, which nixpkgs lacks"
            yield (*at, "acl"), wrong("true", allowed)
