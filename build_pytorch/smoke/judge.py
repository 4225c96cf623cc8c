"""The report of the smoke script, and its judgement by what the matrix states of a package.

The types have the fields that are read here, of what script.py prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from build_pytorch.matrix.build_features import other_blas, seen
from build_pytorch.matrix.compatibility import runs_on, sm_code
from build_pytorch.matrix.field_types import Capability
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.versions import minor_version, numbers
from build_pytorch.results.artefacts import holds

Config = Annotated[str, Meta(max_length=1 << 16)]
Outcome = Literal["passed", "failed", "skipped", "compatible", "not run"]


class SmokeResult(Struct, frozen=True, kw_only=True):
    """A test of smoke_tests.py and its result; the script skips those that cannot run here."""

    name: str
    device: Literal["cpu", "cuda"] = "cpu"
    companion: str = ""
    meaning: str = ""
    outcome: Literal["passed", "failed", "skipped", "not run"] = "not run"
    message: str = ""


class TorchFacts(Struct, frozen=True, kw_only=True):
    """What torch says of itself in installed_torch.py, or why it cannot be imported."""

    import_error: str = ""
    file: str = ""
    library_folders: tuple[str, ...] = ()
    version: str = ""
    cuda: str | None = None
    hip: str | None = None
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
    crashed: bool = False  #: or hung, while it initialised CUDA
    devices: tuple[GpuFacts, ...] = ()


class SmokeReport(Struct, frozen=True, kw_only=True):
    """A whole report. The tests of older ones are in `declared`, `tests` has their outcomes."""

    schema: Literal[2]
    python: dict[str, str]
    driver: dict[str, str | None]
    torch: TorchFacts
    cuda: CudaFacts
    companions: dict[str, dict[str, str | None]] = {}
    """Version and file of each companion that the script had to test."""
    tests: Annotated[tuple[SmokeResult, ...], Meta(min_length=1)]
    declared: tuple[SmokeResult, ...] = ()

    @property
    def gpu(self) -> GpuFacts | None:
        """The GPU that was tested."""
        devices = self.cuda.devices if self.cuda.available else ()
        return next((gpu for gpu in devices if gpu.index == self.cuda.device), None)


class Judgement(Struct, frozen=True, kw_only=True):
    """The outcome of one package. Only `passed` is evidence for it."""

    outcome: Outcome
    reasons: tuple[str, ...] = ()


def judge(report: SmokeReport, package: Package, built: Path | None = None) -> Judgement:
    """Compare a report with what the matrix states of a package.

    Every test of the report's own script for the CPU, and for the GPU where the package's code runs
    on it, must have passed or been skipped by the script. Tests of other companions do not count.
    The Python of a result (`built`) must import what is in that result.
    """
    companion, problem = report.companions.get(package.name, {}), ""
    file = companion.get("file") if package.companion else report.torch.file
    if error := report.torch.import_error:
        problem = f"torch cannot be imported: {error}"
    elif built and file and not holds(built, file):
        problem = f"imports another {package.name}, {file}, and not that of {built}"
    if problem:
        return Judgement(outcome="failed", reasons=(problem,))
    gpu, here = package.gpu, report.gpu
    fit = runs_on(gpu.capability, here.capability) if gpu and here else None
    devices, names = ("cpu", "cuda") if fit else ("cpu",), {"", package.name}
    tests = report.declared or report.tests
    declared = [it for it in tests if it.device in devices and it.companion in names]
    wrong = [*_wrong_facts(report, package), *_wrong_code(report, package)]
    wrong += _bad_tests(report, declared)
    if wrong or not gpu or fit == "exact":
        return Judgement(outcome="failed" if wrong else "passed", reasons=tuple(wrong))
    if here:
        what = "is compatible with" if fit else "does not run on"
        why = f"is for {gpu.capability} and {what} {here.name} ({here.capability})"
    else:
        driver = f"NVIDIA driver {report.driver.get('version') or 'none'}"
        why = f"torch reaches no GPU: {driver}; {report.cuda.reason}"
    return Judgement(outcome=fit or "skipped", reasons=(why,))


def _wrong_facts(report: SmokeReport, package: Package) -> Iterator[str]:
    """Yield what a build is, where that is not what the matrix states of it."""
    torch, release, gpu = report.torch, package.release, package.gpu
    # The part after `+` is local: who built it, and how (PEP 440).
    if torch.version.partition("+")[0] != release.torch.version:
        yield f"is PyTorch {torch.version}, not {release.torch.version}"
    python = report.python.get("version", "")
    if minor_version(python) != release.python.version:
        yield f"is for Python {python}, not {release.python.version}"
    if torch.hip:
        yield f"is built for ROCm {torch.hip}"
    cuda = release.cuda.version if gpu and release.cuda else None
    if torch.cuda != cuda:
        yield f"is built with CUDA {torch.cuda or 'none'}, not {cuda or 'none'}"
    if gpu and torch.cuda:
        code = sm_code(gpu.capability)
        if set(torch.arch_list) != {code}:
            yield f"is built for {' '.join(torch.arch_list) or 'nothing'}, not for {code} alone"
        if not torch.magma:
            yield "is built without MAGMA"
        if report.cuda.crashed:
            yield f"CUDA does not start: {report.cuda.reason}"


def _wrong_code(report: SmokeReport, package: Package) -> Iterator[str]:
    """Yield another companion or PyTorch or BLAS than expected, and kernels below the ISA.

    ATen uses its AVX512 kernels on a CPU with f, bw, dq, vl and fma. On ARM the names depend on
    the length of the vectors, so they decide nothing.
    """
    torch, flags = report.torch, package.cpu.cpuinfo
    if package.companion:
        found = report.companions.get(package.name, {}).get("version") or ""
        if numbers(found) != numbers(package.version):  # at release tags too, files have `a0`
            yield f"has {package.name} {found or 'not installed'}, not {package.version}"
    if len(folders := torch.library_folders) > 1:
        yield f"loads the libraries of several PyTorchs: {', '.join(folders)}"
    kernels = torch.cpu_capability
    expected = "AVX512" if "avx512f" in flags else "AVX2" if "avx2" in flags else kernels
    if kernels not in {expected, "AVX512"}:
        yield f"takes {kernels} kernels, not {expected}"
    texts = [f"{torch.config}\n{torch.parallel}".encode()]
    blas = other_blas(package, seen(texts, "config"))
    if blas and "Build settings: " in torch.config:
        yield f"has the BLAS {blas}, not {package.group.blas}"


def _bad_tests(report: SmokeReport, tests: Sequence[SmokeResult]) -> Iterator[str]:
    """Yield every test that failed, or that has no result."""
    results = {result.name: result for result in report.tests if result.outcome != "not run"}
    for test in tests:
        result = results.get(test.name)
        if result and result.outcome == "failed":
            yield f"{test.name}: {'; '.join(filter(None, [result.message, test.meaning]))}"
    if missing := [test.name for test in tests if test.name not in results]:
        yield f"not run: {', '.join(missing)}"
