"""The tables of the picker: the map of each release, oldest drivers, classes of CPUs."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from build_pytorch.base.versions import numbers
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.model import Matrix
from build_pytorch.matrix.tables import CpuIsa, GpuArchitecture, Release

STATES: Final = {
    "listed": "in the matrix, with a recipe",
    "addable": "not in the matrix: `invoke add` adds it",
    "impossible": "no machine has that GPU with that CPU",
    "never": "this CUDA does not compile for that GPU, or nothing can use it",
}
"""The states of a cell of the map, each with its meaning."""
_TICKS: Final = 10
"""Maximum number of labels of the scale of drivers."""


class CpuClass(Struct, frozen=True, kw_only=True):
    """CPUs that get the same answer: those whose highest ISA is the same."""

    key: str
    """An ISA; for CPUs without any of their platform, a processor or the word `other`."""
    title: str
    platform: str
    needs: tuple[str, ...] = ()
    """Flags of the ISA, by which the page recognises it."""
    flags: tuple[str, ...] = ()
    """The same with the flags of the lower ISAs, which such CPUs have as well."""
    cpus: tuple[str, ...] = ()


class MapCell(Struct, frozen=True, kw_only=True):
    """One cell of the map."""

    state: str
    name: str
    text: str
    """Products and reason."""
    link: str
    """The answer of the page for such a machine."""


class ReleaseMap:
    """The grid of a release: GPU architectures and none, by ISAs."""

    def __init__(self, matrix: Matrix, name: str) -> None:
        known = known_hardware.load()
        self.matrix, self.name, self.release = matrix, name, matrix.releases[name]
        self.known = known.gpu
        self.gpus: dict[str, GpuArchitecture] = {**known.gpu, **matrix.gpus}
        self.cpus: dict[str, CpuIsa] = {**known.cpu, **matrix.cpus}
        variants = matrix.of_release(name)
        self.existing = {(v.gpu_key, v.cpu_key): v for v in variants if not v.is_wrapper}

    def table(self) -> dict[str, Any]:
        """Return title, columns and rows: all architectures of the matrix, the newest first.

        Of a nightly, only those that it has.
        """
        keys = sorted(self.matrix.gpus, key=lambda it: numbers(self.gpus[it].capability))
        rest: list[str | None] = [None]
        if self.release.torch.is_nightly:
            keys = [key for key in keys if any(gpu == key for gpu, _ in self.existing)]
            rest = [None] if any(gpu is None for gpu, _ in self.existing) else []
        used = {cpu for _, cpu in self.existing}
        columns = {
            key: cpu
            for key, cpu in self.cpus.items()
            if key in used or not cpu.platform.endswith("-darwin")
        }
        rows = []
        for key in [*reversed(keys), *rest]:
            gpu = self.gpus[key] if key else None
            products = ", ".join(gpu.products) if gpu else "CPU-only"
            rows.append((key or "cpu", products, [self._cell(key, cpu) for cpu in columns]))
        torch, cuda = self.release.torch.version, self.release.cuda
        on = f"CUDA {cuda.version}" if cuda else "no CUDA"
        title = f"PyTorch {torch}, {on}, Python {self.release.python.version}"
        return {"name": self.name, "title": title, "columns": columns, "rows": rows}

    def _cell(self, gpu_key: str | None, cpu_key: str) -> MapCell:
        gpu, cpu = self.gpus[gpu_key] if gpu_key else None, self.cpus[cpu_key]
        variant = self.existing.get((gpu_key, cpu_key))
        short = f"{gpu_key or 'cpu'}-{cpu_key}"
        name = f"{self.name}/{short}" if len(self.matrix.releases) > 1 else short
        state, text = self._judged(gpu_key, cpu)
        if variant:
            name = variant.id
            state = "impossible" if variant.impossible else "listed"
            text = variant.impossible or self._needs(gpu, cpu)
            text += f"; driver {variant.driver} or newer" if variant.driver else ""
        elif state == "addable":
            text += f"; invoke add {name}"
        link = f"#gpu={gpu.capability if gpu else 'none'}&cpu={cpu_key}"
        return MapCell(state=state, name=name, text=text, link=link)

    def _judged(self, gpu_key: str | None, cpu: CpuIsa) -> tuple[str, str]:
        """Return the state of a cell without a variant, and why."""
        gpu, cuda = self.gpus[gpu_key] if gpu_key else None, self.release.cuda
        unsupported = gpu_key in self.known and self.known[gpu_key].unsupported
        if unsupported:
            return "never", unsupported
        if gpu and not compiles(cuda, gpu):
            whose = f"CUDA {cuda.version}" if cuda else "a release without CUDA"
            return "never", f"{whose} does not compile for {gpu.arch_list}"
        if gpu and cpu.platform not in gpu.hosts:
            return "impossible", f"no {cpu.platform} machine has {', '.join(gpu.products)}"
        return "addable", self._needs(gpu, cpu)

    def _needs(self, gpu: GpuArchitecture | None, cpu: CpuIsa) -> str:
        cpus = ", ".join(cpu.cpus)
        return f"{', '.join(gpu.hosts.get(cpu.platform, ()))} with {cpus}" if gpu else cpus


def oldest_drivers(matrix: Matrix) -> list[tuple[str, Release, str, list[str]]]:
    """Return each release with the oldest driver of each of its GPU architectures."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    for variant in matrix.variants:
        keys = rows.setdefault((variant.release_name, variant.driver), {})
        keys[variant.gpu_key or "cpu"] = None
    return [
        (name, matrix.releases[name], driver or "none", list(keys))
        for (name, driver), keys in rows.items()
    ]


def driver_bars(matrix: Matrix) -> dict[str, Any]:
    """Return the oldest drivers of each release as bars on one scale of driver branches."""
    rows: list[tuple[str, str, str, str]] = []
    for name, release, driver, keys in oldest_drivers(matrix):
        if release.cuda and driver != "none":
            rows.append((name, f"CUDA {release.cuda.version}", driver, ", ".join(keys)))
        elif not release.cuda:
            rows.append((name, "without GPU", "", ", ".join(keys)))
    rows.sort(key=lambda row: (list(matrix.releases).index(row[0]), numbers(row[2])))
    majors = [numbers(driver)[0] for _, _, driver, _ in rows if driver] or [500]
    low, high = min(majors) // 10 * 10 - 10, max(majors) + 25

    def place(driver: str) -> float:
        major, minor = (*numbers(driver), 0)[:2]
        return round(100 * (major + min(minor, 200) / 200 - low) / (high - low), 2)

    step = 10 * -(-(high - low) // (10 * _TICKS))
    ticks = [(place(str(branch)), branch) for branch in range(low + step, high, step)]
    return {"ticks": ticks, "rows": [(*row, place(row[2]) if row[2] else 0) for row in rows]}


def cpu_classes(matrix: Matrix) -> list[CpuClass]:
    """Return the classes of CPUs, of each platform the highest ISA first."""
    known = known_hardware.load()
    isas = {**known.cpu, **matrix.cpus}
    found = []
    for platform in dict.fromkeys(isa.platform for isa in isas.values()):
        here = {key: isa for key, isa in isas.items() if isa.platform == platform}
        for key, isa in sorted(here.items(), key=lambda item: -item[1].level):
            lower = [it for it in here.values() if it.level <= isa.level]
            found.append(
                CpuClass(
                    key=key,
                    title=isa.title,
                    platform=platform,
                    needs=isa.cpuinfo,
                    flags=tuple(dict.fromkeys(flag for it in lower for flag in it.cpuinfo)),
                    cpus=isa.cpus,
                )
            )
        older = (it for it in known.processor.items() if it[1].platform == platform)
        key, processor = next(((k, it) for k, it in older if not it.isa), ("", None))
        if processor:
            found.append(CpuClass(key=key, title=processor.title, platform=platform))
    return [*found, CpuClass(key="other", title="", platform="{platform}")]
