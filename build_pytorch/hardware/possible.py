"""The variants that could exist: every release, GPU architecture and ISA of the matrix or known.

Beside the releases of the matrix there is one for each other known version of CUDA.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from build_pytorch.base.versions import order, underscored
from build_pytorch.hardware.saved_machines import Machine
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import compiles, missing_cpu_flags, runs_on
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.source_tables import CudaToolkit
from build_pytorch.matrix.tables import CpuIsa, GpuArchitecture, Group, Release


class PossibleVariants:
    """The variants that could exist beside those of a matrix, or of one of its releases."""

    def __init__(self, matrix: Matrix, release: str | None) -> None:
        known = known_hardware.load()
        names = [release] if release else list(matrix.releases)
        self.matrix = matrix
        self.gpus: dict[str, GpuArchitecture] = {**known.gpu, **matrix.gpus}
        self.cpus: dict[str, CpuIsa] = {**known.cpu, **matrix.cpus}
        self.releases = {name: matrix.releases[name] for name in names}
        self.others = {} if release else dict(_other_releases(matrix))
        self._fitting: dict[str, list[str]] = {}
        self._made: dict[tuple[str, str | None, str], Variant] = {}
        self._existing = {
            (v.release_name, v.gpu_key, v.cpu_key): v for v in matrix.variants if not v.is_wrapper
        }

    def is_existing(self, variant: Variant) -> bool:
        """Return whether the matrix has a variant."""
        return (variant.release_name, variant.gpu_key, variant.cpu_key) in self._existing

    def fitting(self, capability: str | None) -> Sequence[str]:
        """Return the GPU architectures whose code runs on a GPU."""
        if capability is None:
            return ()
        if capability not in self._fitting:
            found = [key for key, gpu in self.gpus.items() if runs_on(gpu.capability, capability)]
            self._fitting[capability] = found
        return self._fitting[capability]

    def on(
        self, machine: Machine, releases: Iterable[str], gpus: Iterable[str | None]
    ) -> Iterator[Variant]:
        """Yield a variant for each release, GPU architecture or none, and ISA of a machine."""
        flags = machine.cpu.flags.split()
        isas = [
            key
            for key, cpu in self.cpus.items()
            if cpu.platform == machine.platform and not missing_cpu_flags(cpu, flags)
        ]
        for name in releases:
            cuda = self._release(name).cuda
            for gpu in gpus:
                if gpu is None or compiles(cuda, self.gpus[gpu]):
                    yield from (self.variant(name, gpu, isa) for isa in isas)

    def variant(self, release: str, gpu: str | None, isa: str) -> Variant:
        """Return the variant of the matrix, or one that it does not have."""
        key = (release, gpu, isa)
        if key not in self._made:
            self._made[key] = self._existing.get(key) or self._new(release, gpu, isa)
        return self._made[key]

    def _release(self, name: str) -> Release:
        return self.releases.get(name) or self.others[name]

    def _new(self, release: str, gpu: str | None, isa: str) -> Variant:
        cpu, facts = self.cpus[isa], self._release(release)
        kind = "gpu" if gpu else "mps" if cpu.platform.endswith("-darwin") else "cpu-only"
        group = Group(
            title="not in the matrix",
            kind=kind,  # type: ignore[arg-type]
            platform=cpu.platform,
            gpu=(gpu,) if gpu else (),
            cpu=(isa,),
        )
        return Variant(
            release_name=release,
            release=facts,
            pin=self.matrix.pins[facts.nixpkgs.pin],
            group=group,
            gpu_key=gpu,
            gpu=self.gpus[gpu] if gpu else None,
            cpu_key=isa,
            cpu=cpu,
            is_qualified=len(self.matrix.releases) > 1 or release not in self.matrix.releases,
        )


def newest_release(matrix: Matrix) -> str:
    """Return the first release with CUDA of the newest PyTorch, or the first one without any.

    A nightly counts only if there is nothing else.
    """
    releases = {k: it for k, it in matrix.releases.items() if not it.torch.is_nightly}
    releases = releases or matrix.releases
    with_cuda = [name for name, release in releases.items() if release.cuda] or list(releases)
    return max(with_cuda, key=lambda name: order(releases[name].torch.version))


def _other_releases(matrix: Matrix) -> Iterator[tuple[str, Release]]:
    """Yield releases on versions of CUDA that no release of the matrix has."""
    have = {release.cuda.version for release in matrix.releases.values() if release.cuda}
    base = matrix.releases[newest_release(matrix)]
    for version, facts in known_hardware.load().cuda.items():
        name = f"cuda{underscored(version)}"
        if base.cuda and version not in have and name not in matrix.releases:
            package_set = f"cudaPackages_{underscored(version)}"
            cuda = CudaToolkit(version=version, package_set=package_set, driver=facts.driver)
            yield name, msgspec.structs.replace(base, cuda=cuda)
