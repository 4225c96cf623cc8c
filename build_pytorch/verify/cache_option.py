"""What the option `cache` of a release adds to its recipes, compared with nixpkgs."""

from __future__ import annotations

import re
from typing import Final

from build_pytorch.base import files, paths

ADDED: Final = ("NIX_OUTPATH_USED_AS_RANDOM_SEED", "preBuild", "postBuild")
"""The attributes that the option changes."""
_SEED: Final = "/build-pytorch"


def without_cache(name: str, value: str, cache: str) -> str:
    """Return an attribute of a recipe without what the option adds.

    `cache` is the folder. A value that does not have exactly that is returned as it is.
    """
    if name == "NIX_OUTPATH_USED_AS_RANDOM_SEED":
        return value.replace(_SEED, "None", 1) if value == _SEED else value
    if name == "postBuild":
        return re.sub(r"\ncompilerCacheCounts\n\Z", "", value) or "None"
    if name == "preBuild":
        functions = files.read_named(paths.COMPILER_CACHE).decode()
        folder = re.escape(cache)
        block = (
            rf'if \[ -w {folder} \] && \[ -z "\$\{{CCACHE_REMOTE_STORAGE-\}}" \]; then\n'
            rf"  export CCACHE_DIR={folder} CCACHE_UMASK=007\n"
            r"  compilerCache \S+/bin/ccache\nfi\n"
        )
        found = re.fullmatch(
            f"{block}(.*)\ncompilerCacheForget\n", value[len(functions) :], re.DOTALL
        )
        if found and value.startswith(functions):
            return found[1]
    return value
