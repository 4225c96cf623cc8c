"""The tasks of Invoke: one for each command in build_pytorch/cli/commands.py."""

from __future__ import annotations

from build_pytorch.base.errors import reporting_missing_packages

with reporting_missing_packages():
    from build_pytorch.cli.invoke_tasks import collection

namespace = collection()
