"""The example page, in a browser: a page of another site follows a view by a signed link."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

    CatchUp = Callable[[], Published]
    Serve = Callable[..., Server]

EXAMPLES = Path(__file__).parents[3] / "examples"


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody asks."""


@pytest.fixture
def other_site() -> Iterator[str]:
    """The examples, as a site of its own serves them."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=EXAMPLES)) as files:
        thread = threading.Thread(target=files.serve_forever)
        thread.start()
        yield f"http://localhost:{files.server_port}"
        files.shutdown()
        thread.join()


def test_the_example_page_shows_live_rows(
    site: Database, serve: Serve, catch_up: CatchUp, browser: Browser, other_site: str
) -> None:
    server = serve(site, password="secret", allow_origins=(other_site,))
    wanted = {"path": "/v1/totals/changes", "seconds": 600}
    answer = httpx.post(f"{server.http_url}/v1/links", json=wanted, auth=("x", "secret"))
    link = server.http_url + answer.json()["link"]
    with browser.new_context() as context:
        page = context.new_page()
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(f"{other_site}/scoreboard.html#{link}")
        expect(page.locator("thead")).to_have_text("votesvotersmean")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.locator("tbody td").first).to_have_text("162")
        site.put("votes", {"story": 1, "voter": 1000, "stars": 5})
        epoch = catch_up().epoch
        expect(page.locator("#state")).to_have_text(f"epoch {epoch}")
        expect(page.locator("tbody td").first).to_have_text("163")
        expect(page.locator("tbody tr")).to_have_count(1)

        site.sql("CREATE OR REPLACE VIEW totals AS SELECT MAX(stars) AS most FROM votes")
        catch_up()
        expect(page.locator("thead")).to_have_text("most")
        expect(page.locator("tbody td")).to_have_text(["5"])
        assert not troubles


def test_a_page_of_a_site_that_is_not_allowed_gets_nothing(
    site: Database, serve: Serve, browser: Browser, other_site: str
) -> None:
    server = serve(site, password="secret")
    wanted = {"path": "/v1/totals/changes", "seconds": 600}
    answer = httpx.post(f"{server.http_url}/v1/links", json=wanted, auth=("x", "secret"))
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{other_site}/scoreboard.html#{server.http_url}{answer.json()['link']}")
        expect(page.locator("#state")).to_contain_text("not connected")
        expect(page.locator("tbody tr")).to_have_count(0)
