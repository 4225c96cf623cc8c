"""The program `build-pytorch`: the tasks of the menu, in any folder with a matrix.toml."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the words after `build-pytorch`; exits with the code of the command."""
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `--list | head`; tasks ignore it
        from build_pytorch.tasks.menu import program

        program().run()
    except KeyboardInterrupt:  # while modules are imported; a command that runs says more
        sys.exit(130)
