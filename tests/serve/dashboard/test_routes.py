"""The dashboard's addresses, asked without a browser: figures, limits, headers, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from viewkeep.engine.costs import tell_costs
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import advance

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

    CatchUp = Callable[[], Published]


def events(client: httpx.Client) -> Generator[tuple[str, Any], None, None]:
    """Events of the live stream, as (name, data), until the caller has seen enough."""
    with client.stream("GET", "/dashboard/live") as stream:
        name = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def test_the_page_and_its_files(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    for wanted in ("base.css", "app.js", "icon.svg"):
        assert client.get(f"/web/{wanted}").status_code == 200
    tag = page.headers["etag"]
    assert client.get("/", headers={"if-none-match": tag}).status_code == 304


@pytest.mark.parametrize(
    "path",
    [
        "/web/../dashboard/routes.py",
        "/web/..%2fdashboard%2froutes.py",
        "/web/%2e%2e/settings.py",
        "/web//etc/passwd",
        "/web/none.js",
        "/web/",
    ],
)
def test_no_other_files(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_the_page_asks_for_nothing_from_elsewhere(client: httpx.Client) -> None:
    files = [client.get("/").text]
    files += [client.get(f"/web/{name}").text for name in ("base.css", "parts.css", "app.js")]
    for text in files:
        assert "https://" not in text
        assert "http://" not in text
        assert " style=" not in text
        assert "onclick=" not in text


def test_graph(client: httpx.Client, site: Database) -> None:
    graph = client.get("/dashboard/graph").json()
    nodes = {node["id"]: node for node in graph["nodes"]}
    shown = {name for node in nodes.values() for name in node["results"]}
    assert shown == set(site.views())
    for edge in graph["edges"]:
        assert {edge["from"], edge["to"]} <= set(nodes)
        assert nodes[edge["from"]]["level"] <= nodes[edge["to"]]["level"]
    status = {operator.id: operator for operator in site.status().operators}
    for node in nodes.values():
        if node["id"] in status:
            known = status[node["id"]]
            assert node["bytes"] == known.bytes
            assert sum(table["rows"] for table in node["tables"]) == known.rows
            assert node["rows"] == node["tables"][0]["rows"]
            assert node["shared"] == len(known.users)
    assert any(node["shared"] == 2 for node in nodes.values() if node["kind"] == "arrangement")


def test_zones_join_what_is_handed_on_in_memory(client: httpx.Client) -> None:
    graph = client.get("/dashboard/graph").json()
    nodes = {node["id"]: node for node in graph["nodes"]}
    for edge in graph["edges"]:
        one, other = nodes[edge["from"]], nodes[edge["to"]]
        if not edge["moved"] and one["level"] == other["level"]:
            assert one["zone"] == other["zone"]


def test_graph_of_one_view_and_of_few_nodes(client: httpx.Client) -> None:
    part = client.get("/dashboard/graph", params={"view": "totals"}).json()
    assert [node["title"] for node in part["nodes"]] == ["votes", "totals"]
    few = client.get("/dashboard/graph", params={"limit": 5}).json()
    assert few["left_out"] > 0
    assert len([node for node in few["nodes"] if node["kind"] != "table"]) <= 5
    assert client.get("/dashboard/graph", params={"view": "none"}).status_code == 404


def test_views(client: httpx.Client) -> None:
    found = client.get("/dashboard/views").json()
    scores = next(view for view in found["views"] if view["name"] == "story_scores")
    assert (scores["state"], scores["rows"]) == ("ready", 12)
    assert scores["key"] == [{"name": "story", "type": "BIGINT"}]
    assert [table["name"] for table in found["tables"]] == ["comments", "stories", "votes"]


def test_loading_is_told_as_a_share(
    client: httpx.Client, site: Database, catch_up: CatchUp
) -> None:
    site.put("votes", [{"story": s, "voter": v, "stars": 3} for s in range(50) for v in range(40)])
    catch_up()
    site.sql("CREATE VIEW by_voter AS SELECT voter, COUNT(*) AS n FROM votes GROUP BY voter")

    def share() -> float | None:
        views = client.get("/dashboard/views").json()["views"]
        found: float | None = next(v for v in views if v["name"] == "by_voter")["share"]
        return found

    epochs = Epochs(site.store)
    lease = epochs.acquire()
    shares = []
    while advance(site.store, lease.term, Limits(chunk=300)) is not None:
        shares.append(share())
    epochs.release(lease)
    assert shares[-1] is None
    told = [one for one in shares if one is not None]
    assert len(told) >= 3
    assert told == sorted(told)
    assert 0.1 < told[0] < 0.6
    assert told[-1] <= 1


def test_samples_and_epochs(client: httpx.Client, site: Database, catch_up: CatchUp) -> None:
    stream = events(client)
    name, first = next(stream)
    assert name == "sample"
    assert first["epoch"] == 1
    assert next(stream)[0] == "figures"
    site.put("votes", [{"story": 1, "voter": 5000 + n, "stars": 1} for n in range(30)])
    epoch = catch_up().epoch
    sample = next(data for name, data in stream if name == "sample" and data["epoch"] == epoch)
    assert sample["lag"] == 0
    assert sample["kept_per_second"] > 0
    assert sample["written_per_second"] > 0
    assert sample["server_bytes"] > 1_000_000
    figures = next(data for name, data in stream if name == "figures")
    scores = site.catalog.current().program.placements["story_scores"].table
    owner = next(op for op in site.catalog.current().program.operators if scores in op.tables)
    rows, size, rate, cost = figures[owner.id]
    assert 0 < cost <= 1
    assert rows >= 12
    assert size > 0
    assert rate > 0
    stream.close()
    history = client.get("/dashboard/history").json()
    assert [one["at"] for one in history] == sorted(one["at"] for one in history)
    seen = client.get("/dashboard/epochs").json()
    assert (seen[0]["epoch"], seen[0]["operations"]) == (epoch, 30)


def test_the_slowest_epochs(client: httpx.Client, site: Database, catch_up: CatchUp) -> None:
    site.put("votes", [{"story": 1, "voter": 1000 + n, "stars": 5} for n in range(50)])
    catch_up()
    tell_costs(site.store)
    first = client.get("/dashboard/slowest").json()[0]
    assert first["seconds"] > 0
    assert first["processor"] > 0
    named = {one["what"]: one for one in first["operators"]}
    assert all(one["seconds"] > 0 for one in named.values())
    assert any(set(one["views"]) <= set(site.views()) and one["views"] for one in named.values())
    assert "no longer in the plan" not in named


def test_read(client: httpx.Client) -> None:
    def read(**asked: Any) -> Any:
        return client.get("/dashboard/read", params=asked).json()

    row = read(name="story_scores", key="3")
    assert row["rows"][0][:2] == ["3", "12"]
    assert [column["name"] for column in row["columns"]][:2] == ["story", "votes"]
    page = read(name="votes", key="4", limit=10)
    assert len(page["rows"]) == 10
    rest = read(name="votes", key="4", limit=10, after=page["next"])
    assert (len(rest["rows"]), rest["next"]) == (5, None)
    assert read(name="totals")["rows"][0][0] == "162"
    assert read(name="none")["error"]["kind"] == "UnknownName"
    assert read(name="votes", key=["1", "2", "3"])["error"]["kind"] == "InvalidRow"
    assert client.get("/dashboard/read", params={"name": "votes", "limit": 10**6}).is_error


def test_exact_values_survive(client: httpx.Client) -> None:
    def run(sql: str) -> Any:
        return client.post("/dashboard/sql", json={"sql": sql}).json()

    run("CREATE TABLE exact (k BIGINT PRIMARY KEY, d DECIMAL(20, 4), n STRING)")
    run("INSERT INTO exact VALUES (9007199254740993, 12345678901234.5678, NULL)")
    found = run("SELECT * FROM exact")
    assert found["rows"] == [["9007199254740993", "12345678901234.5678", None]]


def test_sql_explains(client: httpx.Client) -> None:
    body = {"sql": "SELECT voter, COUNT(*) FROM votes GROUP BY voter", "explain": True}
    assert "level 1" in client.post("/dashboard/sql", json=body).json()["explain"]
    wrong = client.post("/dashboard/sql", json={"sql": "SELEC 1"})
    assert wrong.status_code == 400


def test_other_sites_cannot_make_it_do_things(client: httpx.Client) -> None:
    elsewhere = {"origin": "http://evil.example"}
    sql = client.post("/dashboard/sql", json={"sql": "DROP VIEW totals"}, headers=elsewhere)
    assert sql.status_code == 403
    assert client.post("/dashboard/verify", json={}, headers=elsewhere).status_code == 403
    assert client.delete("/dashboard/verify", headers=elsewhere).status_code == 403
    plain = client.post("/dashboard/sql", content=b'{"sql": "DROP VIEW totals"}')
    assert plain.is_error


def test_verification_is_one_at_a_time_and_ends_with_the_server(
    client: httpx.Client, server: Server
) -> None:
    assert client.get("/dashboard/verify").json() == {"state": "idle"}
    assert client.post("/dashboard/verify", json={"views": ["none"]}).status_code == 404
    begun = client.post("/dashboard/verify", json={"views": ["totals"]})
    assert (begun.status_code, begun.json()["state"]) == (202, "running")
    assert client.post("/dashboard/verify", json={}).status_code == 409
    server.stop()  # the fixture would fail if a process or thread were left waiting


def test_sample_rows_of_any_node(client: httpx.Client) -> None:
    for node in client.get("/dashboard/graph").json()["nodes"]:
        found = client.get("/dashboard/sample", params={"node": node["id"]}).json()
        assert found["rows"] or "holds no rows" in found["note"], node["title"]
    assert client.get("/dashboard/sample", params={"node": "none"}).status_code == 404
