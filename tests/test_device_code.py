"""Device code: judgements of values, and what is read of real objects of nvcc and ptxas."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
from built_files import (
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
from build_pytorch.inspect.part import PartResult, Target
from build_pytorch.matrix.model import Variant

OWNERS = {"own": OWN, "nccl": NCCL, "magma": MAGMA, "nobody": NOBODY}


def holding(folder: Path, objects: str, name: str = "libtorch_cuda.so") -> Path:
    """A folder with a library of these objects, such as `own 90 90a; nccl 80 ptx90`."""
    split = (each.split() for each in objects.split(";"))
    device_library(folder, *((OWNERS[owner], *codes) for owner, *codes in split), name=name)
    compile_library(folder)
    return folder


# --- judgements ---

CASES = """
# PyTorch's own code for another architecture.
sm120   | own 90                                 | failed  | device code for sm_90 (1)
sm120   | nobody 90                              | failed  | device code for sm_90 (1)
sm120   | nccl 90 120                            | failed  | device code for nothing
sm120   | own 120 120a 90                        | failed  | device code of PyTorch for sm_90 (1)
sm120   | own 120 120a; own 89                   | failed  | 1 object of PyTorch without code for sm_120
sm120   | own 120 120a; nccl 120; own 121        | failed  | for sm_121 (1)
# An unknown owner; an object without functions.
sm120   | nobody 80 90; own 120 120a; nobody 120 | skipped | the owner of 1 object of 3 cannot be told, with code for sm_80 (1), sm_90 (1)
sm120   | none 75; own 120 120a                  | passed  |
# NCCL must run on the GPU.
sm110   | own 110 110a; nccl 120 ptx100          | passed  |
sm110   | own 110 110a; nccl 90a ptx120          | warning | 1 of 1 object of NCCL
# What PyTorch adds to an architecture: needed, allowed, neither.
sm90    | own 90; own 90; nccl 90a               | failed  | no sm_90a code
sm100   | own 100; own 100; nccl 100a            | failed  | no sm_100a code
sm103   | own 103; own 103; nccl 103a            | failed  | no sm_103a code
sm110   | own 110; own 110; nccl 110a            | failed  | no sm_110a code
sm120   | own 120; own 120; nccl 120a            | failed  | no sm_120a code
sm121   | own 121; own 121; nccl 121a            | failed  | no sm_121a code
sm86    | own 86; own 86 89                      | passed  |
sm90    | own 90; own 90 90a                     | passed  |
sm103   | own 103; own 103 100a 103a             | passed  |
sm103   | own 103; own 103 103f                  | passed  |
sm120   | own 120; own 120 120a 121a             | passed  |
sm121   | own 121; own 121 120a 121a             | passed  |
sm80    | own 80 89                              | failed  | device code of PyTorch for sm_89 (1)
sm90    | own 90 90a ptx90                       | warning | PTX of sm_90
"""  # noqa: E501 - a table


def judged(variant: Variant, objects: str) -> PartResult:
    """The judgement of a libtorch_cuda.so of these objects; `none` has no functions."""
    target, name = Target(package=variant, folder=Path()), "libtorch_cuda.so"
    result, values, owners = PartResult(id="device-code", title="", passed=[name]), [], []
    for owner, *codes in (each.split() for each in objects.split(";")):
        cubins = tuple(f"sm_{code}" for code in codes if "ptx" not in code)
        ptx = tuple(f"sm_{code[3:]}" for code in codes if "ptx" in code)
        values.append(fatbin.DeviceObject(cubins, ptx))
        owners.append({device_code.owner_of(OWNERS[owner])} if owner in OWNERS else set[str]())
    assert variant.gpu
    expected = device_code.expected_code(target, variant.gpu, name)
    result.reason = device_code.judge_library(name, values, owners, expected, variant.gpu, result)
    result.conclude("")
    return result


@pytest.mark.parametrize("case", [line for line in CASES.splitlines() if "|" in line])
def test_device_code_is_judged_by_its_owner_and_its_architectures(case: str) -> None:
    name, objects, state, says = (cell.strip() for cell in case.split("|"))
    result = judged(variant_of(f"{name}-avx2"), objects)
    assert result.state == state, result
    severity = {"failed": "error"}.get(state, state)
    found = [one for one in result.findings if one.severity == severity]
    assert says in result.reason + "\n".join(one.found for one in found)
    if says.endswith("a code"):
        assert '"cmake/Codegen.cmake has no condition"' in found[0].fix
        assert len(found) == 1


@pytest.mark.parametrize(
    ("key", "cuda", "torch", "is_needed"),
    [
        ("121", "12.9", "2.10.0", True),
        ("121", "12.8", "2.10.0", False),  # nvcc does not know sm_121a
        ("121", "13.0", "2.9.1", False),
        ("121", "13.0", "2.11.0.dev20260101", True),
        ("110", "12.9", "2.10.0", False),
        ("90", "12.4", "2.6.0", True),
    ],
)
def test_the_need_depends_on_the_versions_of_cuda_and_pytorch(
    key: str, cuda: str, torch: str, is_needed: bool
) -> None:
    result = judged(variant_of(f"sm{key}-avx2", cuda=cuda, torch=torch), f"own {key}")
    assert result.state == ("failed" if is_needed else "passed")


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


# --- files ---

NCCL_AND_MAGMA = "75 80 90 100 120"


@needs_cuda
def test_nccl_and_magma_have_architectures_of_their_own(tmp_path: Path) -> None:
    """As in every build with nixpkgs, which links both statically."""
    bundled = f"own 90; own 90 90a; nccl {NCCL_AND_MAGMA} ptx120"
    folder = holding(tmp_path, bundled)
    holding(folder, f"magma {NCCL_AND_MAGMA}", name="libtorch_cuda_linalg.so")
    part = looked("device-code", "sm90-avx2", folder)
    assert part["state"] == "passed", part
    listing = ", ".join(f"sm_{one} (1)" for one in sorted(NCCL_AND_MAGMA.split()))
    assert list(part["notes"]) == [
        f"libtorch_cuda.so: NCCL for {listing}",
        f"libtorch_cuda_linalg.so: MAGMA for {listing}",
    ]
    owners = part["figures"]["libtorch_cuda.so"]["owners"]
    assert owners["PyTorch"]["elf"] == {"sm_90": 2, "sm_90a": 1}
    assert owners["NCCL"]["ptx"] == {"sm_120": 1}


@needs_cuda
def test_device_code_in_other_places_is_found(tmp_path: Path) -> None:
    holding(tmp_path, "own 120 120a")
    cpu = looked("device-code", "cpu-avx2", tmp_path)
    assert (cpu["state"], texts(cpu)) == ("failed", "device code")
    holding(tmp_path, "nobody 80 90; own 120 120a", name="libtorch_cuda_linalg.so")
    part = looked("device-code", "sm120-avx2", tmp_path)
    reason = "the owner of 1 object of 2 cannot be told, with code for sm_80 (1), sm_90 (1)"
    assert (part["state"], texts(part)) == ("skipped", "")
    assert part["reason"] == f"libtorch_cuda_linalg.so: {reason}"


def test_a_cpu_only_variant_has_no_library_for_cuda(tmp_path: Path) -> None:
    compile_library(tmp_path)
    right = looked("device-code", "cpu-avx2", tmp_path)
    assert (right["state"], list(right["passed"])) == ("passed", ["libtorch_cpu.so"])
    compile_library(tmp_path, name="libtorch_cuda.so")
    wrong = looked("device-code", "cpu-avx2", tmp_path)
    assert (list(wrong["failed"]), texts(wrong)) == (["libtorch_cuda.so"], "a library for CUDA")


@needs_cuda
def test_device_code_in_another_library_does_not_count(tmp_path: Path) -> None:
    holding(tmp_path, "magma 90", name="libtorch_cuda_linalg.so")
    part = looked("device-code", "sm90-avx2", tmp_path)
    assert texts(part) == "missing, or without device code"


def test_a_cpu_only_build_of_a_gpu_variant_is_found_without_cuobjdump(tmp_path: Path) -> None:
    compile_library(tmp_path)
    part = looked("device-code", "sm90-avx2", tmp_path)
    assert part["state"] == "failed"
    assert "this PyTorch is CPU-only" in texts(part)


# --- what nvcc makes ---

KERNEL = """
namespace at::native { __global__ void kernel(float* a) { *a = 1; } }
void f() { at::native::kernel<<<1, 1>>>(0); }
"""


@needs_cuda
@pytest.mark.slow
@pytest.mark.parametrize("more", ["-G", "-Xfatbin=-compress-all"])
def test_the_architectures_of_nvcc_are_those_that_cuobjdump_lists(
    tmp_path: Path, more: str
) -> None:
    """Of a file without kernels nvcc makes an object without functions."""
    library = tmp_path / "libtorch_cuda.so"
    (tmp_path / "kernel.cu").write_text(KERNEL)
    (tmp_path / "none.cu").write_text("void g() {}\n")
    names = ("75", "90", "90a", "103f")
    argv = ["nvcc", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", more]
    argv += [f"-gencode=arch=compute_{name},code=sm_{name}" for name in names]
    subprocess.run([*argv, "kernel.cu", "none.cu", "-o", library], check=True, cwd=tmp_path)
    compile_library(tmp_path)
    found = Counter(c for each in fatbin.device_objects(read_elf(library)) for c in each.cubins)
    said = subprocess.run(
        [CUOBJDUMP, "--dump-elf-symbols", str(library)], capture_output=True, text=True, check=True
    ).stdout
    assert found == Counter(re.findall(r"(?m)^arch = (\w+)$", said))
    assert found.keys() == {f"sm_{name}" for name in names}
    figures = looked("device-code", "sm90-avx2", tmp_path)["figures"]["libtorch_cuda.so"]
    assert figures["owners"].keys() == {"PyTorch", "no functions"}


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
