"""Smoke reports for tests: recorded ones, and what a correct variant would report today."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec

from build_pytorch.base.console import Screen
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import SmokeReport, SmokeRun
from build_pytorch.smoke.smoke_case import case_of, judge_run
from build_pytorch.tasks.smoke import show_case

FIXTURES = Path(__file__).parent / "fixtures" / "smoke"

Raw = dict[str, Any]


def raw(name: str) -> Raw:
    """A fixture as it was printed."""
    document: Raw = json.loads((FIXTURES / f"{name}.json").read_text())
    return document


def report(document: Raw) -> SmokeReport:
    return msgspec.convert(document, SmokeReport)


def today(document: Raw) -> Raw:
    """The same report by the script as it is: it declares the script's tests, and all passed."""
    declared = script.declarations(document["companions"])
    results = [{"outcome": "passed", "message": "", "name": test["name"]} for test in declared]
    return {**document, "schema": script.SCHEMA, "declared": declared, "tests": results}


def right(
    variant: Variant, capability: str = "", name: str = "NVIDIA GPU", **companions: str
) -> Raw:
    """What a correct variant, with companions, reports on a machine for it, or on another GPU."""
    facts = {
        key: {"version": version, "file": f"/{key}/__init__.py"}
        for key, version in companions.items()
    }
    document = today({**raw("dgx-spark"), "companions": facts})
    document["python"]["machine"] = variant.cpu.platform.partition("-")[0]
    document["cpu"]["flags"] = list(variant.cpu.cpuinfo)
    wanted = "AVX512" if "avx512f" in variant.cpu.cpuinfo else "AVX2"
    document["torch"]["cpu_capability"] = wanted
    if variant.gpu:
        capability = capability or variant.gpu.capability
        document["torch"]["arch_list"] = [f"sm_{variant.gpu.capability.replace('.', '')}"]
        document["cuda"]["devices"] = [device(capability, name=name)]
    else:
        document["torch"].update(cuda=None, cudnn=None, magma=False, arch_list=[])
        without_gpu(document, "Torch not compiled with CUDA enabled")
    return document


def device(capability: str, *, index: int = 0, name: str = "NVIDIA GPU") -> Raw:
    return {"index": index, "name": name, "capability": capability, "memory": 1 << 34}


def without_gpu(document: Raw, reason: str) -> Raw:
    """The same report from a machine where torch reaches no GPU."""
    document["cuda"] = {"device": 0, "available": False, "reason": reason}
    document["driver"] = {
        "version": None,
        "libcuda_problem": "libcuda.so.1: cannot open shared object file",
        "visible_devices": None,
    }
    for test in document["tests"]:
        if test["name"].startswith("cuda "):
            test.update(outcome="skipped", message=reason, error=None)
    return document


def change(document: Raw, name: str, **values: object) -> Raw:
    """The same report with another result of one test."""
    (test,) = [test for test in document["tests"] if test["name"] == name]
    test.update(values)
    return document


def variant(matrix: Matrix, id_: str) -> Variant:
    (found,) = [v for v in matrix.variants if v.id == id_]
    return found


def shown(document: Raw, package: Package) -> list[str]:
    """The lines that the command prints for a report."""
    out = io.StringIO()
    ran = SmokeRun(report=report(document), raw=document)
    show_case(Screen(out), package, case_of(package, judge_run(ran, package, None)), ran.report)
    return out.getvalue().splitlines()
