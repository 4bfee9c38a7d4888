"""Partial views over connections: HTTP and MySQL read them as they read others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import httpx

    from viewkeep import Database
    from viewkeep.engine.epochs import Published

PAGE = (
    "CREATE VIEW page AS SELECT story, COUNT(*) AS votes FROM votes WHERE story = ? GROUP BY story"
)


@pytest.fixture
def paged(site: Database, catch_up: Callable[[], Published]) -> Database:
    site.sql(PAGE)
    catch_up()
    return site


def test_http(paged: Database, client: httpx.Client, catch_up: Callable[[], Published]) -> None:
    for _ in range(2):
        assert client.get("/v1/page/row?key=1").json() == {"row": {"story": 1, "votes": 3}}
        assert client.get("/v1/page/row?key=77").json() == {"row": None}
        rows = client.post("/v1/sql", json={"sql": "SELECT votes FROM page WHERE story = 2"})
        assert '"votes":3' in rows.text.replace(" ", "")
        catch_up()
    refused = client.get("/v1/page/rows")
    assert refused.status_code == 400
    assert refused.json()["error"]["kind"] == "PartialKey"
