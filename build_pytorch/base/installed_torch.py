"""What a torch is: a stand-alone script for Python 3.8 on, which needs nothing beside it.

    python installed_torch.py        or        python - < installed_torch.py

It prints a line of JSON before it imports torch and one after that: the import may end the process.
`python -` finds the modules that the user's own programs find. doctor reads both lines, smoke
tests and comparisons take `facts`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sys
import sysconfig
import time
import traceback
from pathlib import Path
from typing import Any

MOST_OUTPUT = 1 << 24
"""Maximum size of a file that the process writes, in bytes; its output is a file."""
_POOLS = r"/lib(?:gomp|iomp5|omp|openblas|blis|tbb|mkl_\w*thread)[^/]*$"
"""Libraries that hold a pool of threads."""
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
    began, used = time.perf_counter(), time.process_time()
    try:
        torch = importlib.import_module("torch")
        took = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}
        return {**facts(torch), **took, "resident": resident()}
    except BaseException as error:  # also SystemExit
        return {"error": explained(error)}


def facts(torch: Any) -> dict[str, Any]:
    """Return the configuration of an imported torch, which needs no GPU."""
    cudnn, loaded = torch.backends.cudnn, loaded_libraries()
    # torch.cuda.get_arch_list() is empty without a GPU; this is what it reads.
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    triton, required = triton_versions()
    return {
        "file": torch.__file__,
        "library_folders": sorted({str(Path(p).parent) for p in loaded if re.search(_OF_TORCH, p)}),
        "library_bytes": library_bytes(Path(torch.__file__).parent / "lib"),
        "pools": [path for path in loaded if re.search(_POOLS, path)],
        "version": str(torch.__version__),
        "git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": cudnn.version() if cudnn.is_available() else None,
        "magma": bool(torch.cuda.has_magma),
        "nccl": nccl_version(torch),
        "triton": triton,
        "triton_required": required,
        "arch_list": (flags or "").split(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "threads_asked": os.environ.get("OMP_NUM_THREADS", ""),
        "config": torch.__config__.show(),
        "parallel": torch.__config__.parallel_info(),
    }


def cuda_problem(torch: Any) -> str:
    """Return why torch cannot use CUDA, or "" if it can or was built without."""
    if not torch.version.cuda or torch.cuda.is_available():
        return ""
    try:
        torch.cuda.init()
    except Exception as error:
        return explained(error)
    return "torch.cuda.is_available() is False"


def loaded_libraries() -> list[str]:
    """Return the files that this process has mapped, as Linux's /proc names them.

    PyTorch's libraries of one build are in one folder. The dynamic linker finds another build's in
    LD_LIBRARY_PATH, or in /usr/lib where a run path does not lead to the build's own.
    """
    return sorted(set(re.findall(r"(?m) (/.*\.so.*)$", text_of("/proc/self/maps"))))


def library_bytes(folder: Path) -> int:
    """Return the size of the libraries in a folder."""
    return sum(path.stat().st_size for path in folder.glob("*.so*"))


def resident() -> int:
    """Return the bytes of memory that this process holds; 0 where that is unknown."""
    found = re.search(r"VmRSS:\s+(\d+) kB", text_of("/proc/self/status"))
    return int(found[1]) << 10 if found else 0


def nccl_version(torch: Any) -> str | None:
    """Return the version of NCCL that torch uses, None without NCCL."""
    if hasattr(torch._C, "_nccl_version"):
        with contextlib.suppress(Exception):  # the smoke test shows whether it works
            return ".".join(map(str, torch.cuda.nccl.version()))
    return None


def triton_versions() -> tuple[str | None, str | None]:
    """Return the installed Triton and the one that this PyTorch requires, None where unknown."""
    pattern = r"(?:pytorch-)?triton\s*\(?(?:==|(?=[~>]))\s*([~>=0-9.]+)"
    return installed_version("triton") or installed_version("pytorch-triton"), requirement(
        "torch", pattern
    )


def installed_version(package: str) -> str | None:
    """Return the version of an installed package. It is not imported: it may crash."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def requirement(package: str, pattern: str) -> str | None:
    """Return the version in the first requirement of an installed package that matches."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        lines = importlib.metadata.requires(package) or ()
        found = (re.match(pattern, line) for line in lines)
        return next((match[1] for match in found if match), None)
    return None


def explained(error: BaseException) -> str:
    """Return an exception and its type in one line."""
    text = "".join(traceback.format_exception_only(type(error), error))
    return " ".join(text.split())[:1000]


def text_of(path: str) -> str:
    """Return the text of a file in /proc; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def main() -> None:
    """Print both lines. What torch prints goes to stderr."""
    with contextlib.suppress(ImportError):
        resource = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_OUTPUT, MOST_OUTPUT))
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
