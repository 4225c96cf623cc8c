"""Run every module of this folder that has `run(seed, count)`, and print one table.

`run` returns how often what happened. It raises AssertionError for a fault that it recognises, and
lets any other exception pass: that is a traceback which a user would have seen.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent
USUAL = 1000
"""Cases of a module that does not name a number as COUNT."""
FAULTS = ("tracebacks", "lost", "without a line")
"""Counts that must be 0; a module may return them as well."""


def names() -> list[str]:
    """Return the modules that have `run`."""
    return [
        path.stem for path in sorted(FOLDER.glob("[!_]*.py")) if "\ndef run(" in path.read_text()
    ]


def main() -> int:
    """Print the table. Return 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="nox -s fuzz --", description="Try hostile inputs.")
    parser.add_argument("names", nargs="*", metavar="WHAT", help=f"of {', '.join(names())}")
    parser.add_argument("--seed", type=int, default=0, help="the same seed draws the same inputs")
    parser.add_argument("--count", type=int, default=0, help="number of inputs of each module")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names()):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    sys.path.insert(0, str(FOLDER.parent))
    print(f"{'what':<44}{'count':>9}{'tracebacks':>12}{'lost':>6}{'without a line':>16}")
    failed = 0
    for name in options.names or names():
        module = import_module(f"fuzz.{name}")
        start, counts, faults = time.monotonic(), {}, dict.fromkeys(FAULTS, 0)
        try:
            counts = module.run(options.seed, options.count or getattr(module, "COUNT", USUAL))
        except AssertionError:
            faults["lost"] = 1
            traceback.print_exc()
        except Exception:  # noqa: BLE001 - each is a fault to count
            faults["tracebacks"] = 1
            traceback.print_exc()
        failed += show(name, counts, faults, time.monotonic() - start)
    return 1 if failed else 0


def show(name: str, counts: Mapping[str, int], faults: dict[str, int], seconds: float) -> int:
    """Print the rows of a module. Return the number of its faults."""
    faults |= {key: counts[key] for key in FAULTS if key in counts}
    total = f"{name} ({seconds:.0f} s)"
    print(
        f"{total:<53}"
        + "".join(f"{faults[k]:>{w}}" for k, w in zip(FAULTS, (12, 6, 16), strict=True))
    )
    for what, count in counts.items():
        if what not in FAULTS:
            print(f"  {what:<42}{count:>9}", flush=True)
    return sum(faults.values())


if __name__ == "__main__":
    sys.exit(main())
