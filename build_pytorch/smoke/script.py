"""Test a PyTorch with real work and print a JSON report on stdout.

This file needs nothing beside it: copy it to any machine and run it with the Python whose torch
is to be tested. A missing or broken torch is reported in the JSON.

    python script.py [--device INDEX] [--cpu-only] [--limit SECONDS]

A second process runs the tests and reports each step through a pipe. If it crashes, its signal is
recorded and a new process continues with the next test; if it hangs, it is killed at the limit.
A failed test therefore never hides the results of others.

Exit code 0: the report is complete; 2: wrong arguments.

To add a test, write a function with the decorator `smoke_test` in the section "The tests".
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import importlib
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

Facts = dict[str, Any]
Measured = tuple[float, str]
"""The error (see MEASURE) and a message, which may be empty."""

SCHEMA = 2
MEASURE = "largest difference from the reference, divided by the largest value of the reference"
SPARSE_SHARE = 0.01


class SmokeTest(NamedTuple):
    """A test on one device (`cpu` or `cuda`), skipped where `capability` or `magma` is unmet.

    `work` takes torch and the device's name in torch, such as `cuda:0`.
    """

    name: str
    device: str
    tolerance: float
    capability: str | None
    magma: bool
    work: Callable[[Any, str], Measured]


_declared: list[SmokeTest] = []


def smoke_test(
    name: str,
    tolerance: float,
    *,
    devices: tuple[str, ...] = ("cpu", "cuda"),
    capability: str | None = None,
    magma: bool = False,
    **arguments: Any,
) -> Callable[[Callable[..., Measured]], Callable[..., Measured]]:
    """Declare a test on each device; its function gets torch, the device and `arguments`.

    On a GPU it needs at least the compute `capability`, such as `8.9` (None: any), and with
    `magma` a PyTorch that has MAGMA. A good tolerance is about four times what a
    sum of 1024 products loses in the format (its unit roundoff, relative to the largest result):
    every correct machine stays below it, and one wrong element in a million exceeds it.
    """

    def declare(function: Callable[..., Measured]) -> Callable[..., Measured]:
        work = partial(function, **arguments)
        for device in devices:
            needs = (capability, magma) if device == "cuda" else (None, False)
            _declared.append(SmokeTest(f"{device} {name}", device, tolerance, *needs, work))
        return function

    return declare


def tests() -> list[SmokeTest]:
    """Return every test in the order in which they run: those of the CPU first."""
    return sorted(_declared, key=lambda test: test.device)


def declarations() -> list[Facts]:
    """Return what a report states of each test: all but its function."""
    return [{k: v for k, v in test._asdict().items() if k != "work"} for test in tests()]


def compared(got: Any, want: Any) -> Measured:
    """Return the error of `got` as MEASURE defines it, computed in float64 on the CPU."""
    got, want = got.cpu().double(), want.double()
    if got.shape != want.shape:
        raise RuntimeError(f"shape {tuple(got.shape)}, wanted {tuple(want.shape)}")
    return ((got - want).abs().max() / want.abs().max()).item(), ""


# --- The tests. Random numbers are the same in every run: `run_test` sets the seed. ---


@smoke_test("matmul tf32", 3e-3, devices=("cuda",), dtype="float32", precision="high")
@smoke_test("matmul fp16", 2e-3, dtype="float16")
@smoke_test("matmul bf16", 1e-2, dtype="bfloat16")
@smoke_test("matmul fp32", 1e-5, dtype="float32")
def matmul(torch: Any, device: str, dtype: str, precision: str = "highest") -> Measured:
    """Multiply two 1024 x 1024 matrices. The reference multiplies the rounded inputs."""
    torch.set_float32_matmul_precision(precision)
    a, b = (torch.randn(1024, 1024).to(getattr(torch, dtype)) for _ in range(2))
    return compared(a.to(device) @ b.to(device), a.double() @ b.double())


# Tensor cores have FP8 from Ada Lovelace on (PTX ISA manual, mma with .e4m3).
@smoke_test("matmul fp8", 2e-2, devices=("cuda",), capability="8.9")
def matmul_fp8(torch: Any, device: str) -> Measured:
    """Multiply FP8 (e4m3) matrices with FP32 sums, through the function that torch itself uses."""
    a, b = (torch.randn(1024, 1024).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=device)
    got = torch._scaled_mm(
        a.to(device), b.to(device).t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
    )
    got = got[0] if isinstance(got, tuple) else got  # a pair before torch 2.5
    return compared(got, a.float().double() @ b.float().double().t())


@smoke_test("matmul int8", 0.0, devices=("cpu",))
def matmul_int8(torch: Any, device: str) -> Measured:
    """Multiply integers, exact in every bit. CPUs do this with VNNI instructions."""
    a, b = (torch.randint(-128, 128, (256, 256), dtype=torch.int8) for _ in range(2))
    return compared(torch._int_mm(a.to(device), b.to(device)), a.long() @ b.long())


@smoke_test("convolution", 1e-5)
def convolution(torch: Any, device: str) -> Measured:
    """Convolve images with 3 x 3 filters; a GPU must use cuDNN."""
    images, weights = torch.randn(8, 32, 48, 48), torch.randn(64, 32, 3, 3)
    if device != "cpu":
        if not torch.backends.cudnn.is_acceptable(images.to(device)):
            raise RuntimeError("this PyTorch does not use cuDNN")
        torch.backends.cudnn.allow_tf32 = False
    conv = torch.nn.functional.conv2d
    got = conv(images.to(device), weights.to(device), padding=1)
    return compared(got, conv(images.double(), weights.double(), padding=1))


@smoke_test("sparse matmul", 1e-5)
def sparse(torch: Any, device: str) -> Measured:
    """Multiply a CSR matrix with one value in a hundred by a dense one; a GPU uses cuSPARSE."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 128)
    a = a * (torch.rand(1024, 1024) < SPARSE_SHARE)
    return compared(a.to(device).to_sparse_csr() @ b.to(device), a.double() @ b.double())


@smoke_test("solve magma", 1e-5, devices=("cuda",), magma=True, library="magma")
@smoke_test("solve cusolver", 1e-5, devices=("cuda",), library="cusolver")
@smoke_test("solve", 1e-5, devices=("cpu",))
def solve(torch: Any, device: str, library: str = "") -> Measured:
    """Solve 512 linear equations: on a GPU with the named library, on a CPU with LAPACK."""
    a = torch.randn(512, 512) + 64 * torch.eye(512)  # far from singular
    b = torch.randn(512, 8)
    if library:
        torch.backends.cuda.preferred_linalg_library(library)
    got = torch.linalg.solve(a.to(device), b.to(device))
    return compared(got, torch.linalg.solve(a.double(), b.double()))


@smoke_test("attention bf16", 2e-2)
def attention(torch: Any, device: str) -> Measured:
    """Compute scaled dot-product attention, which is most of the compiled code for a GPU."""
    q, k, v = (torch.randn(2, 4, 256, 64).bfloat16() for _ in range(3))
    got = torch.nn.functional.scaled_dot_product_attention(*(x.to(device) for x in (q, k, v)))
    q, k, v = (x.double() for x in (q, k, v))
    return compared(got, torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(64), dim=-1) @ v)


@smoke_test("elementwise", 1e-5)
def elementwise(torch: Any, device: str) -> Measured:
    """Run vectorised kernels and a reduction; on a CPU they are compiled for each ISA."""
    x = torch.randn(1000, 1003)  # not a multiple of a vector's length

    def work(x: Any) -> Any:
        return (torch.tanh(x) * torch.exp(-x * x) + torch.sqrt(x.abs())).sum(dim=1)

    return compared(work(x.to(device)), work(x.double()))


@smoke_test("training", 1e-3)
def training(torch: Any, device: str) -> Measured:
    """Take ten steps of gradient descent; the loss must fall to that of float64 on a CPU."""
    images, labels = torch.randn(64, 3, 16, 16), torch.randint(0, 10, (64,))
    nn = torch.nn
    convolved, linear = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 16 * 16, 10)
    net = nn.Sequential(convolved, nn.ReLU(), nn.Flatten(), linear)
    if device != "cpu":
        torch.backends.cudnn.allow_tf32 = False

    def losses(where: str, dtype: Any) -> list[float]:
        model = copy.deepcopy(net).to(where, dtype)
        x, y = images.to(where, dtype), labels.to(where)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        seen: list[float] = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    want = losses("cpu", torch.float64)
    got = losses(device, torch.float32)
    message = f"loss {got[0]:.4f} to {got[-1]:.4f}"
    if not got[-1] < got[0]:
        raise RuntimeError(f"the loss did not fall: {message}")
    return abs(got[-1] - want[-1]) / want[-1], message


# --- The process that runs the tests ---


def work(arguments: argparse.Namespace) -> None:
    """Report the facts of torch, then each test from number `--first` on.

    The facts of CUDA come before its first test: a GPU that hangs does not stop the CPU's tests.
    """
    if sys.platform == "linux":  # end with the parent, so that no killed run leaves a process
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.set_inheritable(arguments.pipe, False)  # noqa: FBT003 - positional only
    pipe = os.fdopen(arguments.pipe, "w", buffering=1, encoding="utf-8")

    def send(**line: Any) -> None:
        pipe.write(json.dumps(line) + "\n")

    send(begin="torch")
    try:
        torch = importlib.import_module("torch")
        send(done="torch", facts=torch_facts(torch))
    except BaseException as error:  # a broken torch may raise anything
        send(done="torch", facts={"import_error": explained(error)})
        return
    cuda: Facts = {}
    for test in tests()[arguments.first :]:
        is_cuda = test.device == "cuda"
        if is_cuda and not cuda:
            send(begin="cuda")
            cuda = cuda_facts(torch, arguments)
            send(done="cuda", facts=cuda)
        send(begin=test.name)
        if is_cuda and not cuda["available"]:
            send(done=test.name, facts={"outcome": "skipped", "message": cuda["reason"]})
            continue
        device = f"cuda:{arguments.device}" if is_cuda else "cpu"
        result = run_test(torch, device, test)
        send(done=test.name, facts=result)
        if is_cuda and result["outcome"] == "failed" and is_broken(torch, device):
            return  # the remaining tests need a new process


def run_test(torch: Any, device: str, test: SmokeTest) -> Facts:
    """Run one test and return its outcome, error, tolerance, seconds and message."""
    start = time.monotonic()
    oldest = tuple(map(int, test.capability.split("."))) if test.capability else (0, 0)
    try:
        if test.capability and torch.cuda.get_device_capability(device) < oldest:
            message = f"needs capability {test.capability} or newer"
            return {"outcome": "skipped", "message": message}
        if test.magma and not torch.cuda.has_magma:
            return {"outcome": "skipped", "message": "this PyTorch was built without MAGMA"}
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("highest")
        error, message = test.work(torch, device)
    except Exception as problem:
        result: Facts = {"outcome": "failed", "message": explained(problem)}
    else:
        outcome = "passed" if error <= test.tolerance else "failed"  # failed for NaN
        tolerance = test.tolerance
        result = {"outcome": outcome, "error": error, "tolerance": tolerance, "message": message}
        if not math.isfinite(error):  # JSON has no NaN
            result.update(error=None, message=f"the error is {error}")
    return {**result, "seconds": round(time.monotonic() - start, 3)}


def is_broken(torch: Any, device: str) -> bool:
    """Return whether every CUDA call fails, as after an illegal access until the process ends."""
    try:
        torch.cuda.synchronize(device)
    except Exception:
        return True
    return False


def torch_facts(torch: Any) -> Facts:
    """Return the configuration of this torch, which needs no GPU."""
    cudnn = torch.backends.cudnn
    # torch.cuda.get_arch_list() is empty without a GPU; this is what it reads.
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    return {
        "file": torch.__file__,
        "version": str(torch.__version__),
        "git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": cudnn.version() if cudnn.is_available() else None,
        "magma": bool(torch.cuda.has_magma),
        "arch_list": (flags or "").split(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "config": torch.__config__.show(),
    }


def cuda_facts(torch: Any, arguments: argparse.Namespace) -> Facts:
    """Return whether torch can use the chosen GPU, the reason if not, and all GPUs."""
    if arguments.cpu_only:
        return {"available": False, "reason": "disabled by --cpu-only"}
    try:
        if not torch.cuda.is_available():
            torch.cuda.init()  # raises with the reason
            return {"available": False, "reason": "torch.cuda.is_available() is False"}
        devices = []
        for number in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(number)
            capability = f"{gpu.major}.{gpu.minor}"
            facts = {"index": number, "name": gpu.name, "capability": capability}
            devices.append({**facts, "memory": gpu.total_memory})
        if arguments.device < len(devices):
            torch.cuda.set_device(arguments.device)
            return {"available": True, "devices": devices}
    except Exception as error:
        return {"available": False, "reason": explained(error)}
    reason = f"there is no device {arguments.device}"
    return {"available": False, "reason": reason, "devices": devices}


def explained(error: BaseException) -> str:
    """Return an exception and its type in one line."""
    return " ".join("".join(traceback.format_exception_only(error)).split())[:1000]


# --- The process that watches ---


def report(arguments: argparse.Namespace) -> Facts:
    """Run the tests until each has an outcome or the limit is reached; return the whole report."""
    began = time.monotonic()
    end = began + (arguments.limit or threading.TIMEOUT_MAX)
    found: dict[str, Facts] = {}
    missing = names = [test.name for test in tests()]
    while missing and time.monotonic() < end:
        before = missing
        running, ending = watch(arguments, len(names) - len(missing), end, found)
        if running == "torch":
            found["torch"] = {"import_error": f"import torch: {ending}"}
        elif running == "cuda":  # all tests of the CPU are done
            old = found.get("cuda", {"available": False})
            found["cuda"] = {**old, "crashed": True, "reason": ending}
            for name in missing:
                found.setdefault(name, {"outcome": "skipped", "message": ending})
        elif running:
            found[running] = {"outcome": "failed", "message": ending}
        missing = [name for name in names if name not in found]
        if missing == before:  # torch cannot be imported
            break
    cuda = found.get("cuda", {"available": False, "reason": "not reached"})
    not_run = {"outcome": "not run", "message": ""}
    return {
        "schema": SCHEMA,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(time.monotonic() - began, 3),
        "measure": MEASURE,
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "system": sys.platform,
            "machine": platform.machine(),
        },
        "cpu": cpu_facts(),
        "driver": driver_facts(),
        "torch": found.get("torch", {"import_error": "not reached"}),
        "cuda": {"device": arguments.device, **cuda},
        "declared": declarations(),
        "tests": [{"name": name, **found.get(name, not_run)} for name in names],
    }


def watch(
    arguments: argparse.Namespace, first: int, end: float, found: dict[str, Facts]
) -> tuple[str, str]:
    """Start the process that runs the tests, and add what it reports to `found`.

    Return what was running when it ended (empty: nothing), and how it ended.
    """
    ours, theirs = os.pipe()
    argv = [sys.executable, str(Path(__file__).resolve()), "--pipe", str(theirs)]
    argv += ["--first", str(first), "--device", str(arguments.device)]
    argv += ["--cpu-only"] if arguments.cpu_only else []
    # Only the JSON goes to stdout: what libraries print there is sent to stderr.
    process = subprocess.Popen(argv, pass_fds=[theirs], stdout=2, stdin=subprocess.DEVNULL)
    os.close(theirs)
    timer = threading.Timer(max(0, end - time.monotonic()), process.kill)
    timer.start()
    running = ""
    with os.fdopen(ours, encoding="utf-8") as pipe:
        for text in pipe:
            if not text.endswith("\n"):  # it was killed while it wrote
                break
            line = json.loads(text)
            running = line.get("begin", "")
            if "done" in line:  # the facts that the first process found stay
                found.setdefault(line["done"], line["facts"])
    code = process.wait()
    timer.cancel()
    if code == -signal.SIGKILL and time.monotonic() >= end:
        return running, f"still running when the limit of {arguments.limit:g} s was reached"
    return running, ending(code)


def ending(code: int) -> str:
    """Return how a process ended; a negative code is a signal, as in subprocess."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"ended by {names.get(-code, f'signal {-code}')}"


def cpu_facts() -> Facts:
    """Return the CPU's name and flags from /proc/cpuinfo (x86: `flags`, ARM: `Features`)."""
    text = text_of("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.*\S)", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)", text, re.MULTILINE)
    return {"model": model[1] if model else "", "flags": flags[1].split() if flags else []}


def driver_facts() -> Facts:
    """Return the NVIDIA driver of this machine, whether torch finds its library or not."""
    text = text_of("/proc/driver/nvidia/version")
    version = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", text)
    try:
        ctypes.CDLL("libcuda.so.1")
        problem = ""
    except OSError as error:
        problem = str(error)
    return {
        "version": version[1] if version else None,
        "libcuda_problem": problem,
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def text_of(path: str) -> str:
    """Return the text of a file in /proc; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def main() -> None:
    """Read the arguments; run the tests (second process) or print the report."""
    parser = argparse.ArgumentParser(description="Test a PyTorch; print JSON on stdout.")
    parser.add_argument("--device", type=int, default=0, help="which GPU (default: 0)")
    parser.add_argument("--cpu-only", action="store_true", help="leave the GPU alone")
    parser.add_argument("--limit", type=float, default=0, help="seconds for all tests together")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--pipe", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device < 0:
        parser.error("--device: 0 or more")
    # torch must not import a module that happens to lie beside this file.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]
    if arguments.pipe is not None:
        work(arguments)
    else:
        sys.stdout.write(json.dumps(report(arguments), indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
