"""The backend `nix` with --builders: one Nix hands all builds to remote machines over SSH."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import files, paths
from build_pytorch.base.console import counted
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build.backends.base_backend import BuildCommand, BuildSettings, Step
from build_pytorch.build.backends.nix_backend import NixBackend
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix import store
from build_pytorch.nix.log_format import with_json_log
from build_pytorch.results import artefacts

FROM_MATRIX: Final = "matrix"  #: the value of --builders for those of matrix.toml


class BuilderMachine(Struct, frozen=True):
    """A line of Nix's machines file (Nix manual, "Remote builds"). No platform: the host's."""

    uri: str
    platforms: frozenset[str]
    features: frozenset[str]
    mandatory: frozenset[str]

    def takes(self, system: str, features: Sequence[str], host: str) -> bool:
        """Whether Nix on a host of some platform may hand a derivation to it."""
        return (
            system in (self.platforms or {host})
            and self.features | self.mandatory >= set(features) >= self.mandatory
        )


class RemoteBackend(NixBackend):
    """Realises all derivations in one process, so that Nix spreads them over the machines.

    Raises BuildPytorchError for a machines file that cannot be read or is empty.
    """

    program = store.NIX_STORE
    is_remote = True
    shares_process = True
    no_builder = "no builder of --builders takes it"

    def __init__(self, settings: BuildSettings, matrix: Matrix, host: store.NixSettings) -> None:
        super().__init__(settings, matrix, host)
        self.file, self.machines = _machines(settings, matrix)
        self.summary = f"on {counted(len(self.machines), 'builder')}"

    def builder(self, system: str, features: Sequence[str]) -> str:
        """Return the address of the first machine that takes a derivation, or an empty text."""
        host = self.host.systems[0]
        return next((m.uri for m in self.machines if m.takes(system, features, host)), "")

    def command(self, steps: Sequence[Step], jobs: int, cores: int) -> BuildCommand:
        """Return one `nix-store --realise` for all steps; `jobs` and `cores` are the local ones."""
        drvs = [step.derivation.drv_path for step in steps if step.derivation]
        argv = store.realise_argv(drvs, jobs=jobs, cores=cores, builders=f"@{self.file}")
        return BuildCommand(argv, hidden=with_json_log(()))

    def outputs(self, step: Step, began: float, code: int) -> tuple[str, ...]:
        """Return the output of a step, whatever became of the others, and make its result link."""
        del code
        if not (step.derivation and self.finished([step])):
            return ()
        store.add_root(step.derivation.output, artefacts.link(self.settings.root, step.variant))
        return self._linked(step, began)


def _machines(settings: BuildSettings, matrix: Matrix) -> tuple[Path, list[BuilderMachine]]:
    """Return the machines file of --builders and its machines.

    That of matrix.toml is written into the state folder, except for a dry run.
    """
    if settings.builders == FROM_MATRIX:
        text = "".join(f"{builder.line}\n" for builder in matrix.builders)
        path, name = settings.root / paths.STATE / "machines", "matrix.toml"
        if text and not settings.dry_run:
            with files.write_errors(path):
                files.make_state(settings.root)
                files.write_all(settings.root, {f"{paths.STATE}/machines": text.encode()})
    else:
        path = Path(settings.builders.removeprefix("@")).resolve()
        name = f"--builders {settings.builders}"
        try:
            text = files.read_named(path, or_stdin=True).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "not UTF-8"
            raise BuildPytorchError(f"{name}: cannot be read: {why}") from None
    entries = [e.split() for line in text.splitlines() for e in line.partition("#")[0].split(";")]
    machines = [_machine(words) for words in entries if words]
    if not machines:
        how = "add a line, or [[builder]] in matrix.toml"
        raise BuildPytorchError(f"{name}: no builder in it; {how}")
    return path, machines


def _machine(words: Sequence[str]) -> BuilderMachine:
    """Return the machine of a line; a missing column or a dash is empty."""
    columns = [*words, *["-"] * 7]
    platforms, features, mandatory = (
        frozenset(() if columns[index] == "-" else columns[index].split(",")) for index in (1, 5, 6)
    )
    return BuilderMachine(words[0], platforms, features, mandatory)
