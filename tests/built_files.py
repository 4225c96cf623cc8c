"""Libraries that tests compile, and what the parts of an inspection report about them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import PROJECT, Project

from build_pytorch.cli.inspect import PARTS
from build_pytorch.inspect.inspection import folder_target
from build_pytorch.matrix import matrix_reader

COMPILERS = {"x86_64-linux": "x86_64-linux-gnu-g++", "aarch64-linux": "aarch64-linux-gnu-gcc"}
COMMON = "common.c"
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
MATRIX = matrix_reader.load(PROJECT / "matrix.toml")
VARIANTS = {
    "avx2": "cpu-avx2",
    "avx512": "cpu-avx512",
    "avx512bf16": "cpu-avx512bf16",
    "avx512vnni": "cpu-avx512vnni",
    "armv8_2": "sm110-armv8_2",
    "armv9": "sm110-armv9",
}

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


def compile_library(
    folder: Path,
    flags: list[str] | tuple[str, ...],
    *,
    platform: str = "x86_64-linux",
    name: str = "libtorch_cpu.so",
    sources: dict[str, str] | None = None,
    strip: str = "",
) -> Path:
    """A shared library of C++ sources; the first line of a source may set flags of its own."""
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


def inspect(
    project: Project, *argv: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return project.run("invoke", "inspect", *argv, env=env)


def part_of(done: subprocess.CompletedProcess[str], name: str) -> dict[str, Any]:
    (variant,) = json.loads(done.stdout)["variants"]
    (found,) = [part for part in variant["parts"] if part["id"] == name]
    return dict(found)


def looked(part_id: str, variant_id: str, folder: Path) -> dict[str, Any]:
    """What one part reports about the files of a folder, as the JSON document has it."""
    variant = next(variant for variant in MATRIX.variants if variant.id == variant_id)
    (part,) = [part for part in PARTS if part.id == part_id]
    result = part.inspect(folder_target(variant, folder), lambda *_: None)
    return dict(msgspec.json.decode(msgspec.json.encode(result.as_dict())))


def texts(part: dict[str, Any], severity: str = "error") -> str:
    return "\n".join(f["found"] for f in part["findings"] if f["severity"] == severity)
