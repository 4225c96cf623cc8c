"""ELF files that are cut off, changed or something else: a finding, and never a traceback."""

from __future__ import annotations

import os
import resource
import struct
import time
from pathlib import Path

import msgspec
import pytest
from built_files import AVX2, COMMON, COMMON_CODE, compile_library, looked, texts, variant_of

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect.elf_file import read_elf
from build_pytorch.inspect.inspection import folder_target, inspect_target


def garbage(path: Path, kind: str) -> None:
    whole = compile_library(path.parent / "tmp", AVX2).read_bytes()
    content = {
        "text": b"not ELF",
        "empty": b"",
        "header alone": whole[:40],
        "half": whole[: len(whole) // 2],
    }
    if kind in content:
        path.write_bytes(content[kind])
    elif kind in {"dangling", "loop"}:
        path.symlink_to("nowhere" if kind == "dangling" else path.name)
    else:
        {"folder": os.mkdir, "pipe": os.mkfifo}[kind](path)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("libc10.so", "text", "it begins with other bytes"),
        ("libc10.so", "empty", "it is empty"),
        ("libc10.so", "folder", "Is a directory"),
        ("libc10.so", "pipe", "not a regular file"),
        ("libc10.so", "dangling", "No such file or directory"),
        ("libc10.so", "loop", "is a symbolic link"),
        ("libc10.so", "header alone", "its header is cut off"),
        ("libc10.so", "half", "its tables are cut off"),
        ("libtorch_cpu.so", "pipe", "not a regular file"),
        ("libtorch_cuda.so", "half", "its tables are cut off"),
    ],
)
def test_what_is_no_complete_library_is_a_finding_and_no_hang(
    tmp_path: Path, name: str, kind: str, says: str
) -> None:
    folder = tmp_path / "lib"
    compile_library(folder, AVX2)
    (folder / name).unlink(missing_ok=True)
    garbage(folder / name, kind)
    target = folder_target(variant_of("cpu-avx2"), folder)
    files, *others = inspect_target(target, lambda *_: None).parts
    assert files.state == "failed"
    assert texts(msgspec.to_builtins(files)) == f"not a complete ELF file: {says}"
    assert {part.state for part in others} == {"skipped"}


# --- changed files ---

HEADER_FIELDS = {"e_machine": 18, "e_shoff": 40, "e_shentsize": 58, "e_shnum": 60}
STATES = {"passed", "failed", "warning", "skipped"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    sources = {COMMON: COMMON_CODE, "a.cpp": "namespace at { void f() {} }"}
    return compile_library(folder, AVX2, sources=sources).read_bytes()


def inspected(folder: Path, data: bytes) -> set[str]:
    """The states of the parts that read the library, which holds these bytes."""
    (folder / "libtorch_cpu.so").write_bytes(data)
    files = looked("files", "cpu-avx2", folder)
    states = {files["state"]}
    if files["state"] != "failed":
        for part in ("device-code", "instructions", "config"):
            states.add(looked(part, "cpu-avx2", folder)["state"])
    return states


@pytest.mark.parametrize("value", [0xFF, 0x7F], ids=["largest", "largest signed"])
@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_an_extreme_value_in_the_header_is_a_finding(
    whole: bytes, tmp_path: Path, field: str, value: int
) -> None:
    at = HEADER_FIELDS[field]
    size = 8 if field.endswith("off") else 2
    data = whole[:at] + bytes([0xFF] * (size - 1) + [value]) + whole[at + size :]
    assert "failed" in inspected(tmp_path, data)
    if field == "e_shoff":
        assert "its tables are cut off" in texts(looked("files", "cpu-avx2", tmp_path))


# --- limits ---

SECTION_ROW = struct.Struct("<IIQQQQIIQQ")
SYMTAB, STRTAB, EXECUTABLE = 2, 3, 4


def rebuilt(
    path: Path, sections: list[tuple[int, int, int, int, int, int]], size: int = 4096
) -> Path:
    """A sparse ELF file of rows with type, flags, address, offset, size and link; fields of FF."""
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    rows = [(0,) * 10, *((0, *row, 0, 0, 0) for row in sections)]
    struct.pack_into("<H", head, 18, 62)
    struct.pack_into("<Q4xHHHHHH", head, 40, size, 64, 56, 0, 64, len(rows), 0)
    with path.open("wb") as file:
        file.write(head)
        file.seek(size)
        for row in rows:
            file.write(SECTION_ROW.pack(*row))
    return path


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ([(1, 4, 0, 64, 2**60, 0)], "bytes of"),
        ([(1, 4, 0, 64, 256, 0)] * 60_000, "its code sections overlap"),
        ([(1, 4, 256 * n, 64, 256, 0) for n in range(60_000)], "its code sections overlap"),
        ([(SYMTAB, 0, 0, 64, 240, 2), (STRTAB, 0, 0, 64, 9, 0)] * 30_000, "more than one symbol"),
        ([(SYMTAB, 0, 0, 64, 240, 77)], "its symbols have no names"),
        ([(SYMTAB, 0, 0, 64, 240, 1)], "its symbols have no names"),
        ([(1, EXECUTABLE, 0, 64, 2**31, 0)], "more than 1 GiB of code"),
        ([(SYMTAB, 0, 0, 64, 2**31, 2), (STRTAB, 0, 0, 64, 9, 0)], "more than 3000000 symbols"),
        ([], ""),
    ],
)
def test_what_would_take_too_long_is_refused(
    tmp_path: Path, sections: list[tuple[int, int, int, int, int, int]], says: str
) -> None:
    is_large = any(section[4] == 2**31 for section in sections)
    path = rebuilt(tmp_path / "libtorch_cpu.so", sections, 2**32 if is_large else 4096)
    begun = time.process_time()
    if says:
        with pytest.raises(ToolError, match=says):
            read_elf(path)
    else:
        read_elf(path)
    assert time.process_time() - begun < 5


def test_a_file_that_claims_more_sections_than_its_header_can_is_refused(tmp_path: Path) -> None:
    """More than 65,279 sections: their number is in the first section, here 2^60."""
    path = rebuilt(tmp_path / "libtorch_cpu.so", [])
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 60, 0)
    struct.pack_into("<Q", data, 4096 + 32, 2**60)
    path.write_bytes(data)
    with pytest.raises(ToolError, match="it has no section table"):
        read_elf(path)


def test_symbols_that_share_one_long_name_are_refused(tmp_path: Path) -> None:
    symbol = struct.pack("<IBBHQQ", 0, 2, 0, 1, 0, 1)
    names, many = b"a" * 1_000_000 + b"\0", 20_000
    start = 8192
    sections = [
        (1, EXECUTABLE, 0, 64, 64, 0),
        (SYMTAB, 0, 0, start, many * 24, 3),
        (STRTAB, 0, 0, start + many * 24, len(names), 0),
    ]
    path = rebuilt(tmp_path / "libtorch_cpu.so", sections, 2_000_000)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(symbol * many + names)
    part = looked("instructions", "cpu-avx2", tmp_path)
    assert part["state"] == "skipped"
    assert part["reason"] == "libtorch_cpu.so: its symbol names overlap"


def test_a_library_of_300_mb_takes_little_memory(tmp_path: Path) -> None:
    """Holes instead of code, which decode as 150 million instructions would take a minute."""
    library = compile_library(tmp_path, AVX2)
    with library.open("r+b") as file:
        file.truncate(300 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for part in ("files", "device-code", "instructions", "config"):
        assert looked(part, "cpu-avx2", tmp_path)["state"] in STATES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("kind", ["device", "endless pipe"])
def test_a_link_to_something_endless_is_a_finding(tmp_path: Path, kind: str) -> None:
    compile_library(tmp_path, AVX2)
    (tmp_path / "libc10.so").symlink_to("/dev/zero" if kind == "device" else "pipe")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path.parent / "version.py").symlink_to("/dev/zero")
    try:
        assert texts(looked("files", "cpu-avx2", tmp_path)).endswith("not a regular file")
        assert looked("config", "cpu-avx2", tmp_path)["state"] == "skipped"
    finally:
        (tmp_path.parent / "version.py").unlink()
