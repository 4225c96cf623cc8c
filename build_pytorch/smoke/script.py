"""Test a PyTorch with real work and print a JSON report on stdout.

This file needs nothing beside it: copy it to any machine and run it with the Python whose torch
is to be tested. A missing or broken torch is reported in the JSON.

    python script.py [--device INDEX] [--cpu-only] [--limit SECONDS] [--companion NAME[=VERSION]]

TorchVision, TorchAudio and TorchCodec are companions: compiled libraries that belong to a PyTorch.
They are tested if `--companion` names them, and then they must be there.

A second process runs the tests and reports each step through a pipe. If it crashes, its signal is
recorded and a new process continues with the next test; if it hangs, it is killed at the limit.
A failed test therefore never hides the results of others.

Exit code 0: the report is complete; 2: wrong arguments.

To add a test, write a function with the decorator `smoke_test` in the section "The tests".
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import datetime as dt
import importlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
import wave
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
    """A test on one device (`cpu` or `cuda`), with what it needs; `smoke_test` explains the fields.

    `work` takes torch and the device's name in torch, such as `cuda:0`.
    """

    name: str
    device: str
    tolerance: float
    work: Callable[[Any, str], Measured]
    capability: str | None = None
    magma: bool = False
    torch: str | None = None
    optional: str = ""
    meaning: str = ""
    companion: str = ""


class MissingPart(Exception):  # noqa: N818 - the test is skipped, nothing is wrong
    """The optional part that a test needs is missing; the text is the reason."""


_declared: list[SmokeTest] = []

COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
companions: dict[str, str] = {}
"""The companions that must be there -> their version, empty for any; from `--companion`."""


GPU = ("cuda",)
FAILURE = "A failure means: "


def smoke_test(
    name: str, tolerance: float, *, devices: tuple[str, ...] = ("cpu", "cuda"), **facts: Any
) -> Callable[[Callable[..., Measured]], Callable[..., Measured]]:
    """Declare a test on each device; its function gets torch, the device and the other `facts`.

    Facts of the test itself are fields of SmokeTest. On a GPU it needs at least the compute
    `capability`, such as `8.9` (None: any), and with `magma` a PyTorch that has MAGMA. `torch` is
    the oldest PyTorch that has the function. `optional` names a part without which PyTorch works:
    where it is missing, the function raises MissingPart, and the test is skipped. `meaning` says
    what a failure means for the user; if it is not given, the docstring may say it after FAILURE.
    `companion` is the one of COMPANIONS that is tested, if `companions` names it.

    A good tolerance is about four times what a sum of 1024 products loses in the format (its unit
    roundoff, relative to the largest result): every correct machine stays below it, and one wrong
    element in a million exceeds it.
    """

    def declare(function: Callable[..., Measured]) -> Callable[..., Measured]:
        needs = {key: value for key, value in facts.items() if key in SmokeTest._fields}
        arguments = {key: value for key, value in facts.items() if key not in needs}
        work, meaning = partial(function, **arguments), (function.__doc__ or "").partition(FAILURE)
        needs.setdefault("meaning", " ".join(meaning[2].split()))
        for device in devices:
            of_gpu = {} if device == "cuda" else {"capability": None, "magma": False}
            test = SmokeTest(f"{device} {name}", device, tolerance, work, **{**needs, **of_gpu})
            _declared.append(test)
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


def against_float64(function: Callable[..., Any], device: str, *inputs: Any) -> Measured:
    """Compare a function of tensors on a device with the same in float64 on the CPU."""
    got = function(*(x.to(device) for x in inputs))
    return compared(got, function(*(x.double() for x in inputs)))


# --- The tests. Random numbers are the same in every run: `run_test` sets the seed. ---


@smoke_test("matmul tf32", 3e-3, devices=GPU, dtype="float32", precision="high")
@smoke_test("matmul fp16", 2e-3, dtype="float16")
@smoke_test("matmul bf16", 1e-2, dtype="bfloat16")
@smoke_test("matmul fp32", 1e-5, dtype="float32")
def matmul(torch: Any, device: str, dtype: str, precision: str = "highest") -> Measured:
    """Multiply two 1024 x 1024 matrices. The reference multiplies the rounded inputs."""
    torch.set_float32_matmul_precision(precision)
    a, b = (torch.randn(1024, 1024).to(getattr(torch, dtype)) for _ in range(2))
    return against_float64(lambda a, b: a @ b, device, a, b)


# Tensor cores have FP8 from Ada Lovelace on (PTX ISA manual, mma with .e4m3).
@smoke_test("matmul fp8", 2e-2, devices=GPU, capability="8.9")
def matmul_fp8(torch: Any, device: str, *, has_scales: bool = False) -> Measured:
    """Multiply FP8 (e4m3) matrices with FP32 sums, through the function that torch itself uses.

    With scales there is one for each row of one matrix and for each column of the other, which
    PyTorch runs on 12.0 from 2.8 on (RowwiseScaledMM.cu).
    """
    a, b = (torch.randn(1024, 1024).to(torch.float8_e4m3fn) for _ in range(2))
    rows, columns = torch.ones(()), torch.ones(())
    if has_scales:
        rows, columns = torch.rand(1024, 1) + 0.5, torch.rand(1, 1024) + 0.5
    scales = {"scale_a": rows.to(device), "scale_b": columns.to(device)}
    there = a.to(device), b.to(device).t()
    got = torch._scaled_mm(*there, **scales, out_dtype=torch.bfloat16)
    got = got[0] if isinstance(got, tuple) else got  # a pair before torch 2.5
    return compared(got, (a.float().double() * rows) @ (b.float().double().t() * columns))


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
    conv = partial(torch.nn.functional.conv2d, padding=1)
    return against_float64(conv, device, images, weights)


@smoke_test("sparse matmul", 1e-5)
def sparse(torch: Any, device: str) -> Measured:
    """Multiply a CSR matrix with one value in a hundred by a dense one; a GPU uses cuSPARSE."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 128)
    a = a * (torch.rand(1024, 1024) < SPARSE_SHARE)
    return compared(a.to(device).to_sparse_csr() @ b.to(device), a.double() @ b.double())


@smoke_test("solve magma", 1e-5, devices=GPU, magma=True, library="magma")
@smoke_test("solve cusolver", 1e-5, devices=GPU, library="cusolver")
@smoke_test("solve", 1e-5, devices=("cpu",))
def solve(torch: Any, device: str, library: str = "") -> Measured:
    """Solve 512 linear equations: on a GPU with the named library, on a CPU with LAPACK."""
    a = torch.randn(512, 512) + 64 * torch.eye(512)  # far from singular
    b = torch.randn(512, 8)
    if library:
        torch.backends.cuda.preferred_linalg_library(library)
    return against_float64(torch.linalg.solve, device, a, b)


@smoke_test("attention bf16", 2e-2)
def attention(torch: Any, device: str) -> Measured:
    """Compute scaled dot-product attention, which is most of the compiled code for a GPU."""
    inputs, want = attention_case(torch)
    got = torch.nn.functional.scaled_dot_product_attention(*(x.to(device) for x in inputs))
    return compared(got, want)


def attention_case(torch: Any) -> tuple[list[Any], Any]:
    """Return query, key and value, and their attention by matrix products in float64."""
    inputs = [torch.randn(2, 4, 256, 64).bfloat16() for _ in range(3)]
    q, k, v = (x.double() for x in inputs)
    return inputs, torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(64), dim=-1) @ v


@smoke_test("elementwise", 1e-5)
def elementwise(torch: Any, device: str) -> Measured:
    """Run vectorised kernels and a reduction; on a CPU they are compiled for each ISA."""
    x = torch.randn(1000, 1003)  # not a multiple of a vector's length

    def work(x: Any) -> Any:
        return (torch.tanh(x) * torch.exp(-x * x) + torch.sqrt(x.abs())).sum(dim=1)

    return against_float64(work, device, x)


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


ATTENTION = "_scaled_dot_product_"
"""Begin of the names of the operations that compute attention, one for each implementation."""


@smoke_test(
    "flash attention bf16",
    2e-2,
    capability="8.0",
    backend="flash_attention",
    meaning="FlashAttention is missing or does not run here; attention is slow and needs memory",
)
@smoke_test(
    "cudnn attention bf16",
    2e-2,
    devices=GPU,
    capability="8.0",
    backend="cudnn_attention",
    optional="attention in cuDNN for this GPU",
    meaning="the attention of cuDNN does not run on this GPU; PyTorch may choose it by itself",
)
def forced_attention(torch: Any, device: str, backend: str) -> Measured:
    """Compute attention with one implementation, and require that no other one computed it.

    Without the force PyTorch falls back to plain matrix products, which any build can do.
    """
    attention = importlib.import_module("torch.nn.attention")
    mode: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    called: list[str] = []

    class Recorder(mode):  # type: ignore[misc] # torch is not installed where types are checked
        def __torch_dispatch__(
            self, function: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            called.append(function.__name__)
            return function(*args, **(kwargs or {}))

    inputs, want = attention_case(torch)
    there = [x.to(device) for x in inputs]
    if backend == "cudnn_attention":
        params = torch.backends.cuda.SDPAParams(*there, None, 0.0, False, False)  # noqa: FBT003
        if not torch.backends.cuda.can_use_cudnn_attention(params):
            raise MissingPart("this PyTorch does not use cuDNN for attention on this GPU")
    forced = getattr(attention.SDPBackend, backend.upper())
    with attention.sdpa_kernel([forced]), Recorder():
        got = torch.nn.functional.scaled_dot_product_attention(*there)
    computed = [name for name in called if name.startswith(ATTENTION)]
    if not any(name.startswith(ATTENTION + backend) for name in computed):
        used = ", ".join(computed) or "matrix products"
        raise RuntimeError(f"{backend} was asked for, and {used} computed it")
    return compared(got, want)[0], f"by {computed[0].removeprefix(ATTENTION).partition('.')[0]}"


smoke_test(
    "matmul fp8 rowwise",
    2e-2,
    devices=GPU,
    capability="8.9",
    torch="2.8",
    meaning="FP8 with a scale for each row (torchao) does not work: the architecture-specific code "
    "(sm_90a, 100a, 103a, 110a, 120a, 121a) is missing, or cuBLAS lacks the kernel",
    has_scales=True,
)(matmul_fp8)


# PyTorch 2.8 has it for 9.0 only; from 2.9 on, GPUs other than 9.0 and 10.x take single products.
@smoke_test("grouped matmul bf16", 1e-2, devices=GPU, capability="9.0", torch="2.9")
def grouped_matmul(torch: Any, device: str) -> Measured:
    """Multiply the rows of each of four groups with a matrix of its own, in one call.

    A failure means: grouped products (mixture-of-experts models) do not work: sm_90a, 100a or 103a
    code is missing in this build
    """
    ends = (64, 192, 448, 512)
    a, b = torch.randn(512, 256).bfloat16(), torch.randn(4, 128, 256).bfloat16()
    offsets = torch.tensor(ends, dtype=torch.int32, device=device)
    got = torch._grouped_mm(a.to(device), b.to(device).transpose(-2, -1), offs=offsets)
    parts = zip((0, *ends), ends, b.double(), strict=False)
    want = [a[begin:end].double() @ matrix.t() for begin, end, matrix in parts]
    return compared(got, torch.cat(want))


@smoke_test("fft", 1e-5, meaning="cuFFT, or the FFT library of the CPU, is missing or wrong")
def fft(torch: Any, device: str) -> Measured:
    """Transform vectors whose length is no power of two; a GPU uses cuFFT."""
    return against_float64(
        lambda x: torch.view_as_real(torch.fft.fft(x)), device, torch.randn(64, 1000)
    )


@smoke_test("nvrtc", 1e-5, devices=GPU)
def nvrtc(torch: Any, device: str) -> Measured:
    """Compile a kernel at run time, through the jiterator; `work` switches its cache off.

    A failure means: NVRTC is missing or does not know this GPU: PyTorch cannot compile kernels at
    run time, which it does for some functions of complex and special numbers
    """
    code = "template <typename T> T shifted(T x, T y) { return x * x + y; }"
    x, y = torch.randn(1000), torch.randn(1000)
    got = torch.cuda.jiterator._create_jit_fn(code)(x.to(device), y.to(device))
    return compared(got, x.double() * x.double() + y.double())


@smoke_test("profiler", 0.0, devices=GPU)
def profiler(torch: Any, device: str) -> Measured:
    """Record a matrix product; the profiler must see its kernels on the GPU.

    A failure means: torch.profiler shows no GPU activity: Kineto was built without CUPTI, or CUPTI
    cannot be loaded or is in use by another profiler
    """
    profiler = torch.profiler
    kinds = profiler.ProfilerActivity
    x = torch.randn(256, 256, device=device)
    with profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as recorded:
        x = x @ x
        torch.cuda.synchronize(device)
    events = recorded.events()
    kernels = {e.name for e in events if e.device_type == torch.autograd.DeviceType.CUDA}
    if not kernels:
        raise RuntimeError("no kernel was recorded")
    return 0.0, f"{len(kernels)} recorded"


COMPILER = "a compiler: Triton on a GPU, a C++ compiler and Python's headers on a CPU"


@smoke_test("compile", 1e-5, optional=COMPILER)
def compiled(torch: Any, device: str) -> Measured:
    """Compile a function with torch.compile, which must generate a kernel.

    A failure means: torch.compile does not work, on a GPU perhaps because this Triton does not fit
    this PyTorch; everything else is unaffected
    """
    is_cpu = device == "cpu"
    if is_cpu and not shutil.which(os.environ.get("CXX", "g++")):
        raise MissingPart("no C++ compiler")
    if is_cpu and not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise MissingPart("no Python.h, the headers of this Python")
    version, required = triton_versions()
    if not is_cpu and version is None:
        raise MissingPart("Triton is not installed")
    versions = "" if is_cpu else f"Triton {version}, required: {required or 'unknown'}"
    x, y = torch.randn(256, 1000), torch.randn(256, 1000)

    def work(x: Any, y: Any) -> Any:
        return (torch.tanh(x) * y + torch.sqrt(x.abs())).sum(dim=1)

    # Without a cache of earlier runs, and leaving none.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, TRITON_CACHE_DIR=f"{folder}/triton")
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes besides this one
        metrics = importlib.import_module("torch._inductor.metrics")
        metrics.reset()
        try:
            got = torch.compile(work, fullgraph=True)(x.to(device), y.to(device))
        except Exception as error:
            if "C compiler" in str(error):  # Triton compiles its launcher with it
                raise MissingPart("Triton finds no C compiler") from error
            raise RuntimeError(f"{versions}: {error}" if versions else str(error)) from error
    if not metrics.generated_kernel_count:
        raise RuntimeError("no kernel was generated: torch.compile is switched off")
    return compared(got, work(x.double(), y.double()))[0], versions


@smoke_test("nccl all-reduce", 1e-6, devices=GPU, optional="NCCL")
def nccl(torch: Any, device: str) -> Measured:
    """Reduce a tensor in a group of one process.

    For a plain sum of one process NCCL only copies; for a sum of scaled values it starts a kernel.

    A failure means: torch.distributed cannot use this GPU: NCCL does not start, or holds no code
    for it (nixpkgs builds NCCL for a list of its own)
    """
    dist = torch.distributed
    if not (dist.is_available() and dist.is_nccl_available()):
        raise MissingPart("this PyTorch was built without NCCL")
    x = torch.randn(1024, 1024)
    plain, product = x.to(device), x.to(device)
    limit = dt.timedelta(seconds=60)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, timeout=limit)
    try:
        dist.all_reduce(plain)
        dist.all_reduce(product, op=dist._make_nccl_premul_sum(3.0))
        errors = compared(plain, x)[0], compared(product, 3 * x)[0]
    finally:
        dist.destroy_process_group()
    return max(errors), f"NCCL {nccl_version(torch)}"


# --- The tests of companions ---

NO_KERNEL = (
    '"operator does not exist": its library was not loaded; "no kernel image": it has no code for '
    "this GPU"
)


LIBRARIES = ("_C*.so", "lib/*torchaudio*.so", "libtorchcodec_*.so")


def pairing(torch: Any, _device: str, package: str) -> Measured:
    """Require the expected version, and that it was compiled with the PyTorch of this process.

    Its metadata may require one PyTorch; the run path of its libraries may name the folder of one,
    as it does in a Nix store. TorchVision itself compares the version of CUDA only.
    """
    place = Path(importlib.import_module(package).__file__ or "").parent
    version, wanted = companion_facts(package)["version"], companions.get(package)
    if wanted and release_of(version) != release_of(wanted):
        raise RuntimeError(f"this is {package} {version}, not {wanted}")
    signs = []
    if required := required_torch(package):
        signs.append(f"requires PyTorch {required}")
        if release_of(required) != release_of(torch.__version__):
            raise RuntimeError(f"it {signs[-1]}, and this is {torch.__version__}")
    here = (Path(torch.__file__).parent / "lib").resolve()
    for library in sorted(path for names in LIBRARIES for path in place.glob(names)):
        named = [name for name in search_path(library) if os.path.lexists(name / "libc10.so")]
        if named and named[0].resolve() != here:
            raise RuntimeError(f"{library.name} was compiled with {named[0]}, and this is {here}")
        signs += [f"{library.name} names {here}"] if named else []
    if not signs:
        raise MissingPart("nothing in it names the PyTorch that it was compiled with")
    return 0.0, f"{package} {version}: {signs[-1]}"


for _title in ("TorchAudio", "TorchCodec", "TorchVision"):
    smoke_test(
        f"{_title.lower()} pairing",
        0.0,
        devices=("cpu",),
        companion=_title.lower(),
        optional="a trace of the PyTorch that it was compiled with",
        meaning=f"this {_title} belongs to another PyTorch; its calls may crash or be wrong",
        package=_title.lower(),
    )(pairing)


def release_of(version: str | None) -> str:
    """Return the release number of a version: `0.25.0` for `0.25.0a0+cu130`.

    The version files of both projects have the suffix `a0` at their release tags too.
    """
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version or "")
    return found[0] if found else ""


def required_torch(companion: str) -> str:
    """Return the one version of PyTorch that a companion's metadata requires, or an empty text."""
    return requirement(companion, r"torch\s*\(?==\s*([0-9.]+)") or ""


def requirement(package: str, pattern: str) -> str | None:
    """Return the version in the first requirement of an installed package that matches."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found = (re.match(pattern, line) for line in importlib.metadata.requires(package) or ())
        return next((match[1] for match in found if match), None)
    return None


def installed(package: str) -> str | None:
    """Return the version of an installed package. It is not imported: it may crash."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def search_path(library: Path) -> list[Path]:
    """Return the folders that a library names; those of its run path are among them."""
    strings = re.findall(rb"(?<=\0)/[^\0\n]+(?=\0)", library.read_bytes())
    return [Path(os.fsdecode(name)) for text in strings for name in text.split(b":")]


@smoke_test("torchvision nms", 0.0, companion="torchvision", meaning=NO_KERNEL)
def nms(torch: Any, device: str) -> Measured:
    """Suppress overlapping boxes; whole numbers, so that every overlap is exact."""
    corners = torch.randint(0, 100, (300, 2)).float()
    boxes = torch.cat([corners, corners + torch.randint(8, 60, (300, 2))], dim=1)
    scores = torch.randperm(300).float()
    ops = importlib.import_module("torchvision.ops")
    got = ops.nms(boxes.to(device), scores.to(device), 0.5)
    exact = boxes.double()
    low = torch.maximum(exact[:, None, :2], exact[None, :, :2])
    high = torch.minimum(exact[:, None, 2:], exact[None, :, 2:])
    common = (high - low).clamp(min=0).prod(dim=2)
    area = (exact[:, 2:] - exact[:, :2]).prod(dim=1)
    overlap = (2 * common > area[:, None] + area[None, :] - common).tolist()
    kept: list[int] = []
    for box in scores.argsort(descending=True).tolist():
        if not any(overlap[box][other] for other in kept):
            kept.append(box)
    return compared(got, torch.tensor(kept))[0], f"kept {len(kept)} of 300 boxes"


@smoke_test("torchvision roi_align", 1e-4, companion="torchvision", meaning=NO_KERNEL)
def roi_align(torch: Any, device: str) -> Measured:
    """Sample a region of an image, and compute the gradient.

    One sample in the middle of each bin is a bilinear interpolation, which torch has too.
    """
    image, bins = torch.randn(1, 4, 32, 32), 7
    region = torch.tensor([[3.2, 4.7, 24.1, 27.9]])
    ops = importlib.import_module("torchvision.ops")

    def gradient(pixels: Any, result: Any) -> Any:
        return torch.autograd.grad(result.square().sum(), pixels)[0]

    pixels = image.to(device).requires_grad_()
    got = ops.roi_align(pixels, [region.to(device)], bins, sampling_ratio=1, aligned=True)
    middles = (torch.arange(bins).double() + 0.5) / bins
    x1, y1, x2, y2 = region[0].tolist()
    across, down = (2 * (a + (b - a) * middles) / 32 - 1 for a, b in ((x1, x2), (y1, y2)))
    rows, columns = torch.meshgrid(down, across, indexing="ij")
    grid = torch.stack([columns, rows], dim=2)[None]
    reference = image.double().requires_grad_()
    want = torch.nn.functional.grid_sample(reference, grid, align_corners=False)
    errors = (
        compared(got.detach(), want.detach())[0],
        compared(gradient(pixels, got), gradient(reference, want))[0],
    )
    return max(errors), ""


@smoke_test(
    "torchvision decode_jpeg",
    3e-2,
    devices=GPU,
    companion="torchvision",
    optional="nvJPEG in TorchVision",
    meaning="TorchVision cannot decode JPEG files on this GPU",
)
@smoke_test("torchvision decode_jpeg", 3e-2, devices=("cpu",), companion="torchvision")
def decode_jpeg(torch: Any, device: str) -> Measured:
    """Encode a smooth image on the CPU, and decode it.

    A failure means: TorchVision was built without libjpeg, or finds another one
    """
    io = importlib.import_module("torchvision.io")
    ramp = torch.arange(64)
    image = torch.stack([2 * ramp.expand(64, 64), 3 * ramp[:, None].expand(64, 64)])
    image = torch.cat([image, 255 - image[:1]]).to(torch.uint8)
    data = io.encode_jpeg(image, quality=95)
    try:
        return compared(io.decode_jpeg(data, device=device), image)
    except RuntimeError as error:
        if "not compiled with nvJPEG" in str(error):
            raise MissingPart("this TorchVision was built without nvJPEG") from error
        raise


@smoke_test("torchaudio forced_align", 1e-6, companion="torchaudio", meaning=NO_KERNEL)
def forced_align(torch: Any, device: str) -> Measured:
    """Align ten labels with forty frames, of which two have each label and two a blank."""
    functional = importlib.import_module("torchaudio.functional")
    labels = torch.arange(1, 11)
    path = torch.stack([labels, labels, 0 * labels, 0 * labels], dim=1).flatten()
    likely = torch.randn(40, 16) + 20 * torch.nn.functional.one_hot(path, 16)
    emission = likely.log_softmax(dim=1)
    got, scores = functional.forced_align(emission[None].to(device), labels[None].to(device))
    want = emission.gather(1, path[:, None])[None, :, 0]
    return max(compared(got, path[None])[0], compared(scores, want)[0]), ""


@smoke_test("torchaudio lfilter", 1e-5, companion="torchaudio", meaning=NO_KERNEL)
def lfilter(torch: Any, device: str) -> Measured:
    """Filter two channels of noise; the recursion must run in TorchAudio's library."""
    functional = importlib.import_module("torchaudio.functional")
    if not hasattr(torch.ops.torchaudio, "_lfilter_core_loop"):
        raise RuntimeError("its library was not loaded: lfilter would run in Python")
    sound = torch.randn(2, 1000)
    back, ahead = torch.tensor([1.0, -1.2, 0.5]), torch.tensor([0.2, 0.3, 0.2])
    got = functional.lfilter(sound.to(device), back.to(device), ahead.to(device), clamp=False)
    (_, a1, a2), (b0, b1, b2) = back.double().tolist(), ahead.double().tolist()
    x = torch.nn.functional.pad(sound.double(), (2, 0))
    y = torch.zeros_like(x)
    for n in range(2, x.shape[1]):
        forward = b0 * x[:, n] + b1 * x[:, n - 1] + b2 * x[:, n - 2]
        y[:, n] = forward - a1 * y[:, n - 1] - a2 * y[:, n - 2]
    return compared(got, y[:, 2:])


RNNT = "the RNN transducer in TorchAudio (nixpkgs builds it without)"


@smoke_test("torchaudio rnnt_loss", 1e-5, companion="torchaudio", optional=RNNT, meaning=NO_KERNEL)
def rnnt_loss(torch: Any, device: str) -> Measured:
    """Compute the loss of an RNN transducer, for six frames and four labels."""
    functional = importlib.import_module("torchaudio.functional")
    if not hasattr(torch.ops.torchaudio, "rnnt_loss_forward"):
        raise MissingPart("this TorchAudio was built without the RNN transducer")
    frames, labels = 6, torch.tensor([[1, 2, 3, 1]], dtype=torch.int32)
    size = labels.shape[1]
    logits = torch.randn(1, frames, size + 1, 5)
    lengths = (torch.tensor([n], dtype=torch.int32) for n in (frames, size))
    there = (x.to(device) for x in (logits, labels, *lengths))
    got = functional.rnnt_loss(*there, blank=0)
    chance = logits.double().log_softmax(dim=3)[0]
    total = torch.full((frames, size + 1), -math.inf, dtype=torch.float64)
    total[0, 0] = 0
    for t in range(frames):
        for u in range(size + 1):
            if t:
                total[t, u] = torch.logaddexp(total[t, u], total[t - 1, u] + chance[t - 1, u, 0])
            if u:
                label = chance[t, u - 1, labels[0, u - 1]]
                total[t, u] = torch.logaddexp(total[t, u], total[t, u - 1] + label)
    return compared(got, -(total[-1, -1] + chance[-1, -1, 0]))


@smoke_test("torchcodec decode sound", 1e-6, devices=("cpu",), companion="torchcodec")
def decode_sound(torch: Any, _device: str) -> Measured:
    """Write a WAV file of 16-bit noise, and decode it; `torchaudio.load` does so since 2.9.

    A failure means: TorchCodec finds no FFmpeg of the version that it was compiled for
    """
    samples = torch.randint(-(1 << 15), 1 << 15, (1000, 2), dtype=torch.int16)
    decoders = importlib.import_module("torchcodec.decoders")
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        with wave.open(file, "wb") as sound:
            sound.setnchannels(2)
            sound.setsampwidth(2)
            sound.setframerate(16000)
            sound.writeframes(bytes(samples.view(torch.uint8).flatten().tolist()))
        file.flush()
        got = decoders.AudioDecoder(file.name).get_all_samples().data
    return compared(got, samples.T.double() / (1 << 15))


@smoke_test("torchcodec decode video", 2e-2, companion="torchcodec", meaning=NO_KERNEL)
def decode_video(torch: Any, device: str) -> Measured:
    """Write a video of three gray ramps without compression, and decode the last one."""
    ramp = torch.arange(64).expand(64, 64) + 100
    gray = [bytes((ramp + 10 * number).to(torch.uint8).flatten().tolist()) for number in range(3)]
    colours = bytes([128]) * (2 * 32 * 32)
    decoders = importlib.import_module("torchcodec.decoders")
    with tempfile.NamedTemporaryFile(suffix=".y4m") as file:
        file.write(b"YUV4MPEG2 W64 H64 F25:1 Ip A1:1 C420\n")
        file.writelines(b"FRAME\n" + each + colours for each in gray)
        file.flush()
        got = decoders.VideoDecoder(file.name, device=device)[2]
    if got.device.type != torch.device(device).type:
        raise RuntimeError(f"the frame is on {got.device}")
    want = (ramp + 20 - 16).double() * 255 / 219  # BT.601: 16 is black, 235 is white
    return compared(got, want.expand(3, 64, 64))


# --- The process that runs the tests ---


def work(arguments: argparse.Namespace) -> None:
    """Report the facts of torch, then each test from number `--first` on.

    The facts of CUDA come before its first test: a GPU that hangs does not stop the CPU's tests.
    """
    if sys.platform == "linux":  # end with the parent, so that no killed run leaves a process
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"  # NVRTC must run, and leave nothing
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


def unmet_need(torch: Any, device: str, test: SmokeTest) -> str:
    """Return why a test cannot run with this torch or on this GPU, or an empty text."""
    if test.companion and test.companion not in companions:
        return f"without --companion {test.companion}"
    if test.torch and numbers(torch.__version__) < numbers(test.torch):
        return f"needs PyTorch {test.torch} or newer"
    oldest = numbers(test.capability or "")
    if oldest and torch.cuda.get_device_capability(device) < oldest:
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
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("highest")
        error, message = test.work(torch, device)
    except MissingPart as missing:
        return {"outcome": "skipped", "message": str(missing)}
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


def numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, such as (2, 9) for `2.9.1+cu130`."""
    return tuple(map(int, re.findall("[0-9]+", version)[:2]))


def triton_versions() -> tuple[str | None, str | None]:
    """Return the installed Triton and the one that this PyTorch requires, None where unknown."""
    pattern = r"(?:pytorch-)?triton\s*\(?(?:==|(?=[~>]))\s*([~>=0-9.]+)"
    return installed("triton") or installed("pytorch-triton"), requirement("torch", pattern)


def nccl_version(torch: Any) -> str | None:
    """Return the version of NCCL that is linked into torch, None without NCCL."""
    if not hasattr(torch._C, "_nccl_version"):
        return None
    with contextlib.suppress(Exception):  # a fact for the report; the test shows whether it works
        return ".".join(map(str, torch.cuda.nccl.version()))
    return None


def torch_facts(torch: Any) -> Facts:
    """Return the configuration of this torch, which needs no GPU."""
    cudnn = torch.backends.cudnn
    # torch.cuda.get_arch_list() is empty without a GPU; this is what it reads.
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    triton, required = triton_versions()
    return {
        "file": torch.__file__,
        "library_folders": library_folders(),
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
        "config": torch.__config__.show(),
        "parallel": torch.__config__.parallel_info(),
    }


def library_folders() -> list[str]:
    """Return the folders of PyTorch's libraries in this process, as Linux's /proc has them.

    Those of one build are in one folder. The dynamic linker finds another build's libraries in
    LD_LIBRARY_PATH, or in /usr/lib where a run path does not lead to the build's own.
    """
    paths = re.findall(r" (/.*)/lib(?:c10|torch)(?:_[a-z_]+)?\.so", text_of("/proc/self/maps"))
    return sorted(set(paths))


def companion_facts(name: str) -> Facts:
    """Return what is installed of a companion. It is not imported: it may crash."""
    version = installed(name)
    found = importlib.util.find_spec(name) if version else None
    return {"version": version, "file": found.origin if found else None}


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
        "companions": {
            name: {"expected": version, **companion_facts(name)}
            for name, version in companions.items()
        },
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
    argv += [f"--companion={name}={version}" for name, version in companions.items()]
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
    text = f"one of {', '.join(COMPANIONS)}, with a version if it must have that one; repeatable"
    parser.add_argument(
        "--companion", action="append", default=[], metavar="NAME[=VERSION]", help=text
    )
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--pipe", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device < 0:
        parser.error("--device: 0 or more")
    for each in arguments.companion:
        name, _, companions[name] = each.partition("=")
        if name not in COMPANIONS:
            parser.error(f"--companion {name}: allowed: {', '.join(COMPANIONS)}")
    # torch must not import a module that happens to lie beside this file.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]
    if arguments.pipe is not None:
        work(arguments)
    else:
        sys.stdout.write(json.dumps(report(arguments), indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
