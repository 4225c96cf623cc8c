"""`invoke show`: everything about one package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict

from build_pytorch.base import paths
from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.base.file_plan import Tree
from build_pytorch.cli import recommend
from build_pytorch.cli.commands import ShowOptions
from build_pytorch.generate import rendering
from build_pytorch.generate.phase_plan import plan_recipe
from build_pytorch.matrix import matrix_reader, rules
from build_pytorch.matrix.matrix_errors import listed
from build_pytorch.matrix.model import CompanionPackage, Matrix, Package, Variant
from build_pytorch.matrix.selection import select_packages
from build_pytorch.matrix.tables import Rule, VariantSetting, WithoutRule
from build_pytorch.results import ledger
from build_pytorch.results.ledger import Published, Tested
from build_pytorch.results.package_state import BuiltState, PackageState, package_states

_COLUMN = 11


class ShownCompanion(Struct, frozen=True, kw_only=True):
    """What a companion is, and the variant that it is for."""

    name: str
    version: str
    source: str
    variant: str
    torch: str


class ShownRelease(Struct, frozen=True, kw_only=True):
    """The release of a package. None without CUDA."""

    name: str
    purpose: str
    support: str
    torch: str
    torch_source: str
    python: str
    cuda: str | None
    driver: str | None
    pin: str
    nixpkgs: str


class ShownGpu(Struct, frozen=True, kw_only=True):
    """The GPU architecture that a package is for."""

    key: str | None
    arch: str
    products: tuple[str, ...]


class ShownCpu(Struct, frozen=True, kw_only=True):
    """The CPU ISA that a package is for."""

    key: str
    title: str
    platform: str
    flags: tuple[str, ...]
    cpuinfo: tuple[str, ...]


class ShownRecipe(Struct, frozen=True, kw_only=True):
    """The recipe, and what the phases would do with it."""

    path: str
    digest: str
    action: str
    reason: str


class ShownRule(Struct, frozen=True, kw_only=True):
    """A rule that applies. Tables have only the keys that are set."""

    id: str
    when: dict[str, Any]
    effect: dict[str, Any]
    reason: str
    source: str
    checked: str
    until: dict[str, Any]
    unconfirmed: str | None


class EndedRule(Struct, frozen=True, kw_only=True):
    """A rule that would apply, but that its `until` holds."""

    id: str
    until: dict[str, Any]


class ShownResult(Struct, frozen=True, kw_only=True):
    """The store path behind the result link, by the recipe that it was built from."""

    output: str
    stale: str
    unknown: str


class ShownTest(Struct, frozen=True, kw_only=True):
    """A test of the current result."""

    outcome: str
    at: str
    reason: str
    report: str


class ShownEvidence(Struct, frozen=True, kw_only=True):
    """The tests of the current result."""

    smoke: ShownTest | None
    inspect: ShownTest | None


class LastBuild(ledger.Ended, tag="ended", frozen=True, kw_only=True, omit_defaults=True):
    """The last build as the ledger has it, with the path of its log."""

    log: str


class ShowDocument(Struct, frozen=True, kw_only=True):
    """What --json prints. Rules and hardware of a companion are those of its variant."""

    variant: str
    package: str
    pname: str
    companion: ShownCompanion | None
    companions: tuple[str, ...]
    kind: str
    status: str
    reason: str
    release: ShownRelease
    group: str
    gpu: ShownGpu | None
    cpu: ShownCpu
    recipe: ShownRecipe
    rules: tuple[ShownRule, ...]
    rules_off: tuple[WithoutRule, ...]
    rules_ended: tuple[EndedRule, ...]
    settings: tuple[VariantSetting, ...]
    max_jobs: int
    missing_hashes: tuple[tuple[str, str], ...]
    result: ShownResult
    evidence: ShownEvidence
    missing_evidence: str
    published: Published | None
    last_build: LastBuild | None
    commands: dict[str, list[str]]


def run(options: ShowOptions) -> int:
    """Print one package. Raises BuildPytorchError for none, for several and for a wrong name."""
    matrix = matrix_reader.load(options.root)
    if not options.variants:
        raise BuildPytorchError(f"name a variant, such as {matrix.variants[0].id}")
    selected = select_packages(matrix, options.variants, options.release)
    if len(selected) > 1:
        names = listed(package.id for package in selected)
        raise BuildPytorchError(f"found {len(selected)} variants; name one of them: {names}")
    (package,) = selected
    state = package_states(options.root, selected)[package.id]
    text = rendering.texts(matrix)[package.path]
    change = plan_recipe(matrix, Tree(options.root), package, text)
    recipe = ShownRecipe(
        path=package.path, digest=state.digest, action=change.action, reason=change.reason
    )
    document = _document(matrix, state, recipe)
    if options.json:
        print_json(to_builtins(document), sys.stdout)
    else:
        _print(Screen(sys.stdout), document, state)
    return EXIT_OK


def _document(matrix: Matrix, state: PackageState, recipe: ShownRecipe) -> ShowDocument:
    package, variant, published = state.package, state.variant, state.publication
    cpu, last = variant.cpu, state.last
    logs = f"{paths.STATE}/{ledger.LOGS}/{package.attribute}"
    return ShowDocument(
        variant=package.id,
        package=package.package,
        pname=package.pname,
        companion=_companion(package) if isinstance(package, CompanionPackage) else None,
        companions=tuple(each.id for each in matrix.companions_of(variant)),
        kind=variant.kind,
        status=variant.status,
        reason=variant.impossible or "",
        release=_release(variant),
        group=variant.group.title,
        gpu=_gpu(variant),
        cpu=ShownCpu(
            key=variant.cpu_key,
            title=cpu.title,
            platform=cpu.platform,
            flags=cpu.flags,
            cpuinfo=cpu.cpuinfo,
        ),
        recipe=recipe,
        rules=tuple(map(_rule, variant.effects.rules)),
        rules_off=variant.effects.off,
        rules_ended=tuple(
            EndedRule(id=rule.id, until=_set_keys(rule.until))
            for rule in matrix.rules
            if rules.holds(rule.when, variant) and rules.is_ended(rule, variant)
        ),
        settings=tuple(rules.settings_of(variant)),
        max_jobs=variant.effects.max_jobs,
        missing_hashes=package.untaken_hashes,
        result=convert(state, ShownResult, from_attributes=True),
        evidence=ShownEvidence(smoke=_test(state.smoke_test), inspect=_test(state.inspection)),
        missing_evidence=state.missing_evidence if state.output else "",
        published=published,
        last_build=LastBuild(**asdict(last), log=f"{logs}/{last.attempt}.log") if last else None,
        commands=_commands(matrix, package, published.organization if published else ""),
    )


def _companion(package: CompanionPackage) -> ShownCompanion:
    return ShownCompanion(
        name=package.name,
        version=package.version,
        source=package.companion.source,
        variant=package.variant.id,
        torch=package.variant.version,
    )


def _release(variant: Variant) -> ShownRelease:
    release = variant.release
    return ShownRelease(
        name=variant.release_name,
        purpose=release.purpose,
        support=release.support,
        torch=release.torch.version,
        torch_source=release.torch.source,
        python=release.python.version,
        cuda=variant.cuda.version if variant.cuda else None,
        driver=variant.driver or None,
        pin=release.nixpkgs.pin,
        nixpkgs=variant.pin.rev,
    )


def _gpu(variant: Variant) -> ShownGpu | None:
    if not variant.gpu:
        return None
    return ShownGpu(key=variant.gpu_key, arch=variant.gpu.arch_list, products=variant.products)


def _rule(rule: Rule) -> ShownRule:
    return ShownRule(
        id=rule.id,
        when=_set_keys(rule.when),
        effect=_set_keys(rule.effect),
        reason=rule.reason,
        source=rule.source,
        checked=rule.checked,
        until=_set_keys(rule.until),
        unconfirmed=rule.unconfirmed,
    )


def _set_keys(table: Struct | None) -> dict[str, Any]:
    """Return the keys of a condition or an effect that are set."""
    return {key: value for key, value in (to_builtins(table) or {}).items() if value}


def _test(test: Tested | None) -> ShownTest | None:
    return convert(test, ShownTest, from_attributes=True) if test else None


def _commands(matrix: Matrix, package: Package, organization: str) -> dict[str, list[str]]:
    """Return the commands for a package, in the order in which they are needed."""
    companions = matrix.companions_of(package) if package is package.variant else ()
    commands = recommend.commands(package, organization, companions)
    commands["test"] = [f"invoke smoke {package.id}", f"invoke inspect {package.id}"]
    order = ("build", "test", "publish", "install", "set")
    return {name: commands[name] for name in order if name in commands}


def _print(screen: Screen, document: ShowDocument, state: PackageState) -> None:
    screen.line(screen.paint(document.variant, "bold"))
    for name, text in [*_facts(document), *_results(document, state)]:
        screen.fold(f"  {name:<{_COLUMN}}", text, indent=_COLUMN + 2)
    for name, lines in document.commands.items():
        screen.fold(f"  {name:<{_COLUMN}}", "   or   ".join(lines), indent=_COLUMN + 2)


def _facts(document: ShowDocument) -> Iterator[tuple[str, str]]:
    """Yield lines of the matrix; one without a name continues the one above."""
    release, recipe = document.release, document.recipe
    yield "status", f"{document.status}{f': {document.reason}' if document.reason else ''}"
    yield "package", document.package
    if own := document.companion:
        text = f"{own.name} {own.version} {_source(own.source)}, for PyTorch {own.torch}"
        yield "companion", f"{text} of {own.variant}"
    cuda = f", CUDA {release.cuda}, driver {release.driver}" if release.cuda else ""
    torch = f"PyTorch {release.torch} {_source(release.torch_source)}"
    yield "release", f"{release.name}: {torch}, Python {release.python}{cuda}"
    yield "nixpkgs", f"{release.nixpkgs} (pin {release.pin})"
    yield "support", release.support
    if gpu := document.gpu:
        yield "gpu", f"{gpu.arch}: {', '.join(gpu.products)}"
    cpu = document.cpu
    yield "cpu", f"{cpu.title} ({cpu.platform}): {' '.join(cpu.flags)}"
    if document.companions and not document.companion:
        yield "companions", ", ".join(document.companions)
    yield "recipe", f"{recipe.path}: {recipe.action}, {recipe.reason}"
    for rule in document.rules:
        yield "rule", f"{rule.id}: {_effect(rule.effect)}"
        yield "", f"{rule.reason} ({rule.source}, checked {rule.checked})"
        if rule.unconfirmed:
            yield "", f"not confirmed: {rule.unconfirmed}"
    for off in document.rules_off:
        yield "rule off", f"{off.rule}: {off.reason}"
    for ended in document.rules_ended:
        yield "rule ended", f"{ended.id}: its `until` holds"
    for setting in document.settings:
        keys = to_builtins(setting).items()
        yield "setting", ", ".join(f"{key} = {value}" for key, value in keys if value)


def _source(source: str) -> str:
    return "of its nixpkgs" if source == "nixpkgs" else "from GitHub"


def _effect(effect: dict[str, Any]) -> str:
    words = [f"{name}={value}" for name, value in effect.get("environment", {}).items()]
    for key in ("cmake_flags", "fixes", "config"):
        words += effect.get(key, [])
    words += [f"patch {key}" for key in effect.get("patches", [])]
    return " ".join(words)


def _results(document: ShowDocument, state: PackageState) -> Iterator[tuple[str, str]]:
    """Yield what is known of the result, its evidence and the last build."""
    results = {
        BuiltState.YES: state.output,
        BuiltState.STALE: f"{state.stale}, built from another recipe",
        BuiltState.UNKNOWN: f"{state.unknown}, built from an unknown recipe",
    }
    yield "result", results.get(state.built, "not built from this recipe")
    if missing := document.missing_hashes:
        names = ", ".join(name for name, _ in missing)
        yield "", f"cannot be built: no hash for {names}; run `invoke prefetch`"
    for name, test in (("smoke", document.evidence.smoke), ("inspect", document.evidence.inspect)):
        if test:
            why = f": {test.reason}" if test.reason else ""
            yield name, f"{test.outcome} at {test.at}{why}; {test.report}"
    if document.missing_evidence:
        yield "evidence", document.missing_evidence
    if published := document.published:
        yield "published", f"at {published.at} to {published.organization or 'your account'}"
    if last := document.last_build:
        cause = f" ({last.cause})" if last.cause else ""
        yield "last build", f"{last.outcome} at {last.at}{cause}; {last.log}"
