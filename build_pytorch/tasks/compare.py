"""`invoke compare`: whether a build is faster than another one, or than the official wheel."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.base.console import Screen, counted, print_json
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.tasks.command import command, exit_code_of, load, number, words

if TYPE_CHECKING:
    from build_pytorch.compare.comparison import Comparison

_COLOURS = {"faster": "green", "slower": "red", "too noisy": "yellow"}
_SHOWN = 2  #: workloads of a setting that are shown: those with the greatest difference
_GIB = 1 << 30


@command(
    texts={
        "against": "what it is compared with (default: the official wheel that is like it)",
        "device": "cpu, or the number of a GPU (default: both, if both builds can)",
    }
)
def compare(
    c: Context,
    build: str,
    against: str = "wheel",
    device: str = "",
    threads: str = "",
    minutes: str = "10",
    json: bool = False,
) -> int:
    """Compare the speed of a build with the official wheel."""
    from msgspec.structs import asdict

    from build_pytorch.base import files
    from build_pytorch.build.build_obstacles import usable_cpus
    from build_pytorch.compare import comparison
    from build_pytorch.results import evidence

    matrix = load()
    if device != "cpu" and device.strip("0123456789"):
        raise BuildPytorchError(f"--device {device}: allowed: cpu, or the number of a GPU")
    screen = Screen(sys.stderr if json else sys.stdout)
    with files.exclusive_lock(matrix.root, "compare.lock", "compares"):
        result, a = comparison.compare(
            matrix,
            (build, against),
            screen.line,
            device=device,
            threads=[number("--threads", word, 1, 4096) for word in words(threads)],
            minutes=number("--minutes", minutes, 0.001, 10_000.0),
            cores=usable_cpus(),
        )
    _show(screen, result)
    if a.package and not result.recorded:
        screen.fold("not recorded: ", evidence.unknown_recipe(a.package))
    code = exit_code_of([result.outcome])
    if json:
        print_json(asdict(result) | {"exit_code": code}, sys.stdout)
    return code


def _show(screen: Screen, result: Comparison) -> None:
    """Print the builds, the machine, each setting and the outcome; the rest is in the report."""
    for index, torch in enumerate((result.a, result.b)):
        imports = [it[index].get("import torch", 0) for it in result.settings[0].rounds]
        said = [f"PyTorch {torch.version}", f"libraries {torch.library_bytes / 1e6:.0f} MB"]
        said += [f"closure {torch.closure / _GIB:.2f} GiB"] if torch.closure else []
        said += [f"import {statistics.median(imports):.2f} s"] if any(imports) else []
        screen.fold(f"{'AB'[index]}: ", f"{torch.label}: {', '.join(said)}")
    screen.fold("on ", result.machine)
    screen.line("ratio: time of A / time of B; below 1 A is faster, above 1 A is slower")
    for found in result.settings:
        counts = [counted(len(found.rounds), "round"), counted(len(found.workloads), "workload")]
        screen.fold(f"{found.title}, ", f"{', '.join(counts)}; the largest differences:", "bold")
        by_difference = sorted(found.workloads.items(), key=lambda item: -abs(item[1].ratio - 1))
        for name, estimate in by_difference[:_SHOWN]:
            verdict = screen.paint(estimate.verdict, _COLOURS.get(estimate.verdict, ""))
            screen.line(f"  {name:<23}  {estimate!s:<21}  {verdict}")
    for reason in result.reasons:
        screen.fold("A against B, ", reason)
    if result.alias:
        screen.line("to build A only when it is named, add to matrix.toml, before its tables:")
        screen.line(f"  {result.alias}")
    screen.line(f"report: {result.report}")
