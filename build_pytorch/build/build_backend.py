"""What a build backend is: obstacles, command, log reader, outputs; and what it works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Literal

from msgspec import Struct

from build_pytorch.build.log_reader import TextLogReader
from build_pytorch.matrix.model import Package, Variant
from build_pytorch.nix.derivations import Derivation
from build_pytorch.nix.log_format import LogLine
from build_pytorch.nix.store import NixSettings, valid_paths
from build_pytorch.results import artefacts

_CLOCK_SKEW: Final = 0.1  #: seconds by which the time stamps of files may be behind our clock

LogReader = Callable[[bytes], Iterator[LogLine]]
"""Returns the lines of the log in one line of output."""


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


class Step(Struct, frozen=True, kw_only=True):
    """What a run does with one package, and why."""

    package: Package
    action: Literal["build", "up to date", "skipped", "failed"]  #: failed: before, for good
    reason: str
    digest: str
    derivation: Derivation | None = None
    only_remote: bool = False  #: whether this machine cannot build it, and a remote builder may
    needs: str = ""  #: the name of the step that must be built before this one begins
    local_packages: str = ""  #: the local checkout that its CUDA packages come from

    @property
    def variant(self) -> Variant:
        """The variant that is built, or whose companion is built."""
        return self.package.variant

    @property
    def is_variant(self) -> bool:
        """Whether it builds a variant, not a companion."""
        return self.package is self.variant

    @property
    def name(self) -> str:
        """The name of what is built: unique in a plan, and the name of the folder of its logs."""
        return self.package.attribute

    @property
    def id(self) -> str:
        """The name that people see."""
        return self.package.id

    @property
    def subject(self) -> tuple[str, str]:
        """The release and the name in events of the ledger."""
        return self.variant.release_name, self.package.short_id


class BuildCommand(Struct, frozen=True):
    """A program with changes of its environment; `hidden` arguments are added and not shown."""

    argv: Sequence[str]
    env: Mapping[str, str | None] = {}
    hidden: Sequence[str] = ()


class BuildBackend:
    """Builds recipes with one program. backends.py has the subclasses.

    A step that was interrupted is resumed by running its command again: the program continues
    with what its store already has.
    """

    name: ClassVar[str]  #: the value of --backend, also in the ledger
    program: ClassVar[str]  #: the backend is available if this is on PATH
    wraps_derivation: ClassVar[bool] = False  #: whether results differ from the recipe's output

    def __init__(self, settings: BuildSettings, host: NixSettings) -> None:
        self.settings = settings
        self.host = host

    def obstacles(self, steps: Sequence[Step]) -> Iterator[str]:  # noqa: ARG002 - for others
        """Yield what prevents these builds, each with what to do."""
        yield from ()

    def command(self, step: Step, cores: int) -> BuildCommand:
        """Return the program that builds a step."""
        raise NotImplementedError

    def reader(self, step: Step) -> LogReader:
        """Return a reader for the output of a new process."""
        return TextLogReader(step.package.package).read

    def owner(self, step: Step) -> str:
        """Return the derivation that the reader names in lines of this step."""
        return step.package.package

    def outputs(self, step: Step, began: float, code: int) -> tuple[str, ...]:
        """Return the store paths of a finished step, which its result link protects.

        `began` is the time when the process was started, `code` its exit code. Empty if the step
        is not built. Raises ToolError if the store does not answer.
        """
        return () if code else self._linked(step, began)

    def _linked(self, step: Step, began: float) -> tuple[str, ...]:
        link = artefacts.link(self.settings.root, step.package)
        target = artefacts.target(link)
        is_ours = step.derivation is not None and target in step.derivation.outputs.values()
        # Without a derivation to compare with, only a link that this build made counts.
        if not is_ours and (self.wraps_derivation or step.derivation is None):
            is_ours = link.is_symlink() and link.lstat().st_ctime >= began - _CLOCK_SKEW
        return (target,) if is_ours and valid_paths([target]) else ()
