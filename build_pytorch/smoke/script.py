"""Prove a PyTorch by real work: JSON on stdout, and nothing else there.

Stands alone: copy it to any machine and run it with the Python whose torch is to be tested. It
needs torch, nothing else, and says so in its JSON where torch is missing or broken.

    python script.py [--device INDEX] [--cpu-only] [--limit SECONDS]

The work is done by a second process, which reports each step through a pipe. One that crashes is
recorded with its signal and a new process goes on behind it; one that hangs is ended when the
limit is reached. So no test hides another. Exit code 0: the JSON is complete; 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import math
import os
import platform
import re
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

Facts = dict[str, Any]
Measured = tuple[float, float, str]
"""The error, the tolerance, and what else there is to say."""
Test = Callable[[Any, str], Measured]
"""What takes torch and a device and does real work there."""

SCHEMA = 1
MEASURE = "largest difference from the reference, divided by the largest value of the reference"
FP8_CAPABILITY = (8, 9)
"""Tensor cores have FP8 from Ada Lovelace on (PTX ISA manual, mma with .e4m3)."""
SPARSE_SHARE = 0.01


class UnavailableError(Exception):
    """A test that cannot be done here, with the reason."""


# --- the tests: each returns (error, tolerance, message) ---


def matmul(
    torch: Any, device: str, dtype: Any, tolerance: float, *, tf32: bool = False
) -> Measured:
    """A product of two 1024 x 1024 matrices; the reference takes the inputs as rounded."""
    a, b = (noise(torch, 1024, 1024).to(dtype) for _ in range(2))
    if tf32:
        torch.set_float32_matmul_precision("high")
    got = a.to(device) @ b.to(device)
    return compared(got, a.double() @ b.double(), tolerance)


def matmul_fp8(torch: Any, device: str, tolerance: float) -> Measured:
    """FP8 (e4m3) with FP32 sums, the category that torch itself uses."""
    if torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        raise UnavailableError("FP8 needs capability 8.9 or newer")
    a, b = (noise(torch, 1024, 1024).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=device)
    got = torch._scaled_mm(
        a.to(device), b.to(device).t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
    )
    got = got[0] if isinstance(got, tuple) else got  # as it was before torch 2.5
    return compared(got, a.float().double() @ b.float().double().t(), tolerance)


def matmul_int8(torch: Any, device: str) -> Measured:
    """Integers, so that every bit must be right; this is what VNNI instructions are for."""
    a, b = (torch.randint(-128, 128, (256, 256), dtype=torch.int8) for _ in range(2))
    got = torch._int_mm(a.to(device), b.to(device))
    return compared(got, a.long() @ b.long(), 0.0)


def convolution(torch: Any, device: str, tolerance: float) -> Measured:
    """A 3 x 3 convolution, on a GPU by cuDNN."""
    images, weights = noise(torch, 8, 32, 48, 48), noise(torch, 64, 32, 3, 3)
    if device != "cpu":
        cudnn = torch.backends.cudnn
        if not cudnn.is_acceptable(images.to(device)):
            raise RuntimeError("this PyTorch does not take cuDNN")
        cudnn.allow_tf32 = False
    conv = torch.nn.functional.conv2d
    got = conv(images.to(device), weights.to(device), padding=1)
    return compared(got, conv(images.double(), weights.double(), padding=1), tolerance)


def sparse(torch: Any, device: str, tolerance: float) -> Measured:
    """A CSR matrix with one value in a hundred, times a dense one; on a GPU by cuSPARSE."""
    a, b = noise(torch, 1024, 1024), noise(torch, 1024, 128)
    a = a * (torch.rand(1024, 1024) < SPARSE_SHARE)
    got = a.to(device).to_sparse_csr() @ b.to(device)
    return compared(got, a.double() @ b.double(), tolerance)


def solve(torch: Any, device: str, tolerance: float, *, library: str = "") -> Measured:
    """A linear system of 512 equations; on a GPU by the library named, on a CPU by LAPACK."""
    if library == "magma" and not torch.cuda.has_magma:
        raise UnavailableError("this PyTorch was built without MAGMA")
    a = noise(torch, 512, 512) + 64 * torch.eye(512)  # far from singular
    b = noise(torch, 512, 8)
    if library:
        torch.backends.cuda.preferred_linalg_library(library)
    got = torch.linalg.solve(a.to(device), b.to(device))
    return compared(got, torch.linalg.solve(a.double(), b.double()), tolerance)


def attention(torch: Any, device: str, tolerance: float) -> Measured:
    """Scaled dot-product attention in bf16: on a GPU most of the compiled code is there."""
    q, k, v = (noise(torch, 2, 4, 256, 64).bfloat16() for _ in range(3))
    got = torch.nn.functional.scaled_dot_product_attention(*(x.to(device) for x in (q, k, v)))
    q, k, v = (x.double() for x in (q, k, v))
    want = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(64), dim=-1) @ v
    return compared(got, want, tolerance)


def elementwise(torch: Any, device: str, tolerance: float) -> Measured:
    """Vectorised kernels and a reduction; on a CPU those that are compiled for each ISA."""
    x = noise(torch, 1000, 1003)  # no multiple of any vector's length

    def work(x: Any) -> Any:
        return (torch.tanh(x) * torch.exp(-x * x) + torch.sqrt(x.abs())).sum(dim=1)

    return compared(work(x.to(device)), work(x.double()), tolerance)


def training(torch: Any, device: str, tolerance: float) -> Measured:
    """Ten steps of gradient descent: the loss must fall, and to where float64 gets it on a CPU."""
    images, labels = noise(torch, 64, 3, 16, 16), torch.randint(0, 10, (64,))
    layers = torch.nn
    net = layers.Sequential(
        layers.Conv2d(3, 8, 3, padding=1),
        layers.ReLU(),
        layers.Flatten(),
        layers.Linear(8 * 16 * 16, 10),
    )
    start = {name: value.clone() for name, value in net.state_dict().items()}
    if device != "cpu":
        torch.backends.cudnn.allow_tf32 = False

    def losses(where: str, dtype: Any) -> list[float]:
        net.load_state_dict(start)
        net.to(where, dtype)
        x, y = images.to(where, dtype), labels.to(where)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        seen: list[float] = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = layers.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    want = losses("cpu", torch.float64)
    got = losses(device, torch.float32)
    message = f"loss {got[0]:.4f} to {got[-1]:.4f}"
    if not got[-1] < got[0]:
        raise RuntimeError(f"the loss did not fall: {message}")
    return abs(got[-1] - want[-1]) / want[-1], tolerance, message


def noise(torch: Any, *shape: int) -> Any:
    """Normally distributed numbers, the same in every run: `run_test` sets the seed."""
    return torch.randn(*shape)


def compared(got: Any, want: Any, tolerance: float) -> Measured:
    """What MEASURE says, in float64 on the CPU."""
    got = got.cpu().double()
    want = want.double()
    if got.shape != want.shape:
        raise RuntimeError(f"shape {tuple(got.shape)}, wanted {tuple(want.shape)}")
    return ((got - want).abs().max() / want.abs().max()).item(), tolerance, ""


def tests() -> dict[str, tuple[str, Test]]:
    """Every test by name, in order. Those of the CPU need no GPU.

    Tolerances: about four times what a sum of 1024 products loses in the format (its unit
    roundoff, relative to the largest result), so they hold on any right machine and on no wrong
    one: one wrong element in a million exceeds them.
    """

    def typed(name: str, tolerance: float) -> Test:
        return lambda torch, device: matmul(torch, device, getattr(torch, name), tolerance)

    both: dict[str, Test] = {
        "matmul fp32": typed("float32", 1e-5),
        "matmul bf16": typed("bfloat16", 1e-2),
        "matmul fp16": typed("float16", 2e-3),
        "convolution": partial(convolution, tolerance=1e-5),
        "sparse matmul": partial(sparse, tolerance=1e-5),
        "attention bf16": partial(attention, tolerance=2e-2),
        "elementwise": partial(elementwise, tolerance=1e-5),
        "training": partial(training, tolerance=1e-3),
    }
    cpu: dict[str, Test] = {
        **both,
        "matmul int8": matmul_int8,
        "solve": partial(solve, tolerance=1e-5),
    }
    gpu: dict[str, Test] = {
        **both,
        "matmul tf32": lambda torch, device: matmul(torch, device, torch.float32, 3e-3, tf32=True),
        "matmul fp8": partial(matmul_fp8, tolerance=2e-2),
        "solve cusolver": partial(solve, tolerance=1e-5, library="cusolver"),
        "solve magma": partial(solve, tolerance=1e-5, library="magma"),
    }
    found = {f"cpu {name}": ("cpu", work) for name, work in cpu.items()}
    found.update({f"cuda {name}": ("cuda", work) for name, work in gpu.items()})
    return found


# --- the process that does the work ---


def work(arguments: argparse.Namespace) -> None:
    """Report what torch is, then each test from number `--first` on, and the GPU before its own.

    Runs in the second process.
    """
    die_with_parent()
    pipe = os.fdopen(arguments.pipe, "w", encoding="utf-8")

    def tell(**line: Any) -> None:
        pipe.write(json.dumps(line) + "\n")
        pipe.flush()

    tell(begin="torch")
    try:
        torch = importlib.import_module("torch")
        tell(section="torch", value=torch_facts(torch))
    except BaseException as error:  # a broken torch raises what it likes
        tell(section="torch", value={"import_error": explained(error)})
        return
    cuda: Facts = {}
    for number, (name, (where, test)) in enumerate(tests().items()):
        if number < arguments.first:
            continue
        if where == "cuda" and not cuda:  # after the CPU's half: a GPU that hangs does not stop it
            tell(begin="cuda")
            cuda = cuda_facts(torch, arguments)
            tell(section="cuda", value=cuda)
        tell(begin=name)
        if where == "cuda" and not cuda["available"]:
            tell(test=name, value={"outcome": "skipped", "message": cuda["reason"]})
            continue
        device = f"cuda:{arguments.device}" if where == "cuda" else "cpu"
        result = run_test(torch, device, test)
        tell(test=name, value=result)
        if where == "cuda" and result["outcome"] == "failed" and is_broken(torch, device):
            return  # the rest needs a new process


def run_test(torch: Any, device: str, test: Test) -> Facts:
    """One test: its outcome, error, tolerance, seconds and message."""
    start = time.monotonic()
    result: Facts = {}
    try:
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("highest")
        error, tolerance, message = test(torch, device)
        passed = error <= tolerance  # not so for NaN
        result = {"error": error, "tolerance": tolerance, "message": message}
        if not math.isfinite(error):
            result.update(error=None, message=f"the error is {error}")
    except UnavailableError as reason:
        return {"outcome": "skipped", "message": str(reason)}
    except Exception as error:
        passed = False
        result = {"message": explained(error)}
    seconds = round(time.monotonic() - start, 3)
    return {"outcome": "passed" if passed else "failed", "seconds": seconds, **result}


def is_broken(torch: Any, device: str) -> bool:
    """Whether CUDA answers with errors only: those of an illegal access stay for good."""
    try:
        torch.cuda.synchronize(device)
    except Exception:
        return True
    return False


def torch_facts(torch: Any) -> Facts:
    """What this torch says of itself; none of it needs a GPU."""
    cudnn = torch.backends.cudnn
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    return {
        "file": torch.__file__,
        "version": str(torch.__version__),
        "git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": cudnn.version() if cudnn.is_available() else None,
        "magma": bool(torch.cuda.has_magma),
        # torch.cuda.get_arch_list() says nothing where there is no GPU; this is what it reads.
        "arch_list": (flags or "").split(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "config": torch.__config__.show(),
    }


def cuda_facts(torch: Any, arguments: argparse.Namespace) -> Facts:
    """Whether there is a GPU for this torch, which, and why not."""
    if arguments.cpu_only:
        return {"available": False, "reason": "not asked: --cpu-only"}
    try:
        if not torch.cuda.is_available():
            torch.cuda.init()  # says why
            return {"available": False, "reason": "torch.cuda.is_available() is False"}
        devices = [device_facts(torch, number) for number in range(torch.cuda.device_count())]
        if arguments.device < len(devices):
            torch.cuda.set_device(arguments.device)
    except Exception as error:
        return {"available": False, "reason": explained(error)}
    if arguments.device < len(devices):
        return {"available": True, "devices": devices}
    reason = f"there is no device {arguments.device}"
    return {"available": False, "reason": reason, "devices": devices}


def device_facts(torch: Any, number: int) -> Facts:
    """One GPU."""
    properties = torch.cuda.get_device_properties(number)
    return {
        "index": number,
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory": properties.total_memory,
    }


def explained(error: BaseException) -> str:
    """An exception in one line, with its kind."""
    text = "".join(traceback.format_exception_only(type(error), error))
    return " ".join(text.split())[:1000]


def die_with_parent() -> None:
    """Ask Linux to end this process with its parent, so that a killed run leaves none behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


# --- the process that watches ---


def report(arguments: argparse.Namespace) -> Facts:
    """Run the work until every test has an outcome, and return the whole report."""
    began = time.monotonic()
    end = began + arguments.limit if arguments.limit else math.inf
    sections: dict[str, Facts] = {}
    results: dict[str, Facts] = {}
    names = list(tests())
    while True:
        first = len(results)
        running, ending = watch(arguments, first, end, sections, results)
        missing = [name for name in names if name not in results]
        if "import_error" in sections.get("torch", {}) or not missing:
            break
        if running == "torch":
            sections["torch"] = {"import_error": f"import torch: {ending}"}
            break
        if running == "cuda":  # all of the CPU is done
            old = sections.get("cuda", {"available": False})
            sections["cuda"] = {**old, "crashed": True, "reason": ending}
            results.update({name: {"outcome": "skipped", "message": ending} for name in missing})
            break
        if running:
            results[running] = {"outcome": "failed", "message": ending}
        elif len(results) == first:  # it ended in order, and did nothing
            break
        if time.monotonic() >= end:
            break
    cuda = sections.get("cuda", {"available": False, "reason": "not reached"})
    return {
        "schema": SCHEMA,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(time.monotonic() - began, 3),
        "measure": MEASURE,
        "python": python_facts(),
        "cpu": cpu_facts(),
        "driver": driver_facts(),
        "torch": sections.get("torch", {"import_error": "not reached"}),
        "cuda": {"device": arguments.device, **cuda},
        "tests": [
            {"name": name, **results.get(name, {"outcome": "not run", "message": ""})}
            for name in names
        ],
    }


def watch(
    arguments: argparse.Namespace,
    first: int,
    end: float,
    sections: dict[str, Facts],
    results: dict[str, Facts],
) -> tuple[str, str]:
    """Run the work once. Returns what was running when it ended (or ""), and how it ended."""
    ours, theirs = os.pipe()
    argv = [sys.executable, str(Path(__file__).resolve()), "--pipe", str(theirs)]
    argv += ["--first", str(first), "--device", str(arguments.device)]
    argv += ["--cpu-only"] if arguments.cpu_only else []
    # stdout belongs to the JSON alone: whatever libraries print there goes to stderr.
    process = subprocess.Popen(argv, pass_fds=[theirs], stdout=2, stdin=subprocess.DEVNULL)
    os.close(theirs)
    running = ""
    try:
        for line in lines(ours, end):
            running = line.get("begin", "")
            if "test" in line:
                results[line["test"]] = line["value"]
            elif "section" in line:  # what the first process found stays
                sections.setdefault(line["section"], line["value"])
    except TimeoutError:
        process.kill()
        process.wait()
        return running, f"still running when the limit of {arguments.limit:g} s was reached"
    finally:
        os.close(ours)
    code = process.wait()
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return running, f"ended by {names.get(-code, f'signal {-code}')}"
    return running, f"ended with exit code {code}"


def lines(pipe: int, end: float) -> Iterator[Facts]:
    """What the work tells, line by line, until it ends. Raises TimeoutError at the time `end`."""
    buffer = b""
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if not select.select([pipe], [], [], min(left, 60))[0]:
            continue
        chunk = os.read(pipe, 65536)
        if not chunk:
            return
        *whole, buffer = (buffer + chunk).split(b"\n")
        yield from map(json.loads, whole)


def python_facts() -> Facts:
    """The Python that runs this."""
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "system": sys.platform,
        "machine": platform.machine(),
    }


def cpu_facts() -> Facts:
    """The CPU as Linux describes it: x86 says `flags`, ARM `Features`."""
    text = text_of("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)", text, re.MULTILINE)
    return {
        "model": model[1].strip() if model else "",
        "flags": flags[1].split() if flags else [],
    }


def driver_facts() -> Facts:
    """The NVIDIA driver of this machine, whether torch reaches it or not."""
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
    """A file of /proc, or nothing."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def main() -> None:
    """Take the arguments; print the report, or do the work."""
    parser = argparse.ArgumentParser(description="Prove a PyTorch by real work; JSON on stdout.")
    parser.add_argument("--device", type=int, default=0, help="which GPU (default: 0)")
    parser.add_argument("--cpu-only", action="store_true", help="leave the GPU alone")
    parser.add_argument("--limit", type=float, default=0, help="seconds that all may take")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--pipe", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device < 0:
        parser.error("--device: 0 or more")
    # Our own folder holds other modules; none of them may stand in for one that torch imports.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]
    if arguments.pipe is not None:
        work(arguments)
    else:
        sys.stdout.write(json.dumps(report(arguments), indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
