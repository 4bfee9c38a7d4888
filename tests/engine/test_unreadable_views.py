"""A view whose definition cannot be read: it is named, it can be dropped, and all others go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import viewkeep
from viewkeep.engine import programs
from viewkeep.engine.local import catch_up
from viewkeep.engine.programs import newest_plan, save_definitions
from viewkeep.errors import CatalogError, StoreError, Unsupported, ViewFailed
from viewkeep.plan.nodes import Arrange, KeyPart, Source, View
from viewkeep.stores.wrapped import WrappedStore
from viewkeep.types import BIGINT, Column, DataType, Schema

DAMAGED = [
    pytest.param(b"", id="empty"),
    pytest.param(b"{", id="no JSON"),
    pytest.param(b'"text"', id="no plan"),
    pytest.param(b'{"parts": [], "value": {"type": "VOID"}}', id="unknown type"),
    pytest.param(b'{"parts": [], "value": {"is": "Engine"}}', id="unknown class"),
    pytest.param(b'{"parts": [], "value": {"part": 3}}', id="no such part"),
    pytest.param(b'{"parts": [], "value": 7}', id="no view"),
    pytest.param(b"[" * 100_000, id="nested"),
]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[viewkeep.Database]:
    with viewkeep.make(tmp_path / "test.vk", durability="relaxed") as made:
        made.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, x BIGINT)")
        made.sql("CREATE VIEW good AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
        made.sql("CREATE VIEW bad AS SELECT x, SUM(k) AS s FROM t GROUP BY x")
        made.put("t", {"k": 1, "x": 5})
        catch_up(made.store)
        yield made


def damage(db: viewkeep.Database, body: bytes | None) -> None:
    """Put another record in the place of a view's definition, as a new process would find it."""
    key = f"definition/{newest_plan(db.store).generations['bad']}"
    assert db.store.meta.cas(key, db.store.meta.get(key), body)
    programs._cache.clear()
    programs._opened.clear()


def reopened(db: viewkeep.Database) -> viewkeep.Database:
    return viewkeep.open(db.url)


@pytest.mark.parametrize("body", [*DAMAGED, pytest.param(None, id="missing")])
def test_the_others_go_on(db: viewkeep.Database, body: bytes | None) -> None:
    damage(db, body)
    with reopened(db) as again:
        again.put("t", {"k": 2, "x": 5})
        catch_up(again.store)
        assert again.sql("SELECT n FROM good").one() == {"n": 2}
        (bad,) = [view for view in again.status().views if view.name == "bad"]
        assert bad.state == "failed"
        assert "cannot be read" in bad.problem
        for statement in ("SELECT * FROM bad", "CREATE VIEW w AS SELECT s FROM bad"):
            with pytest.raises(ViewFailed, match=r"view bad .* cannot be read.*Drop"):
                again.sql(statement)
        with pytest.raises(ViewFailed):
            again.get("bad", 5)
        with pytest.raises(CatalogError, match="exists already"):
            again.sql("CREATE VIEW bad AS SELECT k FROM t")


class Silent(WrappedStore):
    """A store that gives no definition while it does not answer."""

    answers = False

    def call(self, method: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if method == "meta.get" and args[0].startswith("definition/") and not self.answers:
            raise StoreError("no answer within 30 s")
        return act(*args, **options)


def test_a_store_that_does_not_answer_makes_no_view_unreadable(db: viewkeep.Database) -> None:
    """What is known of a plan is kept, so it must not be what was missing for a moment."""
    programs._cache.clear()
    programs._opened.clear()
    store = Silent(db.store)
    with pytest.raises(StoreError, match="no answer"):
        newest_plan(store)
    store.answers = True
    assert sorted(newest_plan(store).views) == ["bad", "good"]
    assert not newest_plan(store).unreadable


def test_it_is_dropped(db: viewkeep.Database) -> None:
    damage(db, b"{")
    with reopened(db) as again:
        again.sql("DROP VIEW good")
        again.sql("DROP VIEW bad")
        catch_up(again.store)
        assert newest_plan(again.store).numbers == {}
        assert again.status().views == ()


def test_it_is_replaced(db: viewkeep.Database) -> None:
    damage(db, b"{")
    with reopened(db) as again:
        again.sql("CREATE OR REPLACE VIEW bad AS SELECT x, MAX(k) AS s FROM t GROUP BY x")
        catch_up(again.store)
        assert again.sql("SELECT s FROM bad").one() == {"s": 1}


def test_what_does_not_read_back_is_not_stored(db: viewkeep.Database) -> None:
    source = Source("t", 1, Schema((Column("k", BIGINT), Column("x", DataType("VOID"))), ("k",)))
    view = View("v", "SELECT ...", Arrange(source, (KeyPart("k"),), ("x",)), (("x", "x"),))
    before = db.store.meta.scan("")
    with pytest.raises(Unsupported, match="view v cannot be stored"):
        save_definitions(db.store, [view])
    assert db.store.meta.scan("") == before


def test_a_definition_says_shared_parts_once(db: viewkeep.Database) -> None:
    joins = "SELECT a.x FROM t a LEFT JOIN t b ON a.x = b.x LEFT JOIN t c ON b.x = c.x"
    db.sql(f"CREATE VIEW v AS {joins}")
    body = db.store.meta.get(f"definition/{newest_plan(db.store).generations['v']}")
    assert body is not None
    parts = json.loads(body)["parts"]
    assert sum(part["is"] == "Source" for part in parts) == 1
