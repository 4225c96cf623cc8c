"""`invoke doctor`: ask a Python for its torch, judge it, print how to repair what is wrong."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from build_pytorch.base import files, foreign_json, process
from build_pytorch.base.console import ProgressLine, Screen, print_json, shortened
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.cli.commands import DoctorOptions
from build_pytorch.cli.describe_machine import described_machine, print_machine
from build_pytorch.hardware import choose, saved_machines, torch_facts
from build_pytorch.hardware.doctor import (
    DoctorFinding,
    ImportedTorch,
    Installation,
    InstalledTorch,
    diagnose,
)
from build_pytorch.matrix import matrix_reader
from build_pytorch.smoke import script

_SECONDS: Final = 120.0
"""Maximum time for the import of torch, which may come from a cold network file system."""
_LONGEST: Final = 400
"""Maximum length of a finding on the screen, in characters."""
_COLOURS: Final = {"right": "green", "works, better available": "yellow"}


class DoctorDocument(Struct, frozen=True, kw_only=True):
    """The document of --json; `build` is the best of the matrix, `machine` as in its file."""

    verdict: str
    findings: tuple[DoctorFinding, ...]
    python: str
    origin: str | None
    installed: InstalledTorch
    torch: ImportedTorch
    features: dict[str, str]
    machine: dict[str, Any]
    build: str | None
    exit_code: int


def run(options: DoctorOptions) -> int:
    """Print the diagnosis. Returns 1 if torch is slow or does not run. Raises BuildPytorchError."""
    matrix = matrix_reader.load(options.root)
    python = _python(options.what)
    machine, number = described_machine(options, matrix)
    chosen = choose.choose(matrix, machine, gpu=number, release=options.release or None)
    if number is not None:
        gpus = tuple(gpu for gpu in machine.gpus if gpu.index == number)
        machine = msgspec.structs.replace(machine, gpus=gpus)
    installed, torch = _asked(python)
    if options.machine or options.gpu or options.cpu or options.driver:
        torch = msgspec.structs.replace(torch, problem="")  # that is of this machine
    case = Installation(
        python=python, installed=installed, torch=torch, machine=machine, choice=chosen
    )
    found = diagnose(case)
    verdict = found[0].verdict if found else "right"
    code = EXIT_OK if verdict in _COLOURS else EXIT_FINDINGS
    if options.json:
        document = DoctorDocument(
            verdict=verdict,
            findings=found,
            python=python,
            origin=installed.origin(torch.folder) if torch.folder else None,
            installed=installed,
            torch=torch,
            features=case.features,
            machine=saved_machines.document(machine),
            build=chosen.best.variant.id if chosen.best else None,
            exit_code=code,
        )
        print_json(document, sys.stdout)
        return code
    screen = Screen(sys.stdout)
    print_machine(screen, machine, matrix.cpus.values())
    _print_torch(screen, case)
    screen.line(screen.paint(f"\nVerdict: {verdict}", _COLOURS.get(verdict, "red")))
    for command, same in itertools.groupby(found, lambda finding: finding.command):
        for finding in same:
            screen.fold("- ", shortened(finding.text, _LONGEST), indent=2)
        screen.command("  ", command)
    return code


def _python(names: tuple[str, ...]) -> str:
    """Return the absolute path of the Python to look at. Links are not resolved."""
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    name = f"{active}/bin/python" if active else "python3"
    if len(names) > 1:
        raise BuildPytorchError(f"{' '.join(names)}: give one Python")
    name = names[0] if names else name
    path = shutil.which(name)
    if path is None:
        raise BuildPytorchError(f"{name}: no such program; name the Python that has torch")
    return str(Path(path).absolute())


def _asked(python: str) -> tuple[InstalledTorch, ImportedTorch]:
    """Return what a Python says of its torch. Raises BuildPytorchError if it is no Python."""
    text = files.read_named(Path(torch_facts.__file__)).decode()
    with ProgressLine(f"importing the torch of {python}", 0) as progress:
        ran = process.start([python, "-"], stdin=text).finish(_SECONDS, progress.at)
    first, _, second = ran.stdout.partition("\n")
    try:
        installed = msgspec.convert(foreign_json.decode(first), InstalledTorch)
        if second:
            return installed, msgspec.convert(foreign_json.decode(second), ImportedTorch)
    except ValueError as error:
        raise BuildPytorchError(
            f"{python}: its answer is not that of a Python 3.8 or newer ({error}): {ran.last_line}"
        ) from None
    ended = f"Python {script.ending(ran.code)} during the import"
    return installed, ImportedTorch(
        error=f"no answer after {_SECONDS:g} s" if ran.expired else ended
    )


def _print_torch(screen: Screen, case: Installation) -> None:
    torch = case.torch
    screen.fold("python   ", f"{case.python}, {case.installed.python}", indent=9)
    if torch.folder:
        cuda = f"CUDA {torch.cuda}" if torch.cuda else "without CUDA"
        codes = f", code for {' '.join(torch.codes)}" if torch.codes else ""
        origin = case.installed.origin(torch.folder)
        blas = f", BLAS {case.features['blas']}" if "blas" in case.features else ""
        text = f"{torch.version} from {origin}, {cuda}{codes}{blas}: {torch.folder}"
        screen.fold("torch    ", shortened(text, _LONGEST), indent=9)
        if not (case.wheel and case.features):
            unread = f"no official wheel of {torch.version} was read"
            why = unread if case.features else "torch says nothing of them"
            screen.fold("note     ", f"features are not judged: {why}", "yellow", indent=9)
