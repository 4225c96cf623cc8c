"""The commands `invoke describe-machine` and `invoke recommend`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, get_args

from msgspec import Struct

from build_pytorch.base import paths
from build_pytorch.base.console import Screen, print_json, write
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK, BuildPytorchError
from build_pytorch.hardware import detect, explain, resolver, saved_machines
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.field_types import Workload
from build_pytorch.matrix.model import Variant
from build_pytorch.results import evidence
from build_pytorch.results.evidence import VariantResult

_DIGITS: Final = 4
"""A description has GPUs up to 1023."""
_SHOWN: Final = 40


class RecommendOptions(Struct, frozen=True, kw_only=True):
    """What a person may ask of a recommendation; an empty text is an option that was not given."""

    machine: str = ""
    workload: str = ""
    gpu: str = ""
    release: str = ""
    json: bool = False
    root: Path = paths.PROJECT


def describe(output: str) -> int:
    """Describe this machine, to a file or on stdout (nothing, or -). Returns the exit code.

    Raises WriteError.
    """
    machine = detect.this_machine()
    if output in {"", "-"}:
        write(sys.stdout, saved_machines.text_of(machine))
        return EXIT_OK
    saved_machines.save(machine, Path(output))
    screen = Screen(sys.stderr)
    explain.print_machine(screen, machine)
    screen.line(f"written to {output}; `invoke recommend --machine {output}` reads it")
    return EXIT_OK


def recommend(options: RecommendOptions) -> int:
    """Say which variant is right. Returns 1 where there is none. Raises BuildPytorchError."""
    fleet = matrix_reader.load()
    root = paths.checked_root(options.root)
    workload = _workload(options.workload)
    gpu = _index(options.gpu)
    machine = (
        saved_machines.load(Path(options.machine)) if options.machine else detect.this_machine()
    )
    result = resolver.recommend(fleet, machine, workload, gpu=gpu, release=options.release or None)
    # A mixed machine has found something as soon as one of its GPUs has.
    code = EXIT_OK if any(answer.best for answer in result.answers) else EXIT_FINDINGS

    def history(variant: Variant) -> VariantResult:
        return evidence.look(root, [variant])[variant.package]

    if options.json:
        print_json(explain.document(fleet, result, history, code), sys.stdout)
    else:
        explain.print_recommendation(Screen(sys.stdout), fleet, result, history)
    return code


def _workload(text: str) -> Workload:
    """The work to choose for.

    By default training: its ISA has the higher level, and BF16 serves inference in BF16 as well,
    while VNNI serves quantised inference alone.
    """
    for workload in get_args(Workload):
        if text == workload:
            return workload  # type: ignore[no-any-return]
    if not text:
        return "training"
    raise BuildPytorchError(f'--for: found "{text}"; allowed: {", ".join(get_args(Workload))}')


def _index(text: str) -> int | None:
    if text and not (text.isdecimal() and len(text) <= _DIGITS):
        found = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise BuildPytorchError(f'--gpu: found "{found}"; allowed: the number of a GPU, such as 0')
    return int(text) if text else None
