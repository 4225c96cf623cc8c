"""Smoke-test a package: run the script in a Python, judge its report, record the evidence."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct, structs

from build_pytorch.base import process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.model import Package
from build_pytorch.results import artefacts, evidence
from build_pytorch.results.artefacts import Artefact
from build_pytorch.smoke import script
from build_pytorch.smoke.judge import Judgement, cpu_mismatch, judge
from build_pytorch.smoke.smoke_report import SmokeReport, SmokeRun, parse

_SCRIPT: Final = Path(script.__file__)
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


class SmokeSettings(Struct, frozen=True, kw_only=True):
    """How packages are tested; without `python` each with its own."""

    root: Path
    python: Path | None
    device: int
    seconds: float


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


def case_of(package: Package, judgement: Judgement) -> SmokeCase:
    """Return the result of a package with this judgement."""
    return SmokeCase(
        release=package.release_name,
        variant=package.id,
        package=package.package,
        **structs.asdict(judgement),
    )


def smoke_test(
    package: Package, settings: SmokeSettings, on_wait: Callable[[int], None]
) -> tuple[SmokeCase, SmokeReport | None]:
    """Test one package, and call `on_wait` while it runs. Returns the script's report as well.

    Raises BuildPytorchError if --python or --device name what is not there, WriteError if the
    report cannot be saved.
    """
    built, python = artefacts.find(settings.root, package), settings.python
    env: Mapping[str, str | None] = {}
    if built is None and python is None:
        return _not_tested(package, "not run", artefacts.absence(settings.root, package))
    mismatch = cpu_mismatch(package.variant, platform.machine(), script.cpu_facts()["flags"])
    if mismatch:  # not started: it would crash with SIGILL
        return _not_tested(package, "skipped", mismatch)
    try:
        if built and python is None:
            python, env = artefacts.interpreter(built, package.variant.release.python.version)
        assert python  # noqa: S101 - see above
        ran = run_script(python, env, settings, on_wait, companions_of(package))
    except ToolError as error:
        if settings.python:
            raise
        return _not_tested(package, "not run", str(error))  # others can still be tested
    found = ran.report
    _refuse_wrong_settings(settings, found)
    judgement = judge_run(ran, package, None if settings.python else built)
    if settings.python and not (built and built.holds(tested_file(package, found))):
        built = None
    output = str(built.output) if built else ""
    case = structs.replace(
        case_of(package, judgement), python=str(python), output=output, script=ran.raw or None
    )
    case = evidence.record_evidence(settings.root, package, built, test="smoke", result=case)
    return case, found


def _not_tested(
    package: Package, outcome: Literal["skipped", "not run"], reason: str
) -> tuple[SmokeCase, None]:
    return case_of(package, Judgement(outcome=outcome, reasons=(reason,))), None


def _refuse_wrong_settings(settings: SmokeSettings, report: SmokeReport | None) -> None:
    """Raise BuildPytorchError if the Python has no torch, or the machine no GPU of that index."""
    if report is None:
        return
    if settings.python and "No module named 'torch'" in report.torch.import_error:
        reason = "has no torch; name a Python that has it"
        raise BuildPytorchError(f"--python {settings.python}: {reason}")
    if 0 < len(report.cuda.devices) <= settings.device:
        last = len(report.cuda.devices) - 1
        raise BuildPytorchError(f"--device {settings.device}: the last GPU here is {last}")


def run_script(
    python: Path,
    env: Mapping[str, str | None],
    settings: SmokeSettings,
    on_wait: Callable[[int], None],
    companions: Mapping[str, str],
) -> SmokeRun:
    """Run the script on one GPU with a time limit; call `on_wait` while it runs.

    `companions` are those that must be there, with the version of each. Raises ToolError where the
    Python cannot be started, and BuildPytorchError for two tests of one name.
    """
    names = [test.name for test in script.tests()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BuildPytorchError(f"{_SCRIPT}: two tests have the name {twice[0]}; rename one")
    seconds = settings.seconds
    maximum = seconds + min(seconds, _GRACE)
    argv = [str(python), str(_SCRIPT), "--device", str(settings.device), "--limit", str(seconds)]
    argv += [f"--companion={name}={version}" for name, version in companions.items()]
    # The user's own setting would make torch slower, as if the build were the reason.
    started = process.start(argv, env={**env, "ATEN_CPU_CAPABILITY": None})
    result = started.finish(maximum, on_wait)
    if result.expired:
        return SmokeRun(problem=f"no answer after {maximum:g} s; it was killed")
    if result.code:
        last = f": {result.last_line}" if result.code > 0 else ""
        return SmokeRun(problem=f"Python {script.ending(result.code)}{last}")
    found = parse(result.stdout)
    if found.report and found.raw["declared"] != script.declarations():
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
