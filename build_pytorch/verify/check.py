"""Checks as checks.toml has them, their findings and outcomes, and the reference page of all."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from build_pytorch.base import digest
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import Package

State = Literal["passed", "failed", "warning", "skipped"]


class Finding(Struct, frozen=True, kw_only=True):
    """One place where a check is violated. Lines count from 1.

    The verification adds the check, and its fix if there is none.
    """

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
    subjects: Literal["packages", "variants", "gpu", "companions", "selection", "tree"] = "packages"
    facts: tuple[str, ...] = ()
    word: str = ""
    file: str = ""
    id: str = ""

    def looks_at(self, package: Package) -> bool:
        """Return whether the recipe of a package is one of the subjects."""
        if package.companion:
            return self.subjects in {"packages", "companions"}
        return self.subjects in {"packages", "variants", package.variant.kind}


class CheckOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a check; `reason` says what it did not look at."""

    id: str
    title: str
    state: State
    reason: str


@functools.cache
def _table() -> tuple[dict[str, str], dict[str, Check]]:
    """Return the categories with what they look at, and all checks by id."""
    table = tomllib.loads(Path(__file__).with_name("checks.toml").read_text("utf-8"))
    checks = table["check"]
    return table["category"], {i: msgspec.convert({"id": i, **checks[i]}, Check) for i in checks}


def categories() -> dict[str, str]:
    """Return the categories in the order of reports, and what each looks at."""
    return _table()[0]


def chosen(names: Collection[str] = ()) -> list[Check]:
    """Return the checks of these ids and categories, or all, in the order of reports.

    Raises BuildPytorchError for an unknown name.
    """
    checks = _table()[1]
    known = [*checks, *categories()]
    for name in names:
        if name not in known:
            hint = near_miss(name, known) or "; docs/reference/checks.md has all checks"
            raise BuildPytorchError(f'no check or category "{name}"{hint}')
    return [c for c in checks.values() if not names or {c.id, c.category} & {*names}]


@functools.cache
def check_of(fact: str) -> Check:
    """Return the check of a fact: the one that names it, or the first part of its name."""
    checks = [check for check in _table()[1].values() if check.facts]
    prefix = f"{fact.partition('.')[0]}."
    return next(c for name in (fact, prefix) for c in checks if name in c.facts)


_PAGE: Final = """\
# The checks

<!-- Generated from build_pytorch/verify/checks.toml by `invoke phase5`.
     Digest of this file, with zeros in place of it: {placeholder} -->

`invoke verify --only NAME` runs a check or a category, `invoke verify --explain NAME` prints
why it matters and how to fix a finding. No check shows that a recipe builds.
"""


def reference_page() -> str:
    """Return the reference page of all checks, with its digest."""
    lines = [_PAGE.format(placeholder=digest.PLACEHOLDER)]
    for category, about in categories().items():
        rows = [f"- `{check.id}`: {check.title}" for check in chosen([category])]
        lines += [f"## {category}\n\n{about}\n", *rows, ""]
    return digest.seal("\n".join(lines).rstrip() + "\n")
