"""What a build works on, and the two programs that build: Flox and Nix."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from build_pytorch.base import git, process
from build_pytorch.base.errors import BuildPytorchError, ToolError
from build_pytorch.matrix.model import Package
from build_pytorch.matrix.tables import environment_of
from build_pytorch.nix import store
from build_pytorch.nix.store import Derivation, NixSettings, valid_paths
from build_pytorch.results import artefacts

FLOX: Final = "flox"
NIX: Final = store.NIX
PROGRAMS: Final = {FLOX: "flox", NIX: store.NIX_BUILD}
"""Program by name of the backend, in the order in which they are tried without --backend."""
_CLOCK_SKEW: Final = 0.1  #: seconds by which the time stamps of files may be behind our clock


class BuildSettings(Struct, frozen=True, kw_only=True):
    """How to build. Zero and empty values are decided by the machine."""

    root: Path
    backend: str = ""
    jobs: int = 1
    cores: int = 0
    builders: str = ""
    dry_run: bool = False
    keep_failed: bool = False
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


class BuildCommand(NamedTuple):
    """A program with changes of its environment."""

    argv: Sequence[str]
    env: Mapping[str, str | None] = {}


class BuildBackend:
    """Builds recipes with one program; a step that was interrupted goes on with the same command.

    `name` is the value of --backend, also in the ledger.
    """

    def __init__(self, name: str, settings: BuildSettings, host: NixSettings) -> None:
        self.name = name
        self.settings = settings
        self.host = host

    def obstacles(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield recipes that Git does not track: Flox sees only the others."""
        root = self.settings.root
        if self.name != FLOX:
            return
        recipes = [path for step in steps for path in artefacts.recipe_files(root, step.package)]
        try:
            tracked = set(git.run(root, "ls-files", "--", *recipes).splitlines())
        except ToolError as error:
            yield f"{error}; Flox builds only what Git tracks; use --backend nix"
            return
        if missing := [path for path in dict.fromkeys(recipes) if path not in tracked]:
            yield f"Flox sees only files that Git tracks: `git add {' '.join(missing)}`"

    def command(self, step: Step, cores: int) -> BuildCommand:
        """Return the program that builds a step.

        `flox build` hands NIX_CONFIG to the Nix inside. The log of `nix-build` names the derivation
        of each line.
        """
        package, builders = step.package, self.settings.builders
        if self.name == FLOX:
            folder = environment_of(package.folder)
            place = [] if folder == "." else ["--dir", folder]
            config = f"{os.environ.get('NIX_CONFIG', '')}\ncores = {cores}"
            return BuildCommand(["flox", "build", *place, package.package], {"NIX_CONFIG": config})
        argv = store.build_argv(package.path, f"result-{step.name}", cores)
        argv += ["--keep-failed"] if self.settings.keep_failed else []
        argv += ["--builders", builders] if builders else []
        if step.action is BuildAction.REMOTE and package.platform in self.host.systems:
            argv += ["--max-jobs", "0"]
        return BuildCommand(argv)

    def outputs(self, step: Step, began: float) -> tuple[str, ...]:
        """Return the store paths of a step whose program succeeded; its result link protects them.

        `began` is the time when the program was started. Empty if the link is older and of another
        derivation. Raises ToolError if the store does not answer.
        """
        link = artefacts.link(self.settings.root, step.package)
        target = artefacts.target(link)
        is_ours = step.derivation is not None and target in step.derivation.outputs.values()
        # The result of Flox is another derivation, which wraps the recipe's.
        if not is_ours and (self.name == FLOX or step.derivation is None):
            is_ours = link.is_symlink() and link.lstat().st_ctime >= began - _CLOCK_SKEW
        return (target,) if is_ours and valid_paths([target]) else ()


def choose_backend(settings: BuildSettings, host: NixSettings) -> tuple[BuildBackend, str]:
    """Return the first fitting backend that is installed, else the first and what to do.

    Raises BuildPytorchError for options that do not fit.
    """
    name = settings.backend
    if name not in {"", *PROGRAMS}:
        known = " and ".join(PROGRAMS)
        raise BuildPytorchError(f'--backend: no backend "{name}"; there are {known}')
    if settings.builders and name == FLOX:
        raise BuildPytorchError(f"--builders works only with Nix; omit --backend {name}")
    names = [name] if name else [NIX] if settings.builders else list(PROGRAMS)
    found = [name for name in names if process.which(PROGRAMS[name])]
    missing = f"not installed: {' or '.join(PROGRAMS[name] for name in names)}"
    missing = "" if found else f"{missing}; see https://flox.dev or https://nixos.org"
    return BuildBackend([*found, *names][0], settings, host), missing
