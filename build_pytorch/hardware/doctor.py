"""Judge the torch that a Python has: the same choice, asked of what is installed."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from build_pytorch.base import files, foreign_json, installed_torch, process
from build_pytorch.base.console import waiting
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.hardware.choose import Choice
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.hardware.verdict import judge
from build_pytorch.matrix.available import AvailableBuild, driver_of
from build_pytorch.matrix.compatibility import capability_of
from build_pytorch.matrix.versions import order

_SECONDS: Final = 120.0  #: at most, for an import of torch from a cold network file system
_Text = Annotated[str, Meta(max_length=20000)]


class InstalledTorch(Struct, frozen=True, kw_only=True):
    """Every torch that a Python finds, of which it imports the first, and what that reports."""

    python: _Text
    folders: tuple[_Text, ...]
    installer: Literal["pip", "uv", "conda", "other"]  #: other: the system owns this Python
    error: _Text = ""  #: of the import
    version: _Text = ""
    cuda: _Text | None = None
    arch_list: tuple[_Text, ...] = ()
    problem: _Text = ""  #: why it cannot use CUDA


class DoctorFinding(Struct, frozen=True):
    """One thing that is not right, and the command that repairs it."""

    verdict: Literal["wrong", "works, but"]
    text: str
    command: str


def ask(python: str) -> tuple[str, InstalledTorch]:
    """Return the path of a Python, and what it says of its torch. Links are not resolved.

    Without a name it is that of the active environment, or python3. Raises BuildPytorchError if it
    is no Python.
    """
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    name = python or (f"{active}/bin/python" if active else "python3")
    found = shutil.which(name)
    if found is None:
        raise BuildPytorchError(f"{name}: no such program; name the Python that has torch")
    path = str(Path(found).absolute())
    text = files.read_named(Path(installed_torch.__file__)).decode()
    with waiting(f"importing the torch of {path}"):
        ran = process.run([path, "-c", text], seconds=_SECONDS)
    why = f"code {ran.code}, {ran.last_line[:400]}"
    why = f"no answer after {_SECONDS:g} s" if ran.expired else why
    first, _, second = ran.stdout.partition("\n")
    try:
        rest = foreign_json.decode(second) if second else {"error": f"Python ended: {why}"}
        return path, msgspec.convert({**foreign_json.decode(first), **rest}, InstalledTorch)
    except (ValueError, TypeError) as error:
        raise BuildPytorchError(
            f"{path}: its answer is not that of a Python 3.8 or newer ({error}): {ran.last_line}"
        ) from None


def diagnose(
    python: str, torch: InstalledTorch, machine: Machine, choice: Choice
) -> tuple[DoctorFinding, ...]:
    """Return what is not right, the worst first; nothing if the torch is as good as the best."""
    repair = _repair(python, torch, choice)
    if not torch.folders:
        return (DoctorFinding("wrong", "no torch is installed", repair),)
    first, *hidden = torch.folders
    found = list(_judged(torch, machine, choice, repair))
    if hidden:
        is_here = first == f"{Path.cwd()}/torch"  # the folder of the user comes first on the path
        command = "cd /" if is_here else f"{shlex.quote(python)} -m pip uninstall torch"
        text = f"{first} hides {', '.join(hidden)}"
        found.insert(0, DoctorFinding("wrong" if torch.error else "works, but", text, command))
    return tuple(sorted(found, key=lambda finding: finding.verdict != "wrong"))


def _repair(python: str, torch: InstalledTorch, choice: Choice) -> str:
    """Return the command that gives a Python the best PyTorch for the machine."""
    command = choice.now[0].command if choice.now else "invoke recommend"
    _, is_pip, words = command.partition("pip install ")
    if not is_pip or torch.installer == "conda":
        return command
    if torch.installer == "other":
        return f"python3 -m venv torch-env && torch-env/bin/pip install {words}"
    if torch.installer == "uv":
        return f"uv pip install --python {shlex.quote(python)} --reinstall {words}"
    again = "--force-reinstall " * bool(torch.folders)
    return f"{shlex.quote(python)} -m pip install {again}{words}"


def _judged(
    torch: InstalledTorch, machine: Machine, choice: Choice, repair: str
) -> Iterator[DoctorFinding]:
    """Yield what keeps a torch from being as good as the best that can be installed."""
    cuda = (torch.cuda or "") * bool(machine.gpus)
    code, ptx = (
        tuple(filter(None, (capability_of(it) for it in torch.arch_list if it.startswith(kind))))
        for kind in ("sm_", "compute_")
    )
    build = AvailableBuild(
        who="installed",
        versions=(torch.version.partition("+")[0],),
        platform=machine.platform,
        cuda=cuda,
        code=code,
        ptx=ptx,
        driver=driver_of(cuda),
    )
    own = judge(build, machine)
    best = judge(choice.now[0].build, machine) if choice.now else own
    missing = [gpu.name for gpu in best.used if gpu.index not in own.gpus]
    names, listed = ", ".join(dict.fromkeys(missing)), " ".join(torch.arch_list) or "none"
    newest, is_limited = best.build.version, "CUDA_VISIBLE_DEVICES" in os.environ
    if torch.error:
        yield DoctorFinding("wrong", f"torch cannot be imported: {torch.error}", repair)
    elif not own.runs:
        yield DoctorFinding("wrong", f"{'; '.join(own.obstacles)} (code: {listed})", repair)
    elif torch.problem and own.gpus:
        command = "unset CUDA_VISIBLE_DEVICES" if is_limited else "nvidia-smi"
        yield DoctorFinding("wrong", f"torch finds no GPU: {torch.problem}", command)
    elif names and not own.gpus:
        yield DoctorFinding("wrong", f"a build without CUDA: {names} stays unused", repair)
    elif names:
        yield DoctorFinding("works, but", f"no code for {names} (code: {listed})", repair)
    elif order(newest) > order(build.version):
        text = f"this is {build.version}, and {newest} runs here too"
        yield DoctorFinding("works, but", text, repair)
    elif "ptx" in own.gpus.values():
        text = "PTX, which the driver compiles at the first start"
        yield DoctorFinding("works, but", text, repair)
