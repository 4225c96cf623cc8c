"""ELF files that are cut off, changed or something else: a finding, and never a traceback."""

from __future__ import annotations

import os
import random
import resource
import struct
import subprocess
from pathlib import Path

import msgspec
import pytest
from built_files import (
    HAS_CUDA,
    compile_library,
    device_library,
    looked,
    texts,
    variant_of,
)

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.elf_file import device_objects, read_elf
from build_pytorch.inspect.inspection import folder_target, inspect_target

MISSING = "its table of sections is missing or cut off"
NO_LIBRARIES = """
libc10.so        | text        | it begins with other bytes
libc10.so        | empty       | it is empty
libc10.so        | folder      | Is a directory
libc10.so        | pipe        | not a regular file
libc10.so        | dangling    | No such file or directory
libc10.so        | loop        | Too many levels of symbolic links
libc10.so        | device      | not a regular file
libc10.so        | header      | its table of sections is missing or cut off
libc10.so        | half        | its table of sections is missing or cut off
libtorch_cpu.so  | pipe        | not a regular file
libtorch_cuda.so | half        | its table of sections is missing or cut off
"""


def plant(path: Path, kind: str) -> None:
    whole = compile_library(path.parent / "tmp").read_bytes()
    content = {
        "text": b"not ELF",
        "empty": b"",
        "header": whole[:40],
        "half": whole[: len(whole) // 2],
    }
    links = {"dangling": "nowhere", "loop": path.name, "device": "/dev/zero"}
    path.unlink(missing_ok=True)
    if kind in content:
        path.write_bytes(content[kind])
    elif kind in links:
        path.symlink_to(links[kind])
    else:
        {"folder": os.mkdir, "pipe": os.mkfifo}[kind](path)


@pytest.mark.parametrize("row", NO_LIBRARIES.strip().splitlines())
def test_what_is_no_complete_library_is_a_finding_and_no_hang(tmp_path: Path, row: str) -> None:
    name, kind, says = (cell.strip() for cell in row.split("|"))
    folder = tmp_path / "lib"
    compile_library(folder)
    plant(folder / name, kind)
    target = folder_target(variant_of("cpu-avx2"), folder)
    files, *others = inspect_target(target).parts
    assert files.state == "failed"
    assert texts(msgspec.to_builtins(files)) == f"not a complete ELF file: {says}"
    assert "skipped" in {part.state for part in others} <= {"skipped", "passed", "warning"}


# --- changed files ---

VALUES = (0, 1, 2**31, 2**60, 2**63, 2**64 - 1)
"""Values that break readers."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    if HAS_CUDA:
        return device_library(folder, "90 90a", "80 ptx90").read_bytes()
    return compile_library(folder).read_bytes()


def test_a_changed_library_is_read_or_refused(whole: bytes, tmp_path: Path) -> None:
    """Changes in the header, the rows of the sections, and anywhere, drawn from a seed."""
    path, draw, refused = tmp_path / "libtorch_cuda.so", random.Random(1), 0
    (table,) = struct.unpack_from("<Q", whole, 40)
    for _ in range(400):
        data = bytearray(whole)
        at = draw.choice([draw.randrange(64), draw.randrange(table, len(data)), 0])
        width = draw.choice([1, 2, 4, 8])
        at = at or draw.randrange(len(data))
        data[at : at + width] = draw.choice(VALUES).to_bytes(8, "little")[:width]
        path.write_bytes(data[: draw.choice([len(data), len(data), draw.randrange(len(data))])])
        try:
            device_objects(read_elf(path))
        except ToolError:
            refused += 1
    assert 50 < refused < 350


# --- limits ---


def elf_header(place: int, count: int, index: int) -> bytes:
    """The header of a file whose section table has so many rows and starts there."""
    head = struct.pack("<6s12xH20xQ10xHHH", b"\x7fELF\x02\x01", 62, place, 64, count, index)
    return head.ljust(64, b"\0")


def row(kind: int, offset: int, size: int) -> bytes:
    return struct.pack("<II16xQQ24x", 0, kind, offset, size)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            elf_header(64, 0, 0) + row(0, 0, 2**60),
            "its table of sections is missing or cut off",
        ),  # above 65,279
        (elf_header(64, 1, 0) + row(1, 64, 2**60), "128 bytes of 1152921504606847040"),
        (elf_header(64, 1, 1) + row(1, 64, 64), MISSING),
        (elf_header(64, 1, 0) + row(8, 64, 2**60), "its sections have no names"),
        (elf_header(2**63, 1, 0) + row(1, 64, 64), MISSING),
        (elf_header(64, 1, 0) + row(1, 64, 65), "128 bytes of 129"),
        (elf_header(64, 1, 0) + row(1, 64, 64), ""),
    ],
)
def test_what_the_headers_claim_is_compared_with_the_file(
    tmp_path: Path, data: bytes, says: str
) -> None:
    path = tmp_path / "libtorch_cpu.so"
    path.write_bytes(data)
    if not says:
        assert read_elf(path).sections == {b"": (64, 64)}
        return
    with pytest.raises(ToolError, match=f"^{says}$"):
        read_elf(path)


def test_a_library_of_another_platform_is_found(tmp_path: Path) -> None:
    compile_library(tmp_path)
    part = looked("files", "sm110-armv8_2", tmp_path)
    assert part["state"] == "failed"
    assert texts(part) == "an ELF file for machine 62"
    assert part["findings"][0]["expected"].endswith("machine 183, which is aarch64-linux")


def test_a_library_of_300_mb_takes_little_memory(tmp_path: Path) -> None:
    """Of 4,800 objects, most of which are holes; a file that is mapped counts whole."""
    library, size, names = compile_library(tmp_path), 1 << 16, b"\0.nv_fatbin\0"
    places = [64 + number * size for number in range(4800)]
    with (tmp_path / "libtorch_cuda.so").open("wb") as file:
        for place in places:
            file.seek(place)
            file.write(struct.pack("<IxxHQ", 0xBA55ED50, 16, size - 16))
            file.write(struct.pack("<HxxIQ12xI8xQ", 2, 64, size - 16 - 64, 90, 0))
        end = file.seek(64 + 4800 * size)
        rows = [struct.pack("<II16xQQ24x", 1, 1, 64, 4800 * size), row(3, end, len(names))]
        file.write(names + b"".join(rows))
        file.seek(0)
        file.write(elf_header(end + len(names), 2, 1))
    subprocess.run(["cat", file.name], stdout=subprocess.DEVNULL, check=True)  # into the cache
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    part = looked("device-code", "sm90-avx2", tmp_path)
    assert part["figures"]["sizes"]["libtorch_cuda.so"]["sm_90"] == 4800 * (size - 16)
    assert looked("config", "cpu-avx2", library.parent)["state"] == "skipped"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_an_endless_version_file_is_a_finding(tmp_path: Path) -> None:
    compile_library(tmp_path / "lib")
    (tmp_path / "version.py").symlink_to("/dev/zero")
    assert looked("config", "cpu-avx2", tmp_path / "lib")["state"] == "skipped"
