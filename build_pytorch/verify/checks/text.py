"""What the recipes say, read as text. Works on any file, whoever wrote it and however broken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.model import Release, Variant
from build_pytorch.verify.check import Check, Context, Problem, Recipe, RecipeCheck, TreeCheck

# Each pattern begins with its name, and looks back from there: the regex engine can then skip to
# the places where the name stands.
_BINDING: Final = {
    name: re.compile(rf'{name}(?<![\w.-]{name})\s*=\s*"((?:\\.|[^"\\])*)"\s*;')
    for name in ("gpuArchSM", "gpuArchNum", "pname", "system")
}
_LIST: Final = {
    name: re.compile(rf"{name}(?<![\w-]{name})\s*=\s*\[([^\]]{{0,2000}})\]\s*;")
    for name in ("cpuFlags", "platforms", "gpuTargets")
}
_STRING: Final = re.compile(r'"((?:\\.|[^"\\])*)"')
_OVERRIDE: Final = re.compile(
    r"python3Packages\.torch\.override\s*\{(?P<arguments>(?:[^{}]|\$\{\w+\})*)\}\s*\)\s*\.overrideAttrs\b"
)
_CUDA_SUPPORT: Final = re.compile(r"(?<![\w.-])cudaSupport\s*=\s*(\w+)\s*;")
_MAGMA_DISABLED: Final = re.compile("filterMagma|USE_MAGMA=OFF|USE_MAGMA=0")
_WRONG_ATTRIBUTE: Final = re.compile(r"python3(?:1\d)?Packages\.pytorch\b")


def _version_line(release: Release) -> str:
    return f'version = "{release.torch.version}"'


def _lines_with(recipe: Recipe, words: list[str], *, aside: str = "") -> list[int]:
    """Numbers of the lines that hold one of the words. Comments count, as they do for grep.

    `aside` is a text that may hold a word without meaning it, such as a URL.
    """
    text = recipe.text.replace(aside, "") if aside else recipe.text
    end = r"(?!\w)"  # cudaPackages_13 is not cudaPackages_13_1; a word that ends in _ is a prefix
    lines = {
        text.count("\n", 0, match.start()) + 1
        for word in words
        for match in re.finditer(rf"{re.escape(word)}{'' if word[-1] == '_' else end}", text)
    }
    return sorted(lines)


def _gpu_pattern(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    release = variant.release
    words = [_version_line(release)]
    if release.cuda:
        words.append(release.cuda.package_set)
    if release.magma_patch:
        words.append(release.magma_patch.name)
    found = _lines_with(recipe, words, aside=release.magma_patch.url if release.magma_patch else "")
    if len(found) != len(words):
        yield Problem(
            line=found[-1] if found else 1,
            found=f"{len(found)} lines with {' or '.join(words)}",
            expected=f"exactly {len(words)}, one for each overlay",
        )


def _cpu_pattern(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    found = _lines_with(recipe, [_version_line(variant.release)])
    if len(found) != 1:
        yield Problem(
            line=found[-1] if found else 1,
            found=f"{len(found)} lines with {_version_line(variant.release)}",
            expected="exactly 1, in the only overlay",
        )
    for line in _lines_with(recipe, ["cudaPackages_"]):
        yield Problem(line=line, found="a CUDA package set", expected="none without CUDA")


def _retired_pin(context: Context) -> Iterator[Problem]:
    context.skip_without_recipes()
    for release in context.matrix.releases.values():
        for recipe in context.recipes.values():
            if not recipe.path.startswith(f"{release.folder}/"):
                continue
            for pin in release.nixpkgs.retired:
                for line in _lines_with(recipe, [pin]):
                    yield Problem(
                        path=recipe.path,
                        line=line,
                        found=f"the retired pin {pin}",
                        expected=release.nixpkgs.rev,
                    )


def _pin(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    rev = variant.release.nixpkgs.rev
    if rev not in recipe.code:
        other = re.search(r"nixpkgs/archive/([^/\"]+?)\.tar", recipe.code)
        yield Problem(
            line=recipe.line_of(other.start()) if other else 1,
            found=f"nixpkgs {other[1]}" if other else "no pin of nixpkgs",
            expected=f"nixpkgs {rev}",
        )


def _magma_patch(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    patch = variant.release.magma_patch
    if patch is None:
        if used := re.search(r"\bmagma\.overrideAttrs\b", recipe.code):
            yield Problem(
                line=recipe.line_of(used.start()),
                found="a changed MAGMA",
                expected="the pin's own: this release has no MAGMA patch",
            )
        return
    for part in (patch.name, patch.url, "fetchpatch"):
        if part not in recipe.code:
            yield Problem(found=f"no {part}", expected="MAGMA with that patch, in an overlay")


def _cuda_switch(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    """Every place that can switch CUDA on or off besides override says the same as override."""
    off, on = r"(?:0|OFF|NO|FALSE)", r"(?:1|ON|YES|TRUE)"
    wrong = rf"USE_CUDA\s*[:=]\s*\"?{off if variant.gpu else on}\b"
    if variant.gpu is None:
        wrong += r"|cudaSupport\s*=\s*true"
    wrong += r"|cudaCapabilities\s*="
    for match in re.finditer(wrong, recipe.code):
        yield Problem(
            line=recipe.line_of(match.start()),
            found=match[0],
            expected="CUDA switched by override and gpuTargets alone",
        )


def _magma_disabled(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    del variant
    for match in _MAGMA_DISABLED.finditer(recipe.text):
        yield Problem(
            line=recipe.line_of(match.start()),
            found=match[0],
            expected="MAGMA enabled: the patch made it build",
        )


def _gpu_arch(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    if variant.gpu is None or variant.gpu_key is None:
        return
    wanted = {
        "gpuArchSM": variant.gpu.capability,
        "gpuArchNum": variant.gpu.capability.replace(".", ""),
    }
    for name, value in wanted.items():
        yield from _binding(recipe, name, value)


def _pname(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    yield from _binding(recipe, "pname", variant.pname)


def _binding(recipe: Recipe, name: str, value: str) -> Iterator[Problem]:
    """A name must be bound to one string, this one, wherever the recipe binds it."""
    matches = list(_BINDING[name].finditer(recipe.code))
    if not matches:
        yield Problem(found=f"no {name}", expected=f'{name} = "{value}"')
    for match in matches:
        if match[1] != value:
            yield Problem(
                line=recipe.line_of(match.start()),
                found=f'{name} = "{match[1]}"',
                expected=f'{name} = "{value}"',
            )


def _platforms(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    wanted = variant.cpu.platform
    yield from _list(recipe, "platforms", [wanted])
    if not _BINDING["system"].search(recipe.code):
        yield Problem(
            severity="warning",
            found="no system in the import of nixpkgs",
            expected=f'system = "{wanted}", so that any machine can evaluate it',
        )
    for match in _BINDING["system"].finditer(recipe.code):
        if match[1] != wanted:
            yield Problem(
                line=recipe.line_of(match.start()),
                found=f'system = "{match[1]}"',
                expected=f'system = "{wanted}"',
            )


def _cpu_flags(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    yield from _list(recipe, "cpuFlags", list(variant.cpu.flags))
    if recipe.code.count("cpuFlags") == 1:
        yield Problem(found="cpuFlags is bound and never used", expected="CXXFLAGS made of it")


def _list(recipe: Recipe, name: str, wanted: list[str]) -> Iterator[Problem]:
    """A name must be bound to a list of these strings; their order does not matter."""
    matches = list(_LIST[name].finditer(recipe.code))
    expected = f"{name} = [ {' '.join(wanted)} ]"
    if not matches:
        yield Problem(found=f"no list {name}", expected=expected)
    for match in matches:
        found = _STRING.findall(match[1])
        if sorted(found) != sorted(wanted) or _STRING.sub("", match[1]).strip():
            yield Problem(
                line=recipe.line_of(match.start()),
                found=f"{name} = [ {' '.join(match[1].split())} ]",
                expected=expected,
            )


def _two_stages(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    wanted = "true" if variant.gpu else "false"
    match = _OVERRIDE.search(recipe.code)
    if match is None:
        yield Problem(
            found="no (python3Packages.torch.override { ... }).overrideAttrs",
            expected=f".override {{ cudaSupport = {wanted}; }} and then .overrideAttrs",
        )
        return
    line = recipe.line_of(match.start())
    support = _CUDA_SUPPORT.search(match["arguments"])
    if support is None or support[1] != wanted:
        yield Problem(
            line=line,
            found=f"cudaSupport = {support[1]}" if support else "no cudaSupport",
            expected=f"cudaSupport = {wanted}",
        )
    if variant.gpu is None:
        return
    targets = _LIST["gpuTargets"].search(match["arguments"])
    allowed = {"gpuArchSM", '"${gpuArchSM}"', f'"{variant.gpu.capability}"'}
    if targets is None or targets[1].strip() not in allowed:
        yield Problem(
            line=line,
            found=f"gpuTargets = [ {targets[1].strip()} ]" if targets else "no gpuTargets",
            expected="gpuTargets = [ gpuArchSM ]",
        )


def _attribute(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    del variant
    for match in _WRONG_ATTRIBUTE.finditer(recipe.code):
        yield Problem(
            line=recipe.line_of(match.start()), found=match[0], expected="python3Packages.torch"
        )


CHECKS: tuple[Check, ...] = (
    RecipeCheck(
        id="gpu-pattern-lines",
        title="GPU recipes have the lines of their overlays, each once",
        why="A missing one means another CUDA, MAGMA or PyTorch; a second one a copy gone wrong.",
        fix="bring back the overlays, and keep their words out of comments",
        source="seed 004, Verification: `grep -c` of the three patterns is 3",
        test=_gpu_pattern,
        kind="gpu",
    ),
    RecipeCheck(
        id="cpu-pattern-lines",
        title="CPU-only recipes have one overlay and no CUDA",
        why="A CUDA package set in a CPU-only recipe pulls gigabytes into it, or CUDA itself.",
        fix="keep the PyTorch overlay alone",
        source="seed 004, Verification: `grep -c` of the version is 1, of cudaPackages_13 is 0",
        test=_cpu_pattern,
        kind="cpu-only",
    ),
    TreeCheck(
        id="retired-pin",
        title="No retired nixpkgs pin in any file",
        why="An old pin has another CUDA and another torch; the file's name would lie.",
        fix="run `invoke all`, or delete the file",
        source="seed 004, Verification: `grep -l fe5e41d...` is empty",
        test=_retired_pin,
    ),
    RecipeCheck(
        id="nixpkgs-pin",
        title="Every recipe imports the release's nixpkgs pin",
        why="Recipes on different pins share nothing, and only one pin was tried.",
        fix="import the pin that matrix.toml names",
        source="seed 002, Verification 3: `grep 6a030d5...`",
        test=_pin,
    ),
    RecipeCheck(
        id="magma-patch",
        title="GPU recipes patch MAGMA where the release says so",
        why="Without it MAGMA does not compile; a pin that has the fix refuses it a second time.",
        fix="bring the MAGMA overlay in line with release.*.magma_patch",
        source="seed 002, Verification 1: `grep cuda-13.0-clockrate-fix.patch`",
        test=_magma_patch,
        kind="gpu",
    ),
    RecipeCheck(
        id="magma-enabled",
        title="No recipe switches MAGMA off",
        why="Switching it off hid the compile error and made torch.linalg slow.",
        fix="remove it; the patch in the overlay is the fix",
        source="seed 002, Verification 2: `grep -E 'filterMagma|USE_MAGMA=...'` is empty",
        test=_magma_disabled,
    ),
    RecipeCheck(
        id="cuda-switch",
        title="Nothing else switches CUDA on or off",
        why="An environment variable or a CMake flag undoes what override decided.",
        fix="remove it",
        source="seed 003, What Was Wrong: USE_CUDA=1 in the environment did nothing",
        test=_cuda_switch,
    ),
    RecipeCheck(
        id="gpu-arch",
        title="gpuArchSM and gpuArchNum are those of the file's name",
        why="A build for another architecture compiles for hours and does not run.",
        fix="use the dotted capability for gpuArchSM, its digits for gpuArchNum",
        source="seed 004, Verification: `grep 'gpuArchSM = \"9.0\"'` and the others",
        test=_gpu_arch,
        kind="gpu",
    ),
    RecipeCheck(
        id="pname",
        title="pname agrees with the file's name",
        why="The store path and the published package would name another build.",
        fix="make pname the file's stem with the release's prefix",
        source="seed 004, Key Considerations 1",
        test=_pname,
    ),
    RecipeCheck(
        id="platforms",
        title="meta.platforms and system are the CPU ISA's platform",
        why="Nix refuses the build on the right machine, or sends it to the wrong one.",
        fix="set both to the platform of the CPU ISA",
        source="seed 002, What to Preserve Per-Variant",
        test=_platforms,
    ),
    RecipeCheck(
        id="cpu-flags",
        title="cpuFlags are the flags of the CPU ISA",
        why="Flags of a newer ISA crash with an illegal instruction on the machines it is for.",
        fix="take the flags of the ISA from matrix.toml",
        source="seed 004, CPU ISA Flags; seed 002 for ARM",
        test=_cpu_flags,
    ),
    RecipeCheck(
        id="two-stage-override",
        title="torch.override with cudaSupport comes before overrideAttrs",
        why="overrideAttrs alone builds for hours and yields a CPU-only PyTorch.",
        fix="(nixpkgs_pinned.python3Packages.torch.override { ... }).overrideAttrs (...)",
        source="seed 003, The Fix 1",
        test=_two_stages,
    ),
    RecipeCheck(
        id="torch-attribute",
        title="The attribute is python3Packages.torch",
        why="python3Packages.pytorch is not what the overlay replaces.",
        fix="write python3Packages.torch",
        source="seed 004, Key Considerations 6",
        test=_attribute,
    ),
)
