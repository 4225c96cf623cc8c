"""The one place where errors become a line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from build_pytorch.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK, BuildPytorchError


def guarded(run: Callable[[], int]) -> int:
    """Run a command and return its exit code.

    Expected errors, a missing dependency, Ctrl-C and a closed pipe end without a traceback;
    anything else is a bug and keeps it.
    """
    try:
        code = run()
        sys.stdout.flush()
    except BuildPytorchError as error:
        return _complain(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "build_pytorch":
            raise
        message = (
            f"the Python package {error.name} is missing; run `pip install -e .` as README says"
        )
        return _complain(message, EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        return _complain("interrupted; every file is whole, run again to go on", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    return code


def _complain(message: str, code: int) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"error: {message}\n")
    return code
