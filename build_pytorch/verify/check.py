"""What a check is, what it looks at, and what comes of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from build_pytorch.base import files, process
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.nix.comments import without_comments

_LARGEST: Final = 1 << 20
"""Bytes. Ours have seven thousand."""

Severity = Literal["error", "warning"]


class Problem(Struct, frozen=True, kw_only=True):
    """One place where a rule is broken. `path` is filled in for problems of a recipe.

    Lines and columns count from 1.
    """

    found: str
    expected: str
    line: int = 1
    column: int = 1
    path: str = ""
    fix: str = ""
    severity: Severity = "error"


class CheckSkipped(Exception):  # noqa: N818 - it is an outcome, not an error
    """Raised by a check that has nothing to look at; its text says why. Never counts as passed."""


class Recipe:
    """A recipe file as the checks read it, whoever wrote it."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @functools.cached_property
    def code(self) -> str:
        """The text with Nix comments blanked: what is commented out does not count as there."""
        return without_comments(self.text)

    def line_of(self, offset: int) -> int:
        """The line of an offset in text or code."""
        return self.text.count("\n", 0, offset) + 1


class Context:
    """What the checks look at: the matrix and the files below a root, each read once.

    `variants` are those asked for, `is_whole` says whether these are all; with `pinned`, recipes
    are evaluated against the nixpkgs that they name instead of the model. `pages` returns the
    generated reference pages by path; None if the caller has none to compare with.
    """

    def __init__(
        self,
        matrix: Matrix,
        root: Path,
        variants: Sequence[Variant] | None = None,
        *,
        pinned: bool = False,
        pages: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.matrix = matrix
        self.root = root
        self.pinned = pinned
        self.pages = pages
        self.variants = matrix.variants if variants is None else tuple(variants)
        self.is_whole = len(self.variants) == len(matrix.variants)
        self.recipes: dict[str, Recipe] = {}
        self.unreadable: dict[str, str] = {}
        self.running: dict[str, process.Running] = {}
        """Programs that categories started ahead, so that they work while others look."""
        for folder in dict.fromkeys(r.folder for r in matrix.releases.values()):
            for path in sorted((root / folder).rglob("*.nix")):
                self._read_recipe(path)

    def _read_recipe(self, path: Path) -> None:
        name = path.relative_to(self.root).as_posix()
        try:
            if path.stat().st_size > _LARGEST:
                self.unreadable[name] = f"larger than {_LARGEST >> 20} MiB"
                return
            self.recipes[name] = Recipe(name, files.read_regular_file(path).decode("utf-8"))
        except UnicodeDecodeError as error:
            self.unreadable[name] = f"byte {error.start} is not UTF-8"
        except OSError as error:
            self.unreadable[name] = str(error.strerror)

    def present(self) -> Iterator[tuple[Variant, Recipe]]:
        """The variants asked for whose recipe is there and readable."""
        for variant in self.variants:
            if recipe := self.recipes.get(variant.path):
                yield variant, recipe

    def skip_without_recipes(self) -> None:
        """Raise CheckSkipped where there is no recipe file: nothing found in nothing is no proof."""
        if not (self.recipes or self.unreadable):
            raise CheckSkipped("no recipe files here")

    def read(self, path: str) -> str | None:
        """The text of another file below the root, or None where there is none to read."""
        try:
            return files.read_regular_file(self.root / path).decode("utf-8", errors="replace")
        except OSError:
            return None


class Check(Struct, frozen=True, kw_only=True):
    """A rule with everything a person needs who broke it.

    `source` names the document that asks for the rule. Subclasses say what it looks at.
    """

    id: str
    title: str
    why: str
    fix: str
    source: str

    @property
    def needs_whole_tree(self) -> bool:
        """Whether the rule is about the files together, so that a selection cannot keep it."""
        return False

    @property
    def waits(self) -> bool:
        """Whether it waits for another program, so that others had better look meanwhile."""
        return False

    def applies(self, context: Context) -> bool:
        """Whether the variants asked for have anything that the rule is about."""
        del context
        return True

    def run(self, context: Context) -> CheckOutcome:
        """Look, and say what was found."""
        raise NotImplementedError


class Finding(Struct, frozen=True):
    """A problem together with the check that found it."""

    check: Check
    problem: Problem

    @property
    def fix(self) -> str:
        """How to fix this one, or anything that breaks the rule."""
        return self.problem.fix or self.check.fix


class CheckOutcome(Struct, frozen=True, kw_only=True):
    """What came of one check, for each of its subjects (recipes, or the tree as one).

    Every subject is in exactly one of `passed`, `failed` and `not_run`; `reason` says why some
    were not run, or why there were none at all.
    """

    check: Check
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    reason: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def state(self) -> Literal["passed", "failed", "warning", "skipped"]:
        """The worst that happened. A check that proved nothing was skipped."""
        if any(finding.problem.severity == "error" for finding in self.findings):
            return "failed"
        if self.findings:
            return "warning"
        return "skipped" if self.not_run or not self.passed else "passed"


class TreeCheck(Check, frozen=True, kw_only=True):
    """A rule about the files together. Its problems carry their own paths."""

    test: Callable[[Context], Iterable[Problem]]

    @property
    def needs_whole_tree(self) -> bool:
        """Always."""
        return True

    def run(self, context: Context) -> CheckOutcome:
        """Look at the tree once."""
        try:
            problems = list(self.test(context))
        except CheckSkipped as reason:
            return CheckOutcome(check=self, not_run=("tree",), reason=str(reason))
        if not problems:
            return CheckOutcome(check=self, passed=("tree",))
        findings = tuple(Finding(self, problem) for problem in problems)
        return CheckOutcome(check=self, failed=("tree",), findings=findings)


class RecipeCheck(Check, frozen=True, kw_only=True):
    """A rule that each recipe (of one kind, or of all) keeps on its own."""

    test: Callable[[Variant, Recipe], Iterable[Problem]]
    kind: Literal["gpu", "cpu-only"] | None = None

    def applies(self, context: Context) -> bool:
        """Where there are variants of the kind."""
        return self.kind is None or any(v.group.kind == self.kind for v in context.variants)

    def run(self, context: Context) -> CheckOutcome:
        """Look at every recipe of the kind."""
        tested = {
            recipe.path: (variant, self.test(variant, recipe))
            for variant, recipe in context.present()
            if self.kind in {None, variant.group.kind}
        }
        return outcome_by_recipe(self, tested)


def outcome_by_recipe(
    check: Check,
    tested: Mapping[str, tuple[Variant, Iterable[Problem]]],
    not_run: Iterable[str] = (),
    reason: str = "no such recipe to look at",
) -> CheckOutcome:
    """The outcome of a check from the problems that it has with each recipe."""
    passed: list[str] = []
    failed: list[str] = []
    findings: list[Finding] = []
    for path, (variant, problems) in tested.items():
        before = len(findings)
        for problem in problems:
            fix = problem.fix or f"run `invoke phase{variant.phase.number}`, or: {check.fix}"
            findings.append(
                Finding(
                    check,
                    Problem(
                        path=path,
                        line=problem.line,
                        column=problem.column,
                        found=problem.found,
                        expected=problem.expected,
                        fix=fix,
                        severity=problem.severity,
                    ),
                )
            )
        (failed if len(findings) > before else passed).append(path)
    skipped = tuple(not_run)
    return CheckOutcome(
        check=check,
        passed=tuple(passed),
        failed=tuple(failed),
        not_run=skipped,
        reason=reason if skipped or not tested else "",
        findings=tuple(findings),
    )
