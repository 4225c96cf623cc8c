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
from build_pytorch.nix.store import NixSettings
from build_pytorch.results import artefacts

FROM_MATRIX: Final = "matrix"
"""The value of --builders for those of matrix.toml."""

_FEATURES, _MANDATORY = 5, 6
"""Columns of the machines file, counted from 0."""


class BuilderMachine(Struct, frozen=True):
    """A line of Nix's machines file. Nix manual, "Remote builds"."""

    uri: str
    platforms: tuple[str, ...] = ()
    """Empty: the platform of the host."""
    features: tuple[str, ...] = ()
    mandatory: tuple[str, ...] = ()

    def takes(self, system: str, features: Sequence[str], host: str) -> bool:
        """Whether Nix on a host of some platform may hand a derivation to it."""
        return (
            system in (self.platforms or (host,))
            and set(features) <= {*self.features, *self.mandatory}
            and set(self.mandatory) <= set(features)
        )


class RemoteBackend(NixBackend):
    """Realises all derivations in one process, so that Nix spreads them over the machines.

    Raises BuildPytorchError for a machines file that cannot be read or is empty.
    """

    program = store.NIX_STORE
    is_remote = True
    shares_process = True
    needs_derivations = True
    no_builder = "no builder of --builders takes it"

    def __init__(self, settings: BuildSettings, matrix: Matrix, host: NixSettings) -> None:
        super().__init__(settings, matrix, host)
        self.file, text = _machines_file(settings, matrix)
        name = "matrix.toml" if settings.builders == FROM_MATRIX else str(self.file)
        self.machines = parse_machines(text, name)
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
        link = artefacts.link(self.settings.root, step.variant)
        store.add_root(step.derivation.output, link)
        return self._linked(step, began)


def parse_machines(text: str, name: str) -> tuple[BuilderMachine, ...]:
    """Return the machines of a machines file. Raises BuildPytorchError where there is none."""
    entries = [e.split() for line in text.splitlines() for e in line.partition("#")[0].split(";")]
    machines = tuple(
        BuilderMachine(words[0], *(_column(words, i) for i in (1, _FEATURES, _MANDATORY)))
        for words in entries
        if words
    )
    if not machines:
        raise BuildPytorchError(f"{name}: no builder in it; see docs/fleet.md")
    return machines


def _column(words: Sequence[str], index: int) -> tuple[str, ...]:
    """Return a column of names separated by commas; a missing one or a dash is empty."""
    word = words[index] if index < len(words) else "-"
    return () if word == "-" else tuple(word.split(","))


def _machines_file(settings: BuildSettings, matrix: Matrix) -> tuple[Path, str]:
    """Return the machines file and its text; that of matrix.toml is written, except dry runs."""
    if settings.builders != FROM_MATRIX:
        path = Path(settings.builders.removeprefix("@"))
        try:
            return path.resolve(), path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "not UTF-8"
            raise BuildPytorchError(
                f"--builders {settings.builders}: cannot be read: {why}"
            ) from None
    if not matrix.builders:
        raise BuildPytorchError("matrix.toml: has no [[builder]]; add one, or name a file")
    text = "".join(f"{builder.line}\n" for builder in matrix.builders)
    path = settings.root / paths.STATE / "machines"
    if not settings.dry_run:
        with files.write_errors(path):
            files.make_state(path.parent)
        files.write_atomically(path, text.encode())
    return path, text
