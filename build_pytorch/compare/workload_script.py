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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

Facts = dict[str, Any]
Call = Callable[[], Any]
Prepare = Callable[[Any, Any], Call]

FORMAT = 1
SECONDS, SHORTEST, FEWEST = 0.2, 0.3e-3, 5
GPU_BATCH, GPU_BATCHES = 10e-3, 7
POOLS = re.compile(
    r"/[^\n]*/(lib(?:gomp|iomp5|omp|openblas|blis|tbb|mkl_\w*thread)[^/\n]*)$", re.MULTILINE
)
"""Libraries that hold a pool of threads, as /proc/self/maps names them."""


class Workload(NamedTuple):
    """One measured piece of work.

    `prepare` takes torch and a function that makes random tensors of a shape, and returns what is
    timed; with `alone` it returns seconds that it measured itself. `capability`: the oldest GPU.
    """

    name: str
    prepare: Callable[[Any, Any], Any]
    alone: bool = False
    capability: tuple[int, int] = (0, 0)


def products(count: int, size: int, dtype: str = "float32", precision: str = "highest") -> Prepare:
    """Multiply so many pairs of square matrices in one call."""

    def prepare(torch: Any, tensor: Any) -> Call:
        torch.set_float32_matmul_precision(precision)
        a, b = (tensor(count, size, size, dtype=dtype) for _ in range(2))
        return partial(torch.mm, a[0], b[0]) if count == 1 else partial(torch.bmm, a, b)

    return prepare


def fp8_product(torch: Any, tensor: Any) -> Call:
    """Multiply FP8 (e4m3) matrices with FP32 sums."""
    a, b = (tensor(8192, 8192, dtype="float8_e4m3fn") for _ in range(2))
    scales = dict.fromkeys(("scale_a", "scale_b"), torch.ones((), device=a.device))
    return partial(torch._scaled_mm, a, b.t(), **scales, out_dtype=torch.bfloat16)


def attention(*shape: int, dtype: str) -> Prepare:
    """Compute scaled dot-product attention; `shape`: batch, heads, length, width."""
    return lambda torch, tensor: partial(
        torch.nn.functional.scaled_dot_product_attention,
        *(tensor(*shape, dtype=dtype) for _ in range(3)),
    )


def convolution(images: int, size: int, dtype: str) -> Prepare:
    """Convolve images of 64 channels with 3 x 3 filters."""
    return lambda torch, tensor: partial(
        torch.nn.functional.conv2d,
        tensor(images, 64, size, size, dtype=dtype),
        tensor(64, 64, 3, 3, dtype=dtype),
        padding=1,
    )


def layer_norm(rows: int, width: int) -> Prepare:
    """Normalise rows."""
    return lambda torch, tensor: partial(
        torch.nn.functional.layer_norm, tensor(rows, width), (width,), tensor(width), tensor(width)
    )


def elementwise(torch: Any, tensor: Any) -> Call:
    """Run vectorised kernels and a reduction."""
    x = tensor(200, 500)
    return lambda: torch.tanh(x).mul(torch.exp(x)).add(torch.sigmoid(x)).sum()


def embedding_bag(torch: Any, tensor: Any) -> Call:
    """Sum 64 rows of a table for each of 512 bags."""
    table, rows = tensor(50_000, 64), torch.randint(0, 50_000, (512, 64))
    return partial(torch.nn.functional.embedding_bag, rows, table, mode="sum")


def eigenvalues(torch: Any, tensor: Any) -> Call:
    """Find the eigenvalues of a symmetric matrix, with LAPACK on a CPU."""
    x = tensor(128, 128)
    return partial(torch.linalg.eigh, x.add(x.t()))


def encoder(torch: Any, tensor: Any) -> Call:
    """Run an encoder layer forward and backward."""
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    x = tensor(2, 32, 128)

    def step() -> None:
        with torch.enable_grad():
            layer(x).sum().backward()

    return step


def small_operations(_torch: Any, tensor: Any) -> Call:
    """Run 300 operations on a tiny tensor: the overhead of each call."""
    x = tensor(8)

    def run() -> None:
        y = x
        for _ in range(100):
            y = y.add(x).mul(x).sub(x)

    return run


def launch_overhead(torch: Any, tensor: Any) -> float:
    """Return the seconds of one launch by the clock of the host: 300 tiny kernels, 50 times."""
    run = small_operations(torch, tensor)

    def launched() -> None:
        run()
        torch.cuda.synchronize()

    return on_cpu(launched) / 300


def optimizer_step(torch: Any, tensor: Any) -> Call:
    """Take a fused AdamW step of 128 million parameters."""
    weights = [tensor(4096, 4096).requires_grad_() for _ in range(8)]
    for weight in weights:
        weight.grad = tensor(4096, 4096)
    step: Call = torch.optim.AdamW(weights, fused=True).step
    return step


def compile_graph(torch: Any, tensor: Any) -> float:
    """Return the seconds that torch.compile takes for a small graph, without a cache."""
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    x, began = tensor(1024, 1024), time.perf_counter()
    torch.compile(lambda x: torch.softmax(torch.tanh(x).mul(x), dim=1).sum())(x)
    torch.cuda.synchronize()
    return time.perf_counter() - began


CPU = (
    Workload("matmul fp32 large", products(1, 384)),
    Workload("matmul fp32 small", products(1, 64)),
    Workload("matmul bf16 large", products(1, 128, "bfloat16")),
    Workload("matmul bf16 small", products(1, 64, "bfloat16")),
    Workload("batched matmul", products(64, 96)),
    Workload("conv2d", convolution(2, 28, "float32")),
    Workload("attention fp32", attention(1, 4, 256, 64, dtype="float32")),
    Workload("attention bf16", attention(1, 4, 256, 64, dtype="bfloat16")),
    Workload("element-wise", elementwise),
    Workload("softmax", lambda torch, tensor: partial(torch.softmax, tensor(512, 1024), 1)),
    Workload("layer norm", layer_norm(1024, 768)),
    Workload("embedding bag", embedding_bag),
    Workload("FFT", lambda torch, tensor: partial(torch.fft.fft, tensor(256, 1000))),
    Workload("eigh", eigenvalues),
    Workload(
        "solve",
        lambda torch, tensor: partial(torch.linalg.solve, tensor(256, 256), tensor(256, 16)),
    ),
    Workload("encoder layer", encoder),
    Workload("300 small operations", small_operations),
)
GPU = (
    Workload("matmul fp16", products(1, 8192, "float16")),
    Workload("matmul bf16", products(1, 8192, "bfloat16")),
    Workload("matmul tf32", products(1, 8192, precision="high")),
    Workload("matmul fp8", fp8_product, capability=(8, 9)),
    Workload("attention bf16", attention(8, 16, 4096, 128, dtype="bfloat16")),
    Workload("conv2d fp16", convolution(256, 112, "float16")),
    Workload("layer norm", layer_norm(1 << 16, 8192)),
    Workload("fused optimizer step", optimizer_step),
    Workload("launch overhead", launch_overhead, alone=True),
    Workload("torch.compile", compile_graph, alone=True),
)
WORKLOADS = {"cpu": CPU, "gpu": GPU}
STARTS = {"cpu": "import torch", "gpu": "import to first kernel"}
"""The workload that every process measures when it starts."""


def names(kind: str) -> list[str]:
    """Return the names of all workloads of `cpu` or `gpu`."""
    return [STARTS[kind], *(workload.name for workload in WORKLOADS[kind])]


def on_cpu(call: Call) -> float:
    """Return the seconds of one call in the fastest batch."""
    call()
    began = time.perf_counter()
    call()
    calls = max(1, round(SHORTEST / max(time.perf_counter() - began, 1e-9)))
    batches: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(batches) < FEWEST or time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(calls):
            call()
        batches.append((time.perf_counter() - began) / calls)
    return min(batches)


def on_gpu(torch: Any, call: Call) -> float:
    """Return the median of the device seconds of one call."""

    def batch(calls: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / calls

    batch(3)
    calls = max(1, round(GPU_BATCH / max(batch(3), 1e-6)))
    return statistics.median(batch(calls) for _ in range(GPU_BATCHES))


def measured(torch: Any, device: str, workload: Workload) -> Facts:
    """Return the seconds of one call, or why there are none."""

    def tensor(*shape: int, dtype: str = "float32") -> Any:
        return torch.randn(*shape, device=device).to(getattr(torch, dtype))

    if device != "cpu" and torch.cuda.get_device_capability(device) < workload.capability:
        return {"name": workload.name, "error": "needs a newer GPU"}
    try:
        torch.manual_seed(0)
        with torch.no_grad():
            seconds = workload.prepare(torch, tensor)
            if not workload.alone:
                seconds = on_cpu(seconds) if device == "cpu" else on_gpu(torch, seconds)
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
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "pools": sorted({found[0] for found in pools}),
        "config": torch.__config__.show(),
        "parallel": torch.__config__.parallel_info(),
    }


def gpu_facts(torch: Any, device: str) -> Facts:
    """Return the GPU and its free memory after the first kernel."""
    gpu = torch.cuda.get_device_properties(device)
    free = torch.cuda.mem_get_info(device)[0]
    return {"name": gpu.name, "capability": f"{gpu.major}.{gpu.minor}", "free": free}


def resident() -> int:
    """Return the bytes of memory that this process holds; 0 where that is unknown."""
    status = Path("/proc/self/status")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text() if status.exists() else "")
    return int(found[1]) << 10 if found else 0


def document(device: str, wanted: list[str], *, facts_only: bool) -> Facts:
    """Import torch, time the wanted workloads (empty: all) and return the document."""
    kind, name = ("cpu", "cpu") if device == "cpu" else ("gpu", f"cuda:{device}")
    found: Facts = {"format": FORMAT, "python": platform.python_version(), "declared": names(kind)}
    began, used = time.perf_counter(), time.process_time()
    try:
        torch = importlib.import_module("torch")
        found |= {"torch": torch_facts(torch), "resident": resident()}
        seconds = time.process_time() - used
        if kind == "gpu":
            torch.cuda.set_device(name)
            torch.ones(1, device=name).add(1).item()
            seconds = time.perf_counter() - began
            found["gpu"] = gpu_facts(torch, name)
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
