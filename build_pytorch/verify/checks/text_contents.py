"""Checks of the text of recipes. They work on any file, also on one that is not valid Nix.

They hold what a person greps for, and what only the text shows. What a recipe does is checked by
evaluating it and by running its hooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.model import Variant
from build_pytorch.verify import check
from build_pytorch.verify.check import CPU_RECIPES, GPU_RECIPES, Context, Finding, RecipeFile

CHECKS: Final = check.CheckList(check.RECIPES)


def _lines_with(text: str, words: list[str]) -> list[int]:
    """Return the numbers of the lines that hold one of the words."""
    # cudaPackages_13 is not cudaPackages_13_1; a word that ends in _ is a prefix.
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, words))})(?:(?<=_)|(?!\w))")
    return [n for n, line in enumerate(text.split("\n"), 1) if pattern.search(line)]


@CHECKS.add(
    "GPU recipes have the lines of their overlays, each once",
    GPU_RECIPES,
    why="A missing line means another CUDA, MAGMA or PyTorch; a second one, a faulty copy.",
    fix="restore the overlays, and keep their words out of comments",
)
def gpu_pattern_lines(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
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
    "CPU-only recipes have the overlay of PyTorch alone, if any, and no CUDA",
    CPU_RECIPES,
    why="A CUDA package set in a CPU-only recipe adds gigabytes, or CUDA itself.",
    fix="keep the PyTorch overlay and remove the others",
)
def cpu_pattern_lines(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    yield from gpu_pattern_lines(variant, recipe)
    for line in _lines_with(recipe.text, ["cudaPackages_"]):
        yield Finding("a CUDA package set", "none without CUDA", line=line)


@CHECKS.add(
    "Recipes have the nixpkgs pin of their release, and no file has a retired one",
    check.TREE,
    why="Another pin has another CUDA and another torch than the file name.",
    fix="run `invoke all`, or delete the file",
)
def retired_pin(context: Context) -> Iterator[Finding]:
    context.recipe_paths()
    matrix = context.matrix
    for variant, recipe in context.present_variants:
        if variant.pin.rev not in recipe.text:
            yield Finding("no pin of its release", variant.pin.rev, path=recipe.path)
    release_names = {package.path: package.release_name for package in matrix.packages}
    for name, release in matrix.releases.items():
        wanted = matrix.pins[release.nixpkgs.pin].rev
        folders = tuple(f"{folder}/" for folder in release.folders)
        for path, recipe in context.recipes.items():
            # In a folder of two releases, each has its own retired pins.
            is_own = path.startswith(folders) and release_names.get(path, name) == name
            for rev in release.nixpkgs.retired if is_own else ():
                for line in _lines_with(recipe.text, [rev]):
                    yield Finding(f"the retired pin {rev}", wanted, line=line, path=path)


@CHECKS.add(
    "No recipe disables MAGMA",
    why="Without MAGMA the compile error is hidden and torch.linalg is slow.",
    fix="remove it; the patch in the overlay is the fix",
)
def magma_enabled(_: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    for match in re.finditer("filterMagma|USE_MAGMA=OFF|USE_MAGMA=0", recipe.text):
        expected = "MAGMA enabled: it builds with the patch"
        yield recipe.finding(match.start(), match[0], expected)


@CHECKS.add(
    "gpuArchSM and gpuArchNum agree with the file name",
    GPU_RECIPES,
    why="A build for another architecture compiles for hours and does not run. Nix accepts sm_120 "
    "as well, and CMake refuses it after hours.",
    fix="use the dotted capability for gpuArchSM, its digits for gpuArchNum",
)
def gpu_arch(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    wanted = {} if variant.gpu is None else {"SM": variant.gpu.capability, "Num": variant.gpu.code}
    for name, value in wanted.items():
        expected = f'gpuArch{name} = "{value}"'
        # It begins with plain text, which Python finds faster than a \b.
        pattern = rf'gpuArch{name}(?<!\wgpuArch{name})\s*=\s*"([^"]*)"'
        matches = list(re.finditer(pattern, recipe.code))
        if not matches:
            yield Finding(f"no gpuArch{name}", expected)
        for match in matches:
            if match[1] != value:
                yield recipe.finding(match.start(), match[0], expected)


_OVERRIDE: Final = re.compile(
    r"\.torch\.override\s*\{(?P<arguments>(?:[^{}]|\$?\{[^{}]*\})*)\}\s*\)\s*\.overrideAttrs\b"
)


@CHECKS.add(
    "torch.override with cudaSupport, without cudaPackages, comes before overrideAttrs",
    why="overrideAttrs alone builds for hours and yields a CPU-only PyTorch. The argument "
    "cudaPackages reaches torch alone: MAGMA and the other inputs stay on another CUDA.",
    fix="(nixpkgs_pinned.python3Packages.torch.override { ... }).overrideAttrs (...), with "
    "cudaPackages in an overlay",
)
def two_stage_override(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    wanted = "true" if variant.gpu else "false"
    match = _OVERRIDE.search(recipe.code)
    if match is None:
        found = f"no ({variant.python_set}.torch.override {{ ... }}).overrideAttrs"
        yield Finding(found, f".override {{ cudaSupport = {wanted}; }} and then .overrideAttrs")
        return
    support = re.search(r"(?<![\w.-])cudaSupport\s*=\s*(\w+)\s*;", match["arguments"])
    if support is None or support[1] != wanted:
        found = f"cudaSupport = {support[1]}" if support else "no cudaSupport"
        yield recipe.finding(match.start(), found, f"cudaSupport = {wanted}")
    if argument := re.search(r"\bcudaPackages\b\s*[=;]", match["arguments"]):
        offset = match.start("arguments") + argument.start()
        expected = "the CUDA package set chosen by an overlay, for torch and MAGMA alike"
        yield recipe.finding(offset, "cudaPackages as an argument of torch.override", expected)


_SED: Final = re.compile(r"\n([ \t]*(?:sed|perl)\b[^\n]* -[a-z]*i\b[^\n]*?(\S+)[ \t]*)(?=\n|\Z)")
_LENIENT: Final = re.compile(r"--(?:replace-(?:quiet|warn)|replace)(?=[\s'\"])")


@CHECKS.add(
    "Every substitution of a text fails if the text is not there",
    why="A sed that finds nothing changes nothing and says nothing: the fix is lost with the text.",
    fix="substituteInPlace with --replace-fail; after a sed, `grep -q` for its result and, without "
    "it, `exit 1`",
)
def substitution_fails(_: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    for match in _LENIENT.finditer(recipe.code):
        yield recipe.finding(match.start(), match[0], "--replace-fail")
    for match in _SED.finditer(recipe.code):
        after = recipe.code[match.end() :].split("\n", 5)[:5]
        looks = any("grep -q" in line and match[2] in line for line in after)
        if not (looks and any("exit 1" in line for line in after)):
            yield recipe.finding(match.start(1), match[1], "a substitution that fails")
