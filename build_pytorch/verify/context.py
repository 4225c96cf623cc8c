"""What checks look at: the matrix, and the recipes below a root."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from build_pytorch.base import digest, files
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.nix.quoting import without_comments
from build_pytorch.verify.check import Check

Pages = Callable[[], Mapping[str, str]]
"""Returns generated pages by path."""


class RecipeFile(Struct, dict=True, eq=False):
    """The path and the text of a recipe, generated or written by hand."""

    path: str
    text: str

    @functools.cached_property
    def code(self) -> str:
        """The text with comments blanked; lines do not change."""
        return without_comments(self.text)

    @functools.cached_property
    def is_ours(self) -> bool:
        """Whether the recipe is as it was generated."""
        return digest.is_intact(self.text) is True

    def line_of(self, word: str) -> int:
        """Return the first line with a word, outside of comments if there is one; else 1."""
        offset = next((n for text in (self.code, self.text) if (n := text.find(word)) >= 0), 0)
        return 1 + self.text.count("\n", 0, offset)


class Context:
    """The matrix and the files below a root that checks look at.

    `variants` is the selection, `is_whole` whether it holds all variants. With `pinned`, recipes
    are evaluated against the nixpkgs that they name instead of the model. `pages`: the reference
    pages to compare with, or None.
    """

    def __init__(
        self,
        matrix: Matrix,
        root: Path,
        variants: Sequence[Variant] | None = None,
        *,
        pinned: bool = False,
        pages: Pages | None = None,
    ) -> None:
        self.matrix = matrix
        self.root = root
        self.tree = Tree(root)
        self.pinned = pinned
        self.pages = pages
        self.variants = matrix.variants if variants is None else tuple(variants)
        self.is_whole = len(self.variants) == len(matrix.variants)
        self.by_path: dict[str, Package] = {variant.path: variant for variant in self.variants}
        self.companions = tuple(c for c in matrix.companions if c.variant.path in self.by_path)
        self.by_path |= {companion.path: companion for companion in self.companions}
        self.recipes: dict[str, RecipeFile] = {}
        self.unreadable: dict[str, str] = {}
        """The reason for each recipe that cannot be read."""
        names = [package.path for package in matrix.packages]
        for folder in matrix.folders:
            names += [p for p in files.walk_below(root, folder) if p.endswith(".nix")]
        for path in dict.fromkeys(names):
            try:
                if (data := self.tree.read(path)) is not None:
                    self.recipes[path] = RecipeFile(path, data.decode("utf-8"))
            except UnicodeDecodeError as error:
                self.unreadable[path] = f"byte {error.start} is not UTF-8"
            except OSError as error:
                self.unreadable[path] = str(error.strerror)
        self.present = [(p, self.recipes[q]) for q, p in self.by_path.items() if q in self.recipes]
        """The selected variants, then their companions, whose recipe can be read."""

    def has_subjects(self, check: Check) -> bool:
        """Return whether the matrix has what a check looks at, and all of it is selected."""
        if check.subjects == "tree":
            return self.is_whole
        return check.subjects == "selection" or any(map(check.looks_at, self.by_path.values()))

    def subjects(self, check: Check) -> list[tuple[Package, RecipeFile]]:
        """Return the recipes that a check looks at."""
        return [(package, recipe) for package, recipe in self.present if check.looks_at(package)]
