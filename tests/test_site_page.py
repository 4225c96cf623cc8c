"""The page docs/site/index.html without a browser: its answers are those of `recommend`."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from conftest import ONE, PROJECT, WHOLE
from test_choice import DRAWN_UP, machine_of

from build_pytorch.generate import site_page
from build_pytorch.hardware import saved_machines
from build_pytorch.hardware.choose import Choice, choose
from build_pytorch.hardware.saved_machines import Machine, MachineGpu, Processor
from build_pytorch.matrix import known_hardware, matrix_reader
from build_pytorch.matrix.compatibility import TEGRA
from build_pytorch.matrix.versions import numbers

MATRIX = matrix_reader.parse(WHOLE)
KNOWN = known_hardware.load()
ISAS = {**KNOWN.cpu, **MATRIX.cpus}
PAGE = site_page.render(MATRIX)
MACHINES = PROJECT / "tests/machines"


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
    having = [key for key in having if key in values_of(page, "cpu")]  # no aliases
    cpu = max(having, key=lambda key: isas[key].level, default=older)
    known = KNOWN.gpu.get(f"sm{gpu.replace('.', '')}")
    is_odd = machine.is_wsl or gpu in TEGRA  # their drivers have other numbers
    is_odd = is_odd or bool(machine.other_gpus)  # of which the page has no list
    is_odd = is_odd or any(it.name.endswith(("2B", "container")) for it in machine.gpus)
    is_impossible = known and machine.platform not in known.hosts
    if len(kinds) > 1 or is_odd or is_impossible or not cpu:
        return None
    driver = machine.driver if machine.gpus else None
    reached = (step for step in steps[1:] if driver and numbers(step) <= numbers(driver))
    return gpu, cpu, steps.index(next(reached, steps[-1])) if driver else 0


def cards_at(facts: Any, place: tuple[str, str, int]) -> tuple[str, list[list[str]]]:
    """The marked variant, and the cards as kind, name, command and texts."""
    gpu, cpu, driver = place
    name, *cards = facts["answers"][facts["table"][gpu][cpu][driver]]
    return name, [facts["cards"][card] for card in cards]


def problems(choice: Choice, marked: str, cards: list[list[str]]) -> list[str]:
    """What an answer says otherwise than a choice; only numbers of drivers may differ."""
    build = choice.build
    now = [command for kind, _, command, *_ in cards if kind in {"now", "or"}]
    (name, command, said, *_), *others = [card[1:] for card in cards if card[0] == "build"]
    wanted = build.lines or f"invoke build {build.variant}" if build.has_reason else ""
    checks = {
        "marked": marked == build.variant,
        "now": now == [offer.command for offer in choice.now],
        "order": [card[0] for card in cards][: len(now)] == ["now", "or", "or"][: len(now)],
        "build": (name, command) == (build.variant if build.has_reason else "", wanted),
        "reason": not others and said == build.says,
        "unused": bool(choice.unused) == any(card[:2] == ["note", "GPU"] for card in cards),
        "driver": [choice.update] * bool(choice.update)
        == [card[3] for card in cards if card[:2] == ["note", "Driver"]],
    }
    return [name for name, is_right in checks.items() if not is_right]


def drawn(number: int) -> dict[str, Machine]:
    """Machines with one GPU or none, the flags of an ISA and the lower ones, and any driver."""
    draw, found = random.Random(15), {}
    drivers = [None, "450.80.02", "470.256.02", "520.61.05", "535.183.01", "575.51.03", "595.1"]
    for count in range(number):
        isa, kind = draw.choice(list(ISAS.values())), draw.choice([None, *KNOWN.gpu.values()])
        own = [it for it in ISAS.values() if it.platform == isa.platform and it.level <= isa.level]
        found[f"drawn-{count}"] = Machine(
            platform=isa.platform,
            cpu=Processor(flags=" ".join({flag: 0 for it in own for flag in it.cpuinfo})),
            gpus=(MachineGpu(index=0, name="GPU", capability=kind.capability),) if kind else (),
            driver=draw.choice(drivers),
        )
    return found


@pytest.mark.parametrize(
    "text", ["whole", "one", pytest.param("all-lines", marks=pytest.mark.slow)]
)
def test_each_answer_is_the_one_of_recommend(text: str) -> None:
    example = (PROJECT / "examples/all-lines/matrix.toml").read_text()
    matrix = matrix_reader.parse({"whole": WHOLE, "one": ONE, "all-lines": example}[text])
    page, found = site_page.render(matrix), {}
    saved = {path.stem: saved_machines.load(path) for path in MACHINES.glob("*.json")}
    by_hand = {row: machine_of(row)[0] for row in DRAWN_UP}
    for name, machine in {**saved, **by_hand, **drawn(230)}.items():
        if place := place_of(machine, page):
            found[name] = problems(choose(matrix, machine), *cards_at(facts_of(page), place))
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert len(found) > 200


def test_a_machine_that_nobody_has_is_a_note() -> None:
    says = ["note", "No such machine", "", "12.1 is known on aarch64-linux only"]
    answers = [cards_at(facts_of(PAGE), ("12.1", "avx2", driver)) for driver in (0, 8)]
    assert answers == [("", [says])] * 2


def test_each_cell_has_a_state_that_the_matrix_yields() -> None:
    facts = facts_of(PAGE)
    labels = re.findall(r'value="(\d+)" aria-label="[^"]*: ([a-z ]+)">', PAGE)
    cells = facts["cells"]
    states = {cells[int(number)][0]: state for number, state in labels}
    assert len(states) == len(cells)
    for variant in MATRIX.variants:
        if not variant.is_wrapper:
            assert states.pop(variant.id) == ("no host" if variant.impossible else "recipe")
    assert states == {}
    says = {name: rest for name, *rest in cells}
    assert says["cuda12_8/sm89-avx2"][0] == "invoke build cuda12_8/sm89-avx2"
    assert says["cuda13_0/sm110-avx2"][1].startswith("no x86_64-linux machine has SM110")


def test_states_are_given_and_a_published_build_ends_the_warning() -> None:
    state = site_page.State("published", "on FloxHub", "good")
    page = site_page.render(MATRIX, {"cuda13_0/sm89-avx2": state})
    assert ">published</label>" in page
    assert "on FloxHub" in page
    assert "No build of this matrix is published" not in page
    assert "No build of this matrix is published" in PAGE


def test_the_page_is_small_loads_nothing_and_has_a_strict_policy() -> None:
    assert len(PAGE.encode()) < 200_000
    assert len((PROJECT / "templates/pages/page.js").read_text().splitlines()) <= 60
    policy = PAGE.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"<link[^>]*href=\"(?!data:)|<script[^>]*src=|<img|@import|url\(", PAGE)
    assert not re.search(r"<[a-z][^>]* (on[a-z]+|style)=", PAGE)
