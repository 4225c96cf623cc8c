"""The command behind `nox -s verify -- ...` and `invoke verify`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from build_pytorch import checks, matrix, paths
from build_pytorch.console import Screen, print_json


def main(argv: Sequence[str]) -> int:
    """Parse the arguments after `--` and verify. Exits with 2 where they are wrong."""
    parser = argparse.ArgumentParser(prog="nox -s verify --", description="Verify the recipes.")
    parser.add_argument(
        "--root", type=Path, default=paths.PROJECT, help="another checkout (default: this one)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(argv)
    return run(options.root, as_json=options.json)


def run(root: Path, *, as_json: bool) -> int:
    """Verify the recipes and docs below a root, print the result, return the exit code."""
    result = checks.verify(matrix.load(), paths.checked_root(root))
    if as_json:
        print_json(result.as_dict(), sys.stdout)
    else:
        result.print(Screen(sys.stdout))
    return result.exit_code
