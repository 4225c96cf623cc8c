"""The page in a real browser: `nox -s pages` runs these tests."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from conftest import PROJECT, WHOLE
from page_browser import Opened, violations, widths_shown
from playwright.sync_api import Browser, Page

from build_pytorch.generate import docs, site_page
from build_pytorch.matrix import known_hardware, matrix_reader

MATRIX: Final = matrix_reader.parse(WHOLE)
HOSTILE: Final = "</script><script>window.ran=1</script><img src=x onerror='window.ran=2'>\"`"
WIDTHS: Final = (360, 768, 1440)
SHOWN: Final = """
(places) => places.map((place) => {
  for (const [id, value] of Object.entries(place)) document.getElementById(id).value = value;
  document.querySelector("form").dispatchEvent(new Event("change"));
  const cards = [...document.querySelectorAll("#answer section")].map((card) => [card.className,
    ...[".name", "code"].map((part) => card.querySelector(part)?.textContent ?? ""),
    ...[...card.querySelectorAll("li")].map((line) => line.textContent)]);
  const marked = [...document.querySelectorAll("td.chosen input")];
  return [marked.map((it) => `${it.name}/${it.ariaLabel.split(":")[0]}`), cards];
})
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site") / "index.html"
    path.write_text(site_page.render(MATRIX))
    return path


@pytest.fixture
def opened(browser: Browser, site: Path) -> Iterator[Opened]:
    it = Opened(browser, site)
    yield it
    assert (it.messages, it.requests) == ([], [site.as_uri()])


def choose(page: Page, gpu: str, cpu: str, driver: str = "") -> None:
    for name, value in (("gpu", gpu), ("cpu", cpu), ("driver", driver)):
        page.select_option(f"#{name}", value)


def test_the_answers_shown_are_those_of_the_table(opened: Opened) -> None:
    answers = site_page.Answers(MATRIX)
    facts = json.loads(opened.page.text_content("#facts") or "")
    cells = {cell[0] for cell in facts["cells"]}
    every = itertools.product(answers.gpus, (cpu.key for cpu in answers.cpus), answers.drivers)
    places = random.Random(15).sample(list(every), 240)
    asked = [dict(zip(("gpu", "cpu", "driver"), place, strict=True)) for place in places]
    shown = opened.page.evaluate(SHOWN, asked)
    for (gpu, cpu, driver), (marked, cards) in zip(places, shown, strict=True):
        place = list(answers.drivers).index(driver)
        name, *its = facts["answers"][answers.table[gpu][cpu][place]]
        assert cards == [facts["cards"][card] for card in its]
        assert marked == [name] * (name in cells)


def test_a_cell_says_what_it_is_and_how_to_get_it(opened: Opened) -> None:
    page = opened.page
    assert not page.locator("#cell").is_visible()
    for label, says in (
        ("sm120-avx2: recipe", "invoke build cuda13_0/sm120-avx2"),
        ("sm121-avx2: no host", "no x86_64-linux machine has SM121"),
    ):
        page.locator(f'[name="cuda13_0"][aria-label="{label}"]').click()
        text = page.locator("#cell").inner_text()
        assert (f"cuda13_0/{label.partition(':')[0]}" in text, says in text) == (True, True)


def test_the_page_works_with_the_keyboard_alone(opened: Opened) -> None:
    page, keys = opened.page, opened.page.keyboard
    assert page.locator("#answer section, td.chosen").count() == 0
    for word in ("RTX 40", "AMD Ryzen 7000", "580"):
        keys.press("Tab")
        keys.type(word)
    assert page.locator("#answer .now code").text_content() == "pip install torch==2.15.0"
    assert page.locator("td.chosen input").get_attribute("aria-label") == "sm89-avx2: recipe"
    moves = ("Tab", "Tab", "Space", "ArrowRight", *["ArrowDown"] * 3, *["ArrowUp"] * 2)
    for key in moves:  # the first Tab goes to the grid, which scrolls
        keys.press(key)
    assert page.locator("#cell b").text_content() == "cuda13_2/sm120-avx2"


@pytest.mark.parametrize(
    ("number", "place"), [(0, ()), (1, ("8.9", "avx2", "570.26")), (2, ("3.5", "nehalem", "449"))]
)
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(
    browser: Browser, site: Path, number: int, place: tuple[str, ...]
) -> None:
    page = Opened(browser, site, bypass_csp=True).page
    if place:
        choose(page, *place)
        page.locator("td input").nth(9).click()
    assert widths_shown(page, WIDTHS) == list(WIDTHS)
    assert widths_shown(page, WIDTHS[: number + 1])[-1] == WIDTHS[number]
    assert violations(page, number) == []


def test_hostile_values_of_the_matrix_are_text(browser: Browser, tmp_path: Path) -> None:
    path, value = tmp_path / "index.html", json.dumps(HOSTILE)
    rows = f"[gpu.sm89]\nhosts.x86_64-linux = [{value}]\n\n[cpu.avx2]\ntitle = {value}\n"
    text = f"{WHOLE}\n{rows}"
    path.write_text(site_page.render(matrix_reader.parse(text)))
    opened = Opened(browser, path)
    choose(opened.page, "8.9", "avx2")
    opened.page.locator('[name="cuda13_0"][aria-label="sm89-avx2: recipe"]').click()
    assert HOSTILE in opened.page.locator("#cell").inner_text()
    assert HOSTILE in opened.page.locator("#gpu").inner_text()
    assert (opened.page.locator("img").count(), opened.page.evaluate("window.ran")) == (0, None)
    assert (opened.messages, opened.requests) == ([], [path.as_uri()])


def test_without_scripts_the_grids_are_there(browser: Browser, site: Path) -> None:
    page = Opened(browser, site, java_script_enabled=False).page
    assert "invoke recommend" in page.locator("noscript").inner_text()
    assert page.locator("table").count() == len(MATRIX.releases)
    assert page.locator("td.good").first.inner_text() == "recipe"


def test_the_picture_in_the_docs_is_small(browser: Browser) -> None:
    picture = PROJECT / "docs/images/page.png"
    if os.environ.get("WRITE_PICTURES"):
        page = Opened(browser, PROJECT / docs.PAGE, viewport={"width": 1100, "height": 1000}).page
        choose(page, "8.9", "avx2", "580.65.06")
        page.select_option("#cpu", label=known_hardware.load().processor["zen4"].title)
        page.screenshot(path=picture)
    assert 10_000 < picture.stat().st_size < 200_000
