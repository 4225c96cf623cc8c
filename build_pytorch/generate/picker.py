"""The picker: a page that names the right variant for a machine, docs/site/index.html.

The page decides with the rules of `invoke recommend`, written in templates/pages/picker_rules.js.
Every fact that they need is in the JSON of `data`; a test asks both about the same machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packaging.version import Version

from build_pytorch.base import digest
from build_pytorch.generate import pages, picker_tables
from build_pytorch.hardware import ideal, remarks, resolver
from build_pytorch.matrix import known_hardware, rules
from build_pytorch.matrix.compatibility import TEGRA
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.tables import CpuIsa, GpuArchitecture, Group, Release, environment_of


def page(matrix: Matrix) -> str:
    """Return the page with its digest. Raises TemplateError."""
    known = known_hardware.load()
    cpus = {**known.cpu, **matrix.cpus}
    platforms = [cpu.platform for cpu in cpus.values()]
    return digest.seal(
        pages.page(
            matrix.root,
            "picker",
            *("picker_rules.js", "picker_reading.js"),
            data=pages.data(data(matrix)),
            states=picker_tables.STATES,
            maps=[picker_tables.ReleaseMap(matrix, name).table() for name in matrix.releases],
            drivers=picker_tables.driver_bars(matrix),
            products=[name for gpu in known.gpu.values() for name in gpu.offered],
            processors=known.processor,
            isas=sorted(
                cpus.items(), key=lambda it: (platforms.index(it[1].platform), -it[1].level)
            ),
        )
    )


def data(matrix: Matrix) -> dict[str, Any]:
    """Return what the rules of the page know, as JSON."""
    known = known_hardware.load()
    others = dict(ideal.other_releases(matrix, known))
    releases = {**matrix.releases, **others}
    usable = {key: gpu for key, gpu in known.gpu.items() if not gpu.unsupported}
    gpus: dict[str, GpuArchitecture] = {**usable, **matrix.gpus}
    cpus: dict[str, CpuIsa] = {**known.cpu, **matrix.cpus}
    ranks = sorted({Version(release.torch.version) for release in releases.values()})
    return {
        "releases": {
            name: {
                **_release(release),
                "rank": ranks.index(Version(release.torch.version)),
                "isOther": name in others,
                "capabilityRules": _capability_rules(matrix, name, release, gpus, cpus),
            }
            for name, release in releases.items()
        },
        "newest": ideal.newest(matrix),
        "isQualified": len(matrix.releases) > 1,
        "gpus": {key: _gpu(gpu) for key, gpu in gpus.items()},
        "matrixGpus": list(matrix.gpus),
        "cpus": {key: _cpu(cpu) for key, cpu in cpus.items()},
        "matrixCpus": list(matrix.cpus),
        "variants": list(_variants(matrix)),
        "known": _known(known),
        "rules": {rule.id: rule.reason for rule in matrix.rules if rule.when.capability},
        "tegra": sorted(TEGRA),
        "consumer": list(resolver.CONSUMER),
        "lastOfR580": list(remarks.LAST_OF_R580),
        "vgpu": _for_scripts(remarks.VGPU.pattern),
        "mig": remarks.MIG.pattern,
        "apple": remarks.APPLE,
    }


def _release(release: Release) -> dict[str, Any]:
    names = release.names
    cuda = release.cuda
    folders = release.companion_folders
    return {
        "torch": release.torch.version,
        "python": release.python.version,
        "cuda": {"version": cuda.version, "driver": cuda.driver} if cuda else None,
        "environment": release.environment,
        "package": names.package,
        "gpu": names.gpu,
        "cpu": names.cpu,
        "mps": names.mps,
        "suffix": names.suffix,
        "isNightly": release.torch.is_nightly,
        "companions": {
            name: {"version": it.version, "environment": environment_of(folders[name])}
            for name, it in release.companion.packages.items()
        },
    }


def _gpu(gpu: GpuArchitecture) -> dict[str, Any]:
    return {
        "capabilities": gpu.capabilities,
        "archList": gpu.arch_list,
        "isSingle": gpu.is_single,
        "ptx": gpu.ptx,
        "hosts": gpu.hosts,
        "products": gpu.products,
        "first": gpu.first_cuda,
        "last": gpu.last_cuda,
        "driver": gpu.driver,
    }


def _cpu(cpu: CpuIsa) -> dict[str, Any]:
    return {
        "title": cpu.title,
        "platform": cpu.platform,
        "level": cpu.level,
        "flags": cpu.cpuinfo,
        "cpus": cpu.cpus,
    }


def _variants(matrix: Matrix) -> Iterator[list[str | int | None]]:
    """Yield release, GPU, ISA, a bit mask, and whether it is a wrapper, of each variant.

    A bit of the mask is set if the attribute of a package begins with the name of the release.
    Bit 0 is for the variant, the next ones for its companions in the order of the release.
    """
    sharing = {package.id for package in matrix.packages if package.shares_name}
    for variant in matrix.variants:
        ids = [variant.id, *(f"{variant.id}+{name}" for name in variant.release.companion.packages)]
        bits = sum(1 << place for place, name in enumerate(ids) if name in sharing)
        yield [variant.release_name, variant.gpu_key, variant.cpu_key, bits, variant.is_wrapper]


def _known(known: known_hardware.KnownHardware) -> dict[str, Any]:
    return {
        "gpus": {
            key: {
                "capability": gpu.capability,
                "names": gpu.names,
                "products": gpu.offered,
                "unsupported": gpu.unsupported,
            }
            for key, gpu in known.gpu.items()
        },
        "processors": {
            key: {
                "title": it.title,
                "platform": it.platform,
                "isa": it.isa,
                "flags": it.flags,
                "names": it.names,
            }
            for key, it in known.processor.items()
        },
        "others": {key: {"names": it.names, "says": it.says} for key, it in known.other.items()},
        "bundled": {version: cuda.bundled for version, cuda in known.cuda.items()},
        "differs": {key: cpu.differs for key, cpu in known.cpu.items() if cpu.differs},
        "gpuVendor": known_hardware.VENDOR.pattern,
        "gpuFiller": known_hardware.FILLER.pattern,
        "gpuNumber": known_hardware.BARE_NUMBER.pattern,
        "cpuVendor": known_hardware.CPU_VENDOR.pattern,
        "suffix": known_hardware.SUFFIX.pattern,
    }


def _for_scripts(pattern: str) -> str:
    """Return a regular expression of Python in the notation of scripts."""
    return pattern.replace(r"\Z", "$").replace("(?P<", "(?<")


def _capability_rules(
    matrix: Matrix,
    name: str,
    release: Release,
    gpus: dict[str, GpuArchitecture],
    cpus: dict[str, CpuIsa],
) -> dict[str, list[str]]:
    """Return the rules with a condition on the capability, with the architectures they apply to."""
    found: dict[str, list[str]] = {}
    for key, gpu in gpus.items():
        for cpu_key, cpu in cpus.items():
            group = Group(title="", kind="gpu", platform=cpu.platform, gpu=(key,), cpu=(cpu_key,))
            variant = Variant(
                release_name=name,
                release=release,
                pin=matrix.pins[release.nixpkgs.pin],
                group=group,
                gpu_key=key,
                gpu=gpu,
                cpu_key=cpu_key,
                cpu=cpu,
            )
            for rule in rules.effects(variant, matrix.rules, matrix.patches).rules:
                if rule.when.capability and key not in found.setdefault(rule.id, []):
                    found[rule.id].append(key)
    return found
