"""The picker: a page that names the right variant for a machine, docs/site/index.html.

The page reads what a person types or pastes, and looks the answer up: see picker_answers. What it
says about a package, it reads from the packages of the index, without what a ledger knows.
"""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from build_pytorch.base import digest
from build_pytorch.generate import pages, picker_tables
from build_pytorch.generate.picker_answers import PickerAnswers
from build_pytorch.hardware import explain, verdicts
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.model import Matrix


def page(matrix: Matrix) -> str:
    """Return the page with its digest. Raises TemplateError."""
    known = known_hardware.load()
    answers = PickerAnswers(matrix)
    return digest.seal(
        pages.page(
            matrix.root,
            "picker",
            *("picker_answers.js", "picker_reading.js"),
            data=pages.data({**answers.data(), **_names(answers)}),
            states=picker_tables.STATES,
            maps=[picker_tables.release_map(answers.possible, name) for name in matrix.releases],
            products=[name for gpu in known.gpu.values() for name in gpu.offered],
            processors=known.processor,
            cpus={**known.cpu, **matrix.cpus},
            isas=[cpu.key for cpu in answers.cpus if cpu.cpus],
        )
    )


def _names(answers: PickerAnswers) -> dict[str, Any]:
    """Return what the page needs to read names, as JSON: the facts of known_hardware.toml."""
    known = known_hardware.load()
    older = {cpu.platform: cpu.key for cpu in answers.cpus if not cpu.cpus}
    return {
        "cpus": to_builtins(answers.cpus),
        "gpus": {
            key: {
                "capability": gpu.capability,
                "names": gpu.names,
                "armOnly": gpu.arm_only,
                "products": gpu.offered,
            }
            for key, gpu in known.gpu.items()
        },
        "processors": {
            key: {
                "title": processor.title,
                "platform": processor.platform,
                "cpu": processor.isa or older[processor.platform],
                "names": processor.names,
            }
            for key, processor in known.processor.items()
        },
        "others": {key: {"names": it.names, "says": it.says} for key, it in known.other.items()},
        "consumer": verdicts.CONSUMER,
        "nameRemarks": explain.NAME_REMARKS,
        "vendorRemarks": explain.VENDOR_REMARKS,
        "gpuVendor": known_hardware.VENDOR.pattern,
        "gpuFiller": known_hardware.FILLER.pattern,
        "gpuNumber": known_hardware.BARE_NUMBER.pattern,
        "cpuVendor": known_hardware.CPU_VENDOR.pattern,
        "publisher": answers.possible.matrix.publisher,
        "repository": answers.possible.matrix.repository,
        "noGpu": known_hardware.NO_GPU.pattern,
        "capability": known_hardware.CAPABILITY.pattern,
        "cpuForms": known_hardware.CPU_FORMS,
        "cudaNumber": known_hardware.CUDA_NUMBER.pattern,
        "suffix": known_hardware.SUFFIX.pattern,
    }
