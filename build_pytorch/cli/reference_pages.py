"""The generated reference pages that describe the program itself: checks and commands."""

from __future__ import annotations

from build_pytorch.base import paths


def reference_pages() -> dict[str, str]:
    """Return the text of each reference page by its path below the root."""
    from build_pytorch.verify import checks_page

    return {paths.CHECKS_DOC: checks_page.page()}
