"""Checks for known mistakes in recipes written by hand, read as text without Nix comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from build_pytorch.matrix.model import Package
from build_pytorch.verify.check import (
    PACKAGE_RECIPES,
    RECIPES,
    CheckList,
    Finding,
    RecipeFile,
    Subjects,
)

CHECKS: Final = CheckList(PACKAGE_RECIPES)

_OVERRIDE_ARGUMENTS: Final = re.compile(r"\.override\s*\{([^{}]*)\}\s*\)\s*\.overrideAttrs\b")


def _never(
    words: tuple[str, ...],
    pattern: str,
    expected: str,
    subjects: Subjects = PACKAGE_RECIPES,
    **texts: str,
) -> None:
    """Add a check that reports every match of a pattern; each match holds one of the words.

    The search for a word is cheap. The pattern is compiled only for a recipe that has one.
    """

    @CHECKS.add(subjects, **texts)
    def _check(_: Package, recipe: RecipeFile) -> Iterator[Finding]:
        if any(word in recipe.code for word in words):
            yield from recipe.matches(pattern, expected)


@CHECKS.add(
    id="no-cuda-packages-argument",
    title="torch.override has no argument cudaPackages",
    why="The argument reaches torch alone: MAGMA and the other inputs stay on another CUDA.",
    fix="set cudaPackages in an overlay",
)
def _cuda_packages_argument(_: Package, recipe: RecipeFile) -> Iterator[Finding]:
    for call in _OVERRIDE_ARGUMENTS.finditer(recipe.code):
        for match in re.finditer(r"\bcudaPackages\b\s*[=;]", call[1]):
            yield recipe.finding(
                call.start(1) + match.start(),
                "cudaPackages as an argument of torch.override",
                "the CUDA package set chosen by an overlay, for torch and MAGMA alike",
            )


_never(
    ("Packages.pytorch",),
    r"python3(?:1\d)?Packages\.pytorch\b",
    "python3Packages.torch",
    id="torch-attribute",
    title="The attribute is python3Packages.torch",
    why="The overlay replaces python3Packages.torch; python3Packages.pytorch is another attribute.",
    fix="write python3Packages.torch",
)
_never(
    ("addDriverRunpath",),
    r"addDriverRunpath(?:\.\w+)?\}?/bin",
    "nothing: nixpkgs sets the run path",
    id="no-driver-runpath",
    title="addDriverRunpath/bin is not called",
    why="The program does not exist; the build fails at its very end.",
    fix="remove it; nixpkgs sets the run path itself",
)
_never(
    ("uildInputs",),
    r"\b(?:buildInputs|nativeBuildInputs|propagatedBuildInputs)\s*=",
    "dependencies left to nixpkgs",
    RECIPES,  # a companion adds torch to propagatedBuildInputs
    id="no-build-inputs",
    title="buildInputs and nativeBuildInputs are not overridden",
    why="It undoes .override, which chooses the CUDA dependencies.",
    fix="remove it; cudaSupport adds the dependencies",
)
_never(
    ("postFixup",),
    r"postFixup\s*=",
    "fixup left to nixpkgs",
    id="no-post-fixup",
    title="There is no postFixup",
    why="nixpkgs fixes up the package; a postFixup of a recipe damages the result.",
    fix="remove it",
)
_never(
    ("result",),
    r"(?<![\w-])(?:\.{0,2}/)(?:[\w.-]+/)*result(?:-[\w.-]+)?\b",
    "a package",
    id="no-result-links",
    title="No result link is an input",
    why="A result link is not reproducible and may be garbage-collected.",
    fix="take the package from nixpkgs",
)
_TOPS: Final = ("/home/", "/Users/", "/root/", "/mnt/", "/opt/", "/usr/local/", "~/", "$HOME")
_never(
    _TOPS,
    rf"(?<![\w.])(?:{'|'.join(map(re.escape, _TOPS))})[\w.+/-]*",
    "a path inside the build",
    id="no-user-paths",
    title="There is no absolute path of a user's machine",
    why="The path exists on one machine only.",
    fix="remove it",
)
_never(
    ("refs/", "main", "master", "develop", "nightly", "HEAD", "viable", "nixos-", "nixpkgs-"),
    r'r?e[vf]\s*=\s*"(?:refs/heads/[^"]*|main|master|develop|nightly|HEAD|viable/strict)"'
    r"|/archive/(?:refs/heads/)?(?:main|master|nixos-[\w.-]+|nixpkgs-[\w.-]+)\.tar\.gz",
    "a tag of a release or 40 hex digits",
    id="no-moving-rev",
    title="No revision is a branch",
    why="A branch moves: tomorrow the same recipe builds another source, or fails on its hash.",
    fix="name a tag of a release or a full revision",
)
_FAKE_HASH: Final = re.compile(
    r'(?:hash|sha256)\s*=\s*(""|"sha256-A{43}="|"0{52}"|(?:\w+\.)*fakeHash|(?:\w+\.)*fakeSha256)'
)


@CHECKS.add(
    id="no-fake-hash",
    title="No hash is fake, and none is empty that matrix.toml has",
    why="The first build fails after the download, only to print the hash.",
    fix="take the hash from matrix.toml",
)
def _fake_hash(package: Package, recipe: RecipeFile) -> Iterator[Finding]:
    untaken = package.untaken_hashes
    for match in _FAKE_HASH.finditer(recipe.code):
        if not (untaken and match[1] == '""'):
            yield recipe.finding(match.start(), match[0], "the hash of the real source")


_SED: Final = re.compile(r"(?m)^[ \t]*(?:sed|perl)\b[^\n]* -[a-z]*i\b[^\n]*?(\S+)[ \t]*$")
_LENIENT: Final = re.compile(r"--(?:replace-(?:quiet|warn)|replace)(?=[\s'\"])")


@CHECKS.add(
    id="substitution-fails",
    title="Every substitution of a text fails or says so if the text is not there",
    why="A sed that finds nothing changes nothing and says nothing: the fix is lost with the text.",
    fix="substituteInPlace with --replace-fail; after a sed, `grep -q` for its result and, without "
    "it, `exit 1` or a line for the log that begins with `build-pytorch: `",
)
def _substitutions(_: Package, recipe: RecipeFile) -> Iterator[Finding]:
    yield from recipe.matches(_LENIENT, "--replace-fail")
    for match in _SED.finditer(recipe.code):
        after = recipe.code[match.end() :].split("\n", 5)[:5]
        looks = any("grep -q" in line and match[1] in line for line in after)
        reports = any("exit 1" in line or 'echo "build-pytorch: ' in line for line in after)
        if not (looks and reports):
            found = " ".join(match[0].split())
            yield recipe.finding(match.start(), found, "a substitution that fails or says so")


@CHECKS.add(
    id="dotted-capability",
    title="The capability is written with a dot",
    why="Nix accepts sm_120; CMake refuses it after hours of build.",
    fix="write 12.0, not sm_120",
)
def _dotted_capability(package: Package, recipe: RecipeFile) -> Iterator[Finding]:
    variant = package.variant
    expected = variant.gpu.arch_list if variant.gpu else "no GPU"
    if '"sm' in recipe.code or "sm_" in recipe.code:
        pattern = r'"sm_?\d+[a-z]?"|\bsm_\d+[a-z]?'
        yield from recipe.matches(pattern, f'the dotted capability "{expected}"')
