"""Machines for the picker: the saved ones and drawn ones, and what `choose` says about them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from conftest import PROJECT

from build_pytorch.hardware import choose, explain, saved_machines
from build_pytorch.hardware.choice import ChosenBuild
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.model import Matrix

SAVED: Final = sorted((PROJECT / "tests/machines").glob("*.json"))
KNOWN: Final = known_hardware.load()
SEED: Final = 15

_NAMES: Final = [
    *((name, gpu.capability) for gpu in KNOWN.gpu.values() for name in gpu.offered),
    ("NVIDIA GeForce RTX 3080 Laptop GPU", "8.6"),
    ("NVIDIA GeForce GTX 1660 Ti", "7.5"),
    ("NVIDIA TITAN V", "7.0"),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0"),
    ("GRID T4-16Q", "7.5"),
    ("NVIDIA A40-8A", "8.6"),
    ("NVIDIA Next", "13.0"),
    ("NVIDIA of 2027", "12.3"),
    ("NVIDIA Tegra X1", "5.3"),
    ("NVIDIA Unknown", None),
]
_DRIVERS: Final = [
    *(None, "470.256.02", "525", "525.60.13", "535.183.01", "550", "550.163.01", "560.94"),
    *("570", "570.26", "570.172.08", "575.51.03", "580", "580.65.06", "580.95.05", "590.44.01"),
    *("540.4.0", "390.157"),
]
_CUDAS: Final = [None, "11.4", "12.0", "12.4", "12.6", "12.8", "12.9", "13.0", "13.1"]
_OTHERS: Final = ["AMD GPU 1002:744c", "AMD Radeon RX 7900 XTX", "Intel Arc A770", "Voodoo 2"]


def saved() -> dict[str, Machine]:
    """The saved machines by name."""
    return {path.stem: saved_machines.load(path) for path in SAVED}


def drawn(number: int, seed: int = SEED) -> dict[str, Machine]:
    """Machines with several GPUs, old drivers, no GPU, other vendors, WSL: always the same ones."""
    draw = random.Random(seed)
    machines = [machine for machine in saved().values() if machine.cpu.flags]
    found = {}
    for count in range(number):
        base = draw.choice(machines)
        kinds = draw.choice([0, *[1] * 12, 2, 3])
        chosen = [draw.choice(_NAMES) for _ in range(kinds)]
        chosen = [it for it in chosen for _ in range(draw.choice([1, 1, 1, 2, 8]))]
        platform = base.platform if draw.random() < 0.97 else "riscv64-linux"
        found[f"drawn-{count}"] = Machine(
            platform=platform,
            cpu=base.cpu if draw.random() < 0.95 else Processor(flags=""),
            gpus=tuple(
                MachineGpu(index=index, name=name, capability=capability)
                for index, (name, capability) in enumerate(chosen)
            ),
            driver=draw.choice(_DRIVERS),
            cuda=draw.choice([None, None, *_CUDAS]),
            other_gpus=(draw.choice(_OTHERS),) if draw.random() < 0.1 else (),
            is_wsl=platform == "x86_64-linux" and draw.random() < 0.15,
        )
    return found


def typed(number: int, seed: int = SEED) -> list[dict[str, str]]:
    """What people type for GPU, CPU and driver, right and wrong: always the same."""
    draw = random.Random(seed)
    products = [name for gpu in KNOWN.gpu.values() for name in gpu.offered]
    gpus = [*products, *(gpu.capability for gpu in KNOWN.gpu.values()), *KNOWN.gpu, "none", "cpu"]
    gpus += ["4090", "rtx5090", "1080ti", "gh200", "dgxspark", "H100 PCIe", "compute 8.6", "igpu"]
    gpus += ["RX 7900 XTX", "Arc A770", "MI300X", "RTX 9999", "6000", "No GPU", "13.0", "sm_120"]
    cpus = [title for it in KNOWN.processor.values() for title in (it.title, it.title.lower())]
    cpus += [*KNOWN.processor, *KNOWN.cpu, *(isa.title for isa in KNOWN.cpu.values())]
    cpus += ["7950X", "i7 8700", "13th gen", "13900K", "Ryzen 9 7950X", "Xeon Gold 6248", "zen9"]
    drivers = ["", "", "550", "580", "580.95.05", "535.183.01", "12.8", "13.0", "none", "470", "x"]
    own = [name for gpu in KNOWN.gpu.values() if not gpu.names for name in gpu.offered]
    found = [
        {"gpu": draw.choice(gpus), "cpu": draw.choice(cpus), "driver": draw.choice(drivers)}
        for _ in range(number - len(own))
    ]
    # A GPU of an ARM machine brings its CPU.
    return [*found, *({"gpu": name, "cpu": "", "driver": draw.choice(drivers)} for name in own)]


def shown(matrix: Matrix, machine: Machine) -> dict[str, Any]:
    """What the page must show for a machine: what `choose` decides, a problem, or the command."""
    capabilities = {gpu.capability for gpu in machine.gpus}
    typed = [(gpu.name, KNOWN.gpu_named(gpu.name)) for gpu in machine.gpus]
    arm_only = [KNOWN.arm_processor(name, found[1]) for name, found in typed if found]
    if any(it is not None for it in arm_only) and not machine.platform.startswith("aarch64-"):
        return {"problem": "exists on aarch64-linux only"}
    beside = [isa for it in arm_only if it and (isa := KNOWN.processor[it].isa) == "armv8_2"]
    if beside and "sve2" in machine.cpu.flags.split():
        return {"problem": "is built together with a CPU that has armv8_2"}
    known = {None, *(gpu.capability for gpu in KNOWN.gpu.values())}
    if len(capabilities) > 1 or not capabilities <= known:
        return {"command": "invoke recommend"}
    choice = choose.choose(matrix, machine)
    (answer,) = choice.answers
    update, unused = choice.update, choice.ideal.why_unused if choice.ideal else ""
    joined = explain.joined((reason.subject, reason.text) for reason in answer.reasons)
    return {
        "first": _build(choice.first),
        "best": _build(choice.best),
        "better": _build(choice.better),
        "update": update and {"says": update.says, "id": update.build.variant.id},
        "whyUnused": "" if update else unused,
        "wheel": choice.wheel
        and {
            "title": choice.wheel.title,
            "says": [choice.wheel.code, *choice.wheel.limits],
            "command": choice.wheel.command,
        },
        "isWheelFirst": choice.is_wheel_first,
        "next": [
            {"id": it.variant.id, "why": explain.why_fallback(it, answer.best)}
            for it in answer.accepted[1:]
            if answer.best
        ],
        "remarks": sorted(choice.remarks),
        # Which flags a CPU lacks is said of its class, and here of the machine.
        "rejected": sorted(list(row) for row in joined if not row[1].startswith("the CPU lacks")),
    }


def differences(
    matrix: Matrix, machines: Mapping[str, Machine], found: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Machines for which the page finds something else than `shown`, with both."""
    wrong = {}
    for (name, machine), mine in zip(machines.items(), found, strict=True):
        wanted = json.loads(json.dumps(shown(matrix, machine)))
        words = {key: wanted[key] for key in ("problem", "command") if key in wanted}
        if mine != wanted and not any(text in mine.get(key, "") for key, text in words.items()):
            wrong[name] = (mine, wanted)
    return wrong


def _build(build: ChosenBuild | None) -> dict[str, Any] | None:
    if build is None:
        return None
    return {
        "id": build.variant.id,
        "package": build.variant.package if build.is_in_matrix else None,
        "reason": build.reason,
        "doubts": list(build.doubts),
        "command": "\n".join(filter(None, (build.command, build.lines))),
    }


_ASK: Final = """
(all) => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const [answers, reader] = [makeAnswers(facts), makeReader(facts)];
  const build = (it) => it && { id: it.id, package: it.package && it.package.package,
    reason: it.reason, doubts: it.doubts, command: it.command };
  return all.map((given) => {
    const { machine, problems } = reader.machineOf(READ);
    const problem = [problems.gpu, problems.cpu, problems.driver].flat().join(" ");
    if (problem) return { problem };
    const found = machine.kinds.length > 1 || machine.isOdd ? null : answers.lookUp(machine);
    if (!found) return { command: reader.commandFor(machine) };
    return {
      first: build(found.first), best: build(found.best), better: build(found.better),
      wheel: found.wheel, isWheelFirst: found.isWheelFirst,
      update: found.update, whyUnused: found.whyUnused, next: found.next,
      remarks: [...machine.otherGpus.map(reader.otherSays), ...reader.remarksOn(machine),
        ...found.remarks].sort(),
      rejected: found.rejected.filter(({ why }) => !why.startsWith("the CPU lacks"))
        .map(({ subjects, why }) => [subjects, why]).sort(),
    };
  });
}
"""
LOOK_UP: Final = _ASK.replace("READ", "reader.paste(given)")
"""A function of scripts: what the page finds for pasted texts, in the form of `shown`."""
LOOK_UP_TYPED: Final = _ASK.replace("READ", "given")
"""The same for what a person types into the three fields."""
