"""What a torch is: a stand-alone script for Python 3.8 on, which needs nothing beside it.

    python installed_torch.py        or        python -c "$(cat installed_torch.py)"

It prints a line of JSON before it imports torch and one after that: the import may end the process.
`python -c` finds the modules that the user's own programs find. doctor and comparisons read both
lines, smoke tests take `imported`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

MOST_TEXT = 1000
"""Characters of an error that are shown whole."""
_OF_TORCH = r"/lib(?:c10|torch)(?:_[a-z_]+)?\.so[^/]*$"


def installed() -> dict[str, Any]:
    """Return every torch on the module path, without importing one, and what may replace it."""
    folders = [Path(place or ".").resolve() / "torch" for place in sys.path]
    packages = list(importlib.metadata.distributions(name="torch"))
    installers = {(package.read_text("INSTALLER") or "").strip() for package in packages}
    paths = sysconfig.get_paths()
    is_owned = Path(paths["stdlib"], "EXTERNALLY-MANAGED").exists()  # PEP 668
    installer = "uv" if "uv" in installers or not importlib.util.find_spec("pip") else "pip"
    if "conda" in installers or any(Path(sys.prefix, "conda-meta").glob("pytorch-*.json")):
        installer = "conda"
    elif (is_owned and sys.prefix == sys.base_prefix) or not os.access(paths["purelib"], os.W_OK):
        installer = "other"
    return {
        "python": platform.python_version(),
        "folders": [str(it) for it in dict.fromkeys(folders) if (it / "__init__.py").is_file()],
        "installer": installer,
    }


def imported() -> dict[str, Any]:
    """Import torch and return its facts, or the error. CUDA is not started."""
    try:
        torch: Any = importlib.import_module("torch")
        cudnn = torch.backends.cudnn
        # The libraries of one build are in one folder. The dynamic linker finds another build's in
        # LD_LIBRARY_PATH, or in /usr/lib where a run path does not lead to the build's own.
        mapped = set(re.findall(r"(?m) (/.*\.so.*)$", text_of("/proc/self/maps")))
        folders = {str(Path(path).parent) for path in mapped if re.search(_OF_TORCH, path)}
        libraries = Path(torch.__file__).parent / "lib"
        # torch.cuda.get_arch_list() is empty without a GPU; this is what it reads.
        flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
        return {
            "file": torch.__file__,
            "library_folders": sorted(folders),
            "library_bytes": sum(it.stat().st_size for it in libraries.glob("*.so*")),
            "version": str(torch.__version__),
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            "cudnn": cudnn.version() if cudnn.is_available() else None,
            "magma": bool(torch.cuda.has_magma),
            "arch_list": (flags or "").split(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "config": torch.__config__.show(),
            "parallel": torch.__config__.parallel_info(),
        }
    except BaseException as error:  # also SystemExit
        return {"error": explained(error)}


def cuda_problem(torch: Any) -> str:
    """Return why torch cannot use CUDA, or "" if it can or was built without."""
    if not torch.version.cuda or torch.cuda.is_available():
        return ""
    try:
        torch.cuda.init()
    except Exception as error:
        return explained(error)
    return "torch.cuda.is_available() is False"


def explained(error: BaseException) -> str:
    """Return an exception and its type in one line.

    Of a long one, such as NVRTC's, which begins with source text: the beginning, the first line
    that names an error, and the end.
    """
    lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    text = " ".join(" ".join(lines).split())
    if len(text) <= MOST_TEXT:
        return text
    causes = [" ".join(line.split())[:300] for line in lines[1:] if "error:" in line.lower()]
    return " ... ".join([text[:100], *causes[:1], text[400 - MOST_TEXT :]])


def text_of(path: str) -> str:
    """Return the text of a file in /proc; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def main() -> None:
    """Print both lines. What torch prints goes to stderr."""
    here = str(Path(globals().get("__file__", "/")).resolve().parent)
    sys.path[:] = [place for place in sys.path if place != here]  # torch imports nothing from here
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(installed()), file=answers, flush=True)
    found = imported()
    if "error" not in found:
        found["problem"] = cuda_problem(sys.modules["torch"])
    print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
