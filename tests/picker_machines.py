"""Machines for the picker: the saved ones and drawn ones, and what `invoke recommend` says."""

from __future__ import annotations

import random
from typing import Any, Final

from conftest import PROJECT

from build_pytorch.hardware import explain, ideal, resolver, saved_machines
from build_pytorch.hardware.ideal import MachineChoice
from build_pytorch.hardware.remarks import remarks
from build_pytorch.hardware.resolver import Answer, Candidate
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
        kinds = draw.choice([0, 1, 1, 1, 1, 2, 2, 3])
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


def facts(machine: Machine) -> dict[str, Any]:
    """A machine as the rules of the page take it."""
    return {
        "platform": machine.platform,
        "vendor": machine.cpu.vendor,
        "flags": machine.cpu.flags,
        "gpus": [
            {"index": gpu.index, "name": gpu.name, "capability": gpu.capability}
            for gpu in machine.gpus
        ],
        "driver": machine.driver,
        "cuda": machine.cuda,
        "isWsl": machine.is_wsl,
        "otherGpus": list(machine.other_gpus),
    }


def recommended(matrix: Matrix, machine: Machine) -> dict[str, Any]:
    """Everything that `invoke recommend` decides about a machine."""
    result = resolver.recommend(matrix, machine)
    found = ideal.best(result), ideal.ideal(matrix, machine, machine.gpus)
    gpus = [gpu for answer in result.answers for gpu in answer.gpus]
    return {
        "best": _choice(found[0]),
        "ideal": _choice(found[1]),
        "remarks": list(remarks(machine, gpus, [each.variant for each in found if each])),
        "for_all": result.for_all and result.for_all.id,
        "answers": [_answer(answer) for answer in result.answers],
    }


def _choice(choice: MachineChoice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    variant = choice.variant
    return {
        "variant": variant.id,
        "package": variant.package,
        "kind": variant.kind,
        "gpus": [gpu.index for gpu in choice.gpus],
        "unused": [gpu.index for gpu in choice.unused],
        "in_matrix": choice.is_in_matrix,
        "reason": choice.reason,
        "after_driver_update": choice.after_driver_update,
        "command": choice.command,
    }


def _answer(answer: Answer) -> dict[str, Any]:
    best = answer.best
    return {
        "gpus": [gpu.index for gpu in answer.gpus],
        "best": best and [*_candidate(best), explain.why_best(best)],
        "fallbacks": [
            [*_candidate(it), explain.why_fallback(it, best)] for it in answer.fallbacks if best
        ],
        "waits": answer.waits_for_driver and answer.waits_for_driver.variant.id,
        "misses": [[it.kind, it.subject, it.text] for it in answer.near_misses],
        "gaps": list(answer.gaps),
        "obstacles": [[it.text for it in each.obstacles] for each in answer.candidates],
    }


def _candidate(candidate: Candidate) -> list[Any]:
    return [candidate.variant.id, candidate.grade, list(candidate.doubts)]


DECIDE: Final = """
(facts, machines) => {
  const rules = makeRules(facts);
  const choice = (it) => it && {
    variant: it.variant.id, package: it.variant.package, kind: it.variant.kind,
    gpus: it.gpus.map((gpu) => gpu.index), unused: it.unused.map((gpu) => gpu.index),
    in_matrix: it.isInMatrix, reason: it.reason, after_driver_update: it.afterDriverUpdate,
    command: it.command,
  };
  const candidate = (it) => [it.variant.id, it.grade, it.doubts];
  return machines.map((machine) => {
    const found = rules.recommend(machine);
    return {
      best: choice(found.best), ideal: choice(found.ideal), remarks: found.remarks,
      for_all: found.forAll && found.forAll.id,
      answers: found.answers.map((answer) => ({
        gpus: answer.gpus.map((gpu) => gpu.index),
        best: answer.best && [...candidate(answer.best), rules.whyBest(answer.best)],
        fallbacks: answer.fallbacks.map(
          (it) => [...candidate(it), rules.whyFallback(it, answer.best)]),
        waits: answer.waitsForDriver && answer.waitsForDriver.variant.id,
        misses: answer.nearMisses.map((it) => [it.kind, it.subject, it.text]),
        gaps: answer.gaps,
        obstacles: answer.candidates.map((each) => each.obstacles.map((it) => it.text)),
      })),
    };
  });
}
"""
"""A function of scripts: the decisions of the page's rules, in the form of `recommended`."""
