"""`invoke describe-machine`: describe this machine as JSON."""

from __future__ import annotations

from build_pytorch.cli import recommend
from build_pytorch.cli.commands import DescribeMachineOptions


def run(options: DescribeMachineOptions) -> int:
    """Describe this machine, to a file or on stdout. Returns the exit code. Raises WriteError."""
    return recommend.describe(str(options.output or ""))
