"""The command behind `nox -s verify -- ...` and `invoke verify`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from build_pytorch.base import paths
from build_pytorch.base.console import Screen, print_json
from build_pytorch.base.errors import EXIT_OK, BuildPytorchError
from build_pytorch.cli import cli_values
from build_pytorch.cli.reference_pages import reference_pages
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.selection import select
from build_pytorch.verify import verification

HELP: Final = {
    "variants": "which variants, as patterns (sm120-* cpu-avx2); default: all",
    "root": "another checkout to verify, with this matrix.toml",
    "only": "run this check only; may be given again",
    "pinned": "evaluate against the real pinned nixpkgs (network or a store that has it; minutes)",
    "strict": "fail on warnings and on checks that were skipped, too (CI)",
    "json": "print the result as JSON",
    "sarif": "write the findings to this file as SARIF 2.1.0",
    "junit": "write the checks to this file as JUnit XML",
    "github": "print GitHub annotations (the default inside GitHub Actions)",
    "list": "list the checks",
    "explain": "say what a check is for and how to fix what it finds",
}


def main(argv: Sequence[str]) -> int:
    """Parse the arguments after `--` and verify. Exits with 2 where they are wrong."""
    parser = argparse.ArgumentParser(prog="nox -s verify --", description="Verify the recipes.")
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=HELP["variants"])
    parser.add_argument("--root", metavar="DIR", help=HELP["root"])
    for option, metavar in {"sarif": "FILE", "junit": "FILE"}.items():
        parser.add_argument(f"--{option}", type=Path, metavar=metavar, help=HELP[option])
    parser.add_argument("--only", action="append", default=[], metavar="CHECK", help=HELP["only"])
    parser.add_argument("--explain", metavar="CHECK", help=HELP["explain"])
    for option in ("strict", "pinned", "json", "github", "list"):
        parser.add_argument(f"--{option}", action="store_true", help=HELP[option])
    values = vars(parser.parse_args(argv))
    return run(**{**values, "root": cli_values.path("--root", values["root"])})


def run(  # noqa: PLR0913 - the options of the command
    *,
    variants: Sequence[str] = (),
    root: Path | None = None,
    only: Sequence[str] = (),
    strict: bool = False,
    pinned: bool = False,
    json: bool = False,
    sarif: Path | None = None,
    junit: Path | None = None,
    github: bool = False,
    list: bool = False,  # noqa: A002 - named as the option is
    explain: str | None = None,
) -> int:
    """Verify the recipes and docs below a root, print the result, return the exit code.

    Raises BuildPytorchError for bad input, and for a report that cannot be written.
    """
    screen = Screen(sys.stdout)
    if list or explain:
        _describe(screen, explain)
        return EXIT_OK
    fleet = matrix_reader.load()
    result = verification.verify(
        fleet,
        paths.checked_root(root or paths.PROJECT),
        variants=select(fleet, variants),
        only=only,
        strict=strict,
        pinned=pinned,
        pages=reference_pages,
    )
    # Not before the verification, during which Nix works: every import ahead of it delays it.
    from build_pytorch.verify.verify_reports import github_annotations, write_junit, write_sarif

    for path, write in ((sarif, write_sarif), (junit, write_junit)):
        if path:
            try:
                write(result, path)
            except OSError as error:
                raise BuildPytorchError(f"{path}: cannot be written: {error.strerror}") from None
    if json:
        print_json(result.as_dict(), sys.stdout)
    else:
        result.print(screen)
        if github or os.environ.get("GITHUB_ACTIONS") == "true":
            for line in github_annotations(result):
                screen.line(line)
    return result.exit_code


def _describe(screen: Screen, name: str | None) -> None:
    found = verification.chosen([name] if name else [])
    width = max(len(check.id) for check in found)
    for check in found:
        screen.line(f"{check.id:<{width}}  {check.title}")
    if name:
        for label, text in (
            ("Why", found[0].why),
            ("To fix it", found[0].fix),
            ("Asked for by", found[0].source),
        ):
            screen.line(f"  {label}: {text}")
