"""Code that may hold instructions above a variant's ISA, because it asks the CPU before it runs.

Most rows were met in the official wheels that docs/proof.md names, the rest is known from PyTorch's
sources. What is not in the table and above the ISA is a finding.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct


class Owner(Struct, frozen=True, kw_only=True):
    """A body of code that dispatches at run time, and how its functions are told.

    `symbol` is searched in a mangled name that holds one of the `hints` (half a million names:
    looking for a word is twenty times as fast), `file` in the name of the source (FILE symbols).
    An `is_archive` lies in the library as one block, so that a C function between two functions
    of it belongs to it.
    """

    name: str
    reason: str
    hints: tuple[str, ...]
    symbol: str
    file: str = r"(?!)"
    is_archive: bool = False


ATEN: Final = Owner(
    name="ATen kernels",
    reason="aten/src/ATen/native/cpu is compiled once for each CPU capability; DispatchStub picks "
    "one by cpuinfo. DEFAULT is compiled with the variant's flags alone and is not exempt",
    hints=("AVX", "SVE"),
    symbol=r"(?<!\d)(?:4AVX2|6AVX512|11AVX512_VNNI|3SVE|6SVE128|6SVE256)(?=[^a-z])",
    file=r"\.(?:AVX2|AVX512|AVX512_VNNI|SVE|SVE128|SVE256)\.(?:cpp|cc)$",
)

OWNERS: Final = (
    ATEN,
    Owner(
        name="FBGEMM",
        reason="fbgemmHasAvx2Support and its like choose the kernel; asmjit writes others at run "
        "time",
        hints=("fbgemm", "asmjit"),
        symbol=r"6fbgemm|6asmjit|fbgemm",
        file=r"^(?:Fbgemm|QuantUtils|Embedding|Transpose|Group|Utils|Fused|Optimized|Sparse|Refe)"
        r".*Avx(?:2|512)\w*\.cc$",
    ),
    Owner(
        name="oneDNN",
        reason="mayiuse() guards each kernel; Xbyak writes most of them at run time",
        hints=("dnn", "Xbyak"),
        symbol=r"4dnnl|dnnl_|mkldnn|5Xbyak",
    ),
    Owner(
        name="SLEEF",
        reason="one function for each ISA; ATen's kernels call those of their own capability",
        hints=("Sleef_", "_ZGV", "disp_"),
        symbol=r"Sleef_|^_ZGV[a-z]|^disp_(?:sin|cos|tan|asin|acos|atan|log|exp|pow|sinh|cosh|tanh|"
        r"cbrt|asinh|acosh|atanh|erf|gamma|lgamma|tgamma|hypot|fmod|trunc|floor|ceil|round|rint|"
        r"next|fr|ldexp|ilog|fma|sqrt|fabs|copysign|fmax|fmin|fdim|mod|remainder|get)",
        file=r"^(?:sleefsimd[sd]p\.c|disp(?:avx|sse|scalar)?\w*\.c)$",
    ),
    Owner(
        name="MKL",
        reason="every function comes in versions for each CPU, chosen by its own dispatcher",
        hints=("mkl_", "MKL", "fti", "vml", "vsl"),
        symbol=r"^_?(?:mkl_|MKL|dfti|Dfti|vml|vsl|lapacke)",
        is_archive=True,
    ),
    Owner(
        name="NNPACK",
        reason="nnp_initialize chooses by cpuinfo",
        hints=("nnp",),
        symbol=r"^_?nnp_|^nnp\w*__",
    ),
    Owner(
        name="QNNPACK",
        reason="pytorch_qnnp_initialize chooses by cpuinfo",
        hints=("qnnp", "pytorch_"),
        symbol=r"qnnp|^pytorch_(?:q|x|u|hgemm|sgemm|sconv)",
    ),
    Owner(
        name="XNNPACK", reason="its config chooses by cpuinfo", hints=("xnn_",), symbol=r"^_?xnn_"
    ),
    Owner(
        name="KleidiAI",
        reason="called where cpuinfo has what it needs",
        hints=("kai_",),
        symbol=r"^_?kai_",
        is_archive=True,
    ),
    Owner(
        name="Arm Compute Library",
        reason="CPUInfo chooses the kernel",
        hints=("arm_",),
        symbol=r"11arm_compute|8arm_gemm|8arm_conv",
    ),
    Owner(
        name="Caffe2 kernels",
        reason="caffe2/perfkernels chooses by cpuinfo",
        hints=("__avx", "__sve"),
        symbol=r"__avx(?:2_fma|2|512|_f16c|)(?:$|[^a-z0-9])|__sve\b",
        file=r"_(?:avx|avx2|avx512|sve)\.cc$",
    ),
    Owner(
        name="libgcc atomics",
        reason="-moutline-atomics: each asks __aarch64_have_lse_atomics first",
        hints=("__aarch64_",),
        symbol=r"^__aarch64_(?:cas|swp|ld)",
    ),
    Owner(name="cpuinfo", reason="asks the CPU what it is", hints=("cpuinfo",), symbol=r"cpuinfo"),
)

_SYMBOLS: Final = tuple((re.compile(o.symbol), o) for o in OWNERS)
_FILES: Final = tuple((re.compile(o.file), o) for o in OWNERS)


def owner_of_symbol(name: str) -> Owner | None:
    """Whose function it is by its mangled name."""
    for pattern, owner in _SYMBOLS:
        for hint in owner.hints:
            if hint in name and pattern.search(name):
                return owner
    return None


def owner_of_file(name: str) -> Owner | None:
    """Whose source it is by its file name."""
    return next((owner for pattern, owner in _FILES if pattern.search(name)), None)
