"""Machine code: what the inspection reads from real objects of gcc, for x86-64 and aarch64."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from built_files import (
    AVX2,
    COMMON,
    COMMON_CODE,
    COMPILERS,
    MATRIX,
    OWN,
    VARIANTS,
    compile_library,
    device_library,
    looked,
    needs_cuda,
    texts,
)
from iced_x86 import Decoder

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.inspect import code_owners, cpu_features, fatbin, instructions
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.matrix.model import Matrix

WHEEL = os.environ.get("BUILD_PYTORCH_TEST_TORCH_LIB", "")
needs_wheel = pytest.mark.skipif(
    not WHEEL, reason="BUILD_PYTORCH_TEST_TORCH_LIB names no torch/lib of an x86-64 wheel"
)


def platform_of(key: str) -> str:
    return "aarch64-linux" if key.startswith("arm") else "x86_64-linux"


def scanned(key: str, folder: Path) -> dict[str, Any]:
    return looked("instructions", VARIANTS[key], folder)


def scan(library: Path, key: str = "avx2") -> instructions.Scan:
    cpu = MATRIX.cpus[key]
    return instructions.scan(read_elf(library), cpu, lambda *_: None)


# --- the features of an instruction ---


def features_table(text: str) -> dict[str, list[str]]:
    """Lines `features: instruction; instruction`, of which an indented one continues another."""
    rows = (row.partition(":") for row in text.strip().replace("\n   ", "").splitlines())
    return {features.replace("none", ""): rest.strip().split("; ") for features, _, rest in rows}


# tzcnt is bsf on older CPUs, and gcc emits it as rep bsf.
X86_INSTRUCTIONS = features_table("""
none: mov %rax,%rbx; addps %xmm0,%xmm1; tzcnt %eax,%ebx; pextrw $0x0,%xmm2,%eax
ssse3: pshufb %xmm0,%xmm1
sse4_1: pextrw $0x0,%xmm2,(%rsi)
popcnt: popcnt %rax,%rax
bmi2: shlx %eax,%ebx,%ecx
avx: vaddps %ymm0,%ymm1,%ymm2; vpaddd %xmm0,%xmm1,%xmm2; vbroadcastss (%rax),%ymm0
avx2: vpaddd %ymm0,%ymm1,%ymm2; vbroadcastss %xmm0,%ymm0
fma: vfmadd231ps (%rax),%ymm1,%ymm2
fma4: vfmaddps %ymm0,%ymm1,%ymm2,%ymm3
f16c: vcvtph2ps %xmm4,%ymm4
avx512f: vaddps %zmm0,%zmm1,%zmm2; vaddss %xmm0,%xmm1,%xmm2{%k1}; kmovw %k1,%eax
avx512f avx512vl: vaddps %ymm16,%ymm1,%ymm2; vaddps %ymm0,%ymm1,%ymm2{%k1}{z};
    vpbroadcastd %esi,%xmm13
avx512bw: vmovdqu8 %zmm0,(%rax); kmovq %k1,%rax
avx512dq: vpmullq %zmm0,%zmm1,%zmm2
avx512_bf16: vdpbf16ps %zmm2,%zmm1,%zmm0
avx512_fp16: vaddph %zmm1,%zmm0,%zmm0
avx512_vnni: vpdpbusd %zmm2,%zmm1,%zmm0
avx512_vnni avx512vl: vpdpbusd %ymm2,%ymm1,%ymm0
avx_vnni: {vex} vpdpbusd %ymm2,%ymm1,%ymm0
amx_int8: tdpbssd %tmm3,%tmm2,%tmm1
""")


def test_an_x86_instruction_needs_what_the_manual_lists(tmp_path: Path) -> None:
    """GNU as encodes the instructions, so that a second program reads the same table."""
    for program in (COMPILERS["x86_64-linux"], "objcopy"):
        if not shutil.which(program):
            pytest.skip(f"no {program}")
    texts = [text for group in X86_INSTRUCTIONS.values() for text in group]
    expected = [set(needs.split()) for needs, group in X86_INSTRUCTIONS.items() for _ in group]
    source, out, code = (tmp_path / name for name in ("all.s", "all.o", "all.bin"))
    source.write_text("".join(f"{text}\n" for text in texts))
    subprocess.run([COMPILERS["x86_64-linux"], "-c", str(source), "-o", str(out)], check=True)
    argv = ["objcopy", "-O", "binary", "--only-section=.text", str(out), str(code)]
    subprocess.run(argv, check=True)
    found = [set(cpu_features.x86_features(i.code)[0]) for i in Decoder(64, code.read_bytes())]
    assert dict(zip(texts, found, strict=True)) == dict(zip(texts, expected, strict=True))


ARM_INSTRUCTIONS = features_table("""
none: add x0, x1, x2; fadd v0.4s, v1.4s, v2.4s; fcvt d0, h0; fcvtn v0.4h, v1.4s; mov v0.8h, v1.8h;
    bl 1234 <fadd_z0.s>
fp16: fadd v0.8h, v1.8h, v2.8h; fadd h0, h1, h2
lse: ldaddal x0, x1, [x2]; casal x0, x1, [x2]
dotprod: sdot v0.4s, v1.16b, v2.16b
bf16: bfdot v0.4s, v1.8h, v2.8h
i8mm: smmla v0.4s, v1.16b, v2.16b
sve: fadd z0.s, p0/m, z0.s, z1.s; ld1w {z0.s}, p0/z, [x0]; whilelo p0.s, wzr, w1; cntd x0;
    mul z0.s, p0/m, z0.s, z1.s
sve2: mul z0.s, z0.s, z1.s; sqdmulh z0.s, z1.s, z2.s; whilegt p0.s, x0, x1
""")


@pytest.mark.parametrize("features", ARM_INSTRUCTIONS)
def test_an_arm_instruction_needs(features: str) -> None:
    for text in ARM_INSTRUCTIONS[features]:
        line = f"    4d2:\t{text.replace(' ', chr(9), 1)}\n".encode()
        match = cpu_features.ARM_INSTRUCTION.match(line)
        found = cpu_features.arm_features(match[2], match[3]) if match else frozenset()
        assert found == set(features.split()), text


ARM_MACROS = {
    "lse": "ATOMICS",
    "crc": "CRC32",
    "rdma": "QRDMX",
    "fp16": "FP16_VECTOR_ARITHMETIC",
    "dotprod": "DOTPROD",
    "bf16": "BF16_VECTOR_ARITHMETIC",
    "i8mm": "MATMUL_INT8",
    "sve": "SVE",
    "sve2": "SVE2",
}
OF_AVX512 = {"fma", "f16c"}  # gcc has macros of their own, and uses both for AVX-512


def macro_of(feature: str, key: str) -> str:
    """The macro that gcc predefines where it may use a feature; empty: it has none."""
    if key.startswith("arm"):
        return f"__ARM_FEATURE_{ARM_MACROS[feature]}" if feature in ARM_MACROS else ""
    name = feature if feature.startswith(("sse", "amx")) else feature.replace("_", "")
    return f"__{name.replace('bmi1', 'bmi').upper()}__"


@pytest.mark.parametrize("key", VARIANTS)
def test_flags_allow_what_gcc_predefines_for_them(matrix: Matrix, key: str) -> None:
    cpu = matrix.cpus[key]
    compiler = COMPILERS[cpu.platform]
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    argv = [compiler, *cpu.flags, "-E", "-dM", "-x", "c", "/dev/null"]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    defined = {line.split()[1] for line in said.splitlines()}
    allowed = cpu_features.isa_features(cpu).allowed
    table = cpu_features.INSTRUCTION_SETS[cpu.platform]
    known = allowed | {name for names in table.implied.items() for name in (names[0], *names[1])}
    expected = {feature for feature in known if macro_of(feature, key) in defined}
    assert {name for name in allowed if macro_of(name, key)} - OF_AVX512 == expected - OF_AVX512
    assert allowed >= expected


def test_an_unknown_flag_is_refused() -> None:
    cpu = msgspec.structs.replace(MATRIX.cpus["avx2"], flags=("-mavx2", "-mcx16"))
    with pytest.raises(BuildPytorchError, match="what -mcx16 allows is not known"):
        cpu_features.isa_features(cpu)


# --- objects of gcc ---


SHIFT = "long _ZN3c105shiftEli(long a, int b) { return a << b; }\n"
SOFT_ATOMICS = "-march=armv8-a -mno-outline-atomics"


@pytest.mark.parametrize(
    ("key", "flags", "strip", "found"),
    [
        *((key, " ".join(MATRIX.cpus[key].flags), "", "") for key in VARIANTS),
        # Above the ISA.
        ("avx2", "-mavx512f", "", "avx512f"),
        ("avx2", "-mavx512f", "-s", "c10::__AVX512F__"),  # exported functions have names
        ("avx2", "-mavx2 -mfma -mavxvnni", "", "avx_vnni"),
        ("avx2", "-mavx2 -mbmi2 -mfma", "", "bmi2"),
        ("avx512", "-mavx512vl -mavx512bw -mavx512vnni", "", "avx512_vnni"),
        ("avx512", "-mavx512vl -mavx512bw -mavx512bf16", "", "avx512_bf16"),
        ("avx512bf16", "-mavx512vl -mavx512bw -mavx512vnni", "", "avx512_vnni"),
        ("avx512vnni", "-mavx512vl -mavx512bw -mavx512bf16", "", "avx512_bf16"),
        ("avx512vnni", "-mavx512vl -mavx512vnni -mavxvnni", "", "avx_vnni"),
        ("armv8_2", "-march=armv9-a+sve2", "", "sve"),
        # Below it.
        ("avx2", "", "", "AVX instructions in 0 functions"),
        ("avx512", "-mavx2 -mfma -mf16c", "", "AVX-512 instructions in 0 functions"),
        ("armv8_2", SOFT_ATOMICS, "", "ARMv8.1 and newer instructions in 0 functions"),
        ("armv9", "-march=armv8.2-a+fp16+dotprod", "", "SVE instructions in 0 functions"),
    ],
)
def test_code_is_compiled_for_its_isa_and_not_for_another(
    tmp_path: Path, key: str, flags: str, strip: str, found: str
) -> None:
    is_above = found and " in 0 functions" not in found
    source = {COMMON: COMMON_CODE + SHIFT * bool(is_above)}
    compile_library(tmp_path, flags.split(), platform=platform_of(key), sources=source, strip=strip)
    part = scanned(key, tmp_path)
    assert (part["state"] == "failed") == bool(found)
    assert found in texts(part)
    assert ("common code with instructions above it" in texts(part)) == bool(is_above)


# --- each library on its own ---

INTEGERS = 'extern "C" long _ZN3c103addEll(long a, long b) { return a + b; }\n'
STANDARD = 'extern "C" void _ZNSt6vectorIfE4fillEPff(float* y, float a) { y[0] = a * y[1]; }\n'
FLOATS = "float _ZN3c101f{0:05}Eff(float a, float b) {{ return a * b; }}\n"


def floats(count: int) -> str:
    return 'extern "C" {\n' + "".join(map(FLOATS.format, range(count))) + "}\n"


CPU, C10, SHM, V2 = "libtorch_cpu.so", "libc10.so", "libshm.so", " ".join(AVX2)
REPLACED = "instructions that these flags replace in"


@pytest.mark.parametrize(
    ("key", "name", "flags", "code", "error", "warning"),
    [
        # Compiled without the flags.
        ("avx2", CPU, "", COMMON_CODE, "AVX instructions in 0 functions", ""),
        ("avx2", CPU, "strip -S", COMMON_CODE, "AVX instructions in 0 functions", ""),
        ("avx2", C10, "", COMMON_CODE, REPLACED, ""),
        ("avx2", C10, "strip -s", COMMON_CODE, REPLACED, ""),
        ("avx512", CPU, "", COMMON_CODE, "AVX-512 instructions in 0 functions", ""),
        ("avx512", C10, "", COMMON_CODE, REPLACED, ""),
        ("armv8_2", C10, "", COMMON_CODE, REPLACED, ""),
        ("armv8_2", C10, SOFT_ATOMICS, COMMON_CODE, f"{REPLACED} 1 function of 2", ""),
        ("armv9", CPU, "", COMMON_CODE, "SVE instructions in 0 functions", ""),
        ("armv9", C10, "", COMMON_CODE, REPLACED, ""),
        # With little to compile for an ISA, as libtorch.so; parts of libstdc++ in each library.
        ("avx2", SHM, "", "", "", ""),
        ("avx512", SHM, "", INTEGERS, "", ""),
        ("avx512bf16", SHM, "", STANDARD, "", ""),
        # Without the highest family.
        ("avx512", C10, V2, floats(100), "", ""),
        ("avx512", C10, V2, floats(400), "", "no AVX-512 instructions in 400 functions"),
    ],
)
def test_each_library_is_judged_on_its_own(
    tmp_path: Path, key: str, name: str, flags: str, code: str, error: str, warning: str
) -> None:
    own, strip = MATRIX.cpus[key].flags, flags.removeprefix("strip ") if "strip" in flags else ""
    for each in sorted({CPU, C10, name}):
        compile_library(
            tmp_path,
            (() if strip else flags.split()) if each == name else own,
            platform=platform_of(key),
            name=each,
            sources={COMMON: code if each == name else COMMON_CODE},
            strip=strip,
        )
    part = scanned(key, tmp_path)
    errors = {f["path"] for f in part["findings"] if f["severity"] == "error"}
    assert errors == ({name} if error else set())
    assert error in texts(part)
    assert warning in texts(part, "warning")
    assert bool(warning) == any(f["severity"] == "warning" for f in part["findings"] if not error)


@needs_cuda
@pytest.mark.parametrize(
    ("generic", "right", "state"),
    [(3_000, 0, "passed"), (12_000, 0, "failed"), (12_000, 12, "passed")],
)
def test_host_code_of_cu_files_is_generic(
    tmp_path: Path, generic: int, right: int, state: str
) -> None:
    """nvcc does not get CXXFLAGS; the .cpp files of libtorch_cuda.so do."""
    compile_library(tmp_path, AVX2)
    fatbin_file = tmp_path / "fatbin"
    fatbin_file.write_bytes(device_code_of(device_library(tmp_path / "device", (OWN, "90"))))
    lines = ('.pushsection .nv_fatbin, "a"', f'.incbin "{fatbin_file}"', ".popsection")
    asm = "".join("asm({});\n".format(json.dumps(line + "\n")) for line in lines)
    one = FLOATS.replace("101f", "101g")
    cpp = f"// flags: {' '.join(AVX2)}\n" + 'extern "C" {\n'
    cpp += "".join(map(one.format, range(right))) + "}\n"
    sources = {"cu.cpp": many(generic) + floats(20) + asm, "cpp.cpp": cpp}
    compile_library(tmp_path, [], name="libtorch_cuda.so", sources=sources)
    part = looked("instructions", "sm90-avx2", tmp_path)
    assert part["state"] == state
    assert ("libtorch_cuda.so" in {f["path"] for f in part["findings"]}) == (state == "failed")


def device_code_of(library: Path) -> bytes:
    section = read_elf(library).named(fatbin.SECTION)
    assert section
    return library.read_bytes()[section.offset : section.offset + section.size]


def test_missing_instructions_that_need_intrinsics_are_a_warning(tmp_path: Path) -> None:
    compile_library(tmp_path, MATRIX.cpus["avx512"].flags)
    part = scanned("avx512bf16", tmp_path)
    assert part["state"] == "warning"
    assert "avx512_bf16" in texts(part, "warning")


def test_code_of_another_platform_is_found(tmp_path: Path) -> None:
    compile_library(tmp_path / "lib", [], platform="aarch64-linux")
    part = scanned("avx2", tmp_path / "lib")
    assert "an ELF file for machine 183" in texts(part)


# --- code that checks the CPU first ---

KERNEL = """// flags: FLAGS
namespace at::native { namespace {
__attribute__((noinline)) void kernel(float* y, const float* x) {
  for (int i = 0; i < 256; i++) y[i] = x[i] > 0 ? y[i] * x[i] : y[i];
}
}
void NAME(float* y, const float* x) { kernel(y, x); kernel(y + 256, x); }
}
"""
LABELLED = """// flags: FLAGS
namespace at::native::LABEL {
void kernel(float* y, const float* x) { for (int i = 0; i < 256; i++) y[i] += x[i]; }
}
"""


HIGH = "-mavx512f -mavx512vl -mprefer-vector-width=512"


def kernel(name: str, flags: str = HIGH) -> str:
    return KERNEL.replace("NAME", name).replace("FLAGS", flags)


def labelled(label: str) -> str:
    return LABELLED.replace("LABEL", label).replace("FLAGS", HIGH)


THREE = {
    COMMON: COMMON_CODE,
    "K.cpp.DEFAULT.cpp": kernel("one", ""),
    "K.cpp.AVX2.cpp": kernel("_ZN_4AVX2_", "-mavx2"),
    "K.cpp.AVX512.cpp": kernel("_ZN_6AVX512_"),
}


ONLY = """// flags: FLAGS -fno-toplevel-reorder
namespace at::native {
namespace AVX512 { void first(float* y) { y[0] = 1; } }
namespace {
__attribute__((noinline)) void only(float* y, const float* x) {
  for (int i = 0; i < 256; i++) y[i] += x[i];
}
}
namespace LAST { void last(float* y, const float* x) { only(y, x); only(y + 256, x); } }
}
""".replace("FLAGS", HIGH)
AMONG = {COMMON: COMMON_CODE, "kernel.cpp": ONLY.replace("LAST", "AVX512")}
BESIDE = {COMMON: COMMON_CODE, "kernel.cpp": ONLY}
OTHER = {COMMON: COMMON_CODE, "Other.cpp": kernel("other")}
AVX512 = {COMMON: COMMON_CODE, "kernel.cpp": labelled("AVX512")}
DEFAULT = {COMMON: COMMON_CODE, "kernel.cpp": labelled("DEFAULT")}
THEIRS = labelled("AVX512").replace("namespace at::native::AVX512 {", 'extern "C" {')
IN_C = {COMMON: COMMON_CODE, "theirs.cpp": THEIRS}


@pytest.mark.parametrize(
    ("sources", "strip", "state", "symbols", "says"),
    [
        # Names of ATen's kernels have their capability; DEFAULT has the variant's flags alone.
        (AVX512, "", "passed", "files", ""),
        (AVX512, "-S", "passed", "names", ""),
        (AVX512, "-s", "passed", "exported", ""),
        (DEFAULT, "", "failed", "files", "at::native::DEFAULT::kernel"),
        # A kernel without it is known by its file, or by its copies.
        (THREE, "", "passed", "files", ""),
        (THREE, "-S", "passed", "names", ""),
        # One that only a capability has lies among others of its file.
        (AMONG, "-S", "passed", "names", ""),
        (BESIDE, "-S", "skipped", "names", "1 function of unattributed code with"),
        (OTHER, "", "failed", "files", "(anonymous namespace)::kernel"),
        (OTHER, "-S", "skipped", "names", "1 function of unattributed code with"),
        (OTHER, "-s", "skipped", "exported", "unattributed code with instructions above it: (no"),
        (IN_C, "", "skipped", "files", "1 function of other C code"),
    ],
)
def test_code_above_the_isa_is_judged_by_its_owner(
    tmp_path: Path, sources: dict[str, str], strip: str, state: str, symbols: str, says: str
) -> None:
    compile_library(tmp_path / "lib", AVX2, sources=sources, strip=strip)
    part = scanned("avx2", tmp_path / "lib")
    figures = part["figures"]["libtorch_cpu.so"]
    assert (part["state"], figures["symbols"]) == (state, symbols)
    assert says in texts(part, "error" if state == "failed" else "warning")
    assert ("above the ISA in" in part["reason"]) == (state == "skipped")
    if sources is AVX512:
        assert figures["code"]["ATen kernels"]["functions_above"] == 1


def many(count: int) -> str:
    """So many functions of common code, in assembly, which needs no optimizer."""
    one = ".globl _ZN3c101f{0:05}Ef; .type _ZN3c101f{0:05}Ef, @function; _ZN3c101f{0:05}Ef: ret"
    return "".join(f'asm("{one.format(n)}");\n' for n in range(count))


@pytest.mark.parametrize(
    ("functions", "state"), [(9_000, "skipped"), (12_000, "warning")], ids=["more", "fewer"]
)
def test_few_functions_of_unknown_owners_are_a_warning(
    tmp_path: Path, functions: int, state: str
) -> None:
    sources = {COMMON: COMMON_CODE + many(functions), "Other.cpp": kernel("other")}
    compile_library(tmp_path / "lib", AVX2, sources=sources, strip="-S")
    part = scanned("avx2", tmp_path / "lib")
    assert not texts(part)
    assert part["state"] == state


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
    assert code_owners.owner_of(name) == owner


def test_c_functions_between_two_of_an_archive_belong_to_it(tmp_path: Path) -> None:
    source = 'extern "C" { void mkl_a() {} void helper() {} void mkl_b() {} void after() {} }\n'
    library = compile_library(tmp_path, ["-O0"], sources={"a.cpp": source})
    _, ranges = code_owners.code_ranges(read_elf(library))
    owner = {code.name: code.owner for code in ranges}
    assert (owner["helper"], owner["after"]) == ("MKL", code_owners.FOREIGN)


# --- all of the code ---


def objdumped(library: Path, program: str) -> list[tuple[int, str, str]]:
    """Address, mnemonic and operands of every instruction, as objdump prints them."""
    argv = [program, "-dz", "--no-show-raw-insn", str(library)]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"(?m)^ *([0-9a-f]+):\t((?:\{e?vex\} )?\S+)([^\n<#]*)", said)
    return [(int(address, 16), name, operands) for address, name, operands in lines]


@pytest.mark.parametrize(
    ("key", "strip"),
    [
        ("avx2", "-S"),
        ("avx512bf16", ""),
        ("avx512vnni", "-s"),
        pytest.param("avx2", "wheel", marks=needs_wheel),
    ],
)
def test_every_instruction_of_a_library_is_counted_as_objdump_shows_it(
    matrix: Matrix, tmp_path: Path, key: str, strip: str
) -> None:
    library = Path(WHEEL, "libc10.so")
    if strip != "wheel":
        library = compile_library(tmp_path, matrix.cpus[key].flags, strip=strip)
    lines = objdumped(library, "objdump")
    result = scan(library, key)
    assert result.instructions == len(lines)
    features = Counter[str]()
    for counts in result.found.values():
        for needed, number in counts.items():
            features["avx"] += number * any(n.startswith(("avx", "fma", "f16c")) for n in needed)
            features["512"] += number * any(n.startswith("avx512") for n in needed)
    of_avx = [line for line in lines if line[1].startswith(("v", "{", "k"))]
    assert features["avx"] == len(of_avx)
    of_512 = [
        line for line in of_avx if re.search("zmm|%k[0-7]|[xy]mm(?:1[6-9]|2[0-9]|3[01])", line[2])
    ]
    assert features["512"] >= len(of_512)
    assert (features["512"] > 0) == bool(of_512) == (key != "avx2")


@pytest.mark.parametrize("key", ["armv8_2", "armv9"])
def test_every_arm_instruction_is_counted_for_its_function(
    matrix: Matrix, tmp_path: Path, key: str
) -> None:
    library = compile_library(tmp_path, matrix.cpus[key].flags, platform="aarch64-linux")
    lines = objdumped(library, "aarch64-linux-gnu-objdump")
    result = scan(library, key)
    assert result.instructions == len(lines)
    needs = [
        cpu_features.arm_features(name.encode(), operands.encode()) for _, name, operands in lines
    ]
    expected = Counter(feature for needed in needs for feature in needed)
    found = Counter[str]()
    for counts in result.found.values():
        for needed, number in counts.items():
            found.update(dict.fromkeys(needed, number))
    assert {name: found[name] for name in ("lse", "sve", "dotprod")} == {
        name: expected[name] for name in ("lse", "sve", "dotprod")
    }
    _, ranges = code_owners.code_ranges(read_elf(library))
    start, end = next((c.start, c.end) for c in ranges if c.name.startswith("_ZN3c105count"))
    in_function = [
        needed for (address, *_), needed in zip(lines, needs, strict=True) if start <= address < end
    ]
    assert sum("lse" in needed for needed in in_function) == 1
    assert result.holders["lse"] == 1


@pytest.mark.parametrize("strip", ["", "-S", "-s"])
def test_the_ranges_of_code_cover_every_byte_once(tmp_path: Path, strip: str) -> None:
    library = compile_library(tmp_path, AVX2, sources=THREE, strip=strip)
    elf = read_elf(library)
    _, ranges = code_owners.code_ranges(elf)
    for section in elf.code():
        inside = [c for c in ranges if section.address <= c.start < section.address + section.size]
        ends = [section.address, *(code.end for code in inside)]
        assert [code.start for code in inside] == ends[:-1]
        assert ends[-1] == section.address + section.size


FAKE_OBJDUMP = """#!{python}
import sys
if "-f" in sys.argv:
    print("file format elf64-littleaarch64"); sys.exit()
head = "\\n{address:016x} <_ZN3c104axpyEPfPKffl>:\\n"
line = "    {address:x}:\\tfadd\\tz0.s, p0/m, z0.s, z1.s{pad}// 1234 <_ZTV>\\n"
for number in range({functions}):
    sys.stdout.write(head + line * {lines})
"""


@pytest.mark.slow
@pytest.mark.parametrize(("functions", "lines"), [(10, 4_000), (800, 50)])
def test_a_long_disassembly_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, functions: int, lines: int
) -> None:
    flags = MATRIX.cpus["armv9"].flags
    library = compile_library(tmp_path / "lib", flags, platform="aarch64-linux")
    address = read_elf(library).code()[0].address
    program = tmp_path / "aarch64-linux-gnu-objdump"
    values = {"python": sys.executable, "functions": functions, "lines": lines, "pad": " " * 990}
    program.write_text(FAKE_OBJDUMP.format(address=address, **values))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tracemalloc.start()
    try:
        assert scan(library, "armv9").instructions == functions * lines
        assert tracemalloc.get_traced_memory()[1] < 5 << 20, "41 MB of text went through"
    finally:
        tracemalloc.stop()


@needs_wheel
def test_in_a_real_wheel_nothing_above_avx2_is_outside_dispatched_code() -> None:
    result = scan(Path(WHEEL) / "libtorch_cpu.so")
    assert result.functions_above[code_owners.COMMON] == 0
    assert result.functions_above[code_owners.ATEN] > 1000  # kernels for AVX-512
    # Its common code was compiled for baseline x86-64, and hardly a function shows more.
    assert result.holders["avx"] < result.common_functions / 10_000
