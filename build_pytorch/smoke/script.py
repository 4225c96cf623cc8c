"""Test a PyTorch with real work and print a JSON report on stdout.

    python script.py [--device INDEX] [--limit SECONDS] [--companion NAME[=VERSION]]

Run it with the Python whose torch is to be tested; it needs installed_torch.py, in ../base or
beside it, and nothing else. A torch that is missing or broken is reported in the JSON.

Each test runs in a fork of the process that imported torch: one that crashes hides no other, and
one that hangs is killed at the limit.

Exit code 0: the report is complete; 2: wrong arguments. To add a test, add a row to TESTS.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime as dt
import importlib
import importlib.util
import json
import math
import os
import platform
import re
import shutil
import signal
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

Facts = dict[str, Any]

_HERE = Path(__file__).resolve().parent
_PLACES = (_HERE.parent / "base/installed_torch.py", _HERE / "installed_torch.py")
_spec: Any = importlib.util.spec_from_file_location(
    "installed_torch", next(filter(Path.exists, _PLACES))
)
torch_facts: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(torch_facts)

SCHEMA = 2
GRACE = 0.5
"""Seconds after the limit in which the results are collected."""
NOT_RUN = {"outcome": "not run", "message": ""}
MEASURE = "largest difference from the reference, divided by the largest value of the reference"
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
"""Compiled libraries that belong to one PyTorch."""
companions: dict[str, str] = {}
"""Those that must be there -> their version, empty for any; from `--companion`."""


class MissingPart(Exception):  # noqa: N818 - the test is skipped, nothing is wrong
    """The optional part that a test needs is missing; the text is the reason."""


class SmokeTest(NamedTuple):
    """A test: `call` gets torch and the `inputs` on the device, and returns a tensor.

    `reference`, without one `call` itself, gets the inputs on the CPU in float64. A call may return
    text in place of a tensor: it only had to end. The tolerance is about four times what a sum of
    1024 products loses in the format: every correct machine stays below it, and one wrong element
    in a million exceeds it.
    """

    name: str
    tolerance: float
    call: Callable[..., Any]
    inputs: Callable[[Any], list[Any]] = lambda t: []
    reference: Callable[..., Any] | None = None
    device: str = ""
    """`cpu` or `cuda`; in TESTS empty for both."""
    capability: str | None = None
    """The oldest compute capability of a GPU that can run it."""
    magma: bool = False
    torch: str | None = None
    """The oldest PyTorch that can run it."""
    optional: str = ""
    """The part that may be missing: then `call` raises MissingPart."""
    companion: str = ""
    meaning: str = ""
    """What a failure means for the user."""


# --- What the tests compute. `error_of` sets the seed: each run has the same random numbers. ---

SQUARE = (1024, 1024)
ENDS = (64, 192, 448, 512)
"""The groups of rows of a grouped product."""


def randn(*shapes: tuple[int, ...], dtype: str = "float32") -> Callable[[Any], list[Any]]:
    """Return a function that makes a random tensor of each shape."""
    return lambda t: [t.randn(*shape).to(getattr(t, dtype)) for shape in shapes]


def product(t: Any, a: Any, b: Any) -> Any:
    """Multiply two matrices."""
    return a @ b


def product_tf32(t: Any, a: Any, b: Any) -> Any:
    """Multiply on tensor cores, where they may."""
    t.set_float32_matmul_precision("high")
    return a @ b


def fp8(t: Any, *scales: Any) -> list[Any]:
    """Return two matrices in FP8 (e4m3), and scales for them."""
    return [*(t.randn(*SQUARE).to(t.float8_e4m3fn) for _ in range(2)), *scales]


def product_fp8(t: Any, a: Any, b: Any, rows: Any, columns: Any) -> Any:
    """Multiply FP8 matrices with FP32 sums, through the function that torch itself uses."""
    return t._scaled_mm(a, b.t(), scale_a=rows, scale_b=columns, out_dtype=t.bfloat16)


def scaled_product(t: Any, a: Any, b: Any, rows: Any, columns: Any) -> Any:
    """Return the same of values in float64."""
    return (a * rows) @ (b.t() * columns)


def int8(t: Any) -> list[Any]:
    """Return two matrices of bytes."""
    return [t.randint(-128, 128, (256, 256), dtype=t.int8) for _ in range(2)]


def grouped(t: Any, a: Any, b: Any) -> Any:
    """Multiply the rows of each of four groups with a matrix of its own, in one call."""
    offsets = t.tensor(ENDS, dtype=t.int32, device=a.device)
    return t._grouped_mm(a, b.transpose(-2, -1), offs=offsets)


def grouped_one_by_one(t: Any, a: Any, b: Any) -> Any:
    """Return the same of values in float64."""
    parts = zip((0, *ENDS), ENDS, b, strict=False)
    return t.cat([a[begin:end] @ matrix.t() for begin, end, matrix in parts])


def convolution(t: Any, images: Any, weights: Any) -> Any:
    """Convolve images with 3 x 3 filters; a GPU must use cuDNN."""
    if images.device.type != "cpu" and not t.backends.cudnn.is_acceptable(images):
        raise RuntimeError("this PyTorch does not use cuDNN")
    return t.nn.functional.conv2d(images, weights, padding=1)


def sparse(t: Any) -> list[Any]:
    """Return a matrix with one value in a hundred, and a dense one."""
    return [t.randn(*SQUARE) * (t.rand(*SQUARE) < 0.01), t.randn(1024, 128)]  # noqa: PLR2004


def equations(t: Any) -> list[Any]:
    """Return 512 linear equations, far from singular."""
    return [t.randn(512, 512) + 64 * t.eye(512), t.randn(512, 8)]


def solve(t: Any, a: Any, b: Any, library: str = "default") -> Any:
    """Solve equations, on a GPU with this library."""
    if a.device.type != "cpu":
        t.backends.cuda.preferred_linalg_library(library)
    return t.linalg.solve(a, b)


def elementwise(t: Any, x: Any) -> Any:
    """Compute with vectorised kernels, which on a CPU are compiled for each ISA, and reduce."""
    return (t.tanh(x) * t.exp(-x * x) + t.sqrt(x.abs())).sum(dim=1)


def training(t: Any, images: Any, labels: Any) -> Any:
    """Take ten steps of gradient descent, and return the loss, which must fall."""
    nn = t.nn
    t.manual_seed(1)
    convolved, linear = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 16 * 16, 10)
    net = nn.Sequential(convolved, nn.ReLU(), nn.Flatten(), linear).to(images.device, images.dtype)
    optimizer = t.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    if not losses[-1] < losses[0]:
        raise RuntimeError(f"the loss did not fall: {losses[0]:.4f} to {losses[-1]:.4f}")
    return losses[-1]


def attention(t: Any, q: Any, k: Any, v: Any) -> Any:
    """Compute attention with the implementation that PyTorch chooses."""
    return t.nn.functional.scaled_dot_product_attention(q, k, v)


def flash_attention(t: Any, q: Any, k: Any, v: Any) -> Any:
    """Compute attention with FlashAttention, whose function any other build lacks."""
    suffix = "_for_cpu" if q.device.type == "cpu" else ""
    return getattr(t.ops.aten, f"_scaled_dot_product_flash_attention{suffix}")(q, k, v)[0]


def cudnn_attention(t: Any, q: Any, k: Any, v: Any) -> Any:
    """Compute attention with cuDNN, where it can."""
    params = t.backends.cuda.SDPAParams(q, k, v, None, 0.0, False, False)  # noqa: FBT003
    if not t.backends.cuda.can_use_cudnn_attention(params):
        raise MissingPart("this PyTorch does not use cuDNN for attention on this GPU")
    compute = t.ops.aten._scaled_dot_product_cudnn_attention
    return compute(q, k, v, None, False)[0]  # noqa: FBT003 - no bias, no log-sum


def attention_by_products(t: Any, q: Any, k: Any, v: Any) -> Any:
    """Compute attention by matrix products."""
    return t.softmax(q @ k.transpose(-1, -2) / math.sqrt(64), dim=-1) @ v


def jiterated(t: Any, x: Any, y: Any) -> Any:
    """Compile a kernel at run time, through the jiterator; `main` switches its cache off."""
    code = "template <typename T> T shifted(T x, T y) { return x * x + y; }"
    return t.cuda.jiterator._create_jit_fn(code)(x, y)


def profiled(t: Any, x: Any) -> Any:
    """Record a matrix product; the profiler must see its kernels on the GPU."""
    kinds = t.profiler.ProfilerActivity
    with t.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as recorded:
        got = x @ x
        t.cuda.synchronize(x.device)
    cuda = t.autograd.DeviceType.CUDA
    if not any(event.device_type == cuda for event in recorded.events()):
        raise RuntimeError("no kernel was recorded")
    return got


def fused(t: Any, x: Any, y: Any) -> Any:
    """Compute what torch.compile makes one kernel of."""
    return (t.tanh(x) * y + t.sqrt(x.abs())).sum(dim=1)


def compiled(t: Any, x: Any, y: Any) -> Any:
    """Compile a function with torch.compile, which must generate a kernel."""
    if not shutil.which(os.environ.get("CXX", "g++")):  # Triton compiles its launcher too
        raise MissingPart("no C++ compiler")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise MissingPart("no Python.h, the headers of this Python")
    if x.device.type != "cpu" and not importlib.util.find_spec("triton"):
        raise MissingPart("Triton is not installed")
    # Without a cache of earlier runs, and leaving none.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, TRITON_CACHE_DIR=f"{folder}/triton")
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes besides this one
        metrics = importlib.import_module("torch._inductor.metrics")
        metrics.reset()
        got = t.compile(lambda x, y: fused(t, x, y), fullgraph=True)(x, y)
    if not metrics.generated_kernel_count:
        raise RuntimeError("no kernel was generated: torch.compile is switched off")
    return got


def reduced(t: Any, x: Any) -> Any:
    """Reduce a tensor in a group of one process.

    For a plain sum of one process NCCL only copies; for a sum of scaled values it starts a kernel.
    """
    dist = t.distributed
    if not (dist.is_available() and dist.is_nccl_available()):
        raise MissingPart("this PyTorch was built without NCCL")
    plain, scaled, limit = x.clone(), x.clone(), dt.timedelta(seconds=60)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, timeout=limit)
    try:
        dist.all_reduce(plain)
        dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(3.0))
        return t.stack([plain, scaled])
    finally:
        dist.destroy_process_group()


def paired(t: Any, name: str) -> str:
    """Return the sign that a companion was compiled with the PyTorch of this process.

    Its metadata may require one PyTorch; the run path of its libraries may name the folder of one,
    as it does in a Nix store. TorchVision itself compares the version of CUDA only.
    """
    place = Path(importlib.import_module(name).__file__ or "").parent
    version, required = torch_facts.installed_package(name)
    wanted, sign = companions.get(name), ""
    if wanted and release_of(version) != release_of(wanted):
        raise RuntimeError(f"this is {name} {version}, not {wanted}")
    if required:
        sign = f"requires PyTorch {required}"
        if release_of(required) != release_of(t.__version__):
            raise RuntimeError(f"it {sign}, and this is {t.__version__}")
    here = (Path(t.__file__).parent / "lib").resolve()
    for library in sorted(place.rglob("*.so")):
        named = [name for name in search_path(library) if os.path.lexists(name / "libc10.so")]
        if named and named[0].resolve() != here:
            raise RuntimeError(f"{library.name} was compiled with {named[0]}, and this is {here}")
        sign = f"{library.name} names {here}" if named else sign
    if not sign:
        raise MissingPart("nothing in it names the PyTorch that it was compiled with")
    return f"{name} {version}: {sign}"


def release_of(version: str | None) -> str:
    """Return the release number of a version: `0.25.0` for `0.25.0a0+cu130`.

    The version files of companions have the suffix `a0` at their release tags too.
    """
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version or "")
    return found[0] if found else ""


def search_path(library: Path) -> list[Path]:
    """Return the folders that a library names; those of its run path are among them."""
    strings = re.findall(rb"(?<=\0)/[^\0\n]+(?=\0)", library.read_bytes())
    return [Path(os.fsdecode(name)) for text in strings for name in text.split(b":")]


def boxes(t: Any) -> list[Any]:
    """Return boxes and scores: the first overlaps by more than half the second, which is lower."""
    corners = [[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [5, 5, 15, 15]]
    return [t.tensor(corners), t.tensor([0.9, 0.8, 0.7, 0.95])]


def kept(t: Any, *boxes: Any) -> Any:
    """Return the boxes that do not overlap a better one."""
    return importlib.import_module("torchvision.ops").nms(*boxes, 0.5)


def likely(t: Any) -> list[Any]:
    """Return ten labels, and forty frames of which two have each label and two a blank."""
    labels = t.arange(1, 11)
    path = t.stack([labels, labels, 0 * labels, 0 * labels], dim=1).flatten()
    frames = t.randn(40, 16) + 20 * t.nn.functional.one_hot(path, 16)
    return [frames.log_softmax(dim=1), labels, path]


def aligned(t: Any, frames: Any, labels: Any, path: Any) -> Any:
    """Align labels with frames; return the path and the scores."""
    functional = importlib.import_module("torchaudio.functional")
    found = functional.forced_align(frames[None], labels[None])
    return t.stack([part[0].double() for part in found])


def best_path(t: Any, frames: Any, labels: Any, path: Any) -> Any:
    """Return the path that `likely` made, and its scores."""
    return t.stack([path.double(), frames.gather(1, path[:, None])[:, 0]])


def decoded(t: Any, ramp: Any) -> Any:
    """Write a video of three gray ramps without compression, and decode the last one."""
    frames = [bytes((ramp.cpu() + 10 * n).to(t.uint8).flatten().tolist()) for n in range(3)]
    colours = bytes([128]) * (2 * 32 * 32)
    decoders = importlib.import_module("torchcodec.decoders")
    with tempfile.NamedTemporaryFile(suffix=".y4m") as file:
        file.write(b"YUV4MPEG2 W64 H64 F25:1 Ip A1:1 C420\n")
        file.writelines(b"FRAME\n" + frame + colours for frame in frames)
        file.flush()
        got = decoders.VideoDecoder(file.name, device=str(ramp.device))[2]
    if got.device.type != ramp.device.type:
        raise RuntimeError(f"the frame is on {got.device}")
    return got


# --- The table ---

PAIR, BF16 = randn(SQUARE, SQUARE), randn(SQUARE, SQUARE, dtype="bfloat16")
QKV = randn(*[(2, 4, 256, 64)] * 3, dtype="bfloat16")
CPU, GPU = "cpu", "cuda"
LOST = '"operator does not exist": its library was not loaded; "no kernel image": it lacks this GPU'
PAIRED = "a trace of the PyTorch that it was compiled with"
OTHER = "it belongs to another PyTorch; its calls may crash or be wrong"
Row = SmokeTest
TESTS = (
    # name, tolerance, call, inputs, reference, device; what it needs and means
    Row("matmul fp32", 1e-5, product, PAIR),
    Row("matmul bf16", 1e-2, product, BF16),
    Row("matmul fp16", 2e-3, product, randn(SQUARE, SQUARE, dtype="float16")),
    Row("matmul tf32", 3e-3, product_tf32, PAIR, device=GPU),
    # Tensor cores have FP8 from Ada Lovelace on (PTX ISA manual, mma with .e4m3). Scales for each
    # row and column run on 12.0 from PyTorch 2.8 on (RowwiseScaledMM.cu).
    Row("matmul fp8", 2e-2, product_fp8, lambda t: fp8(t, t.ones(()), t.ones(())), scaled_product,
        GPU, capability="8.9"),
    Row("matmul fp8 rowwise", 2e-2, product_fp8,
        lambda t: fp8(t, t.rand(1024, 1) + 0.5, t.rand(1, 1024) + 0.5), scaled_product,
        GPU, capability="8.9", torch="2.8",
        meaning="FP8 with a scale for each row (torchao) does not work: the architecture-specific "
        "code (sm_90a, 100a, 103a, 110a, 120a, 121a) is missing, or cuBLAS lacks the kernel"),
    # With VNNI instructions, exact in every bit.
    Row("matmul int8", 0.0, lambda t, a, b: t._int_mm(a, b), int8,
        lambda t, a, b: a.long() @ b.long(), CPU),
    # PyTorch 2.8 has it for 9.0 only; from 2.9 on, GPUs other than 9.0 and 10.x take single ones.
    Row("grouped matmul bf16", 1e-2, grouped, randn((512, 256), (4, 128, 256), dtype="bfloat16"),
        grouped_one_by_one, GPU, capability="9.0", torch="2.9",
        meaning="grouped products (mixture-of-experts models) do not work: sm_90a, 100a or 103a "
        "code is missing in this build"),
    Row("convolution", 1e-5, convolution, randn((8, 32, 48, 48), (64, 32, 3, 3))),
    Row("sparse matmul", 1e-5, lambda t, a, b: a.to_sparse_csr() @ b, sparse,
        product),
    Row("solve", 1e-5, solve, equations, device=CPU),
    Row("solve magma", 1e-5, lambda t, a, b: solve(t, a, b, "magma"), equations, solve, GPU,
        magma=True),
    Row("solve cusolver", 1e-5, lambda t, a, b: solve(t, a, b, "cusolver"), equations, solve, GPU),
    # No multiple of a vector's length, no power of two.
    Row("elementwise", 1e-5, elementwise, randn((1000, 1003))),
    Row("fft", 1e-5, lambda t, x: t.view_as_real(t.fft.fft(x)), randn((64, 1000)),
        meaning="cuFFT, or the FFT library of the CPU, is missing or wrong"),
    Row("training", 1e-3, training, lambda t: [t.randn(64, 3, 16, 16), t.randint(0, 10, (64,))]),
    Row("attention bf16", 2e-2, attention, QKV, attention_by_products),
    Row("flash attention bf16", 2e-2, flash_attention, QKV, attention_by_products,
        capability="8.0",
        meaning="FlashAttention is missing or does not run here; attention is slow and needs "
        "memory"),
    Row("cudnn attention bf16", 2e-2, cudnn_attention, QKV, attention_by_products, GPU,
        capability="8.0", optional="attention in cuDNN for this GPU",
        meaning="the attention of cuDNN does not run on this GPU; PyTorch may choose it by itself"),
    Row("nvrtc", 1e-5, jiterated, randn((1000,), (1000,)), lambda t, x, y: x * x + y, GPU,
        meaning="NVRTC is missing or does not know this GPU: PyTorch cannot compile kernels at run "
        "time, which it does for some functions of complex and special numbers"),
    Row("profiler", 1e-5, profiled, randn((256, 256)), lambda t, x: x @ x, GPU,
        meaning="torch.profiler shows no GPU activity: Kineto was built without CUPTI, or CUPTI "
        "cannot be loaded or is in use by another profiler"),
    Row("compile", 1e-5, compiled, randn((256, 1000), (256, 1000)), fused,
        optional="a C++ compiler and Python's headers, and on a GPU Triton",
        meaning="torch.compile does not work, on a GPU perhaps because this Triton does not fit "
        "this PyTorch; everything else is unaffected"),
    Row("nccl all-reduce", 1e-6, reduced, randn(SQUARE), lambda t, x: t.stack([x, 3 * x]), GPU,
        optional="NCCL",
        meaning="torch.distributed cannot use this GPU: NCCL does not start, or holds no code for "
        "it (nixpkgs builds NCCL for a list of its own)"),
    # Companions: the import and the pairing with this PyTorch, and one kernel.
    *(Row(f"{name} pairing", 0.0, lambda t, name=name: paired(t, name), device=CPU, optional=PAIRED,
          companion=name, meaning=OTHER) for name in COMPANIONS),
    Row("torchvision nms", 0.0, kept, boxes, lambda t, *boxes: t.tensor([3, 0, 2]),
        companion="torchvision", meaning=LOST),
    Row("torchaudio forced_align", 1e-6, aligned, likely, best_path,
        companion="torchaudio", meaning=LOST),
    # BT.601: 16 is black, 235 is white.
    Row("torchcodec decode video", 2e-2, decoded, lambda t: [t.arange(64).expand(64, 64) + 100],
        lambda t, ramp: ((ramp + 20 - 16) * 255 / 219).expand(3, 64, 64),
        companion="torchcodec", meaning=LOST),
)  # fmt: skip


def tests() -> list[SmokeTest]:
    """Return every test in the order in which they run: those of the CPU first."""
    found = []
    for device in (CPU, GPU):
        for test in TESTS:
            if test.device in {"", device}:
                capability = test.capability if device == GPU else None
                name = f"{device} {test.name}"
                found.append(test._replace(name=name, device=device, capability=capability))
    return found


def declarations() -> list[Facts]:
    """Return what a report states of each test: all but its functions."""
    functions = {"call", "inputs", "reference"}
    return [{k: v for k, v in test._asdict().items() if k not in functions} for test in tests()]


# --- One test ---


def unmet_need(torch: Any, device: str, test: SmokeTest) -> str:
    """Return why a test cannot run with this torch or on this GPU, or an empty text."""
    if test.companion and test.companion not in companions:
        return f"without --companion {test.companion}"
    if test.torch and numbers(torch.__version__) < numbers(test.torch):
        return f"needs PyTorch {test.torch} or newer"
    if test.capability and torch.cuda.get_device_capability(device) < numbers(test.capability):
        return f"needs capability {test.capability} or newer"
    if test.magma and not torch.cuda.has_magma:
        return "this PyTorch was built without MAGMA"
    return ""


def run_test(torch: Any, device: str, test: SmokeTest) -> Facts:
    """Run one test and return its outcome, error, tolerance, seconds and message."""
    start = time.monotonic()
    try:
        if reason := unmet_need(torch, device, test):
            return {"outcome": "skipped", "message": reason}
        error, message = error_of(torch, device, test)
    except MissingPart as missing:
        return {"outcome": "skipped", "message": str(missing)}
    except Exception as problem:
        result: Facts = {"outcome": "failed", "message": torch_facts.explained(problem)}
    else:
        outcome = "passed" if error <= test.tolerance else "failed"  # failed for NaN
        tolerance = test.tolerance
        result = {"outcome": outcome, "error": error, "tolerance": tolerance, "message": message}
        if not math.isfinite(error):  # JSON has no NaN
            result.update(error=None, message=f"the error is {error}")
    return {**result, "seconds": round(time.monotonic() - start, 3)}


def error_of(torch: Any, device: str, test: SmokeTest) -> tuple[float, str]:
    """Return how far a test is from its reference, as MEASURE defines it, and what it found."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    if test.companion:
        importlib.import_module(test.companion)
    inputs = test.inputs(torch)
    got = test.call(torch, *(x.to(device) for x in inputs))
    if isinstance(got, str):
        return 0.0, got
    inputs = [x.double() if x.is_floating_point() else x for x in inputs]
    want = (test.reference or test.call)(torch, *inputs).double()
    got = got.cpu().double()
    if got.shape != want.shape:
        raise RuntimeError(f"shape {tuple(got.shape)}, wanted {tuple(want.shape)}")
    return ((got - want).abs().max() / want.abs().max()).item(), ""


def numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, such as (2, 9) for `2.9.1+cu130`."""
    return tuple(map(int, re.findall("[0-9]+", version)[:2]))


def cuda_facts(torch: Any, device: int) -> Facts:
    """Return whether torch can use the chosen GPU, the reason if not, and all GPUs."""
    devices: list[Facts] = []
    reason = f"there is no device {device}" if torch.version.cuda else "built without CUDA"
    try:
        reason = torch_facts.cuda_problem(torch) or reason
        for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
            gpu = torch.cuda.get_device_properties(number)
            facts = {"index": number, "name": gpu.name, "memory": gpu.total_memory}
            devices.append({**facts, "capability": f"{gpu.major}.{gpu.minor}"})
        if device < len(devices):
            return {"available": True, "devices": devices}
    except Exception as error:
        reason = torch_facts.explained(error)
    return {"available": False, "reason": reason, "devices": devices}


# --- All tests, each in a process of its own ---


def in_process(function: Callable[[], Facts], end: float) -> Facts | str:
    """Return the facts of a function that runs in a fork of this process, or how that ended.

    It is killed at the time `end`, and ends with this process. What it prints goes to stderr.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            os.dup2(2, 1)
            with os.fdopen(theirs, "w", encoding="utf-8") as answer:
                json.dump(function(), answer)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(theirs)
    timer = threading.Timer(max(0, end - time.monotonic()), os.kill, (pid, signal.SIGKILL))
    timer.start()
    with os.fdopen(ours, encoding="utf-8") as answer:
        text = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    timer.cancel()
    timer.join()
    if code == -signal.SIGKILL and time.monotonic() >= end:
        return "still running when the time limit was reached"
    found: Facts = {} if code else json.loads(text)
    return found or ending(code)


def run_tests(device: int, end: float) -> Facts:
    """Import torch, and run each test; a test that crashes or hangs ends its own process only.

    CUDA starts in these processes, and after the CPU's tests, which a GPU that hangs does not stop.
    """
    began = time.monotonic()
    with contextlib.suppress(BaseException):  # the fork tries again, and reports the error
        importlib.import_module("torch")
    seconds = time.monotonic() - began
    facts = in_process(torch_facts.imported, end)  # what asks for CUDA's facts cannot be forked
    error = facts if isinstance(facts, str) else facts.get("error")
    if error or isinstance(facts, str):
        return {"torch": {"import_error": error}}
    torch, cuda = sys.modules["torch"], Facts()
    results = []
    for test in tests():
        place = f"cuda:{device}" if test.device == GPU else CPU
        if test.device == GPU and not cuda:
            found = in_process(lambda: cuda_facts(torch, device), end)
            if isinstance(found, str):
                found = {"available": False, "crashed": True, "reason": found}
            cuda = {"device": device, **found}
        result: Facts | str = NOT_RUN
        if test.device == GPU and not cuda["available"]:
            result = {"outcome": "skipped", "message": cuda["reason"]}
        elif time.monotonic() < end:
            result = in_process(partial(run_test, torch, place, test), end)
        if isinstance(result, str):
            result = {"outcome": "failed", "message": result}
        results.append({"name": test.name, **result})
    return {"torch": {**facts, "seconds": seconds}, "cuda": cuda, "tests": results}


def report(device: int, limit: float) -> Facts:
    """Run the tests until each has an outcome or the limit is reached; return the whole report."""
    began = time.monotonic()
    end = began + (limit or threading.TIMEOUT_MAX)
    found = in_process(lambda: run_tests(device, end), end + GRACE)
    if isinstance(found, str):
        found = {"torch": {"import_error": f"import torch: {found}"}}
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
        "cuda": {"device": device, "available": False, "reason": "not reached"},
        "companions": {
            name: {"expected": version, **companion_facts(name)}
            for name, version in companions.items()
        },
        "declared": declarations(),
        "tests": [{"name": test.name, **NOT_RUN} for test in tests()],
        **found,
    }


def ending(code: int) -> str:
    """Return how a process ended; a negative code is a signal, as in subprocess."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"ended by {names.get(-code, f'signal {-code}')}"


def cpu_facts() -> Facts:
    """Return the CPU's name and flags from /proc/cpuinfo (x86: `flags`, ARM: `Features`)."""
    text = torch_facts.text_of("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.*\S)", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)", text, re.MULTILINE)
    return {"model": model[1] if model else "", "flags": flags[1].split() if flags else []}


def driver_facts() -> Facts:
    """Return the NVIDIA driver of this machine, whether torch finds its library or not."""
    text = torch_facts.text_of("/proc/driver/nvidia/version")
    version = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", text)
    problem = ""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        problem = str(error)
    return {
        "version": version[1] if version else None,
        "libcuda_problem": problem,
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def companion_facts(name: str) -> Facts:
    """Return what is installed of a companion. It is not imported: it may crash."""
    version, _ = torch_facts.installed_package(name)
    found = importlib.util.find_spec(name) if version else None
    return {"version": version, "file": found.origin if found else None}


def main() -> None:
    """Read the arguments; run the tests (second process) or print the report."""
    parser = argparse.ArgumentParser(description="Test a PyTorch; print JSON on stdout.")
    parser.add_argument("--device", type=int, default=0, help="which GPU (default: 0)")
    parser.add_argument("--limit", type=float, default=0, help="seconds for all tests together")
    text = f"one of {', '.join(COMPANIONS)}, with a version if it must have that one; repeatable"
    parser.add_argument(
        "--companion", action="append", default=[], metavar="NAME[=VERSION]", help=text
    )
    arguments = parser.parse_args()
    if arguments.device < 0:
        parser.error("--device: 0 or more")
    for word in arguments.companion:
        name, _, companions[name] = word.partition("=")
        if name not in COMPANIONS:
            parser.error(f"--companion {name}: allowed: {', '.join(COMPANIONS)}")
    # torch must not import a module that happens to lie beside this file.
    sys.path[:] = [entry for entry in sys.path if entry != str(_HERE)]
    os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"  # NVRTC must run, and leave nothing
    found = report(arguments.device, arguments.limit)
    sys.stdout.write(json.dumps(found, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
