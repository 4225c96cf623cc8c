"""Every command with its options, declared once.

`tasks.py` makes an Invoke task of each, `noxfile.py` reads the arguments of its sessions by the
same declaration, docs/reference/commands.md lists them. What a command does and prints is in the
module of its name; it is imported only when the command runs, because all of
them together take longer to import than most commands take to run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Final

from msgspec import Meta
from msgspec.structs import replace

from build_pytorch.cli.declaration import Command, CommandOptions
from build_pytorch.matrix.model import Phase
from build_pytorch.matrix.selection import Selection, StateName

_Words = tuple[str, ...]
_PATTERNS: Final = "variants: ids, package names or patterns such as 'sm120-*'"

_Variants = Annotated[_Words, "VARIANT", f"{_PATTERNS} (default: all)"]
_Release = Annotated[str, "NAME", "only variants of this release"]
_File = Path | None
_Json = Annotated[bool, "print the result as JSON"]
_Verbose = Annotated[bool, "print all: also what stays as it is, reasons and notes"]
_DryRun = Annotated[bool, "do everything except writing"]
_Check = Annotated[bool, "write nothing; exit 1 if a file would change (CI, pre-commit)"]
_Many = Annotated[int, Meta(ge=1, le=100000)]
_Minutes = Annotated[_Many, "MINUTES", "maximum minutes for one download"]
_Assume = Annotated[
    str, "PIN", "do not evaluate nixpkgs to learn what it contains; assume the same as in this pin"
]
_Without = Annotated[_Words, "NAMES", "leave out these companions: torchaudio"]
_Number = Meta(ge=0, le=1023)


class SelectionOptions(CommandOptions, frozen=True):
    """What every command has that works on packages; a package has to be all that is given."""

    variants: _Variants = ()
    release: _Release = ""
    gpu: Annotated[
        _Words, "GPU", "for this GPU (sm90, 'RTX 4090'; none: without GPU); may be repeated"
    ] = ()
    isa: Annotated[_Words, "ISA", "for this CPU ISA (avx2); may be repeated"] = ()
    state: Annotated[
        tuple[StateName, ...], "STATE", "in this state (failed, not-built); may be repeated"
    ] = ()

    @property
    def selection(self) -> Selection:
        """The values of these options."""
        return Selection(**{name: getattr(self, name) for name in Selection.__struct_fields__})


class SomeOptions(SelectionOptions, frozen=True):
    """As SelectionOptions, of a command that does not take all packages if none is named."""

    variants: Annotated[_Words, "VARIANT", _PATTERNS] = ()


class PhaseOptions(CommandOptions, frozen=True):
    dry_run: Annotated[bool, "show the plan and write nothing"] = False
    check: _Check = False
    diff: Annotated[bool, "show changes as unified diffs"] = False
    force: Annotated[bool, "overwrite or delete hand-edited and uncommitted files too"] = False
    release: Annotated[str, "NAME", "only the recipes of this release"] = ""
    verbose: _Verbose = False
    json: _Json = False
    phases: tuple[Phase, ...] = tuple(Phase)
    verify: bool = False

    @property
    def is_read_only(self) -> bool:
        """Whether nothing may be written."""
        return self.dry_run or self.check


class DocsOptions(PhaseOptions, frozen=True):
    release: str = ""  # docs are of all releases


class VerifyOptions(SelectionOptions, frozen=True):
    only: Annotated[_Words, "CHECK", "run only this check or category; may be repeated"] = ()
    strict: Annotated[bool, "fail on warnings and on skipped checks too (CI)"] = False
    pinned: Annotated[bool, "evaluate with the pinned nixpkgs (minutes; network or store)"] = False
    github: Annotated[bool, "print GitHub annotations (default in GitHub Actions)"] = False
    against: Annotated[str, "REF", "say instead what is rebuilt since a Git commit, and why"] = ""
    expect: Annotated[str, "none", "with --against: exit 1 if anything is rebuilt"] = ""
    list: Annotated[bool, "list the checks and run none"] = False
    explain: Annotated[str, "CHECK", "describe a check and how to fix its findings"] = ""
    verbose: _Verbose = False
    json: _Json = False


_Nixpkgs = Annotated[
    str, "REVISION", "40 hex digits, key of a pin, or Flox's newest: stable, lts or unstable"
]
_Pre = Annotated[bool, "accept a pre-release"]


class PrefetchOptions(CommandOptions, frozen=True):
    only: Annotated[
        _Words, "SOURCE", "only this source (torch, nixpkgs, patch, ...); may be repeated"
    ] = ()
    check: Annotated[bool, "write nothing; exit 1 if a hash differs"] = False
    release: Annotated[str, "NAME", "only the sources of this release"] = ""
    accept: Annotated[bool, "accept a hash that changed although the revision did not"] = False
    assume: _Assume = ""
    from_log: Annotated[_File, "FILE", "take hashes from the log of a failed build (-: stdin)"] = (
        None
    )
    timeout: _Minutes = 60
    json: _Json = False


class BumpOptions(CommandOptions, frozen=True):
    dry_run: _DryRun = False
    verbose: _Verbose = False
    torch: Annotated[str, "VERSION", "PyTorch version to move to, such as 2.11.0"] = ""
    nixpkgs: _Nixpkgs = ""
    cuda: Annotated[str, "VERSION", "CUDA version to move to, such as 13.1"] = ""
    python: Annotated[str, "VERSION", "Python version to move to, such as 3.12"] = ""
    without: _Without = ()
    nightly: Annotated[
        str, "[DAY|REV]", "commit of a day (20251222) or a revision (default: the newest)"
    ] = ""
    release: Annotated[str, "NAME", "the release, if matrix.toml has several"] = ""
    as_: Annotated[str, "NAME", "make a new release of this name beside the old one"] = ""
    pre: _Pre = False
    assume: _Assume = ""
    timeout: _Minutes = 60


class OutdatedOptions(CommandOptions, frozen=True):
    release: Annotated[str, "NAME", "only this release, its pin and its CUDA"] = ""
    check: Annotated[bool, "exit 1 if something is newer (CI)"] = False
    json: _Json = False


class BuildOptions(SomeOptions, frozen=True):
    """0 and empty mean: chosen for this machine."""

    failed: Annotated[bool, "what failed: as --state failed"] = False
    not_built: Annotated[
        bool, "what has no current result and has not failed: not-built, outdated, interrupted"
    ] = False
    all: Annotated[bool, "all variants"] = False
    with_: Annotated[
        _Words, "NAMES", "also these companions of each variant: torchvision,torchaudio"
    ] = ()
    backend: Annotated[str, "NAME", "build backend: flox or nix (default: flox if installed)"] = ""
    jobs: Annotated[int, "N", "number of variants built at the same time", Meta(ge=1, le=1024)] = 1
    cores: Annotated[
        int, "N", "compile jobs of each build (default: by memory)", Meta(ge=0, le=4096)
    ] = 0
    builders: Annotated[str, "SPEC", "remote builders, handed to Nix: @FILE, or lines of one"] = ""
    dry_run: Annotated[bool, "show the plan and its hours, and build nothing"] = False
    keep_going: Annotated[bool, "continue after a failure (default)"] = False
    fail_fast: Annotated[bool, "stop everything at the first failure"] = False
    retry: Annotated[
        bool, "build again what would fail again: same recipe, cause not of the machine"
    ] = False
    keep_failed: Annotated[bool, "keep the folder of a build that fails (backend nix)"] = False
    fix_hashes: Annotated[bool, "take the right source hash from a failed build, continue"] = False
    force: Annotated[
        bool, "build despite failed verification, low disk space or missing hardware"
    ] = False
    verbose: _Verbose = False
    json: _Json = False

    @property
    def selection(self) -> Selection:
        """What is to be built."""
        states: list[StateName] = [*self.state, *(("failed",) if self.failed else ())]
        states += ("not-built", "outdated", "interrupted") if self.not_built else ()
        return replace(super().selection, state=tuple(states))


class InitOptions(CommandOptions, frozen=True):
    is_for_any: ClassVar[bool] = True
    what: Annotated[_Words, "DIR", "the folder of the project (default: this one)"] = ()


class DiagnoseOptions(CommandOptions, frozen=True):
    is_for_any: ClassVar[bool] = True
    log: Annotated[
        _Words, "LOG", "id of a package: its last log; or a file with a log (-: stdin)"
    ] = ()
    variant: Annotated[str, "ID", "variant that was built (default: as the log names it)"] = ""
    release: _Release = ""
    json: _Json = False


class LogOptions(SomeOptions, frozen=True):
    json: _Json = False


class StatusOptions(SelectionOptions, frozen=True):
    json: _Json = False


class ShowOptions(SomeOptions, frozen=True):
    verbose: _Verbose = False
    json: _Json = False


class SmokeOptions(SelectionOptions, frozen=True):
    python: Annotated[str, "PATH", "test the torch of this Python, not the built one"] = ""
    device: Annotated[int, "N", "number of the CUDA device", _Number] = 0
    timeout: Annotated[float, "MINUTES", "maximum minutes for one variant"] = 15.0
    json: _Json = False


class InspectOptions(SomeOptions, frozen=True):
    path: Annotated[
        _File, "DIR", "inspect the files of this folder as one variant (a wheel's torch/lib)"
    ] = None
    json: _Json = False


class CompareOptions(CommandOptions, frozen=True):
    variants: Annotated[
        _Words, "BUILD", "variant with a result here, store path, path of a Python, or wheel:2.10.0"
    ] = ()
    against: Annotated[
        str, "BUILD", "what it is compared with (default: the official wheel that is like it)"
    ] = ""
    python: Annotated[_Words, "PATH", "a Python as BUILD; a second one as --against"] = ()
    release: _Release = ""
    device: Annotated[
        str, "DEVICE", "cpu, or the number of a GPU (default: both, if both builds can)"
    ] = ""
    threads: Annotated[
        tuple[int, ...], "N", "threads on the CPU; may be repeated (default: 1, all cores)",
        Meta(ge=1, le=4096),
    ] = ()  # fmt: skip
    minutes: Annotated[
        float, "MINUTES", "time for all settings; each has 8 rounds in any case (default: 10)"
    ] = 10.0
    list: Annotated[bool, "list the workloads and run none"] = False
    show: Annotated[bool, "print all recorded comparisons and run none"] = False
    json: _Json = False


class PublishOptions(SomeOptions, frozen=True):
    org: Annotated[
        str, "NAME", "FloxHub organization (default: publisher of matrix.toml, or yourself)"
    ] = ""
    system: Annotated[
        str, "PLATFORM", "publish for this platform from another one (Flox: --system)"
    ] = ""
    without_evidence: Annotated[
        bool, "also publish variants that have no evidence; the ledger records it"
    ] = False
    dry_run: Annotated[bool, "check the preconditions of Flox and show the packages"] = False
    verbose: _Verbose = False
    json: _Json = False


class MachineOptions(CommandOptions, frozen=True):
    is_for_any: ClassVar[bool] = True
    machine: Annotated[
        _File, "FILE", "output of describe-machine, -: stdin (default: this machine)"
    ] = None
    gpu: Annotated[
        _Words,
        "GPU",
        "only this GPU, by its number in nvidia-smi; or, instead of those of the machine, a GPU by "
        "its name ('RTX 4090') or capability (8.9), which may be repeated; none: no GPU",
    ] = ()
    cpu: Annotated[str, "CPU", "a machine with this CPU: an ISA (avx2) or a name (zen4)"] = ""
    driver: Annotated[
        str,
        "VERSION",
        "a machine with this NVIDIA driver (550, 570.26), or with one for this CUDA (12.8)",
    ] = ""


class RecommendOptions(MachineOptions, frozen=True):
    release: _Release = ""
    verbose: _Verbose = False
    json: _Json = False


class DoctorOptions(MachineOptions, frozen=True):
    release: _Release = ""
    what: Annotated[
        _Words, "PYTHON", "the Python (default: of the active environment, else python3)"
    ] = ()
    json: _Json = False


class DescribeMachineOptions(CommandOptions, frozen=True):
    is_for_any: ClassVar[bool] = True
    output: Annotated[
        _File, "FILE", "write to this file, replacing a description (default, -: stdout)"
    ] = None


COMMANDS: Final = {
    command.name: command
    for command in (
        *(
            Command(
                phase.command,
                phase.summary,
                DocsOptions if phase is Phase.DOCS else PhaseOptions,
                "phases",
                {"phases": (phase,)},
            )
            for phase in Phase
        ),
        Command("all", "Run all phases, then verify.", PhaseOptions, "phases", {"verify": True}),
        Command("verify", "Check recipes and docs; exit 1 on errors.", VerifyOptions),
        Command("prefetch", "Fetch the hashes of all sources for matrix.toml.", PrefetchOptions),
        Command("bump", "Move a release to another PyTorch, nixpkgs or CUDA.", BumpOptions),
        Command("outdated", "List newer versions of PyTorch and nixpkgs.", OutdatedOptions),
        Command("build", "Build variants with Flox or Nix.", BuildOptions),
        Command("diagnose", "Name the failure in the log of a build.", DiagnoseOptions),
        Command("log", "Show the log of the last build of a package.", LogOptions),
        Command("status", "Show what failed, what runs, and what to do next.", StatusOptions),
        Command("show", "Show everything about one variant.", ShowOptions),
        Command("smoke", "Test built variants by running PyTorch.", SmokeOptions),
        Command("inspect", "Inspect built files; no GPU needed.", InspectOptions),
        Command("compare", "Compare the speed of a build with the official wheel.", CompareOptions),
        Command("publish", "Publish built and tested variants with Flox.", PublishOptions),
        Command("recommend", "Recommend a variant for a machine, with reasons.", RecommendOptions),
        Command("doctor", "Judge the torch of a Python on a machine.", DoctorOptions),
        Command("init", "Begin a project with a matrix.toml of one variant.", InitOptions),
        Command("describe-machine", "Describe this machine as JSON.", DescribeMachineOptions),
    )
}
"""Every command by its name, in the order in which the docs list them."""
