"""The tasks of Invoke: one for each command in build_pytorch/cli/commands.py."""

from __future__ import annotations

import gc
import os
import sys

# Invoke turns bytecode off: each command would compile the whole package, a tenth of its time.
sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
gc.disable()  # a command is short

from build_pytorch.base.errors import (  # noqa: E402 - see above
    end_at_signals,
    reporting_missing_packages,
)

end_at_signals()
with reporting_missing_packages():
    from build_pytorch.cli.invoke_tasks import collection

namespace = collection()
