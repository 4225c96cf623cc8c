"""The reference page of all checks."""

from __future__ import annotations

from build_pytorch.base import digest
from build_pytorch.verify import registry


def page() -> str:
    """Return the text of the page, with its digest."""
    lines = [
        "# The checks",
        "",
        "<!-- Generated from build_pytorch/verify/checks/ by `invoke phase5`.",
        f"     Digest of this file, with zeros in place of it: {digest.PLACEHOLDER} -->",
        "",
        "`nox -s verify` runs all of them, `nox -s verify -- --only NAME` a check or a category,",
        "`nox -s verify -- --explain NAME` prints the text of a check. Only the listed",
        "requirements are checked: no check proves that a recipe builds.",
    ]
    for name, category in registry.CATEGORIES.items():
        lines += ["", f"## {name}", "", category.about]
        for check in registry.checks_of(name):
            lines += ["", f"### {check.id}", "", f"{check.title}.", ""]
            lines += [f"- Why: {check.why}", f"- Fix: {check.fix}."]
    return digest.seal("\n".join(lines) + "\n")
