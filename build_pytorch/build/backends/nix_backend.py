"""The backend `nix`: one `nix-build` for each recipe."""

from __future__ import annotations

from collections.abc import Sequence

from build_pytorch.build.backends.base_backend import (
    BuildBackend,
    BuildCommand,
    LogReader,
    Step,
)
from build_pytorch.nix.log_format import NixReader
from build_pytorch.results import result_lookup

LOG_FORMAT = ("--log-format", "internal-json")


class NixBackend(BuildBackend):
    """Builds on this machine, or where nix.conf sends builds."""

    name = "nix"
    program = "nix-build"

    def command(self, steps: Sequence[Step], jobs: int, cores: int) -> BuildCommand:
        """Return `nix-build` with the result link."""
        del jobs
        variant = steps[0].variant
        link = result_lookup.link(self.settings.root, variant).name
        argv = ["nix-build", variant.path, "--out-link", link, "--cores", str(cores)]
        return BuildCommand(argv, hidden=LOG_FORMAT)

    def reader(self, steps: Sequence[Step]) -> LogReader:
        """Return a reader of Nix's structured log."""
        del steps
        return NixReader()

    def owner(self, step: Step) -> str:
        """Return the path of the derivation, which Nix's log names."""
        return step.derivation.drv_path if step.derivation else ""
