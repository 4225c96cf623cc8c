"""Judge a smoke report by what the matrix states of a variant. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from build_pytorch.base.versions import numbers
from build_pytorch.matrix import compatibility
from build_pytorch.matrix.build_features import lacking, other_blas, seen, wheel_for
from build_pytorch.matrix.compatibility import missing_cpu_flags
from build_pytorch.matrix.model import Variant
from build_pytorch.matrix.source_tables import version_for
from build_pytorch.smoke.smoke_report import DeclaredTest, SmokeReport

Outcome = Literal["passed", "failed", "skipped", "compatible", "not run"]


class Judgement(Struct, frozen=True, kw_only=True):
    """The outcome of one variant. Only `passed` is evidence for it.

    `fit` is how the tested GPU fits the variant, `cpu` and `gpu` are the outcomes of the tests on
    each of the two.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fit: Literal["exact", "compatible"] | None = None
    cpu: Literal["passed", "failed", "not run"] = "not run"
    gpu: Literal["passed", "failed", "not run"] = "not run"


def judge(
    report: SmokeReport, variant: Variant, companions: Mapping[str, str] | None = None
) -> Judgement:
    """Compare a report with what the matrix states of a variant, or of companions for it.

    The CPU must have the variant's ISA (`cpu_mismatch`). Every test that the report's own script
    declared for the CPU, and for the GPU where the variant's code runs on it, must have passed.
    Tests of companions count for those that `companions` names, with the version of each.
    """
    if error := report.torch.import_error:
        return Judgement(outcome="failed", reasons=(f"torch cannot be imported: {error}",))
    companions, gpu = companions or {}, report.gpu if variant.gpu else None
    fit = (
        compatibility.runs_on(variant.gpu.capability, gpu.capability)
        if variant.gpu and gpu
        else None
    )
    tests = [test for test in report.declared if test.companion in {"", *companions}]
    bad_cpu = [*_wrong_code(report, variant), *_bad_tests(report, tests, "cpu")]
    bad_gpu = list(_bad_tests(report, tests, "cuda")) if fit else []
    if variant.gpu and report.cuda.crashed:
        bad_gpu.append(f"CUDA does not start: {report.cuda.reason}")
    outcome: Outcome = "failed"
    wrong = [*_wrong_facts(report, variant), *_wrong_companions(report, companions)]
    reasons = [*wrong, *bad_cpu, *bad_gpu]
    if not reasons:
        outcome, *reasons = _by_gpu(report, variant, fit)
    return Judgement(
        outcome=outcome,
        reasons=tuple(reasons),
        notes=tuple(_notes(report, variant, tests)),
        fit=fit,
        cpu="failed" if bad_cpu else "passed",
        gpu="failed" if bad_gpu else "passed" if fit else "not run",
    )


def _by_gpu(
    report: SmokeReport, variant: Variant, fit: Literal["exact", "compatible"] | None
) -> tuple[Outcome, *tuple[str, ...]]:
    """Return outcome and reasons of a report without faults: they depend on the GPU alone."""
    if variant.gpu is None or fit == "exact":
        return ("passed",)
    if report.gpu is None:
        return "skipped", _no_gpu(report, variant)
    wanted, here = variant.gpu.capability, f"{report.gpu.name} ({report.gpu.capability})"
    if fit == "compatible":
        return "compatible", f"ran on {here}; it is for {wanted}"
    return "skipped", f"is for {wanted} and does not run on {here}"


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


def _wrong_companions(report: SmokeReport, companions: Mapping[str, str]) -> Iterator[str]:
    """Yield the companions that the script was not told to require; it compares the versions."""
    for name, version in companions.items():
        found = report.companions.get(name)
        if found is None or found.expected != version:
            yield f"the script was not told to test {name} {version}"


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
    if blas := other_blas(variant, _features(report)):
        yield f"has the BLAS {blas}, not {variant.group.blas}"


def _bad_tests(report: SmokeReport, tests: Sequence[DeclaredTest], device: str) -> Iterator[str]:
    """Yield every test of a device that did not pass, or that has no result."""
    by_name = {result.name: result for result in report.tests}
    missing = []
    for test in tests:
        result = by_name.get(test.name)
        if test.device != device:
            continue
        if result is None or result.outcome == "not run":
            missing.append(test.name)
        elif result.outcome == "passed":
            # A report may be edited, so its numbers count.
            allowed = result.tolerance if test.tolerance is None else test.tolerance
            if result.error is None or allowed is None or result.error > allowed:
                yield f"{test.name}: passed with error {result.error}, allowed is {allowed}"
        elif result.outcome == "failed" or (
            result.outcome == "skipped" and not _may_skip(report, test)
        ):
            size = ""
            if result.error is not None and result.tolerance is not None:
                size = f"error {result.error:.2g}, tolerance {result.tolerance:g}"
            why = "; ".join(filter(None, [size, result.message])) or result.outcome
            yield f"{test.name}: {why}" + (f"; {test.meaning}" if test.meaning else "")
    if missing:
        yield f"not run: {', '.join(missing)}"


def _may_skip(report: SmokeReport, test: DeclaredTest) -> bool:
    """Whether the report's facts allow that a test was skipped. Without MAGMA: a fault of its own.

    An optional part that is missing becomes a note.
    """
    gpu = report.gpu
    is_old = bool(
        (gpu and test.capability and numbers(gpu.capability) < numbers(test.capability))
        or (test.torch and numbers(report.torch.version)[:2] < numbers(test.torch))
    )
    return is_old or (test.magma and not report.torch.magma) or bool(test.optional)


def _no_gpu(report: SmokeReport, variant: Variant) -> str:
    """Return why the CUDA tests could not run."""
    driver, cuda = report.driver, variant.release.cuda
    if driver.version is None and driver.libcuda_problem:
        return "no NVIDIA GPU here, so CUDA was not tested"
    if driver.visible_devices in {"", "-1"}:
        return "CUDA_VISIBLE_DEVICES hides the GPUs"
    found = f"driver {driver.version}"
    if cuda and driver.version and numbers(driver.version) < numbers(variant.driver):
        return f"{found} is older than {variant.driver}, which CUDA {cuda.version} needs"
    if driver.libcuda_problem:
        what = f"this Python cannot load its library ({driver.libcuda_problem})"
        return f"{found} is installed, but {what}; torch reports: {report.cuda.reason}"
    return f"torch reaches no GPU: {report.cuda.reason}"


def _notes(report: SmokeReport, variant: Variant, tests: Sequence[DeclaredTest]) -> Iterator[str]:
    """Yield hints that do not change the outcome."""
    torch = report.torch
    if "+" in torch.version:
        yield f"PyTorch reports its version as {torch.version}"
    # A build may state no requirement: then the one of the wheel counts.
    known = version_for(torch.version.partition("+")[0], "triton")
    required = torch.triton_required or known or ""
    if torch.triton and required and not _is_allowed(torch.triton, required):
        requires = f"PyTorch {torch.version} requires {required}"
        yield f"Triton is {torch.triton}, and {requires}: torch.compile may fail on a GPU"
    wheel = wheel_for(variant)
    if wheel and (found := _features(report)):
        for each in lacking(wheel, "config", found, has_cuda=variant.gpu is not None):
            yield f"{each.problem}; {each.explanation}"
    if variant.gpu and report.gpu:
        for gpu in report.cuda.devices:
            if report.gpu.capability != variant.gpu.capability == gpu.capability:
                yield f"--device {gpu.index}, {gpu.name} ({gpu.capability}), fits"
    skipped = {test.name: test for test in report.tests if test.outcome == "skipped"}
    for test in tests:
        is_run = test.device == "cpu" or (variant.gpu and report.gpu)
        if test.optional and is_run and test.name in skipped:
            yield f"{test.name} was skipped: {skipped[test.name].message or 'no reason given'}"


def _features(report: SmokeReport) -> dict[str, str]:
    """Return the features that torch names; {} if it says nothing of them."""
    torch = report.torch
    texts = [f"{torch.config}\n{torch.parallel}".encode()]
    return seen(texts, "config") if "Build settings: " in torch.config else {}


def _is_allowed(version: str, required: str) -> bool:
    """Whether a version is one that a requirement allows; True if that is unclear."""
    try:
        allowed = SpecifierSet(required if required[:1] in "~>=" else f"=={required}")
        return allowed.contains(version, prereleases=True)
    except InvalidSpecifier:
        return True
