"""The smoke tests: a table of computations, each with a tolerance and a reference.

script.py loads this file by its path, in the Python that is tested: it needs torch, and nothing
beside it. To add a test, add a row to TESTS. Each row finds a fault of a build that no other finds.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
"""Compiled libraries that belong to one PyTorch."""


class MissingPart(Exception):  # noqa: N818 - the test is skipped, nothing is wrong
    """The optional part that a test needs is missing; the text is the reason."""


class SmokeTest(NamedTuple):
    """A test: `call` gets torch and the `inputs` on the device, and returns a tensor.

    `reference`, without one `call` itself, gets the inputs on the CPU in float64. The tolerance is
    about four times what a sum of 1024 products loses in the format: every correct machine stays
    below it, and one wrong element in a million exceeds it.
    """

    name: str
    tolerance: float
    call: Callable[..., Any]
    inputs: Callable[[Any], list[Any]] = lambda t: []
    reference: Callable[..., Any] | None = None
    device: str = ""  #: `cpu` or `cuda`; empty for both
    needs: dict[str, tuple[int, int]] = {}  # noqa: RUF012 - the least `capability` and `PyTorch`
    companion: str = ""
    meaning: str = ""  #: what a failure means for the user


# --- What the tests compute. `run_test` sets the seed: each run has the same random numbers. ---

CPU, GPU = "cpu", "cuda"
SQUARE = (1024, 1024)
PATH = (1, 1, 2, 0)
"""Labels of frames; 0 is a blank."""


def randn(*shapes: tuple[int, ...], dtype: str = "float32") -> Callable[[Any], list[Any]]:
    """Return a function that makes a random tensor of each shape."""
    return lambda t: [t.randn(*shape).to(getattr(t, dtype)) for shape in shapes]


def fp8(t: Any) -> list[Any]:
    """Return two matrices in FP8 (e4m3), and a scale for each row and column."""
    matrices = [t.randn(*SQUARE).to(t.float8_e4m3fn) for _ in range(2)]
    return [*matrices, t.rand(1024, 1) + 0.5, t.rand(1, 1024) + 0.5]


def grouped(t: Any, a: Any, b: Any) -> Any:
    """Multiply each 128 rows with a matrix of their own, in one call."""
    ends = t.arange(128, 513, 128, dtype=t.int32, device=a.device)
    return t._grouped_mm(a, b.transpose(-2, -1), offs=ends)


def convolution(t: Any, images: Any, weights: Any) -> Any:
    """Convolve images with 3 x 3 filters; a GPU must use cuDNN."""
    if images.device.type == GPU and not t.backends.cudnn.is_acceptable(images):
        raise RuntimeError("this PyTorch does not use cuDNN")
    return t.nn.functional.conv2d(images, weights, padding=1)


def equations(t: Any) -> list[Any]:
    """Return 512 linear equations, far from singular."""
    return [t.randn(512, 512) + 64 * t.eye(512), t.randn(512, 8)]


def solve(t: Any, a: Any, b: Any, library: str = "default") -> Any:
    """Solve equations, on a GPU with this library."""
    if library == "magma" and not t.cuda.has_magma:
        raise MissingPart("this PyTorch was built without MAGMA")
    if a.device.type == GPU:
        t.backends.cuda.preferred_linalg_library(library)
    return t.linalg.solve(a, b)


def elementwise(t: Any, x: Any) -> Any:
    """Compute with vectorised kernels, which on a CPU are compiled for each ISA, and reduce."""
    return (t.tanh(x) * t.exp(-x * x) + t.sqrt(x.abs())).sum(dim=1)


def training(t: Any, images: Any, weights: Any) -> Any:
    """Return the gradient that a step of training needs."""
    weights = weights.clone().requires_grad_()
    t.nn.functional.conv2d(images, weights, padding=1).square().sum().backward()
    return weights.grad


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


def compiled(t: Any, x: Any) -> Any:
    """Compile a function with torch.compile, which must generate a kernel."""
    if not shutil.which(os.environ.get("CXX", "g++")):  # Triton compiles its launcher too
        raise MissingPart("no C++ compiler")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise MissingPart("no Python.h, the headers of this Python")
    if x.device.type == GPU and not importlib.util.find_spec("triton"):
        raise MissingPart("Triton is not installed")
    # Without a cache of earlier runs, and leaving none.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, TRITON_CACHE_DIR=f"{folder}/triton")
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes besides this one
        metrics = importlib.import_module("torch._inductor.metrics")
        metrics.reset()
        got = t.compile(lambda x: elementwise(t, x), fullgraph=True)(x)
    if not metrics.generated_kernel_count:
        raise RuntimeError("no kernel was generated: torch.compile is switched off")
    return got


def reduced(t: Any, x: Any) -> Any:
    """Sum scaled values in a group of one process: for a plain sum NCCL would start no kernel."""
    dist = t.distributed
    if not (dist.is_available() and dist.is_nccl_available()):
        raise MissingPart("this PyTorch was built without NCCL")
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(3.0))
    return x


def paired(t: Any, name: str) -> Any:
    """Fail if a companion was compiled with another PyTorch than that of this process.

    In a Nix store the run path of its libraries names the folder of one. TorchVision itself
    compares the version of CUDA only.
    """
    package = Path(importlib.import_module(name).__file__ or "").parent
    here, is_named = (Path(t.__file__).parent / "lib").resolve(), False
    for library in sorted(package.rglob("*.so")):
        texts = re.findall(rb"(?<=\0)/[^\0\n]+(?=\0)", library.read_bytes())  # also a run path
        folders = [Path(name) for name in os.fsdecode(b":".join(texts)).split(":")]
        named = [folder for folder in folders if os.path.lexists(folder / "libc10.so")]
        if named and named[0].resolve() != here:
            raise RuntimeError(f"{library.name} was compiled with {named[0]}, and this is {here}")
        is_named = is_named or bool(named)
    if not is_named:
        raise MissingPart("nothing in it names the PyTorch that it was compiled with")
    return t.ones(1)


def boxes(t: Any) -> list[Any]:
    """Return boxes and scores: the first overlaps by more than half the second, which is lower."""
    corners = [[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [5, 5, 15, 15]]
    return [t.tensor(corners), t.tensor([0.9, 0.8, 0.7, 0.95])]


def frames(t: Any) -> list[Any]:
    """Return the probabilities of three labels in each of four frames, and the labels to find."""
    likely = t.nn.functional.one_hot(t.tensor(PATH), 3)
    return [(20.0 * likely).log_softmax(dim=1), t.tensor([1, 2])]


def aligned(t: Any, frames: Any, labels: Any) -> Any:
    """Return which label is in each frame."""
    functional = importlib.import_module("torchaudio.functional")
    return functional.forced_align(frames[None], labels[None])[0][0]


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

IMAGES = randn((8, 32, 48, 48), (64, 32, 3, 3))
LOST = '"operator does not exist": its library was not loaded; "no kernel image": it lacks this GPU'
OTHER = "it belongs to another PyTorch; its calls may crash or be wrong"
Row = SmokeTest
TESTS = (
    # name, tolerance, call, inputs, reference, device; what it needs and means
    Row("matmul fp32", 1e-5, lambda t, a, b: a @ b, randn(SQUARE, SQUARE)),
    Row("matmul bf16", 1e-2, lambda t, a, b: a @ b, randn(SQUARE, SQUARE, dtype="bfloat16")),
    # Tensor cores have FP8 from Ada Lovelace on (PTX ISA manual, mma with .e4m3). Scales for each
    # row and column run on 12.0 from PyTorch 2.8 on (RowwiseScaledMM.cu).
    Row("matmul fp8 rowwise", 2e-2,
        lambda t, a, b, rows, columns: t._scaled_mm(
            a, b.t(), scale_a=rows, scale_b=columns, out_dtype=t.bfloat16
        ),
        fp8,
        lambda t, a, b, rows, columns: (a * rows) @ (b.t() * columns), GPU,
        needs={"capability": (8, 9), "PyTorch": (2, 8)},
        meaning="FP8 with a scale for each row (torchao) does not work: the architecture-specific "
        "code (sm_90a, 100a, 103a, 110a, 120a, 121a) is missing, or cuBLAS lacks the kernel"),
    # PyTorch 2.8 has it for 9.0 only; from 2.9 on, GPUs other than 9.0 and 10.x take single ones.
    Row("grouped matmul bf16", 1e-2, grouped, randn((512, 256), (4, 128, 256), dtype="bfloat16"),
        lambda t, a, b: (a.view(4, 128, 256) @ b.transpose(-2, -1)).flatten(0, 1), GPU,
        needs={"capability": (9, 0), "PyTorch": (2, 9)},
        meaning="grouped products (mixture-of-experts models) do not work: sm_90a, 100a or 103a "
        "code is missing in this build"),
    Row("complex dot", 1e-5, lambda t, x, y: t.vdot(t.complex(x, y), t.complex(x, y)).real,
        randn((1000,), (1000,)), lambda t, x, y: (x * x + y * y).sum(), CPU,
        meaning="complex dot products are 0: the build did not ask how its BLAS returns them"),
    Row("convolution", 1e-5, convolution, IMAGES),
    Row("solve", 1e-5, solve, equations, device=CPU),
    Row("solve magma", 1e-5, lambda t, a, b: solve(t, a, b, "magma"), equations, solve, GPU),
    Row("solve cusolver", 1e-5, lambda t, a, b: solve(t, a, b, "cusolver"), equations, solve, GPU),
    # No multiple of a vector's length, no power of two.
    Row("elementwise", 1e-5, elementwise, randn((1000, 1003))),
    Row("fft", 1e-5, lambda t, x: t.view_as_real(t.fft.fft(x)), randn((64, 1000)),
        meaning="cuFFT, or the FFT library of the CPU, is missing or wrong"),
    Row("training", 1e-4, training, IMAGES),
    # Any build without FlashAttention lacks this function.
    Row("flash attention bf16", 2e-2,
        lambda t, q, k, v: t.ops.aten._scaled_dot_product_flash_attention(q, k, v)[0],
        randn(*[(2, 4, 256, 64)] * 3, dtype="bfloat16"),
        lambda t, q, k, v: t.softmax(q @ k.transpose(-1, -2) / 8, dim=-1) @ v, GPU,
        needs={"capability": (8, 0)},
        meaning="FlashAttention is missing or does not run here; attention is slow and needs "
        "memory"),
    Row("nvrtc", 1e-5, jiterated, randn((1000,), (1000,)), lambda t, x, y: x * x + y, GPU,
        meaning="NVRTC is missing or does not know this GPU: PyTorch cannot compile kernels at run "
        "time, which it does for some functions of complex and special numbers"),
    Row("profiler", 1e-5, profiled, randn((256, 256)), lambda t, x: x @ x, GPU,
        meaning="torch.profiler shows no GPU activity: Kineto was built without CUPTI, or CUPTI "
        "cannot be loaded or is in use by another profiler"),
    Row("compile", 1e-5, compiled, randn((256, 1000)), elementwise,
        meaning="torch.compile does not work, on a GPU perhaps because this Triton does not fit "
        "this PyTorch; everything else is unaffected"),
    Row("nccl all-reduce", 1e-6, reduced, randn(SQUARE), lambda t, x: 3 * x, GPU,
        meaning="torch.distributed cannot use this GPU: NCCL does not start, or holds no code for "
        "it (nixpkgs builds NCCL for a list of its own)"),
    # Companions: the import and the pairing with this PyTorch, and one kernel.
    *(Row(f"{name} pairing", 0.0, lambda t, name=name: paired(t, name), device=CPU, companion=name,
          meaning=OTHER) for name in COMPANIONS),
    Row("torchvision nms", 0.0,
        lambda t, *boxes: importlib.import_module("torchvision.ops").nms(*boxes, 0.5), boxes,
        lambda t, *_: t.tensor([3, 0, 2]), companion="torchvision", meaning=LOST),
    Row("torchaudio forced_align", 0.0, aligned, frames, lambda t, *_: t.tensor(PATH),
        companion="torchaudio", meaning=LOST),
    # BT.601: 16 is black, 235 is white.
    Row("torchcodec decode video", 2e-2, decoded, lambda t: [t.arange(64).expand(64, 64) + 100],
        lambda t, ramp: ((ramp + 20 - 16) * 255 / 219).expand(3, 64, 64),
        companion="torchcodec", meaning=LOST),
)  # fmt: skip
