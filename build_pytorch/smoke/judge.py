"""The report of the smoke script, and its judgement by what the matrix states of a variant.

The types have the fields that are read here; `SmokeRun.raw` has the whole report.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import foreign_json
from build_pytorch.base.versions import numbers
from build_pytorch.matrix import compatibility
from build_pytorch.matrix.build_features import other_blas, seen
from build_pytorch.matrix.compatibility import missing_cpu_flags
from build_pytorch.matrix.field_types import Capability
from build_pytorch.matrix.model import Variant

Measure = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
"""An error or a tolerance: neither negative nor infinite nor NaN."""
Config = Annotated[str, Meta(max_length=1 << 16)]
Index = Annotated[int, Meta(ge=0, le=1023)]
Outcome = Literal["passed", "failed", "skipped", "compatible", "not run"]


class DeclaredTest(Struct, frozen=True, kw_only=True):
    """A test that the script had when the report was made: see SmokeTest in script.py."""

    name: str
    device: Literal["cpu", "cuda"]
    tolerance: Measure | None = None
    """None for skipped tests in reports of the first format."""
    capability: Capability | None = None
    magma: bool = False
    torch: str | None = None
    optional: str = ""
    meaning: str = ""
    companion: str = ""


class SmokeResult(Struct, frozen=True, kw_only=True):
    """The result of one test. `error` and `tolerance` are relative (see MEASURE in script.py)."""

    name: str
    outcome: Literal["passed", "failed", "skipped", "not run"]
    error: Measure | None = None
    tolerance: Measure | None = None
    seconds: Annotated[float, Meta(ge=0, le=1e7)] = 0
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

    index: Index
    name: str
    capability: Capability


class CudaFacts(Struct, frozen=True, kw_only=True):
    """Whether torch can use the GPU with the index `device`, and why not."""

    device: Index
    available: bool
    reason: str = ""
    crashed: bool = False
    """The process crashed or hung while it initialised CUDA."""
    devices: tuple[GpuFacts, ...] = ()


class InstalledCompanion(Struct, frozen=True, kw_only=True):
    """A companion that had to be there: the version asked for (empty: any), and what was found."""

    expected: str = ""
    version: str | None = None
    file: str | None = None


class CpuFacts(Struct, frozen=True, kw_only=True):
    """The CPU as /proc/cpuinfo names it."""

    model: str


class DriverFacts(Struct, frozen=True, kw_only=True):
    """The NVIDIA driver, why its library cannot be loaded, and CUDA_VISIBLE_DEVICES."""

    version: str | None
    libcuda_problem: str
    visible_devices: str | None


class PythonFacts(Struct, frozen=True, kw_only=True):
    """The Python that ran the script."""

    version: str
    machine: str


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

    def __post_init__(self) -> None:
        """Require a test of each device, and each name once.

        A report without tests must not pass, and a passed result must not hide a failed one.
        """
        if {test.device for test in self.declared} != {"cpu", "cuda"}:
            raise ValueError("declares no tests for the CPU or none for CUDA")
        for found in (self.declared, self.tests):
            names = [test.name for test in found]
            if len(set(names)) < len(names):
                raise ValueError("has two tests of one name")

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
    companions, fit = companions or {}, None
    if variant.gpu and report.gpu:
        fit = compatibility.runs_on(variant.gpu.capability, report.gpu.capability)
    tests = [test for test in report.declared if test.companion in {"", *companions}]
    reasons = list(_wrong_facts(report, variant))
    for name, version in companions.items():  # the script compares the versions
        found = report.companions.get(name)
        if found is None or found.expected != version:
            reasons.append(f"the script was not told to test {name} {version}")
    reasons += [*_wrong_code(report, variant), *_bad_tests(report, tests, "cpu")]
    if fit:
        reasons += _bad_tests(report, tests, "cuda")
    if variant.gpu and report.cuda.crashed:
        reasons.append(f"CUDA does not start: {report.cuda.reason}")
    outcome: Outcome = "failed" if reasons else "passed"
    if variant.gpu and not reasons and fit != "exact":
        outcome = fit or "skipped"
        reasons = [_gpu_reason(report, variant, variant.gpu.capability, fit)]
    notes = tuple(_notes(report, variant, tests))
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
    missing = missing_cpu_flags(variant.cpu, flags)
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


def _bad_tests(report: SmokeReport, tests: Sequence[DeclaredTest], device: str) -> Iterator[str]:
    """Yield every test of a device that did not pass, or that has no result."""
    by_name = {result.name: result for result in report.tests if result.outcome != "not run"}
    missing = []
    for test in tests:
        if test.device != device:
            continue
        result = by_name.get(test.name)
        if result is None:
            missing.append(test.name)
        elif result.outcome == "passed":
            # A report may be edited, so its numbers count.
            allowed = result.tolerance if test.tolerance is None else test.tolerance
            if result.error is None or allowed is None or result.error > allowed:
                yield f"{test.name}: passed with error {result.error}, allowed is {allowed}"
        elif result.outcome == "failed" or not _may_skip(report, test):
            size = ""
            if result.error is not None and result.tolerance is not None:
                size = f"error {result.error:.2g}, tolerance {result.tolerance:g}"
            texts = [size, result.message] if size or result.message else [result.outcome]
            why = "; ".join(filter(None, [*texts, test.meaning]))
            yield f"{test.name}: {why}"
    if missing:
        yield f"not run: {', '.join(missing)}"


def _may_skip(report: SmokeReport, test: DeclaredTest) -> bool:
    """Whether the report's facts allow that a test was skipped. Without MAGMA: a fault of its own.

    An optional part that is missing becomes a note.
    """
    gpu, torch = report.gpu, report.torch
    if gpu and test.capability and numbers(gpu.capability) < numbers(test.capability):
        return True
    if test.torch and numbers(torch.version)[:2] < numbers(test.torch):
        return True
    return (test.magma and not torch.magma) or bool(test.optional)


def _gpu_reason(report: SmokeReport, variant: Variant, wanted: str, fit: str | None) -> str:
    """Return why a report without faults is none of a GPU of the `wanted` capability."""
    if report.gpu:
        here = f"{report.gpu.name} ({report.gpu.capability})"
        if fit:
            return f"ran on {here}; it is for {wanted}"
        return f"is for {wanted} and does not run on {here}"
    driver, cuda, reason = report.driver, variant.release.cuda, report.cuda.reason
    if driver.version is None and driver.libcuda_problem:
        return "no NVIDIA GPU here, so CUDA was not tested"
    if driver.visible_devices in {"", "-1"}:
        return "CUDA_VISIBLE_DEVICES hides the GPUs"
    found = f"driver {driver.version}"
    if cuda and driver.version and numbers(driver.version) < numbers(variant.driver):
        return f"{found} is older than {variant.driver}, which CUDA {cuda.version} needs"
    if driver.libcuda_problem:
        what = f"this Python cannot load its library ({driver.libcuda_problem})"
        return f"{found} is installed, but {what}; torch reports: {reason}"
    return f"torch reaches no GPU: {reason}"


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
