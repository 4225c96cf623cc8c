"""Smoke-test a package: run the script in a Python, judge its report, record the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, field, structs

from build_pytorch.base import foreign_json, process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.hardware import detect
from build_pytorch.matrix.compatibility import missing_cpu_flags, sm_code
from build_pytorch.matrix.model import Package
from build_pytorch.nix import store
from build_pytorch.results import artefacts, evidence
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import Judgement, SmokeReport, judge

_GRACE: Final = 5.0  #: seconds between the script's own limit and the kill

Environment = Mapping[str, str | None]
_Answer = TypeVar("_Answer", bound=Struct)


class SmokeCase(Judgement, frozen=True, kw_only=True):
    """The result for one package; the fields are keys of --json and of the report's file."""

    release: str
    variant: str
    package: str
    python: str = ""
    output: str = ""  #: the store path, if that is what was tested
    recorded: bool = False
    report: str = ""  #: path of the report's file below the root
    script: dict[str, Any] | None = None  #: what the script printed
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """With --upstream: passed, failed and skipped tests and seconds by file."""


def case_of(
    package: Package,
    judgement: Judgement,
    python: Path | None = None,
    built: Path | None = None,
) -> SmokeCase:
    """Return the result of a package with this judgement, and what was run."""
    return SmokeCase(
        release=package.release_name,
        variant=package.id,
        package=package.package,
        python=str(python),
        output=str(built) if built else "",
        **structs.asdict(judgement),
    )


def built_python(
    root: Path, package: Package, named: Path | None = None
) -> tuple[Path, Environment, Path | None]:
    """Return the Python of a package's result, its environment, and the result.

    A Python that a person `named` has no result. Raises ToolError where there is none.
    """
    if named:
        return named, {}, None
    built = artefacts.find(root, package)
    return *artefacts.interpreter(built, package.release.python.version), built


def smoke_test(
    root: Path, package: Package, named: Path | None, seconds: float
) -> tuple[SmokeCase, SmokeReport | None]:
    """Test one package, with its own Python or the `named` one.

    Returns the script's report as well. Raises ToolError if that Python cannot be started,
    WriteError if the report cannot be saved.
    """
    report: SmokeReport | None = None
    raw: dict[str, Any] | None = None
    try:
        python, env, built = built_python(root, package, named)
        flags = detect.parse_cpuinfo(detect.file_text(Path("/proc/cpuinfo"))).flags
        if mismatch := cpu_mismatch(package, store.this_system(), flags.split()):
            # not started: it would crash with SIGILL
            return case_of(package, Judgement(outcome="skipped", reasons=(mismatch,))), None
        argv = [str(python), script.__file__, "--limit", str(seconds)]
        argv += ["--capability", package.gpu.capability] if package.gpu else []
        argv += ["--companion", package.name] if package.companion else []
        # The user's own setting would make torch slower, as if the build were the reason.
        env = {**env, "ATEN_CPU_CAPABILITY": None}
        report, raw = python_answer(argv, env, seconds + _GRACE, SmokeReport)
        judgement = judge(report, package, built)
    except ToolError as error:
        if named:
            raise
        # others can still be tested
        return case_of(package, Judgement(outcome="not run", reasons=(str(error),))), None
    except BuildPytorchError as error:
        judgement = Judgement(outcome="failed", reasons=(str(error),))
    case = structs.replace(case_of(package, judgement, python, built), script=raw)
    case = evidence.record_evidence(root, package, built, test="smoke", result=case)
    return case, report


def cpu_mismatch(package: Package, system: str, flags: Sequence[str]) -> str:
    """Return why a machine cannot run a package's CPU code, or an empty text if it can.

    `system` is written as Nix does, `flags` as /proc/cpuinfo does.
    """
    if system != package.platform:
        return f"is for {package.platform}; this machine is {system}"
    missing = missing_cpu_flags(package.cpu, flags)
    return f"this CPU lacks {', '.join(missing)}" if missing else ""


def python_answer(
    argv: Sequence[str], env: Environment, seconds: float, kind: type[_Answer]
) -> tuple[_Answer, dict[str, Any]]:
    """Run a script in a Python and return the keys of all lines of JSON that it prints.

    Returns them as a struct as well. Raises BuildPytorchError with the reason why there are none.
    """
    result, document = process.run(argv, env=env, seconds=seconds), dict[str, Any]()
    if result.expired:
        raise BuildPytorchError(f"no answer after {seconds:g} s; it was killed")
    if result.code:
        raise BuildPytorchError(f"Python {script.ending(result.code)}: {result.last_line}")
    try:
        for line in result.stdout.splitlines():
            document |= foreign_json.decode(line)
        if "error" not in document:
            return msgspec.convert(document, kind), document
    except (ValueError, TypeError) as error:
        raise BuildPytorchError(f"its output is not a report: {error}") from None
    raise BuildPytorchError(f"torch does not work: {document['error']}")


def told_facts(package: Package, report: SmokeReport) -> Iterator[str]:
    """Yield what was tested: PyTorch, its CUDA, the GPU and the companion."""
    torch, gpu = report.torch, report.gpu
    if torch.import_error:
        return
    yield f"PyTorch version: {torch.version}"
    yield f"CUDA available: {report.cuda.available}"
    yield f"CUDA version: {torch.cuda}"
    if gpu:
        yield f"GPU: {gpu.name}"
        yield f"Compute capability: {gpu.capability}"
        if package.gpu and gpu.capability == package.gpu.capability:
            name = gpu.name.removeprefix("NVIDIA ")
            yield f"\u2705 {package.gpu_label} ({name}) detected correctly!"
        elif package.gpu:
            here = sm_code(gpu.capability).replace("_", "").upper()
            yield f"\u26a0\ufe0f  Expected {package.gpu_label}, got {here}"
    for name, found in report.companions.items():
        yield f"{name} version: {found.get('version') or 'not installed'}"
