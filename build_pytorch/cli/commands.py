"""Every command with its options, declared once.

`tasks.py` makes an Invoke task of each, `noxfile.py` reads the arguments of its sessions by the
same declaration, docs/reference/commands.md lists them. What a command does and prints is in the
module that its `function` names; that module is imported only when the command runs, because all of
them together take longer to import than most commands take to run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from msgspec import field

from build_pytorch.base import paths
from build_pytorch.cli.declaration import Command, CommandOptions, described
from build_pytorch.matrix.field_types import Workload

_Variants = Annotated[
    tuple[str, ...],
    described(
        "variants: ids, package names or patterns such as 'sm120-*' (default: all)", "VARIANT"
    ),
]
_SomeVariants = Annotated[
    tuple[str, ...],
    described("variants: ids, package names or patterns such as 'sm120-*'", "VARIANT"),
]
_Root = Annotated[
    Path, described("the checkout to work on, with this matrix.toml (default: this one)", "DIR")
]
_Json = Annotated[bool, described("print the result as JSON")]
_Minutes = Annotated[int, described("maximum minutes for one download", "MINUTES", ge=1, le=100000)]
_Release = Annotated[str, described("the release, if matrix.toml has several", "NAME")]


class PhaseOptions(CommandOptions, frozen=True):
    """Options of the phases."""

    dry_run: Annotated[bool, described("show the plan and write nothing")] = False
    check: Annotated[
        bool, described("write nothing; exit 1 if something would change (CI, pre-commit)")
    ] = False
    diff: Annotated[bool, described("show changes as unified diffs")] = False
    force: Annotated[
        bool, described("overwrite or delete files that were edited by hand or are not committed")
    ] = False
    json: _Json = False
    root: _Root = paths.PROJECT

    @property
    def is_read_only(self) -> bool:
        """Whether nothing may be written."""
        return self.dry_run or self.check


class VerifyOptions(CommandOptions, frozen=True):
    """Options of `verify`."""

    variants: _Variants = ()
    only: Annotated[
        tuple[str, ...],
        described("run only this check or check category; may be repeated", "CHECK"),
    ] = ()
    strict: Annotated[bool, described("fail on warnings and on skipped checks too (CI)")] = False
    pinned: Annotated[
        bool,
        described("evaluate with the pinned nixpkgs itself (needs network or store; minutes)"),
    ] = False
    sarif: Annotated[Path | None, described("write findings as SARIF 2.1.0", "FILE")] = None
    junit: Annotated[Path | None, described("write results as JUnit XML", "FILE")] = None
    github: Annotated[bool, described("print GitHub annotations (default in GitHub Actions)")] = (
        False
    )
    list: Annotated[bool, described("list the checks and run none")] = False
    explain: Annotated[str, described("describe a check and how to fix its findings", "CHECK")] = ""
    json: _Json = False
    root: _Root = paths.PROJECT


class PrefetchOptions(CommandOptions, frozen=True):
    """Options of `prefetch`."""

    only: Annotated[
        tuple[str, ...],
        described("only this source (torch, nixpkgs, magma_patch); may be repeated", "SOURCE"),
    ] = ()
    check: Annotated[bool, described("write nothing; exit 1 if a hash differs")] = False
    accept: Annotated[
        bool, described("accept a hash that changed although the revision did not")
    ] = False
    from_log: Annotated[
        Path | None, described("take hashes from the log of a failed build (-: stdin)", "FILE")
    ] = None
    timeout: _Minutes = 60
    json: _Json = False


class BumpOptions(CommandOptions, frozen=True):
    """Options of `bump`."""

    torch: Annotated[str, described("PyTorch version to move to, such as 2.11.0", "VERSION")] = ""
    nixpkgs: Annotated[str, described("nixpkgs revision to move to, 40 hex digits", "REVISION")] = (
        ""
    )
    cuda: Annotated[str, described("CUDA version to move to, such as 13.1", "VERSION")] = ""
    release: _Release = ""
    pre: Annotated[bool, described("accept a pre-release")] = False
    dry_run: Annotated[bool, described("do everything except writing")] = False
    timeout: _Minutes = 60


class OutdatedOptions(CommandOptions, frozen=True):
    """Options of `outdated`."""

    json: _Json = False


class BuildCommandOptions(CommandOptions, frozen=True):
    """Options of `build`. 0 and empty mean: chosen for this machine."""

    variants: _SomeVariants = ()
    gpu: Annotated[
        tuple[str, ...],
        described(
            "variants of this GPU architecture (sm90; cpu: CPU-only); may be repeated", "GPU"
        ),
    ] = ()
    isa: Annotated[
        tuple[str, ...], described("variants of this CPU ISA (avx2); may be repeated", "ISA")
    ] = ()
    all: Annotated[bool, described("all variants")] = False
    backend: Annotated[
        str, described("build backend: flox or nix (default: flox if installed)", "NAME")
    ] = ""
    jobs: Annotated[int, described("variants to build at once", "N", ge=1, le=1024)] = 1
    cores: Annotated[
        int, described("compile jobs of each build (default: by memory)", "N", ge=0, le=4096)
    ] = 0
    builders: Annotated[
        str,
        described("use remote builders: a file in Nix's format, or `matrix`", "FILE"),
    ] = ""
    copy_to: Annotated[
        str,
        described("push results to a binary cache: file:///srv/cache, s3://..., ssh://...", "URL"),
    ] = ""
    store: Annotated[str, described("the same as --copy-to", "URL")] = ""
    secret_key: Annotated[
        Path | None, described("sign what is pushed with the key in this file", "FILE")
    ] = None
    dry_run: Annotated[bool, described("show the plan and build nothing")] = False
    keep_going: Annotated[bool, described("continue after a failure (default)")] = False
    fail_fast: Annotated[bool, described("stop everything at the first failure")] = False
    fix_hashes: Annotated[
        bool, described("take the right hash of a source from a failed build, then continue")
    ] = False
    force: Annotated[
        bool, described("build despite failed verification, low disk space or missing hardware")
    ] = False
    json: _Json = False
    root: _Root = paths.PROJECT


class StatusOptions(CommandOptions, frozen=True):
    """Options of `status`."""

    variants: _Variants = ()
    json: _Json = False
    root: _Root = paths.PROJECT


class CiMatrixOptions(CommandOptions, frozen=True):
    """Options of `ci-matrix`."""

    variants: _Variants = ()
    size: Annotated[
        int, described("variants in one job; a job never mixes groups", "N", ge=1, le=100000)
    ] = 1
    store: Annotated[
        str, described("leave out variants that this binary cache has (needs Nix)", "URL")
    ] = ""
    runner: Annotated[
        tuple[str, ...],
        described("runner label for a platform, x86_64-linux=big; may be repeated", "LABEL"),
    ] = ()
    root: _Root = paths.PROJECT


class SmokeOptions(CommandOptions, frozen=True):
    """Options of `smoke`."""

    variants: _Variants = ()
    python: Annotated[
        str, described("test the torch of this Python, not the built one", "PATH")
    ] = ""
    device: Annotated[int, described("number of the CUDA device", "N", ge=0, le=1023)] = 0
    timeout: Annotated[float, described("maximum minutes for one variant", "MINUTES")] = 15.0
    json: _Json = False
    root: _Root = paths.PROJECT


class InspectOptions(CommandOptions, frozen=True):
    """Options of `inspect`."""

    variants: _SomeVariants = ()
    path: Annotated[
        Path | None,
        described("inspect the files of this folder as one variant (a wheel's torch/lib)", "DIR"),
    ] = None
    json: _Json = False
    root: _Root = paths.PROJECT


class PublishCommandOptions(CommandOptions, frozen=True):
    """Options of `publish`."""

    variants: _SomeVariants = ()
    org: Annotated[str, described("FloxHub organization (default: your own)", "NAME")] = ""
    without_evidence: Annotated[
        bool, described("also publish variants that have no evidence; the ledger records it")
    ] = False
    unproved: Annotated[bool, described("old name of --without-evidence")] = False
    dry_run: Annotated[
        bool, described("check the preconditions of Flox and show what would be published")
    ] = False
    json: _Json = False
    root: _Root = paths.PROJECT


class RecommendOptions(CommandOptions, frozen=True):
    """Options of `recommend`."""

    machine: Annotated[
        Path | None,
        described("a description from describe-machine, -: stdin (default: this machine)", "FILE"),
    ] = None
    workload: Annotated[Workload, described("choose the CPU ISA for this work", "WORK")] = field(
        default="training", name="for"
    )
    gpu: Annotated[
        int | None, described("only this GPU, by its number in nvidia-smi", "N", ge=0, le=1023)
    ] = None
    release: Annotated[str, described("only variants of this release", "NAME")] = ""
    json: _Json = False
    root: _Root = paths.PROJECT


class DescribeMachineOptions(CommandOptions, frozen=True):
    """Options of `describe-machine`."""

    output: Annotated[
        Path | None,
        described(
            "write to this file, replacing an older description (default, -: stdout)", "FILE"
        ),
    ] = None


COMMANDS: Final = {
    command.name: command
    for command in (
        Command(
            "phase1",
            "Clean up: delete the files that matrix.toml lists.",
            PhaseOptions,
            "phases:phase1",
        ),
        Command(
            "phase2",
            "Generate the GPU recipes for x86.",
            PhaseOptions,
            "phases:phase2",
        ),
        Command("phase3", "Generate the GPU recipes for ARM.", PhaseOptions, "phases:phase3"),
        Command("phase4", "Generate the CPU-only recipes.", PhaseOptions, "phases:phase4"),
        Command(
            "phase5", "Update docs, counts and the JSON schema.", PhaseOptions, "phases:phase5"
        ),
        Command("all", "Run the five phases, then verify.", PhaseOptions, "phases:all_phases"),
        Command(
            "verify",
            "Check recipes and docs; exit 1 on errors.",
            VerifyOptions,
            "verify:run",
        ),
        Command(
            "prefetch",
            "Take the hashes of all sources into matrix.toml.",
            PrefetchOptions,
            "prefetch:run",
        ),
        Command(
            "bump",
            "Move a release to another PyTorch, nixpkgs or CUDA.",
            BumpOptions,
            "bump:run",
        ),
        Command(
            "outdated",
            "List newer versions of PyTorch and nixpkgs.",
            OutdatedOptions,
            "outdated:run",
        ),
        Command(
            "build",
            "Build variants with Flox or Nix.",
            BuildCommandOptions,
            "build:run",
        ),
        Command(
            "status",
            "Show the state of each variant.",
            StatusOptions,
            "status:run",
        ),
        Command(
            "ci-matrix",
            "Print the job matrix for GitHub Actions.",
            CiMatrixOptions,
            "ci_matrix:run",
        ),
        Command(
            "smoke",
            "Test built variants by running PyTorch.",
            SmokeOptions,
            "smoke:run",
        ),
        Command(
            "inspect",
            "Inspect built files; no GPU needed.",
            InspectOptions,
            "inspect:run",
        ),
        Command(
            "publish",
            "Publish built and tested variants with Flox.",
            PublishCommandOptions,
            "publish:run",
        ),
        Command(
            "recommend",
            "Name the right variant for a machine, and why.",
            RecommendOptions,
            "recommend:run",
        ),
        Command(
            "describe-machine",
            "Describe this machine as JSON, for `recommend`.",
            DescribeMachineOptions,
            "describe_machine:run",
        ),
    )
}
"""Every command by its name, in the order in which the docs list them."""
