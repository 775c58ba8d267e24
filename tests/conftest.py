"""A real browser for the tests of pages; without one they are skipped and say why."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Any]:
    """Open a page; at the end nothing was requested but the page, and no script failed."""
    opened, trouble = [], []

    def open_page(path: Any, width: int = 1280, scheme: str = "light") -> Any:
        tab = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab.on("request", lambda request: trouble.append(request.url))
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.on("console", lambda message: trouble.append(message.text))
        tab.on("dialog", lambda dialog: trouble.append(dialog.message))
        tab.goto(path.as_uri())
        assert trouble.pop(0) == path.as_uri()
        opened.append(tab)
        return tab

    yield open_page
    for tab in opened:
        tab.close()
    assert trouble == []


@pytest.fixture
def check_page(visit: Any) -> Any:
    """Open a page on a screen and a phone, light and dark: readable, and nothing for axe-core."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def check(path: Any, act: Any = lambda tab: None) -> None:
        for width, scheme in ((1280, "light"), (400, "dark")):
            tab = visit(path, width, scheme)
            act(tab)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            found = axe.run(tab).response["violations"]
            assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []

    return check
