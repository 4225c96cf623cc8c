"""Smoke-test a package: run the script in a Python, judge its report, record the evidence."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field, structs

from build_pytorch.base import process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.compatibility import sm_code
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.results import artefacts, evidence
from build_pytorch.results.artefacts import Artefact
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import (
    Judgement,
    SmokeReport,
    SmokeRun,
    cpu_mismatch,
    judge,
    parse,
)

_GRACE: Final = 5.0
"""Maximum seconds between the script's own limit and the kill; a short limit has a short one."""


class SmokeCase(Judgement, frozen=True, kw_only=True):
    """The result for one package; the fields are keys of --json and of the report's file."""

    release: str
    variant: str
    package: str
    python: str = ""
    output: str = ""
    """The store path, if that is what was tested."""
    recorded: bool = False
    report: str = ""
    """Path of the report's file below the root."""
    script: dict[str, Any] | None = None
    """What the script printed."""
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """With --upstream: passed, failed and skipped tests and seconds by file."""


class SmokeSettings(Struct, frozen=True, kw_only=True):
    """How packages are tested; without `python` each with its own."""

    root: Path
    python: Path | None
    device: int
    seconds: float


def case_of(package: Package, judgement: Judgement) -> SmokeCase:
    """Return the result of a package with this judgement."""
    return SmokeCase(
        release=package.release_name,
        variant=package.id,
        package=package.package,
        **structs.asdict(judgement),
    )


def tested_python(
    package: Package, settings: SmokeSettings
) -> tuple[Path, Mapping[str, str | None], Artefact | None]:
    """Return the Python that has the package, its environment, and the result on disk, if any.

    Raises ToolError where nothing can be run.
    """
    built = artefacts.find(settings.root, package)
    if settings.python:
        return settings.python, {}, built
    if built is None:
        raise ToolError(artefacts.absence(settings.root, package))
    return *artefacts.interpreter(built, package.variant.release.python.version), built


def smoke_test(package: Package, settings: SmokeSettings) -> tuple[SmokeCase, SmokeReport | None]:
    """Test one package. Returns the script's report as well.

    Raises BuildPytorchError if --python or --device name what is not there, WriteError if the
    report cannot be saved.
    """
    try:
        python, env, built = tested_python(package, settings)
        mismatch = cpu_mismatch(package.variant, platform.machine(), script.cpu_facts()["flags"])
        if mismatch:  # not started: it would crash with SIGILL
            return case_of(package, Judgement(outcome="skipped", reasons=(mismatch,))), None
        ran = run_script(python, env, settings, companions_of(package))
    except ToolError as error:
        if settings.python:
            raise
        # others can still be tested
        return case_of(package, Judgement(outcome="not run", reasons=(str(error),))), None
    found = ran.report
    if settings.python and found and "No module named 'torch'" in found.torch.import_error:
        reason = "has no torch; name a Python that has it"
        raise BuildPytorchError(f"--python {settings.python}: {reason}")
    if found and 0 < len(found.cuda.devices) <= settings.device:
        last = len(found.cuda.devices) - 1
        raise BuildPytorchError(f"--device {settings.device}: the last GPU here is {last}")
    judgement = judge_run(ran, package, None if settings.python else built)
    if settings.python and not (built and built.holds(tested_file(package, found))):
        built = None
    case = structs.replace(
        case_of(package, judgement),
        python=str(python),
        output=str(built.output) if built else "",
        script=ran.raw or None,
    )
    case = evidence.record_evidence(settings.root, package, built, test="smoke", result=case)
    return case, found


def run_script(
    python: Path,
    env: Mapping[str, str | None],
    settings: SmokeSettings,
    companions: Collection[str],
) -> SmokeRun:
    """Run the script on one GPU with a time limit. Raises ToolError if Python cannot be started."""
    seconds = settings.seconds
    maximum = seconds + min(seconds, _GRACE)
    argv = [str(python), script.__file__, "--device", str(settings.device), "--limit", str(seconds)]
    argv += [f"--companion={name}" for name in companions]
    # The user's own setting would make torch slower, as if the build were the reason.
    result = process.run(argv, env={**env, "ATEN_CPU_CAPABILITY": None}, seconds=maximum)
    if result.expired:
        return SmokeRun(problem=f"no answer after {maximum:g} s; it was killed")
    if result.code:
        last = f": {result.last_line}" if result.code > 0 else ""
        return SmokeRun(problem=f"Python {script.ending(result.code)}{last}")
    found = parse(result.stdout)
    if found.report and found.raw["declared"] != script.declarations(companions):
        return SmokeRun(problem="its report does not declare the tests of this script")
    return found


def judge_run(ran: SmokeRun, package: Package, built: Artefact | None) -> Judgement:
    """Judge a run. The Python of a result (`built`) must import what is in that result."""
    if ran.report is None:
        return Judgement(outcome="failed", reasons=(ran.problem,))
    file = tested_file(package, ran.report)
    if built and file and not built.holds(file):
        reason = f"imports another {package.name}, {file}, and not that of {built.output}"
        return Judgement(outcome="failed", reasons=(reason,))
    return judge(ran.report, package.variant, companions_of(package))


def companions_of(package: Package) -> dict[str, str]:
    """Return the companion that is to be tested and its version; {} for a variant."""
    return {package.name: package.version} if package.companion else {}


def tested_file(package: Package, report: SmokeReport | None) -> str:
    """Return the file that the package was imported from, or "" if it was not imported."""
    if report is None or package.companion is None:
        return report.torch.file if report else ""
    facts = report.companions.get(package.name)
    return (facts.file if facts else None) or ""


def told_facts(variant: Variant, report: SmokeReport) -> Iterator[str]:
    """Yield what was tested: PyTorch, its CUDA and the GPU, then the driver and the CPU."""
    torch, gpu = report.torch, report.gpu
    if torch.import_error:
        return
    yield f"PyTorch version: {torch.version}"
    yield f"CUDA available: {report.cuda.available}"
    yield f"CUDA version: {torch.cuda}"
    if gpu:
        yield f"GPU: {gpu.name}"
        yield f"Compute capability: {gpu.capability}"
    if gpu and variant.gpu:
        if gpu.capability == variant.gpu.capability:
            name = gpu.name.removeprefix("NVIDIA ")
            yield f"\u2705 {variant.gpu_label} ({name}) detected correctly!"
        else:
            here = sm_code(gpu.capability).replace("_", "").upper()
            yield f"\u26a0\ufe0f  Expected {variant.gpu_label}, got {here}"
    if torch.cuda:
        driver, codes = report.driver.version or "none", " ".join(torch.arch_list)
        yield f"Built for: {codes}; cuDNN {torch.cudnn or 'none'}; driver here: {driver}"
    for name, found in report.companions.items():
        yield f"{name} version: {found.version or 'not installed'}"
    yield f"CPU: {report.cpu.model or report.python.machine}, {torch.cpu_capability} kernels"
