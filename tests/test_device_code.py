"""Libraries: judgements of device code as values, what is read of real ones, and damaged ones."""

from __future__ import annotations

import os
import random
import resource
import struct
import subprocess
from pathlib import Path

import pytest
from built_files import compile_library, device_library, looked, needs_cuda, texts, variant_of

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect import device_code
from build_pytorch.inspect.elf_file import DEVICE_CODE, device_objects, read_elf
from build_pytorch.inspect.target import Target

LIST = "75 80 90 100 120"
"""What NCCL and MAGMA of a public cache are compiled for."""
NCCL = f"10 x 120; 120 120a; 2 x {LIST} ptx120"

# variant, PyTorch if it is not 2.10.0 | library, if it is not libtorch_cuda.so | objects | the only
# error or warning
CASES = f"""
# PyTorch for another architecture, for two, for a list.
sm120 |        | 90                                  | error 1 of 1 objects for sm_90 (1)
sm120 |        | 9 x 120 120a 90                     | error 9 of 9 objects for sm_120 (9), sm_120a (9), sm_90 (9)
sm120 |        | 9 x 120; 120 120a; 89               | error 1 of 11 objects for sm_89 (1)
sm120 |        | 9 x {LIST} 120a                     | error 9 of 9 objects for sm_100 (9), sm_120 (9)
sm120 |        | 2 x 120 120a; {LIST}                | error 1 of 3 objects for sm_100 (1)
sm120 |        |                                     | error 0 of 0 objects for nothing
# NCCL and MAGMA, which are linked in, bring a list; they must run on the GPU.
sm120 |        | {NCCL}                              |
sm120 |        | {NCCL}; 100f                        |
sm110 |        | 9 x 110 110a; {LIST}                | warning NCCL for sm_100 (1), sm_120 (1)
sm110 |        | 9 x 110 110a; 75 80 90 ptx100       |
sm120 | linalg | 99 x {LIST}                         |
sm110 | linalg | 99 x 50 60 70                       | error MAGMA for sm_50 (99), sm_60 (99), sm_70 (99)
sm120 | linalg | 99 x 90                             | error 99 of 99 objects for sm_90 (99)
sm120 | linalg | 99 x 120                            |
# Another library has no list.
sm120 | nvshmem | {LIST}                             | error 1 of 1 objects for sm_100 (1)
# What PyTorch adds to an architecture: needed, allowed, neither.
sm90  |        | 2 x 90                              | error no sm_90a code
sm100 |        | 2 x 100                             | error no sm_100a code
sm103 |        | 2 x 103                             | error no sm_103a code
sm110 |        | 2 x 110                             | error no sm_110a code
sm120 |        | 2 x 120                             | error no sm_120a code
sm121 |        | 2 x 121                             | error no sm_121a code
sm121 2.9.1  |  | 121                                |
sm90  2.6.0  |  | 90                                 | error no sm_90a code
sm121 2.11.0.dev20260101 | | 121                     | error no sm_121a code
sm86  |        | 86; 86 89                           |
sm90  |        | 90; 90 90a                          |
sm103 |        | 103; 103 100a 103a                  |
sm103 |        | 103; 103 103f                       |
sm120 |        | 120; 120 120a 121a                  |
sm121 |        | 121; 121 120a 121a                  |
sm80  |        | 80 89                               | error 1 of 1 objects for sm_80 (1), sm_89 (1)
sm90  |        | 90 90a ptx90                        | warning PTX: compute_90 (1)
"""  # noqa: E501 - a table


@pytest.mark.parametrize("case", [line for line in CASES.splitlines() if "|" in line])
def test_device_code_is_for_the_architecture_of_the_variant(case: str) -> None:
    name, library, text, says = (cell.strip() for cell in case.split("|"))
    gpu, _, torch = name.partition(" ")
    variant = variant_of(f"{gpu}-avx2", torch=torch.strip() or "2.10.0")
    objects = []
    for each in text.split(";"):
        number, _, codes = each.rpartition(" x ")
        names = [code.replace("ptx", "compute_") for code in codes.split()]
        images = {name if "_" in name else f"sm_{name}": 1 for name in names}
        objects += [images] * int(number or 1)
    assert variant.gpu
    findings = list(
        device_code.judge_library(
            Target(package=variant, folder=Path()),
            variant.gpu.capability,
            f"libtorch_cuda{'_' * bool(library)}{library}.so",
            objects if text else [],
            is_main=not library,
        )
    )
    assert [f"{one.severity} {one.found}"[: len(says)] for one in findings] == [says] * bool(says)
    if says.endswith("a code"):
        fix = 'look for "cmake/Codegen.cmake has no condition" in the log, and build again'
        assert findings[0].fix == fix


# --- libraries of ptxas and fatbinary ---


@needs_cuda
def test_architectures_and_sizes_are_read_from_libraries(tmp_path: Path) -> None:
    """The sizes are those of the files that went in. A wheel's NCCL counts for the size alone."""
    folder = tmp_path / "torch/lib"
    compile_library(folder)
    device_library(tmp_path / "nvidia/nccl/lib", LIST, name="libnccl.so.2")
    library = device_library(folder, "90", "90 90a ptx90", "75 80 90")
    assert [set(each) for each in device_objects(read_elf(library))] == [
        {"sm_90"}, {"sm_90", "sm_90a", "compute_90"}, {"sm_75", "sm_80", "sm_90"},
    ]  # fmt: skip
    part = looked("libraries", "sm90-avx2", folder)
    wrong = "1 of 3 objects for sm_75 (1), sm_80 (1), sm_90 (1)"
    assert (part["state"], texts(part)) == ("failed", wrong)
    sizes = part["figures"]["sizes"]
    assert sizes["libtorch_cpu.so"] == {"host": (folder / "libtorch_cpu.so").stat().st_size}
    cuda = sizes["libtorch_cuda.so"]
    assert sum(cuda.values()) == library.stat().st_size
    assert list(cuda) == ["host", "sm_75", "sm_80", "sm_90", "sm_90a", "compute_90"]
    assert cuda["sm_90"] > 2 * cuda["sm_90a"] > 1000
    assert {*sizes["libnccl.so.2"]} >= {"host", "sm_75", "sm_120"}
    part = looked("libraries", "cpu-avx2", folder)
    assert (texts(part), "libnccl.so.2" in part["figures"]["sizes"]) == ("code for CUDA", False)


@needs_cuda
def test_a_cpu_only_build_is_found_by_its_libraries(tmp_path: Path) -> None:
    compile_library(tmp_path)
    assert looked("libraries", "cpu-avx2", tmp_path)["state"] == "passed"
    for _ in range(2):  # device code in another library does not count
        wrong = looked("libraries", "sm90-avx2", tmp_path)
        assert texts(wrong) == "no device code: this PyTorch is CPU-only"
        assert "look at gpuTargets in the recipe" in wrong["findings"][0]["fix"]
        device_library(tmp_path, "90", name="libtorch_cuda_linalg.so")
    compile_library(tmp_path, name="libtorch_cuda_linalg.so")
    assert texts(looked("libraries", "cpu-avx2", tmp_path)) == "code for CUDA"


@needs_cuda
@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 0xFFFF), (6, 0xFFFF), (6, 0), (8, 0), (8, 2**63), (20, 0), (24, 2**64 - 1)],
)
def test_damaged_device_code_is_one_reason(tmp_path: Path, at: int, value: int) -> None:
    library = device_library(tmp_path, "90 90a")
    compile_library(tmp_path)
    offset, _ = read_elf(library).sections[DEVICE_CODE]
    data = bytearray(library.read_bytes())
    size = 2 if at == 6 else 4 if at in {0, 20} else 8
    data[offset + at : offset + at + size] = value.to_bytes(size, "little")
    library.write_bytes(data)
    found = texts(looked("libraries", "sm90-avx2", tmp_path)).splitlines()
    assert found[0] == "libtorch_cuda.so: its device code is damaged"


# --- files that are cut off, changed or something else: a finding, and never a traceback ---

MISSING = "its table of sections is missing or cut off"
NO_LIBRARIES = f"""
libc10.so        | empty       | it does not begin as one
libc10.so        | folder      | Is a directory
libc10.so        | pipe        | not a regular file
libc10.so        | loop        | Too many levels of symbolic links
libc10.so        | null        | not a regular file
libc10.so        | header      | {MISSING}
libtorch_cpu.so  | pipe        | not a regular file
libtorch_cuda.so | half        | {MISSING}
"""


def plant(path: Path, kind: str) -> None:
    whole = compile_library(path.parent / "tmp").read_bytes()
    sizes, links = (
        {"empty": 0, "header": 40, "half": 8000},
        {"loop": path.name, "null": "/dev/zero"},
    )
    path.unlink(missing_ok=True)
    if kind in sizes:
        path.write_bytes(whole[: sizes[kind]])
    elif kind in links:
        path.symlink_to(links[kind])
    else:
        {"folder": os.mkdir, "pipe": os.mkfifo}[kind](path)


@pytest.mark.parametrize("row", NO_LIBRARIES.strip().splitlines())
def test_what_is_no_complete_library_is_a_finding_and_no_hang(tmp_path: Path, row: str) -> None:
    name, kind, says = (cell.strip() for cell in row.split("|"))
    compile_library(tmp_path / "lib")
    (tmp_path / "version.py").symlink_to("/dev/zero")
    plant(tmp_path / "lib" / name, kind)
    assert texts(looked("libraries", "cpu-avx2", tmp_path / "lib")) == says
    assert looked("config", "cpu-avx2", tmp_path / "lib")["state"] == "skipped"


@needs_cuda
def test_a_changed_library_is_read_or_refused(tmp_path: Path) -> None:
    """Changes in the header, the rows of the sections, and anywhere, drawn from a seed."""
    path, draw, refused = device_library(tmp_path, "90 90a", "80 ptx90"), random.Random(1), 0
    whole = path.read_bytes()
    (table,) = struct.unpack_from("<Q", whole, 40)
    for _ in range(400):
        data = bytearray(whole)
        at = draw.randrange(*draw.choice([(64,), (table, len(data)), (len(data),)]))
        width = draw.choice([1, 2, 4, 8])
        value = draw.choice([0, 1, 2**31, 2**60, 2**63, 2**64 - 1])  # they break readers
        data[at : at + width] = value.to_bytes(8, "little")[:width]
        path.write_bytes(data[: draw.choice([len(data), len(data), draw.randrange(len(data))])])
        try:
            device_objects(read_elf(path))
        except ToolError:
            refused += 1
    assert 50 < refused < 350


def elf_header(place: int, count: int, index: int) -> bytes:
    """The header of a file whose section table has so many rows and starts there."""
    head = struct.pack("<6s12xH20xQ10xHHH", b"\x7fELF\x02\x01", 62, place, 64, count, index)
    return head.ljust(64, b"\0")


def section(kind: int, offset: int, size: int, name: int = 0) -> bytes:
    return struct.pack("<II16xQQ24x", name, kind, offset, size)


def test_a_section_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "libtorch_cpu.so"
    path.write_bytes(elf_header(64, 1, 0) + section(1, 64, 64))
    assert read_elf(path).sections == {b"": (64, 64)}
    path.write_bytes(elf_header(64, 1, 0) + section(1, 64, 65))
    with pytest.raises(ToolError, match=r"^128 bytes of 129$"):
        read_elf(path)


def test_a_library_of_another_platform_is_found(tmp_path: Path) -> None:
    compile_library(tmp_path)
    finding = looked("libraries", "sm110-armv8_2", tmp_path)["findings"][0]
    assert finding["found"] == "for machine 62"
    assert finding["expected"].endswith("machine 183, which is aarch64-linux")


def test_a_library_of_300_mb_takes_little_memory(tmp_path: Path) -> None:
    """Of 4,800 objects, most of which are holes; a file that is mapped counts whole."""
    size, names = 1 << 16, b"\0.nv_fatbin\0"
    compile_library(tmp_path)
    with (tmp_path / "libtorch_cuda.so").open("wb") as file:
        for number in range(4800):
            file.seek(64 + number * size)
            file.write(struct.pack("<IxxHQ", 0xBA55ED50, 16, size - 16))
            file.write(struct.pack("<HxxIQ12xI8xQ", 2, 64, size - 16 - 64, 90, 0))
        end = file.seek(64 + 4800 * size)
        rows = section(1, 64, 4800 * size, name=1) + section(3, end, len(names))
        file.write(names + rows)
        file.seek(0)
        file.write(elf_header(end + len(names), 2, 1))
    subprocess.run(["cat", file.name], stdout=subprocess.DEVNULL, check=True)  # into the cache
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    part = looked("libraries", "sm90-avx2", tmp_path)
    assert part["figures"]["sizes"]["libtorch_cuda.so"]["sm_90"] == 4800 * (size - 16)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
