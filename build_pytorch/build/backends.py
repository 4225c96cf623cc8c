"""The build backends: Flox, Nix, and Nix with remote builders. A new one is a class in BACKENDS."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from build_pytorch.base import files, git, process
from build_pytorch.base.console import counted, some
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.build.build_backend import (
    BuildBackend,
    BuildCommand,
    BuildSettings,
    LogReader,
    Step,
)
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.tables import CpuIsa, environment_of
from build_pytorch.nix import store
from build_pytorch.nix.derivations import Derivation
from build_pytorch.nix.log_format import NixLogReader, with_json_log
from build_pytorch.results import artefacts, evidence

FROM_MATRIX: Final = "matrix"  #: the value of --builders for those of matrix.toml


class FloxBackend(BuildBackend):
    """Builds a package of .flox/pkgs with `flox build`, which sees only files that Git tracks."""

    name = "flox"
    program = "flox"
    wraps_derivation = True

    def obstacles(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield recipes that Git does not track."""
        root = self.settings.root
        if refusal := git.refusal(root):
            yield f"{refusal}; Flox builds only what Git tracks; use --backend nix"
            return
        recipes = evidence.recipe_files(root, [step.package for step in steps])
        tracked = set(git.run(root, "ls-files", "--", *recipes).stdout.splitlines())
        if missing := [path for path in recipes if path not in tracked]:
            yield f"Flox sees only files that Git tracks: {git.add_command(missing)}"

    def command(self, steps: Sequence[Step], jobs: int, cores: int) -> BuildCommand:
        """Return `flox build`; the number of cores reaches the Nix inside by NIX_CONFIG."""
        del jobs
        config = os.environ.get("NIX_CONFIG", "")
        package = steps[0].package
        folder = environment_of(package.folder)
        place = [] if folder == "." else ["--dir", folder]
        argv = ["flox", "build", *place, package.package]
        return BuildCommand(argv, {"NIX_CONFIG": f"{config}\ncores = {cores}"})


class NixBackend(BuildBackend):
    """Builds each recipe with one `nix-build`, here or where nix.conf sends builds.

    Nix's structured log names the derivation of each line.
    """

    name = "nix"
    program = store.NIX_BUILD

    def command(self, steps: Sequence[Step], jobs: int, cores: int) -> BuildCommand:
        """Return `nix-build` with the result link."""
        del jobs
        step = steps[0]
        link = artefacts.link_of(self.settings.root, step.name).name
        argv = store.build_argv(step.package.path, link, cores)
        if self.settings.keep_failed:
            argv.append("--keep-failed")
        return BuildCommand(argv, hidden=with_json_log(()))

    def reader(self, steps: Sequence[Step]) -> LogReader:
        """Return a reader of Nix's structured log."""
        del steps
        return NixLogReader().read

    def owner(self, step: Step) -> str:
        """Return the path of the derivation."""
        return step.derivation.drv_path if step.derivation else ""


class BuilderMachine(Struct, frozen=True):
    """A line of Nix's machines file (Nix manual, "Remote builds"). No platform: the host's."""

    uri: str
    platforms: frozenset[str]
    features: frozenset[str]
    mandatory: frozenset[str]
    jobs: int
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
    """The backend `nix` with --builders: a Nix for each builder, and one for what is built here.

    Without the builder that it needs, a derivation ends its Nix, with all that is built in it.

    Nix knows platforms and system features, not CPUs: variants of an ISA have a Nix of their own,
    without the machines that do not state the feature of the ISA, unless their recipes require it.

    Raises BuildPytorchError for a machines file that cannot be read or is empty.
    """

    program = store.NIX_STORE
    is_remote = True
    shares_process = True
    no_builder = "no builder of --builders takes it"

    def __init__(self, settings: BuildSettings, matrix: Matrix, host: store.NixSettings) -> None:
        super().__init__(settings, matrix, host)
        self.machines = _machines(settings, matrix)

    def place(self, steps: Sequence[Step]) -> str:
        """Return how many builders take part, or that none does."""
        if not steps:
            return ""
        number = len({uri for step in steps for uri in step.builders})
        return f"on {counted(number, 'builder')}" if number else "here: no builder takes a build"

    def builders(self, variant: Variant, derivation: Derivation | None) -> tuple[str, ...]:
        """Return the addresses of the machines that may build a variant."""
        takers = self._takers(variant, derivation)
        return tuple(machine.uri for machine in takers if machine.runs(variant.cpu))

    def _takers(self, variant: Variant, derivation: Derivation | None) -> list[BuilderMachine]:
        """Return the machines to which Nix may hand a variant, whatever their CPU is."""
        system = derivation.system if derivation else variant.cpu.platform
        features = derivation.features if derivation else ()
        host = self.host.systems[0]
        return [machine for machine in self.machines if machine.takes(system, features, host)]

    def _unfit(self, step: Step) -> list[BuilderMachine]:
        """Return the machines to which Nix may hand a step that their CPU does not run."""
        takers = self._takers(step.variant, step.derivation)
        return [machine for machine in takers if not machine.runs(step.variant.cpu)]

    def warnings(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield what each builder takes, what not and why, and what is built here."""
        for machine in self.machines if steps else ():
            taken = [step for step in steps if machine.uri in step.builders]
            unfit = [step for step in steps if machine in self._unfit(step)]
            if taken:
                yield f"{machine.uri} may build {len(taken)} of {len(steps)}: {_ids(taken)}"
            if unfit:
                features = some(sorted({step.variant.cpu.builder_feature or "" for step in unfit}))
                yield (
                    f"{machine.uri} is left out for {_ids(unfit)}: it does not state {features}; "
                    "state it if its CPU runs it, or set require_builder_feature in matrix.toml"
                )
            elif not taken:
                platforms = ", ".join(sorted(machine.platforms)) or self.host.systems[0]
                features = ", ".join(sorted(machine.features | machine.mandatory)) or "no feature"
                yield f"{machine.uri} takes no build: it is for {platforms} and has {features}"
        if here := [step for step in steps if not (step.where or step.builders)]:
            yield f"built here, because no builder takes it: {_ids(here)}"
        if both := [step for step in steps if step.builders and not step.where]:
            jobs = self.settings.jobs
            yield f"built here, up to {jobs} at once, if no builder is free: {_ids(both)}"

    def command(self, steps: Sequence[Step], jobs: int, cores: int) -> BuildCommand:
        """Return one `nix-store --realise` for all steps; `jobs` and `cores` are the local ones."""
        unfit = {machine for step in steps for machine in self._unfit(step)}
        builders = " ; ".join(machine.line for machine in self.machines if machine not in unfit)
        drvs = [step.derivation.drv_path for step in steps if step.derivation]
        # Nix may build here what this platform can: not if the CPU here lacks the ISA of a step.
        is_unable = any(s.where and s.variant.cpu.platform in self.host.systems for s in steps)
        local_jobs = 0 if is_unable else jobs
        argv = store.realise_argv(drvs, jobs=local_jobs, cores=cores, builders=builders)
        return BuildCommand(argv, hidden=with_json_log(()))

    def outputs(self, step: Step, began: float, code: int) -> tuple[str, ...]:
        """Return the output of a step, whatever became of the others, and make its result link."""
        del code
        if not (step.derivation and self.finished([step])):
            return ()
        store.add_root(step.derivation.output, self.link(step))
        return self._linked(step, began)


def _ids(steps: Sequence[Step]) -> str:
    return some([step.id for step in steps])


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
    machines = []
    for entry in re.split(r"[;\n]", re.sub("#.*", "", text)):
        if words := entry.split():
            columns = [*words, *["-"] * 7]  # a missing column and a dash are empty
            platforms, features, mandatory = (
                frozenset(columns[index].split(",")) - {"-"} for index in (1, 5, 6)
            )
            jobs = int(columns[3]) if re.fullmatch(r"\d{1,4}", columns[3]) else 1
            line = " ".join(words)
            machine = BuilderMachine(words[0], platforms, features, mandatory, jobs, line)
            machines.append(machine)
    if not machines:
        how = "add a line, or [[builder]] in matrix.toml"
        raise BuildPytorchError(f"{name}: no builder in it; {how}")
    return machines


BACKENDS: Final[tuple[type[BuildBackend], ...]] = (FloxBackend, NixBackend, RemoteBackend)
"""In the order in which they are tried without --backend."""


def fitting(name: str, *, is_remote: bool) -> list[type[BuildBackend]]:
    """Return the backends for a value of --backend (empty: any), with or without --builders.

    Raises BuildPytorchError if there is none.
    """
    names = list(dict.fromkeys(backend.name for backend in BACKENDS))
    if name and name not in names:
        hint = near_miss(name, names) or f"; there are {' and '.join(names)}"
        raise BuildPytorchError(f'--backend: no backend "{name}"{hint}')
    found = [b for b in BACKENDS if b.is_remote == is_remote and name in {"", b.name}]
    if not found:
        raise BuildPytorchError(f"--builders works only with Nix; omit --backend {name}")
    return found


def choose_backend(
    settings: BuildSettings, matrix: Matrix, host: store.NixSettings
) -> tuple[BuildBackend, str]:
    """Return the first fitting backend that is installed, else the first and what to do."""
    candidates = fitting(settings.backend, is_remote=bool(settings.builders))
    for backend in candidates:
        if process.which(backend.program):
            return backend(settings, matrix, host), ""
    programs = " nor ".join(backend.program for backend in candidates)
    missing = f"neither {programs} is installed; see https://flox.dev or nixos.org"
    if len(candidates) == 1:
        missing = f"{programs}: not found; install it or choose another --backend"
    return candidates[0](settings, matrix, host), missing
