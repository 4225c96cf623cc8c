"""Facts about the torch of a Python, for `invoke doctor`: a stand-alone script for Python 3.8 on.

`python -` reads it, so that the module path is the one of the user's own programs. It prints a line
of JSON before it imports torch and one after that: the import may end the process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import sys
import sysconfig
from pathlib import Path
from typing import Any

MOST_OUTPUT = 1 << 24
"""Maximum size of a file that the process writes, in bytes; its output is a file."""
MOST_TEXT = 20000


def installed() -> dict[str, Any]:
    """Return every torch on the module path, without importing one."""
    folders = [Path(place or ".").resolve() / "torch" for place in sys.path]
    return {
        "python": platform.python_version(),
        "folders": [str(it) for it in dict.fromkeys(folders) if (it / "__init__.py").is_file()],
        "packages": [
            {
                "version": package.version,
                "folder": str(Path(str(package.locate_file("torch"))).resolve()),
                "installer": (package.read_text("INSTALLER") or "").strip()[:100],
            }
            for package in importlib.metadata.distributions(name="torch")
        ],
        "conda": any(Path(sys.prefix, "conda-meta").glob("pytorch-*.json")),
        "pip": importlib.util.find_spec("pip") is not None,
        "closed": _is_closed(),
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def _is_closed() -> bool:
    """Return whether pip would refuse: another package manager owns this Python (PEP 668)."""
    paths = sysconfig.get_paths()
    is_owned = (
        Path(paths["stdlib"], "EXTERNALLY-MANAGED").exists() and sys.prefix == sys.base_prefix
    )
    return is_owned or not os.access(paths["purelib"], os.W_OK)


def imported() -> dict[str, Any]:
    """Import torch and return its configuration, or the error."""
    try:
        torch = importlib.import_module("torch")
        flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
        return {
            "version": str(torch.__version__),
            "folder": str(Path(str(torch.__file__)).resolve().parent),
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            # torch.cuda.get_arch_list() reads the flags, and returns nothing without a GPU.
            "codes": flags.split() if flags else torch.cuda.get_arch_list(),
            "config": torch.__config__.show()[:MOST_TEXT],
            "threads": torch.__config__.parallel_info()[:MOST_TEXT],
            "problem": _cuda_problem(torch),
        }
    except BaseException as error:  # also SystemExit
        return {"error": f"{type(error).__name__}: {error}"[:2000]}


def _cuda_problem(torch: Any) -> str:
    """Return why torch cannot use CUDA, or "" if it can or was built without."""
    if not torch.version.cuda or torch.cuda.is_available():
        return ""
    try:
        torch.cuda.init()
    except Exception as error:
        return str(error)[:2000]
    return "torch.cuda.is_available() is False"


def main() -> None:
    """Print both lines. What torch prints goes to stderr."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_OUTPUT, MOST_OUTPUT))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for facts in (installed, imported):
        print(json.dumps(facts()), file=answers, flush=True)


if __name__ == "__main__":
    main()
