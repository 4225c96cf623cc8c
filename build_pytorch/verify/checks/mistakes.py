"""Mistakes made by hand in recipes like these, each of which cost hours. None may come back.

Read as text without Nix comments, so that any file can be looked at, whoever wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from build_pytorch.matrix.model import Variant
from build_pytorch.verify.check import Check, Problem, Recipe, RecipeCheck

_Test = Callable[[Variant, Recipe], Iterator[Problem]]

_OVERRIDE_ARGUMENTS: Final = re.compile(r"\.override\s*\{([^{}]*)\}\s*\)\s*\.overrideAttrs\b")
_FAKE_HASH: Final = (
    r'(?:hash|sha256)\s*=\s*(?:""|"sha256-A{43}="|"0{52}"|(?:\w+\.)*fakeHash|(?:\w+\.)*fakeSha256)'
)
_MOVING_REV: Final = (
    r'r?e[vf]\s*=\s*"(?:refs/heads/[^"]*|main|master|develop|nightly|HEAD|viable/strict)"'
    r"|/archive/(?:refs/heads/)?(?:main|master|nixos-[\w.-]+|nixpkgs-[\w.-]+)\.tar\.gz"
)


def _never(word: str, pattern: str, expected: str) -> _Test:
    """A test that finds every place of a pattern. `word` is part of whatever matches it.

    Looking for the word first costs nothing; the pattern is compiled for a recipe that has it.
    """

    def test(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
        del variant
        if word in recipe.code:
            for match in re.finditer(pattern, recipe.code):
                yield _problem(recipe, match.start(), match[0], expected)

    return test


def _cuda_packages_argument(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    del variant
    for call in _OVERRIDE_ARGUMENTS.finditer(recipe.code):
        for match in re.finditer(r"\bcudaPackages\b\s*[=;]", call[1]):
            yield _problem(
                recipe,
                call.start(1) + match.start(),
                "cudaPackages handed to torch.override",
                "the CUDA package set chosen by an overlay, for torch and MAGMA alike",
            )


def _dotted_capability(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    expected = variant.gpu.capability if variant.gpu else "no GPU"
    if '"sm' not in recipe.code and "sm_" not in recipe.code:
        return
    for match in re.finditer(r'"sm_?\d+[a-z]?"|\bsm_\d+[a-z]?', recipe.code):
        yield _problem(recipe, match.start(), match[0], f'the dotted capability "{expected}"')


def _moving_rev(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    words = (
        "refs/",
        "main",
        "master",
        "develop",
        "nightly",
        "HEAD",
        "viable",
        "nixos-",
        "nixpkgs-",
    )
    if any(word in recipe.code for word in words):
        expected = "a tag of a release or 40 hex digits"
        yield from _never("", _MOVING_REV, expected)(variant, recipe)


def _user_paths(variant: Variant, recipe: Recipe) -> Iterator[Problem]:
    for top in ("/home/", "/Users/", "/root/", "/mnt/", "/opt/", "/usr/local/", "~/", "$HOME"):
        pattern = rf"(?<![\w.]){re.escape(top)}[\w.+/-]*"
        yield from _never(top, pattern, "a path inside the build")(variant, recipe)


def _problem(recipe: Recipe, offset: int, found: str, expected: str) -> Problem:
    start = recipe.code.rfind("\n", 0, offset)
    return Problem(
        line=recipe.line_of(offset),
        column=offset - start,
        found=" ".join(found.split()),
        expected=expected,
    )


CHECKS: tuple[Check, ...] = (
    RecipeCheck(
        id="no-cuda-packages-argument",
        title="cudaPackages is not handed to torch.override",
        why="It reaches torch alone: MAGMA and the rest stay on another CUDA.",
        fix="set cudaPackages in an overlay",
        source="seed 000, issue 1",
        test=_cuda_packages_argument,
    ),
    RecipeCheck(
        id="no-driver-runpath",
        title="addDriverRunpath/bin is not called",
        why="That program does not exist; the build fails at its very end.",
        fix="remove it; nixpkgs sets the run path itself",
        source="seed 000, issue 3",
        test=_never(
            "addDriverRunpath",
            r"addDriverRunpath(?:\.\w+)?\}?/bin",
            "nothing: nixpkgs sets the run path",
        ),
    ),
    RecipeCheck(
        id="no-build-inputs",
        title="buildInputs and nativeBuildInputs are not overridden",
        why="It works against .override, which chooses the CUDA dependencies.",
        fix="remove it; cudaSupport brings what is needed",
        source="seed 000, issue 4; seed 003, Key Changes 3",
        test=_never(
            "uildInputs",
            r"\b(?:buildInputs|nativeBuildInputs|propagatedBuildInputs)\s*=",
            "dependencies left to nixpkgs",
        ),
    ),
    RecipeCheck(
        id="no-post-fixup",
        title="There is no postFixup",
        why="Every one that was written was wrong, and none was needed.",
        fix="remove it",
        source="seed 000, issue 5",
        test=_never("postFixup", r"postFixup\s*=", "fixing up left to nixpkgs"),
    ),
    RecipeCheck(
        id="no-result-links",
        title="No result link is an input",
        why="A result link is not reproducible and may be collected as garbage.",
        fix="take the package from nixpkgs",
        source="seed 001, Don't use result symlinks",
        test=_never(
            "result", r"(?<![\w-])(?:\.{0,2}/)(?:[\w.-]+/)*result(?:-[\w.-]+)?\b", "a package"
        ),
    ),
    RecipeCheck(
        id="no-user-paths",
        title="No absolute path of a user's machine",
        why="It exists on one machine only.",
        fix="remove it",
        source="seed 001, Repos aren't siblings; seed 002",
        test=_user_paths,
    ),
    RecipeCheck(
        id="no-moving-rev",
        title="No revision that moves",
        why="The same recipe would build something else tomorrow, or fail on its hash.",
        fix="name a tag of a release or a full revision",
        source="seed 000, Next Steps 1; seed 001, step 3",
        test=_moving_rev,
    ),
    RecipeCheck(
        id="no-fake-hash",
        title="No empty or fake hash",
        why="The first build fails after the download, only to tell the hash.",
        fix="take the hash from matrix.toml",
        source="seed 001, step 3: fix the PyTorch source hash",
        test=_never("", _FAKE_HASH, "the hash of the real source"),
    ),
    RecipeCheck(
        id="dotted-capability",
        title="The capability is written with a dot",
        why="Nix takes sm_120 as well; CMake does not know it, hours later.",
        fix="write 12.0, not sm_120",
        source="seed 003, Key Changes 2",
        test=_dotted_capability,
    ),
)
