"""The parts behind the dashboard, by themselves: memory, titles, shares, many views."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from viewkeep.demo.site import VIEWS
from viewkeep.engine.epochs import Epochs
from viewkeep.engine.failures import set_aside
from viewkeep.engine.load_progress import _position
from viewkeep.engine.local import catch_up
from viewkeep.plan.nodes.node import OperatorNode
from viewkeep.serve.dashboard.files import web_files
from viewkeep.serve.dashboard.graph import figures_of, graph_of
from viewkeep.serve.dashboard.losses import losses
from viewkeep.serve.dashboard.memory import of_driver, of_process, of_this_process
from viewkeep.serve.dashboard.sqltext import laid_out
from viewkeep.serve.dashboard.titles import Titles
from viewkeep.serve.dashboard.views import MOST_COUNTED, MOST_VIEWS, view_of, views_of
from viewkeep.sql.parse.syntax import Dialect

if TYPE_CHECKING:
    from viewkeep import Database


def test_memory_of_a_driver_is_that_of_its_family(db: Database) -> None:
    mine = of_this_process()
    assert mine is not None
    assert mine > 10_000_000
    epochs = Epochs(db.store)
    lease = epochs.acquire()
    epochs.release(lease)
    child = subprocess.Popen(
        [sys.executable, "-c", "x = bytearray(30_000_000); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        held = of_driver(lease)
        assert held is not None
        assert held >= 30_000_000
        alone = of_driver(replace(lease, pid=child.pid))
        assert alone == of_process(child.pid)
        child.kill()
    assert of_driver(replace(lease, pid=child.pid)) is None
    assert of_driver(replace(lease, host="elsewhere")) is None
    assert of_driver(None) is None
    assert lease.pid == os.getpid()


@pytest.mark.parametrize(
    ("key", "first", "last", "share"),
    [
        (b"", b"\x01", b"\x09", 0.0),
        (b"a\x05", b"a\x00", b"a\x0a", 0.5),
        (b"a\x0a", b"a\x00", b"a\x0a", 1.0),
        (b"zz", b"a", b"b", 1.0),
        (b"a", b"a", b"a", 1.0),
        (b"a", None, None, 0.0),
    ],
)
def test_where_a_key_lies(
    key: bytes, first: bytes | None, last: bytes | None, share: float
) -> None:
    assert _position(key, first, last) == pytest.approx(share, abs=0.01)


def test_titles_lose_ids_and_nothing_else(site: Database) -> None:
    program = site.catalog.current().program
    mark = program.operators[0].id[:6]
    titles = Titles(program)
    assert titles.short(f"γ by {mark}.story, facade.story") == "γ by story, facade.story"


def test_many_views_are_told_in_bounds(db: Database) -> None:
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
    count = MOST_VIEWS + 100
    db.create_views(
        ";".join(f"CREATE VIEW v{n:04} AS SELECT k, g FROM t WHERE g > {n}" for n in range(count))
    )
    db.put("t", [{"k": n, "g": 2 * n} for n in range(10)])
    catch_up(db.store)
    db.sql("CREATE VIEW zz AS SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    found = views_of(db)
    assert (found["total"], found["ready"]) == (count + 1, count)
    assert len(found["views"]) == MOST_VIEWS
    assert found["views"][-1]["name"] == "zz", "what is not ready is always told"
    graph = graph_of(db, {})
    assert len(graph["nodes"]) <= 302
    assert graph["left_out"] == count + 1 - 300
    assert len(figures_of(db, {})) == count + 1
    part = graph_of(db, {}, view="v0550")
    assert [node["title"] for node in part["nodes"]] == ["t", "v0550"]


def test_a_view_that_failed(db: Database) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, x INT); CREATE VIEW a AS SELECT id FROM t")
    db.sql("CREATE VIEW b AS SELECT SUM(x) AS x FROM t")
    catch_up(db.store)
    (operator,) = db.catalog.current().program.placements["b"].operators
    set_aside(db.store, 2, {operator: "a bad row"})
    a, b = views_of(db)["views"]
    assert (a["state"], a["problem"]) == ("ready", None)
    assert (b["state"], b["held"]) == ("failed", 0)
    assert "a bad row" in b["problem"]
    assert graph_of(db, {})["views"] == 1
    assert graph_of(db, {}, "b")["nodes"] == []


def test_rows_are_counted_where_old_ones_are_held(db: Database) -> None:
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT); CREATE VIEW v AS SELECT k, g FROM t")
    db.put("t", [{"k": n, "g": n} for n in range(20)])
    catch_up(db.store)
    with db.snapshot():  # which keeps what is deleted
        db.delete_many("t", [(n,) for n in range(5)])
        catch_up(db.store)
        (view,) = views_of(db)["views"]
        assert (view["rows"], view["held"]) == (15, 20)
    db.put("t", [{"k": n, "g": n} for n in range(MOST_COUNTED + 100)])
    catch_up(db.store)
    (view,) = views_of(db)["views"]
    assert (view["rows"], view["held"]) == (None, MOST_COUNTED + 100)
    assert view_of(db, "v")["rows"] == MOST_COUNTED + 100, "a page of its own counts more"


def test_a_view_that_is_being_replaced(db: Database) -> None:
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT); CREATE VIEW v AS SELECT k, g FROM t")
    db.put("t", [{"k": n, "g": n} for n in range(20)])
    catch_up(db.store)
    assert views_of(db)["views"][0]["replacement"] is None
    db.sql("CREATE OR REPLACE VIEW v AS SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    (view,) = views_of(db)["views"]
    assert (view["state"], view["replacement"]["state"]) == ("ready", "waiting")
    assert [column["name"] for column in view["columns"]] == ["k", "g"]
    assert [n["title"] for n in graph_of(db, {}, "v")["nodes"]] == ["t", "v", "v (new)"]
    new = db.catalog.current().program.placements["v (new)"]
    set_aside(db.store, 2, {next(iter(new.operators)): "a bad row"})
    (view,) = views_of(db)["views"]
    assert (view["state"], view["problem"]) == ("ready", None)
    assert view["replacement"]["state"] == "failed"
    assert "a bad row. v goes on as it was" in view["replacement"]["problem"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT CAST(a AS INT) AS x, TRY_CAST(b AS INT) AS y FROM t",
        "SELECT a FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY b DESC) = 1",
        "SELECT a <=> b, a RLIKE 'x', 1L, date_sub(d, 2), `we ird`, 'it''s' FROM t -- so",
        "SELECT a, COUNT(*) AS n FROM t JOIN u USING (a) GROUP BY ALL HAVING n > 1",
        *(view.partition(" AS\n")[2] for view in VIEWS.split(";") if view.strip()),
    ],
)
def test_sql_is_shown_as_it_was_meant(sql: str) -> None:
    shown = laid_out(sql)
    assert Dialect().parse(shown) == Dialect().parse(sql)
    assert "TRY_CAST(a" not in shown
    assert ("QUALIFY" in shown) == ("QUALIFY" in sql)


def test_what_statements_take_away() -> None:
    def lost(*texts: str) -> list[str]:
        return losses(texts)

    assert lost("SELECT 1", "drop view `a b`") == ["drop view a b"]
    assert lost("-- DROP VIEW a\nSELECT 'DROP VIEW b'") == []
    assert lost("DELETE FROM t", "DELETE FROM t WHERE k = 1") == ["DELETE FROM t"]
    assert lost("ALTER TABLE t DROP COLUMN x", "ALTER TABLE t ADD COLUMN y INT") == [
        "ALTER TABLE t DROP COLUMN x"
    ]
    assert lost("DROP 'unfinished") == []


def test_every_kind_of_node_has_a_sign() -> None:
    kinds = web_files()["kinds.js"].body.decode()
    drawn = {"table", "values", "view", "arrangement"}
    operators = [OperatorNode]
    for kind in operators:
        operators += [
            one for one in kind.__subclasses__() if one.__module__.startswith("viewkeep.")
        ]
        if not kind.__name__.endswith("Node") and kind.__name__ != "Arrange":
            drawn.add(kind.__name__.lower())
    assert {"threshold", "delta", "topk", "window", "join", "aggregate"} <= drawn
    for name in drawn:
        assert f"  {name}: {{ sign: " in kinds, name
