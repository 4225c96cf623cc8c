"""Checks that a recipe evaluates to its package: nixpkgs, source, names, texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.base import paths
from build_pytorch.base.console import counted
from build_pytorch.matrix.model import CompanionPackage, Package, Variant
from build_pytorch.verify.check import CheckList, Context, Finding, Subjects
from build_pytorch.verify.recipe_evaluation import EvaluatedRecipe, evaluated
from build_pytorch.verify.recipe_facts import (
    FACTS,
    GENERATED_FACTS,
    PACKAGE_FACTS,
    RELEASE,
    RESULTS,
    Facts,
    equal,
    package_facts,
)

CHECKS: Final = CheckList(PACKAGE_FACTS)

_SAME: Final = "make the recipe agree with matrix.toml"


@CHECKS.add(
    "Every recipe evaluates to a package",
    RESULTS,
    why="If an argument is refused or a name is not in scope, no build begins.",
    fix="correct the error that Nix reports",
)
def evaluates(context: Context, result: EvaluatedRecipe) -> Iterator[Finding]:
    if not result.ok:
        found = result.problem or "no package"
        own = [c for c in context.companions if c.variant.path == result.id]
        if stopped := sum(map(evaluated(context).is_stopped, own)):
            found += f"; it also stops {counted(stopped, 'companion')}"
        yield Finding(found, "a package", line=result.line, column=result.column)
    elif result.unreadable:
        names = ", ".join(result.unreadable)
        yield Finding(f"{names} cannot be evaluated", "a package whose attributes can be evaluated")


@CHECKS.add(
    "name, pname and version are those of the package",
    why="A package with another version in its name than in its source builds the wrong PyTorch.",
    fix="override torch in the package set of the release's Python; an overlay has to use that set",
    word="pname",
)
def eval_names(package: Package, facts: Facts) -> Iterator[Finding]:
    version = package.version
    yield from facts.expect({"pname": package.pname, "version": version})
    python = f"python{package.release.python.version}"
    yield from equal("name", facts.text("name"), f"{python}-{package.pname}-{version}")


@CHECKS.add(
    "nixpkgs is the pinned one, with the hash of its tarball",
    why="Another nixpkgs has another CUDA, another MAGMA and another torch.",
    fix=_SAME,
    word="fetchTarball",
)
def eval_pin(package: Package, facts: Facts) -> Iterator[Finding]:
    pin = package.variant.pin
    url = facts.value("nixpkgs.url")
    if url is None:
        return  # only the model records the nixpkgs of a package
    if not url.startswith(f"https://github.com/NixOS/nixpkgs/archive/{pin.rev}."):
        yield Finding(f"nixpkgs from {url}", f"nixpkgs {pin.rev}")
    yield from facts.expect({"nixpkgs.sha256": pin.sha256 or None})


@CHECKS.add(
    "nixpkgs gets the platform, the options and the overlays of the matrix, and no others",
    FACTS,
    why="allowBroken for all packages hides every other broken package among the inputs; an "
    "overlay too many hides one of the others.",
    fix="allow it in release.*.nixpkgs.config, or for the one package that needs it",
    word="nixpkgs_pinned ?",
)
def eval_nixpkgs(variant: Variant, facts: Facts) -> Iterator[Finding]:
    if facts.value("nixpkgs") is None:
        return  # only the model records the arguments of nixpkgs
    if facts.value("nixpkgs.platform") is None:
        expected = f'system = "{variant.platform}", so that any machine can evaluate it'
        yield Finding("no system in the import of nixpkgs", expected, severity="warning")
    effects = variant.effects
    own = ("cudaCapabilities",) if "own-capabilities" in effects.fixes else ()
    yield from facts.expect({"nixpkgs.config": sorted((*variant.config, *own))}, lenient=True)
    overlays = (variant.gpu is not None) + bool(effects.patches or "own-libraries" in effects.fixes)
    overlays += not variant.source.is_of_pin
    yield from equal("number of overlays", facts.value("nixpkgs.overlays"), overlays)


@CHECKS.add(
    "The source is that of the release, by its hash",
    why="With the hash of another version Nix silently builds that version.",
    fix=_SAME,
    word="fetchFromGitHub",
)
def eval_source(package: Package, facts: Facts) -> Iterator[Finding]:
    source = package.source
    if source.is_of_pin and isinstance(package, CompanionPackage):
        yield from facts.expect({"src": facts.value("pin.src")})
        return
    if source.is_of_pin:
        if facts.text("src.owner"):
            yield Finding(f"src of {facts.text('src.owner')}", "the source of the pin's torch")
        return
    wanted = {"src.owner": source.owner, "src.repo": source.repo, "src.hash": source.hash}
    yield from facts.expect({**wanted, "src.fetchSubmodules": source.submodules})
    yield from equal("src.rev", facts.text("src.rev").removeprefix("refs/tags/"), source.rev)


@CHECKS.add(
    "A package has the patches of nixpkgs if and only if the matrix keeps them",
    why="They are for the version that nixpkgs ships and do not apply to another one.",
    fix="patches = [], or no patches at all where matrix.toml keeps those of nixpkgs",
    word="patches",
)
def eval_patches(package: Package, facts: Facts) -> Iterator[Finding]:
    is_kept = package.source.is_of_pin
    if isinstance(package, CompanionPackage):
        is_kept = is_kept or package.companion.patches != "clear"
    yield from facts.expect({"patches": facts.list("pin.patches") if is_kept else []})


@CHECKS.add(
    "passthru has the GPU architecture, the CPU ISA and the BLAS",
    why="Programs choose a package by them.",
    fix="(oldAttrs.passthru or {}) // { ... }",
    word="passthru",
)
def eval_passthru(package: Package, facts: Facts) -> Iterator[Finding]:
    wanted: dict[str, object] = {f"passthru.{k}": v for k, v in package.passthru.items()}
    yield from facts.expect(wanted)
    if isinstance(package, Variant) and package.gpu:  # TorchVision and others compile for these
        capabilities = {"passthru.cudaCapabilities": [package.gpu.capability]}
        yield from facts.expect(capabilities, lenient=True)


@CHECKS.add(
    "The BLAS among the inputs of torch is that of the matrix",
    FACTS,
    why="PyTorch compiles other code for MKL, which has a licence of its own.",
    fix="pass blas to override as the recipe of the matrix does, or nothing for OpenBLAS",
    word="blas =",
)
def eval_blas(variant: Variant, facts: Facts) -> Iterator[Finding]:
    if variant.kind != "mps":  # PyTorch takes the BLAS of macOS, whatever nixpkgs passes
        yield from facts.expect({"blas": [variant.group.blas]})


@CHECKS.add(
    "Platform and descriptions are those of the variant; broken forgives only an unsupported CUDA",
    why="Otherwise Nix sends the build to the wrong machine, and people install the wrong package. "
    "Flox refuses packages that are marked as broken; `false` would hide every other reason.",
    fix="take system, meta.platforms and longDescription from matrix.toml; for broken, "
    'passthru.brokenConditions without "Unsupported CUDA version"',
    word="meta",
)
def eval_meta(package: Package, facts: Facts) -> Iterator[Finding]:
    variant = package.variant
    platform, torch = variant.platform, variant.version
    yield from facts.expect({"system": platform, "meta.platforms": [platform]})
    yield from _broken(package, facts)
    description, long = facts.text("meta.description"), facts.text("meta.longDescription")
    if torch not in description:
        yield Finding(f'meta.description = "{description}"', f"a description with PyTorch {torch}")
    words = ["GPU", "CPU", "CUDA", "PyTorch", "Driver", "Hardware"]
    if missing := [word for word in words if word.lower() not in long.lower()]:
        found = f"meta.longDescription without {', '.join(missing)}"
        yield Finding(found, f"a description with {', '.join(words)}")
    for label in sorted(set(re.findall(r"\bSM_?(\d{2,3}[AF]?)\b", f"{description} {long}"))):
        if f"SM{label}" != variant.gpu_label:
            yield Finding(f"a description of SM{label}", variant.gpu_label or "no GPU")
    written = r"PyTorch:? (\d+\.\d+\.\d+(?:rc\d+|\.dev\d+)?)"
    for version in re.findall(written, f"{description} {long}"):
        if version != torch:
            yield Finding(f"PyTorch {version}", f"PyTorch {torch}")
    if cuda := variant.cuda:
        for word, value in (("CUDA", cuda.version), ("driver", variant.driver.split(".")[0])):
            if not re.search(rf"(?<![\d.]){re.escape(value)}(?!\d)", long):
                yield Finding(f"meta.longDescription without {word} {value}", f"{word} {value}")


def _broken(package: Package, facts: Facts) -> Iterator[Finding]:
    yield from facts.expect({"meta.broken": False}, lenient=True)
    if isinstance(package, Variant) and package.gpu and facts["brokenForOther"] is not None:
        yield from facts.expect({"brokenForOther": True}, lenient=True)


@CHECKS.add(
    "Texts of the matrix evaluate to themselves in meta",
    GENERATED_FACTS,
    why="A text that Nix reads as code runs on every machine that evaluates the recipe.",
    fix="quote it: in a template by the filter `nix` or `indented`",
    word="meta =",
)
def eval_texts(variant: Variant, facts: Facts) -> Iterator[Finding]:
    cpu, gpu = variant.cpu, variant.gpu
    real = (variant.impossible,) if variant.impossible else variant.products
    texts = (cpu.title, *cpu.cpus, *cpu.lacking, *((gpu.family,) if gpu else ()), *real)
    described = {"description": (cpu.title, *variant.products), "longDescription": texts}
    for name, wanted in described.items():
        value = facts.text(f"meta.{name}")
        for text in wanted:
            if text not in value:
                shown = json.dumps(text, ensure_ascii=False)
                yield Finding(f"meta.{name} without {shown}", f"{shown} of matrix.toml")


@CHECKS.add(
    "release.nix evaluates to every package, with the derivation of its recipe alone",
    RELEASE,
    why="Hydra and nix-eval-jobs build from it; one wrong name in it and they build nothing, or "
    "another PyTorch than the recipe.",
    fix="run `invoke phase5`; if that does not help, correct templates/release.nix.j2",
)
def eval_release_nix(context: Context, result: EvaluatedRecipe) -> Iterator[Finding]:
    if not result.ok:
        found, line, column = result.problem or "nothing", result.line, result.column
        yield Finding(found, "a set of packages", line, column, paths.RELEASE)
        return
    facts = Facts(result.facts or {})
    packages, recipes = facts.value("packages"), evaluated(context).results
    possible = set(facts.list("possible"))
    for package in context.matrix.packages:
        name, expected = f"{package.pname}-{package.version}", package.platform
        drv = packages.pop(package.attribute, {"name": "nothing", "system": "nothing"})
        own = recipes[package.path].drv_path
        # Nix puts the Python of nixpkgs before the name; offline, it is that of the model.
        if drv["name"].partition("-")[2] != name or drv["system"] != expected:
            shown = f"{package.package} = {drv['name']} for {drv['system']}"
            yield Finding(shown, f"{name} for {expected}", path=paths.RELEASE)
        elif drv["drvPath"] not in {None, own}:
            shown = f"{package.package} = {drv['drvPath']}"
            yield Finding(shown, f"{own}, as from its recipe alone", path=paths.RELEASE)
        if (package.attribute in possible) == bool(package.impossible):
            shown = f"{package.package} {'with' if package.impossible else 'without'}"
            shown += " impossibleHosts = false"
            yield Finding(shown, "the packages that a machine can run", path=paths.RELEASE)
    for name in packages:
        yield Finding(f"{name}, which is no variant", "the variants", path=paths.RELEASE)


def _builds(context: Context) -> Iterator[tuple[str, tuple[str, str] | str]]:
    """Yield each recipe with the first of its catalog that has the same derivation."""
    firsts: dict[tuple[str, str], str] = {}
    for path, given in package_facts(context):
        if isinstance(given, str) or not given[1].text("drvPath"):
            yield path, given if isinstance(given, str) else "does not evaluate"
        else:
            key = given[0].release.catalog, given[1].text("drvPath")
            yield path, (firsts.setdefault(key, path), path)


@CHECKS.add(
    "Every variant is a build of its own in its catalog",
    Subjects(each=_builds),
    why="A copy with only its comment changed builds the same thing twice.",
    fix="give each recipe its own GPU architecture and CPU ISA",
)
def eval_distinct(first: str, path: str) -> Iterator[Finding]:
    if first != path:
        yield Finding(f"the same derivation as {first}", "a build of its own")


@CHECKS.add(
    "Nix evaluates every recipe without a warning",
    RESULTS,
    why="A warning becomes an error in a later nixpkgs, or means an override without effect.",
    fix="follow the instructions of the warning",
)
def eval_warnings(context: Context, result: EvaluatedRecipe) -> Iterator[Finding]:
    for text in evaluated(context).warnings.get(result.id, []):
        yield Finding(text, "no warning of Nix", severity="warning")
