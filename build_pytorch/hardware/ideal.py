"""The build that a machine should have, also if matrix.toml lacks it: a pure function.

Every release is combined with every GPU architecture and ISA of the matrix and of
known_hardware.toml. Each combination is a variant, which the resolver judges as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from packaging.version import Version

from build_pytorch.base.versions import digits, numbers, underscored
from build_pytorch.hardware import explain
from build_pytorch.hardware.resolver import Recommendation, Resolver, preference
from build_pytorch.hardware.saved_machines import Machine, MachineGpu
from build_pytorch.matrix import known_hardware, rules
from build_pytorch.matrix.compatibility import (
    combined,
    compiles,
    fit,
    missing_cpu_flags,
    runs_on,
)
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.source_tables import CudaToolkit
from build_pytorch.matrix.tables import CpuIsa, GpuArchitecture, Group, Release


class MachineChoice(Struct, frozen=True, kw_only=True):
    """One variant for a machine, with the GPUs that it uses."""

    variant: Variant
    gpus: tuple[MachineGpu, ...] = ()
    unused: tuple[MachineGpu, ...] = ()
    is_in_matrix: bool = True
    reason: str = ""
    after_driver_update: str = ""
    """The variant that would be ideal with the newest driver, if it is another one."""

    command: str = ""
    """The command that adds the variant to matrix.toml; empty if it is there."""


def best(result: Recommendation) -> MachineChoice | None:
    """Return the best variant of the matrix for the machine as a whole, or None.

    With GPUs of several kinds, the one that runs on all of them; else one for the newest GPU.
    """
    answers = [answer for answer in result.answers if answer.best]
    if not answers:
        return None
    gpus = tuple(gpu for answer in result.answers for gpu in answer.gpus)
    if result.for_all:
        built = result.for_all.gpu.arch_list if result.for_all.gpu else ""
        reason = f"code for {built} runs on all GPUs; {result.for_all.cpu.title}"
        return MachineChoice(variant=result.for_all, gpus=gpus, reason=reason)
    first = max(answers, key=lambda it: preference(it.best.variant) if it.best else ())
    if first.best is None:
        return None
    used = first.gpus if first.best.variant.gpu else ()
    unused = tuple(gpu for gpu in gpus if gpu not in used)
    reason = explain.why_best(first.best)
    return MachineChoice(variant=first.best.variant, gpus=used, unused=unused, reason=reason)


def ideal(
    matrix: Matrix, machine: Machine, gpus: Sequence[MachineGpu], release: str | None = None
) -> MachineChoice | None:
    """Return the build that serves all GPUs of a machine best; None if no ISA fits its CPU.

    The machine has the driver that it has; `after_driver_update` says what a newer one allows.
    """
    space = _Space(matrix, machine, release)
    choice = space.choose(gpus)
    if choice is None or not gpus:
        return choice
    newer = msgspec.structs.replace(machine, driver="9999", cuda=None, is_wsl=False)
    later = _Space(matrix, newer, release).choose(gpus)
    if later and preference(later.variant) > preference(choice.variant):
        return msgspec.structs.replace(choice, after_driver_update=later.variant.id)
    return choice


class _Space:
    """All variants that could exist for a machine."""

    def __init__(self, matrix: Matrix, machine: Machine, release: str | None) -> None:
        known = known_hardware.load()
        self.matrix, self.machine = matrix, machine
        usable = {key: gpu for key, gpu in known.gpu.items() if not gpu.unsupported}
        self.gpus: dict[str, GpuArchitecture] = {**usable, **matrix.gpus}
        self.cpus: dict[str, CpuIsa] = {**known.cpu, **matrix.cpus}
        names = [release] if release else list(matrix.releases)
        self.releases = {name: matrix.releases[name] for name in names}
        self.others = {} if release else dict(other_releases(matrix, known))
        self.resolver = Resolver(matrix=matrix, variants=(), machine=machine)
        self.existing = {variant.id: variant for variant in matrix.variants}

    def choose(self, gpus: Sequence[MachineGpu]) -> MachineChoice | None:
        """Choose among the releases of the matrix; among others if no GPU can be used."""
        without = self._best_of(self._variants(self.releases, {None: None}), ())
        for releases in (self.releases, self.others):
            found = self._for_gpus(releases, gpus) if gpus else None
            if found:
                return found
        if without is None:
            return None
        isa = _isa_reason(without)
        if without.kind == "mps":
            return self._choice(without, (), gpus, f"Metal is the GPU of macOS; {isa}")
        why = "no GPU"
        if gpus:
            why = "; ".join(dict.fromkeys(self._why_unused(gpu) for gpu in gpus))
        elif self.machine.other_gpus:
            why = "no NVIDIA GPU"
        return self._choice(without, (), gpus, f"CPU-only: {why}; {isa}")

    def _for_gpus(
        self, releases: Mapping[str, Release], gpus: Sequence[MachineGpu]
    ) -> MachineChoice | None:
        """Choose one build for all GPUs that any build can use, or else for the newest of them."""
        kinds = {gpu.capability: gpu for gpu in gpus if gpu.capability}
        single = {
            capability: self._best_of(self._variants(releases, self._fitting(capability)), [gpu])
            for capability, gpu in kinds.items()
        }
        usable = [kinds[capability] for capability, found in single.items() if found]
        if not usable:
            return None
        fitting = {key: it for gpu in usable for key, it in self._fitting(gpu.capability).items()}
        chosen, used = self._best_of(self._variants(releases, fitting), usable), usable
        if chosen is None:
            several = dict(_several([gpu.capability or "" for gpu in usable], self.gpus))
            chosen = self._best_of(self._variants(releases, several), usable)
        if chosen is None:
            used = [max(usable, key=lambda gpu: numbers(gpu.capability or ""))]
            chosen = single[used[0].capability or ""]
        if chosen is None:
            return None
        capabilities = {gpu.capability for gpu in used}
        rest = [gpu for gpu in gpus if gpu.capability not in capabilities]
        reason = "; ".join((*self._gpu_reasons(chosen, used, rest), _isa_reason(chosen)))
        return self._choice(chosen, [gpu for gpu in gpus if gpu not in rest], rest, reason)

    def _variants(
        self, releases: Mapping[str, Release], gpus: Mapping[str | None, GpuArchitecture | None]
    ) -> Iterator[Variant]:
        """Yield a variant for each release, GPU architecture or none, and ISA of this platform."""
        platform = self.machine.platform
        flags = self.machine.cpu.flags.split()
        isas = {
            key: cpu
            for key, cpu in self.cpus.items()
            if cpu.platform == platform and not missing_cpu_flags(cpu, flags)
        }
        for name, release in releases.items():
            for gpu_key, gpu in gpus.items():
                if gpu and not compiles(release.cuda, gpu):
                    continue
                for cpu_key, cpu in isas.items():
                    yield _variant(self.matrix, (name, release), (gpu_key, gpu), (cpu_key, cpu))

    def _best_of(self, variants: Iterator[Variant], gpus: Sequence[MachineGpu]) -> Variant | None:
        """Return the best of those that run on all GPUs."""
        running = [
            variant
            for variant in variants
            if not any(self.resolver.candidate(variant, gpu).obstacles for gpu in gpus or (None,))
        ]
        # Of equal ones, such as two releases of one PyTorch, one that exists.
        return max(running, key=lambda it: (preference(it), it.id in self.existing), default=None)

    def _fitting(self, capability: str | None) -> dict[str | None, GpuArchitecture | None]:
        return {key: it for key, it in self.gpus.items() if capability and fit(it, capability)}

    def _choice(
        self,
        variant: Variant,
        used: Sequence[MachineGpu],
        unused: Sequence[MachineGpu],
        reason: str,
    ) -> MachineChoice:
        existing = self.existing.get(variant.id)
        command = f"invoke add {variant.id}"
        if variant.release_name not in self.matrix.releases:
            like = newest(self.matrix)
            cuda = variant.release.cuda.version if variant.release.cuda else ""
            new = f"invoke add release {variant.release_name} --like {like} --cuda {cuda}"
            inherited = {each.short_id for each in self.matrix.of_release(like)}
            command = new if variant.short_id in inherited else f"{new} && {command}"
        return MachineChoice(
            variant=existing or variant,
            gpus=tuple(used),
            unused=tuple(unused),
            is_in_matrix=existing is not None,
            reason=reason,
            command="" if existing else command,
        )

    def _gpu_reasons(
        self, variant: Variant, used: Sequence[MachineGpu], rest: Sequence[MachineGpu]
    ) -> Iterator[str]:
        gpu, cuda = variant.gpu, variant.release.cuda
        if gpu is None or cuda is None:
            return
        found = list(dict.fromkeys(each.capability or "" for each in used))
        if len(found) > 1 and not gpu.is_single:
            yield f"code for {gpu.arch_list}, as no single architecture runs on all GPUs"
        elif len(found) > 1:
            yield f"code for {gpu.arch_list} runs on all GPUs: {' and '.join(found)}"
        else:
            exact = found[0] in gpu.capabilities
            yield f"code for {gpu.arch_list}, {'exactly' if exact else 'which runs on'} {found[0]}"
        yield f"PyTorch {variant.release.torch.version} on CUDA {cuda.version}"
        yield from self._why_no_newer(variant, used)
        effects = rules.effects(variant, self.matrix.rules, self.matrix.patches)
        for rule in effects.rules:
            if rule.when.capability and len(found) > 1:
                yield f"rule {rule.id} holds for all GPUs of the build: {rule.reason}"
        for each in rest:
            yield f"GPU {each.index} stays unused: {self._why_unused(each)}"

    def _why_no_newer(self, variant: Variant, used: Sequence[MachineGpu]) -> Iterator[str]:
        """Yield why releases with a newer PyTorch do not do."""
        ours = Version(variant.release.torch.version)
        for name, release in self.releases.items():
            cuda = release.cuda
            is_older = Version(release.torch.version) <= ours or release.torch.is_nightly
            if is_older or cuda is None:
                continue
            if variant.gpu and not compiles(cuda, variant.gpu):
                arch = variant.gpu.arch_list
                yield f"not {name}: CUDA {cuda.version} does not compile for {arch}"
                continue
            other = msgspec.structs.replace(variant, release_name=name, release=release)
            for gpu in used:
                if limits := self.resolver.candidate(other, gpu).obstacles:
                    yield f"not {name}: {limits[0].text}"
                    break

    def _why_unused(self, gpu: MachineGpu) -> str:
        """Return why no build uses a GPU."""
        if gpu.capability is None:
            return f"the capability of {gpu.name} is unknown"
        fitting = self._fitting(gpu.capability)
        windows = [it for it in fitting.values() if it]
        cudas = [release.cuda for release in self.releases.values() if release.cuda]
        if not windows:
            known = known_hardware.load().gpu.get(f"sm{digits(gpu.capability)}")
            why = f": {known.unsupported}" if known and known.unsupported else ""
            return f"nothing runs on {gpu.name}, capability {gpu.capability}{why}"
        compiled = [it for it in windows if any(compiles(cuda, it) for cuda in cudas)]
        if not compiled:
            return f"no CUDA of these releases compiles for {gpu.name} ({gpu.capability})"
        for variant in self._variants(self.releases, fitting):
            if limits := self.resolver.candidate(variant, gpu).obstacles:
                return limits[0].text
        return f"no ISA fits the CPU beside {gpu.name}"


def _variant(
    matrix: Matrix,
    release: tuple[str, Release],
    gpu: tuple[str | None, GpuArchitecture | None],
    cpu: tuple[str, CpuIsa],
) -> Variant:
    """Return a variant that need not be in the matrix."""
    name, facts = release
    without = "mps" if cpu[1].platform.endswith("-darwin") else "cpu-only"
    group = Group(
        title="not in the matrix",
        kind="gpu" if gpu[0] else without,  # type: ignore[arg-type]
        platform=cpu[1].platform,
        gpu=(gpu[0],) if gpu[0] else (),
        cpu=(cpu[0],),
    )
    return Variant(
        release_name=name,
        release=facts,
        pin=matrix.pins[facts.nixpkgs.pin],
        group=group,
        gpu_key=gpu[0],
        gpu=gpu[1],
        cpu_key=cpu[0],
        cpu=cpu[1],
        is_qualified=len(matrix.releases) > 1 or name not in matrix.releases,
    )


def _several(
    capabilities: Sequence[str], gpus: Mapping[str, GpuArchitecture]
) -> Iterator[tuple[str | None, GpuArchitecture | None]]:
    """Yield one architecture for GPUs that no single one serves, without what others cover."""
    ordered = sorted(set(capabilities), key=numbers)
    needed = [
        each
        for each in ordered
        if not any(other != each and runs_on(other, each) for other in ordered)
    ]
    keys = [f"sm{digits(each)}" for each in needed]
    if len(keys) < 2 or not all(key in gpus for key in keys):  # noqa: PLR2004 - several
        return
    yield several_key(needed), combined([gpus[key] for key in keys])


def several_key(capabilities: Sequence[str]) -> str:
    """Return the key of one build for several capabilities, such as sm86_120."""
    return f"sm{'_'.join(digits(each) for each in capabilities)}"


def newest(matrix: Matrix) -> str:
    """Return the first release with CUDA of the newest PyTorch, or the first one without any.

    A nightly counts only if there is nothing else.
    """
    releases = {k: it for k, it in matrix.releases.items() if not it.torch.is_nightly}
    releases = releases or matrix.releases
    with_cuda = [name for name, release in releases.items() if release.cuda] or list(releases)
    return max(with_cuda, key=lambda name: Version(releases[name].torch.version))


def other_releases(
    matrix: Matrix, known: known_hardware.KnownHardware
) -> Iterator[tuple[str, Release]]:
    """Yield releases on versions of CUDA that no release of the matrix has."""
    have = {release.cuda.version for release in matrix.releases.values() if release.cuda}
    base = matrix.releases[newest(matrix)]
    for version, facts in known.cuda.items():
        name = f"cuda{underscored(version)}"
        if base.cuda and version not in have and name not in matrix.releases:
            package_set = f"cudaPackages_{underscored(version)}"
            cuda = CudaToolkit(version=version, package_set=package_set, driver=facts.driver)
            yield name, msgspec.structs.replace(base, cuda=cuda)


def _isa_reason(variant: Variant) -> str:
    if not variant.cpu.cpuinfo:
        return variant.cpu.title
    return f"{variant.cpu.title}, the highest ISA that the CPU has"
