"""Checks of the text of recipes. They work on any file, also on one that is not valid Nix.

They hold what a person greps for, and what only the text shows. What a recipe does is checked by
evaluating it and by running its hooks. Each returns the texts of a kind that a recipe has, and
those that it should have.
"""

from __future__ import annotations

import re
from typing import Final

from build_pytorch.matrix.model import Package
from build_pytorch.verify.context import RecipeFile

Texts = tuple[list[str], list[str]]

_OVERRIDE: Final = re.compile(
    r"\.torch\.override\s*\{((?:[^{}]|\$?\{[^{}]*\})*)\}\s*\)\s*\.overrideAttrs\b"
)
_SED: Final = re.compile(r"\n[ \t]*((?:sed|perl)\b[^\n]* -[a-z]*i\b[^\n]*?(\S+))[ \t]*(?=\n|\Z)")
_LENIENT: Final = re.compile(r"(?<!\")--(?:replace-(?:quiet|warn)|replace)(?=[\s'\"])")


def pattern_lines(package: Package, recipe: RecipeFile) -> Texts:
    """Return the words of overlays, once for each overlay, and the names of CUDA package sets."""
    variant, text = package.variant, recipe.text
    torch = variant.release.torch
    words = [] if torch.is_of_pin else [f'version = "{torch.version}"']
    words += [variant.cuda.package_set] if variant.cuda else []
    for patch in variant.effects.patches:
        words.append(patch.name)
        text = text.replace(patch.url, "")  # may contain the name
    pattern = "|".join(map(re.escape, words if variant.cuda else [*words, "cudaPackages_"]))
    # cudaPackages_13 is not cudaPackages_13_1; a word that ends in _ is a prefix.
    return re.findall(rf"(?:{pattern})(?:(?<=_)|(?!\w))", text), words


def retired_pin(package: Package, recipe: RecipeFile) -> Texts:
    """Return the pins of the release, which companions import from another file."""
    own, retired = package.variant.pin.rev, package.release.nixpkgs.retired
    found = [rev for rev in (own, *retired) if rev in recipe.text]
    return found, [own] if own in found or not package.companion else []


def magma_enabled(_: Package, recipe: RecipeFile) -> Texts:
    """Return each way to switch MAGMA off."""
    return re.findall("filterMagma|USE_MAGMA=OFF|USE_MAGMA=0", recipe.text), []


def gpu_arch(package: Package, recipe: RecipeFile) -> Texts:
    """Return the two names of the GPU architecture."""
    gpu = package.gpu
    wanted = [f'gpuArchNum = "{gpu.code}"', f'gpuArchSM = "{gpu.capability}"'] if gpu else []
    names = re.findall(r'\b(gpuArch(?:Num|SM))\s*=\s*("[^"]*")', recipe.code)
    return list(dict.fromkeys(f"{name} = {value}" for name, value in names)), wanted


def two_stage_override(package: Package, recipe: RecipeFile) -> Texts:
    """Return cudaSupport and cudaPackages as arguments of override, before overrideAttrs."""
    override = _OVERRIDE.search(recipe.code)
    arguments = override[1] if override else ""
    found = re.findall(r"(?<![\w.-])cudaSupport\s*=\s*\w+", arguments)[:1]
    found += re.findall(r"\bcudaPackages\b(?=\s*[=;])", arguments)
    wanted = f"cudaSupport = {'true' if package.gpu else 'false'}"
    return [" ".join(text.split()) for text in found], [wanted]


def substitution_fails(_: Package, recipe: RecipeFile) -> Texts:
    """Return substitutions that go on if their text is not there."""
    found = _LENIENT.findall(recipe.code)
    for match in _SED.finditer(recipe.code):
        after = recipe.code[match.end() :].split("\n", 5)[:5]
        looks = any("grep -q" in line and match[2] in line for line in after)
        if not (looks and any("exit 1" in line for line in after)):
            found.append(match[1])
    return found, []
