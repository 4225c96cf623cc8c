"""What a build works on, and the two programs that build: Flox and Nix."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct

from build_pytorch.base import git, process
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.tables import environment_of
from build_pytorch.nix import store
from build_pytorch.nix.derivations import Derivation
from build_pytorch.nix.log_format import with_json_log
from build_pytorch.nix.store import NixSettings, valid_paths
from build_pytorch.results import artefacts, evidence

_CLOCK_SKEW: Final = 0.1  #: seconds by which the time stamps of files may be behind our clock


class BuildSettings(Struct, frozen=True, kw_only=True):
    """How to build. Zero and empty values are decided by the machine."""

    root: Path
    backend: str = ""
    jobs: int = 1
    cores: int = 0
    builders: str = ""
    dry_run: bool = False
    fail_fast: bool = False
    keep_failed: bool = False
    fix_hashes: bool = False
    retry: bool = False
    force: bool = False


class BuildAction(StrEnum):
    """What a run does with a package."""

    BUILD = "build"
    REMOTE = "build remotely"  #: this machine cannot build it, and a remote builder may
    CURRENT = "up to date"
    SKIPPED = "skipped"
    FAILED = "failed"  #: before, and would fail again


class Step(Struct, frozen=True, kw_only=True):
    """What a run does with one package, and why."""

    package: Package
    action: BuildAction
    reason: str
    digest: str
    derivation: Derivation | None = None

    @property
    def is_build(self) -> bool:
        """Whether the package is built."""
        return self.action in {BuildAction.BUILD, BuildAction.REMOTE}

    @property
    def is_variant(self) -> bool:
        """Whether it is of a variant, not of a companion."""
        return self.package is self.package.variant

    @property
    def name(self) -> str:
        """The name of what is built: unique in a plan, and the name of the folder of its logs."""
        return self.package.attribute


class BuildCommand(Struct, frozen=True):
    """A program with changes of its environment; `hidden` arguments are added and not shown."""

    argv: Sequence[str]
    env: Mapping[str, str | None] = {}
    hidden: Sequence[str] = ()


class BuildBackend:
    """Builds recipes with one program; a step that was interrupted goes on with the same command.

    A new backend is a subclass in BACKENDS.
    """

    name: ClassVar[str]  #: the value of --backend, also in the ledger
    program: ClassVar[str]  #: the backend is available if this is on PATH

    def __init__(self, settings: BuildSettings, host: NixSettings) -> None:
        self.settings = settings
        self.host = host

    def obstacles(self, steps: Sequence[Step]) -> Iterator[str]:  # noqa: ARG002 - for others
        """Yield what prevents these builds, each with what to do."""
        yield from ()

    def command(self, step: Step, cores: int) -> BuildCommand:
        """Return the program that builds a step."""
        raise NotImplementedError

    def outputs(self, step: Step, began: float) -> tuple[str, ...]:
        """Return the store paths of a step whose program succeeded; its result link protects them.

        `began` is the time when the program was started. Empty if the link is older and of another
        derivation. Raises ToolError if the store does not answer.
        """
        link = artefacts.link(self.settings.root, step.package)
        target = artefacts.target(link)
        is_ours = step.derivation is not None and target in step.derivation.outputs.values()
        # The result of Flox is another derivation, which wraps the recipe's.
        if not is_ours and (self.name != NixBackend.name or step.derivation is None):
            is_ours = link.is_symlink() and link.lstat().st_ctime >= began - _CLOCK_SKEW
        return (target,) if is_ours and valid_paths([target]) else ()


class FloxBackend(BuildBackend):
    """Builds a package of .flox/pkgs with `flox build`, which sees only files that Git tracks."""

    name = "flox"
    program = "flox"

    def obstacles(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield recipes that Git does not track."""
        root = self.settings.root
        if refusal := git.refusal(root):
            yield f"{refusal}; Flox builds only what Git tracks; use --backend nix"
            return
        recipes = [path for step in steps for path in evidence.recipe_files(root, step.package)]
        tracked = set(git.run(root, "ls-files", "--", *recipes).stdout.splitlines())
        if missing := [path for path in dict.fromkeys(recipes) if path not in tracked]:
            yield f"Flox sees only files that Git tracks: {git.add_command(missing)}"

    def command(self, step: Step, cores: int) -> BuildCommand:
        """Return `flox build`; the number of cores reaches the Nix inside by NIX_CONFIG."""
        config = os.environ.get("NIX_CONFIG", "")
        folder = environment_of(step.package.folder)
        place = [] if folder == "." else ["--dir", folder]
        argv = ["flox", "build", *place, step.package.package]
        return BuildCommand(argv, {"NIX_CONFIG": f"{config}\ncores = {cores}"})


class NixBackend(BuildBackend):
    """Builds each recipe with one `nix-build`, here or where nix.conf sends builds."""

    name = "nix"
    program = store.NIX_BUILD

    def command(self, step: Step, cores: int) -> BuildCommand:
        """Return `nix-build` with the result link; its log names the derivation of each line."""
        link = artefacts.link_of(self.settings.root, step.name).name
        argv = store.build_argv(step.package.path, link, cores)
        if self.settings.keep_failed:
            argv.append("--keep-failed")
        if self.settings.builders:
            argv += ["--builders", self.settings.builders]
        if step.action is BuildAction.REMOTE and step.package.platform in self.host.systems:
            argv += ["--max-jobs", "0"]
        return BuildCommand(argv, hidden=with_json_log(()))


BACKENDS: Final[tuple[type[BuildBackend], ...]] = (FloxBackend, NixBackend)
"""In the order in which they are tried without --backend."""


def choose_backend(settings: BuildSettings, host: NixSettings) -> tuple[BuildBackend, str]:
    """Return the first fitting backend that is installed, else the first and what to do.

    Raises BuildPytorchError for options that do not fit.
    """
    name, names = settings.backend, [backend.name for backend in BACKENDS]
    if name and name not in names:
        hint = near_miss(name, names) or f"; there are {' and '.join(names)}"
        raise BuildPytorchError(f'--backend: no backend "{name}"{hint}')
    if settings.builders and name not in {"", NixBackend.name}:
        raise BuildPytorchError(f"--builders works only with Nix; omit --backend {name}")
    wanted = NixBackend.name if settings.builders else name
    candidates = [backend for backend in BACKENDS if wanted in {"", backend.name}]
    for backend in candidates:
        if process.which(backend.program):
            return backend(settings, host), ""
    programs = " nor ".join(backend.program for backend in candidates)
    missing = f"neither {programs} is installed; see https://flox.dev or nixos.org"
    if len(candidates) == 1:
        missing = f"{programs}: not found; install it or choose another --backend"
    return candidates[0](settings, host), missing
