"""The command behind `nox -s prefetch -- ...` and `invoke prefetch`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from build_pytorch.cli import cli_values
from build_pytorch.sources import prefetch

HELP: Final = {
    "only": "this source only (torch, nixpkgs, magma_patch); may be given again",
    "check": "write nothing and exit 1 where a hash differs",
    "accept": "take the new hash of a rev that has another one than it had",
    "json": "print the result as JSON",
    "timeout": f"minutes that one download may take (default: {prefetch.TIMEOUT})",
    "from-log": "take the hashes from the log of a failed build (- reads standard input)",
}


def main(argv: Sequence[str]) -> int:
    """Parse the arguments after `--` and run. Exits with 2 where they are wrong."""
    parser = argparse.ArgumentParser(
        prog="nox -s prefetch --", description="Take the hashes of all sources."
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help=HELP["only"])
    for option in ("check", "accept", "json"):
        parser.add_argument(f"--{option}", action="store_true", help=HELP[option])
    parser.add_argument("--timeout", default=f"{prefetch.TIMEOUT}", help=HELP["timeout"])
    parser.add_argument("--from-log", type=Path, metavar="FILE", help=HELP["from-log"])
    values = vars(parser.parse_args(argv))
    values["timeout"] = cli_values.integer("--timeout", values["timeout"])
    return prefetch.run(prefetch.PrefetchOptions(**{**values, "only": tuple(values["only"])}))
