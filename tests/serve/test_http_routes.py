"""Every route over a real socket: what it answers, and how it says no."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from viewkeep.engine.epochs import Epochs
from viewkeep.engine.failures import note_trouble, set_aside
from viewkeep.errors import Timeout
from viewkeep.stores.lmdb import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

    CatchUp = Callable[[], Published]

NO_PIPELINE = "no pipeline runs, so the views stay as they are; start one: viewkeep run"


def error(answer: httpx.Response, status: int, kind: str) -> str:
    """The message of an error, which has one shape whatever it is."""
    assert answer.status_code == status, answer.text
    found = answer.json()
    assert set(found) == {"error"}
    assert set(found["error"]) == {"kind", "message", "fragment", "hint"}
    assert found["error"]["kind"] == kind
    assert answer.headers["content-type"] == "application/json"
    return str(found["error"]["message"])


@contextmanager
def driven(db: Database) -> Iterator[None]:
    """A driver holds the lease, and runs no epoch."""
    epochs = Epochs(db.store)
    lease = epochs.acquire()
    yield
    epochs.release(lease)


# -- reads ------------------------------------------------------------------------------------


def test_row_by_key(client: httpx.Client) -> None:
    assert client.get("/v1/scores/row?key=1").json() == {"row": {"story": 1, "votes": 3}}
    assert client.get("/v1/scores/row?key=77").json() == {"row": None}
    assert client.get("/v1/total/row").json() == {"row": {"votes": 9}}
    row = client.get("/v1/yearly/row", params={"key": ["eu", "2024"]}).json()["row"]
    assert row == {"region": "eu", "year": 2024, "sales": 2, "amount": 30}
    assert client.get("/v1/votes/row?key=4").json() == {"row": {"id": 4, "story": 1}}


def test_the_case_of_names_does_not_matter(client: httpx.Client) -> None:
    assert client.get("/v1/Scores/row?key=1").json() == {"row": {"story": 1, "votes": 3}}
    assert client.get("/v1/Scores/schema").json()["name"] == "scores"
    found = client.get("/v1/YEARLY/rows?slice=Year=2024").json()["rows"]
    assert found == client.get("/v1/yearly/rows?slice=year=2024").json()["rows"] != []
    assert client.post("/v1/Votes/rows", json={"rows": [{"ID": 40, "Story": 1}]}).status_code == 200
    assert client.get("/v1/votes/row?key=40").json() == {"row": {"id": 40, "story": 1}}


def test_keys_that_are_none(client: httpx.Client) -> None:
    said = error(client.get("/v1/scores/row?key=x"), 400, "InvalidRow")
    assert said == "scores: column story (INT): 'x' is no integer"
    assert "got 2 values" in error(client.get("/v1/scores/row?key=1&key=2"), 400, "InvalidRow")
    assert "got 1 of them" in error(client.get("/v1/sales/row?key=eu"), 400, "InvalidRow")
    assert "64 bits" not in error(client.get("/v1/votes/row?key=9" + "9" * 12), 400, "InvalidRow")


def test_unknown_names(client: httpx.Client) -> None:
    found = client.get("/v1/score/row?key=1")
    assert error(found, 404, "UnknownName") == "no table or view is called score"
    assert found.json()["error"]["hint"] == "Did you mean scores?"
    error(client.get("/v1/score/rows"), 404, "UnknownName")
    error(client.get("/v1/score/aggregate"), 404, "UnknownName")
    error(client.get("/v1/score/schema"), 404, "UnknownName")
    error(client.get("/v1/score/changes"), 404, "UnknownName")
    error(client.put("/v1/score/rows", json={"rows": []}), 404, "UnknownName")
    error(client.put("/v1/scores/rows", json={"rows": []}), 404, "UnknownName")


def test_scan(client: httpx.Client) -> None:
    found = client.get("/v1/yearly/rows").json()
    assert [(row["region"], row["year"]) for row in found["rows"]] == [
        ("eu", 2023),
        ("eu", 2024),
        ("us", 2023),
        ("us", 2024),
    ]
    assert found["epoch"] >= 1
    assert found["next"] is None

    def keys(**selection: object) -> list[tuple[str, int, int]]:
        rows = client.get("/v1/sales/rows", params=selection).json()["rows"]
        return [(row["region"], row["year"], row["item"]) for row in rows]

    assert keys(prefix=["eu", "2023"]) == [("eu", 2023, 1), ("eu", 2023, 2)]
    assert keys(prefix=["eu"], reverse="true", limit=1) == [("eu", 2024, 2)]
    assert keys(**{"from": ["us", "2024"]}) == [("us", 2024, 1), ("us", 2024, 2)]
    assert keys(prefix=["us"], to=["2023", "2"]) == [("us", 2023, 1)]
    assert keys(slice=["year=2024", "item=2"]) == [("eu", 2024, 2), ("us", 2024, 2)]
    assert keys(limit=0) == []


def test_pages(client: httpx.Client) -> None:
    seen: list[int] = []
    page = client.get("/v1/votes/rows?limit=4").json()
    while True:
        seen += [row["id"] for row in page["rows"]]
        if page["next"] is None:
            break
        page = client.get("/v1/votes/rows", params={"limit": 4, "after": page["next"]}).json()
    assert seen == list(range(9))
    error(client.get("/v1/votes/rows?after=nonsense"), 400, "InvalidToken")


def test_selections_that_are_none(client: httpx.Client) -> None:
    for query in (
        "slice=year",
        "slice=amount=1",
        "slice=year=x",
        "slice=year=2024&prefix=eu",
        "prefix=eu&prefix=1&prefix=2&prefix=3",
        "from=1&from=2&from=3&from=4",
    ):
        error(client.get(f"/v1/sales/rows?{query}"), 400, "InvalidRow")
    for query in ("limit=-1", "limit=x", "at=never", "at=-1", "reverse=maybe"):
        error(client.get(f"/v1/sales/rows?{query}"), 400, "InvalidRequest")


def test_aggregate(client: httpx.Client) -> None:
    found = client.get("/v1/yearly/aggregate?measure=count(*)&measure=sum(amount)&slice=year=2024")
    assert found.json() == {"measures": {"count(*)": 2, "sum(amount)": 60}}
    assert client.get("/v1/votes/aggregate").json() == {"measures": {"count(*)": 9}}
    answer = client.get("/v1/votes/aggregate?measure=median(id)")
    assert answer.status_code == 400
    assert answer.json()["error"]["kind"] != "InternalError"


def test_epochs_by_number(site: Database, client: httpx.Client) -> None:
    with site.snapshot() as kept:
        found = client.get(f"/v1/scores/row?key=1&at={kept.epoch}")
        assert found.json() == {"row": {"story": 1, "votes": 3}}
    assert client.get("/v1/scores/row?key=1&at=latest").json()["row"]["votes"] == 3
    assert client.get("/v1/votes/row?key=1&at=stable").json()["row"] == {"id": 1, "story": 1}
    error(client.get("/v1/scores/row?key=1&at=999"), 410, "EpochGone")


def test_many_keys_of_a_table_read_the_log_once(
    client: httpx.Client, site: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At an epoch, rows of a table are read with what the log has after its cut."""
    site.put("votes", [{"id": n, "story": 7} for n in range(100)])
    looks, gather = [0], log.gather

    def counting(*arguments: Any) -> Any:
        looks[0] += 1
        return gather(*arguments)

    monkeypatch.setattr(log, "gather", counting)
    reads = [{"name": "votes", "key": n % 100} for n in range(1_000)]
    found = client.post("/v1/read", json={"reads": reads}).json()["results"]
    assert found[:10] == [*({"row": {"id": n, "story": n % 3}} for n in range(9)), {"row": None}]
    assert len(found) == 1_000
    assert 0 < looks[0] <= 2 * site.store.tables.parts
    looks[0] = 0
    rows = site.read([("votes", n) for n in range(100)] + [("scores", 1)])
    assert rows[8:10] == [{"id": 8, "story": 2}, None]
    assert rows[-1] == {"story": 1, "votes": 3}
    assert 0 < looks[0] <= 2 * site.store.tables.parts


def test_batch_read(client: httpx.Client) -> None:
    reads = [
        {"name": "scores", "key": 1},
        {"name": "yearly", "key": {"region": "eu", "year": 2023}},
        {"name": "votes", "keys": [1, [2], 99]},
        {"name": "sales", "prefix": "us", "from": 2024, "limit": 1},
        {"name": "sales", "slice": {"year": 2023, "item": 2}},
        {"name": "total", "key": []},
    ]
    found = client.post("/v1/read", json={"reads": reads}).json()
    assert found["epoch"] >= 1
    assert found["results"][0] == {"row": {"story": 1, "votes": 3}}
    assert found["results"][1]["row"]["amount"] == 30
    assert found["results"][2] == {"rows": [{"id": 1, "story": 1}, {"id": 2, "story": 2}, None]}
    assert found["results"][3]["rows"] == [{"region": "us", "year": 2024, "item": 1, "amount": 10}]
    assert found["results"][3]["next"] is not None
    assert [row["region"] for row in found["results"][4]["rows"]] == ["eu", "us"]
    assert found["results"][5] == {"row": {"votes": 9}}
    error(client.post("/v1/read", json={"reads": [{"name": "nope"}]}), 404, "UnknownName")
    error(client.post("/v1/read", json={"reads": [{"nome": "x"}]}), 400, "InvalidRequest")


# -- writes -----------------------------------------------------------------------------------


def test_put_insert_delete(client: httpx.Client) -> None:
    assert client.put("/v1/votes/rows", json={"rows": [{"id": 50, "story": 1}]}).json() == {
        "written": 1
    }
    duplicate = client.post("/v1/votes/rows", json={"rows": [{"id": 51}, {"id": 50}]})
    assert "id = 50" in error(duplicate, 409, "DuplicateKey")
    assert client.get("/v1/votes/row?key=51").json() == {"row": None}
    client.put("/v1/votes/rows", json={"rows": [{"id": 50, "story": 2}, {"id": 51, "story": 2}]})
    assert client.get("/v1/votes/row?key=50").json() == {"row": {"id": 50, "story": 2}}
    assert client.delete("/v1/votes/row?key=50&column=story").json() == {"written": 1}
    assert client.get("/v1/votes/row?key=50").json() == {"row": {"id": 50, "story": None}}
    assert client.delete("/v1/votes/row?key=50").json() == {"written": 1}
    assert client.get("/v1/votes/row?key=50").json() == {"row": None}
    assert client.post("/v1/votes/delete", json={"keys": [51, [0], {"id": 1}]}).json() == {
        "written": 3
    }
    assert client.get("/v1/votes/aggregate").json() == {"measures": {"count(*)": 7}}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"story": 1}, "votes, row 1: key column id must not be NULL"),
        ({"id": None}, "votes, row 1: key column id must not be NULL"),
        ({"id": 1.5}, "votes, row 1: "),
        ({"id": True}, "votes, row 1: "),
        ({"id": {}}, "votes, row 1: "),
        ({"id": 1, "what": 2}, "what"),
        ({"id": 1 << 40}, "votes, row 1: "),
    ],
)
def test_rows_that_do_not_fit(client: httpx.Client, row: dict[str, object], said: str) -> None:
    assert said in error(client.put("/v1/votes/rows", json={"rows": [row]}), 400, "InvalidRow")
    assert client.get("/v1/votes/aggregate").json() == {"measures": {"count(*)": 9}}


def test_bodies_that_are_none(client: httpx.Client) -> None:
    kind = {"content-type": "application/json"}
    for body in (b"", b"{", b"[]", b'{"rows": 1}', b'{"rows": [1]}', b"\xff", b'{"rows": NaN}'):
        answer = client.put("/v1/votes/rows", content=body, headers=kind)
        error(answer, 400, "InvalidRequest")
    error(client.put("/v1/votes/rows", content=b'{"rows":[]}'), 400, "InvalidRequest")
    deep = b'{"rows":' + b"[" * 100_000
    error(client.put("/v1/votes/rows", content=deep, headers=kind), 400, "InvalidRequest")
    digits = b'{"rows":[{"id":' + b"1" * 10_000 + b"}]}"
    error(client.put("/v1/votes/rows", content=digits, headers=kind), 400, "InvalidRequest")


# -- SQL --------------------------------------------------------------------------------------


def test_sql(client: httpx.Client) -> None:
    found = client.post("/v1/sql", json={"sql": "SELECT * FROM scores WHERE story = 1"}).json()
    assert found["columns"] == ["story", "votes"]
    assert found["rows"] == [{"story": 1, "votes": 3}]
    assert found["how"] == "scores by key"
    assert found["epoch"] >= 1
    text = "INSERT INTO votes VALUES (60, 1); -- one; two\nDELETE FROM votes WHERE id = 60;"
    found = client.post("/v1/sql", json={"sql": text}).json()
    assert (found["affected"], found["message"]) == (1, "1 row deleted")
    assert client.post("/v1/sql", json={"sql": " ; "}).json()["message"] == "(no statement)"


def test_sql_parameters(client: httpx.Client) -> None:
    def run(text: str, *values: object) -> httpx.Response:
        return client.post("/v1/sql", json={"sql": text, "parameters": values})

    found = run("SELECT * FROM scores WHERE story = ?", 1).json()
    assert (found["rows"], found["how"]) == ([{"story": 1, "votes": 3}], "scores by key")
    assert run("SELECT ? AS b, ? AS s, ? AS n", True, "x'; --", None).json()["rows"] == [
        {"b": True, "s": "x'; --", "n": None}
    ]
    body = b'{"sql": "SELECT ? AS m", "parameters": [0.10]}'
    kind = {"content-type": "application/json"}
    assert client.post("/v1/sql", content=body, headers=kind).json()["rows"] == [{"m": "0.10"}]
    for number in (b"1e999999", b"1e999999999", b"-1e-999999999"):  # as an int it would not end
        huge = b'{"sql": "SELECT ? AS m", "parameters": [%s]}' % number
        error(client.post("/v1/sql", content=huge, headers=kind), 400, "InvalidRequest")
        huge = b'{"reads": [{"name": "votes", "limit": %s}]}' % number
        error(client.post("/v1/read", content=huge, headers=kind), 400, "InvalidRequest")
    half = b'{"sql": "SELECT ? AS s", "parameters": ["\\ud800"]}'
    error(client.post("/v1/sql", content=half, headers=kind), 400, "TypeMismatch")
    error(run("SELECT * FROM scores WHERE story = ?", 1, 2), 400, "SqlSyntaxError")
    error(run("SELECT 1; SELECT ?", 1), 400, "InvalidRequest")
    error(run("SELECT ? AS x", [1]), 400, "InvalidRequest")


def test_the_shortcut_answers_as_the_route_does(client: httpx.Client) -> None:
    """A parameter that means nothing sends a request the long way."""
    for path in (
        "/v1/scores/row?key=1",
        "/v1/scores/row?key=1&at=latest",
        "/v1/scores/row?key=99&at=stable",
        "/v1/total/row?",
        "/v1/scores/row?key=",
        "/v1/scores/row?key=x",
        "/v1/scores/row?key=1&key=2",
        "/v1/yearly/row?key=eu&key=2024",
        "/v1/yearly/row?key=e%75&key=+2024",
        "/v1/yearly/row?key=%ff&key=1",
        "/v1/nope/row?key=1",
        "/v1/votes/row?key=1&at=stable",
        "/v1/sc%6fres/row?key=1",
    ):
        short, long = client.get(path), client.get(f"{path}&long=way")
        assert short.status_code == long.status_code, path
        assert short.json() == long.json(), path
        token = "viewkeep-session"
        assert short.headers.get(token) == long.headers.get(token), path


def test_sql_that_fails(client: httpx.Client) -> None:
    def run(text: str) -> httpx.Response:
        return client.post("/v1/sql", json={"sql": text})

    error(run("SELEKT 1"), 400, "SqlSyntaxError")
    error(run("SELECT 'open"), 400, "SqlSyntaxError")
    error(run("SELECT 1; SELECT 'open"), 400, "SqlSyntaxError")
    error(run("SELECT * FROM nope"), 404, "UnknownName")
    refused = run("CREATE VIEW v AS SELECT rand() AS r FROM votes")
    error(refused, 400, "Unsupported")
    error(run("CREATE TABLE votes (id INT PRIMARY KEY)"), 409, "CatalogError")
    error(
        run("INSERT INTO votes VALUES (70, 1); INSERT INTO votes VALUES (1, 1)"),
        409,
        "DuplicateKey",
    )
    assert client.get("/v1/votes/row?key=70").json()["row"] is not None  # statements before stay


def test_explain(client: httpx.Client) -> None:
    assert "view scores" in client.get("/v1/explain?of=scores").json()["explain"]
    assert "view total" in client.get("/v1/explain").json()["explain"]
    said = client.get("/v1/explain", params={"of": "SELECT story FROM votes WHERE story > 1"})
    assert "DELTA votes" in said.json()["explain"]
    error(client.get("/v1/explain?of=nope"), 404, "UnknownName")


# -- what there is ----------------------------------------------------------------------------


def test_catalog(client: httpx.Client) -> None:
    tables = client.get("/v1/tables").json()["found"]
    assert [table["name"] for table in tables] == ["sales", "votes"]
    assert [column["name"] for column in tables[0]["key"]] == ["region", "year", "item"]
    views = client.get("/v1/views").json()["found"]
    assert [view["name"] for view in views] == ["scores", "total", "yearly"]
    scores = client.get("/v1/scores/schema").json()
    assert scores == views[0]
    assert scores["kind"] == "view"
    assert scores["sql"].startswith("SELECT story")
    assert scores["columns"][1] == {"name": "votes", "type": "BIGINT", "nullable": True}


def test_status(site: Database, client: httpx.Client) -> None:
    found = client.get("/v1/status").json()
    assert found["epoch"] == site.status().epoch
    assert found["lag"] == 0
    assert [view["state"] for view in found["views"]] == ["ready"] * 3


def test_views_that_are_not_loaded(site: Database, client: httpx.Client) -> None:
    site.sql("CREATE VIEW late AS SELECT story FROM votes GROUP BY story")
    answer = client.get("/v1/late/rows")
    assert "waits to be loaded" in error(answer, 503, "NotReady")
    assert answer.headers["retry-after"] == "1"
    error(client.get("/v1/late/changes"), 503, "NotReady")
    ready = client.get("/ready")
    assert ready.status_code == 503
    assert ready.json()["reasons"] == ["view late is waiting", NO_PIPELINE]
    with driven(site):
        assert client.get("/ready").json()["reasons"] == ["view late is waiting"]


def test_paths_that_lead_nowhere(client: httpx.Client) -> None:
    for path in ("/v1", "/v1/", "/v2/scores/row", "/v1/scores", "/etc/passwd", "/..%2f..%2fetc"):
        error(client.get(path), 404, "NotFound")
    error(client.get("/v1/read"), 405, "MethodNotAllowed")


def test_description(client: httpx.Client) -> None:
    described = client.get("/v1/openapi.json").json()
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            about = f"{method} {path}"
            if not path.startswith("/v1"):
                continue
            assert operation["description"], about
            assert operation["tags"], about
            assert "422" not in operation["responses"], about
            default = operation["responses"]["default"]
            assert default["content"]["application/json"]["schema"]["$ref"].endswith("/Error")
            for parameter in operation.get("parameters", []):
                assert parameter.get("description"), f"{about}: {parameter['name']}"


# -- health -----------------------------------------------------------------------------------


def test_health_and_readiness(site: Database, client: httpx.Client) -> None:
    assert client.get("/health").json() == {"alive": True}
    assert client.get("/ready").json()["ready"] is True
    with driven(site):
        site.put("votes", [{"id": 100, "story": 1}, {"id": 101, "story": 1}])
        assert client.get("/ready").json()["ready"] is True
        late = client.get("/ready?lag_operations=1")
        assert late.status_code == 503
        assert late.json()["reasons"] == ["the views lack 2 operations"]
        assert client.get("/ready?lag_operations=2").status_code == 200
        assert "s behind" in client.get("/ready?lag_seconds=0").json()["reasons"][0]


def test_views_that_lack_writes_are_not_ready_without_a_pipeline(
    site: Database, client: httpx.Client, catch_up: CatchUp
) -> None:
    site.put("votes", {"id": 100, "story": 1})
    ready = client.get("/ready")
    assert ready.status_code == 503
    assert ready.json()["reasons"] == [NO_PIPELINE]
    catch_up()
    assert client.get("/ready").json()["ready"] is True


def test_lag_is_the_age_of_the_oldest_write_that_is_not_covered(
    site: Database, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the time that the database was idle before it; and it grows while nothing runs."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    now += 100 * 10**9
    site.put("votes", {"id": 100, "story": 1})
    now += 5 * 10**9
    site.put("votes", {"id": 101, "story": 1})
    for seconds in (5.0, 25.0):
        assert client.get("/v1/status").json()["lag_seconds"] == seconds
        assert client.get("/ready").json()["lag_seconds"] == seconds
        assert f"\nviewkeep_lag_seconds {seconds}\n" in client.get("/metrics").text
        now += 20 * 10**9
    with driven(site):
        late = client.get("/ready?lag_seconds=44.9").json()
        assert late["reasons"] == ["the views are 45.0 s behind"]
        assert client.get("/ready?lag_seconds=45").status_code == 200
    with pytest.raises(Timeout, match=r"2 of your operations behind \(45\.0 s\)"):
        site.wait(0)


def test_a_view_that_failed_is_told_of_and_stops_no_other(
    site: Database, client: httpx.Client, serve: Callable[..., Server], catch_up: CatchUp
) -> None:
    import httpx as http

    operator = next(iter(site.catalog.current().program.placements["total"].operators))
    assert set_aside(site.store, 7, {operator: "a bad row"}) == ("total",)
    note_trouble(site.store, "no memory")
    ready = client.get("/ready").json()
    assert ready["ready"] is True
    assert [text.split(" (")[0] for text in ready["warnings"]] == [
        "view total failed at epoch 7",
        "the pipeline has failed once since epoch 1: no memory",
    ]
    metrics = client.get("/metrics").text
    assert "viewkeep_failed_views 1.0" in metrics
    assert "viewkeep_failures 1.0" in metrics
    catch_up()
    assert "a bad row" in error(client.get("/v1/total/rows"), 500, "ViewFailed")
    assert client.get("/v1/scores/rows").status_code == 200
    states = {view["name"]: view["state"] for view in client.get("/v1/status").json()["views"]}
    assert states == {"scores": "ready", "total": "failed", "yearly": "ready"}
    with http.Client(base_url=serve(site, password="secret").http_url) as stranger:
        assert stranger.get("/ready").json()["warnings"] == ["view total has failed"]


def test_without_any_epoch(db: Database, serve: Callable[..., Server]) -> None:
    import httpx as http

    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    db.put("t", {"id": 1})
    with http.Client(base_url=serve(db).http_url) as client:
        assert client.get("/v1/t/row?key=1").json() == {"row": {"id": 1}}
        assert client.get("/ready?lag_seconds=1").json()["reasons"] == ["no epoch is published yet"]
        assert 0 < client.get("/v1/status").json()["lag_seconds"] < 60
        assert client.get("/metrics").status_code == 200
