"""`invoke doctor`: ask a Python for its torch, judge it, print how to repair what is wrong."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

from invoke.context import Context

from build_pytorch.tasks.command import command, load

if TYPE_CHECKING:
    from build_pytorch.base.console import Screen
    from build_pytorch.hardware.doctor import Installation

_LONGEST = 400  #: characters of a finding on the screen
_COLOURS = {"right": "green", "works, better available": "yellow"}


@command(texts={"python": "the Python (default: of the active environment, else python3)"})
def doctor(c: Context, python: str = "", machine: str = "", json: bool = False) -> int:
    """Judge the torch of a Python on a machine."""
    from msgspec.structs import replace

    from build_pytorch.base.console import Screen, print_json, shortened
    from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
    from build_pytorch.hardware import choose, saved_machines
    from build_pytorch.hardware.asked_torch import asked, path_of
    from build_pytorch.hardware.described import described_machine
    from build_pytorch.hardware.doctor import Installation, diagnose
    from build_pytorch.tasks.machine_lines import print_machine

    matrix = load(is_for_any=True)
    path = path_of(python)
    found, _ = described_machine(matrix, machine)
    choice = choose.choose(matrix, found)
    installed, torch = asked(path)
    if machine:
        torch = replace(torch, problem="")  # that is of this machine
    case = Installation(python=path, installed=installed, torch=torch, machine=found, choice=choice)
    findings = diagnose(case)
    verdict = findings[0].verdict if findings else "right"
    code = EXIT_OK if verdict in _COLOURS else EXIT_FINDINGS
    if json:
        document = {
            "verdict": verdict,
            "findings": findings,
            "python": path,
            "origin": installed.origin(torch.folder) if torch.folder else None,
            "installed": installed,
            "torch": torch,
            "features": case.features,
            "machine": saved_machines.document(found),
            "build": choice.best.variant.id if choice.best else None,
            "exit_code": code,
        }
        print_json(document, sys.stdout)
        return code
    screen = Screen(sys.stdout)
    print_machine(screen, found, matrix.cpus.values())
    _print_torch(screen, case)
    screen.line(screen.paint(f"\nVerdict: {verdict}", _COLOURS.get(verdict, "red")))
    for repair, same in itertools.groupby(findings, lambda finding: finding.command):
        for finding in same:
            screen.fold("- ", shortened(finding.text, _LONGEST), indent=2)
        screen.command("  ", repair)
    return code


def _print_torch(screen: Screen, case: Installation) -> None:
    from build_pytorch.base.console import shortened

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
