"""`@command`: a task of Invoke whose expected errors end as one line and an exit code.

A signature declares the options of a command, its docstring is the help. HELP has the texts of
options by name, `@command(texts={...})` those that differ for one task.
"""

from __future__ import annotations

import functools
import inspect
import io
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import Task

from build_pytorch.base import paths
from build_pytorch.base.console import Screen
from build_pytorch.base.errors import (
    EXIT_BAD_INPUT,
    EXIT_FINDINGS,
    EXIT_OK,
    BuildPytorchError,
    NothingSelectedError,
)

if TYPE_CHECKING:
    from build_pytorch.matrix.model import Matrix

# Invoke turns bytecode off: each command would compile the whole package.
sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))

HELP: Final = {
    "packages": "ids, package names, 'sm90-*', a release, all, failed, not-built; with commas",
    "accept": "accept a hash that changed although the revision did not",
    "against": "the build or Git commit to compare with",
    "as_": "make a new release of this name beside the old one",
    "backend": "build backend: flox or nix (default: flox if installed)",
    "build": "a variant with a result here, a store path, a Python, or wheel:2.10.0",
    "builders": "remote builders, handed to Nix: @FILE, or lines of one",
    "check": "write nothing; exit 1 if something would change (CI, pre-commit)",
    "cores": "compile jobs of each build (default: by memory)",
    "cpu": "a machine with this CPU: an ISA (avx2) or a name (zen4)",
    "cuda": "CUDA version to move to, such as 13.1",
    "describe": "print the machine as JSON, for --machine",
    "device": "number of the CUDA device",
    "directory": "the folder of the project",
    "driver": "a machine with this NVIDIA driver (550), or with one for this CUDA (12.8)",
    "dry_run": "show the plan and change nothing",
    "explain": "describe a check and how to fix its findings, and run none",
    "flox": "print the block of a Flox manifest for the machine",
    "force": "overwrite or delete hand-edited and uncommitted files too",
    "from_log": "take hashes from the log of a failed build (-: stdin)",
    "gpu": "GPUs by name ('RTX 4090'), capability (8.9) or number in nvidia-smi; none: no GPU",
    "jobs": "number of packages built at the same time",
    "json": "print the result as JSON",
    "keep_failed": "keep the folder of a build that fails (backend nix)",
    "log": "id of a package: its last log; or a file with a log (-: stdin)",
    "machine": "a file that `recommend --describe` wrote, -: stdin (default: this machine)",
    "minutes": "time for all settings; each has 8 rounds in any case",
    "nightly": "commit of a day (20251222) or a revision (default: the newest)",
    "nixpkgs": "40 hex digits, key of a pin, or Flox's newest: stable, lts or unstable",
    "only": "names with commas: run only these",
    "org": "FloxHub organization (default: publisher of matrix.toml, or yourself)",
    "package": "id of a variant or companion, or a package name",
    "page": "write the HTML page with the states of this ledger to this file",
    "path": "inspect the files of this folder as one variant (a wheel's torch/lib)",
    "pinned": "evaluate with the pinned nixpkgs (minutes; network or store)",
    "python": "path of a Python: use its torch",
    "release": "a release of matrix.toml",
    "retry": "build again what would fail again: same recipe, cause not of the machine",
    "strict": "fail on warnings and skipped checks too; with --against on any rebuild",
    "system": "publish for this platform from another one (Flox: --system)",
    "threads": "numbers of threads on the CPU, with commas (default: 1 and all cores)",
    "timeout": "maximum minutes for one variant",
    "torch": "PyTorch version to move to, such as 2.11.0",
    "upstream": "run PyTorch's own tests: a default set, or these files (test_torch,test_nn)",
    "variant": "variant that was built (default: as the log names it)",
    "verbose": "print all: also what stays as it is, reasons and notes",
    "with_": "companions to add for each variant: torchvision,torchaudio",
    "without_evidence": "publish without evidence too; the ledger records it",
}
"""What an option means, by the name of its parameter."""

TASKS: Final[dict[str, Task[Any]]] = {}
"""Every task by its name, once menu.py is imported."""

_ENDINGS: Final = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal was closed",
}
"""What a command says that a signal ended; its exit code is 128 and the number."""

Body = Callable[..., int | None]
"""A command: a function of Invoke's context and options, which returns its exit code."""


def command(
    body: Body | None = None,
    *,
    name: str | None = None,
    optional: Sequence[str] = (),
    texts: Mapping[str, str] = {},
) -> Callable[..., Any]:
    """Make a task of a command. `optional`: options whose value may be left out.

    `texts`: the help of options where it is not that of HELP.
    """
    if body is None:
        return functools.partial(command, name=name, optional=optional, texts=texts)

    @functools.wraps(body)
    def run(context: Context, **options: str | bool) -> None:
        if code := guarded(lambda: _call(body, context, options)):
            raise Exit(code=code)

    taken = list(inspect.signature(body).parameters)[1:]
    words = {key: {**HELP, **texts}.get(key, "") for key in taken}
    task: Task[Any] = Task(run, name=name, optional=optional, help=words)
    TASKS[str(task.name)] = task
    return task


def _call(body: Body, context: Context, options: Mapping[str, str | bool]) -> int | None:
    """Run a command, unless its words have an accident that Invoke does not see."""
    if {"-h", "--help"} & set(map(str, options.values())):  # it was taken for a positional word
        fix = f"write it before the name: `invoke --help {body.__name__}`"
        raise BuildPytorchError(f"--help: {fix}")
    for before, word in itertools.pairwise(sys.argv):
        if not word.strip() or (word.startswith("-") and word.endswith("=")):
            fix = "give a value or leave the option out"
            what = "found an empty value, as from a variable that is not set"
            raise BuildPytorchError(f"{word.strip().removesuffix('=') or before}: {what}; {fix}")
    try:
        stdin = {key: "/dev/stdin" for key, value in options.items() if value == "-"}
        return body(context, **{**options, **stdin})
    except NothingSelectedError as nothing:
        from build_pytorch.base.console import Screen, print_json

        if options.get("json"):
            print_json({"variants": [], "packages": [], "exit_code": EXIT_OK}, sys.stdout)
        Screen(sys.stderr if options.get("json") else sys.stdout).line(f"nothing to do: {nothing}")
        return EXIT_OK


_Number = TypeVar("_Number", int, float)


def number(option: str, text: str, low: _Number, high: _Number) -> _Number:
    """Return the number that an option has, of the type of its limits.

    Raises BuildPytorchError for any other text.
    """
    try:
        value = type(low)(text)
        if low <= value <= high:
            return value
    except ValueError:
        pass
    kind = "a whole number" if isinstance(low, int) else "a number"
    raise BuildPytorchError(f'{option}: found "{text[:40]}"; allowed: {kind} from {low} to {high}')


def words(text: str) -> tuple[str, ...]:
    """Return the words of an option that separates them by commas."""
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def exit_code_of(outcomes: Iterable[str]) -> int:
    """Return the exit code of tests: 0 if all passed, 1 if one failed, else 3."""
    found = set(outcomes)
    if "failed" in found:
        return EXIT_FINDINGS
    return EXIT_OK if found == {"passed"} else 3


def project(*, is_for_any: bool = False) -> Path:
    """Return the project of the current folder: the nearest folder upwards with a matrix.toml.

    Raises BuildPytorchError if there is none, unless the command is for any folder.
    """
    here = Path.cwd()
    root = next((it for it in (here, *here.parents) if (it / paths.MATRIX).exists()), here)
    if not (is_for_any or (root / paths.MATRIX).exists() or (root / ".flox").exists()):
        fix = f"`{paths.SCRIPT} init DIR` writes one"
        raise BuildPytorchError(f"{root}: no matrix.toml here or in a folder above; {fix}")
    return root


def load(*, is_for_any: bool = False) -> Matrix:
    """Return the matrix of the project, for any folder that of this package if there is none.

    Raises BuildPytorchError.
    """
    from build_pytorch.matrix import matrix_reader

    return matrix_reader.load(project(is_for_any=is_for_any))


class _Ended(KeyboardInterrupt):
    """A signal that ends a run as Ctrl-C does; its number is the argument."""


def guarded(run: Callable[[], int | None]) -> int:
    """Run a command and return its exit code.

    Expected errors, a missing dependency and the signals of _ENDINGS end without a traceback, and
    programs that were started end as well. Anything else is a bug and keeps it.
    """
    handlers = {number: signal.getsignal(number) for number in (*_ENDINGS, signal.SIGPIPE)}
    try:
        for number in _ENDINGS:
            if handlers[number] is not signal.SIG_IGN:  # as for what a shell runs in the background
                signal.signal(number, _raise_first)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # work goes on if nobody reads the output
        _prepare_streams()
        return run() or EXIT_OK
    except BuildPytorchError as error:
        return _complain(str(error).split("\n"), EXIT_BAD_INPUT)
    except KeyboardInterrupt as error:
        ended_by = signal.Signals(error.args[0] if isinstance(error, _Ended) else signal.SIGINT)
        what = f"{_ENDINGS[ended_by]}; every file is whole, run again to go on"
        return _complain([what], 128 + ended_by)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("build_pytorch"):
            raise
        fix = "run `pip install -e .` as README.md describes"
        sys.stderr.write(f"error: the Python package {error.name} is missing; {fix}\n")
        return EXIT_BAD_INPUT
    except OSError as error:
        if not error.filename:
            _give_up_stdout()
        where = error.filename or "standard output"
        return _complain([f"{where}: {error.strerror}; fix that and run again"], EXIT_BAD_INPUT)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _prepare_streams() -> None:
    """Make printing work in any encoding of the terminal, and without stdout or stderr (`>&-`)."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _raise_first(ended_by: int, _frame: FrameType | None) -> None:
    """End the run; later signals are ignored, as the first one ends started programs with it."""
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    process = sys.modules.get("build_pytorch.base.process")
    if kill := getattr(process, "kill_started", None):  # not while the module is imported
        kill()
    raise _Ended(ended_by)


def _give_up_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _complain(lines: Sequence[str], code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _give_up_stdout()
    for line in lines:
        Screen(sys.stderr).line(line if line.startswith("  ") else f"error: {line}")
    return code
