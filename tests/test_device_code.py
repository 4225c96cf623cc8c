"""Device code: real objects of nvcc, ptxas and fatbinary, judged for the owner of each."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from built_files import (
    COMPILER,
    CUOBJDUMP,
    MAGMA,
    NCCL,
    NOBODY,
    OWN,
    compile_library,
    device_library,
    looked,
    needs_cuda,
    texts,
    variant_of,
)
from conftest import PROJECT

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect import device_code, fatbin
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.matrix.model import Variant

OWNERS = {"own": OWN, "nccl": NCCL, "magma": MAGMA, "nobody": NOBODY}


def holding(folder: Path, objects: str, name: str = "libtorch_cuda.so") -> Path:
    """A folder with a library of these objects, such as `own 90 90a; nccl 80 ptx90`."""
    split = (each.split() for each in objects.split(";"))
    device_library(folder, *((OWNERS[owner], *codes) for owner, *codes in split), name=name)
    compile_library(folder)
    return folder


def several(*, ptx: bool) -> Variant:
    """A variant for 8.6 and 12.0, on request with PTX of 12.0."""
    replace, variant = msgspec.structs.replace, variant_of("sm86-avx2")
    assert variant.gpu
    return replace(variant, gpu=replace(variant.gpu, also=("12.0",), ptx=ptx))


def featured(code: str) -> Variant:
    """A variant for 12.1a or another capability with the features of a GPU or of its family."""
    replace, variant = msgspec.structs.replace, variant_of(f"sm{code[:-1]}-avx2")
    assert variant.gpu
    return replace(variant, gpu=replace(variant.gpu, capability=f"{code[:-2]}.{code[-2:]}"))


# --- what is there ---

SOURCE = """
namespace at::native { __global__ void kernel(float* a) { *a = 1; } }
void f() { at::native::kernel<<<1, 1>>>(0); }
"""


def nvcc(folder: Path, *flags: str, source: str = SOURCE, link: tuple[str, ...] = ()) -> Path:
    """The library of a source and other objects."""
    folder.mkdir(parents=True, exist_ok=True)
    text, library = folder.parent / "kernel.cu", folder / "libtorch_cuda.so"
    text.write_text(source)
    argv = ["nvcc", "-std=c++17", "-Xcompiler", "-fPIC", *flags, str(text)]
    if link:
        subprocess.run([*argv, "-c", "-o", str(text.with_suffix(".o"))], check=True)
        argv = [COMPILER, str(text.with_suffix(".o")), *link]
    subprocess.run([*argv, "-shared", "-o", str(library)], check=True)
    return library


def codes(*names: str) -> list[str]:
    return [f"-gencode=arch=compute_{name},code=sm_{name}" for name in names]


@needs_cuda
@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("-Xfatbin=-compress-all",), ("-no-compress",), ("-G",)])
def test_the_architectures_of_nvcc_are_those_that_cuobjdump_lists(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    library = nvcc(tmp_path / "lib", *codes("75", "90", "90a", "103f", "120"), *more)
    found = Counter(c for each in fatbin.device_objects(read_elf(library)) for c in each.cubins)
    said = subprocess.run(
        [CUOBJDUMP, "--dump-elf-symbols", str(library)], capture_output=True, text=True, check=True
    ).stdout
    assert found == Counter(re.findall(r"(?m)^arch = (\w+)$", said))
    assert found.keys() == {"sm_75", "sm_90", "sm_90a", "sm_103f", "sm_120"}


@needs_cuda
@pytest.mark.slow
def test_code_of_nvcc_for_several_architectures_passes(tmp_path: Path) -> None:
    own, ptx = codes("86", "120", "120a"), "-gencode=arch=compute_120,code=compute_120"
    folder = nvcc(tmp_path / "lib", *own, ptx).parent
    compile_library(folder)
    part = looked("device-code", several(ptx=True), folder)
    assert part["state"] == "passed", part
    figures = part["figures"]["libtorch_cuda.so"]
    assert figures["elf"].keys() == {"sm_86", "sm_120", "sm_120a"}
    assert figures["ptx"] == {"sm_120": 1}


@needs_cuda
@pytest.mark.slow
def test_objects_without_functions_do_not_count(tmp_path: Path) -> None:
    """nvcc makes them of files without kernels, for its default architecture."""
    empty, made = tmp_path / "empty.cu", tmp_path / "empty.o"
    empty.write_text("void g() {}\n")
    argv = ["nvcc", "-Xcompiler", "-fPIC", "-arch=sm_75", "-c", str(empty), "-o", str(made)]
    subprocess.run(argv, check=True)
    folder = nvcc(tmp_path / "lib", *codes("80"), link=(str(made),)).parent
    compile_library(folder)
    part = looked("device-code", "sm80-avx2", folder)
    assert part["state"] == "passed"
    assert "sm_75" in part["figures"]["libtorch_cuda.so"]["owners"]["no functions"]["elf"]


# --- whose it is ---

NCCL_AND_MAGMA = "75 80 90 100 120"


@needs_cuda
@pytest.mark.parametrize("code", ["90", "120", "121"])
def test_nccl_and_magma_have_architectures_of_their_own(tmp_path: Path, code: str) -> None:
    """As in every build with nixpkgs, which links both statically."""
    bundled = f"own {code}; own {code} {code}a; nccl {NCCL_AND_MAGMA} ptx120"
    folder = holding(tmp_path, bundled)
    holding(folder, f"magma {NCCL_AND_MAGMA}", name="libtorch_cuda_linalg.so")
    part = looked("device-code", f"sm{code}-avx2", folder)
    assert part["state"] == "passed", part
    listing = ", ".join(f"sm_{one} (1)" for one in sorted(NCCL_AND_MAGMA.split()))
    assert list(part["notes"]) == [
        f"libtorch_cuda.so: NCCL for {listing}",
        f"libtorch_cuda_linalg.so: MAGMA for {listing}",
    ]
    owners = part["figures"]["libtorch_cuda.so"]["owners"]
    assert owners["PyTorch"]["elf"] == {f"sm_{code}": 2, f"sm_{code}a": 1}
    assert owners["NCCL"]["ptx"] == {"sm_120": 1}


FAILED, PASSED, WARNED = "failed", "passed", "warning"


@needs_cuda
@pytest.mark.parametrize(
    ("variant", "objects", "state", "says"),
    [
        # PyTorch's own code for another architecture.
        ("sm120", "own 90", FAILED, "device code for sm_90 (1)"),
        ("sm120", "nobody 90", FAILED, "device code for sm_90 (1)"),
        ("sm120", "nccl 90 120", FAILED, "device code for nothing"),
        ("sm120", "own 120 120a 90", FAILED, "device code of PyTorch for sm_90 (1)"),
        ("sm120", "own 120 120a; own 89", FAILED, "1 object of PyTorch without code for sm_120"),
        ("sm120", "own 120 120a; nccl 120; own 121", FAILED, "for sm_121 (1)"),
        # Code of an unknown owner.
        ("sm120", "nobody 80 90; own 120 120a; nobody 120", "skipped", "1 object of 3 cannot be"),
        # NCCL must run on the GPU.
        ("sm110", "own 110 110a; nccl 90", WARNED, "1 of 1 object of NCCL"),
        ("sm110", "own 110 110a; nccl 110", PASSED, ""),
        ("sm110", "own 110 110a; nccl 120 ptx100", PASSED, ""),
        ("sm110", "own 110 110a; nccl 90a ptx120", WARNED, "1 of 1 object of NCCL"),
        # Architecture-specific code.
        ("sm90", "own 90; own 90; nccl 90a", FAILED, "no sm_90a code"),
        ("sm100", "own 100; own 100; nccl 100a", FAILED, "no sm_100a code"),
        ("sm103", "own 103; own 103; nccl 103a", FAILED, "no sm_103a code"),
        ("sm110", "own 110; own 110; nccl 110a", FAILED, "no sm_110a code"),
        ("sm120", "own 120; own 120; nccl 120a", FAILED, "no sm_120a code"),
        ("sm121", "own 121; own 121; nccl 121a", FAILED, "no sm_121a code"),
        # What PyTorch adds to an architecture.
        ("sm86", "own 86; own 86 89", PASSED, ""),
        ("sm90", "own 90; own 90 90a", PASSED, ""),
        ("sm100", "own 100; own 100 100a 103a", PASSED, ""),
        ("sm103", "own 103; own 103 100a 103a", PASSED, ""),
        ("sm103", "own 103; own 103 103f", PASSED, ""),
        ("sm110", "own 110; own 110 110a", PASSED, ""),
        ("sm120", "own 120; own 120 120a 121a", PASSED, ""),
        ("sm121", "own 121; own 121 120a 121a", PASSED, ""),
        ("sm80", "own 80; own 80", PASSED, ""),
        ("sm89", "own 89; own 89", PASSED, ""),
        # What it does not add.
        ("sm80", "own 80 89", FAILED, "device code of PyTorch for sm_89 (1)"),
        ("sm90", "own 90 90a 100a", FAILED, "device code of PyTorch for sm_100a (1)"),
        ("sm120", "own 120 120a 90a", FAILED, "device code of PyTorch for sm_90a (1)"),
        ("sm90", "own 90 90a ptx90", WARNED, "PTX of sm_90"),
        ("cpu", "own 90", FAILED, "device code"),
        # Several architectures in one build.
        ("several", "own 86 120 120a; nccl 80 120; nobody 86 120", PASSED, ""),
        ("several", "own 86 120 120a; nccl 80 90; nccl 75", WARNED, "1 of 2 objects of NCCL"),
        ("several", "own 86 120 120a; nccl 80 90; nccl 75", WARNED, "2 of 2 objects of NCCL"),
        ("several", "own 86 120 120a; nobody 86", "skipped", "1 object of 2 cannot be told"),
        ("several", "own 86 120 120a ptx120", WARNED, "PTX of sm_120 (1)"),
        ("ptx", "own 120 120a ptx120", FAILED, "1 object of PyTorch without code for sm_86"),
        ("ptx", "own 86 ptx120", FAILED, "1 object of PyTorch without code for sm_120"),
        ("ptx", "own 86 120 120a", FAILED, "1 object of PyTorch without PTX of sm_120"),
        ("ptx", "own 86 120 120a ptx86", FAILED, "1 object of PyTorch without PTX of sm_120"),
        ("ptx", "own 86 120 120a ptx120; own 86 120", FAILED, "1 object of PyTorch without PTX of"),
        ("ptx", "own 80 86 120 120a ptx120", FAILED, "device code of PyTorch for sm_80 (1)"),
        ("ptx", "own 86 120 ptx120", FAILED, "no sm_120a code"),
        ("ptx", "own 75 ptx120", FAILED, "device code for sm_75 (1)"),
        ("ptx", "nccl 86 120 ptx120", FAILED, "device code for nothing"),
        # With the features of a GPU or of its family.
        ("sm121a", "own 121a; own 121a 120a; nccl 120", PASSED, ""),
        ("sm121a", "own 121; own 121", FAILED, "device code for sm_121 (2)"),
        ("sm121a", "own 121a; own 121 121a", FAILED, "device code of PyTorch for sm_121 (1)"),
        ("sm121a", "own 121a; nccl 120a", WARNED, "1 of 1 object of NCCL"),
        ("sm100f", "own 100f; own 100f 103a; nccl 100", PASSED, ""),
        ("sm100f", "own 100f; nccl 100f", PASSED, ""),
        ("sm100f", "own 100a; own 100a", FAILED, "device code for sm_100a (2)"),
    ],
)
def test_device_code_is_judged_by_its_owner_and_its_architectures(
    tmp_path: Path, variant: str, objects: str, state: str, says: str
) -> None:
    special = {"several": several(ptx=False), "ptx": several(ptx=True)}
    special |= {f"sm{code}": featured(code) for code in ("121a", "100f")}
    package = special.get(variant, f"{variant}-avx2")
    part = looked("device-code", package, holding(tmp_path, objects))
    assert part["state"] == state, part
    assert says in part["reason"] if state == "skipped" else says in texts(part, *SEVERITY[state])
    if says.endswith("a code"):
        (finding,) = [one for one in part["findings"] if one["severity"] == "error"]
        assert '"cmake/Codegen.cmake has no condition"' in finding["fix"]


SEVERITY = {"failed": ["error"], "warning": ["warning"], "passed": []}


@needs_cuda
def test_code_of_an_unknown_owner_in_another_library_is_undecided(tmp_path: Path) -> None:
    holding(tmp_path, "own 120 120a")
    holding(tmp_path, "nobody 80 90; own 120 120a", name="libtorch_cuda_linalg.so")
    part = looked("device-code", "sm120-avx2", tmp_path)
    reason = "the owner of 1 object of 2 cannot be told, with code for sm_80 (1), sm_90 (1)"
    assert (part["state"], texts(part)) == ("skipped", "")
    assert part["reason"] == f"libtorch_cuda_linalg.so: {reason}"


@pytest.mark.parametrize(
    ("symbol", "owner"),
    [
        ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIhEEEvT0_", "PyTorch"),
        ("_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi64EEEEvv", "PyTorch"),
        ("_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleEEEvT_", "PyTorch"),
        ("_ZN12cutlass_mslk13device_kernelINS_4gemm6kernel13GemmUniversalEEEvT_", "PyTorch"),
        ("_ZN4c10d16symmetric_memory13build_ptr_devEP17ncclWindow_vidmemmPPvi", "PyTorch"),
        ("_ZN14at_cuda_detail3cub6detail11EmptyKernelIvEEvv", "PyTorch"),
        ("_Z35ncclDevKernel_AllReduce_Sum_f32_LL24ncclDevKernelArgsStorageILm4096EE", "NCCL"),
        ("_Z42ncclSymkDevKernel_ReduceScatter_LL_sum_f3221ncclSymkDevWorkArgs4K", "NCCL"),
        ("_Z13oneRankReduceI7RedOp_fEvPvS1_mmb", "NCCL"),
        ("_Z28zlaset_upper_kernel_vbatchedPiS_7double2S0_PPS0_S_", "MAGMA"),
        ("_Z31gemm_template_batched_tt_kernelIdLi16ELi16ELi48EEviiiPKPKT_", "MAGMA"),
        ("_Z36sgetrf_batched_smallsq_noshfl_kernelILi32ELi32EEvPPfiPPiS2_i", "MAGMA"),
        ("_Z18adjust_ipiv_kernelPiii", "MAGMA"),
        ("zhemv_kernel_U", "MAGMA"),
        ("_Z12dswap_kerneliPdiS_i", "MAGMA"),
        ("_ZN62_INTERNAL_4674bf98_25_chebyshev_polynomial_u_cu_75114cuda3std3__45__cpo5beginE", ""),
        ("_Z30_float_to_bfloat16_cuda_kernelPKfmmPt", ""),
        ("_ZN3abc12atomic_storeEv", ""),
    ],
)  # fmt: skip
def test_a_symbol_names_its_owner(symbol: str, owner: str) -> None:
    assert device_code.owner_of(symbol) == (owner or "unknown owner")


@needs_cuda
@pytest.mark.parametrize(
    ("variant", "cuda", "torch", "is_needed"),
    [
        ("sm121-avx2", "13.0", "2.10.0", True),
        ("sm121-avx2", "12.9", "2.10.0", True),
        ("sm121-avx2", "12.8", "2.10.0", False),  # nvcc does not know sm_121a
        ("sm121-avx2", "13.0", "2.9.1", False),
        ("sm121-avx2", "13.0", "2.11.0.dev20260101", True),
        ("sm110-avx2", "12.9", "2.10.0", False),
        ("sm90-avx2", "12.4", "2.6.0", True),
    ],
)
def test_the_need_depends_on_the_versions_of_cuda_and_pytorch(
    tmp_path: Path, variant: str, cuda: str, torch: str, is_needed: bool
) -> None:
    folder = holding(tmp_path, f"own {variant.partition('-')[0].removeprefix('sm')}")
    part = looked("device-code", variant_of(variant, cuda=cuda, torch=torch), folder)
    assert part["state"] == ("failed" if is_needed else "passed")


# --- no device code, no tools, damage ---


def test_a_cpu_only_build_of_a_gpu_variant_is_found_without_cuobjdump(tmp_path: Path) -> None:
    compile_library(tmp_path)
    part = looked("device-code", "sm90-avx2", tmp_path)
    assert part["state"] == "failed"
    assert "this PyTorch is CPU-only" in texts(part)


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of sm90-avx2 with NCCL, and a PATH and site-packages where nothing is."""
    folder = holding(tmp_path / "lib", "own 90 90a; nccl 80 90")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "site-packages"))
    return folder


def program(path: Path, code: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)


@needs_cuda
def test_cuobjdump_is_needed_for_the_owner_only(bundled: Path) -> None:
    part = looked("device-code", "sm90-avx2", bundled)
    assert part["state"] == "skipped"
    assert "the owner of 1 object of 2 cannot be told" in part["reason"]
    assert "cuobjdump: not found; install it from the CUDA toolkit" in part["reason"]


NCCL_NOTE = "libtorch_cuda.so: NCCL for sm_80 (1), sm_90 (1)"
OLD_SYMBOLS = f"{PROJECT}/tests/fixtures/cuobjdump-13.2.txt"


@needs_cuda
@pytest.mark.parametrize(
    ("place", "code", "says"),
    [
        # Where pip installs it; and as it shows symbols up to CUDA 13.4.
        ("site-packages/nvidia/cu13/bin", f'exec {CUOBJDUMP} "$@"', ""),
        (".", f"cat {OLD_SYMBOLS}", ""),
        (".", f"sed s/STT_/ELF:/ {OLD_SYMBOLS}", "cuobjdump names no function in libtorch_cuda.so"),
        (".", "exit 3", "exit code 3"),
        (".", "kill -SEGV $$", "exit code -11"),
        (".", "echo 'Fatbin elf code:'; echo 'arch = sm_75'", "finds other device code"),
        (".", "for i in 1 2 3 4 5 6; do echo 'Fatbin elf code:'; done", "finds other device code"),
    ],
)
def test_the_owner_is_what_cuobjdump_shows_or_undecided(
    tmp_path: Path, bundled: Path, place: str, code: str, says: str
) -> None:
    program(tmp_path / place / "cuobjdump", code)
    part = looked("device-code", "sm90-avx2", bundled)
    assert part["state"] == ("skipped" if says else "passed"), part
    assert says in part["reason"]
    assert list(part["notes"]) == ([] if says else [NCCL_NOTE])


@needs_cuda
@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 0), (6, 0xFFFF), (6, 0), (8, 0), (8, 2**63), (20, 0), (24, 2**64 - 1)],
)
def test_damaged_device_code_is_one_reason(tmp_path: Path, at: int, value: int) -> None:
    library = holding(tmp_path, "own 90 90a") / "libtorch_cuda.so"
    section = read_elf(library).named(fatbin.SECTION)
    assert section
    data = bytearray(library.read_bytes())
    size = 2 if at == 6 else 4 if at in {0, 20} else 8
    data[section.offset + at : section.offset + at + size] = value.to_bytes(size, "little")
    library.write_bytes(data)
    with pytest.raises(ToolError, match=r"libtorch_cuda\.so: its device code is (damaged|cut off)"):
        fatbin.device_objects(read_elf(library))
    assert looked("device-code", "sm90-avx2", tmp_path)["state"] == "skipped"


# --- real files, too large for this repository ---

CUDA_WHEEL = os.environ.get("BUILD_PYTORCH_TEST_CUDA_LIB", "")
NCCL_ARCHIVE = os.environ.get("BUILD_PYTORCH_TEST_NCCL", "")


@pytest.mark.skipif(
    not CUDA_WHEEL,
    reason="BUILD_PYTORCH_TEST_CUDA_LIB names no torch/lib of PyPI's torch 2.11.0 for x86-64",
)
def test_the_official_wheel_has_the_known_device_code() -> None:
    part = looked("device-code", "sm120-avx2", Path(CUDA_WHEEL))
    assert part["state"] == "failed"
    figures = part["figures"]["libtorch_cuda.so"]
    assert figures["elf"] == {
        **dict.fromkeys(("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"), 444),
        **dict.fromkeys(("sm_100a", "sm_103a"), 59),
        **dict.fromkeys(("sm_89", "sm_120a", "sm_121a"), 1),
        "sm_90a": 4,
    }
    assert figures["owners"].keys() == {"PyTorch", "unknown owner"}
    assert figures["owners"]["PyTorch"]["elf"]["sm_120"] > 350
    assert part["figures"]["libtorch_cuda_linalg.so"]["owners"].keys() == {"MAGMA"}


@needs_cuda
@pytest.mark.skipif(
    not NCCL_ARCHIVE,
    reason="BUILD_PYTORCH_TEST_NCCL names no libnccl_static.a of NCCL 2.22 or newer",
)
@pytest.mark.parametrize("strip", ["", "-S", "-s"])
def test_a_real_nccl_is_told_from_pytorchs_own_code(tmp_path: Path, strip: str) -> None:
    whole = ("-Wl,--whole-archive", NCCL_ARCHIVE, "-Wl,--no-whole-archive")
    library = nvcc(tmp_path / "lib", *codes("90", "90a"), link=whole)
    compile_library(library.parent)
    if strip:
        subprocess.run(["strip", strip, str(library)], check=True)
    part = looked("device-code", "sm90-avx2", library.parent)
    assert part["state"] == "passed", part
    owners = part["figures"]["libtorch_cuda.so"]["owners"]
    assert owners["PyTorch"]["elf"] == {"sm_90": 1, "sm_90a": 1}
    assert len(owners["NCCL"]["elf"]) > 3
    assert "unknown owner" not in owners
