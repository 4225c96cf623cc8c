"""Time workloads of a PyTorch in one process and print JSON on stdout: one half of a round.

This file needs nothing beside it: run it with the Python whose torch is to be measured.

    python workload_script.py [--device cpu|INDEX] [--workload NAME ...] [--facts]

Threads are those of the environment (OMP_NUM_THREADS and the like): a build decides itself what it
makes of them. On a CPU each workload is warmed up and called in batches of at least 0.3 ms for
SECONDS; its time is that of one call in the fastest batch, because other work on a machine only
ever adds time; the import is measured in CPU seconds for the same reason. On a GPU, CUDA events
time batches of at least 10 ms, and the median counts.

Exit code 0: the document is complete, and a workload that failed has its error; 2: wrong arguments.
To add a workload, add a line to WORKLOADS.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import re
import statistics
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Facts = dict[str, Any]
Run = Callable[[int], float]
"""Takes a number of calls and returns the seconds that they took."""

FORMAT = 1
SECONDS, SHORTEST, FEWEST = 0.2, 0.3e-3, 5
GPU_BATCH, GPU_BATCHES = 10e-3, 7
POOLS = re.compile(
    r"/[^\n]*/(lib(?:gomp|iomp5|omp|openblas|blis|tbb|mkl_\w*thread)[^/\n]*)$", re.MULTILINE
)
"""Libraries that hold a pool of threads, as /proc/self/maps names them."""


class Workload(NamedTuple):
    """One measured piece of work, in Python: `setup` runs once, `call` is timed.

    They see `torch`, `F` (torch.nn.functional) and `x`, which makes a random tensor of a shape.
    `clock`: `device`; `host`, also on a GPU; or `once`, one call without a warm-up.
    `capability`: the oldest GPU.
    """

    name: str
    setup: str
    call: str
    clock: str = "device"
    capability: tuple[int, int] = (0, 0)


SMALL = """
def small():
    z = y
    for _ in range(100):
        z = z.add(y).mul(y).sub(y)
y = x(8)
"""
ENCODER = """
layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
y = x(2, 32, 128)
def step():
    with torch.enable_grad():
        layer(y).sum().backward()
"""
OPTIMIZER = """
weights = [x(4096, 4096).requires_grad_() for _ in range(8)]
for weight in weights:
    weight.grad = x(4096, 4096)
optimizer = torch.optim.AdamW(weights, fused=True)
"""
COMPILED = """
import os
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
def graph(z):
    return torch.softmax(torch.tanh(z).mul(z), dim=1).sum()
y = x(1024, 1024)
"""
FP8 = """
a, b = (x(10240, 10240).to(torch.float8_e4m3fn) for _ in range(2))
one = torch.ones((), device=a.device)
"""
SCALED = "torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)"
ELEMENTWISE = "torch.tanh(y).mul(torch.exp(y)).add(torch.sigmoid(y)).sum()"
ATTENTION = "F.scaled_dot_product_attention(q, k, v)"
TABLE = "table, rows = x(50_000, 64), torch.randint(0, 50_000, (512, 64))"
NORM = "F.layer_norm(y, w.shape, w, b)"
CPU = (
    Workload("matmul fp32 large", "a, b = x(2, 384, 384)", "torch.mm(a, b)"),
    Workload("matmul fp32 small", "a, b = x(2, 64, 64)", "torch.mm(a, b)"),
    Workload("matmul bf16 large", "a, b = x(2, 128, 128).bfloat16()", "torch.mm(a, b)"),
    Workload("matmul bf16 small", "a, b = x(2, 64, 64).bfloat16()", "torch.mm(a, b)"),
    Workload("batched matmul", "a, b = x(2, 64, 96, 96)", "torch.bmm(a, b)"),
    Workload("conv2d", "y, w = x(2, 64, 28, 28), x(64, 64, 3, 3)", "F.conv2d(y, w, padding=1)"),
    Workload("attention fp32", "q, k, v = x(3, 1, 4, 256, 64)", ATTENTION),
    Workload("attention bf16", "q, k, v = x(3, 1, 4, 256, 64).bfloat16()", ATTENTION),
    Workload("element-wise", "y = x(200, 500)", ELEMENTWISE),
    Workload("softmax", "y = x(512, 1024)", "torch.softmax(y, 1)"),
    Workload("layer norm", "y, w, b = x(1024, 768), x(768), x(768)", NORM),
    Workload("embedding bag", TABLE, "F.embedding_bag(rows, table, mode='sum')"),
    Workload("FFT", "y = x(256, 1000)", "torch.fft.fft(y)"),
    Workload("eigh", "y = x(128, 128); y = y.add(y.t())", "torch.linalg.eigh(y)"),
    Workload("solve", "a, b = x(256, 256), x(256, 16)", "torch.linalg.solve(a, b)"),
    Workload("encoder layer", ENCODER, "step()"),
    Workload("300 small operations", SMALL, "small()"),
)
TF32 = "torch.set_float32_matmul_precision('high'); a, b = x(2, 8192, 8192)"
GPU = (
    Workload("matmul fp16", "a, b = x(2, 8192, 8192).half()", "torch.mm(a, b)"),
    Workload("matmul bf16", "a, b = x(2, 8192, 8192).bfloat16()", "torch.mm(a, b)"),
    Workload("matmul tf32", TF32, "torch.mm(a, b)"),
    Workload("matmul fp8", FP8, SCALED, capability=(8, 9)),
    Workload("attention bf16", "q, k, v = x(3, 8, 16, 4096, 128).bfloat16()", ATTENTION),
    Workload(
        "conv2d fp16",
        "y, w = x(256, 64, 112, 112).half(), x(64, 64, 3, 3).half()",
        "F.conv2d(y, w, padding=1)",
    ),
    Workload("layer norm", "y, w, b = x(1 << 16, 8192), x(8192), x(8192)", NORM),
    Workload("fused optimizer step", OPTIMIZER, "optimizer.step()"),
    Workload("launch overhead", SMALL, "small(); torch.cuda.synchronize()", "host"),
    Workload(
        "torch.compile", COMPILED, "torch.compile(graph)(y); torch.cuda.synchronize()", "once"
    ),
)
WORKLOADS = {"cpu": CPU, "gpu": GPU}
STARTS = {"cpu": "import torch", "gpu": "import to first kernel"}
"""The workload that every process measures when it starts."""


def names(kind: str) -> list[str]:
    """Return the names of all workloads of `cpu` or `gpu`."""
    return [STARTS[kind], *(workload.name for workload in WORKLOADS[kind])]


def on_host(run: Run) -> float:
    """Return the seconds of one call in the fastest batch."""
    run(1)
    calls = max(1, round(SHORTEST / max(run(1), 1e-9)))
    batches: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(batches) < FEWEST or time.perf_counter() < end:
        batches.append(run(calls) / calls)
    return min(batches)


def on_gpu(torch: Any, run: Run) -> float:
    """Return the median of the device seconds of one call."""

    def batch(calls: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run(calls)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / calls

    batch(3)
    calls = max(1, round(GPU_BATCH / max(batch(3), 1e-6)))
    return statistics.median(batch(calls) for _ in range(GPU_BATCHES))


def measured(torch: Any, device: str, workload: Workload) -> Facts:
    """Return the seconds of one call, or why there are none."""

    def x(*shape: int) -> Any:
        return torch.randn(*shape, device=device)

    if device != "cpu" and torch.cuda.get_device_capability(device) < workload.capability:
        return {"name": workload.name, "error": "needs a newer GPU"}
    try:
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("highest")
        seen = {"torch": torch, "F": torch.nn.functional, "x": x}
        with torch.no_grad():
            exec(workload.setup, seen)  # noqa: S102 - of this file
            run = timeit.Timer(workload.call, globals=seen).timeit
            if workload.clock == "once":
                seconds = run(1)
            elif device == "cpu" or workload.clock == "host":
                seconds = on_host(run)
            else:
                seconds = on_gpu(torch, run)
    except Exception as error:
        return {"name": workload.name, "error": one_line(error)}
    return {"name": workload.name, "seconds": seconds}


def one_line(error: BaseException) -> str:
    """Return an exception in one line."""
    return f"{type(error).__name__}: {' '.join(f'{error}'.split())[:300]}"


def torch_facts(torch: Any) -> Facts:
    """Return what torch says of itself, and the pools of threads that are loaded."""
    maps = Path("/proc/self/maps")
    pools = POOLS.finditer(maps.read_text(errors="replace") if maps.exists() else "")
    return {
        "version": str(torch.__version__),
        "file": torch.__file__,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "variable": os.environ.get("OMP_NUM_THREADS", ""),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "pools": sorted({found[0] for found in pools}),
        "config": torch.__config__.show(),
        "parallel": torch.__config__.parallel_info(),
    }


def resident() -> int:
    """Return the bytes of memory that this process holds; 0 where that is unknown."""
    status = Path("/proc/self/status")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text() if status.exists() else "")
    return int(found[1]) << 10 if found else 0


def document(device: str, wanted: list[str], *, facts_only: bool) -> Facts:
    """Import torch, time the wanted workloads (empty: all) and return the document."""
    kind, name = ("cpu", "cpu") if device == "cpu" else ("gpu", f"cuda:{device}")
    found: Facts = {"format": FORMAT, "python": platform.python_version()}
    began, used = time.perf_counter(), time.process_time()
    try:
        torch = importlib.import_module("torch")
        found |= {"torch": torch_facts(torch), "resident": resident()}
        seconds = time.process_time() - used
        if kind == "gpu":
            torch.cuda.set_device(name)
            torch.ones(1, device=name).add(1).item()
            seconds = time.perf_counter() - began
            gpu, free = torch.cuda.get_device_properties(name), torch.cuda.mem_get_info(name)[0]
            capability = f"{gpu.major}.{gpu.minor}"
            found["gpu"] = {"name": gpu.name, "capability": capability, "free": free}
    except BaseException as error:  # a broken torch may raise anything
        return {**found, "error": one_line(error)}
    results = [{"name": STARTS[kind], "seconds": seconds}]
    if not facts_only:
        chosen = [w for w in WORKLOADS[kind] if not wanted or w.name in wanted]
        results += [measured(torch, name, workload) for workload in chosen]
        found["torch"] = torch_facts(torch)  # libraries that were loaded late are among the pools
    return {**found, "results": results}


def main() -> None:
    """Read the arguments and print the document."""
    parser = argparse.ArgumentParser(description="Time workloads of a PyTorch; print JSON.")
    parser.add_argument("--device", default="cpu", help="cpu, or the number of a GPU")
    parser.add_argument("--workload", action="append", default=[], help="only this; repeatable")
    parser.add_argument("--facts", action="store_true", help="only what torch says of itself")
    arguments = parser.parse_args()
    if arguments.device != "cpu" and not arguments.device.isdigit():
        parser.error("--device: cpu or a number")
    # torch must not import a module that happens to lie beside this file.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print does not mix with the document
    with out:
        json.dump(document(arguments.device, arguments.workload, facts_only=arguments.facts), out)


if __name__ == "__main__":
    main()
