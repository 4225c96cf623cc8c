"""Checks and findings, the files that checks read, and the outcome of a check."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct, structs

from build_pytorch.base import digest, files, paths
from build_pytorch.base.file_plan import Tree
from build_pytorch.base.process import Running
from build_pytorch.matrix.field_types import Kind
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.nix.source_text import without_comments


class Finding(Struct, frozen=True):
    """One place where a check is violated. Lines and columns count from 1.

    The runner adds `check`, `subject`, the recipe as `path`, and the fix of the check if `fix` is
    empty.
    """

    found: str
    expected: str
    line: int = 1
    column: int = 1
    path: str = ""
    fix: str = ""
    severity: Literal["error", "warning"] = "error"
    check: str = ""
    subject: str = ""
    lenient: bool = False
    """A recipe written by hand builds without it: there it is a warning."""


class CheckSkipped(Exception):  # noqa: N818 - it is an outcome, not an error
    """Raised by a check that cannot run; the text is the reason. Never counts as passed."""


class RecipeFile(Struct, dict=True, eq=False):
    """The path and the text of a recipe, generated or written by hand."""

    path: str
    text: str

    @functools.cached_property
    def code(self) -> str:
        """The text with comments blanked; lines and columns do not change."""
        return without_comments(self.text)

    def line_of(self, offset: int) -> int:
        """Return the line of an offset in text or code."""
        return self.text.count("\n", 0, offset) + 1

    def finding(self, offset: int, found: str, expected: str) -> Finding:
        """Return a finding at an offset in text or code."""
        column = offset - self.text.rfind("\n", 0, offset)
        found = " ".join(found.split())
        return Finding(found, expected, line=self.line_of(offset), column=column)


class Context:
    """The matrix and the files below a root that checks look at; `tree` has read some of them.

    `variants` is the selection, `is_whole` whether it holds all variants. With `pinned`, recipes
    are evaluated against the nixpkgs that they name instead of the model. `pages` returns the
    generated reference pages by path; None if there are none to compare with.
    """

    def __init__(  # noqa: PLR0913 - the options of a verification
        self,
        matrix: Matrix,
        root: Path,
        variants: Sequence[Variant] | None = None,
        *,
        pinned: bool = False,
        pages: Callable[[], Mapping[str, str]] | None = None,
        tree: Tree | None = None,
    ) -> None:
        self.matrix = matrix
        self.root = root
        self.tree = tree or Tree(root)
        self.pinned = pinned
        self.pages = pages
        self.variants = matrix.variants if variants is None else tuple(variants)
        self.by_path: dict[str, Package] = {variant.path: variant for variant in self.variants}
        self.companions = tuple(c for c in matrix.companions if c.variant.path in self.by_path)
        self.by_path |= {companion.path: companion for companion in self.companions}
        self.is_whole = len(self.variants) == len(matrix.variants)
        self.evaluating: Running | None = None
        """The run of Nix that evaluates the recipes, once it was started."""
        self.recipes: dict[str, RecipeFile] = {}
        self.unreadable: dict[str, str] = {}
        """The reason for each recipe that cannot be read."""
        for folder in matrix.folders:
            try:
                for path in files.walk_below(root, folder):
                    if path.endswith(".nix"):
                        self._read_recipe(path)
            except OSError as error:  # not a folder, or one that may not be read
                self.unreadable[folder] = str(error.strerror)
        for package in matrix.packages:
            if package.path not in self.recipes:
                self._read_recipe(package.path)  # a folder has no content to verify

    def _read_recipe(self, name: str) -> None:
        try:
            data = self.tree.read(name)
            if data is not None:
                self.recipes[name] = RecipeFile(name, data.decode("utf-8"))
        except UnicodeDecodeError as error:
            self.unreadable[name] = f"byte {error.start} is not UTF-8"
        except OSError as error:
            self.unreadable[name] = str(error.strerror)

    @functools.cached_property
    def present(self) -> list[tuple[Package, RecipeFile]]:
        """The selected variants, then their companions, whose recipe exists and can be read."""
        recipes = self.recipes
        return [(p, recipes[path]) for path, p in self.by_path.items() if path in recipes]

    @functools.cached_property
    def present_variants(self) -> list[tuple[Variant, RecipeFile]]:
        """The selected variants whose recipe exists and can be read."""
        return [(p, recipe) for p, recipe in self.present if isinstance(p, Variant)]

    def recipe_paths(self) -> tuple[str, ...]:
        """Return the paths of all recipe files. Raises CheckSkipped if there are none."""
        if not (self.recipes or self.unreadable):
            raise CheckSkipped("no recipe files here")
        return (*self.recipes, *self.unreadable)

    def matrix_finding(self, table: str, found: str, expected: str, fix: str = "") -> Finding:
        """Return a finding at a table of matrix.toml, such as `[cpu.avx2]`, or one above it."""
        while f"\n{table}" not in self.matrix.text and "." in table:  # its keys are dotted
            table = f"{table.rpartition('.')[0]}]"
        line = self.matrix.text.partition(f"\n{table}")[0].count("\n") + 2
        return Finding(found, expected, path=paths.MATRIX, line=line, fix=fix)


Test = Callable[..., Iterable[Finding]]


class Subjects(Struct, frozen=True, kw_only=True):
    """What a check looks at: names, each with the arguments of the test or a reason to skip it.

    `kind` limits a check to variants of one kind; `needs_all` excludes it from selections of
    variants, `where` from projects that have none of its subjects.
    """

    each: Callable[[Context], Iterable[tuple[str, tuple[Any, ...] | str]]]
    kind: Kind | None = None
    needs_all: bool = False
    where: Callable[[Context], bool] = lambda _: True


def _recipes(context: Context) -> Iterator[tuple[str, tuple[Variant, RecipeFile]]]:
    return ((recipe.path, (variant, recipe)) for variant, recipe in context.present_variants)


TREE: Final = Subjects(each=lambda context: [("tree", (context,))], needs_all=True)
"""All files together; the test sets the path of its findings."""
RECIPES: Final = Subjects(each=_recipes)
"""Each recipe with its variant."""
GPU_RECIPES: Final = Subjects(each=_recipes, kind="gpu")
CPU_RECIPES: Final = Subjects(each=_recipes, kind="cpu-only")


class CheckOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a check for each of its subjects (recipes, or the tree as one).

    Every subject is in exactly one of `passed`, `failed` and `not_run`; `reason` is why some
    were not run, or why there were none.
    """

    check: Check
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    reason: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def subjects(self) -> tuple[str, ...]:
        """All subjects, by their states."""
        return (*self.passed, *self.failed, *self.not_run)

    @property
    def state(self) -> Literal["passed", "failed", "warning", "skipped"]:
        """The worst state of a subject. A check without subjects was skipped."""
        severities = {finding.severity for finding in self.findings}
        if "error" in severities:
            return "failed"
        if "warning" in severities:
            return "warning"
        return "skipped" if self.not_run or not self.passed else "passed"


class Check(Struct, frozen=True, kw_only=True):
    """A requirement: a stable id, a title of one line, why it matters, how to fix a violation.

    `test` yields the findings of a subject. With `word`, a finding is placed at the first line of
    the recipe that holds the word.
    """

    id: str
    title: str
    why: str
    fix: str
    subjects: Subjects
    test: Test
    word: str = ""

    def applies(self, context: Context) -> bool:
        """Return whether the selected variants have subjects of the check."""
        kind = self.subjects.kind
        has_kind = kind is None or any(v.group.kind == kind for v in context.variants)
        is_enough = context.is_whole or not self.subjects.needs_all
        return has_kind and is_enough and self.subjects.where(context)

    def run(self, context: Context) -> CheckOutcome:
        """Run the test on every subject and complete its findings."""
        states: dict[str, list[str]] = {"passed": [], "failed": [], "not_run": []}
        reasons: list[str] = []
        findings: list[Finding] = []
        subject, kind = "", self.subjects.kind
        last: object = None
        own: list[Finding] = []
        try:
            for subject, given in self.subjects.each(context):
                package = context.by_path.get(subject) if kind else None
                if package and package.variant.group.kind != kind:
                    continue
                if isinstance(given, str):
                    states["not_run"].append(subject)
                    reasons.append(given)
                    continue
                if given is not last:  # subjects that are alike, one after the other, share theirs
                    last, own = given, list(self.test(*given))
                found = [self._completed(context, subject, each) for each in own]
                states["failed" if found else "passed"].append(subject)
                findings += found
        except CheckSkipped as reason:
            states["not_run"].append(subject)
            reasons.append(str(reason))
        if not any(states.values()):
            reasons.append("no such recipe to look at")
        return CheckOutcome(
            check=self,
            reason=", ".join(dict.fromkeys(reasons)),
            findings=tuple(findings),
            **{state: tuple(subjects) for state, subjects in states.items()},
        )

    def _completed(self, context: Context, subject: str, finding: Finding) -> Finding:
        """Return a finding with the fields that the runner adds."""
        package = context.by_path.get(subject)
        severity, line, fix = finding.severity, finding.line, finding.fix
        if package:
            recipe = context.recipes[subject]
            is_ours = digest.is_intact(recipe.text)
            if finding.lenient and severity == "error" and not is_ours:
                severity = "warning"
            if self.word:
                line = recipe.line_of(max(recipe.code.find(self.word), 0))
            command = f"invoke phase{package.phase.number}{'' if is_ours else ' --force'}"
            fix = fix or f"run `{command}`, or: {self.fix}"
        return structs.replace(
            finding,
            check=self.id,
            subject=subject,
            path=subject if package else finding.path,
            line=line,
            severity=severity,
            fix=fix or self.fix,
        )


class CheckList(list[Check]):
    """The checks of a module, with the subjects of those that name no others."""

    def __init__(self, subjects: Subjects) -> None:
        super().__init__()
        self.subjects = subjects

    def add(
        self, title: str, subjects: Subjects | None = None, /, *, name: str = "", **texts: str
    ) -> Callable[[Test], Test]:
        """Return a decorator that adds the check of a test. `texts` are fields of Check.

        Unless given, the id is the name of the test, such as eval-pin for `eval_pin`.
        """

        def add(test: Test) -> Test:
            id_ = name or test.__name__.replace("_", "-")
            own = subjects or self.subjects
            self.append(Check(id=id_, title=title, subjects=own, test=test, **texts))
            return test

        return add
