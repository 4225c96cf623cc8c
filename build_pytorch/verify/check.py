"""Checks and findings, the files that checks read, and the outcome of a check."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypedDict, Unpack

from msgspec import Struct, structs

from build_pytorch.base import files, process
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.nix.comments import without_comments

_LARGEST: Final = 1 << 20
"""Bytes. A generated recipe has seven thousand."""

TREE: Final = "tree"
"""The subject of a check of all files together."""

Severity = Literal["error", "warning"]


class Finding(Struct, frozen=True):
    """One place where a check is violated. Lines and columns count from 1.

    A check fills in what it found and what it expected. The runner adds the id of the check, the
    subject (a recipe, the tree), the recipe as `path`, and the fix of the check if `fix` is empty.
    """

    found: str
    expected: str
    line: int = 1
    column: int = 1
    path: str = ""
    fix: str = ""
    severity: Severity = "error"
    check: str = ""
    subject: str = ""


class CheckSkipped(Exception):  # noqa: N818 - it is an outcome, not an error
    """Raised by a check that cannot run; the text is the reason. Never counts as passed."""


class RecipeFile:
    """The path and the text of a recipe, generated or written by hand."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @functools.cached_property
    def code(self) -> str:
        """The text with comments blanked; lines and columns do not change."""
        return without_comments(self.text)

    def line_of(self, offset: int) -> int:
        """Return the line of an offset in text or code."""
        return self.text.count("\n", 0, offset) + 1

    def finding(
        self, offset: int, found: str, expected: str, severity: Severity = "error"
    ) -> Finding:
        """Return a finding at an offset in text or code."""
        return Finding(
            " ".join(found.split()),
            expected,
            line=self.line_of(offset),
            column=offset - self.text.rfind("\n", 0, offset),
            severity=severity,
        )


class Context:
    """The matrix and the files below a root that checks look at. Each file is read once.

    `variants` is the selection, `is_whole` whether it holds all variants. With `pinned`, recipes
    are evaluated against the nixpkgs that they name instead of the model. `pages` returns the
    generated reference pages by path; None if there are none to compare with.
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
        self.by_path = {variant.path: variant for variant in self.variants}
        self.is_whole = len(self.variants) == len(matrix.variants)
        self.recipes: dict[str, RecipeFile] = {}
        self.unreadable: dict[str, str] = {}
        """The reason for each recipe that cannot be read."""
        self.running: dict[str, process.Running] = {}
        """Programs that were started before the first check, by name."""
        for folder in dict.fromkeys(r.folder for r in matrix.releases.values()):
            for path in sorted((root / folder).rglob("*.nix")):
                self._read_recipe(path)

    def _read_recipe(self, path: Path) -> None:
        name = path.relative_to(self.root).as_posix()
        try:
            if path.stat().st_size > _LARGEST:
                self.unreadable[name] = f"larger than {_LARGEST >> 20} MiB"
                return
            self.recipes[name] = RecipeFile(name, files.read_regular_file(path).decode("utf-8"))
        except UnicodeDecodeError as error:
            self.unreadable[name] = f"byte {error.start} is not UTF-8"
        except OSError as error:
            self.unreadable[name] = str(error.strerror)

    def present(self) -> Iterator[tuple[Variant, RecipeFile]]:
        """Yield the selected variants whose recipe exists and can be read."""
        for variant in self.variants:
            if recipe := self.recipes.get(variant.path):
                yield variant, recipe

    def recipe_paths(self) -> tuple[str, ...]:
        """Return the paths of all recipe files. Raises CheckSkipped if there are none."""
        found = (*self.recipes, *self.unreadable)
        if not found:
            raise CheckSkipped("no recipe files here")
        return found

    def read(self, path: str) -> str | None:
        """Return the text of another file below the root, or None if it cannot be read."""
        try:
            return files.read_regular_file(self.root / path).decode("utf-8", errors="replace")
        except OSError:
            return None

    def matrix_finding(self, table: str, found: str, expected: str, fix: str = "") -> Finding:
        """Return a finding at a table of matrix.toml, such as `[cpu.avx2]`."""
        line = self.matrix.text.partition(f"\n{table}")[0].count("\n") + 2
        return Finding(found, expected, path=paths.MATRIX.name, line=line, fix=fix)


class Check(Struct, frozen=True, kw_only=True):
    """A requirement: a stable id, a title of one line, why it matters, how to fix a violation."""

    id: str
    title: str
    why: str
    fix: str

    def attach(self, finding: Finding, subject: str = "", path: str = "", fix: str = "") -> Finding:
        """Return a finding with this check, and with values for what it leaves empty."""
        return structs.replace(
            finding,
            check=self.id,
            subject=subject,
            path=finding.path or path,
            fix=finding.fix or fix or self.fix,
        )


class CheckOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a check for each of its subjects (recipes, or the tree as one).

    Every subject is in exactly one of `passed`, `failed` and `not_run`; `reason` says why some
    were not run, or why there were none.
    """

    check: Check
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    reason: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def state(self) -> Literal["passed", "failed", "warning", "skipped"]:
        """The worst state of a subject. A check without subjects was skipped."""
        if any(finding.severity == "error" for finding in self.findings):
            return "failed"
        if self.findings:
            return "warning"
        return "skipped" if self.not_run or not self.passed else "passed"


Findings = Iterable[Finding]
SubjectResults = Iterable[tuple[str, Findings | str]]
"""Subjects, each with its findings, or with the reason why it was not checked."""


class VerifyCheck(Check, frozen=True, kw_only=True):
    """A check of recipes or docs: a function that returns the findings of each subject.

    `kind` limits it to variants of one kind; `needs_all` excludes it from selections of variants.
    `prepare` starts other programs, so that they work while other checks run.
    """

    look: Callable[[Context], SubjectResults]
    kind: Literal["gpu", "cpu-only"] | None = None
    needs_all: bool = False
    prepare: Callable[[Context], None] | None = None

    def applies(self, context: Context) -> bool:
        """Return whether the check says anything about the selected variants."""
        has_kind = self.kind is None or any(v.group.kind == self.kind for v in context.variants)
        return has_kind and (context.is_whole or not self.needs_all)

    def run(self, context: Context) -> CheckOutcome:
        """Run the check and attach it to its findings."""
        passed, failed, not_run = [], [], []
        reasons: list[str] = []
        findings: list[Finding] = []
        try:
            for subject, found in self.look(context):
                if isinstance(found, str):
                    not_run.append(subject)
                    reasons.append(found)
                    continue
                path, fix = "", ""
                if variant := context.by_path.get(subject):
                    path, fix = subject, f"run `invoke phase{variant.phase.number}`, or: {self.fix}"
                own = [self.attach(finding, subject, path, fix) for finding in found]
                (failed if own else passed).append(subject)
                findings += own
        except CheckSkipped as reason:
            not_run.append(TREE)
            reasons.append(str(reason))
        if not (passed or failed or not_run):
            reasons.append("no such recipe to look at")
        return CheckOutcome(
            check=self,
            passed=tuple(passed),
            failed=tuple(failed),
            not_run=tuple(not_run),
            reason=", ".join(dict.fromkeys(reasons)),
            findings=tuple(findings),
        )


class About(TypedDict):
    """The texts of a check."""

    id: str
    title: str
    why: str
    fix: str


TreeTest = Callable[[Context], Findings]
RecipeTest = Callable[[Variant, RecipeFile], Findings]


class CheckList(list[VerifyCheck]):
    """The checks of a module. Its methods are decorators that add the check of a function."""

    def tree(self, **about: Unpack[About]) -> Callable[[TreeTest], TreeTest]:
        """Add a check of the files together; the function sets the path of its findings."""

        def add(test: TreeTest) -> TreeTest:
            def look(context: Context) -> SubjectResults:
                yield TREE, test(context)

            self.append(VerifyCheck(look=look, needs_all=True, **about))
            return test

        return add

    def recipe(
        self,
        *,
        kind: Literal["gpu", "cpu-only"] | None = None,
        unless: Callable[[RecipeFile], str] = lambda _: "",
        **about: Unpack[About],
    ) -> Callable[[RecipeTest], RecipeTest]:
        """Add a check of each recipe of a kind; `unless` returns a reason to skip a recipe."""

        def add(test: RecipeTest) -> RecipeTest:
            def look(context: Context) -> SubjectResults:
                for variant, recipe in context.present():
                    if kind in {None, variant.group.kind}:
                        yield recipe.path, unless(recipe) or test(variant, recipe)

            self.append(VerifyCheck(look=look, kind=kind, **about))
            return test

        return add
