"""The backend `flox`: `flox build`, which sees only files that Git tracks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from build_pytorch.base import git
from build_pytorch.build.backends.base_backend import BuildBackend, BuildCommand, Step
from build_pytorch.build.build_obstacles import some
from build_pytorch.matrix.tables import environment_of


class FloxBackend(BuildBackend):
    """Builds a package of .flox/pkgs."""

    name = "flox"
    program = "flox"
    wraps_derivation = True

    def obstacles(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield recipes that Git does not track."""
        root = self.settings.root
        paths = list(
            dict.fromkeys(p for step in steps for p in (step.variant.path, step.package.path))
        )
        listed = git.run(root, "ls-files", "--", *paths)
        if listed.code:
            yield f"{root}: not a Git checkout; Flox builds only what Git tracks; use --backend nix"
            return
        tracked = set(listed.stdout.splitlines())
        if missing := [path for path in paths if path not in tracked]:
            yield f"Flox sees only files that Git tracks: git add {some(missing)}"

    def command(self, steps: Sequence[Step], jobs: int, cores: int) -> BuildCommand:
        """Return `flox build`; the number of cores reaches the Nix inside by NIX_CONFIG."""
        del jobs
        config = os.environ.get("NIX_CONFIG", "")
        package = steps[0].package
        folder = environment_of(package.folder)
        place = [] if folder == "." else ["--dir", folder]
        argv = ["flox", "build", *place, package.package]
        return BuildCommand(argv, {"NIX_CONFIG": f"{config}\ncores = {cores}"})
