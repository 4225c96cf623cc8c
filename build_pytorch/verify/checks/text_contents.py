"""Checks of the text of recipes. They work on any file, also on one that is not valid Nix."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final

from msgspec import structs

from build_pytorch.matrix.model import CompanionPackage, Package, Variant
from build_pytorch.verify import check
from build_pytorch.verify.check import (
    COMPANION_RECIPES,
    CPU_RECIPES,
    GPU_RECIPES,
    PACKAGE_RECIPES,
    Context,
    Finding,
    RecipeFile,
)

CHECKS: Final = check.CheckList(check.RECIPES)

# Each pattern begins with its name, and looks back from there: the regex engine can then skip to
# the places of the name.
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
    r"(?P<python>python3\d*Packages)\.torch\.override\s*\{(?P<arguments>(?:[^{}]|\$\{\w+\})*)\}\s*\)\s*\.overrideAttrs\b"
)
_ALLOWED: Final = re.compile(r"(allow(?<![\w.-]allow)\w+)\s*=\s*(?!false\b|=)[^;\n]{1,40}")
_CUDA_SUPPORT: Final = re.compile(r"(?<![\w.-])cudaSupport\s*=\s*(\w+)\s*;")


def _lines_with(text: str, words: list[str]) -> list[int]:
    """Return the numbers of the lines that hold one of the words."""
    # cudaPackages_13 is not cudaPackages_13_1; a word that ends in _ is a prefix.
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, words))})(?:(?<=_)|(?!\w))")
    return [n for n, line in enumerate(text.split("\n"), 1) if pattern.search(line)]


@CHECKS.add(
    GPU_RECIPES,
    id="gpu-pattern-lines",
    title="GPU recipes have the lines of their overlays, each once",
    why="A missing line means another CUDA, MAGMA or PyTorch; a second one, a faulty copy.",
    fix="restore the overlays, and keep their words out of comments",
)
def _overlays(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    torch, text = variant.release.torch, recipe.text
    words = [] if torch.is_of_pin else [f'version = "{torch.version}"']
    if variant.cuda:
        words.append(variant.cuda.package_set)
    for patch in variant.effects.patches:
        words.append(patch.name)
        text = text.replace(patch.url, "")  # may contain the name
    lines = _lines_with(text, words) if words else []
    if len(lines) != len(words):
        found = f"{len(lines)} lines with {' or '.join(words)}"
        yield Finding(found, f"exactly {len(words)}, one for each overlay", line=max([1, *lines]))


@CHECKS.add(
    CPU_RECIPES,
    id="cpu-pattern-lines",
    title="CPU-only recipes have the overlay of PyTorch alone, if any, and no CUDA",
    why="A CUDA package set in a CPU-only recipe adds gigabytes, or CUDA itself.",
    fix="keep the PyTorch overlay and remove the others",
)
def _one_overlay(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    yield from _overlays(variant, recipe)
    for line in _lines_with(recipe.text, ["cudaPackages_"]):
        yield Finding("a CUDA package set", "none without CUDA", line=line)


@CHECKS.add(
    check.TREE,
    id="retired-pin",
    title="No file has a retired nixpkgs pin",
    why="An old pin has another CUDA and another torch than the file name.",
    fix="run `invoke all`, or delete the file",
)
def _retired_pin(context: Context) -> Iterator[Finding]:
    context.recipe_paths()
    matrix = context.matrix
    paths = {package.path: package.release_name for package in matrix.packages}
    for name, release in matrix.releases.items():
        if not release.nixpkgs.retired:
            continue
        # In a folder of two releases, each has its own retired pins.
        folders = tuple(f"{folder}/" for folder in release.folders)
        own = [
            recipe
            for path, recipe in context.recipes.items()
            if path.startswith(folders) and paths.get(path, name) == name
        ]
        for recipe, rev in itertools.product(own, release.nixpkgs.retired):
            for line in _lines_with(recipe.text, [rev]):
                wanted = matrix.pins[release.nixpkgs.pin].rev
                yield Finding(f"the retired pin {rev}", wanted, line=line, path=recipe.path)


@CHECKS.add(
    id="nixpkgs-pin",
    title="Every recipe imports the nixpkgs pin of its release",
    why="Recipes on different pins share no dependencies, and only one pin was tested.",
    fix="import the pin that matrix.toml names",
)
def _pin(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    rev = variant.pin.rev
    if rev not in recipe.code:
        other = re.search(r"nixpkgs/archive/([^/\"]+?)\.tar", recipe.code)
        found = f"nixpkgs {other[1]}" if other else "no pin of nixpkgs"
        yield recipe.finding(other.start() if other else 0, found, f"nixpkgs {rev}")


@CHECKS.add(
    PACKAGE_RECIPES,
    id="nixpkgs-config",
    title="nixpkgs is allowed no more than the matrix says",
    why="allowBroken for all packages hides every other broken package among the inputs.",
    fix="allow it in release.*.nixpkgs.config, or for the one package that needs it",
)
def _config(package: Package, recipe: RecipeFile) -> Iterator[Finding]:
    wanted = package.variant.config
    for match in _ALLOWED.finditer(recipe.code):
        if match[1] not in wanted:
            found = recipe.finding(match.start(), match[0], f"only {', '.join(wanted)}")
            yield structs.replace(found, lenient=True)


@CHECKS.add(
    GPU_RECIPES,
    id="magma-patch",
    title="GPU recipes patch MAGMA if and only if a rule does",
    why="Without the patch MAGMA does not compile; a pin that has the fix refuses it.",
    fix="make the MAGMA overlay agree with the rules",
)
def _magma_patch(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    patches = [patch for patch in variant.effects.patches if patch.package == "magma"]
    if not patches and "own-libraries" not in variant.effects.fixes:  # it sets flags of MAGMA
        expected = "the MAGMA of the pin: no rule changes it"
        yield from recipe.matches(r"\bmagma\.overrideAttrs\b", expected, "a changed MAGMA")
    for patch in patches:
        for part in (patch.name, patch.url, "fetchpatch"):
            if part not in recipe.code:
                yield Finding(f"no {part}", "MAGMA with that patch, in an overlay")


@CHECKS.add(
    id="magma-enabled",
    title="No recipe disables MAGMA",
    why="Without MAGMA the compile error is hidden and torch.linalg is slow.",
    fix="remove it; the patch in the overlay is the fix",
)
def _magma_disabled(_: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    for match in re.finditer("filterMagma|USE_MAGMA=OFF|USE_MAGMA=0", recipe.text):
        expected = "MAGMA enabled: it builds with the patch"
        yield recipe.finding(match.start(), match[0], expected)


def _own(variant: Variant) -> str:
    """Return a pattern for the list of the variant's own capabilities."""
    if variant.gpu is None or variant.gpu.is_single:
        return r"\[\s*(?:gpuArchSM|\"\$\{gpuArchSM\}\")\s*\]"
    quoted = [re.escape(f'"{capability}"') for capability in variant.gpu.capabilities]
    return rf"\[\s*{' '.join(quoted)}\s*\]"


@CHECKS.add(
    id="cuda-switch",
    title="Only override and gpuTargets enable or disable CUDA",
    why="An environment variable or a CMake flag can undo the choice of override.",
    fix="remove it",
)
def _cuda_switch(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    wrong = "0|OFF|NO|FALSE" if variant.gpu else "1|ON|YES|TRUE"
    pattern = rf"USE_CUDA\s*[:=]\s*\"?(?:{wrong})\b"
    # passthru may say for which capabilities other packages are built with this torch.
    pattern += rf"|cudaCapabilities\s*=(?!\s*{_own(variant)}\s*;)"
    if variant.gpu is None:
        pattern += r"|cudaSupport\s*=\s*true"
    expected = "CUDA enabled or disabled by override and gpuTargets alone"
    yield from recipe.matches(pattern, expected)


@CHECKS.add(
    GPU_RECIPES,
    id="gpu-arch",
    title="gpuArchSM and gpuArchNum agree with the file name",
    why="A build for another architecture compiles for hours and does not run.",
    fix="use the dotted capability for gpuArchSM, its digits for gpuArchNum",
)
def _gpu_arch(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    if variant.gpu:
        yield from _binding(recipe, "gpuArchSM", variant.gpu.arch_list)
        yield from _binding(recipe, "gpuArchNum", variant.gpu.code)


@CHECKS.add(
    PACKAGE_RECIPES,
    id="pname",
    title="pname agrees with the file name",
    why="Otherwise the store path and the published package name another build.",
    fix="set pname to the stem of the file, with the prefix of the release",
)
def _pname(package: Package, recipe: RecipeFile) -> Iterator[Finding]:
    yield from _binding(recipe, "pname", package.pname)


@CHECKS.add(
    id="platforms",
    title="meta.platforms and system are the platform of the CPU ISA",
    why="Nix refuses the build on the right machine, or sends it to the wrong one.",
    fix="set both to the platform of the CPU ISA",
)
def _platforms(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    wanted = variant.cpu.platform
    yield from _list(recipe, "platforms", [wanted])
    if _BINDING["system"].search(recipe.code):
        yield from _binding(recipe, "system", wanted)
    else:
        expected = f'system = "{wanted}", so that any machine can evaluate it'
        yield Finding("no system in the import of nixpkgs", expected, severity="warning")


@CHECKS.add(
    id="cpu-flags",
    title="cpuFlags are the flags of the CPU ISA",
    why="Flags of a newer ISA cause an illegal instruction on the CPUs of this variant.",
    fix="take the flags of the ISA from matrix.toml",
)
def _cpu_flags(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    yield from _list(recipe, "cpuFlags", list(variant.cpu.flags))
    if recipe.code.count("cpuFlags") == 1:
        yield Finding("cpuFlags is bound and never used", "CXXFLAGS with cpuFlags")


def _binding(recipe: RecipeFile, name: str, value: str) -> Iterator[Finding]:
    """Yield findings if a name is not bound to this string wherever the recipe binds it."""
    expected = f'{name} = "{value}"'
    matches = list(_BINDING[name].finditer(recipe.code))
    if not matches:
        yield Finding(f"no {name}", expected)
    for match in matches:
        if match[1] != value:
            yield recipe.finding(match.start(), f'{name} = "{match[1]}"', expected)


def _list(recipe: RecipeFile, name: str, wanted: list[str]) -> Iterator[Finding]:
    """Yield findings if a name is not bound to a list of these strings, in any order."""
    matches = list(_LIST[name].finditer(recipe.code))
    expected = f"{name} = [ {' '.join(wanted)} ]"
    if not matches:
        yield Finding(f"no list {name}", expected)
    for match in matches:
        found = _STRING.findall(match[1])
        if sorted(found) != sorted(wanted) or _STRING.sub("", match[1]).strip():
            yield recipe.finding(match.start(), f"{name} = [ {match[1]} ]", expected)


@CHECKS.add(
    id="two-stage-override",
    title="torch.override with cudaSupport comes before overrideAttrs",
    why="overrideAttrs alone builds for hours and yields a CPU-only PyTorch.",
    fix="(nixpkgs_pinned.python3Packages.torch.override { ... }).overrideAttrs (...)",
)
def _two_stages(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    wanted = "true" if variant.gpu else "false"
    match = _OVERRIDE.search(recipe.code)
    if match is None:
        found = f"no ({variant.python_set}.torch.override {{ ... }}).overrideAttrs"
        yield Finding(found, f".override {{ cudaSupport = {wanted}; }} and then .overrideAttrs")
        return
    if match["python"] != variant.python_set:
        yield recipe.finding(match.start(), match["python"], variant.python_set)
    support = _CUDA_SUPPORT.search(match["arguments"])
    if support is None or support[1] != wanted:
        found = f"cudaSupport = {support[1]}" if support else "no cudaSupport"
        yield recipe.finding(match.start(), found, f"cudaSupport = {wanted}")
    if variant.gpu is None:
        return
    if not variant.gpu.is_single:
        if 'gpuTargets = lib.splitString ";" gpuArchSM;' not in match["arguments"]:
            expected = 'gpuTargets = lib.splitString ";" gpuArchSM'
            yield recipe.finding(match.start(), "other gpuTargets", expected)
        return
    targets = _LIST["gpuTargets"].search(match["arguments"])
    allowed = {"gpuArchSM", '"${gpuArchSM}"', f'"{variant.gpu.capability}"'}
    if targets is None or targets[1].strip() not in allowed:
        found = f"gpuTargets = [ {targets[1]} ]" if targets else "no gpuTargets"
        yield recipe.finding(match.start(), found, "gpuTargets = [ gpuArchSM ]")


@CHECKS.add(
    COMPANION_RECIPES,
    id="companion-python-set",
    title="A companion is taken from the Python set of its variant",
    why="The overlay changes python3Packages alone: the same set under another name has the torch "
    "and the Python packages of nixpkgs.",
    fix="package = nixpkgs_pinned.python3Packages.NAME",
)
def _python_set(companion: CompanionPackage, recipe: RecipeFile) -> Iterator[Finding]:
    wanted = f"{companion.variant.python_set}.{companion.name}"
    if not re.search(rf"\b{re.escape(wanted)}\b", recipe.code):
        found = re.search(rf"\b(\w+)\.{companion.name}\b", recipe.code)
        text = found[0] if found else f"no {companion.name}"
        yield recipe.finding(found.start() if found else 0, text, wanted)
    for match in re.finditer(r"\bpython3\d*Packages\b", recipe.code):
        if match[0] != companion.variant.python_set:
            yield recipe.finding(match.start(), match[0], companion.variant.python_set)
