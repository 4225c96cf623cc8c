"""The backend `nix` with --builders: one Nix hands all builds to remote machines over SSH."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import files, paths
from build_pytorch.base.console import counted
from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build.backends.base_backend import BuildCommand, BuildSettings, Step
from build_pytorch.build.backends.nix_backend import NixBackend
from build_pytorch.build.build_obstacles import missing_flags, some
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.tables import CpuIsa
from build_pytorch.nix import store
from build_pytorch.nix.derivations import Derivation
from build_pytorch.nix.log_format import with_json_log

FROM_MATRIX: Final = "matrix"  #: the value of --builders for those of matrix.toml


class BuilderMachine(Struct, frozen=True):
    """A line of Nix's machines file (Nix manual, "Remote builds"). No platform: the host's."""

    uri: str
    platforms: frozenset[str]
    features: frozenset[str]
    mandatory: frozenset[str]
    line: str

    def takes(self, system: str, features: Sequence[str], host: str) -> bool:
        """Whether Nix on a host of some platform may hand a derivation to it."""
        return (
            system in (self.platforms or {host})
            and self.features | self.mandatory >= set(features) >= self.mandatory
        )

    def runs(self, cpu: CpuIsa) -> bool:
        """Whether it states that its CPU runs an ISA, where the ISA has a feature for that."""
        return cpu.builder_feature in {None, *self.features, *self.mandatory}


class RemoteBackend(NixBackend):
    """Realises all derivations in one process, so that Nix spreads them over the machines.

    Nix knows platforms and system features, not CPUs: a machine that does not state the feature of
    an ISA is left out of a run that has variants of the ISA, unless their recipes require it.

    Raises BuildPytorchError for a machines file that cannot be read or is empty.
    """

    program = store.NIX_STORE
    is_remote = True
    shares_process = True
    no_builder = "no builder of --builders takes it"

    def __init__(self, settings: BuildSettings, matrix: Matrix, host: store.NixSettings) -> None:
        super().__init__(settings, matrix, host)
        self.machines = _machines(settings, matrix)
        self.summary = f"on {counted(len(self.machines), 'builder')}"

    def builder(self, variant: Variant, derivation: Derivation | None) -> str:
        """Return the address of the first machine that builds a variant, or an empty text."""
        takers = self._takers(variant, derivation)
        return next((machine.uri for machine in takers if machine.runs(variant.cpu)), "")

    def _takers(self, variant: Variant, derivation: Derivation | None) -> list[BuilderMachine]:
        """Return the machines to which Nix may hand a variant, whatever their CPU is."""
        system = derivation.system if derivation else variant.cpu.platform
        features = derivation.features if derivation else ()
        host = self.host.systems[0]
        return [machine for machine in self.machines if machine.takes(system, features, host)]

    def _unfit(self, steps: Sequence[Step]) -> dict[BuilderMachine, list[Step]]:
        """Return the machines to which Nix may hand a step that their CPU does not run."""
        unfit: dict[BuilderMachine, list[Step]] = {}
        for step in steps:
            for machine in self._takers(step.variant, step.derivation):
                if not machine.runs(step.variant.cpu):
                    unfit.setdefault(machine, []).append(step)
        return unfit

    def warnings(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield the machines that are left out, because Nix cannot tell their CPUs apart."""
        for machine, unfit in self._unfit(steps).items():
            features = some(sorted({step.variant.cpu.builder_feature or "" for step in unfit}))
            ids = some([step.variant.id for step in unfit])
            yield (
                f"{machine.uri} is left out: it does not state {features}, which {ids} needs; "
                "state it if its CPU runs it, or set require_builder_feature in matrix.toml"
            )

    def command(self, steps: Sequence[Step], jobs: int, cores: int) -> BuildCommand:
        """Return one `nix-store --realise` for all steps; `jobs` and `cores` are the local ones.

        Writes the machines file. Raises WriteError.
        """
        unfit = self._unfit(steps)
        lines = [f"{machine.line}\n" for machine in self.machines if machine not in unfit]
        root = self.settings.root
        path = root / paths.STATE / "machines"
        with files.write_errors(path):
            files.make_state(root)
            files.write_all(root, {f"{paths.STATE}/machines": "".join(lines).encode()})
        drvs = [step.derivation.drv_path for step in steps if step.derivation]
        is_local = not any(missing_flags(step.variant) for step in steps)
        argv = store.realise_argv(
            drvs, jobs=jobs if is_local else 0, cores=cores, builders=f"@{path}"
        )
        return BuildCommand(argv, hidden=with_json_log(()))

    def outputs(self, step: Step, began: float, code: int) -> tuple[str, ...]:
        """Return the output of a step, whatever became of the others, and make its result link."""
        del code
        if not (step.derivation and self.finished([step])):
            return ()
        store.add_root(step.derivation.output, self.link(step))
        return self._linked(step, began)


def _machines(settings: BuildSettings, matrix: Matrix) -> list[BuilderMachine]:
    """Return the machines of --builders. Raises BuildPytorchError if there are none."""
    if settings.builders == FROM_MATRIX:
        text, name = "\n".join(builder.line for builder in matrix.builders), "matrix.toml"
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
    return machines


def _machine(words: Sequence[str]) -> BuilderMachine:
    """Return the machine of a line; a missing column or a dash is empty."""
    columns = [*words, *["-"] * 7]
    platforms, features, mandatory = (
        frozenset(() if columns[index] == "-" else columns[index].split(",")) for index in (1, 5, 6)
    )
    return BuilderMachine(words[0], platforms, features, mandatory, " ".join(words))
