"""docs/checks.md: what the checks are, told by the checks themselves."""

from __future__ import annotations

from typing import Final

from build_pytorch.base import digest
from build_pytorch.verify import verification

_CATEGORIES: Final = {
    "inventory": "Which recipe files there are, against which there should be.",
    "text": "What recipes say, read as text. Works on any file, however broken.",
    "mistakes": "What was once written by hand, was wrong, and must not come back.",
    "syntax": "Whether recipes are Nix, and in the right order: `nix-instantiate --parse` where "
    "Nix is installed, tree-sitter elsewhere and for the structure.",
    "evaluation": "What recipes do: one `nix-instantiate --eval` over all of them, unchanged and "
    "offline, against a model of nixpkgs that comes with the project. Needs Nix.",
    "toolchain": "Whether a real gcc of each platform and a real nvcc of the release's CUDA take "
    "what the matrix promises. A tool that is absent or of another version is skipped.",
    "generated": "Whether recipes and docs are what matrix and templates yield, and whether the "
    "numbers in the docs are true. The only category that calls the renderer.",
}


def page() -> str:
    """The text of docs/checks.md, sealed."""
    lines = [
        "# The checks",
        "",
        "<!-- Generated from build_pytorch/checks/ by `invoke phase5`.",
        f"     Digest of this file, with zeros in place of it: {digest.PLACEHOLDER} -->",
        "",
        "`nox -s verify` runs all of them, `nox -s verify -- --only NAME` a check or a category,",
        "`nox -s verify -- --explain NAME` prints what stands here. What is not listed is not",
        "checked: no check proves that a recipe builds.",
    ]
    for category, found in verification.categories().items():
        lines += ["", f"## {category}", "", _CATEGORIES[category]]
        for check in found:
            lines += [
                "",
                f"### {check.id}",
                "",
                f"{check.title}.",
                "",
                f"- Why: {check.why}",
                f"- To fix it: {check.fix}.",
                f"- Asked for by: {check.source}",
            ]
    return digest.seal("\n".join(lines) + "\n")
