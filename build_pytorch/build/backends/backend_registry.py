"""The build backends, and which of them a run uses."""

from __future__ import annotations

from typing import Final

from build_pytorch.base import process
from build_pytorch.base.errors import BuildPytorchError, ToolError, near_miss
from build_pytorch.build.backends.base_backend import BuildBackend, BuildSettings
from build_pytorch.build.backends.flox_backend import FloxBackend
from build_pytorch.build.backends.nix_backend import NixBackend
from build_pytorch.build.backends.remote_backend import RemoteBackend
from build_pytorch.matrix.model import Matrix
from build_pytorch.nix.store import NixSettings

# In the order in which they are tried without --backend.
BACKENDS: Final[tuple[type[BuildBackend], ...]] = (
    FloxBackend,
    NixBackend,
    RemoteBackend,
)


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


def choose(settings: BuildSettings, matrix: Matrix, host: NixSettings) -> BuildBackend:
    """Return the first fitting backend whose program is installed. Raises ToolError.

    The plan of a shared build needs no program.
    """
    candidates = fitting(settings.backend, is_remote=bool(settings.builders))
    for backend in candidates:
        if process.which(backend.program) or (settings.share and settings.dry_run):
            return backend(settings, matrix, host)
    programs = " nor ".join(backend.program for backend in candidates)
    if len(candidates) == 1:
        raise ToolError(f"{programs}: not found; install it or choose another --backend")
    raise ToolError(f"neither {programs} is installed; see https://flox.dev or nixos.org")
