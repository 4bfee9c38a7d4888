"""Promises of the servers' pages that no other test holds (docs/promises.md)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from viewkeep import errors
from viewkeep.serve.http import errors as http_errors

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

    CatchUp = Callable[[], Published]
    Serve = Callable[..., Server]

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
SECRET = "a-secret-that-is-not-told"
MODULES = (errors, http_errors)


def test_statuses_are_those_of_the_page() -> None:
    """Each kind that the page names has the page's status, and no error class is left out."""
    named = set()
    for statuses, kinds in re.findall(
        r"^\| ([45]\d\d(?:, \d+)*) \| (.*) \|$", PAGE.read_text(), re.M
    ):
        for name in re.findall(r"`(\w+)`", kinds):
            found = next((getattr(m, name) for m in MODULES if hasattr(m, name)), None)
            if found is not None:  # the others are the server's words for what is no error class
                named.add(found)
                status = http_errors.status_of(found.__new__(found))
                assert str(status) in statuses.split(", ") or name == "Overloaded", name
    for kind, status in http_errors.STATUS.items():
        if status != 500:
            subclasses = {kind, *kind.__subclasses__()}
            assert named & subclasses, f"{kind.__name__} is not on the page"


def test_every_answer_that_read_a_view_or_wrote_has_a_session(client: httpx.Client) -> None:
    for answer in (
        client.get("/v1/scores/row?key=1"),
        client.get("/v1/scores/rows"),
        client.get("/v1/scores/aggregate?measure=count(*)"),
        client.post("/v1/read", json={"reads": [{"name": "scores", "key": 1}]}),
        client.post("/v1/sql", json={"sql": "SELECT * FROM scores"}),
        client.post("/v1/sql", json={"sql": "UPDATE votes SET story = 1 WHERE id = 1"}),
        client.put("/v1/votes/rows", json={"rows": [{"id": 1, "story": 1}]}),
        client.post("/v1/votes/rows", json={"rows": [{"id": 99, "story": 1}]}),
        client.post("/v1/votes/delete", json={"keys": [99]}),
        client.delete("/v1/votes/row?key=98"),
    ):
        assert answer.status_code == 200, answer.text
        assert answer.headers.get("viewkeep-session"), answer.request.url


def test_what_clients_send_is_not_logged(
    site: Database, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Queries, keys, rows and passwords: of requests that succeed, and of such that fail."""
    caplog.set_level(logging.DEBUG)
    url = serve(site, password=SECRET).http_url
    with httpx.Client(base_url=url, auth=("secret_user", SECRET)) as client:
        client.get("/v1/sales/row?key=secret_key&key=2024&key=1")
        client.get("/v1/sales/rows?prefix=secret_prefix")
        client.get("/v1/scores/row?key=secret_wrong_key")
        client.post("/v1/sql", json={"sql": "SELECT 'secret_query' AS x"})
        client.post("/v1/sql", json={"sql": "SELEKT secret_syntax"})
        row = {"region": "secret_value", "year": 1, "item": 1, "amount": 1}
        client.put("/v1/sales/rows", json={"rows": [row]})
        client.put("/v1/sales/rows", json={"rows": [{"region": "secret_bad", "year": "x"}]})
        client.get("/v1/tables", auth=("secret_user", "secret_wrong_password"))
    records = [r for r in caplog.records if r.name.startswith(("viewkeep", "uvicorn"))]
    assert len(records) >= 8, "requests are logged"
    told = json.dumps(
        [{**vars(record), "said": record.getMessage()} for record in records], default=str
    )
    assert "/v1/sales/row" in told
    assert "secret" not in told


def test_what_should_not_happen_is_logged_with_its_traceback(
    site: Database,
    serve: Serve,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def break_down(*arguments: object) -> None:
        raise AssertionError("nobody thought of this")

    monkeypatch.setattr(type(site), "explain", break_down)
    with httpx.Client(base_url=serve(site).http_url) as client:
        answer = client.get("/v1/explain")
    assert answer.status_code == 500
    assert "nobody thought of this" not in answer.text
    (record,) = [record for record in caplog.records if record.exc_info]
    assert logging.Formatter().format(record).count("break_down") >= 1


def test_pages_have_a_thousand_rows(site: Database, client: httpx.Client) -> None:
    site.put("votes", [{"id": number, "story": 1} for number in range(2_500)])
    page = client.get("/v1/votes/rows").json()
    assert len(page["rows"]) == 1_000
    assert page["next"] is not None
    assert len(client.get("/v1/votes/rows?limit=2000").json()["rows"]) == 2_000


def test_reads_without_a_session(site: Database, client: httpx.Client) -> None:
    before = client.get("/v1/scores/rows").json()
    assert client.put("/v1/votes/rows", json={"rows": [{"id": 99, "story": 1}]}).status_code == 200
    assert client.get("/v1/scores/rows").json() == before, "no epoch was published"
    assert client.get("/v1/votes/row?key=99").json() == {"row": {"id": 99, "story": 1}}


def test_a_feed_goes_on_at_another_server(site: Database, serve: Serve, catch_up: CatchUp) -> None:
    first, second = serve(site), serve(site)
    with httpx.stream("GET", f"{first.http_url}/v1/scores/changes") as answer:
        token = next(line for line in answer.iter_lines() if line.startswith("id: "))[4:]
    site.put("votes", {"id": 50, "story": 1})
    catch_up()
    headers = {"Last-Event-ID": token}
    with httpx.stream("GET", f"{second.http_url}/v1/scores/changes", headers=headers) as answer:
        data = next(line for line in answer.iter_lines() if line.startswith("data: "))[6:]
    event = json.loads(data)
    assert (event["kind"], event["changes"][0]["new"]["votes"]) == ("changes", 4)
