"""Device code: real objects of nvcc, ptxas and fatbinary, judged for the owner of each."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from built_files import (
    AVX2,
    COMPILERS,
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
from build_pytorch.inspect import device_code, fatbin, inspection
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.matrix.model import Variant

MANY = ("75", "80", "90", "100", "120")
RIGHT = {"sm90": ("90", "90a"), "sm120": ("120", "120a"), "sm121": ("121", "121a")}


def device(variant: str, folder: Path) -> dict[str, Any]:
    compile_library(folder, AVX2)
    return looked("device-code", variant, folder)


def judged(variant: Variant, folder: Path) -> dict[str, Any]:
    (part,) = [part for part in inspection.PARTS if part.id == "device-code"]
    compile_library(folder, AVX2)
    target = inspection.folder_target(variant, folder)
    return dict(msgspec.to_builtins(part.inspect(target, lambda *_: None)))


def with_versions(variant: Variant, cuda: str, torch: str) -> Variant:
    replace = msgspec.structs.replace
    release = variant.release
    assert release.cuda
    changed = replace(
        release,
        cuda=replace(release.cuda, version=cuda),
        torch=replace(release.torch, version=torch),
    )
    return replace(variant, release=changed)


# --- what is there ---

SOURCE = """
namespace at::native { __global__ void kernel(float* a) { *a = 1; } }
void NAME() { at::native::kernel<<<1, 1>>>(0); }
"""


def nvcc(folder: Path, *codes: str, more: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "kernel.cu"
    source.write_text(SOURCE.replace("NAME", "f"))
    flags = [f"-gencode=arch=compute_{code},code=sm_{code}" for code in codes]
    argv = ["nvcc", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", *flags, *more, str(source)]
    subprocess.run([*argv, "-o", str(folder / "libtorch_cuda.so")], check=True)
    source.unlink()
    return folder / "libtorch_cuda.so"


@needs_cuda
@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("-Xfatbin=-compress-all",), ("-no-compress",), ("-G",)])
def test_the_architectures_of_nvcc_are_those_that_cuobjdump_lists(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    library = nvcc(tmp_path, "75", "90", "90a", "103f", "120", more=more)
    found = Counter(c for each in fatbin.device_objects(read_elf(library)) for c in each.cubins)
    said = subprocess.run(
        [CUOBJDUMP, "--dump-elf-symbols", str(library)], capture_output=True, text=True, check=True
    ).stdout
    assert found == Counter(re.findall(r"(?m)^arch = (\w+)$", said))
    assert found.keys() == {"sm_75", "sm_90", "sm_90a", "sm_103f", "sm_120"}


# --- whose it is ---


@needs_cuda
@pytest.mark.parametrize("key", RIGHT)
def test_nccl_and_magma_have_architectures_of_their_own(tmp_path: Path, key: str) -> None:
    """As in every build with nixpkgs, which links both statically."""
    device_library(
        tmp_path / "lib", (OWN, RIGHT[key][0]), (OWN, *RIGHT[key]), (NCCL, *MANY, "ptx120"),
    )  # fmt: skip
    device_library(tmp_path / "lib", (MAGMA, *MANY), name="libtorch_cuda_linalg.so")
    part = device(f"{key}-avx2", tmp_path / "lib")
    assert part["state"] == "passed", part
    listing = ", ".join(f"sm_{code} (1)" for code in sorted(MANY))
    assert list(part["notes"]) == [
        f"libtorch_cuda.so: NCCL for {listing}",
        f"libtorch_cuda_linalg.so: MAGMA for {listing}",
    ]
    owners = part["figures"]["libtorch_cuda.so"]["owners"]
    assert owners["PyTorch"]["elf"] == {f"sm_{RIGHT[key][0]}": 2, f"sm_{RIGHT[key][1]}": 1}
    assert owners["NCCL"]["ptx"] == {"sm_120": 1}


@needs_cuda
@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ([(OWN, "90")], "device code for sm_90 (1)"),
        ([(NOBODY, "90")], "device code for sm_90 (1)"),
        ([(NCCL, "90", "120")], "device code for nothing"),
        ([(OWN, "120", "120a", "90")], "device code of PyTorch for sm_90 (1)"),
        ([(OWN, "120", "120a"), (OWN, "89")], "1 object of PyTorch without code for sm_120"),
        ([(OWN, "120", "120a"), (NCCL, "120"), (OWN, "121")], "for sm_121 (1)"),
    ],
)
def test_pytorchs_own_code_for_another_architecture_is_found(
    tmp_path: Path, objects: list[tuple[str, ...]], found: str
) -> None:
    device_library(tmp_path / "lib", *objects)
    part = device("sm120-avx2", tmp_path / "lib")
    assert part["state"] == "failed"
    assert found in texts(part)


@needs_cuda
@pytest.mark.parametrize("library", ["libtorch_cuda.so", "libtorch_cuda_linalg.so"])
def test_code_of_an_unknown_owner_is_undecided(tmp_path: Path, library: str) -> None:
    device_library(tmp_path / "lib", (OWN, "120", "120a"))
    objects = [(NOBODY, "80", "90"), (OWN, "120", "120a"), (NOBODY, "120")]
    device_library(tmp_path / "lib", *objects, name=library)
    part = device("sm120-avx2", tmp_path / "lib")
    assert part["state"] == "skipped"
    assert not texts(part)
    reason = "the owner of 1 object of 3 cannot be told, with code for sm_80 (1), sm_90 (1)"
    assert part["reason"] == f"{library}: {reason}"


@needs_cuda
@pytest.mark.slow
def test_objects_without_functions_do_not_count(tmp_path: Path) -> None:
    """nvcc makes them of files without kernels, for its default architecture."""
    empty = tmp_path / "empty.cu"
    empty.write_text("void f() {}\n")
    own = tmp_path / "own.cu"
    own.write_text(SOURCE.replace("NAME", "g"))
    (tmp_path / "lib").mkdir()
    for source, code in ((empty, "-arch=sm_75"), (own, "-gencode=arch=compute_80,code=sm_80")):
        argv = ["nvcc", "-std=c++17", "-Xcompiler", "-fPIC", code, "-c", str(source)]
        subprocess.run([*argv, "-o", str(source.with_suffix(".o"))], check=True)
    objects = [str(source.with_suffix(".o")) for source in (empty, own)]
    library = tmp_path / "lib/libtorch_cuda.so"
    argv = [COMPILERS["x86_64-linux"], "-shared", *objects, "-o", str(library)]
    subprocess.run(argv, check=True)
    part = device("sm80-avx2", tmp_path / "lib")
    assert not texts(part)
    assert part["state"] == "passed"
    assert "sm_75" in part["figures"]["libtorch_cuda.so"]["owners"]["no functions"]["elf"]


@needs_cuda
@pytest.mark.parametrize(
    ("codes", "warns"),
    [(("90",), True), (("110",), False), (("120", "ptx100"), False), (("90a", "ptx120"), True)],
)
def test_nccl_without_code_that_runs_on_the_gpu_is_a_warning(
    tmp_path: Path, codes: tuple[str, ...], warns: bool
) -> None:
    device_library(tmp_path / "lib", (OWN, "110", "110a"), (NCCL, *codes))
    part = device("sm110-avx2", tmp_path / "lib")
    assert part["state"] == ("warning" if warns else "passed")
    assert ("1 of 1 object of NCCL" in texts(part, "warning")) == warns


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


# --- architecture-specific code ---


@needs_cuda
@pytest.mark.parametrize(
    ("variant", "code"),
    [
        ("sm90-avx2", "90a"),
        ("sm100-avx2", "100a"),
        ("sm103-avx2", "103a"),
        ("sm110-avx2", "110a"),
        ("sm120-avx2", "120a"),
        ("sm121-avx2", "121a"),
    ],
)
def test_architecture_specific_code_must_be_there(tmp_path: Path, variant: str, code: str) -> None:
    device_library(tmp_path / "lib", (OWN, code[:-1]), (OWN, code[:-1], code))
    assert device(variant, tmp_path / "lib")["state"] == "passed"
    device_library(tmp_path / "lib", (OWN, code[:-1]), (OWN, code[:-1]), (NCCL, code))
    part = device(variant, tmp_path / "lib")
    assert part["state"] == "failed"
    assert f"no sm_{code} code" in texts(part)
    (finding,) = [one for one in part["findings"] if one["severity"] == "error"]
    assert '"cmake/Codegen.cmake has no condition"' in finding["fix"]


@needs_cuda
@pytest.mark.parametrize(
    ("variant", "codes"),
    [
        ("sm86-avx2", ("86", "89")),
        ("sm100-avx2", ("100", "100a", "103a")),
        ("sm103-avx2", ("103", "100a", "103a")),
        ("sm103-avx2", ("103", "103f")),
        ("sm120-avx2", ("120", "120a", "121a")),
        ("sm121-avx2", ("121", "120a", "121a")),
        ("sm80-avx2", ("80",)),
        ("sm89-avx2", ("89",)),
    ],
)
def test_what_pytorch_adds_to_an_architecture_is_right(
    tmp_path: Path, variant: str, codes: tuple[str, ...]
) -> None:
    device_library(tmp_path / "lib", (OWN, codes[0]), (OWN, *codes))
    assert device(variant, tmp_path / "lib")["state"] == "passed"


@needs_cuda
@pytest.mark.parametrize(
    ("variant", "codes"),
    [
        ("sm80-avx2", ("80", "89")),
        ("sm90-avx2", ("90", "90a", "100a")),
        ("sm120-avx2", ("120", "120a", "90a")),
    ],
)
def test_code_that_belongs_to_another_architecture_is_surplus(
    tmp_path: Path, variant: str, codes: tuple[str, ...]
) -> None:
    device_library(tmp_path / "lib", (OWN, *codes))
    part = device(variant, tmp_path / "lib")
    assert part["state"] == "failed"
    assert f"device code of PyTorch for sm_{codes[-1]} (1)" in texts(part)


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
    number = variant.partition("-")[0].removeprefix("sm")
    device_library(tmp_path / "lib", (OWN, number))
    part = judged(with_versions(variant_of(variant), cuda, torch), tmp_path / "lib")
    assert part["state"] == ("failed" if is_needed else "passed")


# --- several architectures in one build ---


def several(*, ptx: bool = False) -> Variant:
    """A variant for 8.6 and 12.0, with PTX of 12.0 on request."""
    replace = msgspec.structs.replace
    variant = variant_of("sm86-avx2")
    assert variant.gpu
    return replace(variant, gpu=replace(variant.gpu, also=("12.0",), ptx=ptx))


@needs_cuda
def test_code_of_nvcc_for_several_architectures_passes(tmp_path: Path) -> None:
    own = ("86", "120", "120a")
    nvcc(tmp_path / "lib", *own, more=("-gencode=arch=compute_120,code=compute_120",))
    part = judged(several(ptx=True), tmp_path / "lib")
    assert part["state"] == "passed", part
    figures = part["figures"]["libtorch_cuda.so"]
    assert figures["elf"].keys() == {f"sm_{code}" for code in own}
    assert figures["ptx"] == {"sm_120": 1}
    part = judged(several(), tmp_path / "lib")
    assert part["state"] == "warning"
    assert "PTX of sm_120 (1)" in texts(part, "warning")


@needs_cuda
@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ([(OWN, "120", "120a", "ptx120")], "1 object of PyTorch without code for sm_86"),
        ([(OWN, "86", "ptx120")], "1 object of PyTorch without code for sm_120"),
        ([(OWN, "86", "120", "120a")], "1 object of PyTorch without PTX of sm_120"),
        ([(OWN, "86", "120", "120a", "ptx86")], "1 object of PyTorch without PTX of sm_120"),
        (
            [(OWN, "86", "120", "120a", "ptx120"), (OWN, "86", "120")],
            "1 object of PyTorch without PTX of sm_120",
        ),
        ([(OWN, "80", "86", "120", "120a", "ptx120")], "device code of PyTorch for sm_80 (1)"),
        ([(OWN, "86", "120", "ptx120")], "no sm_120a code"),
        ([(OWN, "75", "ptx120")], "device code for sm_75 (1)"),
        ([(NCCL, "86", "120", "ptx120")], "device code for nothing"),
    ],
)
def test_each_architecture_and_the_ptx_must_be_in_pytorchs_own_code(
    tmp_path: Path, objects: list[tuple[str, ...]], found: str
) -> None:
    device_library(tmp_path / "lib", *objects)
    part = judged(several(ptx=True), tmp_path / "lib")
    assert part["state"] == "failed"
    assert found in texts(part)


@needs_cuda
def test_bundled_code_must_run_on_each_of_several_architectures(tmp_path: Path) -> None:
    own = (OWN, "86", "120", "120a")
    device_library(tmp_path / "lib", own, (NCCL, "80", "120"), (NOBODY, "86", "120"))
    assert judged(several(), tmp_path / "lib")["state"] == "passed"
    device_library(tmp_path / "lib", own, (NCCL, "80", "90"), (NCCL, "75"))
    part = judged(several(), tmp_path / "lib")
    assert part["state"] == "warning"
    assert "1 of 2 objects of NCCL for sm_75 (1)" in texts(part, "warning")
    assert "2 of 2 objects of NCCL" in texts(part, "warning")


@needs_cuda
def test_code_of_an_unknown_owner_for_one_of_several_is_undecided(tmp_path: Path) -> None:
    device_library(tmp_path / "lib", (OWN, "86", "120", "120a"), (NOBODY, "86"))
    part = judged(several(), tmp_path / "lib")
    assert part["state"] == "skipped"
    assert "the owner of 1 object of 2 cannot be told" in part["reason"]


# --- PTX, no device code, no tools, damage ---


@needs_cuda
def test_ptx_is_a_warning(tmp_path: Path) -> None:
    device_library(tmp_path / "lib", (OWN, "90", "90a", "ptx90"))
    part = device("sm90-avx2", tmp_path / "lib")
    assert part["state"] == "warning"
    assert "PTX of sm_90" in texts(part, "warning")


@needs_cuda
def test_a_cpu_only_variant_holds_no_device_code(tmp_path: Path) -> None:
    device_library(tmp_path / "lib", (OWN, "90"))
    part = device("cpu-avx2", tmp_path / "lib")
    assert part["state"] == "failed"
    assert "device code" in texts(part)


def test_a_cpu_only_build_of_a_gpu_variant_is_found_without_cuobjdump(tmp_path: Path) -> None:
    part = device("sm90-avx2", tmp_path / "lib")
    assert part["state"] == "failed"
    assert "this PyTorch is CPU-only" in texts(part)


@needs_cuda
def test_cuobjdump_is_needed_for_the_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device_library(tmp_path / "right", (OWN, "90", "90a"))
    device_library(tmp_path / "nccl", (OWN, "90", "90a"), (NCCL, "80", "90"))
    device_library(tmp_path / "wrong", (OWN, "80"))
    for name in ("right", "nccl", "wrong"):
        compile_library(tmp_path / name, AVX2)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert looked("device-code", "sm90-avx2", tmp_path / "right")["state"] == "passed"
    part = looked("device-code", "sm90-avx2", tmp_path / "nccl")
    assert part["state"] == "skipped"
    assert "the owner of 1 object of 2 cannot be told" in part["reason"]
    assert "cuobjdump: not found; install it from the CUDA toolkit" in part["reason"]
    assert looked("device-code", "sm90-avx2", tmp_path / "wrong")["state"] == "failed"


@needs_cuda
def test_cuobjdump_is_found_where_pip_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages/nvidia/cu13/bin"
    folder.mkdir(parents=True)
    (folder / "cuobjdump").symlink_to(str(CUOBJDUMP))
    device_library(tmp_path / "lib", (OWN, "90", "90a"), (NCCL, "80", "90"))
    compile_library(tmp_path / "lib", AVX2)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "site-packages"))
    part = looked("device-code", "sm90-avx2", tmp_path / "lib")
    assert part["state"] == "passed"
    assert list(part["notes"]) == ["libtorch_cuda.so: NCCL for sm_80 (1), sm_90 (1)"]


@needs_cuda
def test_symbols_as_cuobjdump_shows_them_up_to_cuda_13_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is that of cuobjdump 13.2 for this library; 13.5 shows another table."""
    program = tmp_path / "bin/cuobjdump"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat {PROJECT}/tests/fixtures/cuobjdump-13.2.txt\n")
    program.chmod(0o755)
    device_library(tmp_path / "lib", (OWN, "90", "90a"), (NCCL, "80", "90"))
    compile_library(tmp_path / "lib", AVX2)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    part = looked("device-code", "sm90-avx2", tmp_path / "lib")
    assert part["state"] == "passed"
    assert list(part["notes"]) == ["libtorch_cuda.so: NCCL for sm_80 (1), sm_90 (1)"]
    text = program.read_text().replace("cat", "sed s/STT_/ELF:/")
    program.write_text(text)
    part = looked("device-code", "sm90-avx2", tmp_path / "lib")
    assert part["state"] == "skipped"
    assert "cuobjdump names no function in libtorch_cuda.so" in part["reason"]


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("exit 3", "exit code 3"),
        ("echo 'Fatbin elf code:'; echo 'arch = sm_75'", "finds other device code"),
        ("for i in 1 2 3 4 5 6 7 8 9; do echo 'Fatbin elf code:'; done", "finds other device code"),
        ("kill -SEGV $$", "exit code -11"),
    ],
)
@needs_cuda
def test_a_failing_cuobjdump_leaves_the_owner_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, says: str
) -> None:
    device_library(tmp_path / "lib", (OWN, "90", "90a"), (NCCL, "80", "90"))
    compile_library(tmp_path / "lib", AVX2)
    (tmp_path / "cuobjdump").write_text(f"#!/bin/sh\n{said}\n")
    (tmp_path / "cuobjdump").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    part = looked("device-code", "sm90-avx2", tmp_path / "lib")
    assert part["state"] == "skipped"
    assert says in part["reason"]


@needs_cuda
@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 0), (6, 0xFFFF), (6, 0), (8, 0), (8, 2**63), (20, 0), (24, 2**64 - 1)],
)
def test_damaged_device_code_is_one_reason(tmp_path: Path, at: int, value: int) -> None:
    library = device_library(tmp_path / "lib", (OWN, "90", "90a"))
    section = read_elf(library).named(fatbin.SECTION)
    assert section
    data = bytearray(library.read_bytes())
    size = 2 if at == 6 else 4 if at in {0, 20} else 8
    data[section.offset + at : section.offset + at + size] = value.to_bytes(size, "little")
    library.write_bytes(data)
    with pytest.raises(ToolError, match=r"libtorch_cuda\.so: its device code is (damaged|cut off)"):
        fatbin.device_objects(read_elf(library))
    assert device("sm90-avx2", tmp_path / "lib")["state"] == "skipped"


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
    source, library = tmp_path / "own.cu", tmp_path / "lib/libtorch_cuda.so"
    source.write_text(SOURCE.replace("NAME", "f"))
    library.parent.mkdir()
    codes = [f"-gencode=arch=compute_{code},code=sm_{code}" for code in ("90", "90a")]
    argv = ["nvcc", "-std=c++17", "-Xcompiler", "-fPIC", *codes, "-c", str(source)]
    subprocess.run([*argv, "-o", str(tmp_path / "own.o")], check=True)
    whole = ["-Wl,--whole-archive", NCCL_ARCHIVE, "-Wl,--no-whole-archive"]
    argv = [COMPILERS["x86_64-linux"], "-shared", str(tmp_path / "own.o"), *whole]
    subprocess.run([*argv, "-o", str(library)], check=True)
    if strip:
        subprocess.run(["strip", strip, str(library)], check=True)
    part = device("sm90-avx2", library.parent)
    assert part["state"] == "passed", part
    owners = part["figures"]["libtorch_cuda.so"]["owners"]
    assert owners["PyTorch"]["elf"] == {"sm_90": 1, "sm_90a": 1}
    assert len(owners["NCCL"]["elf"]) > 3
    assert "unknown owner" not in owners
