"""The board in a real browser: `nox -s pages` runs these tests."""

from __future__ import annotations

import json
import os
import resource
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from conftest import PROJECT, Project, copied_project
from page_browser import Opened, require_accessible
from playwright.sync_api import Browser, Page
from sample_fleet import LAST, SampleFleet, believable, grown, large_ledger

from build_pytorch.matrix import matrix_reader
from build_pytorch.results.ledger import Published

HOSTILE: Final = (
    "</script></pre><script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"
    "<svg onload='window.ran = 3'>{{ 7 * 7 }}\x1b]0;title\x07\u202e'\"--></title>"
)
WIDTHS: Final = (360, 1110, 1500)
"""A phone, the narrowest screen that shows the table as one, a wide screen."""


@pytest.fixture(scope="session")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The board of a fleet with builds of every outcome, and hostile values."""
    folder = tmp_path_factory.mktemp("board")
    project = copied_project(folder / "project")
    matrix = SampleFleet(project.root)
    variants = {v.id: v for v in matrix_reader.load(project.root).variants}
    names = [name for name, v in variants.items() if not v.impossible]
    store = folder / "store"
    for number, name in enumerate(names[:9]):
        output = matrix.built(variants[name], store, seconds=3000.0 + 700 * number)
        if number % 2:
            matrix.tested(variants[name], output, by="smoke", outcome="passed")
            matrix.tested(variants[name], output, by="inspect", outcome="passed")
        if number % 3 == 1:
            matrix.append(
                Published(
                    **matrix.common(variants[name], LAST), output=output, organization=HOSTILE
                )
            )
    log = f"$ nix-build x\n{HOSTILE}\n" + "x" * 3000 + f"\nerror: {HOSTILE}\n"
    matrix.failed(variants[names[9]], log, message=HOSTILE)
    matrix.failed(variants[names[10]], log, cause="out-of-memory", message=HOSTILE)
    running = matrix.started(variants[names[11]], datetime.now(UTC), pid=os.getpid())
    matrix.log(running, "".join(f"[{n}/7421] {HOSTILE}\n" for n in range(1, 99)))
    project.edit("matrix.toml", '"Blackwell"', json.dumps(HOSTILE.partition("\x1b")[0]))
    return written(project, store)


def written(project: Project, store: Path) -> Path:
    """The page of a copy whose results are in a made-up store, in which Nix finds nothing."""
    path = ":".join(p for p in os.environ["PATH"].split(":") if not Path(p, "nix-store").exists())
    done = project.run("invoke", "board", env={"NIX_STORE_DIR": str(store), "PATH": path})
    assert done.returncode == 0, done.stderr
    return project.root / ".build-pytorch/board.html"


@pytest.mark.parametrize("scripts", [True, False])
def test_hostile_values_are_text_and_the_console_is_silent(
    browser: Browser, board: Path, scripts: bool
) -> None:
    opened = Opened(browser, board, java_script_enabled=scripts)
    page = opened.page
    assert "<script>window.ran = 1</script>" in (
        page.locator(".failure").first.text_content() or ""
    )
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert page.locator(".packages tbody tr:visible").count() == 44
    assert page.locator("form").is_visible() is scripts
    if scripts:
        assert page.evaluate("window.ran") is None
    else:
        assert page.locator(".packages thead th").first.text_content() == "package"
    assert opened.messages == []
    assert opened.requests == [board.as_uri()]


def test_a_script_that_got_into_the_page_would_not_run(browser: Browser, board: Path) -> None:
    broken = board.with_name("broken.html")
    script = "<script>window.ran = 1</script><p onclick='window.ran = 2' id='it'>x</p>"
    broken.write_text(board.read_text().replace("<main", f"{script}<main", 1))
    opened = Opened(browser, broken)
    opened.page.click("#it")
    assert opened.page.evaluate("window.ran") is None
    assert any("Content Security Policy" in message for message in opened.messages)


def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(
    browser: Browser, board: Path
) -> None:
    opened = Opened(browser, board, bypass_csp=True)
    for number in (0, 1, 5):
        require_accessible(opened.page, WIDTHS, number)


def shown(page: Page) -> list[str]:
    return [
        text.split()[0] for text in page.locator(".packages tbody tr:visible th").all_inner_texts()
    ]


def test_filters_narrow_the_table_and_the_address_carries_them(
    browser: Browser, board: Path
) -> None:
    page = Opened(browser, board).page
    assert len(shown(page)) == 44
    page.select_option("select[name=gpu]", "sm90")
    assert {name.split("-")[0] for name in shown(page)} == {"sm90"}
    page.select_option("select[name=isa]", "avx2")
    assert shown(page) == ["sm90-avx2"]
    assert page.locator("#count").text_content() == "1 of 44 packages"
    assert page.url.endswith("#gpu=sm90&isa=avx2")
    page.reload()
    assert shown(page) == ["sm90-avx2"]
    page.click("button[type=reset]")
    page.locator("#count", has_text="44 of 44").wait_for()  # the address changes later
    assert len(shown(page)) == 44
    page.fill("input[type=search]", "AVX2 cpu-")
    assert shown(page) == ["cpu-avx2"]
    page.goto(f"{board.as_uri()}#state=not+built")
    rows = page.locator(".packages tbody tr:visible")
    assert {row.get_attribute("data-state") for row in rows.all()} == {"not built"}
    page.locator(".map a").nth(1).click()
    assert shown(page) == ["sm120-avx512"]
    page.goto(f"{board.as_uri()}#gpu=%3Cscript%3E&state=x")  # unknown values select nothing
    assert page.locator("#count").text_content() == "0 of 44 packages"


def test_a_live_board_is_loaded_again_unless_somebody_reads_a_failure(
    browser: Browser, project: Project
) -> None:
    variant = matrix_reader.load(project.root).variants[0]
    SampleFleet(project.root).failed(variant, "$ nix-build x\nerror: no\n", message="no")
    assert project.invoke("board").returncode == 0
    path = project.root / ".build-pytorch/board.html"
    live = path.read_text().replace("</header>", '<p class="live"><label hidden>'
        '<input type="checkbox" id="reload" checked> reload</label></p></header>')  # fmt: skip
    path.write_text(live)
    opened = Opened(browser, path)
    page = opened.page
    page.clock.install()
    page.reload()
    page.select_option("select[name=state]", "failed")
    page.locator(".failure > summary").click()
    path.write_text(live.replace("Board</h1>", "Board again</h1>"))
    page.locator("h1").click()  # what has the focus keeps the page
    page.clock.run_for(6000)
    assert page.locator(".failure ul").is_visible()
    page.locator(".failure > summary").click()
    page.clock.run_for(5000)
    page.wait_for_selector("h1:text('again')")
    assert page.locator("select[name=state]").input_value() == "failed"
    assert opened.messages == []


@pytest.mark.slow
def test_a_thousand_variants_and_a_hundred_thousand_lines(
    browser: Browser, project: Project
) -> None:
    grown(project.root, 23)
    large_ledger(project.root, 100_000)
    assert project.invoke_process("board", "*/cpu-avx2").returncode == 0  # compiles the program
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = project.invoke_process("board")
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert "1012 packages: " in done.stderr
    path = project.root / ".build-pytorch/board.html"
    opened = Opened(browser, path)
    session = opened.context.new_cdp_session(opened.page)
    session.send("Performance.enable")

    def used() -> float:
        """Seconds of CPU of the page's thread: unlike a clock, other work does not slow it."""
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "ThreadTime")

    start = used()
    opened.page.reload(wait_until="domcontentloaded")
    usable = used() - start
    click = opened.page.evaluate(
        "() => { const start = performance.now(); const field = document.forms[0].elements.gpu;"
        "field.value = 'sm90'; field.dispatchEvent(new Event('input', { bubbles: true }));"
        "document.body.offsetHeight; return (performance.now() - start) / 1000; }"
    )
    print(
        f"generated in {wall:.2f} s ({cpu:.2f} s of CPU), {path.stat().st_size >> 10} KiB; "
        f"usable after {usable:.2f} s of CPU, a filter takes {click:.2f} s"
    )
    heights = []
    for width in (1400, 390):
        opened.page.set_viewport_size({"width": width, "height": 900})
        heights.append(opened.page.evaluate("document.documentElement.scrollHeight"))
    print(f"high on a desktop and a phone: {heights}")
    assert max(heights) <= 12_000
    assert opened.page.locator(".packages tbody tr:visible").count() == 50
    opened.page.click("text=Show all")
    assert opened.page.locator(".packages tbody tr:visible").count() > 50
    assert cpu < 3
    assert usable < 2  # 1 where nothing else runs; the same work costs more on a busy processor
    assert click < 1
    assert opened.messages == []


def test_the_picture_in_the_docs_is_small(browser: Browser, tmp_path: Path) -> None:
    picture = PROJECT / "docs/images/board.png"
    if os.environ.get("WRITE_PICTURES"):
        project = copied_project(tmp_path / "matrix")
        believable(project.root, tmp_path / "store")
        page = written(project, tmp_path / "store")
        opened = Opened(browser, page, viewport={"width": 1200, "height": 1040})
        for failure in opened.page.locator(".failure").all()[1:]:
            failure.evaluate("each => each.open = false")
        opened.page.screenshot(path=picture)
    assert 10_000 < picture.stat().st_size < 200_000
