"""The page docs/site/index.html without a browser: its answers are those of `recommend`."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from conftest import ONE, PROJECT, WHOLE, Project

from build_pytorch.base.versions import numbers
from build_pytorch.generate import site_page
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choice import Choice
from build_pytorch.hardware.choose import Chooser
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.compatibility import TEGRA

MATRIX = matrix_reader.parse(WHOLE)
KNOWN = known_hardware.load()
ISAS = {**KNOWN.cpu, **MATRIX.cpus}
PAGE = site_page.render(MATRIX)


def facts_of(page: str) -> Any:
    found = re.search(r'(?s)<script type="application/json" id="facts">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


def values_of(page: str, name: str) -> list[str]:
    """The values of a list of the page."""
    body = page.partition(f'<select id="{name}">')[2].partition("</select>")[0]
    return re.findall('<option value="([^"]*)"', body)


def place_of(machine: Machine, page: str) -> tuple[str, str, int] | None:
    """GPU, CPU and place of the driver in the lists; None for a machine that they do not have."""
    kinds = {gpu.capability for gpu in machine.gpus}
    gpu, steps = str(next(iter(kinds), "none")), values_of(page, "driver")
    isas = {key: isa for key, isa in ISAS.items() if isa.platform == machine.platform}
    having = [key for key, isa in isas.items() if {*isa.cpuinfo} <= {*machine.cpu.flags.split()}]
    older = {"x86_64-linux": "nehalem", "aarch64-linux": "graviton1"}.get(machine.platform, "")
    cpu = max(having, key=lambda key: isas[key].level, default=older)
    is_odd = machine.is_wsl or gpu in TEGRA  # their drivers have other numbers
    if len(kinds) > 1 or is_odd or cpu not in values_of(page, "cpu"):
        return None
    driver = machine.driver if machine.gpus else None
    reached = (step for step in steps[1:] if driver and numbers(step) <= numbers(driver))
    return gpu, cpu, steps.index(next(reached, steps[-1])) if driver else 0


def cards_at(facts: Any, place: tuple[str, str, int]) -> tuple[str, list[list[str]]]:
    """The marked variant, and the cards as kind, name, command and texts."""
    gpu, cpu, driver = place
    name, *cards = facts["answers"][facts["table"][gpu][cpu][driver]]
    texts = facts["texts"]
    return texts[name], [[texts[number] for number in facts["cards"][card]] for card in cards]


def problems(choice: Choice, marked: str, cards: list[list[str]]) -> list[str]:
    """What an answer says otherwise than a choice."""
    first, better, wheel, update = choice.first, choice.better, choice.wheel, choice.update
    wanted = [("wheel", wheel.title, wheel.command)] if wheel else []
    for kind, build in (("best", first), ("ideal", better)):
        if build:
            command = f"invoke build {build.variant.id}" if build.is_in_matrix else build.lines
            wanted.append((kind, build.variant.id, command))
    found = [(kind, name, command) for kind, name, command, *_ in cards if kind != "note"]
    texts = " ".join(text for _, name, _, *texts in cards for text in (name, *texts)).lower()
    said = [update.says, update.build.variant.id] if update else []
    said += [first.reason.split("; ")[0]] if first else ["no variant runs here"]
    checks = {
        "marked": marked == (first.variant.id if first else ""),
        "cards": sorted(found) == sorted(wanted),
        "order": not (wheel and first) or (found[0][0] == "wheel") == choice.is_wheel_first,
        **{text: text.lower() in texts for text in said},
    }
    return [name for name, is_right in checks.items() if not is_right]


def drawn(number: int) -> dict[str, Machine]:
    """Machines with one GPU or none, the flags of an ISA and the lower ones, and any driver."""
    draw, found = random.Random(15), {}
    for count in range(number):
        isa, kind = draw.choice(list(ISAS.values())), draw.choice([None, *KNOWN.gpu.values()])
        own = [it for it in ISAS.values() if it.platform == isa.platform and it.level <= isa.level]
        found[f"drawn-{count}"] = Machine(
            platform=isa.platform,
            cpu=Processor(flags=" ".join({flag: 0 for it in own for flag in it.cpuinfo})),
            gpus=(MachineGpu(index=0, name="GPU", capability=kind.capability),) if kind else (),
            driver=draw.choice([None, "470.256.02", "535.183.01", "550.54", "575.51.03", "590.1"]),
        )
    return found


@pytest.mark.parametrize(
    "text", ["whole", "one", pytest.param("all-lines", marks=pytest.mark.slow)]
)
def test_each_answer_is_the_one_of_recommend(text: str) -> None:
    example = (PROJECT / "examples/all-lines/matrix.toml").read_text()
    matrix = matrix_reader.parse({"whole": WHOLE, "one": ONE, "all-lines": example}[text])
    page, chooser = site_page.render(matrix), Chooser(matrix)
    found: dict[str, list[str]] = {}
    files = (PROJECT / "tests/machines").glob("*.json")
    saved = {path.stem: saved_machines.load(path) for path in files}
    for name, machine in {**saved, **drawn(150)}.items():
        if place := place_of(machine, page):
            found[name] = problems(chooser.choose(machine), *cards_at(facts_of(page), place))
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert len(found) > 120


@pytest.mark.parametrize("place", [("8.9", "avx2", 2), ("7.0", "avx2", 1), ("none", "nehalem", 0)])
def test_the_command_prints_what_the_page_shows(
    still: Project, place: tuple[str, str, int]
) -> None:
    page = site_page.render(matrix_reader.parse(ONE))
    words = {"--gpu": place[0], "--cpu": place[1], "--driver": values_of(page, "driver")[place[2]]}
    options = [part for option in words.items() if option[1] for part in option]
    shown = re.sub(r"\\\n +", "", still.invoke("recommend", *options).stdout)
    for _, name, command, *_ in cards_at(facts_of(page), place)[1]:
        assert name in shown
        assert all(line in shown for line in command.splitlines())


def test_each_cell_has_a_state_that_the_matrix_yields() -> None:
    facts = facts_of(PAGE)
    labels = re.findall(r'value="(\d+)" aria-label="[^"]*: ([a-z ]+)">', PAGE)
    cells = [[facts["texts"][number] for number in cell] for cell in facts["cells"]]
    states = {cells[int(number)][0]: state for number, state in labels}
    assert len(states) == len(cells)
    for variant in MATRIX.variants:
        if not variant.is_wrapper:
            assert states.pop(variant.id) == ("no host" if variant.impossible else "recipe")
    assert {*states.values()} == {"absent"}
    says = {name: rest for name, *rest in cells}
    assert says["cuda13_0/sm61-avx2"] == ["", "CUDA 13.0 does not compile for 6.1"]
    assert 'gpu = ["sm80"]\ncpu = ["armv9"]' in says["cuda13_0/sm80-armv9"][0]
    assert says["cuda12_8/sm89-avx2"][0] == "invoke build cuda12_8/sm89-avx2"


def test_states_are_given_and_a_published_build_ends_the_warning() -> None:
    state = site_page.State("published", "on FloxHub", "good")
    page = site_page.render(MATRIX, {"cuda13_0/sm89-avx2": state})
    assert ">published</label>" in page
    assert "on FloxHub" in page
    assert "no published build" not in page
    assert "no published build" in PAGE


def test_the_page_is_small_loads_nothing_and_has_a_strict_policy() -> None:
    assert len(PAGE.encode()) < 200_000
    assert len((PROJECT / "templates/pages/page.js").read_text().splitlines()) <= 60
    policy = PAGE.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"<link[^>]*href=\"(?!data:)|<script[^>]*src=|<img|@import|url\(", PAGE)
    assert not re.search(r"<[a-z][^>]* (on[a-z]+|style)=", PAGE)
