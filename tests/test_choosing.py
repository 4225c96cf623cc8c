"""docs/reference/choosing.md: its tables give the same answer as `invoke recommend`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import ONE, PROJECT, WHOLE
from packaging.version import Version

from build_pytorch.base import paths
from build_pytorch.generate import docs
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choice import preference
from build_pytorch.hardware.choose import choose
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Variant

ALL = (PROJECT / "examples/all-lines/matrix.toml").read_text()
MATRIX = matrix_reader.parse(ONE)
PAGE = docs.render(MATRIX)[paths.CHOOSING_DOC]


def table(after: str) -> list[list[str]]:
    """The rows of the first table after a heading, without its head."""
    rest = PAGE[PAGE.index(f"\n{after}\n") :]
    found = re.search(r"(?m)(?:^\|.*\n)+", rest)
    assert found
    rows = found[0].replace("\\_", "_").splitlines()[2:]
    return [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]


def built(cell: str, platform: str) -> list[tuple[str, list[str]]]:
    """The architectures of a cell, each with the ISAs for which it is built."""
    every = ", ".join(row[1] for row in table(f"### {platform}"))
    parts = [part.partition(" with ") for part in cell.split("; ") if part != "no variant"]
    return [(name, (isas or every).split(", ")) for name, _, isas in parts]


def by_hand(here: Machine) -> str | None:
    """The best variant, by the tables and nothing else."""
    if f"\n### {here.platform}\n" not in PAGE:
        return None
    capability = here.gpus[0].capability if here.gpus else ""
    ((_, _, cuda, oldest, _), (_, _, _, none, _)) = table("## 3. Driver")
    assert none == "none"  # CPU-only
    new_enough = here.cuda == cuda or (here.driver or "") >= oldest  # all here have three digits
    rows = [row for row in table("## 1. GPU") if row[1] == here.platform]
    of_gpu = [row[3] for row in rows if row[2] == capability and capability and new_enough]
    (cell,) = of_gpu or [row[3] for row in rows if row[0] == "none"]
    return next(
        (
            f"{architecture}-{isa}"
            for architecture, isas in built(cell, here.platform)
            for flags, isa, *_ in table(f"### {here.platform}")
            if set(flags.split()) <= set(here.cpu.flags.split()) and isa in isas
        ),
        None,
    )


def test_the_tables_lead_where_the_command_leads() -> None:
    for path in sorted((PROJECT / "tests/machines").glob("*.json")):
        here = saved_machines.load(path)
        first = choose(MATRIX, here).answers[0]
        assert by_hand(here) == (first.best.variant.id if first.best else None), path.stem


RANKS: dict[str, Callable[[Variant], Any]] = {
    "Variants with GPU code before CPU-only variants.": lambda v: v.gpu is not None,
    "Releases before nightlies.": lambda v: not v.release.torch.is_nightly,
    "The newest PyTorch, if several releases run.": lambda v: Version(v.release.torch.version),
    "The GPU's own capability, then the nearest below it.": lambda v: (
        Version(v.gpu.capability) if v.gpu else Version("0")
    ),
    "The first ISA of table 2.": lambda v: v.cpu.level,
    "The CUDA packages of the pin before those of a `-wrapper`.": lambda v: not v.is_wrapper,
}
"""What each step of the page's order compares."""


def test_the_order_in_words_is_that_of_the_command() -> None:
    """Of every pair of variants, the first step of the page that tells them apart decides."""
    steps = re.findall(r"(?m)^\d\. (.*)$", PAGE[PAGE.index("\n## Order of preference\n") :])
    assert steps[:-1] == list(RANKS)
    assert "a comparison on this class of machine" in steps[-1]  # not a rank: a later correction
    for variants in (matrix_reader.parse(WHOLE).variants, matrix_reader.parse(ALL).variants):
        by_words = sorted(variants, key=lambda v: [rank(v) for rank in RANKS.values()])
        assert by_words == sorted(variants, key=preference)


def test_its_commands_for_the_cpu_find_the_flags(tmp_path: Path) -> None:
    """The commands themselves, on a cpuinfo of our own in place of this machine's."""
    commands = re.findall(r"(?m)^grep .*$", PAGE)
    assert len(commands) == 2
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nflags\t\t: fpu fma avx2 f16c avx512f_not avx_vnni\n"
        "processor\t: 1\nflags\t\t: fpu\n"
    )
    command = commands[0].replace("/proc/cpuinfo", "cpuinfo")
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["avx2", "f16c", "fma"]
