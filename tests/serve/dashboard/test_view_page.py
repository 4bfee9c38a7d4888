"""The page of one view: what stands on it, that it can be linked, and that it is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.failures import set_aside
from viewkeep.engine.local import advance

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

    CatchUp = Callable[[], Published]
    Open = Callable[..., Page]


@pytest.fixture
def page(site: Database, server: Server, open_page: Open) -> Page:
    """The page of `story_scores`."""
    return open_page(server, path="/views/story_scores")


def test_all_of_a_view(page: Page, site: Database, catch_up: CatchUp) -> None:
    page.reload()  # the address is the view's own
    expect(page.locator("#about-title")).to_have_text("story_scores")
    expect(page.locator("#about-state")).to_have_text("ready")
    cards = page.locator("#cards")
    expect(cards.locator("div", has_text="Rows").first).to_contain_text("12")
    for name in ("Size", "Behind", "Processor", "Shares work with"):
        expect(cards).to_contain_text(name)
    expect(page.locator("#text")).to_contain_text("AVG(stars) AS mean")
    expect(page.get_by_role("table", name="Columns of the view")).to_contain_text("story")
    expect(page.locator(".node.result", has_text="story_scores")).to_be_visible()
    expect(page.locator(".node")).to_have_count(2)
    expect(page.get_by_role("region", name="Rows read").locator("tbody tr")).to_have_count(12)
    expect(page.locator("#feed-note")).to_contain_text("began with 12 rows")

    site.put("votes", [{"story": 3, "voter": 500, "stars": 5}, {"story": 99, "voter": 1}])
    epoch = catch_up().epoch
    changes = page.get_by_role("log", name="Changes of the view")
    expect(changes.locator("tbody tr")).to_have_count(2)
    changed = changes.locator("tr", has_text="changed")
    expect(changed.locator("td[data-label=votes]")).to_have_text("12 13")
    expect(changes.locator("tr", has_text="new").locator("td[data-label=story]")).to_have_text("99")
    expect(page.locator("#feed-note")).to_have_text(f"live, at epoch {epoch}")
    expect(cards.locator("div", has_text="Rows").first).to_contain_text("13")


def test_it_is_linked_from_the_list(site: Database, server: Server, open_page: Open) -> None:
    page = open_page(server)
    page.get_by_role("row", name="popularity").get_by_role("link").click()
    expect(page).to_have_url(f"{server.http_url}/views/popularity")
    expect(page.locator("#about-title")).to_have_text("popularity")


def test_dropping_asks_and_goes_back(page: Page, site: Database) -> None:
    page.get_by_role("button", name="Drop").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("DROP VIEW story_scores")
    dialog.get_by_role("button", name="Cancel").click()
    assert "story_scores" in site.views()
    site.sql("DROP VIEW front_page; DROP VIEW section_best; DROP VIEW popularity")
    page.get_by_role("button", name="Drop").click()
    dialog.get_by_role("button", name="Drop").click()
    expect(page).to_have_url(page.url.split("/views/")[0] + "/")
    assert "story_scores" not in site.views()


def test_a_view_that_is_not_there(site: Database, server: Server, open_page: Open) -> None:
    page = open_page(server, path="/views/none")
    expect(page.locator("#about-state")).to_contain_text("there is no view none")
    expect(page.get_by_role("button", name="Drop")).to_be_disabled()


def test_a_view_that_failed_says_why(site: Database, server: Server, open_page: Open) -> None:
    placements = site.catalog.current().program.placements
    (own,) = placements["totals"].operators
    set_aside(site.store, 2, {own: "a bad row"})
    page = open_page(server, path="/views/totals")
    expect(page.locator("#about-state")).to_have_text("failed")
    expect(page.locator("#about-problem")).to_contain_text("a bad row")
    expect(page.locator("#read-out")).to_contain_text("has failed")
    expect(page.get_by_role("button", name="Verify")).to_be_disabled()
    page.goto(server.http_url)
    row = page.get_by_role("row", name="totals")
    expect(row).to_contain_text("failed")
    expect(row).to_contain_text("a bad row")
    expect(page.locator("#views-note")).to_have_text("7 of 8 views ready, 1 failed")


def test_a_view_that_is_being_replaced(
    page: Page, site: Database, server: Server, catch_up: CatchUp
) -> None:
    site.sql("CREATE OR REPLACE VIEW totals AS SELECT SUM(stars) AS stars FROM votes")
    page.goto(f"{server.http_url}/views/totals")
    state = page.locator("#about-state")
    expect(state).to_contain_text("ready")
    expect(state).to_contain_text("being replaced waiting")
    expect(page.locator("#new-text")).to_contain_text("SUM(stars) AS stars")
    expect(page.locator("#notice")).to_contain_text("viewkeep run")
    epochs = Epochs(site.store)
    lease = epochs.acquire()
    advance(site.store, lease.term, Limits(chunk=20))
    epochs.release(lease)
    expect(state.get_by_role("progressbar", name="Loading totals (new)")).to_be_visible()
    expect(page.locator("#read-out thead")).to_contain_text("voters")
    catch_up()
    expect(state).to_have_text("ready")
    expect(page.locator("#read-out thead")).to_have_text("stars")
    expect(page.locator("#feed-note")).to_contain_text("began with 1 row at epoch")
    site.put("votes", {"story": 3, "voter": 500, "stars": 5})
    catch_up()
    changes = page.get_by_role("log", name="Changes of the view")
    expect(changes.locator("thead")).to_have_text("epochchangestars")
    expect(changes.locator("tbody tr")).to_have_count(1)
    expect(page.locator("#text")).to_contain_text("SUM(stars) AS stars")
