"""What Prometheus is told, and the board that shows it."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from rich.console import Console

from viewkeep.engine.local import catch_up as run_epochs
from viewkeep.status import render
from viewkeep.stores.contract import Unreadable

sys.path.append(str(Path(__file__).parent.parent))

from engine.poison import POISON, poisoned

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

    CatchUp = Callable[[], Published]

__all__ = ["poisoned"]

ROOT = Path(__file__).parents[2]


def samples(client: httpx.Client) -> dict[str, float]:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_the_database(site: Database, client: httpx.Client, catch_up: CatchUp) -> None:
    found = samples(client)
    status = site.status()
    assert found["viewkeep_published_epoch"] == status.epoch
    assert found["viewkeep_operations_total"] == 17
    assert found['viewkeep_lag_operations{log="node-0"}'] == 0
    assert found["viewkeep_lag_seconds"] == 0
    assert found["viewkeep_base_bytes"] == status.base_bytes > 0
    assert found["viewkeep_state_bytes"] == status.state_bytes > 0
    assert found["process_resident_memory_bytes"] > 0
    site.put("votes", [{"id": number, "story": 1} for number in range(20, 30)])
    found = samples(client)
    lag = sum(value for name, value in found.items() if name.startswith("viewkeep_lag_operations"))
    assert lag == 10
    catch_up()
    found = samples(client)
    assert found["viewkeep_operations_total"] == 27
    while not samples(client)["viewkeep_epoch_seconds_count"]:
        pass  # until the server has seen the epoch


def test_what_could_not_be_read(
    site: Database, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.status().unreadable == ()
    met = {site.catalog.current().tables["votes"].number: Unreadable(2_000, 3, "story: no number")}
    sizes = replace(site.store.sizes(), unreadable=met)
    monkeypatch.setattr(site.store, "sizes", lambda: sizes)
    found = samples(client)
    assert found['viewkeep_unreadable_total{what="row"}'] == 2_000
    assert found['viewkeep_unreadable_total{what="cell"}'] == 3
    (told,) = client.get("/v1/status").json()["unreadable"]
    assert told == {"table": "votes", "rows": 2_000, "cells": 3, "last": "story: no number"}
    console = Console(file=io.StringIO(), width=200)
    console.print(render(site.status()))
    assert isinstance(console.file, io.StringIO)
    assert (
        "table votes: 2,000 row keys could not be read and were left out, 3 cells are NULL; "
        "the last: story: no number"
    ) in console.file.getvalue()


def test_requests_by_route(client: httpx.Client) -> None:
    for key in range(5):
        client.get(f"/v1/scores/row?key={key}")
    client.get("/v1/nope/row")
    client.get("/made/up/by/a/client")
    found = samples(client)

    def count(route: str, status: int, method: str = "GET") -> float:
        labels = f'method="{method}",route="{route}",status="{status}"'
        return found[f"viewkeep_http_request_seconds_count{{{labels}}}"]

    assert count("/v1/{name}/row", 200) == 5
    assert count("/v1/{name}/row", 404) == 1
    assert count("none", 404) == 1
    assert not any("made" in name for name in found)


def test_a_view_that_fails(db: Database, poisoned: None, serve: Callable[..., Server]) -> None:
    """It counts until it is repaired; its readers' errors stand among the requests."""
    db.sql("""
        CREATE TABLE words (id BIGINT PRIMARY KEY, word STRING);
        CREATE VIEW counted AS SELECT word, COUNT(*) AS n FROM words GROUP BY word;
        CREATE VIEW hashed AS SELECT id, md5(word) AS h FROM words;
    """)
    db.put("words", {"id": 1, "word": "a"})
    run_epochs(db.store)
    labels = 'method="GET",route="/v1/{name}/row",status="500"'
    refused = f"viewkeep_http_request_seconds_count{{{labels}}}"
    with httpx.Client(base_url=serve(db).http_url) as client:
        assert samples(client)["viewkeep_failed_views"] == 0
        db.put("words", {"id": 2, "word": POISON})
        run_epochs(db.store, set_aside=True)
        answer = client.get("/v1/hashed/row?key=1")
        assert (answer.status_code, answer.json()["error"]["kind"]) == (500, "ViewFailed")
        found = samples(client)
        assert (found["viewkeep_failed_views"], found[refused]) == (1, 1)
        assert client.get(f"/v1/counted/row?key={POISON}").status_code == 200
        db.put("words", {"id": 2, "word": "b"})
        db.repair("hashed")
        run_epochs(db.store)
        assert samples(client)["viewkeep_failed_views"] == 0
        assert client.get("/v1/hashed/row?key=2").status_code == 200


def test_feeds(client: httpx.Client) -> None:
    assert samples(client)["viewkeep_open_feeds"] == 0
    with client.stream("GET", "/v1/scores/changes") as answer:
        lines = answer.iter_lines()
        next(lines)
        found = samples(client)
        assert found["viewkeep_open_feeds"] == 1
        assert found["viewkeep_feed_events_total"] == 1
        assert found['viewkeep_connections{protocol="http"}'] == 2
    while samples(client)["viewkeep_open_feeds"]:
        pass  # until the server has seen that the client is gone


def test_the_board_shows_what_there_is(client: httpx.Client) -> None:
    board = json.loads((ROOT / "examples" / "grafana" / "viewkeep.json").read_text())
    client.get("/v1/scores/row?key=1")
    with client.stream("GET", "/v1/scores/changes") as answer:
        lines = answer.iter_lines()
        next(lines)
        known = {name.partition("{")[0] for name in samples(client)}
    asked = set()
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            asked |= set(re.findall(r"\b(?:viewkeep|process)_[a-z_]+", target["expr"]))
    assert len(asked) > 8
    assert asked <= known
    ours = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for name in known
        if name.startswith("viewkeep_") and not name.endswith("_created")
    }
    documented = (ROOT / "docs" / "serving.md").read_text()
    for name in ours:
        assert f"`{name}`" in documented, name
