"""The console script `build-pytorch`: every command, in any folder with a matrix.toml."""

from __future__ import annotations

import gc
import sys

try:
    from build_pytorch.base.errors import end_at_signals, reporting_missing_packages
except KeyboardInterrupt:  # before `end_at_signals`
    sys.exit(130)


def main() -> int:
    """Run the commands that the words after the script name. Returns the exit code."""
    gc.disable()  # a command is short
    end_at_signals()
    with reporting_missing_packages():
        from build_pytorch.cli.entry import run_script
    return run_script(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
