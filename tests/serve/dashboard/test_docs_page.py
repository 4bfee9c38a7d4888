"""The page of the HTTP interface: every operation, tried in a browser, on a phone too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import Page, expect

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

    Open = Callable[..., Page]


@pytest.mark.parametrize("width", [1400, 390])
def test_operations_are_listed_and_tried(
    site: Database, server: Server, open_page: Open, width: int
) -> None:
    described = httpx.get(f"{server.http_url}/v1/openapi.json").json()
    page = open_page(server, viewport={"width": width, "height": 900})
    page.goto(f"{server.http_url}/docs")
    operations = page.locator(".api details")
    expect(operations).to_have_count(sum(map(len, described["paths"].values())))

    row = operations.filter(has_text="/v1/{name}/row").first
    row.locator("summary").click()
    row.get_by_label("name *").fill("stories")
    row.get_by_label("key", exact=True).fill("3")
    row.get_by_role("button").click()
    expect(row.locator("pre")).to_contain_text('"title": "Story 3"')
    expect(row.locator(".status")).to_contain_text("GET /v1/stories/row?key=3 → 200")

    sql = operations.filter(has_text="/v1/sql").first
    sql.locator("summary").click()
    sql.get_by_label("Body").fill('{"sql": "SELECT COUNT(*) AS n FROM stories"}')
    sql.get_by_role("button").click()
    expect(sql.locator("pre")).to_contain_text('"n": 12')

    page.get_by_label("Find").fill("sign a link")
    expect(page.locator(".api details:visible")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
