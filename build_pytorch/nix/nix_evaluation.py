"""Evaluation of recipes by Nix: what recipes share, and what Nix says when it fails."""

from __future__ import annotations

import functools
import re
from typing import Final

NO_NETWORK: Final = re.compile(
    r"unable to download|[Cc]ould not resolve|[Cc]ouldn't resolve|[Nn]etwork is unreachable"
)
"""How Nix says that what an evaluation needs cannot be had."""


def shared_import(text: str) -> str | None:
    """The default of the argument nixpkgs_pinned, or None where it means another elsewhere."""
    head = re.search(r"(?ms)^\{.*?^\}:", text)
    if head is None or "nixpkgs_pinned" not in head[0]:
        return None
    expression = _default(head[0])
    is_relative = expression is not None and re.search(r"(?<![\w.])\.{1,2}/", expression)
    return None if is_relative else expression


@functools.cache
def _default(head: str) -> str | None:
    from build_pytorch.nix.syntax_tree import default_of

    return default_of(head, "nixpkgs_pinned")


def message_of(stderr: str) -> str:
    """The error itself, without the places and excerpts that follow it."""
    errors = re.findall(r"(?m)^error: ?(.*(?:\n(?!\s*$| *at |\s*\d*\|).+)*)", stderr)
    text = errors[-1] if errors else stderr.strip().split("\n")[-1]
    text = re.sub(r",? at:? /\S+:\d+:\d+.*", "", " ".join(text.split()))
    return text or "Nix says nothing"
