"""Partial views as users meet them: how they are made, read and refused, and what memory holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import viewkeep
from viewkeep.access.partial import PartialRelation
from viewkeep.access.reads import DatabaseReader, ReadPoint
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up
from viewkeep.errors import InvalidSetting, PartialKey, Unsupported

PAGE = """
    CREATE VIEW page AS SELECT s.id, s.title, COUNT(*) AS votes
    FROM stories s JOIN votes v ON v.story = s.id WHERE s.id = ? GROUP BY s.id, s.title
"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[viewkeep.Database]:
    with viewkeep.open(str(tmp_path / "db"), durability="relaxed") as made:
        made.sql("""
            CREATE TABLE stories (id BIGINT PRIMARY KEY, title STRING, author STRING);
            CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT);
        """)
        names = ["ada", "bob", None]
        made.put(
            "stories", [{"id": n, "title": f"t{n}", "author": names[n % 3]} for n in range(30)]
        )
        made.put("votes", [{"id": n, "story": n % 10} for n in range(50)])
        catch_up(made.store)
        yield made


def relation(db: viewkeep.Database, name: str = "page") -> PartialRelation:
    reader = DatabaseReader(db.store, db.epochs, db.url)
    found = reader.open(name, ReadPoint(reader.published()))
    assert isinstance(found, PartialRelation)
    return found


def kept(db: viewkeep.Database, name: str = "page") -> int:
    """How many rows the view has."""
    table = db.catalog.current().program.placements[name].table.number
    shards = range(db.store.state.shards)
    at = db.epochs.read().published.epoch
    return sum(len(db.store.state.scan(s, table, limit=1000, at=at).keys) for s in shards)


def test_a_key_is_computed_when_it_is_read_and_kept_from_the_next_epoch_on(
    db: viewkeep.Database,
) -> None:
    db.sql(PAGE)
    catch_up(db.store)
    assert kept(db) == 0
    rows = db.sql("SELECT title, votes FROM page WHERE id = 3").rows()
    assert rows == [{"title": "t3", "votes": 5}]
    assert db.scan("page", prefix=20).rows() == []
    assert kept(db) == 0
    catch_up(db.store)
    assert kept(db) == 1
    found = relation(db)
    at = db.epochs.read().published.epoch
    assert found.find(db.store, [(3, "t3"), (20, "t20")], at)[0] is not None
    assert found.misses == 0  # a key without rows is wanted too
    db.put("votes", {"id": 100, "story": 3})
    catch_up(db.store)
    assert db.get("page", (3, "t3")) == {"id": 3, "title": "t3", "votes": 6}
    assert kept(db) == 1


def test_reads_of_every_kind_give_what_the_full_view_gives(db: viewkeep.Database) -> None:
    db.sql("CREATE VIEW titles WITH (partial = 'author') AS SELECT author, id, title FROM stories")
    catch_up(db.store)
    for _ in range(2):  # missed, then kept
        assert db.get("titles", ("ada", 3)) == {"author": "ada", "id": 3, "title": "t3"}
        assert db.get_many("titles", [("bob", 1), ("bob", 2), ("ada", 0)])[1] is None
        assert len(db.scan("titles", prefix="bob")) == 10
        assert [r["id"] for r in db.scan("titles", prefix="bob", limit=2, reverse=True)] == [28, 25]
        first = db.scan("titles", prefix="ada", limit=4)
        rest = db.scan("titles", prefix="ada", limit=40, after=first.next)
        assert [r["id"] for r in [*first.rows(), *rest.rows()]] == list(range(0, 30, 3))
        assert len(db.scan("titles", prefix="ada", range=(10, 20))) == 3
        assert db.aggregate("titles", "count(*)", prefix=("ada",)) == {"count(*)": 10}
        assert len(db.scan("titles", prefix=(None,))) == 10  # NULL is a key like others
        query = "SELECT COUNT(*) AS n FROM titles WHERE author IN ('ada', 'bob', 'cy')"
        assert db.sql(query).one() == {"n": 20}
        assert db.get("titles", ("cy", 3), at="latest") is None
        with db.snapshot() as snapshot:
            assert snapshot.get("titles", ("ada", 3)) is not None
        catch_up(db.store)


def test_reads_without_the_key_are_refused(db: viewkeep.Database) -> None:
    db.sql(PAGE)
    catch_up(db.store)
    for read in (
        lambda: db.scan("page"),
        lambda: db.sql("SELECT * FROM page"),
        lambda: db.sql("SELECT COUNT(*) FROM page WHERE id > 3"),
        lambda: db.aggregate("page", "count(*)"),
        lambda: db.subscribe("page"),
    ):
        with pytest.raises(PartialKey, match=r"view page is partial by id: .* Read it by id"):
            read()


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story LIMIT 2", "LIM"),
        ("AS SELECT id FROM votes WHERE story = ?", "shows the columns .*Add story to SELECT"),
        ("AS SELECT id, story FROM votes WHERE story = ? OR id = 3", "a parameter of a view"),
        ("AS SELECT id, story FROM votes WHERE story > ?", "a parameter of a view"),
        ("AS SELECT id, ? AS x FROM votes", "a parameter of a view"),
        ("WITH (partial = 'n') AS SELECT COUNT(*) AS n FROM votes GROUP BY story", "does not lead"),
        ("WITH (partial = true) AS SELECT COUNT(*) AS n FROM votes", "one row"),
        ("WITH (partial = 'x') AS SELECT id FROM votes", "no column x"),
        ("WITH (partial = 3) AS SELECT id FROM votes", "partial is true or columns"),
        ("WITH (lazy = true) AS SELECT id FROM votes", "property is not supported"),
        ("WITH (partial = true) AS SELECT story FROM votes", "does not show the first column"),
    ],
)
def test_what_would_scan_is_refused(db: viewkeep.Database, sql: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        db.sql(f"CREATE VIEW v {sql}")


def test_views_over_partial_views_are_refused(db: viewkeep.Database) -> None:
    db.sql(PAGE)
    with pytest.raises(Unsupported, match="page is partial"):
        db.sql("CREATE VIEW v AS SELECT id FROM page")


def test_the_statement_makes_the_same_view_again(db: viewkeep.Database) -> None:
    db.sql(PAGE)
    db.sql("CREATE VIEW every WITH (partial = 'author') AS SELECT * FROM stories")
    before = db.catalog.current()
    for name in ("page", "every"):
        text = db.sql(f"SHOW CREATE VIEW {name}").one()["createtab_stmt"]
        db.sql(text.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))
        assert db.catalog.current().views[name].wanted == before.views[name].wanted
    tables = [db.sql(f"SHOW CREATE TABLE {name}").one() for name in ("stories", "votes")]
    program = "; ".join([*(one["createtab_stmt"] for one in tables), PAGE, text])
    assert not db.apply(program, prune=True, dry_run=True).pending


def test_explain_says_where_other_keys_end(db: viewkeep.Database) -> None:
    plan = db.explain(PAGE)
    assert plan.count("wanted keys of page (id)") >= 1
    assert "SEMI REVERSE-JOIN on story = id" in plan


def test_a_dropped_view_leaves_no_keys(db: viewkeep.Database) -> None:
    db.sql(PAGE)
    catch_up(db.store)
    db.scan("page", prefix=3)
    catch_up(db.store)
    wanted = db.catalog.current().views["page"].wanted
    assert wanted is not None
    db.sql("DROP VIEW page")
    catch_up(db.store)
    while housekeep(db.store):
        pass
    assert not db.store.tables.scan(0, wanted.number, limit=1).keys


def test_keys_are_kept_when_the_view_is_replaced(db: viewkeep.Database) -> None:
    db.sql(PAGE)
    catch_up(db.store)
    db.scan("page", prefix=3)
    catch_up(db.store)
    db.sql(PAGE.replace("CREATE", "CREATE OR REPLACE").replace("COUNT(*)", "MAX(v.id)"))
    catch_up(db.store)
    assert kept(db) == 1
    assert db.scan("page", prefix=3).one()["votes"] == 43


# -- memory ---------------------------------------------------------------------------------------


def settle(db: viewkeep.Database) -> None:
    """Epochs and housekeeping until neither has anything to do."""
    for _ in range(4):
        catch_up(db.store)
        while housekeep(db.store):
            pass
    catch_up(db.store)


def test_state_is_brought_below_its_bound(db: viewkeep.Database) -> None:
    db.sql(PAGE)
    catch_up(db.store)
    for key in range(10):
        db.scan("page", prefix=key)
        catch_up(db.store)
    assert kept(db) == 10
    whole = db.status()
    assert whole.evictable_bytes > 0
    bound = whole.essential_bytes + whole.evictable_bytes // 2
    db.limit_memory(bound)
    settle(db)
    status = db.status()
    assert status.memory_bound == bound
    assert status.essential_bytes == whole.essential_bytes
    assert status.essential_bytes + status.evictable_bytes <= bound
    found = relation(db)
    at = db.epochs.read().published.epoch
    held = [
        key for key in range(10) if found.partial.are_wanted(db.store, [found._key((key,))], at)[0]
    ]
    assert held == list(range(10 - len(held), 10))  # those read longest ago have gone
    assert 0 < len(held) < 10
    assert [db.scan("page", prefix=key).one()["votes"] for key in range(10)] == [5] * 10
    db.limit_memory(None)
    settle(db)
    assert kept(db) == 10


def test_a_bound_below_what_must_stay_is_refused(db: viewkeep.Database) -> None:
    db.sql("CREATE VIEW counts AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story")
    catch_up(db.store)
    held = db.status().essential_bytes
    with pytest.raises(InvalidSetting, match=f"holds {held:,} bytes, so .* cannot be {held - 1:,}"):
        db.limit_memory(held - 1)
    db.limit_memory(held)
    with pytest.raises(InvalidSetting, match="is no size"):
        db.limit_memory("lots")


def test_uses_are_noted_while_there_is_a_bound(
    db: viewkeep.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from viewkeep.engine import wanted

    monkeypatch.setattr(wanted, "_USES_SECONDS", 0.0)
    db.sql(PAGE)
    catch_up(db.store)
    db.scan("page", prefix=1)
    catch_up(db.store)
    found = relation(db)
    table = wanted.WantedTable(found.partial.wanted)
    before = {one.used for one in table.all(db.store)}
    db.put("votes", {"id": 200, "story": 9})
    catch_up(db.store)
    db.scan("page", prefix=1)
    assert {one.used for one in table.all(db.store)} == before
    db.limit_memory("1GB")
    db.scan("page", prefix=1)
    assert {one.used for one in table.all(db.store)} == {db.epochs.read().published.epoch}
    rows: list[dict[str, Any]] = db.scan("page", prefix=1).rows()
    catch_up(db.store)
    assert db.scan("page", prefix=1).rows() == rows
