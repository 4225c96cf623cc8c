"""Checks as checks.toml has them, what they look at, their findings, and their reference page."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base import digest, files
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.generate.text_plan import Tree
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.nix.quoting import without_comments

_NOT_COMPARED: Final = ("attr.postPatch", "attr.preConfigure", "attr.src", "path.", "drvPath")
"""Texts of hooks, which run; the source, which has facts of its own; what other facts use."""
State = Literal["passed", "failed", "warning", "skipped"]


class Finding(Struct, frozen=True, kw_only=True):
    """One place where a check is violated. Lines count from 1."""

    found: str
    expected: str
    path: str
    line: int = 1
    fix: str = ""
    severity: Literal["error", "warning"] = "error"
    check: str = ""


class CheckSkipped(Exception):  # noqa: N818 - it is an outcome, not an error
    """Raised by a check that cannot run; the text is the reason. Never counts as passed."""


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A requirement; checks.toml explains the fields."""

    category: str
    title: str
    why: str
    fix: str
    needs: Literal["", "gpu", "companions", "all"] = ""
    facts: tuple[str, ...] = ()
    word: str = ""
    file: str = ""
    by_hand: dict[str, str] = {}


class CheckOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a check; `reason` says what it did not look at."""

    id: str
    title: str
    state: State
    reason: str


class Checks(Struct, frozen=True):
    """What checks.toml contains: what each category looks at, and the checks by id."""

    category: dict[str, str]
    check: dict[str, Check]


@functools.cache
def load() -> Checks:
    """Return the categories and checks in the order of reports."""
    return msgspec.toml.decode(Path(__file__).with_name("checks.toml").read_bytes(), type=Checks)


def chosen(names: Collection[str] = ()) -> dict[str, Check]:
    """Return the checks of these ids and categories by id, or all.

    Raises BuildPytorchError for an unknown name.
    """
    table = load()
    known = [*table.check, *table.category]
    for name in names:
        if name not in known:
            hint = near_miss(name, known) or "; docs/reference/checks.md has all checks"
            raise BuildPytorchError(f'no check or category "{name}"{hint}')
    checks = table.check.items()
    return {id_: it for id_, it in checks if not names or {id_, it.category} & {*names}}


@functools.cache
def check_of(fact: str) -> str:
    """Return the id of the check that names a fact, or the first part of its name; "" for none."""
    if fact.startswith(_NOT_COMPARED):
        return ""
    prefix = f"{fact.partition('.')[0]}."
    checks = load().check
    return next(id_ for name in (fact, prefix) for id_ in checks if name in checks[id_].facts)


class RecipeFile(Struct, dict=True, eq=False):
    """The path and the text of a recipe, generated or written by hand."""

    path: str
    text: str

    @functools.cached_property
    def code(self) -> str:
        """The text with comments blanked; lines do not change."""
        return without_comments(self.text)

    def line_of(self, word: str) -> int:
        """Return the first line with a word, outside of comments if there is one; else 1."""
        offset = next((n for text in (self.code, self.text) if (n := text.find(word)) >= 0), 0)
        return 1 + self.text.count("\n", 0, offset)


class Context:
    """The matrix and the files below a root that checks look at.

    `variants` is the selection, `is_whole` whether it holds all variants. With `pinned`, recipes
    are evaluated against the nixpkgs that they name instead of the model. `pages`: the reference
    pages to compare with, by path, or None.
    """

    def __init__(
        self,
        matrix: Matrix,
        root: Path,
        variants: Sequence[Variant] | None = None,
        *,
        pinned: bool = False,
        pages: Mapping[str, str] | None = None,
    ) -> None:
        self.matrix = matrix
        self.root = root
        self.tree = Tree(root)
        self.pinned = pinned
        self.pages = pages
        self.variants = matrix.variants if variants is None else tuple(variants)
        self.is_whole = len(self.variants) == len(matrix.variants)
        chosen = {variant.path for variant in self.variants}
        self.companions = [c for c in matrix.companions if c.variant.path in chosen]
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
            except (OSError, UnicodeDecodeError) as error:
                self.unreadable[path] = getattr(error, "strerror", None) or str(error)
        selected: list[Package] = [*self.variants, *self.companions]
        self.present = [(p, self.recipes[p.path]) for p in selected if p.path in self.recipes]
        """The selected variants, then their companions, whose recipe can be read."""

    def has(self, subjects: str) -> bool:
        """Return whether the selection has what a check needs."""
        has_gpu = any(variant.gpu for variant in self.variants)
        found = {"all": self.is_whole, "companions": bool(self.companions), "gpu": has_gpu}
        return found.get(subjects, True)


_PAGE: Final = """\
# The checks

<!-- Generated by `invoke phase5` from build_pytorch/verify/checks.toml; {placeholder} -->

`invoke verify --only NAME` runs a check or a category, `invoke verify --explain NAME` prints
why it matters and how to fix a finding. No check shows that a recipe builds.
"""


def reference_page() -> str:
    """Return the reference page of all checks, with its digest."""
    lines = [_PAGE.format(placeholder=digest.PLACEHOLDER)]
    for category, about in load().category.items():
        rows = [f"- `{id_}`: {check.title}" for id_, check in chosen([category]).items()]
        lines += [f"## {category}\n\n{about}\n", *rows, ""]
    return digest.seal("\n".join(lines).rstrip() + "\n")
