"""Binary proof: what `invoke prove` says about real objects of gcc, nvcc and Nix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Project, error_line, needs_nix

from build_pytorch.inspect import closure, disassembly, isa, isa_arm, isa_x86, owners, symbols
from build_pytorch.matrix.model import Matrix

COMPILERS = {"x86_64-linux": "x86_64-linux-gnu-g++", "aarch64-linux": "aarch64-linux-gnu-gcc"}
COMMON = "common.c"
VARIANTS = {
    "avx2": "cpu-avx2",
    "avx512": "cpu-avx512",
    "avx512bf16": "cpu-avx512bf16",
    "avx512vnni": "cpu-avx512vnni",
    "armv8_2": "sm110-armv8_2",
    "armv9": "sm110-armv9",
}
X86 = [key for key in VARIANTS if key.startswith("avx")]

needs_cuda = pytest.mark.skipif(
    not (shutil.which("nvcc") and shutil.which("cuobjdump")), reason="no nvcc with cuobjdump"
)

# What compilers turn into the best instructions that their flags allow, and intrinsics for what
# they do not emit on their own. In C with mangled names, as there is often no g++ for ARM.
COMMON_CODE = """
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif
#ifdef __cplusplus
extern "C" {
#endif
void _ZN3c104axpyEPfPKffl(float* y, const float* x, float a, long n) {
  for (long i = 0; i < n; i++) y[i] += a * x[i];
}
long _ZN3c105countEPl(long* n) { return __atomic_add_fetch(n, 1, __ATOMIC_SEQ_CST); }
#ifdef __F16C__
__m256 _ZN3c104halfEDv2_x(__m128i h) { return _mm256_cvtph_ps(h); }
#endif
#ifdef __AVX2__
__m256i _ZN3c103addEDv4_xS0_(__m256i a, __m256i b) { return _mm256_add_epi8(a, b); }
#endif
#ifdef __AVX512F__
void _ZN3c106selectEPfPKf(float* y, const float* x) {
  __m512 v = _mm512_loadu_ps(x);
  _mm512_mask_storeu_ps(y, _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), 1), v);
}
#endif
#ifdef __AVX512DQ__
__m512i _ZN3c103mulEDv8_xS0_(__m512i a, __m512i b) { return _mm512_mullo_epi64(a, b); }
#endif
#ifdef __AVX512BW__
__m512i _ZN3c103addEDv8_xS0_(__m512i a, __m512i b) { return _mm512_add_epi8(a, b); }
#endif
#ifdef __AVX512VL__
__m256i _ZN3c107ternaryEDv4_xS0_(__m256i a, __m256i b) {
  return _mm256_ternarylogic_epi64(a, b, a, 0x17);
}
#endif
#ifdef __AVX512BF16__
__m512 _ZN3c103dotEDv16_fDv32_bS1_(__m512 s, __m512bh a, __m512bh b) {
  return _mm512_dpbf16_ps(s, a, b);
}
#endif
#ifdef __AVX512VNNI__
__m512i _ZN3c103dotEDv8_xS0_S0_(__m512i s, __m512i a, __m512i b) {
  return _mm512_dpbusd_epi32(s, a, b);
}
#endif
#ifdef __AVXVNNI__
__m256i _ZN3c103dotEDv4_xS0_S0_(__m256i s, __m256i a, __m256i b) {
  return _mm256_dpbusd_avx_epi32(s, a, b);
}
#endif
#ifdef __ARM_FEATURE_DOTPROD
int32x4_t _ZN3c103dotEiaa(int32x4_t s, int8x16_t a, int8x16_t b) { return vdotq_s32(s, a, b); }
#endif
#ifdef __ARM_FEATURE_FP16_VECTOR_ARITHMETIC
float16x8_t _ZN3c104halfEhh(float16x8_t a, float16x8_t b) { return vaddq_f16(a, b); }
#endif
#ifdef __cplusplus
}
#endif
"""


def platform_of(key: str) -> str:
    return "aarch64-linux" if key.startswith("arm") else "x86_64-linux"


def compile_library(
    folder: Path,
    flags: list[str] | tuple[str, ...],
    *,
    platform: str = "x86_64-linux",
    name: str = "libtorch_cpu.so",
    sources: dict[str, str] | None = None,
    strip: str = "",
) -> Path:
    """A shared library of C++ sources; each source may hold flags of its own in its first line."""
    compiler = COMPILERS[platform]
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    folder.mkdir(parents=True, exist_ok=True)
    objects = []
    for file, text in (sources or {COMMON: COMMON_CODE}).items():
        (folder / file).write_text(text)
        first = text.partition("\n")[0]
        own = first.removeprefix("// flags: ").split() if first.startswith("// flags: ") else []
        out = folder / f"{file}.o"
        argv = [compiler, "-O3", "-fPIC", *flags, *own, "-c", str(folder / file), "-o", str(out)]
        subprocess.run(argv, check=True)
        objects.append(str(out))
        (folder / file).unlink()
    library = folder / name
    subprocess.run([compiler, "-shared", "-o", str(library), *objects], check=True)
    for path in objects:
        Path(path).unlink()
    if strip:
        subprocess.run(["strip", strip, str(library)], check=True)
    return library


def prove(
    project: Project, *argv: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return project.run("invoke", "inspect", *argv, env=env)


def part_of(done: subprocess.CompletedProcess[str], name: str) -> dict[str, Any]:
    (variant,) = json.loads(done.stdout)["variants"]
    (found,) = [part for part in variant["parts"] if part["id"] == name]
    return dict(found)


def scanned(project: Project, key: str, folder: Path) -> dict[str, Any]:
    return part_of(prove(project, VARIANTS[key], "--path", str(folder), "--json"), "instructions")


def texts(part: dict[str, Any], severity: str = "error") -> str:
    return "\n".join(f["found"] for f in part["findings"] if f["severity"] == severity)


# --- the classifier ---


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("mov    %rax,%rbx", ""),
        ("addps  %xmm0,%xmm1", ""),
        ("tzcnt  %eax,%ebx", ""),  # which older CPUs run as bsf, and gcc writes as rep bsf
        ("pshufb %xmm0,%xmm1", "ssse3"),
        ("pextrw $0x0,%xmm2,%eax", ""),
        ("pextrw $0x0,%xmm2,(%rsi)", "sse4.1"),
        ("popcnt %rax,%rax", "popcnt"),
        ("shlx   %eax,%ebx,%ecx", "bmi2"),
        ("vaddps %ymm0,%ymm1,%ymm2", "avx"),
        ("vpaddd %xmm0,%xmm1,%xmm2", "avx"),
        ("vpaddd %ymm0,%ymm1,%ymm2", "avx2"),
        ("vbroadcastss (%rax),%ymm0", "avx"),
        ("vbroadcastss %xmm0,%ymm0", "avx2"),
        ("vfmadd231ps (%rax),%ymm1,%ymm2", "fma"),
        ("vfmaddps %ymm0,%ymm1,%ymm2,%ymm3", "fma4"),
        ("vcvtph2ps %xmm4,%ymm4", "f16c"),
        ("vaddps %zmm0,%zmm1,%zmm2", "avx512f"),
        ("vaddps %ymm16,%ymm1,%ymm2", "avx512f avx512vl"),
        ("vaddps %ymm0,%ymm1,%ymm2{%k1}{z}", "avx512f avx512vl"),
        ("vaddss %xmm0,%xmm1,%xmm2{%k1}", "avx512f"),
        ("vmovdqu8 %zmm0,(%rax)", "avx512bw"),
        ("vpmullq %zmm0,%zmm1,%zmm2", "avx512dq"),
        ("kmovw  %k1,%eax", "avx512f"),
        ("kmovq  %k1,%rax", "avx512bw"),
        ("vpbroadcastd %esi,%xmm13", "avx512f avx512vl"),
        ("vdpbf16ps %zmm2,%zmm1,%zmm0", "avx512_bf16"),
        ("vaddph %zmm1,%zmm0,%zmm0", "avx512_fp16"),
        ("vpdpbusd %zmm2,%zmm1,%zmm0", "avx512_vnni"),
        ("vpdpbusd %ymm2,%ymm1,%ymm0", "avx512_vnni avx512vl"),
        ("{vex} vpdpbusd %ymm2,%ymm1,%ymm0", "avx_vnni"),
        ("tdpbssd %tmm3,%tmm2,%tmm1", "amx_int8"),
        ("call   1234 <_Zvaddps_zmm>", ""),
        ("lea    0x1(%rip),%rax  # 12 <vaddps zmm>", ""),
    ],
)
def test_an_x86_instruction_needs(text: str, features: str) -> None:
    match = isa_x86.INTERESTING.search(f"\t{text}\n".encode())
    found = isa_x86.classify(match[1].decode(), match[2].decode()) if match else frozenset()
    assert found == set(features.split())


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("add\tx0, x1, x2", ""),
        ("fadd\tv0.4s, v1.4s, v2.4s", ""),
        ("fcvt\td0, h0", ""),
        ("fcvtn\tv0.4h, v1.4s", ""),
        ("mov\tv0.8h, v1.8h", ""),
        ("fadd\tv0.8h, v1.8h, v2.8h", "fp16"),
        ("fadd\th0, h1, h2", "fp16"),
        ("ldaddal\tx0, x1, [x2]", "lse"),
        ("casal\tx0, x1, [x2]", "lse"),
        ("sdot\tv0.4s, v1.16b, v2.16b", "dotprod"),
        ("bfdot\tv0.4s, v1.8h, v2.8h", "bf16"),
        ("smmla\tv0.4s, v1.16b, v2.16b", "i8mm"),
        ("fadd\tz0.s, p0/m, z0.s, z1.s", "sve"),
        ("ld1w\t{z0.s}, p0/z, [x0]", "sve"),
        ("whilelo\tp0.s, wzr, w1", "sve"),
        ("cntd\tx0", "sve"),
        ("mul\tz0.s, p0/m, z0.s, z1.s", "sve"),
        ("mul\tz0.s, z0.s, z1.s", "sve2"),
        ("sqdmulh\tz0.s, z1.s, z2.s", "sve2"),
        ("whilegt\tp0.s, x0, x1", "sve2"),
        ("bl\t1234 <fadd_z0.s>", ""),
    ],
)
def test_an_arm_instruction_needs(text: str, features: str) -> None:
    match = isa_arm.INTERESTING.search(f"\t{text}\n".encode())
    found = isa_arm.classify(match[1].decode(), match[2].decode()) if match else frozenset()
    assert found == set(features.split())


MACROS = {
    "sse3": "__SSE3__",
    "ssse3": "__SSSE3__",
    "sse4.1": "__SSE4_1__",
    "sse4.2": "__SSE4_2__",
    "popcnt": "__POPCNT__",
    "lzcnt": "__LZCNT__",
    "bmi": "__BMI__",
    "bmi2": "__BMI2__",
    "movbe": "__MOVBE__",
    "aes": "__AES__",
    "avx": "__AVX__",
    "avx2": "__AVX2__",
    "fma": "__FMA__",
    "f16c": "__F16C__",
    "avx512f": "__AVX512F__",
    "avx512dq": "__AVX512DQ__",
    "avx512bw": "__AVX512BW__",
    "avx512vl": "__AVX512VL__",
    "avx512cd": "__AVX512CD__",
    "avx512_bf16": "__AVX512BF16__",
    "avx512_vnni": "__AVX512VNNI__",
    "avx512_fp16": "__AVX512FP16__",
    "avx_vnni": "__AVXVNNI__",
}
ARM_MACROS = {
    "lse": "__ARM_FEATURE_ATOMICS",
    "crc": "__ARM_FEATURE_CRC32",
    "rdma": "__ARM_FEATURE_QRDMX",
    "fp16": "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC",
    "fp16fml": "__ARM_FEATURE_FP16_FML",
    "dotprod": "__ARM_FEATURE_DOTPROD",
    "fcma": "__ARM_FEATURE_COMPLEX",
    "jscvt": "__ARM_FEATURE_JCVT",
    "frint": "__ARM_FEATURE_FRINT",
    "bf16": "__ARM_FEATURE_BF16",
    "i8mm": "__ARM_FEATURE_MATMUL_INT8",
    "sve": "__ARM_FEATURE_SVE",
    "sve2": "__ARM_FEATURE_SVE2",
}
OF_AVX512 = {"fma", "f16c"}  # see isa_x86.IMPLIED


@pytest.mark.parametrize("key", VARIANTS)
def test_flags_allow_what_gcc_predefines_for_them(fleet: Matrix, key: str) -> None:
    cpu = fleet.cpus[key]
    compiler = COMPILERS[cpu.platform]
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    argv = [compiler, *cpu.flags, "-E", "-dM", "-x", "c", "/dev/null"]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    defined = {line.split()[1] for line in said.splitlines()}
    table = ARM_MACROS if key.startswith("arm") else MACROS
    expected = {feature for feature, macro in table.items() if macro in defined}
    allowed = isa.allowed(cpu) & table.keys()
    assert allowed - OF_AVX512 == expected - OF_AVX512
    assert allowed >= expected


def test_a_flag_that_the_scan_does_not_know_is_one_line(project: Project, tmp_path: Path) -> None:
    project.edit("matrix.toml", '"-mavx2", "-mfma", "-mf16c"]', '"-mavx2", "-mfma", "-mcx16"]')
    compile_library(tmp_path / "lib", ["-mavx2"])
    done = prove(project, "cpu-avx2", "--path", str(tmp_path / "lib"))
    assert done.returncode == 2
    assert "what -mcx16 allows is not known" in error_line(done)


# --- objects of gcc ---


@pytest.mark.parametrize("key", VARIANTS)
def test_code_compiled_for_an_isa_passes(
    project: Project, fleet: Matrix, tmp_path: Path, key: str
) -> None:
    compile_library(tmp_path / "lib", fleet.cpus[key].flags, platform=platform_of(key))
    part = scanned(project, key, tmp_path / "lib")
    assert part["state"] in {"passed", "warning"}
    assert not texts(part)


@pytest.mark.parametrize(
    ("key", "flags", "feature"),
    [
        ("avx2", ["-mavx512f"], "avx512f"),
        ("avx2", ["-mavx2", "-mfma", "-mavxvnni"], "avx_vnni"),
        ("avx2", ["-mavx2", "-mbmi2", "-mfma"], "bmi2"),
        ("avx512", ["-mavx512vl", "-mavx512bw", "-mavx512vnni"], "avx512_vnni"),
        ("avx512", ["-mavx512vl", "-mavx512bw", "-mavx512bf16"], "avx512_bf16"),
        ("avx512bf16", ["-mavx512vl", "-mavx512bw", "-mavx512vnni"], "avx512_vnni"),
        ("avx512vnni", ["-mavx512vl", "-mavx512bw", "-mavx512bf16"], "avx512_bf16"),
        ("avx512vnni", ["-mavx512vl", "-mavx512vnni", "-mavxvnni"], "avx_vnni"),
        ("armv8_2", ["-march=armv9-a+sve2"], "sve"),
    ],
)
def test_code_above_the_isa_is_found(
    project: Project, tmp_path: Path, key: str, flags: list[str], feature: str
) -> None:
    code = COMMON_CODE + "long _ZN3c105shiftEli(long a, int b) { return a << b; }\n"
    compile_library(tmp_path / "lib", flags, platform=platform_of(key), sources={COMMON: code})
    part = scanned(project, key, tmp_path / "lib")
    assert part["state"] == "failed"
    assert "of common code with instructions above it" in texts(part)
    assert feature in texts(part)


@pytest.mark.parametrize(
    ("key", "flags", "found"),
    [
        ("avx2", [], "AVX instructions in 0 functions"),
        ("avx512", ["-mavx2", "-mfma", "-mf16c"], "AVX-512 instructions in 0 functions"),
        ("armv8_2", ["-march=armv8-a", "-mno-outline-atomics"], "ARMv8.1 and newer instructions"),
        ("armv9", ["-march=armv8.2-a+fp16+dotprod"], "SVE instructions in 0 functions"),
    ],
)
def test_code_below_the_isa_is_found(
    project: Project, tmp_path: Path, key: str, flags: list[str], found: str
) -> None:
    compile_library(tmp_path / "lib", flags, platform=platform_of(key))
    part = scanned(project, key, tmp_path / "lib")
    assert part["state"] == "failed"
    assert found in texts(part)


def test_what_compilers_use_for_intrinsics_alone_is_a_warning_where_it_is_absent(
    project: Project, fleet: Matrix, tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", fleet.cpus["avx512"].flags)
    part = scanned(project, "avx512bf16", tmp_path / "lib")
    assert part["state"] == "warning"
    assert "avx512_bf16" in texts(part, "warning")


def test_code_of_another_platform_is_found(project: Project, tmp_path: Path) -> None:
    compile_library(tmp_path / "lib", [], platform="aarch64-linux")
    part = scanned(project, "avx2", tmp_path / "lib")
    assert "an ELF file for machine 183" in texts(part)


# --- code that asks the CPU first ---

KERNEL = """// flags: -mavx512f -mavx512vl
namespace at::native { namespace {
__attribute__((noinline)) void kernel(float* y, const float* x) {
  for (int i = 0; i < 256; i++) y[i] = x[i] > 0 ? y[i] * x[i] : y[i];
}
}
void NAME(float* y, const float* x) { kernel(y, x); kernel(y + 256, x); }
}
"""
LABELLED = """// flags: -mavx512f
namespace at::native::LABEL {
void kernel(float* y, const float* x) { for (int i = 0; i < 256; i++) y[i] += x[i]; }
}
"""
AVX2 = ["-mavx2", "-mfma", "-mf16c"]


def kernel(name: str, flags: str) -> str:
    return KERNEL.replace("NAME", name).replace("-mavx512f -mavx512vl", flags)


def labelled(label: str) -> str:
    return LABELLED.replace("LABEL", label).replace(
        "-mavx512f", "-mavx512f -mprefer-vector-width=512"
    )


@pytest.mark.parametrize("strip", ["", "-S", "-s"])
def test_a_kernel_that_names_its_capability_may_be_above_the_isa(
    project: Project, tmp_path: Path, strip: str
) -> None:
    sources = {COMMON: COMMON_CODE, "kernel.cpp": labelled("AVX512")}
    compile_library(tmp_path / "lib", AVX2, sources=sources, strip=strip)
    part = scanned(project, "avx2", tmp_path / "lib")
    assert part["state"] == "passed"
    code = part["figures"]["libtorch_cpu.so"]["code"]["ATen kernels"]
    assert code["functions_above"] == 1


def test_the_default_capability_has_the_variants_flags_alone(
    project: Project, tmp_path: Path
) -> None:
    sources = {COMMON: COMMON_CODE, "kernel.cpp": labelled("DEFAULT")}
    compile_library(tmp_path / "lib", AVX2, sources=sources)
    part = scanned(project, "avx2", tmp_path / "lib")
    assert part["state"] == "failed"
    assert "at::native::DEFAULT::kernel" in texts(part)


HIGH = "-mavx512f -mavx512vl -mprefer-vector-width=512"
THREE = {
    COMMON: COMMON_CODE,
    "K.cpp.DEFAULT.cpp": kernel("one", ""),
    "K.cpp.AVX2.cpp": kernel("_ZN_4AVX2_", "-mavx2"),
    "K.cpp.AVX512.cpp": kernel("_ZN_6AVX512_", HIGH),
}


def test_a_kernel_is_known_by_the_file_it_was_compiled_from(
    project: Project, tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", AVX2, sources=THREE)
    part = scanned(project, "avx2", tmp_path / "lib")
    assert part["figures"]["libtorch_cpu.so"]["symbols"] == "files"
    assert part["state"] == "passed"


def test_the_same_kernel_from_any_other_file_is_found(project: Project, tmp_path: Path) -> None:
    sources = {COMMON: COMMON_CODE, "Other.cpp": kernel("other", HIGH)}
    compile_library(tmp_path / "lib", AVX2, sources=sources)
    part = scanned(project, "avx2", tmp_path / "lib")
    assert part["state"] == "failed"
    assert "(anonymous namespace)::kernel" in texts(part)


def test_without_file_symbols_a_kernel_is_known_by_its_copies(
    project: Project, tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", AVX2, sources=THREE, strip="-S")
    part = scanned(project, "avx2", tmp_path / "lib")
    assert part["figures"]["libtorch_cpu.so"]["symbols"] == "names"
    assert part["state"] == "passed"


def test_without_file_symbols_a_single_kernel_is_neither_proved_nor_disproved(
    project: Project, tmp_path: Path
) -> None:
    sources = {COMMON: COMMON_CODE, "Other.cpp": kernel("other", HIGH)}
    compile_library(tmp_path / "lib", AVX2, sources=sources, strip="-S")
    done = prove(project, "cpu-avx2", "--path", str(tmp_path / "lib"), "--json")
    part = part_of(done, "instructions")
    assert not texts(part)
    assert "of unattributed code" in texts(part, "warning")
    assert part["state"] == "skipped"
    assert "1 function of " in part["reason"]
    assert "in unattributed code: neither proved nor disproved" in part["reason"]


def many(count: int) -> str:
    """So many functions of common code."""
    return "".join(f"float _ZN3c101f{n:05}Ef(float x) {{ return x; }}\n" for n in range(count))


@pytest.mark.parametrize(
    ("functions", "state"), [(9_000, "skipped"), (12_000, "warning")], ids=["more", "fewer"]
)
def test_few_functions_that_nobody_knows_take_no_proof_away(
    project: Project, tmp_path: Path, functions: int, state: str
) -> None:
    sources = {COMMON: COMMON_CODE + many(functions), "Other.cpp": kernel("other", HIGH)}
    compile_library(tmp_path / "lib", AVX2, sources=sources, strip="-S")
    part = scanned(project, "avx2", tmp_path / "lib")
    assert not texts(part)
    assert part["state"] == state


def test_in_a_stripped_library_what_has_no_name_is_counted_and_said(
    project: Project, tmp_path: Path
) -> None:
    sources = {COMMON: COMMON_CODE, "Other.cpp": kernel("other", HIGH)}
    compile_library(tmp_path / "lib", AVX2, sources=sources, strip="-s")
    part = scanned(project, "avx2", tmp_path / "lib")
    assert part["figures"]["libtorch_cpu.so"]["symbols"] == "exported"
    assert not texts(part)
    assert "of unattributed code with instructions above it: (no name)" in texts(part, "warning")
    assert part["state"] == "skipped"
    assert "neither proved nor disproved" in part["reason"]


def test_in_a_stripped_library_exported_functions_are_judged_all_the_same(
    project: Project, tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", ["-mavx512f"], strip="-s")
    part = scanned(project, "avx2", tmp_path / "lib")
    assert "c10::select" in texts(part)


def test_c_code_of_others_is_a_warning(project: Project, tmp_path: Path) -> None:
    theirs = LABELLED.replace("namespace at::native::LABEL {", 'extern "C" {')
    theirs = theirs.replace("-mavx512f", HIGH)
    sources = {COMMON: COMMON_CODE, "theirs.cpp": theirs}
    compile_library(tmp_path / "lib", AVX2, sources=sources)
    part = scanned(project, "avx2", tmp_path / "lib")
    assert not texts(part)
    assert "1 function of other C code" in texts(part, "warning")
    assert part["state"] == "skipped"  # of the six functions here; see the share below


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("_ZN2at3vec4AVX210VectorizedIfE4loadEPKv", "ATen kernels"),
        ("_ZN2at6native6AVX51212_GLOBAL__N_11fEv", "ATen kernels"),
        ("_ZN2at3vec7DEFAULT10VectorizedIfE4loadEPKv", None),
        ("_ZN3abc14AVX2SomethingE", None),
        ("_ZN4dnnl4impl3cpu3x647jit_avxE", "oneDNN"),
        ("Sleef_expf16_u10", "SLEEF"),
        ("mkl_blas_avx512_xsgemm", "MKL"),
        ("xnn_f32_gemm_minmax_ukernel_7x16__avx512f", "XNNPACK"),
        ("__aarch64_ldadd8_acq_rel", "libgcc atomics"),
        ("_ZN5torch8autograd4Node5applyEv", None),
        ("_ZN3c1010TensorImplC2Ev", None),
    ],
)
def test_a_function_belongs_to(name: str, owner: str | None) -> None:
    found = owners.owner_of_symbol(name)
    assert (found.name if found else None) == owner


def test_c_functions_between_two_of_an_archive_belong_to_it(tmp_path: Path) -> None:
    source = 'extern "C" { void mkl_a() {} void helper() {} void mkl_b() {} void after() {} }\n'
    library = compile_library(tmp_path, ["-O0"], sources={"a.cpp": source})
    table = symbols.read(library)
    said = subprocess.run(["nm", str(library)], check=True, capture_output=True, text=True).stdout
    at = {line.split()[2]: int(line.split()[0], 16) for line in said.splitlines() if " T " in line}
    mkl = [owner.name for owner in owners.OWNERS].index("MKL")
    assert table.at(at["helper"])[0] == mkl
    assert table.at(at["after"])[0] == symbols.FOREIGN


# --- long disassemblies ---


@pytest.mark.parametrize("block", [64, 333, 4096])
def test_the_counts_do_not_depend_on_the_size_of_blocks(
    fleet: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    library = compile_library(tmp_path, AVX2, sources=THREE)
    cpu = fleet.cpus["avx2"]
    rules = isa.Rules(isa.ISAS[cpu.platform], isa.allowed(cpu))
    whole = disassembly.scan(library, "objdump", rules, lambda _: None).tally
    monkeypatch.setattr(disassembly, "_BLOCK", block)
    blocks = disassembly.scan(library, "objdump", rules, lambda _: None).tally
    assert blocks.found == whole.found
    assert blocks.functions_above == whole.functions_above
    assert blocks.instructions == whole.instructions


def test_the_counts_do_not_depend_on_the_number_of_spans(
    fleet: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = compile_library(tmp_path, AVX2, sources=THREE)
    cpu = fleet.cpus["avx2"]
    rules = isa.Rules(isa.ISAS[cpu.platform], isa.allowed(cpu))
    one = disassembly.scan(library, "objdump", rules, lambda _: None).tally
    monkeypatch.setattr(disassembly, "_WORTH_A_SPAN", 100)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    done: list[int] = []
    four = disassembly.scan(library, "objdump", rules, done.append)
    assert four.tally.found == one.found
    assert four.tally.instructions == one.instructions
    assert sum(done) == four.size


FAKE_OBJDUMP = """#!{python}
import sys
if "-f" in sys.argv:
    print("file format elf64-x86-64"); sys.exit()
head = "\\n0000000000001000 <_ZN3c105helloEv>:\\n"
line = "    1000:\\tvaddps %ymm0,%ymm1,%ymm2        # 1234 <_ZTV>\\n"
for number in range({functions}):
    sys.stdout.write(head + line * {lines})
"""


@pytest.mark.parametrize(("functions", "lines"), [(40, 200_000), (40_000, 200)])
def test_a_long_disassembly_takes_no_memory(tmp_path: Path, functions: int, lines: int) -> None:
    library = compile_library(tmp_path / "lib", AVX2)
    tools = tmp_path / "tools"
    tools.mkdir()
    script = FAKE_OBJDUMP.format(python=sys.executable, functions=functions, lines=lines)
    (tools / "fake-objdump").write_text(script)
    (tools / "fake-objdump").chmod(0o755)
    code = f"""
from pathlib import Path
from build_pytorch.matrix import matrix_reader
from build_pytorch.inspect import disassembly, isa
cpu = matrix_reader.load().cpus["avx2"]
rules = isa.Rules(isa.ISAS[cpu.platform], isa.allowed(cpu))
scan = disassembly.scan(Path({str(library)!r}), {str(tools / "fake-objdump")!r}, rules, print)
# Not ru_maxrss: that of a process begins with what its parent had.
peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
print(scan.tally.instructions, peak)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    instructions, kib = map(int, done.stdout.splitlines()[-1].split())
    assert instructions == functions * lines
    assert kib < 120_000, "400 MB of text went through"


# --- device code ---


def nvcc(folder: Path, *codes: str, name: str = "libtorch_cuda.so") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "kernel.cu"
    source.write_text("__global__ void k(float* a) { *a = 1; }\nvoid f() { k<<<1, 1>>>(0); }\n")
    flags = [flag for code in codes for flag in ("-gencode", code)]
    argv = ["nvcc", "-shared", "-Xcompiler", "-fPIC", *flags, str(source), "-o", str(folder / name)]
    subprocess.run(argv, check=True)
    source.unlink()


def sm(number: str) -> str:
    return f"arch=compute_{number},code=sm_{number}"


def device(project: Project, variant: str, folder: Path) -> dict[str, Any]:
    compile_library(folder, AVX2)
    return part_of(prove(project, variant, "--path", str(folder), "--json"), "device-code")


@needs_cuda
def test_device_code_for_the_architecture_passes(project: Project, tmp_path: Path) -> None:
    nvcc(tmp_path / "lib", sm("90"), sm("90a"))
    part = device(project, "sm90-avx2", tmp_path / "lib")
    assert part["state"] == "passed"
    assert part["figures"]["libtorch_cuda.so"]["elf"].keys() == {"sm_90", "sm_90a"}


@needs_cuda
def test_what_pytorch_adds_to_an_architecture_passes(project: Project, tmp_path: Path) -> None:
    nvcc(tmp_path / "lib", sm("86"), sm("89"))
    assert device(project, "sm86-avx2", tmp_path / "lib")["state"] == "passed"


@needs_cuda
@pytest.mark.parametrize(
    ("variant", "codes", "found"),
    [
        ("sm120-avx2", ("90",), "device code for sm_90"),
        ("sm90-avx2", ("90", "120"), "device code for sm_120"),
        ("sm120-avx2", ("120", "121"), "device code for sm_121"),
        ("sm80-avx2", ("80", "89"), "device code for sm_89"),
    ],
)
def test_device_code_for_another_architecture_is_found(
    project: Project, tmp_path: Path, variant: str, codes: tuple[str, ...], found: str
) -> None:
    nvcc(tmp_path / "lib", *map(sm, codes))
    part = device(project, variant, tmp_path / "lib")
    assert part["state"] == "failed"
    assert found in texts(part)


@needs_cuda
def test_ptx_is_a_warning(project: Project, tmp_path: Path) -> None:
    nvcc(tmp_path / "lib", sm("90"), "arch=compute_90,code=compute_90")
    part = device(project, "sm90-avx2", tmp_path / "lib")
    assert part["state"] == "warning"
    assert "PTX of sm_90" in texts(part, "warning")


@needs_cuda
def test_what_magma_brings_is_a_warning_and_what_it_lacks_an_error(
    project: Project, tmp_path: Path
) -> None:
    nvcc(tmp_path / "lib", sm("90"))
    nvcc(tmp_path / "lib", sm("80"), sm("90"), name="libtorch_cuda_linalg.so")
    part = device(project, "sm90-avx2", tmp_path / "lib")
    assert part["state"] == "warning"
    assert "sm_80" in texts(part, "warning")
    nvcc(tmp_path / "lib", sm("80"), name="libtorch_cuda_linalg.so")
    part = device(project, "sm90-avx2", tmp_path / "lib")
    assert part["state"] == "failed"


@needs_cuda
def test_a_cpu_only_variant_holds_no_device_code(project: Project, tmp_path: Path) -> None:
    nvcc(tmp_path / "lib", sm("90"))
    part = device(project, "cpu-avx2", tmp_path / "lib")
    assert part["state"] == "failed"
    assert "device code" in texts(part)


def test_a_cpu_only_build_of_a_gpu_variant_is_found_without_cuobjdump(
    project: Project, tmp_path: Path
) -> None:
    part = device(project, "sm90-avx2", tmp_path / "lib")
    assert part["state"] == "failed"
    assert "this PyTorch is CPU-only" in texts(part)


def without(tmp_path: Path, *missing: str) -> dict[str, str]:
    """A PATH with every program but some."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for program in Path(place).glob("*") if Path(place).is_dir() else ():
            target = folder / program.name
            if program.name not in missing and not target.is_symlink():
                target.symlink_to(program)
    return {"PATH": str(folder)}


@needs_cuda
def test_without_cuobjdump_nothing_is_proved(
    project: Project, fleet: Matrix, tmp_path: Path
) -> None:
    nvcc(tmp_path / "lib", sm("90"))
    compile_library(tmp_path / "lib", fleet.cpus["avx2"].flags)
    env = without(tmp_path, "cuobjdump")
    done = prove(project, "sm90-avx2", "--path", str(tmp_path / "lib"), "--json", env=env)
    part = part_of(done, "device-code")
    assert part["state"] == "skipped"
    assert "cuobjdump: not found" in part["reason"]
    assert json.loads(done.stdout)["variants"][0]["outcome"] != "passed"


def test_without_objdump_nothing_is_proved(project: Project, fleet: Matrix, tmp_path: Path) -> None:
    compile_library(tmp_path / "lib", fleet.cpus["avx2"].flags)
    (tmp_path / "version.py").write_text("__version__ = '2.10.0'\ncuda = None\n")
    env = without(tmp_path, "objdump", "x86_64-linux-gnu-objdump")
    done = prove(project, "cpu-avx2", "--path", str(tmp_path / "lib"), "--json", env=env)
    part = part_of(done, "instructions")
    assert part["state"] == "skipped"
    assert "install GNU binutils" in part["reason"]
    assert done.returncode == 3


# --- what PyTorch says of itself ---


def with_config(
    folder: Path, flags: list[str], version: str = "2.10.0", cuda: str = "None"
) -> None:
    text = (
        f'const char* flags() {{ return "{" ".join(flags)} -fvisibility-inlines-hidden -O2"; }}\n'
    )
    compile_library(folder, flags, sources={COMMON: COMMON_CODE, "config.cpp": text})
    (folder.parent / "version.py").write_text(
        f"__version__ = '{version}'\ncuda: Optional[str] = {cuda}\n"
    )


def config_of(project: Project, folder: Path) -> dict[str, Any]:
    return part_of(prove(project, "cpu-avx2", "--path", str(folder), "--json"), "config")


def test_everything_passes_where_the_files_are_those_of_the_variant(
    project: Project, tmp_path: Path
) -> None:
    with_config(tmp_path / "lib", AVX2)
    done = prove(project, "cpu-avx2", "--path", str(tmp_path / "lib"))
    assert done.returncode == 0, done.stdout
    assert not (project.root / ".build-pytorch/ledger.jsonl").exists()


@pytest.mark.parametrize(
    ("flags", "version", "cuda", "found"),
    [
        (AVX2, "2.9.1", "None", "PyTorch 2.9.1"),
        (AVX2, "2.10.0", "'13.0'", "CUDA 13.0"),
        (["-mavx2", "-mfma"], "2.10.0+x", "None", "CXX_FLAGS without -mf16c"),
    ],
)
def test_what_the_files_say_is_compared(
    project: Project, tmp_path: Path, flags: list[str], version: str, cuda: str, found: str
) -> None:
    with_config(tmp_path / "lib", flags, version, cuda)
    part = config_of(project, tmp_path / "lib")
    assert part["state"] == "failed"
    assert found in texts(part)


# --- results of Nix ---


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    """An empty Nix store of its own."""
    return {
        "NIX_REMOTE": "local",
        "NIX_STORE_DIR": f"{tmp_path}/nix/store",
        "NIX_STATE_DIR": f"{tmp_path}/nix/state",
        "NIX_LOG_DIR": f"{tmp_path}/nix/log",
        "NIX_CONFIG": "substituters =\nbuild-users-group =\nsandbox = false",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


PYTHON_SAYS = """TORCH
2.10.0
PyTorch built with:
  - GCC 14.3
  - CPU capability usage: AVX2
  - Build settings: BLAS_INFO=open, CXX_FLAGS= -mavx2 -mfma -mf16c -O2, USE_CUDA=0, \

"""


def build(
    project: Project,
    store: dict[str, str],
    folder: Path,
    needs: list[str],
    variant: str = "cpu-avx2",
    python: str = "",
    fails: str = "",
) -> None:
    """Build a result that holds a folder's libraries and refers to store paths of some names."""
    package = next(path.stem for path in project.pkgs.glob("*.nix") if path.stem.endswith(variant))
    if python:
        needs = [*needs, "python3-3.13.9"]
    said = folder.parent / "said"
    said.write_text(python)
    stand_in = folder.parent / "stand-in.sh"
    stand_in.write_text(
        '[ "$PYTHONNOUSERSITE$PYTHONSAFEPATH$PYTHONHOME" = 11 ] || exit 9\n'
        f"{fails or ':'}\nsed s,TORCH,${{PYTHONPATH%%:*}}/torch/__init__.py, {said}\n"
    )
    expression = f"""
let
  make = name: script: derivation {{
    inherit name; system = builtins.currentSystem;
    builder = "/bin/sh"; args = [ "-c" script ]; PATH = "{os.environ["PATH"]}";
  }};
  needs = map (name: make name "mkdir -p $out/bin; echo ${{name}} > $out/name; \\
    case ${{name}} in python3-*) printf '#!/bin/sh\\n. %s' {stand_in} > $out/bin/python3.13; \\
    chmod +x $out/bin/python3.13;; esac") [ {" ".join(f'"{name}"' for name in needs)} ];
in make "result" ''
  mkdir -p $out/lib/python3.13/site-packages/torch
  cp -r {folder} $out/lib/python3.13/site-packages/torch/lib
  echo ${{toString needs}} > $out/needs
''
"""
    link = project.root / f"result-{package}"
    subprocess.run(
        ["nix-build", "-E", expression, "-o", str(link)],
        check=True,
        capture_output=True,
        env={**os.environ, **store},
    )


def closure_part(
    project: Project, store: dict[str, str], variant: str = "cpu-avx2"
) -> dict[str, Any]:
    return part_of(prove(project, variant, "--json", env=store), "closure")


@needs_nix
def test_a_result_is_proved_and_recorded_with_the_digest_of_its_recipe(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    from build_pytorch.base import digest
    from build_pytorch.results.ledger import Ledger, Tested

    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=PYTHON_SAYS)
    recipe = project.recipe("cpu-avx2")
    remember(project, digest.of_bytes(recipe.read_bytes()))
    remember(project, "sha256:of-a-recipe-that-differs-in-a-comment")
    done = prove(project, "cpu-avx2", env=store)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, event = Ledger(project.root).events()
    assert isinstance(event, Tested)
    assert (event.by, event.outcome, event.variant) == ("inspect", "passed", "cpu-avx2")
    assert event.digest == digest.of_bytes(recipe.read_bytes())
    assert Path(event.output) == (project.root / f"result-{recipe.stem}").resolve()
    report = json.loads((project.root / event.report).read_text())
    assert report["outcome"] == "passed"
    assert [p["id"] for p in report["parts"]] == [
        "files", "device-code", "instructions", "config", "closure",
    ]  # fmt: skip


def remember(project: Project, digest: str) -> None:
    """A line of the ledger: the result was built from a recipe with this digest."""
    from build_pytorch.results.ledger import Ended, Ledger, now

    output = str((project.root / f"result-{project.recipe('cpu-avx2').stem}").resolve())
    Ledger(project.root).append(
        Ended(
            at=now(), release="cuda13_0", variant="cpu-avx2", digest=digest, attempt="1",
            outcome="built", seconds=1.0, outputs=(output,),
        )
    )  # fmt: skip


@needs_nix
def test_a_result_of_unknown_origin_is_judged_and_not_recorded(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=PYTHON_SAYS)
    done = prove(project, "cpu-avx2", env=store)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not recorded: the ledger has no recipe for this result" in done.stdout
    assert "run `invoke build cpu-avx2`, which records" in done.stdout
    assert not (project.root / ".build-pytorch/ledger.jsonl").exists()
    status = project.run("invoke", "status", "cpu-avx2", "--json", env=store)
    assert json.loads(status.stdout)["variants"][0]["built"] == "unknown"


@needs_nix
@pytest.mark.parametrize(
    ("said", "fails", "found"),
    [
        (PYTHON_SAYS, "echo 'ImportError: libc10.so: cannot open' >&2; exit 1", "libc10.so"),
        (PYTHON_SAYS.replace("TORCH", "/usr/lib/torch/__init__.py"), "", "another one: /usr/lib"),
        (PYTHON_SAYS, "kill -ILL $$", "its Python cannot import it: it ended with -4"),
    ],
)
def test_a_result_that_cannot_be_imported_is_none(
    project: Project, store: dict[str, str], tmp_path: Path, said: str, fails: str, found: str
) -> None:
    with_config(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=said, fails=fails)
    done = prove(project, "cpu-avx2", "--json", env=store)
    assert done.returncode == 1
    assert found in texts(part_of(done, "config"))


@needs_nix
def test_a_result_without_a_python_is_no_proof(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    with_config(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [])
    done = prove(project, "cpu-avx2", "--json", env=store)
    assert done.returncode == 3
    assert part_of(done, "config")["state"] == "skipped"
    assert "no Python 3.13" in part_of(done, "config")["reason"]


@needs_nix
@pytest.mark.parametrize(
    ("old", "new", "unsaid"),
    [
        ("CXX_FLAGS=", "OTHER_FLAGS=", "nothing says CXX_FLAGS"),
        ("2.10.0\n", "\n", "nothing says the version"),
    ],
)
def test_what_pytorch_does_not_say_is_not_taken_for_right(
    project: Project, store: dict[str, str], tmp_path: Path, old: str, new: str, unsaid: str
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=PYTHON_SAYS.replace(old, new, 1))
    done = prove(project, "cpu-avx2", "--json", env=store)
    assert done.returncode == 3
    assert part_of(done, "config")["state"] == "skipped"
    assert unsaid in part_of(done, "config")["reason"]


@needs_nix
@pytest.mark.parametrize(
    ("flag", "fits"),
    [
        ("-mavx512f", False),
        ("-march=native", False),
        ("-march=x86-64-v4", False),
        ("-mnosuchthing", False),
        ("-mavx", True),
        ("-mtune=generic", True),
        ("-mno-avx512f", True),
    ],
)
def test_flags_above_the_isa_are_found(
    project: Project, store: dict[str, str], tmp_path: Path, flag: str, fits: bool
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    said = PYTHON_SAYS.replace("-mfma", f"-mfma {flag}")
    build(project, store, tmp_path / "lib", [], python=said)
    part = part_of(prove(project, "cpu-avx2", "--json", env=store), "config")
    assert part["state"] == ("passed" if fits else "failed")
    assert texts(part) == ("" if fits else f"CXX_FLAGS with {flag}")


@needs_nix
def test_one_bad_result_is_a_row_and_the_others_are_proved(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=PYTHON_SAYS)
    (tmp_path / "other/lib").mkdir(parents=True)
    build(project, store, tmp_path / "other/lib", [], "cpu-avx512")
    (project.root / "result-pytorch-python313-cpu-avx512vnni").symlink_to("result-pytorch")
    loop = project.root / "result-pytorch-python313-cpu-avx512bf16"
    loop.symlink_to(loop.name)
    done = prove(project, "cpu-*", "--json", env=store)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    rows = {row["variant"]: row for row in json.loads(done.stdout)["variants"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "cpu-avx2": "passed",
        "cpu-avx512": "failed",
        "cpu-avx512bf16": "not run",
        "cpu-avx512vnni": "not run",
    }
    assert "files: libtorch_cpu.so: not in " in rows["cpu-avx512"]["reasons"][0]
    assert "does not lead into the Nix store" in rows["cpu-avx512bf16"]["reasons"][0]


@needs_nix
def test_the_variants_own_python_is_asked(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [], python=PYTHON_SAYS.replace("2.10.0", "2.9.1"))
    done = prove(project, "cpu-avx2", "--json", env=store)
    part = part_of(done, "config")
    assert done.returncode == 1
    assert part["figures"]["from"] == "torch.__config__.show()"
    assert texts(part) == "PyTorch 2.9.1"


@needs_nix
def test_a_result_of_an_older_recipe_does_not_prove_the_new_one(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    from build_pytorch.results.ledger import Ledger, Tested

    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", [])
    remember(project, "sha256:older")
    remember(project, "sha256:old")
    prove(project, "cpu-avx2", env=store)
    *_, event = Ledger(project.root).events()
    assert isinstance(event, Tested)
    assert event.digest == "sha256:old"


@needs_nix
@pytest.mark.parametrize(
    ("variant", "needs", "found"),
    [
        ("sm90-avx2", ["cuda13.0-cuda_cudart-13.0.96", "cuda13.0-libcublas-13.1.0.3"], ""),
        ("sm90-avx2", ["cuda_cudart-13.0.96", "cuda12.8-libcublas-12.8.4.1"], "CUDA 12.8"),
        ("sm90-avx2", ["cuda_cudart-13.0.96", "cuda_nvrtc-12.9.86"], "CUDA 12.9"),
        ("sm90-avx2", ["zlib-1.3"], "no CUDA at all"),
        ("cpu-avx2", ["zlib-1.3"], ""),
        ("cpu-avx2", ["libcublas-13.1.0.3"], "CUDA in a CPU-only variant: libcublas-13.1.0.3"),
    ],
)
def test_a_closure_holds_the_cuda_of_its_variant_and_no_other(
    project: Project,
    store: dict[str, str],
    tmp_path: Path,
    variant: str,
    needs: list[str],
    found: str,
) -> None:
    compile_library(tmp_path / "lib", AVX2)
    build(project, store, tmp_path / "lib", needs, variant)
    part = closure_part(project, store, variant)
    assert part["state"] == ("failed" if found else "passed")
    assert found in texts(part)


@needs_nix
def test_a_closure_above_its_budget_is_found(
    project: Project, store: dict[str, str], tmp_path: Path
) -> None:
    project.edit("matrix.toml", "cpu = 3", "cpu = 1")
    compile_library(tmp_path / "lib", AVX2)
    with (tmp_path / "lib/large.bin").open("wb") as file:
        file.truncate((1 << 30) + 1)
    build(project, store, tmp_path / "lib", [])
    part = closure_part(project, store)
    assert part["state"] == "failed"
    assert "1.0 GiB; the largest: result 1.0" in texts(part)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("cuda13.0-cuda_cudart-13.0.96", "13.0"),
        ("cuda_cudart-13.0.96-lib", "13.0"),
        ("cuda-merged-12.8", "12.8"),
        ("libnvjitlink-13.0.88", "13.0"),
        ("libcublas-13.1.0.3", None),  # of CUDA 13.0 Update 2
        ("libcufft-12.0.0.61", None),  # of CUDA 13.0
        ("cuda_compat-13.0.1", None),  # a driver's
        ("cudnn-9.13.0.50", None),
    ],
)
def test_a_store_path_tells_its_cuda(name: str, version: str | None) -> None:
    found = closure.versions([f"/nix/store/{'0' * 32}-{name}"])
    assert list(found) == ([version] if version else [])


# --- bad input ---


def test_a_variant_that_was_not_built_is_one_line_with_the_command(project: Project) -> None:
    done = prove(project, "cpu-avx2")
    assert done.returncode == 3
    assert "run `invoke build cpu-avx2`" in done.stdout
    assert "cpu-avx2  not run" in done.stdout
    assert "passed" not in done.stdout


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["cpu-avx2", "--path", "nowhere"], "no such folder"),
        (["cpu-avx2", "--path", "docs"], "no libtorch_cpu.so in it"),
        (["cpu-*", "--path", "docs"], "the files of one variant"),
        (["cpu-avx3"], 'did you mean "cpu-avx2"?'),
        ([""], "which variant?"),
    ],
)
def test_bad_input_is_one_line(project: Project, argv: list[str], says: str) -> None:
    before = project.snapshot()
    done = prove(project, *argv)
    assert done.returncode == 2
    assert says in error_line(done)
    assert project.snapshot() == before


def garbage(path: Path, kind: str) -> None:
    match kind:
        case "text":
            path.write_text("not ELF")
        case "empty":
            path.touch()
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "dangling":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path.name)
        case "header alone":
            path.write_bytes(compile_library(path.parent / "tmp", AVX2).read_bytes()[:40])
        case _:
            whole = compile_library(path.parent / "tmp", AVX2).read_bytes()
            path.write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("text", "it begins with other bytes"),
        ("empty", "it is empty"),
        ("folder", "not a regular file"),
        ("pipe", "not a regular file"),
        ("dangling", "No such file or directory"),
        ("loop", "Too many levels of symbolic links"),
        ("header alone", "its header is cut off"),
        ("half", "its tables are cut off"),
    ],
)
@pytest.mark.parametrize("name", ["libtorch_cpu.so", "libtorch_cuda.so", "libc10.so"])
def test_what_is_no_whole_library_is_a_finding_and_no_hang(
    project: Project, tmp_path: Path, name: str, kind: str, says: str
) -> None:
    folder = tmp_path / "lib"
    with_config(folder, AVX2)
    (folder / name).unlink(missing_ok=True)
    garbage(folder / name, kind)
    done = prove(project, "cpu-avx2", "--path", str(folder), "--json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert texts(part_of(done, "files")) == f"not a whole ELF file: {says}"
    assert part_of(done, "instructions")["state"] == "skipped"


# --- a real wheel ---

WHEEL = os.environ.get("BUILD_PYTORCH_TEST_TORCH_LIB", "")
needs_wheel = pytest.mark.skipif(
    not WHEEL, reason="BUILD_PYTORCH_TEST_TORCH_LIB names no torch/lib of an x86-64 wheel"
)


@needs_wheel
def test_in_a_real_wheel_nothing_above_avx2_is_outside_dispatched_code(fleet: Matrix) -> None:
    cpu = fleet.cpus["avx2"]
    rules = isa.Rules(isa.ISAS[cpu.platform], isa.allowed(cpu))
    scan = disassembly.scan(Path(WHEEL) / "libtorch_cpu.so", "objdump", rules, lambda _: None)
    assert scan.tally.functions_above[symbols.COMMON] == 0
    assert scan.tally.functions_above[0] > 1000  # ATen's kernels for AVX-512
    # Its common code was compiled for baseline x86-64, and hardly a function shows more.
    assert scan.tally.holders[symbols.COMMON, "avx"] < scan.common_functions / 10_000


@needs_wheel
def test_the_classifier_agrees_with_another_disassembler_on_a_real_wheel(tmp_path: Path) -> None:
    from oracle import disagreements

    compared, wrong = disagreements(Path(WHEEL) / "libtorch_cpu.so", tmp_path)
    assert compared > 4000
    assert wrong == []
