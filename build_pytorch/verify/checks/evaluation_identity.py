"""Checks that a recipe evaluates to its variant, from the right nixpkgs and source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.model import Variant
from build_pytorch.verify.check import CheckList, Finding
from build_pytorch.verify.checks.fact_checks import FACTS, RESULTS, equal, get, text_of
from build_pytorch.verify.recipe_evaluation import EvaluatedRecipe, Evaluation, Facts

CHECKS: Final = CheckList(FACTS)

_SAME: Final = "make the recipe agree with matrix.toml"


@CHECKS.add(
    RESULTS,
    id="evaluates",
    title="Every recipe evaluates to a package",
    why="If an argument is refused or a name is not in scope, no build begins.",
    fix="correct the error that Nix reports",
)
def _evaluates(_: Evaluation, result: EvaluatedRecipe) -> Iterator[Finding]:
    if not result.ok:
        found = result.problem or "no package"
        yield Finding(found, "a package", line=result.line, column=result.column)
    elif result.unreadable:
        names = ", ".join(result.unreadable)
        yield Finding(f"{names} cannot be evaluated", "a package whose attributes can be evaluated")


@CHECKS.add(
    id="eval-names",
    title="name, pname and version are those of the variant",
    why="A package with another version in its name than in its source builds the wrong PyTorch.",
    fix="replace torch in python3Packages by the overlay, and override that torch",
    word="pname",
)
def _names(variant: Variant, facts: Facts) -> Iterator[Finding]:
    release = variant.release
    yield from equal("pname", facts["pname"], variant.pname)
    yield from equal("version", facts["version"], release.torch.version)
    # The prefix is the Python of nixpkgs; offline, it is that of the model.
    name = text_of(facts["name"]).partition("-")[2]
    yield from equal("name", name, f"{variant.pname}-{release.torch.version}")


@CHECKS.add(
    id="eval-pin",
    title="nixpkgs is the pinned one, with the hash of its tarball",
    why="Another nixpkgs has another CUDA, another MAGMA and another torch.",
    fix=_SAME,
    word="fetchTarball",
)
def _pin(variant: Variant, facts: Facts) -> Iterator[Finding]:
    pin = variant.release.nixpkgs
    url = get(facts["nixpkgs"], "url")
    if url is None:
        return  # only the model records the nixpkgs of a package
    if not url.startswith(f"https://github.com/NixOS/nixpkgs/archive/{pin.rev}."):
        yield Finding(f"nixpkgs from {url}", f"nixpkgs {pin.rev}")
    yield from equal("sha256 of nixpkgs", get(facts["nixpkgs"], "sha256"), pin.sha256 or None)


@CHECKS.add(
    id="eval-source",
    title="The source is that of the release, by its hash",
    why="With the hash of another version Nix silently builds that version.",
    fix=_SAME,
    word="fetchFromGitHub",
)
def _source(variant: Variant, facts: Facts) -> Iterator[Finding]:
    torch = variant.release.torch
    for name, wanted in (
        ("owner", torch.owner),
        ("repo", torch.repo),
        ("hash", torch.hash),
        ("fetchSubmodules", torch.submodules),
    ):
        yield from equal(f"src.{name}", get(facts["src"], name), wanted)
    rev = text_of(get(facts["src"], "rev")).removeprefix("refs/tags/")
    yield from equal("src.rev", rev, torch.rev)


@CHECKS.add(
    id="eval-patches",
    title="torch is built without the patches of nixpkgs",
    why="They are for the version that nixpkgs ships and do not apply.",
    fix="patches = [];",
    word="patches",
)
def _patches(_: Variant, facts: Facts) -> Iterator[Finding]:
    yield from equal("patches", facts["patches"], [])


@CHECKS.add(
    id="eval-passthru",
    title="passthru has the GPU architecture, the CPU ISA and the BLAS",
    why="Programs choose a package by them.",
    fix="(oldAttrs.passthru or {}) // { ... }",
    word="passthru",
)
def _passthru(variant: Variant, facts: Facts) -> Iterator[Finding]:
    wanted = {
        "gpuArch": variant.gpu.capability if variant.gpu else None,
        "cpuISA": variant.cpu_key,
        "blasProvider": "cublas" if variant.gpu else "openblas",
    }
    for name, value in wanted.items():
        yield from equal(f"passthru.{name}", get(facts["passthru"], name), value)


@CHECKS.add(
    id="eval-meta",
    title="Platform and descriptions are those of the variant",
    why="Otherwise Nix sends the build to the wrong machine, and people install the wrong package.",
    fix="take system, meta.platforms and longDescription from matrix.toml",
    word="meta",
)
def _meta(variant: Variant, facts: Facts) -> Iterator[Finding]:
    yield from equal("system", facts["system"], variant.cpu.platform)
    yield from equal("meta.platforms", get(facts["meta"], "platforms"), [variant.cpu.platform])
    release = variant.release
    description = text_of(get(facts["meta"], "description"))
    long = text_of(get(facts["meta"], "longDescription"))
    if release.torch.version not in description:
        expected = f"a description with PyTorch {release.torch.version}"
        yield Finding(f'meta.description = "{description}"', expected)
    words = ["GPU", "CPU", "CUDA", "PyTorch", "Driver", "Hardware"]
    if missing := [word for word in words if word.lower() not in long.lower()]:
        found = f"meta.longDescription without {', '.join(missing)}"
        yield Finding(found, f"a description with {', '.join(words)}")
    for label in sorted(set(re.findall(r"\bSM_?(\d{2,3})\b", f"{description} {long}"))):
        if label != (variant.gpu_key or "")[2:]:
            yield Finding(f"a description of SM{label}", variant.gpu_label or "no GPU")
    for version in re.findall(r"PyTorch:? (\d+\.\d+\.\d+)", f"{description} {long}"):
        if version != release.torch.version:
            yield Finding(f"PyTorch {version}", f"PyTorch {release.torch.version}")
    if variant.gpu and release.cuda:
        major = release.cuda.driver.split(".")[0]
        for word, value in (("CUDA", release.cuda.version), ("driver", major)):
            if not re.search(rf"(?<![\d.]){re.escape(value)}(?!\d)", long):
                yield Finding(f"meta.longDescription without {word} {value}", f"{word} {value}")


@CHECKS.add(
    RESULTS,
    id="eval-distinct",
    title="Every variant is a build of its own",
    why="A copy with only its comment changed builds the same thing twice.",
    fix="give each recipe its own GPU architecture and CPU ISA",
)
def _distinct(evaluation: Evaluation, result: EvaluatedRecipe) -> Iterator[Finding]:
    first = evaluation.first_by_derivation.get(result.drv_path)
    if first not in {None, result.id}:
        yield Finding(f"the same derivation as {first}", "a build of its own")


@CHECKS.add(
    RESULTS,
    id="eval-warnings",
    title="Nix evaluates every recipe without a warning",
    why="A warning becomes an error in a later nixpkgs, or means an override without effect.",
    fix="do what the warning says",
)
def _warnings(evaluation: Evaluation, result: EvaluatedRecipe) -> Iterator[Finding]:
    for text in evaluation.warnings.get(result.id, []):
        yield Finding(text, "no warning of Nix", severity="warning")
