"""Time workloads of a PyTorch in one process and print JSON on stdout: one half of a round.

    python workloads.py DEVICE [NAME ...]

Run it with the Python whose torch is to be measured. DEVICE is `cpu` or the number of a GPU;
without a name all workloads are timed. A build decides itself what it makes of OMP_NUM_THREADS.

torch.utils.benchmark measures. On a CPU the fastest of its blocks counts, because other work on a
machine only ever adds time, and the import is measured in CPU seconds for the same reason; on a GPU
the median counts. A workload that fails has its error in the document, a torch that fails none.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

SECONDS, SHORTEST = 0.2, 0.3e-3
"""Least seconds for a workload, and for a block of its calls on a CPU."""

Call = Callable[[], Any]
Random = Callable[..., Any]
"""Makes a random tensor of a shape on the device; a second argument is its type."""
Workload = Callable[[Any, Random], Call]
"""Takes torch and `Random`, and returns what is timed."""


def applied(
    function: str, *shapes: tuple[int, ...], dtype: str = "float32", **named: Any
) -> Workload:
    """Apply a function of torch to random tensors of these shapes."""
    return lambda t, random: partial(
        attrgetter(function)(t), *(random(shape, dtype) for shape in shapes), **named
    )


def encoder(t: Any, random: Random) -> Call:
    """Run a layer of a transformer, forward and backward."""
    layer = t.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    y = random((2, 32, 128))
    return partial(t.enable_grad()(lambda: layer(y).sum().backward()))


def small_operations(_t: Any, random: Random) -> Call:
    """Run 300 operations that take no time themselves."""
    y = random((8,))
    return lambda: [y.add(y).mul(y).sub(y) for _ in range(100)]


def matmul_fp8(t: Any, random: Random) -> Call:
    """Multiply in FP8, which GPUs since 8.9 can."""
    a, b = (random((10240, 10240), "float8_e4m3fn") for _ in "ab")
    one = t.ones((), device=a.device)
    return partial(t._scaled_mm, a, b.t(), scale_a=one, scale_b=one, out_dtype=t.bfloat16)


def adamw(t: Any, random: Random) -> Call:
    """Update eight weights in one kernel."""
    weights = [random((4096, 4096)).requires_grad_() for _ in range(8)]
    for weight in weights:
        weight.grad = random((4096, 4096))
    return partial(t.optim.AdamW(weights, fused=True).step)


BF16, FP16 = "bfloat16", "float16"
CONV2D, LAYER_NORM = "nn.functional.conv2d", "nn.functional.layer_norm"
ATTENTION = "nn.functional.scaled_dot_product_attention"
FILTERS = (64, 64, 3, 3)
WORKLOADS: dict[str, dict[str, Workload]] = {
    "cpu": {
        "matmul fp32 large": applied("matmul", *[(384, 384)] * 2),
        "matmul fp32 small": applied("matmul", *[(64, 64)] * 2),
        "matmul bf16 large": applied("matmul", *[(128, 128)] * 2, dtype=BF16),
        "matmul bf16 small": applied("matmul", *[(64, 64)] * 2, dtype=BF16),
        "batched matmul": applied("bmm", *[(64, 96, 96)] * 2),
        "conv2d": applied(CONV2D, (2, 64, 28, 28), FILTERS, padding=1),
        "attention fp32": applied(ATTENTION, *[(1, 4, 256, 64)] * 3),
        "attention bf16": applied(ATTENTION, *[(1, 4, 256, 64)] * 3, dtype=BF16),
        "element-wise": applied("nn.functional.gelu", (200, 500)),
        "softmax": applied("softmax", (512, 1024), dim=1),
        "layer norm": applied(LAYER_NORM, (1024, 768), normalized_shape=(768,)),
        "embedding bag": lambda t, random: partial(
            t.nn.functional.embedding_bag,
            t.randint(0, 50_000, (512, 64)),
            random((50_000, 64)),
            mode="sum",
        ),
        "FFT": applied("fft.fft", (256, 1000)),
        "eigh": applied("linalg.eigh", (128, 128)),
        "solve": applied("linalg.solve", (256, 256), (256, 16)),
        "encoder layer": encoder,
        "300 small operations": small_operations,
    },
    "gpu": {
        "matmul fp16": applied("matmul", *[(8192, 8192)] * 2, dtype=FP16),
        "matmul bf16": applied("matmul", *[(8192, 8192)] * 2, dtype=BF16),
        "matmul fp8": matmul_fp8,
        "attention bf16": applied(ATTENTION, *[(8, 16, 4096, 128)] * 3, dtype=BF16),
        "conv2d fp16": applied(CONV2D, (256, 64, 112, 112), FILTERS, dtype=FP16, padding=1),
        "layer norm": applied(LAYER_NORM, (1 << 16, 8192), normalized_shape=(8192,)),
        "fused optimizer step": adamw,
        "launch overhead": small_operations,
    },
}
STARTS = {"cpu": "import torch", "gpu": "import to first kernel"}
"""The workload that every process measures when it starts."""


def seconds_of(torch: Any, timer: Any, device: str, workload: Workload) -> float:
    """Return the seconds of one call, by PyTorch's class Timer. Raises what torch raises."""

    def random(shape: tuple[int, ...], dtype: str = "float32") -> Any:
        return torch.randn(shape, device=device).to(getattr(torch, dtype))

    torch.manual_seed(0)
    with torch.no_grad():
        call = workload(torch, random)
        timed = timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
        if device != "cpu":
            return float(statistics.median(timed.blocked_autorange(min_run_time=SECONDS).times))
        timed.timeit(1)
        calls = max(1, round(SHORTEST / max(timed.timeit(1).mean, 1e-9)))
        end = time.perf_counter() + SECONDS
        fastest = timed.timeit(calls).mean
        while time.perf_counter() < end:
            fastest = min(fastest, timed.timeit(calls).mean)
        return float(fastest)


def document(device: str, names: list[str]) -> dict[str, Any]:
    """Import torch, time the workloads of these names (empty: all) and return the document."""
    kind, name = ("cpu", "cpu") if device == "cpu" else ("gpu", f"cuda:{device}")
    began, used = time.perf_counter(), time.process_time()
    torch, gpu = importlib.import_module("torch"), ""
    start = time.process_time() - used
    if kind == "gpu":
        torch.cuda.set_device(name)
        torch.ones(1, device=name).add(1).item()
        start = time.perf_counter() - began
        gpu = torch.cuda.get_device_name(name)
    timer = importlib.import_module("torch.utils.benchmark").Timer  # which imports setuptools
    seconds, errors = {STARTS[kind]: start}, {}
    for workload in names or WORKLOADS[kind]:
        try:
            seconds[workload] = seconds_of(torch, timer, name, WORKLOADS[kind][workload])
        except Exception as error:
            errors[workload] = f"{type(error).__name__}: {' '.join(f'{error}'.split())[:300]}"
    threads = torch.get_num_threads()
    return {"gpu": gpu, "threads": threads, "seconds": seconds, "errors": errors}


if __name__ == "__main__":
    # torch must not import a module that happens to lie beside this file.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print does not mix with the document
    with out:
        json.dump(document(sys.argv[1], sys.argv[2:]), out)
