"""Checks of the text of recipes. They work on any file, also on one that is not valid Nix.

They hold what a person greps for, and what only the text shows. What a recipe does is checked by
evaluating it and by running its hooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from build_pytorch.matrix.model import Variant
from build_pytorch.verify.check import CheckSkipped, Finding
from build_pytorch.verify.context import Context, RecipeFile


def _lines_with(text: str, words: Sequence[str]) -> list[int]:
    """Return the numbers of the lines that hold one of the words."""
    # cudaPackages_13 is not cudaPackages_13_1; a word that ends in _ is a prefix.
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, words))})(?:(?<=_)|(?!\w))")
    return [n for n, line in enumerate(text.split("\n"), 1) if pattern.search(line)]


def pattern_lines(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    """Yield another number of lines of overlays than the variant has, and CUDA without a GPU."""
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
        expected = f"exactly {len(words)}, one for each overlay"
        yield Finding(found=found, expected=expected, line=max([1, *lines]))
    for line in [] if variant.cuda else _lines_with(text, ["cudaPackages_"]):
        yield Finding(found="a CUDA package set", expected="none without CUDA", line=line)


def retired_pin(context: Context) -> Iterator[Finding]:
    """Yield recipes without the pin of their release, and files with a retired one.

    Raises CheckSkipped if there is no recipe.
    """
    if not context.recipes:
        raise CheckSkipped("no recipe to look at")
    for package, recipe in context.present:
        rev = package.variant.pin.rev
        if package.companion is None and rev not in recipe.text:
            yield Finding(found="no pin of its release", expected=rev, path=recipe.path)
    release_names = {package.path: package.release_name for package in context.matrix.packages}
    for name, release in context.matrix.releases.items():
        folders = tuple(f"{folder}/" for folder in release.folders)
        for path, recipe in context.recipes.items():
            # In a folder of two releases, each has its own retired pins.
            is_own = path.startswith(folders) and release_names.get(path, name) == name
            for rev in release.nixpkgs.retired if is_own else ():
                for line in _lines_with(recipe.text, [rev]):
                    expected = context.matrix.pins[release.nixpkgs.pin].rev
                    found = f"the retired pin {rev}"
                    yield Finding(found=found, expected=expected, path=path, line=line)


def magma_enabled(_: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    """Yield each way to switch MAGMA off."""
    for match in re.finditer("filterMagma|USE_MAGMA=OFF|USE_MAGMA=0", recipe.text):
        yield recipe.finding(match.start(), match[0], "MAGMA enabled: it builds with the patch")


def gpu_arch(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    """Yield names of another architecture than that of the file name."""
    wanted = {} if variant.gpu is None else {"SM": variant.gpu.capability, "Num": variant.gpu.code}
    for name, value in wanted.items():
        expected = f'gpuArch{name} = "{value}"'
        matches = list(re.finditer(rf'\bgpuArch{name}\s*=\s*"([^"]*)"', recipe.code))
        if not matches:
            yield Finding(found=f"no gpuArch{name}", expected=expected)
        for match in matches:
            if match[1] != value:
                yield recipe.finding(match.start(), match[0], expected)


_OVERRIDE: Final = re.compile(
    r"\.torch\.override\s*\{(?P<arguments>(?:[^{}]|\$?\{[^{}]*\})*)\}\s*\)\s*\.overrideAttrs\b"
)


def two_stage_override(variant: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    """Yield what differs from override with cudaSupport, and then overrideAttrs."""
    wanted = "true" if variant.gpu else "false"
    match = _OVERRIDE.search(recipe.code)
    if match is None:
        found = f"no ({variant.python_set}.torch.override {{ ... }}).overrideAttrs"
        expected = f".override {{ cudaSupport = {wanted}; }} and then .overrideAttrs"
        yield Finding(found=found, expected=expected)
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
_LENIENT: Final = re.compile(r"(?<!\")--(?:replace-(?:quiet|warn)|replace)(?=[\s'\"])")


def substitution_fails(_: Variant, recipe: RecipeFile) -> Iterator[Finding]:
    """Yield substitutions that go on if their text is not there."""
    for match in _LENIENT.finditer(recipe.code):
        yield recipe.finding(match.start(), match[0], "--replace-fail")
    for match in _SED.finditer(recipe.code):
        after = recipe.code[match.end() :].split("\n", 5)[:5]
        looks = any("grep -q" in line and match[2] in line for line in after)
        if not (looks and any("exit 1" in line for line in after)):
            yield recipe.finding(match.start(1), match[1], "a substitution that fails")
