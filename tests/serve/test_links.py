"""Pages of other sites: signed links to feeds, and origins that are allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from viewkeep.errors import InvalidSetting
from viewkeep.serve import links
from viewkeep.serve.links import FeedLinks
from viewkeep.serve.settings import Settings, checked_origin

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

    Serve = Callable[..., Server]

SITE = "https://shop.example"
FEED = "/v1/scores/changes"


def first_event(client: httpx.Client, link: str, **headers: str) -> dict[str, object]:
    with client.stream("GET", link, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: "):
                found: dict[str, object] = json.loads(line[6:])
                return found
    raise AssertionError("the feed has ended")


def signed(client: httpx.Client, path: str, **more: object) -> str:
    answer = client.post("/v1/links", json={"path": path, **more}, auth=("x", "secret"))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["link"])


def test_a_link_opens_its_feed_and_nothing_else(site: Database, serve: Serve) -> None:
    with httpx.Client(base_url=serve(site, password="secret").http_url) as client:
        assert client.post("/v1/links", json={"path": FEED}).status_code == 401
        link = signed(client, FEED)
        assert first_event(client, link)["kind"] == "rows"
        signature = link.partition("?")[2]
        for other in (
            FEED,
            link[:-1] + ("0" if link[-1] != "0" else "1"),
            link.replace("expires=", "expires=9"),
            link.replace("/v1/scores/", "/v1/other/"),
            link + "&prefix=1",
            link.replace("?", "?prefix=1&"),
            f"/v1/scores/row?key=1&{signature}",
            f"/v1/tables?{signature}",
        ):
            assert client.get(other).status_code == 401, other
        assert client.post(link).status_code == 401


def test_a_link_keeps_its_parameters(site: Database, serve: Serve) -> None:
    with httpx.Client(base_url=serve(site, password="secret").http_url) as client:
        whole = first_event(client, signed(client, FEED))["rows"]
        part = first_event(client, signed(client, f"{FEED}?prefix=1"))["rows"]
        assert isinstance(whole, list)
        assert part == [row for row in whole if row["story"] == 1] != whole


def test_links_expire_and_end_with_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    one = FeedLinks(lambda: "secret", "db")
    path, _, query = one.sign(FEED, 60).partition("?")
    assert one.opens(path, query)
    assert not FeedLinks(lambda: "another", "db").opens(path, query)
    assert not FeedLinks(lambda: "secret", "other").opens(path, query)
    now = links.time.time()
    monkeypatch.setattr(links.time, "time", lambda: now + 61)
    assert not one.opens(path, query)


def test_what_no_link_is_for(site: Database, serve: Serve) -> None:
    with httpx.Client(base_url=serve(site, password="secret").http_url) as client:
        for path in ("/v1/tables", "https://evil.example/v1/a/changes", f"{FEED}?expires=9", "x"):
            answer = client.post("/v1/links", json={"path": path}, auth=("x", "secret"))
            assert answer.status_code == 400, path
    with httpx.Client(base_url=serve(site).http_url) as client:
        answer = client.post("/v1/links", json={"path": FEED})
        assert "no password" in answer.json()["error"]["message"]


def test_pages_of_allowed_sites(site: Database, serve: Serve) -> None:
    server = serve(site, password="secret", allow_origins=(SITE,))
    with httpx.Client(base_url=server.http_url) as client:
        link = signed(client, FEED)
        with client.stream("GET", link, headers={"Origin": SITE}) as answer:
            assert answer.headers["access-control-allow-origin"] == SITE
        asked = {"Origin": SITE, "Access-Control-Request-Method": "POST"}
        preflight = client.options(
            "/v1/sql", headers={**asked, "Access-Control-Request-Headers": "authorization"}
        )
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == SITE
        sql = {"sql": "SELECT 1 AS one"}
        for origin, status in ((SITE, 200), ("https://evil.example", 403)):
            answer = client.post(
                "/v1/sql", json=sql, headers={"Origin": origin}, auth=("x", "secret")
            )
            assert answer.status_code == status
        with client.stream("GET", link, headers={"Origin": "https://evil.example"}) as answer:
            assert "access-control-allow-origin" not in answer.headers
        refused = client.get("/v1/tables", headers={"Origin": SITE})
        assert refused.status_code == 401  # and the page may read why
        assert refused.headers["access-control-allow-origin"] == SITE


def test_without_allowed_sites_nothing_is_said(client: httpx.Client) -> None:
    answer = client.get("/v1/tables", headers={"Origin": SITE})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("wrong", ["*", "shop.example", "https://a/", "https://a/b", "https://u@a"])
def test_what_is_no_origin(wrong: str) -> None:
    with pytest.raises(InvalidSetting):
        checked_origin(wrong)
    with pytest.raises(InvalidSetting):
        Settings(allow_origins=(wrong,))
