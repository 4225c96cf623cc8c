"""The page docs/site/index.html: the answer for a machine by three lists, and the matrix as grids.

It is one file that loads nothing. Its Content-Security-Policy allows exactly its own style and
script, by their hashes. The script looks answers up: each is what `choose` says, as is
`invoke recommend`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec import Struct

from build_pytorch.base import digest
from build_pytorch.base.versions import numbers
from build_pytorch.generate.recipes import render_template, template_source
from build_pytorch.hardware import explain
from build_pytorch.hardware.choice import Choice, ChosenBuild
from build_pytorch.hardware.choose import Chooser
from build_pytorch.hardware.possible import PossibleVariants
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.matrix_lines import lines_for
from build_pytorch.matrix.model import Matrix, Variant


class State(NamedTuple):
    """The state of a variant in a grid."""

    word: str
    meaning: str
    colour: str
    """A class of page.css: good, plain, bad, striped or none."""


RECIPE: Final = State("recipe", "in the matrix, with a recipe", "good")
NO_HOST: Final = State("no host", "in the matrix, but no machine has that GPU and CPU", "striped")
ABSENT: Final = State("absent", "not in the matrix", "none")
ADD: Final = "not in the matrix; to add it, append to matrix.toml, then run invoke all:"


class CpuClass(Struct, frozen=True):
    """CPUs that get the same answer: those whose highest ISA is the same."""

    key: str
    """An ISA, or a processor for CPUs without any ISA of their platform."""
    title: str
    platform: str
    flags: list[str]
    """Flags of the ISA and of the lower ones; of a processor those that are known."""
    names: list[str]
    """The generations of CPUs in the class."""


class Card(NamedTuple):
    """One part of an answer. `kind` is best, wheel, ideal or note, and a class of page.css."""

    kind: str
    name: str
    texts: tuple[str, ...]
    command: str = ""


class Cell(NamedTuple):
    """One cell of a grid."""

    name: str
    state: State
    text: str
    command: str


class Grid(NamedTuple):
    """The grid of a release: GPU architectures by CPU ISAs."""

    name: str
    title: str
    columns: list[str]
    rows: list[tuple[str, str, list[Cell]]]
    """Key of the architecture, its products, its cells."""


def render(matrix: Matrix, states: Mapping[str, State] = MappingProxyType({})) -> str:
    """Return the page with its digest.

    `states` are states of variants by id; the others have what the matrix says. Raises
    TemplateError.
    """
    from markupsafe import Markup  # slow to import

    possible = PossibleVariants(matrix, None)
    grids = [_grid(possible, name, states) for name in matrix.releases]
    cells = [cell for grid in grids for *_, row in grid.rows for cell in row]
    used = {cell.state for cell in cells}
    answers = Answers(matrix)
    data = json.dumps(answers.data(cells), separators=(",", ":"))
    for character in "<>&":  # no text can end the element or begin another one
        data = data.replace(character, f"\\u{ord(character):04x}")
    style = template_source(matrix.root, "pages/page.css")
    script = template_source(matrix.root, "pages/page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    every = dict.fromkeys((*states.values(), RECIPE, NO_HOST, ABSENT))
    page = render_template(
        matrix.root,
        "pages/page.html.j2",
        answers=answers,
        grids=grids,
        states=[state for state in every if state in used],
        is_published="published" in {state.word for state in used},
        repository=matrix.repository,
        data=Markup(data),
        style=Markup(style),
        script=Markup(script),
        policy=policy,
    )
    return digest.seal(page)


def _hash(text: str) -> str:
    """Return the source expression of an inline style or script (CSP Level 3, 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class Answers:
    """What `choose` says for each line of the three lists, shared where it is equal.

    `gpus` are titles by capability, the newest first, and by "none". `drivers` are titles by "",
    unknown, then by the oldest version, the newest first, and by one below all of them.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._chooser = Chooser(matrix)
        self.cpus = cpu_classes(matrix)
        known = known_hardware.load()
        architectures = self._chooser.possible.gpus.values()
        by_capability = {gpu.capability: gpu for gpu in architectures}
        self.gpus: dict[str, str] = {}
        for key in sorted(by_capability, key=numbers, reverse=True):
            self.gpus[key] = f"{', '.join(by_capability[key].products)} ({key})"
        self.gpus["none"] = "none, or not of NVIDIA"
        needed = {gpu.driver for gpu in architectures} | {it.driver for it in known.cuda.values()}
        needed |= {variant.driver for variant in matrix.variants}
        steps = sorted(filter(None, needed), key=numbers)
        bundled = {it.bundled: f" (CUDA {version})" for version, it in known.cuda.items()}
        self.drivers = {"": "not known, or none yet"}
        self.drivers |= {it: f"{it} or newer{bundled.get(it, '')}" for it in reversed(steps)}
        self.drivers[str(numbers(steps[0])[0] - 1)] = f"older than {steps[0]}"
        self._cards: dict[Card, int] = {}
        self._answers: dict[tuple[str, tuple[int, ...]], int] = {}
        self.table = {
            gpu: {
                cpu.key: [self._answer(gpu, cpu, driver) for driver in self.drivers]
                for cpu in self.cpus
            }
            for gpu in self.gpus
        }

    def _answer(self, gpu: str, cpu: CpuClass, driver: str) -> int:
        """Return the number of the answer for a machine that stands for a line of each list."""
        gpus = () if gpu == "none" else (MachineGpu(index=0, name="this GPU", capability=gpu),)
        processor = Processor(flags=" ".join(cpu.flags))
        machine = Machine(
            platform=cpu.platform, cpu=processor, gpus=gpus, driver=(gpus and driver) or None
        )
        choice = self._chooser.choose(machine)
        cards = tuple(self._cards.setdefault(it, len(self._cards)) for it in cards_of(choice))
        name = choice.first.variant.id if choice.first else ""
        return self._answers.setdefault((name, cards), len(self._answers))

    def data(self, cells: Iterable[Cell]) -> dict[str, Any]:
        """Return the table as JSON: number of the answer by GPU, CPU and place of the driver.

        An answer is the id of a variant and numbers of cards. In answers, cards and cells the
        numbers of texts stand for the texts.
        """
        texts: dict[str, int] = {}

        def number(text: str) -> int:
            return texts.setdefault(text, len(texts))

        return {
            "table": self.table,
            "answers": [[number(name), *cards] for name, cards in self._answers],
            "cards": [
                [number(text) for text in (card.kind, card.name, card.command, *card.texts)]
                for card in self._cards
            ],
            "cells": [
                [number(it) for it in (cell.name, cell.command, cell.text)] for cell in cells
            ],
            "texts": list(texts),
        }


def cards_of(choice: Choice) -> list[Card]:
    """Return what `invoke recommend` shows of a choice, in short."""
    wheel, builds = choice.wheel, list(_builds(choice))
    texts = (wheel.code, *wheel.limits) if wheel else ()
    wheels = [Card("wheel", wheel.title, texts, wheel.command)] if wheel else []
    return [*wheels, *builds] if choice.is_wheel_first else [*builds, *wheels]


def _builds(choice: Choice) -> Iterator[Card]:
    """Yield the builds of a choice, with the driver that they wait for, or why there is none."""
    best, first, better, update = choice.best, choice.first, choice.better, choice.update
    if choice.ideal and choice.ideal.unused and not (update or (better and better.gpus)):
        why = choice.ideal.why_unused
        yield Card("note", "", (f"{why[0].upper()}{why[1:]}",))
    if update and first is not best:
        yield Card("note", "", (f"First {update.says}",))
    if first is None:
        own = [it for answer in choice.answers for it in answer.reasons if it.kind != "platform"]
        reasons = explain.joined((reason.subject, reason.text) for reason in own)
        yield Card("note", "No variant runs here", tuple(f"{it}: {why}" for it, why in reasons))
    elif best and first is not best:
        yield _build("best", first, f"until then {best.variant.id}; {best.reason}")
    elif update and first is best:
        yield _build("best", first, f"better: {update.says}, then {update.build.variant.id}")
    else:
        yield _build("best", first)
    if better:
        yield _build("ideal", better)


def _build(kind: str, build: ChosenBuild, *more: str) -> Card:
    variant = build.variant
    on = f"on CUDA {variant.cuda.version}" if variant.cuda else "without CUDA"
    texts = [f"PyTorch {variant.version} {on}", *build.reason.split("; "), *build.doubts, *more]
    if build.is_in_matrix:
        return Card(kind, variant.id, tuple(texts), f"invoke build {variant.id}")
    made = (f"not in the matrix; {build.command} makes its release",) if build.command else ()
    return Card(kind, variant.id, (*texts, *made, *([ADD] if build.lines else [])), build.lines)


def _grid(possible: PossibleVariants, name: str, states: Mapping[str, State]) -> Grid:
    """Return the grid of a release.

    It has all architectures of the matrix, the newest first; of a nightly, only its own.
    """
    matrix = possible.matrix
    release = matrix.releases[name]
    variants = [variant for variant in matrix.of_release(name) if not variant.is_wrapper]
    by_capability = sorted(matrix.gpus, key=lambda key: numbers(matrix.gpus[key].capability))
    keys: list[str | None] = [*reversed(by_capability), None]
    if release.torch.is_nightly:
        keys = [key for key in keys if any(variant.gpu_key == key for variant in variants)]
    used = {variant.cpu_key for variant in variants}
    columns = [
        key for key, cpu in possible.cpus.items() if key in used or "darwin" not in cpu.platform
    ]
    on = f"CUDA {release.cuda.version}" if release.cuda else "no CUDA"
    title = f"PyTorch {release.torch.version}, {on}, Python {release.python.version}"
    rows = []
    for key in keys:
        products = ", ".join(matrix.gpus[key].products) if key else "CPU-only"
        cells = [_cell(possible, possible.variant(name, key, cpu), states) for cpu in columns]
        rows.append((key or "cpu", products, cells))
    return Grid(name, title, columns, rows)


def _cell(possible: PossibleVariants, variant: Variant, states: Mapping[str, State]) -> Cell:
    """Return the cell of a variant, which need not exist."""
    gpu, cuda, name = variant.gpu, variant.cuda, variant.id
    build = f"invoke build {name}"
    if possible.is_existing(variant):
        if variant.impossible:
            return Cell(name, states.get(name, NO_HOST), variant.impossible, build)
        text = f"{variant.gpu_label or 'no GPU'}, {variant.cpu.title}"
        needs = f"; driver {variant.driver} or newer" if variant.driver else ""
        return Cell(name, states.get(name, RECIPE), text + needs, build)
    if gpu and not compiles(cuda, gpu):
        whose = f"CUDA {cuda.version}" if cuda else "a release without CUDA"
        return Cell(name, ABSENT, f"{whose} does not compile for {gpu.capability}", "")
    if variant.impossible:
        return Cell(name, ABSENT, variant.impossible, "")
    return Cell(name, ABSENT, ADD, lines_for(possible.matrix, variant))


def cpu_classes(matrix: Matrix) -> list[CpuClass]:
    """Return the classes of CPUs, of each platform the highest ISA first."""
    known = known_hardware.load()
    isas = {**known.cpu, **matrix.cpus}
    found = []
    for platform in dict.fromkeys(isa.platform for isa in isas.values()):
        here = {key: isa for key, isa in isas.items() if isa.platform == platform}
        processors = {k: it for k, it in known.processor.items() if it.platform == platform}
        for key, isa in sorted(here.items(), key=lambda item: -item[1].level):
            lower = [it for it in here.values() if it.level <= isa.level]
            flags = dict.fromkeys(flag for it in lower for flag in it.cpuinfo)
            names = [it.title for it in processors.values() if it.isa == key]
            found.append(CpuClass(key, isa.title, platform, list(flags), names))
        older = {key: it for key, it in processors.items() if not it.isa}
        for key in list(older)[:1]:
            names = [it.title for it in older.values()]
            found.append(CpuClass(key, "older", platform, older[key].flags.split(), names))
    return found
