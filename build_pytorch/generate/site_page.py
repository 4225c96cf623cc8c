"""The page docs/site/index.html: the answer for a machine by three lists, and the matrix as grids.

It is one file that loads nothing. Its Content-Security-Policy allows exactly its own style and
script, by their hashes. The script looks answers up: each is what `choose` says.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from build_pytorch.base import digest
from build_pytorch.generate.recipes import render_template, template_source
from build_pytorch.hardware.choose import Choice, Verdicts, choose, judge_all
from build_pytorch.hardware.own_builds import flags_up_to, own_build
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.hardware.verdict import needed_driver
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.available import available_builds
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.tables import GpuArchitecture
from build_pytorch.matrix.versions import numbers


class State(NamedTuple):
    """The state of a variant in a grid; `colour` is a class of page.css."""

    word: str
    meaning: str
    colour: str


RECIPE: Final = State("recipe", "in the matrix, with a recipe", "good")
NO_HOST: Final = State("no host", "in the matrix, but no machine has that GPU and CPU", "striped")
ADD: Final = "not in the matrix; to add it, append to matrix.toml, then run invoke all:"


class CpuClass(NamedTuple):
    """CPUs that get the same answer: their highest ISA, or a processor without any, is the same."""

    key: str
    title: str
    platform: str
    flags: str
    names: list[str]  #: the generations of CPUs in the class


class Card(NamedTuple):
    """One part of an answer. `kind` is now, or, build or note, and a class of page.css."""

    kind: str
    name: str
    command: str
    texts: tuple[str, ...]


class Cell(NamedTuple):
    """One cell of a grid."""

    name: str
    command: str
    text: str
    state: State


def render(matrix: Matrix, states: Mapping[str, State] = MappingProxyType({})) -> str:
    """Return the page with its digest.

    `states` are states of variants by id; the others have what the matrix says. Raises
    TemplateError.
    """
    from markupsafe import Markup  # slow to import

    answers = Answers(matrix)
    grids = {name: _grid(matrix, name, states) for name in matrix.releases}
    cells = [cell for *_, rows in grids.values() for *_, row in rows for cell in row if cell]
    used = dict.fromkeys(cell.state for cell in cells)
    facts = {
        "table": answers.table,
        "answers": [[name, *cards] for name, cards in answers.answers],
        "cards": [(card.kind, card.name, card.command, *card.texts) for card in answers.cards],
        "cells": [(cell.name, cell.command, cell.text) for cell in cells],
    }
    data = json.dumps(facts, separators=(",", ":"))
    for character in "<>&":  # no text can end the element or begin another one
        data = data.replace(character, f"\\u{ord(character):04x}")
    inline = {}
    for kind in ("css", "js"):
        text = template_source(matrix.root, f"pages/page.{kind}")
        hashed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        inline[kind] = {"text": Markup(text), "hash": hashed}
    page = render_template(
        matrix.root,
        "pages/page.html.j2",
        answers=answers,
        grids=grids,
        states=list(used),
        is_published="published" in {state.word for state in used},
        repository=matrix.repository,
        data=Markup(data),
        inline=inline,
    )
    return digest.seal(page)


class Answers:
    """What `choose` says for each line of the three lists.

    `gpus` are titles by capability, the newest first, and by "none". `drivers` are titles by "",
    unknown, then by the oldest version, the newest first, and by one below all of them. `table`
    has the number of an answer by GPU, CPU and place of the driver. An answer is the variant to
    mark, and numbers of cards.
    """

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.cards: dict[Card, int] = {}
        self.answers: dict[tuple[str, tuple[int, ...]], int] = {}
        self.cpus = list(_cpu_classes(matrix))
        gpus = sorted(matrix.gpus.values(), key=lambda gpu: numbers(gpu.capability))
        self.gpus = {
            it.capability: f"{', '.join(it.products)} ({it.capability})" for it in gpus[::-1]
        }
        self.gpus["none"] = "none, or not of NVIDIA"
        self.drivers = _drivers(matrix)
        self.table = {
            key: self._row(gpu) for key, gpu in zip(self.gpus, (*gpus[::-1], None), strict=True)
        }

    def _row(self, gpu: GpuArchitecture | None) -> dict[str, list[int]]:
        """Return the numbers of the answers for each driver, by CPU.

        Drivers that reach the same bounds of builds for the GPU have one answer.
        """
        devices: tuple[MachineGpu, ...] = ()
        bounds: set[str] = set()
        if gpu:
            devices = (MachineGpu(index=0, name="GPU", capability=gpu.capability),)
            own = [own_build(it, gpu, "") for it in self.matrix.releases.values()]
            fitting = [it for it in (*available_builds(), *own) if it.fit(gpu.capability)]
            bounds = {needed_driver(it, devices[0]) for it in fitting}
            bounds |= {it.blackwell_compile for it in fitting}
        limits = [numbers(bound) for bound in bounds]
        reached = [(bool(it), *(numbers(it) >= limit for limit in limits)) for it in self.drivers]
        judged: dict[tuple[object, ...], Verdicts] = {}  # those of a platform have any CPU
        row = {}
        for cpu in self.cpus:
            of_driver: dict[tuple[bool, ...], int] = {}
            if gpu and cpu.platform not in gpu.hosts:
                text = f"{gpu.capability} is known on {' and '.join(gpu.hosts)} only"
                number = self._number("", [Card("note", "No such machine", "", (text,))])
                of_driver = dict.fromkeys(reached, number)
            for driver, place in zip(self.drivers, reached, strict=True):
                if place in of_driver:
                    continue
                machine = Machine(
                    platform=cpu.platform,
                    cpu=Processor(flags=cpu.flags),
                    gpus=devices,
                    driver=driver if gpu else None,
                )
                if (cpu.platform, place) not in judged:
                    judged[cpu.platform, place] = judge_all(self.matrix, machine)
                choice = choose(self.matrix, machine, judged=judged[cpu.platform, place])
                of_driver[place] = self._number(choice.build.variant, cards_of(choice))
            row[cpu.key] = [of_driver[place] for place in reached]
        return row

    def _number(self, variant: str, cards: list[Card]) -> int:
        numbered = tuple(self.cards.setdefault(card, len(self.cards)) for card in cards)
        return self.answers.setdefault((variant, numbered), len(self.answers))


def cards_of(choice: Choice) -> list[Card]:
    """Return the Now and Build lines of `invoke recommend`, and what is said beside them."""
    cards = [
        Card("or" if place else "now", "", it.command, tuple(it.says.split("; ")))
        for place, it in enumerate(choice.now)
    ]
    unused = choice.unused.partition("; found ")[0]  # several drivers of the list share an answer
    notes = {"GPU": unused, "Driver": choice.update}
    cards += [Card("note", name, "", (text,)) for name, text in notes.items() if text]
    build = choice.build
    if not build.has_reason:
        return [*cards, Card("build", "", "", (build.says,))]
    command = build.lines or f"invoke build {build.variant}"
    texts = (build.says, ADD) if build.lines else (build.says,)
    return [*cards, Card("build", build.variant, command, texts)]


def _drivers(matrix: Matrix) -> dict[str, str]:
    """Return the list of drivers: each at which an answer may change."""
    needed = {gpu.driver for gpu in matrix.gpus.values() if gpu.driver}
    needed |= {build.driver for build in available_builds() if build.cuda}
    needed |= {variant.driver for variant in matrix.variants if variant.driver}
    steps = sorted(needed, key=numbers, reverse=True)
    cuda = {it.bundled: f" (CUDA {key})" for key, it in known_hardware.load().cuda.items()}
    return {
        "": "not known, or none yet",
        **{step: f"{step} or newer{cuda.get(step, '')}" for step in steps},
        str(numbers(steps[-1])[0] - 1): f"older than {steps[-1]}",
    }


def _cpu_classes(matrix: Matrix) -> Iterator[CpuClass]:
    """Yield the classes of CPUs, of each platform the highest ISA first.

    CPUs with an ISA of which all variants are aliases are in the class of what it is an alias of.
    """
    isas, processors = matrix.cpus, known_hardware.load().processor
    own = {it.cpu_key for it in matrix.variants if not it.alias_of}
    class_of = {key: key if key in own else it.same_as or key for key, it in isas.items()}
    for platform in dict.fromkeys(isa.platform for isa in isas.values()):
        local = {key: it for key, it in processors.items() if it.platform == platform}
        keys = [key for key in isas if isas[key].platform == platform and class_of[key] == key]
        for key in sorted(keys, key=lambda key: -isas[key].level):
            names = [it.title for it in local.values() if it.isa and class_of[it.isa] == key]
            yield CpuClass(key, isas[key].title, platform, flags_up_to(matrix, key), names)
        older = {key: it for key, it in local.items() if not it.isa}
        for key in list(older)[:1]:
            names = [it.title for it in older.values()]
            yield CpuClass(key, "older", platform, older[key].flags, names)


def _grid(
    matrix: Matrix, name: str, states: Mapping[str, State]
) -> tuple[str, list[str], list[tuple[str, str, list[Cell | None]]]]:
    """Return title, columns and rows of a release: architecture, products and cells."""
    release = matrix.releases[name]
    variants = {(it.gpu_key, it.cpu_key): it for it in matrix.of_release(name) if not it.is_wrapper}
    gpus = {gpu: numbers(matrix.gpus[gpu].capability) if gpu else () for gpu, _ in variants}
    used = {isa for _, isa in variants}
    columns = [isa for isa in matrix.cpus if isa in used]

    def cell(variant: Variant) -> Cell:
        needs = f"; driver {variant.driver} or newer" if variant.driver else ""
        text = f"{variant.gpu_label or 'no GPU'}, {variant.cpu.title}{needs}"
        state = states.get(variant.id, NO_HOST if variant.impossible else RECIPE)
        return Cell(variant.id, f"invoke build {variant.id}", variant.impossible or text, state)

    on = f"CUDA {release.cuda.version}" if release.cuda else "no CUDA"
    title = f"PyTorch {release.torch.version}, {on}, Python {release.python.version}"
    rows = []
    for gpu in sorted(gpus, key=lambda gpu: gpus[gpu], reverse=True):
        products = ", ".join(matrix.gpus[gpu].products) if gpu else "CPU-only"
        of_row = [variants.get((gpu, isa)) for isa in columns]
        rows.append((gpu or "cpu", products, [cell(it) if it else None for it in of_row]))
    return title, columns, rows
