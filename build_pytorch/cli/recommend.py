"""The commands `invoke describe-machine` and `invoke recommend`."""

from __future__ import annotations

import sys
from pathlib import Path

from build_pytorch.base.console import Screen, print_json, write
from build_pytorch.base.errors import EXIT_FINDINGS, EXIT_OK
from build_pytorch.cli.commands import RecommendOptions
from build_pytorch.hardware import detect, explain, resolver, saved_machines
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Variant
from build_pytorch.results import evidence
from build_pytorch.results.evidence import VariantResult


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


def run(options: RecommendOptions) -> int:
    """Say which variant is right. Returns 1 where there is none. Raises BuildPytorchError."""
    fleet = matrix_reader.load()
    root, workload, gpu = options.root, options.workload, options.gpu
    machine = saved_machines.load(options.machine) if options.machine else detect.this_machine()
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
