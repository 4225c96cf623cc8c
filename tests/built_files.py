"""Libraries that tests compile, and what the parts of an inspection report about them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import ONE, PROJECT, Project

from build_pytorch.inspect import fatbin, inspection
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Package, Variant

COMPILERS = {"x86_64-linux": "x86_64-linux-gnu-g++", "aarch64-linux": "aarch64-linux-gnu-gcc"}
COMMON = "common.c"
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
MATRIX = matrix_reader.parse(ONE)
VARIANTS = {
    "avx2": "cpu-avx2",
    "avx512": "cpu-avx512",
    "avx512bf16": "cpu-avx512bf16",
    "avx512vnni": "cpu-avx512vnni",
    "armv8_2": "sm110-armv8_2",
    "armv9": "sm110-armv9",
}

# What compilers turn into the best instructions that their flags allow, and those that they do not
# emit on their own. In C with mangled names, as there is often no g++ for ARM, and without the
# headers of intrinsics, which take most of a second to read.
RARE = {
    "__F16C__": "vcvtph2ps %xmm0, %ymm0",
    "__AVX2__": "vpaddb %ymm1, %ymm0, %ymm0",
    "__AVX512F__": "vmovups %zmm0, (%rdi){%k1}",
    "__AVX512DQ__": "vpmullq %zmm1, %zmm0, %zmm0",
    "__AVX512BW__": "vpaddb %zmm1, %zmm0, %zmm0",
    "__AVX512VL__": "vpternlogq $0x17, %ymm1, %ymm0, %ymm0",
    "__AVX512BF16__": "vdpbf16ps %zmm2, %zmm1, %zmm0",
    "__AVX512VNNI__": "vpdpbusd %zmm2, %zmm1, %zmm0",
    "__AVXVNNI__": "{vex} vpdpbusd %ymm2, %ymm1, %ymm0",
    "__ARM_FEATURE_DOTPROD": "sdot v0.4s, v1.16b, v2.16b",
    "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC": "fadd v0.8h, v0.8h, v1.8h",
}
COMMON_CODE = """
#ifdef __cplusplus
extern "C" {
#endif
void _ZN3c104axpyEPfPKffl(float* y, const float* x, float a, long n) {
  for (long i = 0; i < n; i++) y[i] += a * x[i];
}
long _ZN3c105countEPl(long* n) { return __atomic_add_fetch(n, 1, __ATOMIC_SEQ_CST); }
""" + "".join(
    f'#ifdef {macro}\nvoid _ZN3c10{len(macro)}{macro}Ev(void) {{ asm("{text}"); }}\n#endif\n'
    for macro, text in RARE.items()
)
COMMON_CODE += "#ifdef __cplusplus\n}\n#endif\n"


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
    texts = tuple((sources or {COMMON: COMMON_CODE}).items())
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / name
    library.write_bytes(compiled(COMPILERS[platform], tuple(flags), texts, strip))
    return library


@functools.cache
def compiled(
    compiler: str, flags: tuple[str, ...], sources: tuple[tuple[str, str], ...], strip: str
) -> bytes:
    """The library as bytes: many tests want the same one, and gcc takes a second for it."""
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        objects = []
        for file, text in sources:
            (folder / file).write_text(text)
            first = text.partition("\n")[0]
            own = first.removeprefix("// flags: ").split() if first.startswith("// flags: ") else []
            objects.append(f"{file}.o")
            argv = [compiler, "-O3", "-fPIC", *flags, *own, "-c", file, "-o", objects[-1]]
            subprocess.run(argv, check=True, cwd=folder)
        subprocess.run([compiler, "-shared", "-o", "library", *objects], check=True, cwd=folder)
        if strip:
            subprocess.run(["strip", strip, "library"], check=True, cwd=folder)
        return (folder / "library").read_bytes()


CUOBJDUMP = shutil.which("cuobjdump") or fatbin.installed_with_pip()
needs_cuda = pytest.mark.skipif(
    not (CUOBJDUMP and all(map(shutil.which, ("nvcc", "ptxas", "fatbinary")))),
    reason="no CUDA toolkit with cuobjdump",
)
OWN, NCCL, MAGMA, NOBODY = (
    "_ZN2at6native6kernelEv",
    "_Z31ncclDevKernel_AllGather_RING_LLv",
    "_Z18zlaset_full_kerneliiv",
    "_Z1kv",
)
"""Names of kernels, as PyTorch, NCCL and MAGMA have them, and one that may be of anybody."""
PTX = ".version 9.0\n.target sm_{}\n.address_size 64\n.visible .entry {}() {{ ret; }}\n"


def device_library(folder: Path, *objects: tuple[str, ...], name: str = "libtorch_cuda.so") -> Path:
    """A library of objects, each the name of its kernel and codes: `90`, `90a`, `ptx90`.

    Without nvcc, which takes a second for each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(linked_device_code(objects))
    return folder / name


@functools.cache
def linked_device_code(objects: tuple[tuple[str, ...], ...]) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        sections = []
        for number, (kernel, *codes) in enumerate(objects):
            images = []
            for code in codes:
                kind, sm = ("ptx" if "ptx" in code else "elf"), code.removeprefix("ptx")
                Path(place, f"{number}-{code}").write_bytes(device_image(kernel, code))
                images.append(f"--image3=kind={kind},sm={sm},file={number}-{code}")
            argv = ["fatbinary", f"--create={number}.fatbin", "-64", *images]
            subprocess.run(argv, check=True, cwd=place)
            sections.append(f'.align 8\n.incbin "{number}.fatbin"\n')
        source = '.section .nv_fatbin, "a"\n' + "".join(sections)
        source += '.section .note.GNU-stack, ""\n'
        argv = [COMPILERS["x86_64-linux"], "-shared", "-x", "assembler", "-", "-o", "library"]
        subprocess.run(argv, input=source, text=True, check=True, cwd=place)
        return Path(place, "library").read_bytes()


@functools.cache
def device_image(kernel: str, code: str) -> bytes:
    """A kernel compiled for one architecture, or kept as PTX."""
    text = PTX.format(code.removeprefix("ptx"), kernel)
    if code.startswith("ptx"):
        return text.encode()
    with tempfile.TemporaryDirectory() as place:
        source, cubin = Path(place, "kernel.ptx"), Path(place, "kernel.cubin")
        source.write_text(text)
        subprocess.run(["ptxas", f"-arch=sm_{code}", str(source), "-o", str(cubin)], check=True)
        return cubin.read_bytes()


def with_config(
    folder: Path,
    flags: list[str],
    version: str = "2.10.0",
    cuda: str = "None",
    more: list[str] | None = None,
) -> None:
    said = " ".join([*flags, "-fvisibility-inlines-hidden -O2", *(more or [])])
    text = f'const char* flags() {{ return "{said}"; }}\n'
    compile_library(folder, flags, sources={COMMON: COMMON_CODE, "config.cpp": text})
    (folder.parent / "version.py").write_text(
        f"__version__ = '{version}'\ncuda: Optional[str] = {cuda}\n"
    )


def small_project(root: Path, *recipes: str) -> Project:
    """What `inspect` and `smoke` read of a project: the matrix, and these recipes."""
    project = Project(root)
    project.pkgs.mkdir(parents=True)
    (root / "matrix.toml").write_text(ONE)
    for name in recipes:
        project.recipe(name).write_bytes(Project(PROJECT).recipe(name).read_bytes())
    return project


def inspect(
    project: Project, *argv: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return project.run("invoke", "inspect", *argv, env=env)


def variant_of(variant_id: str, **versions: str) -> Variant:
    """A variant of the matrix, or the same with another version of `cuda` or `torch`."""
    variant = next(variant for variant in MATRIX.variants if variant.id == variant_id)
    replace, release = msgspec.structs.replace, variant.release
    for name, version in versions.items():
        release = replace(release, **{name: replace(getattr(release, name), version=version)})
    return replace(variant, release=release)


def package_of(package_id: str) -> Package:
    return next(package for package in MATRIX.packages if package.id == package_id)


def looked(part_id: str, package: str | Package, folder: Path) -> dict[str, Any]:
    """What one part reports about the files of a folder, as the JSON document has it."""
    (part,) = [part for part in inspection.PARTS if part.id == part_id]
    package = package_of(package) if isinstance(package, str) else package
    result = part.inspect(inspection.folder_target(package, folder), lambda *_: None)
    return dict(msgspec.to_builtins(result))


def texts(part: dict[str, Any], severity: str = "error") -> str:
    return "\n".join(f["found"] for f in part["findings"] if f["severity"] == severity)
