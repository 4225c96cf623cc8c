"""The check that recipes are valid Nix, by `nix-instantiate --parse`; skipped without Nix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from build_pytorch.nix import nix_evaluation
from build_pytorch.nix.nix_evaluation import NixSyntaxError
from build_pytorch.verify import recipe_evaluation
from build_pytorch.verify.check import CheckList, Context, Finding, Subjects


def _errors(context: Context) -> dict[str, NixSyntaxError | None]:
    """Return the first error that Nix reports for each recipe, or None; some may be absent."""
    files = {recipe.path: f"{context.root}/{recipe.path}" for _, recipe in context.present}
    errors: dict[str, NixSyntaxError | None] = {}
    if context.evaluating:  # a recipe that evaluates is valid; only the others are parsed
        results = recipe_evaluation.evaluated(context).results
        errors = {path: None for path in files if path in results and results[path].ok}
    if rest := {file: path for path, file in files.items() if path not in errors}:
        found = nix_evaluation.syntax_errors(list(rest))
        errors |= {rest[file]: error for file, error in found.items()}
    return errors


def _parsed(context: Context) -> Iterator[tuple[str, tuple[str, NixSyntaxError | None] | str]]:
    errors: dict[str, NixSyntaxError | None] = {}
    reason = "Nix is not installed"
    if nix_evaluation.is_installed():
        errors, reason = _errors(context), "not parsed after 20 errors, or as Nix failed"
    for _, recipe in context.present:
        path = recipe.path
        yield path, (f"{context.root}/", errors[path]) if path in errors else reason


CHECKS: Final = CheckList(Subjects(each=_parsed))


@CHECKS.add(
    "Every recipe is valid Nix",
    why="A missing brace or an unbound name stops `flox build` before it begins.",
    fix="correct the line",
)
def nix_syntax(root: str, error: NixSyntaxError | None) -> Iterator[Finding]:
    if error:
        found = error.message.replace(root, "")
        yield Finding(found, "valid Nix", line=error.line, column=error.column)
