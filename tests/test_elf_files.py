"""ELF files that are cut off, changed or something else: a finding, and never a traceback."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import msgspec
import pytest
from built_files import (
    AVX2,
    COMMON,
    COMMON_CODE,
    compile_library,
    inspect,
    looked,
    part_of,
    texts,
    variant_of,
    with_config,
)
from conftest import Project

from build_pytorch.base.errors import ToolError
from build_pytorch.inspect import libraries
from build_pytorch.inspect.inspection import folder_target, inspect_target


def garbage(path: Path, kind: str) -> None:
    match kind:
        case "text":
            path.write_text("not ELF")
        case "empty":
            path.touch()
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "dangling":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path.name)
        case "header alone":
            path.write_bytes(compile_library(path.parent / "tmp", AVX2).read_bytes()[:40])
        case _:
            whole = compile_library(path.parent / "tmp", AVX2).read_bytes()
            path.write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("text", "it begins with other bytes"),
        ("empty", "it is empty"),
        ("folder", "not a regular file"),
        ("pipe", "not a regular file"),
        ("dangling", "No such file or directory"),
        ("loop", "Too many levels of symbolic links"),
        ("header alone", "its header is cut off"),
        ("half", "its tables are cut off"),
    ],
)
@pytest.mark.parametrize("name", ["libtorch_cpu.so", "libtorch_cuda.so", "libc10.so"])
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


@pytest.mark.parametrize("kind", ["pipe", "half"])
def test_the_command_reports_an_incomplete_library(
    project: Project, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "lib"
    with_config(folder, AVX2)
    garbage(folder / "libc10.so", kind)
    done = inspect(project, "cpu-avx2", "--path", str(folder), "--json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "not a complete ELF file" in texts(part_of(done, "files"))
    assert part_of(done, "instructions")["state"] == "skipped"


# --- changed files ---

HEADER_FIELDS = {"e_machine": 18, "e_phoff": 32, "e_shoff": 40, "e_phentsize": 54, "e_shnum": 60}
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


def test_the_end_of_a_table_beyond_64_bits_is_a_finding(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "libtorch_cpu.so"
    path.write_bytes(whole[:40] + b"\xff" * 8 + whole[48:])
    with pytest.raises(ToolError, match="its tables are cut off"):
        libraries.read_elf(path)


def changed(whole: bytes, seed: int) -> bytes:
    """The file with a few fields of its header, its section table or its symbols overwritten."""
    chance = random.Random(seed)
    data = bytearray(whole)
    (table,) = struct.unpack_from("<Q", data, 40)
    rows = struct.iter_unpack("<IIQQQQIIQQ", data[table:])
    symbols = [(at, size) for _, kind, _, _, at, size, *_ in rows if kind in {2, 11}]
    for _ in range(chance.randint(1, 4)):
        kind = chance.randrange(5)
        if kind == 0:
            at = chance.randrange(64)
        elif kind == 1:
            at = chance.randrange(table, len(data))
        elif kind == 2:
            at, size = chance.choice(symbols)
            at += chance.randrange(size)
        elif kind == 3:
            at = chance.randrange(len(data))
        else:
            del data[chance.randrange(1, len(data)) :]
            break
        size = chance.choice([1, 2, 4, 8])
        value = chance.choice([0, 1, 2**63, 2**64 - 1, chance.getrandbits(64)])
        data[at : at + size] = value.to_bytes(8, "little")[:size]
    return bytes(data)


@pytest.mark.parametrize("block", range(4))
def test_a_changed_file_ends_with_a_state_and_no_exception(
    whole: bytes, tmp_path: Path, block: int
) -> None:
    outcomes = [inspected(tmp_path, changed(whole, seed)) for seed in range(block, 400, 4)]
    assert set().union(*outcomes) <= STATES
    failed = sum("failed" in states for states in outcomes)
    assert 0 < failed < len(outcomes), "some changes are fatal and some are not"
