"""The x86 classifier against iced-x86, which decodes bytes and knows each one's CPUID bits."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from build_pytorch.inspect import isa_x86, symbols

_NAMES = {
    "SSE4_1": "sse4.1",
    "SSE4_2": "sse4.2",
    "BMI1": "bmi",
    "PCLMULQDQ": "pclmul",
    "AVX512_IFMA": "avx512ifma",
    "AVX512_VBMI": "avx512vbmi",
    "AVX512_VBMI2": "avx512vbmi2",
    "AVX512_BITALG": "avx512bitalg",
    "AVX512_VPOPCNTDQ": "avx512vpopcntdq",
}
_BASELINE = re.compile(
    "INTEL.*|X64|SSE2?|MMX|FPU.*|CMOV|CX8|CPUID|TSC|SYSCALL|FXSR|PAUSE|MULTIBYTENOP|CET_IBT"
    "|PREFETCHW|XSAVE.*|RDTSCP|CLFSH|D3NOW|RDRAND|RDSEED|RTM|CX16"
)
_FORMS = 12
_IMPLY_F = re.compile("avx512_.*|avx512(?:dq|bw|cd)")


def disagreements(library: Path, folder: Path) -> tuple[int, list[str]]:
    """How many forms of instructions of a library were compared, and where the two disagree."""
    iced = pytest.importorskip("iced_x86", reason="iced-x86 is not installed")
    features = {
        number: name for name, number in vars(iced.CpuidFeature).items() if isinstance(number, int)
    }
    span = symbols.code(library)
    assert span
    said = subprocess.run(
        ["readelf", "-SW", str(library)], check=True, capture_output=True, text=True
    ).stdout
    text = re.search(r"\] \.text\s+PROGBITS\s+\w+ (\w+) (\w+)", said)
    assert text
    with library.open("rb") as file:
        file.seek(int(text[1], 16))
        code = file.read(int(text[2], 16))
    samples: dict[tuple[int, object], bytes] = {}
    number: dict[int, int] = {}
    decoder, found = iced.Decoder(64, code), iced.Instruction()
    while decoder.can_decode:
        decoder.decode_out(found)
        if found.is_invalid or number.get(found.code, 0) >= _FORMS:
            continue
        form = (found.op_mask, found.op0_register >> 3, found.is_broadcast)
        if (found.code, form) not in samples:
            number[found.code] = number.get(found.code, 0) + 1
            samples[found.code, form] = bytes(code[found.ip : found.ip + found.len])
    blob = bytearray()
    expected: dict[int, tuple[set[str], str]] = {}
    for data in samples.values():
        one = iced.Decoder(64, data).decode()
        names = [features[feature] for feature in one.cpuid_features()]
        needs = {_NAMES.get(n, n.lower()) for n in names if not _BASELINE.fullmatch(n)}
        if any(_IMPLY_F.fullmatch(need) for need in needs):
            needs.discard("avx512f")
        expected[len(blob)] = (needs, str(one))
        blob += data + b"\x90"
    file_of_forms = folder / "forms.bin"
    file_of_forms.write_bytes(blob)
    argv = ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "--no-show-raw-insn"]
    said_of_forms = subprocess.run(
        [*argv, str(file_of_forms)], check=True, capture_output=True
    ).stdout
    wrong = []
    compared = 0
    for line in re.finditer(rb"(?m)^ *([0-9a-f]+):(\t[^\n]*)$", said_of_forms):
        needs, name = expected.get(int(line[1], 16), (set(), ""))
        if not name or name.startswith("tzcnt"):
            continue
        match = isa_x86.INTERESTING.match(line[2])
        got = isa_x86.classify(match[1].decode(), match[2].decode()) if match else frozenset()
        compared += 1
        if got != needs:
            wrong.append(f"{line[2].decode().strip()}: {sorted(got)}, not {sorted(needs)}")
    return compared, wrong
