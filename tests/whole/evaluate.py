"""Run every command that looks at a finished build of whole.py: `python evaluate.py ID...`.

Prints for each command its exit code, seconds, CPU seconds and the memory of its largest process;
ends with 1 where an exit code is not the right one. The outputs are kept in `evaluation` of the
folder of whole.py. Where that folder has the official wheel with its dependencies in `wheel` (`pip
install --target`; PyPI's torch 2.6.0 is the one for CUDA 12.4), builds are compared with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from whole import HERE, state_folder

from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix import matrix_reader, selection
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.results import artefacts


def install_wheel(root: Path, site: Path) -> None:
    """Give a checkout the wheel as `invoke compare` installs it, run by the Python of builds."""
    base = shutil.which("python3.13") or sys.executable
    folder = root / f".build-pytorch/wheels/2.6.0-{Path(base).name}"
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    launcher = folder / "bin/python"
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {HERE}/python.sh "$@"\n')
    launcher.chmod(0o755)
    (folder / "complete").touch()


def commands(
    variant: Variant, others: Sequence[Variant], torch: Path, *, has_wheel: bool
) -> Iterator[tuple[str, Sequence[int], list[str]]]:
    """Yield a name, the exit codes that are right, and the arguments of invoke."""
    yield "inspect", [0], ["inspect", variant.id]
    for other in others:  # of another GPU, ISA or BLAS; MKL in place of OpenBLAS is no fault
        is_fault = (other.gpu, other.cpu) != (variant.gpu, variant.cpu) or other.group.blas == "mkl"
        right = [1] if is_fault else [0, 3]
        yield f"inspect as {other.id}", right, ["inspect", other.id, "--path", str(torch)]
    yield "smoke", [0], ["smoke", variant.id]
    if has_wheel:
        yield "compare", [0, 1, 3], ["compare", variant.id, "--against", "wheel:2.6.0"]
    yield "status", [0], ["status"]
    yield "show", [0], ["show", variant.id, "--json"]
    yield "recommend", [0], ["recommend"]
    right = [1, 2] if variant.gpu else [0]  # a smoke test that failed: without MAGMA
    yield "publish", right, ["publish", variant.id, "--dry-run"]


def evaluate(folder: Path, matrix: Matrix, variant: Variant) -> int:
    """Run the commands on one variant. Return how many are not as they must be."""
    root = folder / "checkout"
    os.environ["NIX_STORE_DIR"] = f"{folder}/nix/store"
    try:
        result = artefacts.find(root, variant)
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    if has_wheel := (folder / "wheel").is_dir():
        install_wheel(root, folder / "wheel")
    others = [v for v in matrix.variants if v is not variant]
    torch = result / "lib/python3.13/site-packages/torch/lib"
    (folder / "evaluation").mkdir(exist_ok=True)
    wrong = 0
    for title, right, argv in commands(variant, others, torch, has_wheel=has_wheel):
        log = (
            folder / "evaluation" / f"{variant.id} {title}.txt".replace("/", "-").replace(" ", "-")
        )
        began = time.monotonic()
        with log.open("wb") as output:
            whole_argv = [str(folder / "env"), "invoke", *argv]
            process = subprocess.Popen(whole_argv, stdout=output, stderr=subprocess.STDOUT)
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        took, cpu = time.monotonic() - began, used.ru_utime + used.ru_stime
        mark = "" if code in right else f"  WRONG: {right} is right"
        wrong += bool(mark)
        print(
            f"{title:<28} exit {code}  {took:6.1f} s  {cpu:6.1f} CPU s"
            f"  {used.ru_maxrss >> 10:5} MiB{mark}",
            flush=True,
        )
    return wrong


def main(patterns: Sequence[str]) -> int:
    """Evaluate the variants of these names. Return the exit code."""
    folder = state_folder()
    if not patterns:
        print("evaluate.py: name a variant", file=sys.stderr)
        return 2
    try:
        matrix = matrix_reader.load(folder / "checkout")
        variants = selection.select_packages(matrix, ",".join(patterns))
    except (BuildPytorchError, OSError) as error:
        print(f"{folder}/checkout: {error}", file=sys.stderr)
        return 2
    return min(1, sum(evaluate(folder, matrix, variant) for variant in variants))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
