"""`invoke describe-machine`: describe this machine as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

from build_pytorch.base.console import Screen, write
from build_pytorch.base.errors import EXIT_OK
from build_pytorch.cli.commands import DescribeMachineOptions
from build_pytorch.cli.recommend import print_machine
from build_pytorch.hardware import detect, saved_machines


def run(options: DescribeMachineOptions) -> int:
    """Write the description to a file or to stdout. Raises WriteError."""
    machine = detect.this_machine()
    path = options.output
    if path is None or path == Path("-"):
        write(sys.stdout, saved_machines.text_of(machine))
        return EXIT_OK
    saved_machines.save(machine, path)
    screen = Screen(sys.stderr)
    print_machine(screen, machine)
    screen.line(f"written to {path}; use it with `invoke recommend --machine {path}`")
    return EXIT_OK
