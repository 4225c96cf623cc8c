"""Changed libraries, drawn from a seed: each is read or refused, quickly, and nothing raises.

The changes are to headers, sections, symbols, names, device code and anything else, or the file is
cut off. The values are those that break readers: 0, -1, 2^31, 2^60, the size of the file.
"""

from __future__ import annotations

import random
import shutil
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from built_files import (
    AVX2,
    COMMON,
    COMMON_CODE,
    COMPILERS,
    CUOBJDUMP,
    MAGMA,
    NCCL,
    OWN,
    compile_library,
    device_library,
    variant_of,
)

from build_pytorch.inspect.inspection import PARTS, folder_target

ARM = "aarch64-linux"
SECONDS = 20.0
"""Time limit for one file of a few KiB, with room for a busy machine."""
ROW = struct.Struct("<IIQQQQIIQQ")
SYMBOLS, NAMES = {2, 11}, {3}
Spot = tuple[int, int]
"""Where a change may begin: an offset and the number of bytes from there."""


def run(seed: int, count: int) -> Counter[str]:
    """Inspect so many changed libraries for x86-64, aarch64 and with device code, in turn.

    Needs gcc; aarch64 its cross compiler, device code the CUDA toolkit. Raises AssertionError with
    the number of the change if a part raises, hides what it raised, or takes too long.
    """
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        plain = Path(place, "cpu"), "libtorch_cpu.so", "cpu-avx2"
        kinds = [(*plain, compile_library(plain[0], AVX2, sources=SOURCES).read_bytes())]
        if shutil.which(COMPILERS[ARM]) and shutil.which("aarch64-linux-gnu-objdump"):
            folder = Path(place, "arm")
            library = compile_library(folder, ["-march=armv8.2-a+fp16+dotprod"], platform=ARM)
            kinds.append((folder, library.name, "sm110-armv8_2", library.read_bytes()))
        if CUOBJDUMP:
            folder = Path(place, "gpu")
            compile_library(folder, AVX2)
            objects = [(OWN, "90", "90a"), (NCCL, "80", "90", "ptx90"), (MAGMA, "80")]
            data = device_library(folder, *objects).read_bytes()
            kinds.append((folder, "libtorch_cuda.so", "sm90-avx2", data))
        for number in range(count):
            folder, name, variant, whole = kinds[number % len(kinds)]
            draw = random.Random(f"{seed} {number}")
            (folder / name).write_bytes(changed(whole, draw))
            begun = time.monotonic()
            try:
                states = inspected(folder, variant)
            except Exception as fault:
                raise AssertionError(f"change {number} of seed {seed}: {fault!r}") from fault
            seconds = time.monotonic() - begun
            assert seconds < SECONDS, f"change {number} of seed {seed} takes {seconds:.0f} s"
            counts.update({"files": 1, **dict.fromkeys(states, 1)})
    return counts


SOURCES = {COMMON: COMMON_CODE, "a.cpp": "namespace at { void f() {} } extern int x; int x = 1;"}


def inspected(folder: Path, variant: str) -> set[str]:
    """The states of the parts that read files, as `inspect_target` runs them."""
    target = folder_target(variant_of(variant), folder)
    states: set[str] = set()
    for part in PARTS:
        if part.needs_result or "failed in files" in states:
            continue
        result = part.inspect(target, lambda *_: None)
        assert not result.reason.startswith("the files cannot be read"), result.reason
        assert len(str(result.findings)) < 100_000
        states.add(f"{result.state} in {part.id}")
    return states


def changed(whole: bytes, draw: random.Random) -> bytes:
    """The file with one to four changes."""
    data = bytearray(whole)
    (table,) = struct.unpack_from("<Q", data, 40)
    rows = list(ROW.iter_unpack(data[table : table + (len(data) - table) // ROW.size * ROW.size]))

    def content(test: Callable[[int, int], bool]) -> list[Spot]:
        return [
            (at, size) for _, kind, flags, _, at, size, *_ in rows if test(kind, flags) and size
        ]

    spots: list[list[Spot]] = [
        [(0, 64)],
        [(table + number * ROW.size, ROW.size) for number in range(len(rows))],
        content(lambda kind, _: kind in SYMBOLS),
        content(lambda kind, _: kind in NAMES),
        content(lambda kind, flags: kind == 1 and not flags & 4),  # device code, among others
        [(0, len(data))],
    ]
    for _ in range(draw.randint(1, 4)):
        if not draw.randrange(12):
            del data[draw.randrange(1, len(data)) :]
            break
        at, size = draw.choice(draw.choice([spot for spot in spots if spot]))
        at += draw.randrange(min(size, draw.choice([1, 64, size])))
        width = draw.choice([1, 2, 4, 8])
        value = draw.choice([0, 1, 2**31, 2**60, 2**63, 2**64 - 1, len(data), draw.getrandbits(64)])
        data[at : at + width] = value.to_bytes(8, "little")[:width]
    return bytes(data)
