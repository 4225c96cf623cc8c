"""Time workloads of a PyTorch in one process and print JSON on stdout: one half of a round.

    python workloads.py [--device cpu|INDEX] [--workload NAME ...]

Run it with the Python whose torch is to be measured; it needs nothing beside it. Threads are those
of the environment (OMP_NUM_THREADS and the like): a build decides itself what it makes of them.

torch.utils.benchmark measures. On a CPU the fastest of its blocks counts, because other work on a
machine only ever adds time, and the import is measured in CPU seconds for the same reason; on a GPU
the median counts.

Exit code 0: the document is complete, and a workload that failed has its error; 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = 2
SECONDS, SHORTEST = 0.2, 0.3e-3
"""Least seconds for a workload, and for a block of its calls on a CPU."""

Inputs = Callable[[Any, str], list[Any]]
"""Takes torch and a device, and returns what a workload needs."""


class Workload(NamedTuple):
    """One measured piece of work: `call` takes torch and the inputs.

    `once`: one call, without a warm-up. `capability`: the oldest GPU.
    """

    name: str
    inputs: Inputs
    call: Callable[..., Any]
    once: bool = False
    capability: tuple[int, int] = (0, 0)


def x(*shape: int, number: int = 1, dtype: str = "float32") -> Inputs:
    """Return a function that makes random tensors."""
    return lambda t, device: [
        t.randn(*shape, device=device).to(getattr(t, dtype)) for _ in range(number)
    ]


def images(*shape: int, dtype: str = "float32") -> Inputs:
    """Return images of 64 channels, and filters."""
    make, filters = x(*shape, dtype=dtype), x(64, 64, 3, 3, dtype=dtype)
    return lambda t, device: make(t, device) + filters(t, device)


def table(t: Any, device: str) -> list[Any]:
    """Return numbers of rows, 512 times 64, and the table."""
    return [t.randint(0, 50_000, (512, 64)), *x(50_000, 64)(t, device)]


def encoder(t: Any, device: str) -> list[Any]:
    """Return a layer of a transformer, and its input."""
    layer = t.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    return [layer, *x(2, 32, 128)(t, device)]


def fp8(t: Any, device: str) -> list[Any]:
    """Return two matrices in FP8, and their scale."""
    return [*x(10240, 10240, number=2, dtype="float8_e4m3fn")(t, device), t.ones((), device=device)]


def adamw(t: Any, device: str) -> list[Any]:
    """Return an optimizer of eight weights, which it updates in one kernel."""
    weights = [weight.requires_grad_() for weight in x(4096, 4096, number=8)(t, device)]
    for weight in weights:
        weight.grad = t.randn(4096, 4096, device=device)
    return [t.optim.AdamW(weights, fused=True)]


def mm(t: Any, a: Any, b: Any) -> Any:
    """Multiply two matrices."""
    return t.mm(a, b)


def mm_tf32(t: Any, a: Any, b: Any) -> Any:
    """Multiply on tensor cores."""
    t.set_float32_matmul_precision("high")
    return t.mm(a, b)


def mm_fp8(t: Any, a: Any, b: Any, one: Any) -> Any:
    """Multiply in FP8."""
    return t._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=t.bfloat16)


def conv2d(t: Any, y: Any, w: Any) -> Any:
    """Convolve images with 3 x 3 filters."""
    return t.nn.functional.conv2d(y, w, padding=1)


def attention(t: Any, q: Any, k: Any, v: Any) -> Any:
    """Compute scaled dot-product attention."""
    return t.nn.functional.scaled_dot_product_attention(q, k, v)


def layer_norm(t: Any, y: Any) -> Any:
    """Normalise rows."""
    return t.nn.functional.layer_norm(y, y.shape[-1:])


def embedding_bag(t: Any, rows: Any, w: Any) -> Any:
    """Add up rows of a table."""
    return t.nn.functional.embedding_bag(rows, w, mode="sum")


def step(t: Any, layer: Any, y: Any) -> None:
    """Run a layer, forward and backward."""
    with t.enable_grad():
        layer(y).sum().backward()


def small_operations(t: Any, y: Any) -> Any:
    """Run 300 operations that take no time themselves."""
    z = y
    for _ in range(100):
        z = z.add(y).mul(y).sub(y)
    return z


def compiled(t: Any, y: Any) -> Any:
    """Compile a function and run it."""
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    return t.compile(lambda z: t.softmax(t.tanh(z).mul(z), dim=1).sum())(y)


W, BF16, FP16 = Workload, "bfloat16", "float16"
WORKLOADS = {
    "cpu": (
        W("matmul fp32 large", x(384, 384, number=2), mm),
        W("matmul fp32 small", x(64, 64, number=2), mm),
        W("matmul bf16 large", x(128, 128, number=2, dtype=BF16), mm),
        W("matmul bf16 small", x(64, 64, number=2, dtype=BF16), mm),
        W("batched matmul", x(64, 96, 96, number=2), lambda t, a, b: t.bmm(a, b)),
        W("conv2d", images(2, 64, 28, 28), conv2d),
        W("attention fp32", x(1, 4, 256, 64, number=3), attention),
        W("attention bf16", x(1, 4, 256, 64, number=3, dtype=BF16), attention),
        W("element-wise", x(200, 500), lambda t, y: (t.tanh(y) * t.exp(y) + t.sigmoid(y)).sum()),
        W("softmax", x(512, 1024), lambda t, y: t.softmax(y, 1)),
        W("layer norm", x(1024, 768), layer_norm),
        W("embedding bag", table, embedding_bag),
        W("FFT", x(256, 1000), lambda t, y: t.fft.fft(y)),
        W("eigh", x(128, 128), lambda t, y: t.linalg.eigh(y + y.t())),
        W("solve", x(256, 256, number=2), lambda t, a, b: t.linalg.solve(a, b[:, :16])),
        W("encoder layer", encoder, step),
        W("300 small operations", x(8), small_operations),
    ),
    "gpu": (
        W("matmul fp16", x(8192, 8192, number=2, dtype=FP16), mm),
        W("matmul bf16", x(8192, 8192, number=2, dtype=BF16), mm),
        W("matmul tf32", x(8192, 8192, number=2), mm_tf32),
        W("matmul fp8", fp8, mm_fp8, capability=(8, 9)),
        W("attention bf16", x(8, 16, 4096, 128, number=3, dtype=BF16), attention),
        W("conv2d fp16", images(256, 64, 112, 112, dtype=FP16), conv2d),
        W("layer norm", x(1 << 16, 8192), layer_norm),
        W("fused optimizer step", adamw, lambda t, optimizer: optimizer.step()),
        W("launch overhead", x(8), small_operations),
        W("torch.compile", x(1024, 1024), compiled, once=True),
    ),
}
STARTS = {"cpu": "import torch", "gpu": "import to first kernel"}
"""The workload that every process measures when it starts."""


def names(kind: str) -> list[str]:
    """Return the names of all workloads of `cpu` or `gpu`."""
    return [STARTS[kind], *(workload.name for workload in WORKLOADS[kind])]


def seconds_of(torch: Any, timer: Any, device: str, workload: Workload) -> float:
    """Return the seconds of one call, by PyTorch's class Timer. Raises what torch raises."""
    if device != "cpu" and torch.cuda.get_device_capability(device) < workload.capability:
        raise RuntimeError("needs a newer GPU")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    with torch.no_grad():
        inputs = workload.inputs(torch, device)
        if workload.once:
            began = time.perf_counter()
            workload.call(torch, *inputs)
            torch.cuda.synchronize()
            return time.perf_counter() - began
        variables = {"call": workload.call, "torch": torch, "inputs": inputs}
        threads = torch.get_num_threads()
        timed = timer("call(torch, *inputs)", globals=variables, num_threads=threads)
        if device != "cpu":
            return float(statistics.median(timed.blocked_autorange(min_run_time=SECONDS).times))
        timed.timeit(1)
        calls = max(1, round(SHORTEST / max(timed.timeit(1).mean, 1e-9)))
        seconds: list[float] = []
        end = time.perf_counter() + SECONDS
        while not seconds or time.perf_counter() < end:
            seconds.append(timed.timeit(calls).mean)
        return min(seconds)


def one_line(error: BaseException) -> str:
    """Return an exception in one line."""
    return f"{type(error).__name__}: {' '.join(f'{error}'.split())[:300]}"


def document(device: str, wanted: list[str]) -> dict[str, Any]:
    """Import torch, time the wanted workloads (empty: all) and return the document."""
    kind, name = ("cpu", "cpu") if device == "cpu" else ("gpu", f"cuda:{device}")
    found: dict[str, Any] = {"format": FORMAT, "gpu": "", "errors": {}}
    began, used = time.perf_counter(), time.process_time()
    try:
        torch = importlib.import_module("torch")
        seconds = time.process_time() - used
        if kind == "gpu":
            torch.cuda.set_device(name)
            torch.ones(1, device=name).add(1).item()
            seconds = time.perf_counter() - began
            found["gpu"] = torch.cuda.get_device_name(name)
        found["threads"] = torch.get_num_threads()
        timer = importlib.import_module("torch.utils.benchmark").Timer  # which imports setuptools
    except BaseException as error:  # a broken torch may raise anything
        return {**found, "error": one_line(error)}
    found |= {"asked": os.environ.get("OMP_NUM_THREADS", ""), "seconds": {STARTS[kind]: seconds}}
    for workload in WORKLOADS[kind]:
        if not wanted or workload.name in wanted:
            try:
                found["seconds"][workload.name] = seconds_of(torch, timer, name, workload)
            except Exception as error:
                found["errors"][workload.name] = one_line(error)
    return found


def main() -> None:
    """Read the arguments and print the document."""
    parser = argparse.ArgumentParser(description="Time workloads of a PyTorch; print JSON.")
    parser.add_argument("--device", default="cpu", help="cpu, or the number of a GPU")
    parser.add_argument("--workload", action="append", default=[], help="only this; repeatable")
    arguments = parser.parse_args()
    if arguments.device != "cpu" and not arguments.device.isdigit():
        parser.error("--device: cpu or a number")
    # torch must not import a module that happens to lie beside this file.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print does not mix with the document
    with out:
        json.dump(document(arguments.device, arguments.workload), out)


if __name__ == "__main__":
    main()
