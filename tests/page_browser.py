"""The browser of the tests of pages, and what it tells about a page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

AXE: Final = Path(os.environ["AXE"])
FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


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


def violations(page: Page) -> list[tuple[str, list[Any]]]:
    """What axe-core reports about a page whose Content-Security-Policy is off."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 20
    return [
        (each["id"], [(node["target"], node["failureSummary"]) for node in each["nodes"][:3]])
        for each in found["violations"]
    ]
