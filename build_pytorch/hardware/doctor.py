"""Judge an installed torch on a machine, with the command that repairs what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct

from build_pytorch.base.console import quoted
from build_pytorch.hardware.choice import Choice
from build_pytorch.hardware.saved_machines import Machine, MachineGpu
from build_pytorch.hardware.verdicts import Obstacle, driver_limit
from build_pytorch.hardware.wheels import wheel_need
from build_pytorch.matrix import official_wheels
from build_pytorch.matrix.build_features import lacking, seen, wheel_like
from build_pytorch.matrix.official_wheels import OfficialWheel

Verdict = Literal[
    "right", "works, better available", "slow", "cannot run on this GPU", "cannot run"
]
"""From the best to the worst."""

_FAST: Final = frozenset(
    {"blas", "blas_threads", "onednn", "acl", "openmp", "fbgemm", "nnpack", "cudnn"}
)
"""Features without which operators are slow; without the others some do not exist."""

_Text = Annotated[str, Meta(max_length=20000)]


class TorchPackage(Struct, frozen=True):
    """The metadata of an installed package `torch`."""

    version: _Text
    folder: _Text
    installer: _Text


class InstalledTorch(Struct, frozen=True, kw_only=True):
    """Every torch that a Python finds; it imports the first."""

    python: _Text
    folders: tuple[_Text, ...]
    packages: tuple[TorchPackage, ...]
    conda: bool
    """Whether conda installed a package pytorch."""
    pip: bool = True
    closed: bool = False
    """Whether pip would refuse to install into this Python."""
    visible_devices: _Text | None

    def origin(self, folder: str) -> Literal["Nix", "Debian", "conda", "wheel", "source folder"]:
        """Return where the torch of a folder comes from."""
        if folder.startswith("/nix/store/"):
            return "Nix"
        if folder.startswith("/usr/lib/python3/dist-packages/"):
            return "Debian"
        installers = {each.installer for each in self.packages if each.folder == folder}
        if "conda" in installers or (self.conda and not installers & {"pip", "uv"}):
            return "conda"
        return "wheel" if installers else "source folder"


class ImportedTorch(Struct, frozen=True, kw_only=True):
    """What a torch reports after its import, or the error. `problem`: why it cannot use CUDA."""

    error: _Text = ""
    version: _Text = ""
    folder: _Text = ""
    cuda: _Text | None = None
    hip: _Text | None = None
    codes: tuple[_Text, ...] = ()
    config: _Text = ""
    threads: _Text = ""
    problem: _Text = ""


class DoctorFinding(Struct, frozen=True):
    """One thing that is not right, and the command that repairs it."""

    verdict: Verdict
    text: str
    command: str


class Installation(Struct, frozen=True, kw_only=True):
    """The torch of a Python on a machine, and what is chosen for that machine."""

    python: str
    installed: InstalledTorch
    torch: ImportedTorch
    machine: Machine
    choice: Choice

    def install(self) -> str:
        """Return the command that installs what the machine should have."""
        wheel, best = self.choice.wheel, self.choice.best
        if wheel is None or (self.machine.gpus and not wheel.runs_on):
            build = best.variant if best else None
            is_fitting = build and (build.gpu or not self.machine.gpus)
            return f"invoke build {build.id}" if build and is_fitting else "invoke recommend"
        return f"{self._installer()} {wheel.command.removeprefix('uv pip install ')}"

    @property
    def features(self) -> dict[str, str]:
        """What the torch says of itself that is compiled in, each with its kind or version."""
        texts = [f"{self.torch.config}\n{self.torch.threads}".encode()]
        return seen(texts, "config") if "Build settings: " in self.torch.config else {}

    @property
    def wheel(self) -> OfficialWheel | None:
        """The official wheel of the same version, if one was read."""
        version = self.torch.version.partition("+")[0]
        return wheel_like(version, self.machine.platform, self.torch.cuda or "")

    def _installer(self) -> str:
        """Return the beginning of the command; only pip and uv change what they installed."""
        python, installed = quoted(self.python), self.installed
        folder = self.torch.folder or next(iter(installed.folders), "")
        if installed.closed or (folder and installed.origin(folder) != "wheel"):
            return "python3 -m venv torch-env && torch-env/bin/pip install"
        if not installed.pip or any(each.installer == "uv" for each in installed.packages):
            return f"uv pip install --python {python}{' --reinstall' * bool(folder)}"
        return f"{python} -m pip install{' --force-reinstall' * bool(folder)}"


def diagnose(case: Installation) -> tuple[DoctorFinding, ...]:
    """Return what is not right, the worst first. A machine without GPUs needs no code for any."""
    found = list(_several(case))
    if not case.torch.error:
        found += [*_gpu_findings(case), *_feature_findings(case)]
    elif not case.installed.folders:
        found = [DoctorFinding("cannot run", "no torch is installed", case.install())]
    elif not found:
        text = f"torch cannot be imported: {case.torch.error}"
        found = [DoctorFinding("cannot run", text, case.install())]
    verdicts = get_args(Verdict)
    return tuple(sorted(found, key=lambda finding: -verdicts.index(finding.verdict)))


def _several(case: Installation) -> Iterator[DoctorFinding]:
    """Yield a finding where one torch hides another, or two are mixed in one folder."""
    first, *hidden = case.installed.folders or ("",)
    versions = sorted({each.version for each in case.installed.packages})
    text = f"{first} hides {', '.join(hidden)}"
    command = f"{quoted(case.python)} -m pip uninstall torch"
    if hidden and case.installed.origin(first) == "source folder":
        command = "cd /"  # the folder of the user comes first on the path
    elif not hidden and len(versions) > 1:
        text = f"{first} has the metadata of several torch: {', '.join(versions)}"
    elif not hidden:
        return
    if case.torch.error:
        yield DoctorFinding("cannot run", f"{text}, and: {case.torch.error}", command)
    else:
        yield DoctorFinding("works, better available", text, command)


def _gpu_findings(case: Installation) -> Iterator[DoctorFinding]:
    torch, gpus = case.torch, case.machine.gpus
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus))
    if gpus and torch.hip:
        text = f"built for AMD GPUs (ROCm {torch.hip}), and this machine has {names}"
        yield DoctorFinding("cannot run on this GPU", text, case.install())
    elif gpus and not torch.cuda:
        text = f"a build without CUDA computes on the CPU, and this machine has {names}"
        yield DoctorFinding("slow", text, case.install())
    if not (gpus and torch.cuda):
        return
    found = [problem for gpu in gpus if (problem := _gpu_problem(case, torch.cuda, gpu))]
    useless = [problem for problem in found if problem.verdict == "cannot run on this GPU"]
    for each in dict.fromkeys(found):
        # With one of several GPUs, torch works.
        is_partial = each in useless and len(useless) < len(gpus)
        verdict: Verdict = "works, better available" if is_partial else each.verdict
        yield DoctorFinding(verdict, each.text, each.command)
    if torch.problem and not useless:
        is_limited = case.installed.visible_devices is not None
        command = "unset CUDA_VISIBLE_DEVICES" if is_limited else "nvidia-smi"
        text = f"torch finds no GPU: {torch.problem}"
        yield DoctorFinding("cannot run on this GPU", text, command)


def _feature_findings(case: Installation) -> Iterator[DoctorFinding]:
    """Yield what the official wheel of the same version has, and this torch lacks."""
    wheel, found = case.wheel, case.features
    if wheel is None or not found:
        return
    for each in lacking(wheel, "config", found, has_cuda=bool(case.torch.cuda)):
        verdict: Verdict = "slow" if each.name in _FAST else "works, better available"
        yield DoctorFinding(verdict, f"{each.problem}; {each.explanation}", case.install())


def _gpu_problem(case: Installation, cuda: str, gpu: MachineGpu) -> DoctorFinding | None:
    """Return what is wrong with the code of a CUDA build on a GPU, or with the driver."""
    codes, name = " ".join(case.torch.codes) or "no GPU", f"{gpu.name} ({gpu.capability})"
    if gpu.capability is None:
        return None
    own = OfficialWheel(
        torch="", platform="x86_64-linux", cuda=cuda, index="", sass=case.torch.codes,
        source="", checked="",
    )  # fmt: skip
    runs = official_wheels.runs_on(own, gpu.capability)
    text = "" if runs else f"no code for {name}: {codes}"
    if runs == "ptx":
        text = f"only PTX for {name}, which the driver compiles when a program starts: {codes}"
    limit = driver_limit(wheel_need(own, gpu.capability), case.machine, gpu)
    if runs and isinstance(limit, Obstacle):
        text = "; ".join(filter(None, (text, f"update the NVIDIA driver: {limit.text}")))
    elif runs == "ptx":
        return DoctorFinding("works, better available", text, case.install())
    return DoctorFinding("cannot run on this GPU", text, case.install()) if text else None
