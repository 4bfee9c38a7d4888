"""The news site behind the dashboard, and a browser that tolerates no error and no other host."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from viewkeep.demo.site import TABLES, VIEWS

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

    CatchUp = Callable[[], Published]
    Open = Callable[..., Page]

CHROMIUM = "/usr/bin/chromium"  # scripts/setup installs it
POSTED = dt.datetime(2026, 1, 1)


def fill(db: Database, stories: int = 12, voters: int = 15) -> None:
    """Stories, votes and comments, the same each time."""
    db.put(
        "stories",
        [
            {
                "id": n,
                "author": f"author{n % 3}",
                "section": ("world", "arts")[n % 2],
                "title": f"Story {n}",
                "posted": POSTED + dt.timedelta(hours=n),
            }
            for n in range(stories)
        ],
    )
    db.put(
        "votes",
        [
            {"story": s, "voter": v, "stars": 1 + (s + v) % 5}
            for s in range(stories)
            for v in range(voters - s % 4)
        ],
    )
    db.put(
        "comments",
        [
            {"id": n, "story": n % stories, "author": f"r{n % 5}", "body": "Well", "posted": POSTED}
            for n in range(2 * stories)
        ],
    )


@pytest.fixture
def site(db: Database, catch_up: CatchUp) -> Database:
    """The news site, loaded and published."""
    db.sql(TABLES + VIEWS)
    fill(db)
    catch_up()
    return db


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium. Not for the whole run: while it is open no other event loop can run here."""
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens the dashboard; at the end nothing may have gone wrong in it."""
    troubles: list[str] = []
    with ExitStack() as stack:

        def start(server: Server, *, path: str = "/", lost: bool = False, **options: Any) -> Page:
            """With `lost`, the server is taken away, so failing requests are no trouble."""
            context = stack.enter_context(
                browser.new_context(
                    **{"viewport": {"width": 1400, "height": 900}, "reduced_motion": "reduce"}
                    | options
                )
            )
            page = context.new_page()
            page.set_default_timeout(20_000)
            host = urlsplit(server.http_url).netloc

            def asked(url: str) -> None:
                if urlsplit(url).netloc != host and not url.startswith("data:"):
                    troubles.append(f"asked {url}")

            def said(message: ConsoleMessage) -> None:
                refused = "responded with a status of 4" in message.text  # a test's wrong input
                if message.type == "error" and not lost and not refused:
                    troubles.append(message.text)

            page.on("request", lambda request: asked(request.url))
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on("console", said)
            page.goto(server.http_url + path)
            if path != "/docs":
                expect(page.locator("#stand")).not_to_have_attribute("data-state", "connecting")
            return page

        yield start
    assert not troubles


@pytest.fixture
def page(site: Database, server: Server, open_page: Open) -> Page:
    """The dashboard of the news site, with its plan drawn."""
    made = open_page(server)
    made.locator(".node").first.wait_for()
    return made
