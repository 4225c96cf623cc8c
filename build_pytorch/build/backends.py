"""The build backends: Flox and Nix. A new one is a class in BACKENDS."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from build_pytorch.base import git, process
from build_pytorch.base.errors import BuildPytorchError, near_miss
from build_pytorch.build.build_backend import (
    BuildBackend,
    BuildCommand,
    BuildSettings,
    LogReader,
    Step,
)
from build_pytorch.matrix.tables import environment_of
from build_pytorch.nix import store
from build_pytorch.nix.log_format import NixLogReader, with_json_log
from build_pytorch.results import artefacts, evidence


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
        recipes = [p for step in steps for p in evidence.recipe_files(root, step.package)]
        tracked = set(git.run(root, "ls-files", "--", *recipes).stdout.splitlines())
        if missing := [path for path in recipes if path not in tracked]:
            yield f"Flox sees only files that Git tracks: {git.add_command(missing)}"

    def command(self, step: Step, cores: int) -> BuildCommand:
        """Return `flox build`; the number of cores reaches the Nix inside by NIX_CONFIG."""
        config = os.environ.get("NIX_CONFIG", "")
        package = step.package
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

    def command(self, step: Step, cores: int) -> BuildCommand:
        """Return `nix-build` with the result link."""
        link = artefacts.link_of(self.settings.root, step.name).name
        argv = store.build_argv(step.package.path, link, cores)
        if self.settings.keep_failed:
            argv.append("--keep-failed")
        if self.settings.builders:
            argv += ["--builders", self.settings.builders]
        if step.only_remote and step.variant.cpu.platform in self.host.systems:
            argv += ["--max-jobs", "0"]
        return BuildCommand(argv, hidden=with_json_log(()))

    def reader(self, step: Step) -> LogReader:
        """Return a reader of Nix's structured log."""
        del step
        return NixLogReader().read

    def owner(self, step: Step) -> str:
        """Return the path of the derivation."""
        return step.derivation.drv_path if step.derivation else ""


BACKENDS: Final[tuple[type[BuildBackend], ...]] = (FloxBackend, NixBackend)
"""In the order in which they are tried without --backend."""


def fitting(name: str, builders: str) -> list[type[BuildBackend]]:
    """Return the backends for the values of --backend (empty: any) and --builders (empty: none).

    Raises BuildPytorchError if there is none.
    """
    names = [backend.name for backend in BACKENDS]
    if name and name not in names:
        hint = near_miss(name, names) or f"; there are {' and '.join(names)}"
        raise BuildPytorchError(f'--backend: no backend "{name}"{hint}')
    if builders and name not in {"", NixBackend.name}:
        raise BuildPytorchError(f"--builders works only with Nix; omit --backend {name}")
    wanted = NixBackend.name if builders else name
    return [backend for backend in BACKENDS if wanted in {"", backend.name}]


def choose_backend(settings: BuildSettings, host: store.NixSettings) -> tuple[BuildBackend, str]:
    """Return the first fitting backend that is installed, else the first and what to do."""
    candidates = fitting(settings.backend, settings.builders)
    for backend in candidates:
        if process.which(backend.program):
            return backend(settings, host), ""
    programs = " nor ".join(backend.program for backend in candidates)
    missing = f"neither {programs} is installed; see https://flox.dev or nixos.org"
    if len(candidates) == 1:
        missing = f"{programs}: not found; install it or choose another --backend"
    return candidates[0](settings, host), missing
