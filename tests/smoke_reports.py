"""Smoke reports for tests: recorded ones, and what a correct variant would report today."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import msgspec
from conftest import Project

from build_pytorch.base.console import Screen
from build_pytorch.matrix.model import Matrix, Package, Variant
from build_pytorch.results.artefacts import recipe_digest
from build_pytorch.results.ledger import Event, append, now
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import SmokeReport, judge
from build_pytorch.smoke.smoke_case import case_of
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
    """The same report by the script as it is, whose tests all passed."""
    stated = ("name", "device", "companion", "meaning")
    rows = [
        {key: getattr(test, key) for key in stated} for test in script.tests(document["companions"])
    ]
    tests = [{**row, "outcome": "passed", "message": ""} for row in rows]
    return {**document, "declared": [], "tests": tests}


def right(
    variant: Variant, capability: str = "", name: str = "NVIDIA GPU", **companions: str
) -> Raw:
    """What a correct variant, with companions, reports on a machine for it, or on another GPU."""
    facts = {
        key: {"version": version, "file": f"/{key}/__init__.py"}
        for key, version in companions.items()
    }
    document = today({**raw("dgx-spark"), "companions": facts})
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
    return {"index": index, "name": name, "capability": capability}


def without_gpu(document: Raw, reason: str) -> Raw:
    """The same report from a machine where torch reaches no GPU."""
    document["cuda"] = {"device": 0, "available": False, "reason": reason}
    document["driver"] = {"version": None}
    for test in document["tests"]:
        if test["name"].startswith("cuda "):
            test.update(outcome="skipped", message=reason)
    return document


def change(document: Raw, name: str, **values: object) -> Raw:
    """The same report with another result of one test."""
    (test,) = [test for test in document["tests"] if test["name"] == name]
    test.update(values)
    return document


def result_in_store(folder: Path, project: Project) -> tuple[dict[str, str], Path, Path]:
    """Give a project a result of cpu-avx2 in a store without Nix, whose closure has a Python.

    Returns the environment, the result, and the path of the Python, which a test has to write.
    """
    store = folder / "nix/store"
    interpreter = store / f"{'a' * 32}-python3-3.13.1"
    output = store / f"{'b' * 32}-python3.13-pytorch-2.10.0"
    (interpreter / "bin").mkdir(parents=True)
    (output / "nix-support").mkdir(parents=True)
    (output / "nix-support/propagated-build-inputs").write_text(str(interpreter))
    (project.root / "result-pytorch-python313-cpu-avx2").symlink_to(output)
    folders = [f for f in os.environ["PATH"].split(":") if not Path(f, "nix-store").exists()]
    env = {"NIX_STORE_DIR": str(store), "PATH": ":".join(folders)}
    return env, output, interpreter / "bin/python3.13"


def remember(project: Project, package: Package, output: Path, digest: str = "") -> str:
    """Add to the ledger that a result was built from a recipe; return its digest."""
    digest = digest or recipe_digest(project.root, package)
    event = Event(
        event="ended", at=now(), release=package.release_name, variant=package.id,
        digest=digest, attempt="1", outcome="built", seconds=1.0, outputs=(str(output),),
    )  # fmt: skip
    append(project.root, event)
    return digest


def variant(matrix: Matrix, id_: str) -> Variant:
    (found,) = [v for v in matrix.variants if v.id == id_]
    return found


def shown(document: Raw, package: Package) -> list[str]:
    """The lines that the command prints for a report."""
    out = io.StringIO()
    printed = report(document)
    show_case(Screen(out), package, case_of(package, judge(printed, package)), printed)
    return out.getvalue().splitlines()
