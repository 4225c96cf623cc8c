"""Device code: judgements of values, and what is read of a library with real objects."""

from __future__ import annotations

from pathlib import Path

import pytest
from built_files import compile_library, device_library, looked, needs_cuda, texts, variant_of

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect import device_code
from build_pytorch.inspect.elf_file import DEVICE_CODE, DeviceObject, device_objects, read_elf
from build_pytorch.inspect.target import InspectionFinding, Target
from build_pytorch.matrix.model import Variant

LIST = "75 80 90 100 120"
"""What NCCL and MAGMA of a public cache are compiled for."""
NCCL = f"10 x 120; 120 120a; 2 x {LIST} ptx120"

# variant | library, if it is not libtorch_cuda.so | objects | the only error or warning
CASES = f"""
# PyTorch for another architecture, for two, for a list.
sm120 |        | 90                                  | error 1 object of PyTorch for sm_90 (1)
sm120 |        | 9 x 120 120a 90                     | error 9 objects of PyTorch for sm_120 (9), sm_120a (9), sm_90 (9)
sm120 |        | 9 x 120; 120 120a; 89               | error 1 object of PyTorch for sm_89 (1)
sm120 |        | 9 x {LIST} 120a                     | error 9 objects of PyTorch for sm_100 (9), sm_120 (9)
sm120 |        | 2 x 120 120a; {LIST}                | error 1 object of PyTorch for sm_100 (1)
# NCCL and MAGMA, which are linked in, bring a list; they must run on the GPU.
sm120 |        | {NCCL}                              |
sm120 |        | {NCCL}; 100f                        |
sm110 |        | 9 x 110 110a; {LIST}                | warning NCCL for sm_100 (1), sm_120 (1)
sm110 |        | 9 x 110 110a; 75 80 90 ptx100       |
sm120 | linalg | 99 x {LIST}                         |
sm110 | linalg | 99 x 50 60 70                       | error MAGMA for sm_50 (99), sm_60 (99), sm_70 (99)
sm120 | linalg | 99 x 90                             | error 99 objects of PyTorch for sm_90 (99)
sm120 | linalg | 99 x 120                            |
# Another library has no list.
sm120 | nvshmem | {LIST}                             | error 1 object of PyTorch for sm_100 (1)
# What PyTorch adds to an architecture: needed, allowed, neither.
sm90  |        | 2 x 90                              | error no sm_90a code
sm100 |        | 2 x 100                             | error no sm_100a code
sm103 |        | 2 x 103                             | error no sm_103a code
sm110 |        | 2 x 110                             | error no sm_110a code
sm120 |        | 2 x 120                             | error no sm_120a code
sm121 |        | 2 x 121                             | error no sm_121a code
sm86  |        | 86; 86 89                           |
sm90  |        | 90; 90 90a                          |
sm103 |        | 103; 103 100a 103a                  |
sm103 |        | 103; 103 103f                       |
sm120 |        | 120; 120 120a 121a                  |
sm121 |        | 121; 121 120a 121a                  |
sm80  |        | 80 89                               | error 1 object of PyTorch for sm_80 (1), sm_89 (1)
sm90  |        | 90 90a ptx90                        | warning PTX: compute_90 (1)
"""  # noqa: E501 - a table


def judged(variant: Variant, objects: str, library: str = "") -> list[InspectionFinding]:
    """The findings of a library of these objects, such as `9 x 120 120a; 90 ptx90`."""
    found = []
    for each in objects.split(";"):
        number, _, codes = each.rpartition(" x ")
        names = {code.replace("ptx", "compute_"): code for code in codes.split()}
        images = {name if "_" in name else f"sm_{name}": 1 for name in names}
        found += [DeviceObject(images)] * int(number or 1)
    expected = device_code.expected_code(Target(package=variant, folder=Path()))
    assert expected
    name = f"libtorch_cuda{'_' * bool(library)}{library}.so"
    judgement = device_code.judge_library(name, found, expected, is_main=not library)
    return [finding for finding in judgement if finding.severity != "note"]


@pytest.mark.parametrize("case", [line for line in CASES.splitlines() if "|" in line])
def test_device_code_is_for_the_architecture_of_the_variant(case: str) -> None:
    name, library, objects, says = (cell.strip() for cell in case.split("|"))
    findings = judged(variant_of(f"{name}-avx2"), objects, library)
    assert [f"{one.severity} {one.found}"[: len(says)] for one in findings] == [says] * bool(says)
    if says.endswith("a code"):
        assert '"cmake/Codegen.cmake has no condition"' in findings[0].fix


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
    variant = variant_of(f"sm{key}-avx2", cuda=cuda, torch=torch)
    assert bool(judged(variant, key)) is is_needed


# --- files ---


@needs_cuda
def test_architectures_and_sizes_are_read_from_a_library(tmp_path: Path) -> None:
    """Objects of ptxas and fatbinary; the sizes are those of the files that went in."""
    compile_library(tmp_path)
    library = device_library(tmp_path, "90", "90 90a ptx90", "75 80 90")
    objects = device_objects(read_elf(library))
    assert [set(each.images) for each in objects] == [
        {"sm_90"}, {"sm_90", "sm_90a", "compute_90"}, {"sm_75", "sm_80", "sm_90"},
    ]  # fmt: skip
    part = looked("device-code", "sm90-avx2", tmp_path)
    assert (part["state"], texts(part)) == (
        "failed", "1 object of PyTorch for sm_75 (1), sm_80 (1), sm_90 (1)",
    )  # fmt: skip
    cpu, cuda = (part["figures"]["sizes"][f"libtorch_{it}.so"] for it in ("cpu", "cuda"))
    assert cpu == {"host": (tmp_path / "libtorch_cpu.so").stat().st_size}
    assert sum(cuda.values()) == library.stat().st_size
    assert {*cuda} == {"host", "sm_75", "sm_80", "sm_90", "sm_90a", "compute_90"}
    assert cuda["sm_90"] > 2 * cuda["sm_90a"] > 1000
    part = looked("device-code", "cpu-avx2", tmp_path)
    assert texts(part) == "device code"


@needs_cuda
def test_the_nccl_beside_a_wheel_counts_for_the_size_alone(tmp_path: Path) -> None:
    compile_library(tmp_path / "torch/lib")
    device_library(tmp_path / "torch/lib", "90 90a")
    device_library(tmp_path / "nvidia/nccl/lib", LIST, name="libnccl.so.2")
    part = looked("device-code", "sm90-avx2", tmp_path / "torch/lib")
    assert part["state"] == "passed"
    assert {*part["figures"]["sizes"]["libnccl.so.2"]} >= {"host", "sm_75", "sm_120"}
    part = looked("device-code", "cpu-avx2", tmp_path / "torch/lib")
    assert "libnccl.so.2" not in part["figures"]["sizes"]


def test_a_cpu_only_build_is_found_by_its_libraries(tmp_path: Path) -> None:
    nothing = Target(package=variant_of("sm90-avx2"), folder=tmp_path)
    assert not list(device_code.check_device_code(nothing, {}))
    compile_library(tmp_path)
    assert looked("device-code", "cpu-avx2", tmp_path)["state"] == "passed"
    wrong = looked("device-code", "sm90-avx2", tmp_path)
    assert texts(wrong) == "no device code in any library: this PyTorch is CPU-only"
    assert wrong["findings"][0]["fix"] == "look at gpuTargets in the recipe and build again"
    compile_library(tmp_path, name="libtorch_cuda.so")
    assert texts(looked("device-code", "cpu-avx2", tmp_path)) == "a library for CUDA"


@needs_cuda
def test_device_code_in_another_library_does_not_count(tmp_path: Path) -> None:
    device_library(tmp_path, "90", name="libtorch_cuda_linalg.so")
    compile_library(tmp_path)
    part = looked("device-code", "sm90-avx2", tmp_path)
    assert texts(part) == "missing, or without device code"


@needs_cuda
@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 0), (6, 0xFFFF), (6, 0), (8, 0), (8, 2**63), (20, 0), (24, 2**64 - 1)],
)
def test_damaged_device_code_is_one_reason(tmp_path: Path, at: int, value: int) -> None:
    library = device_library(tmp_path, "90 90a")
    compile_library(tmp_path)
    offset, _ = read_elf(library).sections[DEVICE_CODE]
    data = bytearray(library.read_bytes())
    size = 2 if at == 6 else 4 if at in {0, 20} else 8
    data[offset + at : offset + at + size] = value.to_bytes(size, "little")
    library.write_bytes(data)
    with pytest.raises(ToolError, match=r"libtorch_cuda\.so: its device code is damaged"):
        device_objects(read_elf(library))
    assert looked("device-code", "sm90-avx2", tmp_path)["state"] == "skipped"
