"""Test a PyTorch with real work and print a JSON report on stdout.

    python script.py [--capability 9.0] [--limit SECONDS] [--companion NAME] [--check]

Run it with the Python whose torch is to be tested; it needs smoke_tests.py and installed_torch.py
of this package, and nothing else. A torch that is missing or broken is reported in the JSON.

Each test runs in a fork of the process that imported torch: one that crashes hides no other, and
one that hangs is killed at the limit.

Exit code 0: the report is complete; 1: with --check, what stderr says; 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import math
import multiprocessing
import os
import platform
import re
import runpy
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Facts = dict[str, Any]
FORK = multiprocessing.get_context("fork")
_HERE = Path(__file__).resolve().parent
_STATED = ("name", "device", "companion", "meaning")

# By path: torch imports nothing by accident from a folder of this package.
torch_facts = SimpleNamespace(**runpy.run_path(str(_HERE.parent / "base/installed_torch.py")))
smoke_tests = SimpleNamespace(**runpy.run_path(str(_HERE / "smoke_tests.py")))


def tests(companions: Collection[str]) -> list[Any]:
    """Return the tests of torch and of these companions, those of the CPU first."""
    return [
        test._replace(name=f"{device} {test.name}", device=device)
        for device in ("cpu", "cuda")
        for test in smoke_tests.TESTS
        if test.device in {"", device} and test.companion in {"", *companions}
    ]


def require(torch: Any, place: str, needs: Any) -> None:
    """Raise MissingPart if this torch or the GPU is older than a test needs."""
    version = tuple(map(int, torch.__version__.split(".")[:2]))
    for what, least in needs.items():
        here = version if what == "PyTorch" else torch.cuda.get_device_capability(place)
        if here < least:
            raise smoke_tests.MissingPart(f"needs {what} {'.'.join(map(str, least))} or newer")


def run_test(torch: Any, place: str, test: Any) -> Facts:
    """Run one test and return its outcome.

    Its error is the largest difference from the reference, divided by the largest value of it.
    """
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    if test.companion:
        importlib.import_module(test.companion)
    try:
        require(torch, place, test.needs)
        inputs = test.inputs(torch)
        got = test.call(torch, *(x.to(place) for x in inputs))
    except smoke_tests.MissingPart as missing:
        return {"outcome": "skipped", "message": str(missing)}
    inputs = [x.double() if x.is_floating_point() else x for x in inputs]
    want = (test.reference or test.call)(torch, *inputs).double()
    got = got.cpu().double()
    if got.shape != want.shape:
        raise RuntimeError(f"shape {tuple(got.shape)}, wanted {tuple(want.shape)}")
    error = ((got - want).abs().max() / want.abs().max()).item()
    if not math.isfinite(error):  # JSON has no NaN
        raise RuntimeError(f"the error is {error}")
    facts = {"outcome": "passed", "error": error, "tolerance": test.tolerance, "message": ""}
    if error > test.tolerance:
        facts |= {
            "outcome": "failed",
            "message": f"error {error:.2g}, tolerance {test.tolerance:g}",
        }
    return facts


def cuda_facts(torch: Any, capability: str) -> Facts:
    """Return whether torch can use a GPU, the reason if not, and all GPUs.

    Tested is the first one of the capability, or the first one of all.
    """
    numbers = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    devices = [
        {"index": number, "name": gpu.name, "capability": f"{gpu.major}.{gpu.minor}"}
        for number, gpu in enumerate(map(torch.cuda.get_device_properties, numbers))
    ]
    reason = torch_facts.cuda_problem(torch) or "built without CUDA"
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        reason += f"; CUDA_VISIBLE_DEVICES is '{chosen}'"
    return {
        "device": next((it["index"] for it in devices if it["capability"] == capability), 0),
        "available": bool(devices),
        "reason": "" if devices else reason,
        "devices": devices,
    }


def in_process(function: Callable[[], Facts], end: float, key: str) -> Facts:
    """Return the facts of a function that runs in a fork of this process.

    Under `key` is its error or how the process ended, if it did not return. It is killed at the
    time `end`, and ends with this process.
    """
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_answer, args=(function, key, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(max(0.0, end - time.monotonic())):
            return {key: "still running when the time limit was reached"}
        text = ours.recv_bytes()
    except EOFError:
        process.join()
        return {key: ending(process.exitcode or 0)}
    finally:
        process.kill()
        process.join()
    facts: Facts = json.loads(text)
    return facts


def _answer(function: Callable[[], Facts], key: str, pipe: Any) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    try:
        facts = function()
    except Exception as error:
        facts = {key: torch_facts.explained(error)}
    pipe.send_bytes(json.dumps(facts).encode())


def tested(torch: Any, place: str, test: Any, end: float) -> Facts:
    """Run one test in a process of its own."""
    result = in_process(lambda: run_test(torch, place, test), end, "message")
    return {"outcome": "failed", **result}


def report(capability: str, limit: float, companions: Collection[str]) -> Facts:
    """Run the tests until each has an outcome or the limit is reached; return the whole report.

    CUDA starts in their processes, and after the CPU's tests, which a GPU that hangs does not stop.
    """
    end = time.monotonic() + limit
    facts = in_process(torch_facts.imported, end, "error")  # it may crash
    cuda: Facts = {"device": 0, "available": False, "reason": "not reached"}
    results: list[Facts] = []
    torch = None if "error" in facts else importlib.import_module("torch")
    for test in tests(companions):
        result: Facts = {"outcome": "not run", "message": ""}
        if torch and test.device == "cuda" and "devices" not in cuda:
            found = in_process(lambda: cuda_facts(torch, capability), end, "reason")
            cuda.update({"crashed": "devices" not in found, "devices": [], **found})
        if torch and test.device == "cuda" and not cuda["available"]:
            result = {"outcome": "skipped", "message": cuda["reason"]}
        elif torch and time.monotonic() < end:
            place = "cpu" if test.device == "cpu" else f"cuda:{cuda['device']}"
            result = tested(torch, place, test, end)
        results.append({key: getattr(test, key) for key in _STATED} | result)
    driver = torch_facts.text_of("/proc/driver/nvidia/version")
    version = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", driver)
    return {
        "schema": 2,
        "python": {"version": platform.python_version()},
        "driver": {"version": version[1] if version else None},
        "torch": facts if torch else {"import_error": facts["error"]},
        "cuda": cuda,
        "companions": {name: companion_facts(name) for name in companions},
        "tests": results,
    }


def ending(code: int) -> str:
    """Return how a process ended; a negative code is a signal, as in subprocess."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"ended by {names.get(-code, f'signal {-code}')}"


def companion_facts(name: str) -> Facts:
    """Return what is installed of a companion. It is not imported: it may crash."""
    found = importlib.util.find_spec(name)
    version = importlib.metadata.version(name) if found else None
    return {"version": version, "file": found.origin if found else None}


def failures(document: Facts, capability: str) -> list[str]:
    """Return what failed, and whether a GPU of this capability (empty: none) was not tested."""
    if error := document["torch"].get("import_error"):
        return [error]
    wrong = [test for test in document["tests"] if test["outcome"] in {"failed", "not run"}]
    found = [f"{test['name']}: {test['message'] or test['outcome']}" for test in wrong]
    cuda = document["cuda"]
    here = [it["capability"] for it in cuda.get("devices", []) if it["index"] == cuda["device"]]
    if capability and capability not in here:
        found.append(f"no GPU of capability {capability}: {cuda['reason'] or ' '.join(here)}")
    return found


def main() -> None:
    """Read the arguments, run the tests, print the report."""
    parser = argparse.ArgumentParser(description="Test a PyTorch; print JSON on stdout.")
    add = parser.add_argument
    add("--capability", default="", help="take the first GPU of this compute capability")
    add("--limit", type=float, default=3600, help="seconds for all tests together (default: 3600)")
    add("--companion", action="append", default=[], choices=smoke_tests.COMPANIONS)
    add("--check", action="store_true", help="fail if a test does, or for --capability without one")
    arguments = parser.parse_args()
    # torch must not import a module that happens to lie beside this file.
    sys.path[:] = [entry for entry in sys.path if entry != str(_HERE)]
    os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"  # NVRTC must run, and leave nothing
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        found = report(arguments.capability, arguments.limit, arguments.companion)
        json.dump(found, answers, allow_nan=False)
    if arguments.check:
        sys.exit("\n".join(failures(found, arguments.capability)) or 0)


if __name__ == "__main__":
    main()
