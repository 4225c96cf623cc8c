"""The browser of the tests of pages, and what it tells about a page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

AXE: Final = Path(os.environ["AXE"])
FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

WHOLE_PAGE: Final = {"include": [["html"]]}
LONG: Final = {"exclude": [["tbody tr:nth-child(n+4)"]]}
CONTRAST: Final = {"runOnly": ["color-contrast"]}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        it = playwright.chromium.launch(
            executable_path=os.environ["BROWSER"], args=list(FLAGS), headless=True
        )
        yield it
        it.close()


class Opened:
    """A page with everything that the console said, and every request that it made."""

    def __init__(self, browser: Browser, path: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page: Page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())


def widths_shown(page: Page, widths: Sequence[int]) -> list[int]:
    """The widths that a page takes on screens of these widths; it stays on the last one."""
    shown = []
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        shown.append(page.evaluate("document.documentElement.scrollWidth"))
    return shown


def violations(page: Page, number: int) -> list[tuple[str, Any]]:
    """What axe-core finds, with nodes. The Content-Security-Policy must be off.

    All rules run in the colour scheme that `number` selects, those of colours in both. Of long
    tables, 0 selects all rows, and the others the first ones.
    """
    page.evaluate(AXE.read_text())
    modes: list[Any] = ["light", "dark"]
    wrong = []
    for mode, options in ((modes[number % 2 - 1], CONTRAST), (modes[number % 2], {})):
        page.emulate_media(color_scheme=mode)
        context = LONG if number or options else {}
        found = page.evaluate("(words) => axe.run(...words)", [{**WHOLE_PAGE, **context}, options])
        if len(found["passes"]) <= (0 if options else 20):
            wrong.append((f"hardly a rule ran, {mode}", found["passes"]))
        wrong += [(it["id"], it["nodes"][:3]) for it in found["violations"]]
    return wrong
