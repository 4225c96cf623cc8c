"""Generated recipes outside of the folders of a matrix: they are of folders that it named before.

No list of earlier folders is kept. A recipe is its own record: its header has a digest of its
text, and its first line the name that it was generated for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from build_pytorch.base import digest, files, git, paths


def recipes_elsewhere(root: Path, folders: Sequence[str]) -> Iterator[str]:
    """Yield the path of each generated recipe, edited or not, that is in none of the folders.

    Only files in folders `.flox/pkgs` that Git tracks or would add count, because Flox sees no
    others. So there are none without Git. Checkouts inside this one, which have a matrix.toml of
    their own, are left out.
    """
    inside = tuple(f"{folder}/" for folder in folders)
    for path in git.files_named(root, ":(glob)**/.flox/pkgs/*.nix"):
        first, *_ = parts = PurePath(path).parts
        if path.startswith(inside) or first in paths.OWN_FOLDERS or _is_of_another(root, parts):
            continue
        with contextlib.suppress(OSError):
            text = files.read_below(root, path, files.LARGEST_TEXT).decode(errors="replace")
            is_named_so = text.partition("\n")[0] == f"# {PurePath(path).stem}"
            if is_named_so and digest.has_digest(text):
                yield path


def _is_of_another(root: Path, parts: Sequence[str]) -> bool:
    below = (root.joinpath(*parts[:number]) for number in range(1, len(parts)))
    return any((folder / paths.MATRIX).exists() for folder in below)
