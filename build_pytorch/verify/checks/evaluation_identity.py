"""That a package is the variant it is called, made of the right nixpkgs and source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.model import Variant
from build_pytorch.verify.check import Check, Problem
from build_pytorch.verify.checks.evaluation_kinds import (
    DistinctDerivations,
    FactCheck,
    equal,
    get,
    text_of,
)
from build_pytorch.verify.recipe_evaluation import Facts

_SAME: Final = "bring the recipe in line with matrix.toml"


def _names(variant: Variant, facts: Facts) -> Iterator[Problem]:
    release = variant.release
    yield from equal("pname", facts.pname, variant.pname)
    yield from equal("version", facts.version, release.torch.version)
    # The Python in front is the one that nixpkgs has; here it would be the model's.
    name = text_of(facts.name).partition("-")[2]
    yield from equal("name", name, f"{variant.pname}-{release.torch.version}")


def _pin(variant: Variant, facts: Facts) -> Iterator[Problem]:
    pin = variant.release.nixpkgs
    url = get(facts.nixpkgs, "url")
    if url is None:
        return  # only the model tells where a package comes from
    if not url.startswith(f"https://github.com/NixOS/nixpkgs/archive/{pin.rev}."):
        yield Problem(found=f"nixpkgs from {url}", expected=f"nixpkgs {pin.rev}")
    yield from equal("sha256 of nixpkgs", get(facts.nixpkgs, "sha256"), pin.sha256 or None)


def _source(variant: Variant, facts: Facts) -> Iterator[Problem]:
    torch = variant.release.torch
    for name, wanted in (
        ("owner", torch.owner),
        ("repo", torch.repo),
        ("hash", torch.hash),
        ("fetchSubmodules", torch.submodules),
    ):
        yield from equal(f"src.{name}", get(facts.src, name), wanted)
    rev = text_of(get(facts.src, "rev")).removeprefix("refs/tags/")
    yield from equal("src.rev", rev, torch.rev)


def _patches(variant: Variant, facts: Facts) -> Iterator[Problem]:
    del variant
    yield from equal("patches", facts.patches, [])


def _passthru(variant: Variant, facts: Facts) -> Iterator[Problem]:
    wanted = {
        "gpuArch": variant.gpu.capability if variant.gpu else None,
        "cpuISA": variant.cpu_key,
        "blasProvider": "cublas" if variant.gpu else "openblas",
    }
    for name, value in wanted.items():
        yield from equal(f"passthru.{name}", get(facts.passthru, name), value)


def _meta(variant: Variant, facts: Facts) -> Iterator[Problem]:
    wanted = variant.cpu.platform
    yield from equal("system", facts.system, wanted)
    yield from equal("meta.platforms", get(facts.meta, "platforms"), [wanted])
    release = variant.release
    description = text_of(get(facts.meta, "description"))
    if release.torch.version not in description:
        yield Problem(
            found=f'meta.description = "{description}"',
            expected=f"one that names PyTorch {release.torch.version}",
        )
    long = text_of(get(facts.meta, "longDescription"))
    words = ["GPU", "CPU", "CUDA", "PyTorch", "Driver", "Hardware"]
    missing = [word for word in words if word.lower() not in long.lower()]
    if missing:
        yield Problem(
            found=f"meta.longDescription without {', '.join(missing)}",
            expected=f"one that tells {', '.join(words)}",
        )
    for label in sorted(set(re.findall(r"\bSM_?(\d{2,3})\b", f"{description} {long}"))):
        if label != (variant.gpu_key or "")[2:]:
            yield Problem(
                found=f"a description of SM{label}", expected=variant.gpu_label or "no GPU"
            )
    for version in re.findall(r"PyTorch:? (\d+\.\d+\.\d+)", f"{description} {long}"):
        if version != release.torch.version:
            yield Problem(found=f"PyTorch {version}", expected=f"PyTorch {release.torch.version}")
    if variant.gpu and release.cuda:
        major = release.cuda.driver.split(".")[0]
        for word, value in (("CUDA", release.cuda.version), ("driver", major)):
            if not re.search(rf"(?<![\d.]){re.escape(value)}(?!\d)", long):
                yield Problem(
                    found=f"meta.longDescription without {word} {value}", expected=f"{word} {value}"
                )


CHECKS: tuple[Check, ...] = (
    FactCheck(
        id="eval-names",
        title="Name, pname and version are the variant's",
        why="Labelled with one version and evaluating to another builds the wrong PyTorch.",
        fix="the overlay has to replace torch in python3Packages, which override then takes",
        source="seed 002, Reference Implementation",
        test=_names,
        word="pname",
    ),
    FactCheck(
        id="eval-pin",
        title="nixpkgs is the pinned one, with the tarball's hash",
        why="Another nixpkgs has another CUDA, another MAGMA, another torch.",
        fix=_SAME,
        source="seed 002, Key elements 1",
        test=_pin,
        word="fetchTarball",
    ),
    FactCheck(
        id="eval-source",
        title="The source is the release's, by its hash",
        why="With the hash of another version Nix silently builds that one.",
        fix=_SAME,
        source="seed 001, step 3",
        test=_source,
        word="fetchFromGitHub",
    ),
    FactCheck(
        id="eval-patches",
        title="torch is built without nixpkgs' patches",
        why="They are for the version that nixpkgs ships and do not apply.",
        fix="patches = [];",
        source="seed 004, Canonical Recipe Pattern",
        test=_patches,
        word="patches",
    ),
    FactCheck(
        id="eval-passthru",
        title="passthru tells architecture, ISA and BLAS",
        why="Programs choose a package by them.",
        fix="(oldAttrs.passthru or {}) // { ... }",
        source="seed 004, Key differences; what public builds of this matrix do",
        test=_passthru,
        word="passthru",
    ),
    FactCheck(
        id="eval-meta",
        title="Platform and descriptions are the variant's",
        why="Nix sends the build to the wrong machine; people install the wrong package.",
        fix="system, meta.platforms and longDescription as matrix.toml says",
        source="seed 002, What to Preserve Per-Variant",
        test=_meta,
        word="meta",
    ),
    DistinctDerivations(
        id="eval-distinct",
        title="Every variant is a build of its own",
        why="A copy with only its comment changed builds the same thing twice.",
        fix="give each recipe its own architecture and ISA",
        source="seed 002: copies of the canonical recipe",
    ),
)
