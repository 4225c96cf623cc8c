"""One comparison: two builds, the machine, every setting, the outcome and its record."""

from __future__ import annotations

import datetime as dt
import functools
import json
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct, structs

from build_pytorch.base import files, installed_torch, paths, process
from build_pytorch.base.console import counted, waiting
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.compare import workloads
from build_pytorch.compare.measurement import MeasuredSetting, ProcessReport, Verdict, measure
from build_pytorch.hardware import detect
from build_pytorch.matrix.available import INDEX
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.versions import minor_version, order
from build_pytorch.nix import store
from build_pytorch.results import artefacts, evidence
from build_pytorch.results.ledger import TestOutcome
from build_pytorch.results.package_state import chosen_package
from build_pytorch.smoke.smoke_case import built_python, python_answer

_WHEEL: Final = re.compile(r"wheel:(\d+(?:\.\d+)+(?:\+(cpu|cu\d+))?)")
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_SECONDS: Final = 600.0
"""Maximum seconds of one process, whose import may come from a cold network file system."""

Say = Callable[[str], object]
_Answer = TypeVar("_Answer", bound=Struct)


class ComparedTorch(Struct, frozen=True, kw_only=True):
    """What torch says of itself in base/installed_torch.py; sizes are in bytes."""

    label: str = ""
    python: str
    version: str
    file: str
    cuda: str | None = None
    library_bytes: int = 0
    closure: int = 0  #: the result with all that it needs; 0: not in a Nix store

    @property
    def wheel(self) -> str:
        """The name of the official wheel of the same PyTorch version and CUDA."""
        line = f"cu{self.cuda.replace('.', '')}" if self.cuda else "cpu"
        return f"wheel:{order(self.version).base_version}+{line}"


class ComparedBuild(Struct, frozen=True, kw_only=True):
    """A Python with the torch that is measured, and the result that it is of."""

    label: str
    python: Path
    env: Mapping[str, str | None] = {}
    package: Package | None = None
    result: Path | None = None

    def answer(self, kind: type[_Answer], *argv: str, threads: int = 0) -> _Answer:
        """Run a script with so many threads (0: any) and return what it prints.

        Raises BuildPytorchError with the reason if it fails.
        """
        env = dict.fromkeys(_THREADS, str(threads)) if threads else {}
        env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            return python_answer([str(self.python), *argv], {**self.env, **env}, _SECONDS, kind)[0]
        except BuildPytorchError as error:
            raise BuildPytorchError(f"{self.label}: {error}") from None


class Comparison(Struct, frozen=True, kw_only=True):
    """The result; the fields are keys of --json and of the report's file."""

    a: ComparedTorch
    b: ComparedTorch
    machine: str  #: its class: CPU, number of cores, GPU
    settings: tuple[MeasuredSetting, ...]
    outcome: TestOutcome
    """failed: A is slower, lacks a workload or had other threads; skipped: too noisy to tell."""
    reasons: tuple[str, ...]
    alias: str = ""
    """The line for matrix.toml that makes A an alias of B, which is no slower; empty for others."""
    recorded: bool = False
    report: str = ""


def compare(  # noqa: PLR0913 - the options of the command
    matrix: Matrix,
    names: Sequence[str],
    say: Say,
    *,
    device: str,
    threads: Sequence[int],
    minutes: float,
    cores: int,
) -> tuple[Comparison, ComparedBuild]:
    """Measure A against B, the two `names`, and record it as evidence for A. Returns A as well.

    `device`, empty: the CPU, and the GPU where both can use it. `threads`, empty: one and `cores`,
    those that this process may use. Raises BuildPytorchError.
    """
    machine = detect.this_machine()
    a, a_torch = find_build(matrix, names[0], None, say)
    b, b_torch = find_build(matrix, names[1], a_torch, say)
    settings = [("cpu", number) for number in threads or dict.fromkeys((1, cores))]
    if device not in {"", "cpu"}:
        settings = [(device, 0)]
    elif not device and a_torch.cuda and b_torch.cuda and machine.gpus:
        settings.append(("0", 0))
    found = []
    for place, number in settings:
        title = counted(number, "thread") if number else f"GPU {place}"
        argv = (ProcessReport, workloads.__file__, place)
        runs = [functools.partial(it.answer, *argv, threads=number) for it in (a, b)]
        found.append(measure(runs, title, number, minutes * 60 / len(settings)))
    cpu = machine.cpu.model or "unknown CPU"
    verdicts = {measured.verdict for measured in found}
    otherwise: TestOutcome = "skipped" if Verdict.NOISY in verdicts else "passed"
    result = Comparison(
        a=a_torch,
        b=b_torch,
        machine=", ".join([cpu, f"{cores} cores", *filter(None, (it.gpu for it in found))]),
        settings=tuple(found),
        outcome="failed" if Verdict.SLOWER in verdicts else otherwise,
        reasons=tuple(f"{it.title}: {reason}" for it in found for reason in it.reasons),
        alias=alias_line(a.package, b.package, found, cpu),
    )
    recorded = evidence.record_evidence(
        matrix.root, a.package, a.result, test="compare", result=result
    )
    return recorded, a


def alias_line(
    a: Package | None, b: Package | None, settings: Sequence[MeasuredSetting], cpu: str
) -> str:
    """Return the line that makes A an alias of B: both differ in the ISA, and A is not faster.

    Empty for other packages, and where a setting is undecided or A and B did not run alike.
    """
    fair = {Verdict.EQUAL, Verdict.SLOWER}
    is_fair = all(it.verdict in fair and it.verdict is it.mean.verdict for it in settings)
    if not (is_fair and a and b and a.cpu.level > b.cpu.level):
        return ""
    if (a.release_name, a.gpu_key, a.name) != (b.release_name, b.gpu_key, b.name):
        return ""
    ratios = "; ".join(f"{measured.title}: {measured.mean}" for measured in settings)
    now = dt.datetime.now(dt.UTC)
    said = f"{a.version}, {a.short_id} / {b.short_id}, {ratios}, {cpu}, {now:%Y-%m-%d}"
    return f'cpu.{a.cpu_key} = {{ same_as = "{b.cpu_key}", evidence = {json.dumps(said)} }}'


def find_build(
    matrix: Matrix, text: str, like: ComparedTorch | None, say: Say
) -> tuple[ComparedBuild, ComparedTorch]:
    """Return the build that a person names, and what its torch says of itself.

    `wheel` alone is the official wheel of the version and CUDA of `like`. A wheel that is missing
    is installed, and `say` prints from where. Raises BuildPytorchError.
    """
    build = _build_of(matrix, text, like, say)
    with waiting(f"starting {build.label}"):
        torch = build.answer(ComparedTorch, installed_torch.__file__)
    closure, output, package = 0, build.result, build.package
    of_torch = package and not package.companion
    if output and of_torch and not artefacts.holds(output, torch.file):
        raise BuildPytorchError(f"{build.label}: imports another torch, {torch.file}")
    if output and process.which(store.NIX_STORE):
        closure = sum(store.sizes(store.requisites(str(output))))
    return build, structs.replace(torch, label=build.label, closure=closure)


def _build_of(matrix: Matrix, text: str, like: ComparedTorch | None, say: Say) -> ComparedBuild:
    if text.partition(":")[0] == "wheel":
        name = like.wheel if like and text == "wheel" else text
        return wheel(matrix.root, name, like.python if like else platform.python_version(), say)
    path = Path(text)
    if path.is_absolute() and path.is_relative_to(store.folder()) and path.is_dir():
        version = re.search(r"-python(3\.\d+)-", path.name)
        if version is None:
            raise BuildPytorchError(f"{text}: not the store path of a Python package")
        python, env = artefacts.interpreter(path, version[1])
        return ComparedBuild(label=path.name[33:], python=python, env=env, result=path)
    if "/" in text and (found := shutil.which(text)):
        return ComparedBuild(label=text, python=Path(found).absolute())
    package = chosen_package(matrix, text)
    own, inside, built = built_python(matrix.root, package)
    return ComparedBuild(label=package.id, python=own, env=inside, package=package, result=built)


def wheel(root: Path, name: str, python: str, say: Say) -> ComparedBuild:
    """Return the virtualenv of an official wheel in the state folder; install it if it is missing.

    `python`: the Python version that is preferred; without its program that of this process. Raises
    BuildPytorchError with the reason of pip.
    """
    found = _WHEEL.fullmatch(name)
    if found is None:
        raise BuildPytorchError(f"{name}: write wheel:2.10.0 or wheel:2.10.0+cu128")
    version, line = found.groups()
    base = shutil.which(f"python{minor_version(python)}") or sys.executable
    folder = root / paths.STATE / "wheels" / f"{version}-{Path(base).name}"
    own, done = str(folder / "bin/python"), folder / "complete"
    if not done.exists():
        origin = f"{INDEX}{line}" if line else "PyPI, or the index of your own settings"
        say(f"{name}: installing into {folder}, from {origin}; up to 5 GB")
        install = [own, "-m", "pip", "--disable-pip-version-check", "install", "--no-color"]
        install += [f"torch=={version}", *(["--index-url", origin] if line else [])]
        with waiting(f"installing {name}"):
            for argv in ([base, "-m", "venv", "--clear", str(folder)], install):
                result = process.run(argv)
                if result.code:
                    said = (result.stderr or result.stdout or "no output").strip().splitlines()
                    raise ToolError(f"{name}: cannot be installed: {said[-1]}")
        files.write_all(folder, {done.name: b""})
    return ComparedBuild(label=f"wheel {version}", python=Path(own))
