"""The page docs/site/index.html: the answer for a machine by three lists, and the matrix as grids.

It is one file that loads nothing. Its Content-Security-Policy allows exactly its own style and
script, by their hashes. The script looks answers up: each is what `choose` says, as is
`invoke recommend`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec import Struct

from build_pytorch.base import digest
from build_pytorch.base.versions import numbers
from build_pytorch.generate.recipes import render_template, template_source
from build_pytorch.hardware.choose import Choice, choose
from build_pytorch.hardware.own_builds import group_lines, id_of
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware
from build_pytorch.matrix.available import available_builds
from build_pytorch.matrix.compatibility import compiles
from build_pytorch.matrix.model import Matrix, Variant
from build_pytorch.matrix.tables import CpuIsa, GpuArchitecture


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
    """One part of an answer. `kind` is now, or, build or note, and a class of page.css."""

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

    grids = [_grid(matrix, name, states) for name in matrix.releases]
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
        self._matrix = matrix
        self.cpus = cpu_classes(matrix)
        known = known_hardware.load()
        architectures = _architectures(matrix).values()
        by_capability = {gpu.capability: gpu for gpu in architectures}
        self.gpus: dict[str, str] = {}
        for key in sorted(by_capability, key=numbers, reverse=True):
            self.gpus[key] = f"{', '.join(by_capability[key].products)} ({key})"
        self.gpus["none"] = "none, or not of NVIDIA"
        needed = {gpu.driver for gpu in architectures if gpu.driver}
        needed |= {build.driver for build in available_builds() if build.cuda}
        needed |= {variant.driver for variant in matrix.variants if variant.driver}
        steps = sorted(needed, key=numbers)
        bundled = {it.bundled: f" (CUDA {version})" for version, it in known.cuda.items()}
        self.drivers = {"": "not known, or none yet"}
        self.drivers |= {it: f"{it} or newer{bundled.get(it, '')}" for it in reversed(steps)}
        self.drivers[str(numbers(steps[0])[0] - 1)] = f"older than {steps[0]}"
        self._cards: dict[Card, int] = {}
        self._answers: dict[tuple[str, tuple[int, ...]], int] = {}
        self.table = {
            gpu: {cpu.key: self._answers_of(gpu, cpu, by_capability.get(gpu)) for cpu in self.cpus}
            for gpu in self.gpus
        }

    def _answers_of(self, gpu: str, cpu: CpuClass, known: GpuArchitecture | None) -> list[int]:
        """Return the numbers of the answers for each driver."""
        if known and cpu.platform not in known.hosts:
            text = f"{gpu} is known on {' and '.join(known.hosts)} only"
            return [self._number("", [Card("note", "No such machine", (text,))])] * len(
                self.drivers
            )
        found = []
        for driver in self.drivers if known else ("",):
            own = (MachineGpu(index=0, name="this GPU", capability=gpu),) if known else ()
            processor = Processor(flags=" ".join(cpu.flags))
            machine = Machine(platform=cpu.platform, cpu=processor, gpus=own, driver=driver or None)
            choice = choose(self._matrix, machine)
            found.append(self._number(choice.build.variant, cards_of(choice)))
        return found if known else found * len(self.drivers)

    def _number(self, name: str, cards: list[Card]) -> int:
        """Return the number of an answer: a variant to mark, and cards."""
        numbered = tuple(self._cards.setdefault(card, len(self._cards)) for card in cards)
        return self._answers.setdefault((name, numbered), len(self._answers))

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
    """Return the Now and Build lines of `invoke recommend`, and what is said beside them."""
    kinds = ("now", *["or"] * len(choice.now))
    cards = [
        Card(kind, "", tuple(it.says.split("; ")), it.command)
        for kind, it in zip(kinds, choice.now, strict=False)
    ]
    notes = {"GPU": choice.unused, "Driver": choice.update}
    cards += [Card("note", name, (text,)) for name, text in notes.items() if text]
    build = choice.build
    if not build.has_reason:
        return [*cards, Card("build", "", (build.says,))]
    command = build.lines or f"invoke build {build.variant}"
    texts = (build.says, *([ADD] if build.lines else []))
    return [*cards, Card("build", build.variant, texts, command)]


def _architectures(matrix: Matrix) -> dict[str, GpuArchitecture]:
    return {**known_hardware.load().gpu, **matrix.gpus}


def _isas(matrix: Matrix) -> dict[str, CpuIsa]:
    return {**known_hardware.load().cpu, **matrix.cpus}


def _grid(matrix: Matrix, name: str, states: Mapping[str, State]) -> Grid:
    """Return the grid of a release.

    It has all architectures of the matrix, the newest first; of a nightly, only its own.
    """
    release, isas = matrix.releases[name], _isas(matrix)
    variants = {(it.gpu_key, it.cpu_key): it for it in matrix.of_release(name) if not it.is_wrapper}
    by_capability = sorted(matrix.gpus, key=lambda key: numbers(matrix.gpus[key].capability))
    keys: list[str | None] = [*reversed(by_capability), None]
    if release.torch.is_nightly:
        keys = [key for key in keys if any(gpu == key for gpu, _ in variants)]
    used = {cpu for _, cpu in variants}
    columns = [key for key, isa in isas.items() if key in used or "darwin" not in isa.platform]
    on = f"CUDA {release.cuda.version}" if release.cuda else "no CUDA"
    title = f"PyTorch {release.torch.version}, {on}, Python {release.python.version}"
    rows = []
    for key in keys:
        products = ", ".join(matrix.gpus[key].products) if key else "CPU-only"
        cells = []
        for isa in columns:
            variant = variants.get((key, isa))
            cells.append(_cell(variant, states) if variant else _absent(matrix, name, key, isa))
        rows.append((key or "cpu", products, cells))
    return Grid(name, title, columns, rows)


def _cell(variant: Variant, states: Mapping[str, State]) -> Cell:
    """Return the cell of a variant of the matrix."""
    name, why = variant.id, variant.impossible
    needs = f"; driver {variant.driver} or newer" if variant.driver else ""
    text = why or f"{variant.gpu_label or 'no GPU'}, {variant.cpu.title}{needs}"
    state = states.get(name, NO_HOST if why else RECIPE)
    return Cell(name, state, text, f"invoke build {name}")


def _absent(matrix: Matrix, release: str, gpu: str | None, isa: str) -> Cell:
    """Return the cell of a variant that the matrix lacks: how to add it, or why it cannot exist."""
    name, platform = id_of(matrix, release, gpu, isa), _isas(matrix)[isa].platform
    cuda = matrix.releases[release].cuda
    if gpu and not compiles(cuda, matrix.gpus[gpu]):
        whose = f"CUDA {cuda.version}" if cuda else "a release without CUDA"
        text = f"{whose} does not compile for {matrix.gpus[gpu].capability}"
        return Cell(name, ABSENT, text, "")
    if gpu and platform not in matrix.gpus[gpu].hosts:
        return Cell(name, ABSENT, f"no {platform} machine has {gpu.upper()}", "")
    return Cell(name, ABSENT, ADD, group_lines(release, gpu, isa, platform))


def cpu_classes(matrix: Matrix) -> list[CpuClass]:
    """Return the classes of CPUs, of each platform the highest ISA first."""
    known, isas = known_hardware.load(), _isas(matrix)
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
