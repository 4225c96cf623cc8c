"""`invoke verify --against REF`: print what a change rebuilds, and why."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from build_pytorch.base import files
from build_pytorch.base.console import Screen, counted, grouped, print_json, some, visible
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import VerifyOptions
from build_pytorch.generate.recipes import as_markdown
from build_pytorch.matrix import matrix_reader
from build_pytorch.results.package_selection import chosen_packages
from build_pytorch.verify import rebuilds
from build_pytorch.verify.rebuilds import PackageChange, Rebuilds

_SUMMARY = "GITHUB_STEP_SUMMARY"
_MOST = 5  #: groups of packages with the same causes
_OF_CHECKS = ("only", "strict", "pinned", "github")
"""Options that say how recipes are checked, which a comparison does not do."""


def run(options: VerifyOptions) -> int:
    """Compare the recipes with those of a commit and print the causes. Return the exit code.

    Raises BuildPytorchError for bad input and for a recipe that cannot be evaluated.
    """
    if not options.against:
        raise BuildPytorchError("--expect: needs --against REF")
    if options.expect not in {"", "none"}:
        raise BuildPytorchError(f'--expect "{options.expect}": allowed: none')
    if given := next((name for name in _OF_CHECKS if getattr(options, name)), ""):
        raise BuildPytorchError(f"--{given}: not with --against, which runs no checks")
    matrix = matrix_reader.load(options.root)
    variants = {p.variant.path for p in chosen_packages(matrix, options.selection)}
    chosen = [package for package in matrix.packages if package.variant.path in variants]
    with rebuilds.checkout_of(options.root, options.against) as before:
        found = rebuilds.compare(options.against, before, (matrix, options.root), chosen)
    if options.json:
        print_json(found, sys.stdout)
    else:
        print_rebuilds(found, Screen(sys.stdout), verbose=options.verbose)
    if path := os.environ.get(_SUMMARY):
        _append(Path(path), markdown(found))
    return EXIT_FINDINGS if options.expect and not found.is_none else EXIT_OK


def _append(path: Path, text: str) -> None:
    with files.write_errors(path):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = files.open_below(path.parent, path.name, flags)
        try:
            os.write(descriptor, visible(text).encode())
        finally:
            os.close(descriptor)


def print_rebuilds(found: Rebuilds, screen: Screen, *, verbose: bool = False) -> None:
    """Print the packages by cause, at most _MOST causes unless verbose, then the other states."""
    groups = _groups(found.of("rebuilt"))
    for causes, names in list(groups.items())[: None if verbose else _MOST]:
        screen.line(screen.paint(f"{counted(len(names), 'package')} rebuilt", "bold"))
        for cause in causes:
            screen.fold("  because ", visible(cause), indent=10)
        screen.fold("  ", some(names), indent=2)
    if not verbose and len(groups) > _MOST:
        rest = sum(map(len, list(groups.values())[_MOST:]))
        screen.line(f"{counted(rest, 'package')} rebuilt for other causes; -v lists them")
    for line in _rest(found):
        screen.fold("", line)


def _groups(changes: list[PackageChange]) -> dict[tuple[str, ...], list[str]]:
    groups = grouped((change.causes, change.package) for change in changes)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def _rest(found: Rebuilds) -> list[str]:
    """Return a line for each other state; the first one if nothing is built."""
    since = f" since {visible(found.against)}" if found.against else ""
    lines = [f"Nothing is rebuilt{since}."] if found.is_none else []
    for state, what in (
        ("follows", "rebuilt because their PyTorch is"),
        ("new", "new"),
        ("removed", "removed"),
        ("text only", "with another text; nothing of them is rebuilt"),
        ("unchanged", "unchanged"),
    ):
        names = [change.package for change in found.of(state)]  # type: ignore[arg-type]
        if names:
            which = "" if state == "unchanged" else f": {some(names)}"
            lines.append(f"{counted(len(names), 'package')} {what}{which}")
    return lines


def markdown(found: Rebuilds) -> str:
    """Return the same as a section of a page, with all packages behind each cause."""
    lines = [f"## What is rebuilt since {as_markdown(found.against)}", ""]
    for causes, names in _groups(found.of("rebuilt")).items():
        lines.append(f"- **{counted(len(names), 'package')}** because")
        lines += [f"  - {as_markdown(cause)}" for cause in causes]
        lines.append(f"  - packages: {as_markdown(' '.join(names))}")
    return "\n".join([*lines, *(f"- {as_markdown(line)}" for line in _rest(found))]) + "\n"
