"""The report of the smoke script, and its judgement by what the matrix states of a variant.

The types have the fields that are read here; `SmokeRun.raw` has the whole report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import foreign_json
from build_pytorch.matrix import compatibility
from build_pytorch.matrix.build_features import other_blas, seen
from build_pytorch.matrix.field_types import Capability
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.versions import numbers

Config = Annotated[str, Meta(max_length=1 << 16)]
Outcome = Literal["passed", "failed", "skipped", "compatible", "not run"]


class DeclaredTest(Struct, frozen=True, kw_only=True):
    """A test that the script had when the report was made: see SmokeTest in smoke_tests.py."""

    name: str
    device: Literal["cpu", "cuda"]
    capability: Capability | None = None
    magma: bool = False
    torch: str | None = None
    optional: str = ""
    meaning: str = ""
    companion: str = ""


class SmokeResult(Struct, frozen=True, kw_only=True):
    """The result of one test: see `run_test` in script.py."""

    name: str
    outcome: Literal["passed", "failed", "skipped", "not run"]
    message: str = ""


class TorchFacts(Struct, frozen=True, kw_only=True):
    """What torch says of itself in installed_torch.py, or why it cannot be imported."""

    import_error: str = ""
    file: str = ""
    library_folders: tuple[str, ...] = ()
    version: str = ""
    cuda: str | None = None
    hip: str | None = None
    cudnn: int | None = None
    magma: bool = False
    arch_list: tuple[str, ...] = ()
    cpu_capability: str = ""
    config: Config = ""
    parallel: Config = ""


class GpuFacts(Struct, frozen=True, kw_only=True):
    """A GPU that torch can use."""

    index: int
    name: str
    capability: Capability


class CudaFacts(Struct, frozen=True, kw_only=True):
    """Whether torch can use the GPU with the index `device`, and why not."""

    device: int
    available: bool
    reason: str = ""
    crashed: bool = False
    """The process crashed or hung while it initialised CUDA."""
    devices: tuple[GpuFacts, ...] = ()


class InstalledCompanion(Struct, frozen=True, kw_only=True):
    """What was found of a companion that the script had to test."""

    version: str | None = None
    file: str | None = None


class CpuFacts(Struct, frozen=True, kw_only=True):
    """The CPU as /proc/cpuinfo names it."""

    model: str


class PythonFacts(Struct, frozen=True, kw_only=True):
    """The Python that ran the script."""

    version: str
    machine: str


class DriverFacts(Struct, frozen=True, kw_only=True):
    """The NVIDIA driver, why its library cannot be loaded, and CUDA_VISIBLE_DEVICES."""

    version: str | None
    libcuda_problem: str
    visible_devices: str | None


class SmokeReport(Struct, frozen=True, kw_only=True):
    """A whole report. `declared` lists the tests of the script that made it."""

    schema: Literal[2]
    python: PythonFacts
    cpu: CpuFacts
    driver: DriverFacts
    torch: TorchFacts
    cuda: CudaFacts
    companions: dict[str, InstalledCompanion] = {}
    tests: tuple[SmokeResult, ...]
    declared: tuple[DeclaredTest, ...]

    @property
    def gpu(self) -> GpuFacts | None:
        """The GPU that was tested."""
        devices = self.cuda.devices if self.cuda.available else ()
        return next((gpu for gpu in devices if gpu.index == self.cuda.device), None)


class SmokeRun(Struct, frozen=True, kw_only=True):
    """A report, also as it was printed (`raw`), or the reason why there is none."""

    report: SmokeReport | None = None
    raw: dict[str, Any] = {}
    problem: str = ""


def parse(text: str) -> SmokeRun:
    """Parse a report of any version of the script, or anything else. Never raises."""
    try:
        raw = foreign_json.decode(text)
        return SmokeRun(report=msgspec.convert(raw, SmokeReport), raw=raw)
    except ValueError as error:
        return SmokeRun(problem=f"its output is not a report: {error}")


class Judgement(Struct, frozen=True, kw_only=True):
    """The outcome of one variant. Only `passed` is evidence for it."""

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge(
    report: SmokeReport, variant: Variant, companions: Mapping[str, str] | None = None
) -> Judgement:
    """Compare a report with what the matrix states of a variant, or of companions for it.

    Every test that the report's own script declared for the CPU, and for the GPU where the
    variant's code runs on it, must have passed. Tests of companions count for those that
    `companions` names, with the version of each.
    """
    if error := report.torch.import_error:
        return Judgement(outcome="failed", reasons=(f"torch cannot be imported: {error}",))
    fit = None
    if variant.gpu and report.gpu:
        fit = compatibility.runs_on(variant.gpu.capability, report.gpu.capability)
    devices = ("cpu", "cuda") if fit else ("cpu",)
    declared = [test for test in report.declared if test.companion in {"", *(companions or {})}]
    reasons = [
        *_wrong_facts(report, variant),
        *_wrong_companions(report, companions or {}),
        *_wrong_code(report, variant),
        *_bad_tests(report, [test for test in declared if test.device in devices]),
    ]
    if variant.gpu and report.cuda.crashed:
        reasons.append(f"CUDA does not start: {report.cuda.reason}")
    outcome: Outcome = "failed" if reasons else "passed"
    if variant.gpu and not reasons and fit != "exact":
        outcome = fit or "skipped"
        reasons = [_gpu_reason(report, variant, variant.gpu.capability, fit)]
    notes = tuple(_notes(report, variant, declared))
    return Judgement(outcome=outcome, reasons=tuple(reasons), notes=notes)


def cpu_mismatch(variant: Variant, machine: str, flags: Sequence[str]) -> str:
    """Return why a machine cannot run a variant's CPU code, or an empty text if it can.

    `machine` is written as `uname -m` prints it, `flags` as /proc/cpuinfo does.
    """
    wanted = variant.cpu.platform.partition("-")[0]
    if machine != wanted:
        return f"is for {wanted}; this machine is {machine}"
    if not flags:
        return "the CPU's flags are unknown"
    missing = compatibility.missing_cpu_flags(variant.cpu, flags)
    return f"this CPU lacks {', '.join(missing)}" if missing else ""


def _wrong_facts(report: SmokeReport, variant: Variant) -> Iterator[str]:
    """Yield how this torch differs from the variant, as far as it is known without a GPU."""
    torch, release = report.torch, variant.release
    # The part after `+` is local: who built it, and how (PEP 440).
    if torch.version.partition("+")[0] != release.torch.version:
        yield f"is PyTorch {torch.version}, not {release.torch.version}"
    if not f"{report.python.version}.".startswith(f"{release.python.version}."):
        yield f"is for Python {report.python.version}, not {release.python.version}"
    if torch.hip:
        yield f"is built for ROCm {torch.hip}"
    if variant.gpu is None:
        if torch.cuda:
            yield f"is built with CUDA {torch.cuda}, and the variant is CPU-only"
        return
    if torch.cuda is None:
        yield "is a CPU-only PyTorch: it was built without CUDA"
        return
    if release.cuda and torch.cuda != release.cuda.version:
        yield f"is built with CUDA {torch.cuda}, not {release.cuda.version}"
    code = compatibility.sm_code(variant.gpu.capability)
    if set(torch.arch_list) != {code}:
        found = " ".join(torch.arch_list) or "nothing"
        yield f"is built for {found}, not for {code} alone"
    if not torch.magma:
        yield "is built without MAGMA"


def _wrong_companions(report: SmokeReport, companions: Mapping[str, str]) -> Iterator[str]:
    """Yield companions of another version. At release tags too, version files have `a0`."""
    for name, version in companions.items():
        if name not in report.companions:
            yield f"the script was not told to test {name}"
        elif numbers(found := report.companions[name].version or "") != numbers(version):
            yield f"has {name} {found or 'not installed'}, not {version}"


def _wrong_code(report: SmokeReport, variant: Variant) -> Iterator[str]:
    """Yield libraries of another PyTorch, another BLAS, and kernels below the variant's ISA.

    ATen uses its AVX512 kernels on a CPU with f, bw, dq, vl and fma. On ARM the names depend on
    the length of the vectors, so they decide nothing.
    """
    if len(folders := report.torch.library_folders) > 1:
        yield f"loads the libraries of several PyTorchs: {', '.join(folders)}"
    found, flags = report.torch.cpu_capability, variant.cpu.cpuinfo
    wanted = "AVX512" if "avx512f" in flags else "AVX2" if "avx2" in flags else found
    if found not in {wanted, "AVX512"}:
        yield f"takes {found} kernels, not {wanted}"
    texts = [f"{report.torch.config}\n{report.torch.parallel}".encode()]
    has_settings = "Build settings: " in report.torch.config
    if has_settings and (blas := other_blas(variant, seen(texts, "config"))):
        yield f"has the BLAS {blas}, not {variant.group.blas}"


def _bad_tests(report: SmokeReport, tests: Sequence[DeclaredTest]) -> Iterator[str]:
    """Yield every test that did not pass, or that has no result."""
    by_name = {result.name: result for result in report.tests if result.outcome != "not run"}
    for test in tests:
        result = by_name.get(test.name)
        if result and result.outcome != "passed" and not _may_skip(report, test, result):
            why = [result.message or result.outcome, test.meaning]
            yield f"{test.name}: {'; '.join(filter(None, why))}"
    if missing := [test.name for test in tests if test.name not in by_name]:
        yield f"not run: {', '.join(missing)}"


def _may_skip(report: SmokeReport, test: DeclaredTest, result: SmokeResult) -> bool:
    """Whether a test was skipped as the report's facts allow. No MAGMA is a fault of its own."""
    capability = report.gpu.capability if report.gpu else ""
    return result.outcome == "skipped" and bool(
        (capability and test.capability and numbers(capability) < numbers(test.capability))
        or (test.torch and numbers(report.torch.version)[:2] < numbers(test.torch))
        or (test.magma and not report.torch.magma)
        or test.optional  # a part that is missing is a note
    )


def _gpu_reason(report: SmokeReport, variant: Variant, wanted: str, fit: str | None) -> str:
    """Return why a report without faults is none of a GPU of the `wanted` capability."""
    if report.gpu:
        here = f"{report.gpu.name} ({report.gpu.capability})"
        if fit:
            return f"ran on {here}; it is for {wanted}"
        return f"is for {wanted} and does not run on {here}"
    driver, cuda = report.driver, variant.release.cuda
    if driver.version is None and driver.libcuda_problem:
        return "no NVIDIA GPU here, so CUDA was not tested"
    if driver.visible_devices in {"", "-1"}:
        return "CUDA_VISIBLE_DEVICES hides the GPUs"
    if cuda and driver.version and numbers(driver.version) < numbers(variant.driver):
        needs = f"which CUDA {cuda.version} needs"
        return f"driver {driver.version} is older than {variant.driver}, {needs}"
    why = [driver.libcuda_problem, report.cuda.reason]
    return f"driver {driver.version}; torch reaches no GPU: {'; '.join(filter(None, why))}"


def _notes(report: SmokeReport, variant: Variant, tests: Sequence[DeclaredTest]) -> Iterator[str]:
    """Yield hints that do not change the outcome."""
    if variant.gpu and report.gpu:
        for gpu in report.cuda.devices:
            if report.gpu.capability != variant.gpu.capability == gpu.capability:
                yield f"--device {gpu.index}, {gpu.name} ({gpu.capability}), fits"
    skipped = {test.name: test.message for test in report.tests if test.outcome == "skipped"}
    for test in tests:
        is_run = test.device == "cpu" or (variant.gpu and report.gpu)
        if test.optional and is_run and test.name in skipped:
            yield f"{test.name} was skipped: {skipped[test.name] or 'no reason given'}"
