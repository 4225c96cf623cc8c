"""The backend `nix`: one `nix-build` for each recipe, here or where nix.conf sends builds."""

from __future__ import annotations

from collections.abc import Sequence

from build_pytorch.build.backends.base_backend import BuildBackend, BuildCommand, LogReader, Step
from build_pytorch.nix import store
from build_pytorch.nix.log_format import NixLogReader, with_json_log
from build_pytorch.results import artefacts


class NixBackend(BuildBackend):
    """Builds with Nix, whose structured log names the derivation of each line."""

    name = "nix"
    program = store.NIX_BUILD

    def command(self, steps: Sequence[Step], jobs: int, cores: int) -> BuildCommand:
        """Return `nix-build` with the result link."""
        del jobs
        step = steps[0]
        link = artefacts.link_of(self.settings.root, step.name).name
        if self.settings.share:
            argv = store.build_shared_argv(step.name, link, cores)
        else:
            argv = store.build_argv(step.package.path, link, cores)
        return BuildCommand(argv, hidden=with_json_log(()))

    def reader(self, steps: Sequence[Step]) -> LogReader:
        """Return a reader of Nix's structured log."""
        del steps
        return NixLogReader().read

    def owner(self, step: Step) -> str:
        """Return the path of the derivation."""
        return step.derivation.drv_path if step.derivation else ""
