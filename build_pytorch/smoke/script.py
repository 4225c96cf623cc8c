"""Test a PyTorch with real work and print a JSON report on stdout.

Run this file with the Python whose torch is to be tested; it needs installed_torch.py, in
../base or beside it, and nothing else. A missing or broken torch is reported in the JSON.

    python script.py [--device INDEX] [--cpu-only] [--limit SECONDS] [--companion NAME[=VERSION]]

TorchVision, TorchAudio and TorchCodec are companions: compiled libraries that belong to a PyTorch.
They are tested if `--companion` names them, and then they must be there.

A second process runs the tests and reports each step through a pipe. If it crashes, its signal is
recorded and a new process continues with the next test; if it hangs, it is killed at the limit.
A failed test therefore never hides the results of others.

Exit code 0: the report is complete; 2: wrong arguments.

To add a test, add a row.
"""

from __future__ import annotations

import argparse
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
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Facts = dict[str, Any]


def _installed_torch() -> Any:
    """Return the module installed_torch, which is in no package of this Python."""
    here = Path(__file__).resolve()
    places = (here.parents[1] / "base/installed_torch.py", here.with_name("installed_torch.py"))
    path = next(filter(Path.exists, places))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec  # noqa: S101 - a Python file
    assert spec.loader  # noqa: S101 - the same
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


torch_facts = _installed_torch()

SCHEMA = 2
MEASURE = "largest difference from the reference, divided by the largest value of the reference"
SPARSE_SHARE = 0.01
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
companions: dict[str, str] = {}
"""The companions that must be there -> their version, empty for any; from `--companion`."""


class MissingPart(Exception):  # noqa: N818 - the test is skipped, nothing is wrong
    """The optional part that a test needs is missing; the text is the reason."""


class SmokeTest(NamedTuple):
    """A row: what is computed on a device, the reference, and how far they may differ.

    `inputs` makes tensors, `call` takes torch and them on the device, and may return a message
    beside its result. `reference` takes the tensors on the CPU; without one it is `call` in
    float64. A call without inputs and result only has to end.

    What a test needs: on a GPU at least the compute `capability`, such as `8.9` (None: any), and
    with `magma` a PyTorch that has MAGMA. `torch` is the oldest PyTorch that has the function.
    `optional` names a part without which PyTorch works: where it is missing, `call` raises
    MissingPart, and the test is skipped. `meaning` says what a failure means for the user.
    `companion` is the one of COMPANIONS that is tested, if `companions` names it.

    A good tolerance is about four times what a sum of 1024 products loses in the format (its unit
    roundoff, relative to the largest result): every correct machine stays below it, and one wrong
    element in a million exceeds it.
    """

    name: str
    device: str
    tolerance: float
    call: Callable[..., Any]
    inputs: Callable[[Any], list[Any]]
    reference: Callable[..., Any] | None
    capability: str | None = None
    magma: bool = False
    torch: str | None = None
    optional: str = ""
    meaning: str = ""
    companion: str = ""


_rows: list[SmokeTest] = []
NOT_DECLARED = ("call", "inputs", "reference")
BOTH, CPU, GPU = ("cpu", "cuda"), ("cpu",), ("cuda",)


def row(  # noqa: PLR0913, PLR0917 - the columns of the table
    name: str,
    tolerance: float,
    call: Callable[..., Any],
    inputs: Callable[[Any], list[Any]] = lambda t: [],
    reference: Callable[..., Any] | None = None,
    devices: tuple[str, ...] = BOTH,
    **needs: Any,
) -> None:
    """Add a test on each device; what only a GPU needs is none of the CPU's."""
    for device in devices:
        of_gpu = {} if device == "cuda" else {"capability": None, "magma": False}
        _rows.append(
            SmokeTest(
                f"{device} {name}",
                device,
                tolerance,
                call,
                inputs,
                reference,
                **{**needs, **of_gpu},
            )
        )


def tests() -> list[SmokeTest]:
    """Return every test in the order in which they run: those of the CPU first."""
    return sorted(_rows, key=lambda test: test.device)


def declarations() -> list[Facts]:
    """Return what a report states of each test: all but its functions."""
    return [{k: v for k, v in test._asdict().items() if k not in NOT_DECLARED} for test in tests()]


# --- The tests. Random numbers are the same in every run: `run_test` sets the seed. ---


def randn(*shapes: tuple[int, ...], dtype: str = "float32") -> Callable[[Any], list[Any]]:
    """Return a function that makes a random tensor of each shape."""
    return lambda t: [t.randn(*shape).to(getattr(t, dtype)) for shape in shapes]


SQUARE = (1024, 1024)


def product(t: Any, a: Any, b: Any) -> Any:
    """Multiply two matrices; the reference multiplies the rounded inputs."""
    return a @ b


def product_tf32(t: Any, a: Any, b: Any) -> Any:
    """Multiply on tensor cores, where they may."""
    t.set_float32_matmul_precision("high")
    return a @ b


row("matmul fp32", 1e-5, product, randn(SQUARE, SQUARE))
row("matmul bf16", 1e-2, product, randn(SQUARE, SQUARE, dtype="bfloat16"))
row("matmul fp16", 2e-3, product, randn(SQUARE, SQUARE, dtype="float16"))
row("matmul tf32", 3e-3, product_tf32, randn(SQUARE, SQUARE), devices=GPU)


def product_fp8(t: Any, a: Any, b: Any, rows: Any, columns: Any) -> Any:
    """Multiply FP8 matrices with FP32 sums, through the function that torch itself uses."""
    got = t._scaled_mm(a, b.t(), scale_a=rows, scale_b=columns, out_dtype=t.bfloat16)
    return got[0] if isinstance(got, tuple) else got  # a pair before torch 2.5


def reference_fp8(t: Any, a: Any, b: Any, rows: Any, columns: Any) -> Any:
    """Multiply the rounded inputs in float64."""
    return (a.float().double() * rows) @ (b.float().double().t() * columns)


def fp8(t: Any, *scales: Any) -> list[Any]:
    """Return two matrices in FP8 (e4m3), and scales for them."""
    return [*(t.randn(*SQUARE).to(t.float8_e4m3fn) for _ in range(2)), *scales]


# Tensor cores have FP8 from Ada Lovelace on (PTX ISA manual, mma with .e4m3). Scales for each row
# and column run on 12.0 from PyTorch 2.8 on (RowwiseScaledMM.cu).
row(
    "matmul fp8",
    2e-2,
    product_fp8,
    lambda t: fp8(t, t.ones(()), t.ones(())),
    reference_fp8,
    GPU,
    capability="8.9",
)
row(
    "matmul fp8 rowwise",
    2e-2,
    product_fp8,
    lambda t: fp8(t, t.rand(1024, 1) + 0.5, t.rand(1, 1024) + 0.5),
    reference_fp8,
    GPU,
    capability="8.9",
    torch="2.8",
    meaning="FP8 with a scale for each row (torchao) does not work: the architecture-specific code "
    "(sm_90a, 100a, 103a, 110a, 120a, 121a) is missing, or cuBLAS lacks the kernel",
)
# CPUs do this with VNNI instructions; exact in every bit.
row(
    "matmul int8",
    0.0,
    lambda t, a, b: t._int_mm(a, b),
    lambda t: [t.randint(-128, 128, (256, 256), dtype=t.int8) for _ in range(2)],
    lambda t, a, b: a.long() @ b.long(),
    CPU,
)

ENDS = (64, 192, 448, 512)


def grouped(t: Any, a: Any, b: Any) -> Any:
    """Multiply the rows of each of four groups with a matrix of its own, in one call."""
    offsets = t.tensor(ENDS, dtype=t.int32, device=a.device)
    return t._grouped_mm(a, b.transpose(-2, -1), offs=offsets)


def grouped_one_by_one(t: Any, a: Any, b: Any) -> Any:
    """Return the same in float64."""
    parts = zip((0, *ENDS), ENDS, b.double(), strict=False)
    return t.cat([a[begin:end].double() @ matrix.t() for begin, end, matrix in parts])


# PyTorch 2.8 has it for 9.0 only; from 2.9 on, GPUs other than 9.0 and 10.x take single products.
row(
    "grouped matmul bf16",
    1e-2,
    grouped,
    randn((512, 256), (4, 128, 256), dtype="bfloat16"),
    grouped_one_by_one,
    GPU,
    capability="9.0",
    torch="2.9",
    meaning="grouped products (mixture-of-experts models) do not work: sm_90a, 100a or 103a code "
    "is missing in this build",
)


def convolution(t: Any, images: Any, weights: Any) -> Any:
    """Convolve images with 3 x 3 filters; a GPU must use cuDNN."""
    if images.device.type != "cpu":
        if not t.backends.cudnn.is_acceptable(images):
            raise RuntimeError("this PyTorch does not use cuDNN")
        t.backends.cudnn.allow_tf32 = False
    return t.nn.functional.conv2d(images, weights, padding=1)


row("convolution", 1e-5, convolution, randn((8, 32, 48, 48), (64, 32, 3, 3)))
# One value in a hundred; a GPU uses cuSPARSE.
row(
    "sparse matmul",
    1e-5,
    lambda t, a, b: a.to_sparse_csr() @ b,
    lambda t: [t.randn(*SQUARE) * (t.rand(*SQUARE) < SPARSE_SHARE), t.randn(1024, 128)],
    lambda t, a, b: a.double() @ b.double(),
)


def equations(t: Any) -> list[Any]:
    """Return 512 linear equations, far from singular."""
    return [t.randn(512, 512) + 64 * t.eye(512), t.randn(512, 8)]


def solve_with(library: str) -> Callable[..., Any]:
    """Return a function that solves equations on a GPU with a library."""

    def solve(t: Any, a: Any, b: Any) -> Any:
        t.backends.cuda.preferred_linalg_library(library)
        return t.linalg.solve(a, b)

    return solve


def solved(t: Any, a: Any, b: Any) -> Any:
    """Solve equations in float64."""
    return t.linalg.solve(a.double(), b.double())


row("solve", 1e-5, lambda t, a, b: t.linalg.solve(a, b), equations, solved, CPU)
row("solve magma", 1e-5, solve_with("magma"), equations, solved, GPU, magma=True)
row("solve cusolver", 1e-5, solve_with("cusolver"), equations, solved, GPU)
# Vectorised kernels and a reduction; on a CPU they are compiled for each ISA. The length is not a
# multiple of a vector's.
row(
    "elementwise",
    1e-5,
    lambda t, x: (t.tanh(x) * t.exp(-x * x) + t.sqrt(x.abs())).sum(dim=1),
    randn((1000, 1003)),
)
# No power of two; a GPU uses cuFFT.
row(
    "fft",
    1e-5,
    lambda t, x: t.view_as_real(t.fft.fft(x)),
    randn((64, 1000)),
    meaning="cuFFT, or the FFT library of the CPU, is missing or wrong",
)


def training(t: Any, images: Any, labels: Any) -> Any:
    """Take ten steps of gradient descent, and return the loss, which must fall."""
    nn = t.nn
    t.manual_seed(1)
    convolved, linear = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 16 * 16, 10)
    net = nn.Sequential(convolved, nn.ReLU(), nn.Flatten(), linear).to(images.device, images.dtype)
    if images.device.type != "cpu":
        t.backends.cudnn.allow_tf32 = False
    optimizer = t.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    message = f"loss {losses[0].item():.4f} to {losses[-1].item():.4f}"
    if not losses[-1] < losses[0]:
        raise RuntimeError(f"the loss did not fall: {message}")
    return losses[-1], message


row("training", 1e-3, training, lambda t: [t.randn(64, 3, 16, 16), t.randint(0, 10, (64,))])

ATTENTION = "_scaled_dot_product_"
"""Begin of the names of the operations that compute attention, one for each implementation."""
QKV = randn(*[(2, 4, 256, 64)] * 3, dtype="bfloat16")


def attention(t: Any, q: Any, k: Any, v: Any) -> Any:
    """Compute scaled dot-product attention, which is most of the compiled code for a GPU."""
    return t.nn.functional.scaled_dot_product_attention(q, k, v)


def attention_by_products(t: Any, *inputs: Any) -> Any:
    """Compute attention by matrix products in float64."""
    q, k, v = (x.double() for x in inputs)
    return t.softmax(q @ k.transpose(-1, -2) / math.sqrt(64), dim=-1) @ v


def attention_by(backend: str) -> Callable[..., Any]:
    """Return attention with one implementation, where no other one may compute it.

    Without the force PyTorch falls back to plain matrix products, which any build can do.
    """

    def forced(t: Any, *inputs: Any) -> Any:
        backends = importlib.import_module("torch.nn.attention")
        mode: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
        called: list[str] = []

        class Recorder(mode):  # type: ignore[misc] # torch is not installed where types are checked
            def __torch_dispatch__(
                self, function: Any, _types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                called.append(function.__name__)
                return function(*args, **(kwargs or {}))

        if backend == "cudnn_attention":
            params = t.backends.cuda.SDPAParams(*inputs, None, 0.0, False, False)  # noqa: FBT003
            if not t.backends.cuda.can_use_cudnn_attention(params):
                raise MissingPart("this PyTorch does not use cuDNN for attention on this GPU")
        with backends.sdpa_kernel([getattr(backends.SDPBackend, backend.upper())]), Recorder():
            got = attention(t, *inputs)
        computed = [name for name in called if name.startswith(ATTENTION)]
        if not any(name.startswith(ATTENTION + backend) for name in computed):
            used = ", ".join(computed) or "matrix products"
            raise RuntimeError(f"{backend} was asked for, and {used} computed it")
        return got, f"by {computed[0].removeprefix(ATTENTION).partition('.')[0]}"

    return forced


row("attention bf16", 2e-2, attention, QKV, attention_by_products)
row(
    "flash attention bf16",
    2e-2,
    attention_by("flash_attention"),
    QKV,
    attention_by_products,
    capability="8.0",
    meaning="FlashAttention is missing or does not run here; attention is slow and needs memory",
)
row(
    "cudnn attention bf16",
    2e-2,
    attention_by("cudnn_attention"),
    QKV,
    attention_by_products,
    GPU,
    capability="8.0",
    optional="attention in cuDNN for this GPU",
    meaning="the attention of cuDNN does not run on this GPU; PyTorch may choose it by itself",
)


def jiterated(t: Any, x: Any, y: Any) -> Any:
    """Compile a kernel at run time, through the jiterator; `work` switches its cache off."""
    code = "template <typename T> T shifted(T x, T y) { return x * x + y; }"
    return t.cuda.jiterator._create_jit_fn(code)(x, y)


row(
    "nvrtc",
    1e-5,
    jiterated,
    randn((1000,), (1000,)),
    lambda t, x, y: x.double() * x.double() + y.double(),
    GPU,
    meaning="NVRTC is missing or does not know this GPU: PyTorch cannot compile kernels at run "
    "time, which it does for some functions of complex and special numbers",
)


def profiled(t: Any, x: Any) -> Any:
    """Record a matrix product; the profiler must see its kernels on the GPU."""
    kinds = t.profiler.ProfilerActivity
    with t.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as recorded:
        got = x @ x
        t.cuda.synchronize(x.device)
    cuda = t.autograd.DeviceType.CUDA
    kernels = {event.name for event in recorded.events() if event.device_type == cuda}
    if not kernels:
        raise RuntimeError("no kernel was recorded")
    return got, f"{len(kernels)} recorded"


row(
    "profiler",
    1e-5,
    profiled,
    randn((256, 256)),
    lambda t, x: x.double() @ x.double(),
    GPU,
    meaning="torch.profiler shows no GPU activity: Kineto was built without CUPTI, or CUPTI cannot "
    "be loaded or is in use by another profiler",
)


def fused(t: Any, x: Any, y: Any) -> Any:
    """Compute what torch.compile makes one kernel of."""
    return (t.tanh(x) * y + t.sqrt(x.abs())).sum(dim=1)


def compiled(t: Any, x: Any, y: Any) -> Any:
    """Compile a function with torch.compile, which must generate a kernel."""
    is_cpu = x.device.type == "cpu"
    if is_cpu and not shutil.which(os.environ.get("CXX", "g++")):
        raise MissingPart("no C++ compiler")
    if is_cpu and not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise MissingPart("no Python.h, the headers of this Python")
    version, required = torch_facts.triton_versions()
    if not is_cpu and version is None:
        raise MissingPart("Triton is not installed")
    versions = "" if is_cpu else f"Triton {version}, required: {required or 'unknown'}"
    # Without a cache of earlier runs, and leaving none.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, TRITON_CACHE_DIR=f"{folder}/triton")
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes besides this one
        metrics = importlib.import_module("torch._inductor.metrics")
        metrics.reset()
        try:
            got = t.compile(lambda x, y: fused(t, x, y), fullgraph=True)(x, y)
        except Exception as error:
            if "C compiler" in str(error):  # Triton compiles its launcher with it
                raise MissingPart("Triton finds no C compiler") from error
            raise RuntimeError(f"{versions}: {error}" if versions else str(error)) from error
    if not metrics.generated_kernel_count:
        raise RuntimeError("no kernel was generated: torch.compile is switched off")
    return got, versions


row(
    "compile",
    1e-5,
    compiled,
    randn((256, 1000), (256, 1000)),
    lambda t, x, y: fused(t, x.double(), y.double()),
    optional="a compiler: Triton on a GPU, a C++ compiler and Python's headers on a CPU",
    meaning="torch.compile does not work, on a GPU perhaps because this Triton does not fit this "
    "PyTorch; everything else is unaffected",
)


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
        return t.stack([plain, scaled]), f"NCCL {torch_facts.nccl_version(t)}"
    finally:
        dist.destroy_process_group()


row(
    "nccl all-reduce",
    1e-6,
    reduced,
    randn(SQUARE),
    lambda t, x: t.stack([x, 3 * x]),
    GPU,
    optional="NCCL",
    meaning="torch.distributed cannot use this GPU: NCCL does not start, or holds no code for it "
    "(nixpkgs builds NCCL for a list of its own)",
)


# --- The tests of companions: the pairing with this PyTorch, and one kernel of each ---

NO_KERNEL = (
    '"operator does not exist": its library was not loaded; "no kernel image": it has no code for '
    "this GPU"
)
LIBRARIES = ("_C*.so", "lib/*torchaudio*.so", "libtorchcodec_*.so")


def pairing(package: str) -> Callable[[Any], Any]:
    """Return a test that a companion was compiled with the PyTorch of this process.

    Its metadata may require one PyTorch; the run path of its libraries may name the folder of one,
    as it does in a Nix store. TorchVision itself compares the version of CUDA only.
    """

    def paired(t: Any) -> Any:
        place = Path(importlib.import_module(package).__file__ or "").parent
        version, wanted = torch_facts.installed_version(package), companions.get(package)
        if wanted and release_of(version) != release_of(wanted):
            raise RuntimeError(f"this is {package} {version}, not {wanted}")
        signs = []
        if required := torch_facts.requirement(package, r"torch\s*\(?==\s*([0-9.]+)"):
            signs.append(f"requires PyTorch {required}")
            if release_of(required) != release_of(t.__version__):
                raise RuntimeError(f"it {signs[-1]}, and this is {t.__version__}")
        here = (Path(t.__file__).parent / "lib").resolve()
        for library in sorted(path for names in LIBRARIES for path in place.glob(names)):
            named = [name for name in search_path(library) if os.path.lexists(name / "libc10.so")]
            if named and named[0].resolve() != here:
                raise RuntimeError(
                    f"{library.name} was compiled with {named[0]}, and this is {here}"
                )
            signs += [f"{library.name} names {here}"] if named else []
        if not signs:
            raise MissingPart("nothing in it names the PyTorch that it was compiled with")
        return None, f"{package} {version}: {signs[-1]}"

    return paired


def release_of(version: str | None) -> str:
    """Return the release number of a version: `0.25.0` for `0.25.0a0+cu130`.

    The version files of both projects have the suffix `a0` at their release tags too.
    """
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version or "")
    return found[0] if found else ""


def search_path(library: Path) -> list[Path]:
    """Return the folders that a library names; those of its run path are among them."""
    strings = re.findall(rb"(?<=\0)/[^\0\n]+(?=\0)", library.read_bytes())
    return [Path(os.fsdecode(name)) for text in strings for name in text.split(b":")]


for _title in ("TorchAudio", "TorchCodec", "TorchVision"):
    row(
        f"{_title.lower()} pairing",
        0.0,
        pairing(_title.lower()),
        devices=CPU,
        companion=_title.lower(),
        optional="a trace of the PyTorch that it was compiled with",
        meaning=f"this {_title} belongs to another PyTorch; its calls may crash or be wrong",
    )


# The second box overlaps the first, which has a higher score, by more than half.
row(
    "torchvision nms",
    0.0,
    lambda t, *boxes: importlib.import_module("torchvision.ops").nms(*boxes, 0.5),
    lambda t: [
        t.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [5, 5, 15, 15]]),
        t.tensor([0.9, 0.8, 0.7, 0.95]),
    ],
    lambda t, *boxes: t.tensor([3, 0, 2]),
    companion="torchvision",
    meaning=NO_KERNEL,
)


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


row(
    "torchaudio forced_align",
    1e-6,
    aligned,
    likely,
    lambda t, frames, labels, path: t.stack([path.double(), frames.gather(1, path[:, None])[:, 0]]),
    companion="torchaudio",
    meaning=NO_KERNEL,
)


def decoded(t: Any, ramp: Any) -> Any:
    """Write a video of three gray ramps without compression, and decode the last one."""
    frames = [bytes((ramp.cpu() + 10 * n).to(t.uint8).flatten().tolist()) for n in range(3)]
    colours = bytes([128]) * (2 * 32 * 32)
    decoders = importlib.import_module("torchcodec.decoders")
    with tempfile.NamedTemporaryFile(suffix=".y4m") as file:
        file.write(b"YUV4MPEG2 W64 H64 F25:1 Ip A1:1 C420\n")
        file.writelines(b"FRAME\n" + each + colours for each in frames)
        file.flush()
        got = decoders.VideoDecoder(file.name, device=str(ramp.device))[2]
    if got.device.type != ramp.device.type:
        raise RuntimeError(f"the frame is on {got.device}")
    return got


row(
    "torchcodec decode video",
    2e-2,
    decoded,
    lambda t: [t.arange(64).expand(64, 64) + 100],
    # BT.601: 16 is black, 235 is white.
    lambda t, ramp: ((ramp + 20 - 16).double() * 255 / 219).expand(3, 64, 64),
    companion="torchcodec",
    meaning=NO_KERNEL,
)


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
    facts = torch_facts.imported()
    if "error" in facts:
        send(done="torch", facts={"import_error": facts["error"]})
        return
    send(done="torch", facts=facts)
    torch: Any = sys.modules["torch"]
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
    """Return how far a test is from its reference, as MEASURE defines it, and its message."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    if test.companion:
        importlib.import_module(test.companion)
    inputs = test.inputs(torch)
    got = test.call(torch, *(x.to(device) for x in inputs))
    got, message = got if isinstance(got, tuple) else (got, "")
    if got is None:
        return 0.0, message
    if test.reference:
        want = test.reference(torch, *inputs).double()
    else:
        want = test.call(torch, *(x.double() if x.is_floating_point() else x for x in inputs))
        want = want[0] if isinstance(want, tuple) else want
    got = got.cpu().double()
    if got.shape != want.shape:
        raise RuntimeError(f"shape {tuple(got.shape)}, wanted {tuple(want.shape)}")
    return ((got - want).abs().max() / want.abs().max()).item(), message


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


def companion_facts(name: str) -> Facts:
    """Return what is installed of a companion. It is not imported: it may crash."""
    version = torch_facts.installed_version(name)
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
        return {"available": False, "reason": torch_facts.explained(error)}
    reason = f"there is no device {arguments.device}"
    return {"available": False, "reason": reason, "devices": devices}


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
    text = torch_facts.text_of("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.*\S)", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)", text, re.MULTILINE)
    return {"model": model[1] if model else "", "flags": flags[1].split() if flags else []}


def driver_facts() -> Facts:
    """Return the NVIDIA driver of this machine, whether torch finds its library or not."""
    text = torch_facts.text_of("/proc/driver/nvidia/version")
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
