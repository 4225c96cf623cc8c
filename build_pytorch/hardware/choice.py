"""What is chosen for a machine: builds, a driver update and the official wheel."""

from __future__ import annotations

from msgspec import Struct

from build_pytorch.base.versions import numbers, order
from build_pytorch.hardware.saved_machines import MachineGpu
from build_pytorch.hardware.verdicts import Candidate, Obstacle
from build_pytorch.hardware.wheels import WHEEL, ChosenWheel, Measurement
from build_pytorch.matrix.model import Variant


class Answer(Struct, frozen=True, kw_only=True):
    """The verdicts for all GPUs of one capability, or for a machine without GPUs."""

    gpus: tuple[MachineGpu, ...]
    accepted: tuple[Candidate, ...]
    """What runs, the best first."""
    rejected: tuple[Candidate, ...]
    """What does not run, each with its obstacles, in the order of preference."""
    waits_for_driver: Candidate | None
    """A variant that would be better than the best, with a newer driver."""

    @property
    def best(self) -> Candidate | None:
        """The first of the accepted candidates."""
        return next(iter(self.accepted), None)

    @property
    def reasons(self) -> tuple[Obstacle, ...]:
        """Why the rejected candidates do not run: the first obstacle of each, each once."""
        return tuple(dict.fromkeys(candidate.obstacles[0] for candidate in self.rejected))


class ChosenBuild(Struct, frozen=True, kw_only=True):
    """One variant for a machine as a whole, with the GPUs that it uses."""

    variant: Variant
    gpus: tuple[MachineGpu, ...]
    unused: tuple[MachineGpu, ...]
    reason: str
    why_unused: str = ""
    """Why GPUs stay unused, for the ideal build."""
    doubts: tuple[str, ...] = ()
    """What could not be verified."""
    command: str = ""
    """The command that makes its release in matrix.toml; empty if it is there."""
    lines: str = ""
    """The lines of matrix.toml that add the variant; empty if nothing is missing."""

    @property
    def is_in_matrix(self) -> bool:
        """Whether matrix.toml has the variant."""
        return not (self.command or self.lines)


class DriverUpdate(Struct, frozen=True, kw_only=True):
    """A build that is better than the best with a newer driver; of the matrix, if it has one."""

    build: ChosenBuild
    says: str
    """What to update, and to which version."""
    is_first: bool
    """Whether the GPU has no build with the driver as it is, so that the update comes first."""


class Choice(Struct, frozen=True, kw_only=True):
    """Everything that is decided about a machine."""

    answers: tuple[Answer, ...]
    """One for each kind of GPU."""
    for_all: Variant | None
    """The best variant that runs on all GPUs, if they are of several kinds."""
    best: ChosenBuild | None
    """The best of the matrix."""
    ideal: ChosenBuild | None
    """What the machine should have, also if matrix.toml lacks it; None if no ISA fits its CPU."""
    update: DriverUpdate | None
    wheel: ChosenWheel | None
    """The official wheel, in place of any build."""
    measured: tuple[Measurement, ...]
    """What was measured on this class of machine."""
    remarks: tuple[str, ...]
    """What a user should know, and what decides nothing."""

    @property
    def runs(self) -> bool:
        """Whether a variant of the matrix runs; one for one GPU of several is enough."""
        return any(answer.best for answer in self.answers)

    @property
    def first(self) -> ChosenBuild | None:
        """The build that is shown first: the best, or the one after an update that comes first."""
        return self.update.build if self.update and self.update.is_first else self.best

    @property
    def is_wheel_first(self) -> bool:
        """Whether the wheel uses the GPU, and no build of the matrix does with this driver."""
        uses_gpu = self.wheel is not None and self.wheel.runs_on > 0
        return uses_gpu and not (self.best and self.best.variant.gpu)

    @property
    def compared(self) -> str:
        """What was measured between the first build and the wheel."""
        name = self.first.variant.id if self.first else ""
        found = [it for it in self.measured if it.package == name and it.against.startswith(WHEEL)]
        newest = max(found, key=lambda it: it.date, default=None)
        return newest.says if newest else "not measured on this class of machine"

    @property
    def better(self) -> ChosenBuild | None:
        """The ideal build where it is worth showing beside the first."""
        ideal, best = self.ideal, self.best
        if ideal is None or (best and best.variant.id == ideal.variant.id):
            return None
        return ideal if ideal.gpus or self.first is best else None


def preference(
    variant: Variant,
) -> tuple[bool, bool, tuple[int, ...], tuple[int, ...], int, bool]:
    """Return the rank of a variant among those that run; the highest is chosen.

    GPU code ranks above none; then a release above a nightly; then the newest PyTorch; then the
    highest capability, which is the GPU's own or the nearest below; then the level of the ISA;
    then the CUDA packages of the pin.
    """
    return (
        variant.gpu is not None,
        not variant.release.torch.is_nightly,
        order(variant.release.torch.version),
        numbers(variant.gpu.capability) if variant.gpu else (),
        variant.cpu.level,
        not variant.is_wrapper,
    )
