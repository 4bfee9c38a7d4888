"""ALTER TABLE: old rows and old log records read rightly, views go on, and no row is rewritten."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import viewkeep
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up, run_epoch
from viewkeep.engine.programs import newest_plan
from viewkeep.errors import CatalogError, SqlError, TypeMismatch, Unsupported

TABLE = "CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, stars INT)"
SCORES = "CREATE VIEW scores AS SELECT story, SUM(stars) AS s, COUNT(*) AS n FROM votes GROUP BY 1"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[viewkeep.Database]:
    with viewkeep.make(tmp_path / "test.vk", durability="relaxed") as made:
        made.sql(f"{TABLE}; {SCORES}")
        made.put("votes", [{"id": i, "story": i % 3, "stars": i} for i in range(9)])
        catch_up(made.store)
        yield made


def test_add_column(db: viewkeep.Database) -> None:
    """Rows that are there have the default, also where they are overwritten in part."""
    before = newest_plan(db.store).program.placements["scores"].table.number
    db.sql("ALTER TABLE votes ADD COLUMN note STRING DEFAULT 'none', ADD COLUMN day DATE")
    assert db.get("votes", 1) == {"id": 1, "story": 1, "stars": 1, "note": "none", "day": None}
    db.put("votes", {"id": 1, "stars": 5})
    db.put("votes", {"id": 20, "story": 1, "stars": 1})
    db.sql("INSERT INTO votes (id, note) VALUES (21, 'x')")
    db.sql("INSERT INTO votes (id) VALUES (22)")
    db.sql("INSERT OR REPLACE INTO votes (id, story) VALUES (2, 7)")
    db.put("votes", {"id": 23, "note": None})
    notes = {row["id"]: row["note"] for row in db.scan("votes").rows()}
    assert notes == {**dict.fromkeys(range(9), "none"), 20: "none", 21: "x", 22: "none", 23: None}
    assert db.sql("SELECT COUNT(*) AS n FROM votes WHERE note = 'none'").one() == {"n": 11}
    db.sql("CREATE VIEW notes AS SELECT note, COUNT(*) AS n, SUM(stars) AS s FROM votes GROUP BY 1")
    catch_up(db.store)
    assert newest_plan(db.store).program.placements["scores"].table.number == before
    assert db.get("scores", 1) == {"story": 1, "s": 5 + 4 + 7 + 1, "n": 4}
    assert db.get("notes", "none")["n"] == 11  # type: ignore[index]


def test_nothing_is_rewritten(db: viewkeep.Database) -> None:
    """The bytes of a row stay what they are until it is written."""
    number = newest_plan(db.store).tables["votes"].number
    chunks = [db.store.tables.scan(part, number, limit=99).rows for part in range(2)]
    head = db.store.log.head()
    db.sql("ALTER TABLE votes ADD COLUMN note STRING DEFAULT 'x'")
    db.sql("ALTER TABLE votes ALTER COLUMN note DROP DEFAULT")
    db.sql("ALTER TABLE votes RENAME COLUMN note TO remark")
    assert [db.store.tables.scan(part, number, limit=99).rows for part in range(2)] == chunks
    assert db.store.log.head() == head
    assert db.get("votes", 1)["remark"] == "x"  # type: ignore[index]


def test_log_records_of_several_versions_in_one_epoch(db: viewkeep.Database) -> None:
    db.put("votes", {"id": 30, "story": 9, "stars": 1})
    db.sql("ALTER TABLE votes ADD COLUMN note STRING")
    db.put("votes", {"id": 31, "story": 9, "stars": 2, "note": "a"})
    db.put("votes", {"id": 30, "stars": 5})
    db.sql("ALTER TABLE votes DROP COLUMN note")
    db.put("votes", {"id": 32, "story": 9, "stars": 3})
    catch_up(db.store)
    assert db.get("scores", 9) == {"story": 9, "s": 10, "n": 3}


def test_a_view_that_is_being_replaced_keeps_its_columns(db: viewkeep.Database) -> None:
    """The old one answers until the new one is loaded, and its rows must stay right."""
    db.sql("CREATE OR REPLACE VIEW scores AS SELECT story, COUNT(*) AS n FROM votes GROUP BY 1")
    for change in ("DROP COLUMN stars", "ALTER COLUMN stars TYPE BIGINT"):
        with pytest.raises(CatalogError, match="scores: it needs stars"):
            db.sql(f"ALTER TABLE votes {change}")
    db.put("votes", {"id": 50, "story": 1, "stars": 2})
    catch_up(db.store)
    db.sql("ALTER TABLE votes DROP COLUMN stars")
    assert db.get("scores", 1) == {"story": 1, "n": 4}


def test_drop_column_is_refused_while_a_view_needs_it(db: viewkeep.Database) -> None:
    db.sql("CREATE VIEW best AS SELECT story, s FROM scores WHERE s > 3")
    with pytest.raises(CatalogError, match=r"read by .*scores.*needs stars.*CASCADE to drop them"):
        db.sql("ALTER TABLE votes DROP COLUMN stars")
    db.sql("ALTER TABLE votes ADD COLUMN note STRING")
    db.sql("CREATE VIEW counts AS SELECT COUNT(*) AS n FROM (SELECT id, note FROM votes)")
    with pytest.raises(CatalogError, match=r"counts.*note"):
        db.sql("ALTER TABLE votes DROP COLUMN note")
    db.sql("ALTER TABLE votes DROP COLUMN stars CASCADE")
    assert db.views() == ["counts"]
    catch_up(db.store)
    assert db.get("votes", 1) == {"id": 1, "story": 1, "note": None}
    db.sql("ALTER TABLE votes DROP COLUMN IF EXISTS stars")
    db.sql("ALTER TABLE votes ADD COLUMN stars STRING")
    assert db.get("votes", 1) == {"id": 1, "story": 1, "note": None, "stars": None}


def test_rename(db: viewkeep.Database) -> None:
    with pytest.raises(CatalogError, match="votes is read by scores"):
        db.sql("ALTER TABLE votes RENAME TO ballots")
    with pytest.raises(CatalogError, match="scores: it needs stars"):
        db.sql("ALTER TABLE votes RENAME COLUMN stars TO points")
    db.sql("DROP VIEW scores")
    db.sql("ALTER TABLE votes RENAME COLUMN stars TO points")
    db.sql("ALTER TABLE votes RENAME COLUMN id TO vote")
    db.sql("ALTER TABLE votes RENAME TO ballots")
    assert db.tables() == ["ballots"]
    assert db.get("ballots", 1) == {"vote": 1, "story": 1, "points": 1}
    db.sql("CREATE VIEW sums AS SELECT story, SUM(points) AS s FROM ballots GROUP BY story")
    db.put("ballots", {"vote": 1, "points": 10})
    catch_up(db.store)
    assert db.get("sums", 1) == {"story": 1, "s": 21}


@pytest.mark.parametrize(
    ("old", "new", "value", "expected"),
    [
        ("INT", "BIGINT", -7, -7),
        ("INT", "DOUBLE", 3, 3.0),
        ("INT", "DECIMAL(14,2)", 3, Decimal("3.00")),
        ("BIGINT", "DECIMAL(20,1)", -(1 << 62), Decimal(-(1 << 62))),
        ("DECIMAL(4,1)", "DECIMAL(9,3)", Decimal("-12.5"), Decimal("-12.500")),
        ("DATE", "TIMESTAMP", dt.date(1969, 12, 30), dt.datetime(1969, 12, 30, tzinfo=dt.UTC)),
    ],
)
def test_wider_types(db: viewkeep.Database, old: str, new: str, value: Any, expected: Any) -> None:
    db.sql(f"CREATE TABLE t (k INT PRIMARY KEY, v {old}, w {old})")
    rows = [{"k": k, "v": value if k % 2 else None, "w": value} for k in range(60)]
    db.put("t", rows)
    db.sql(f"ALTER TABLE t ALTER COLUMN v TYPE {new}")
    db.put("t", {"k": 60, "v": expected, "w": value})
    found = db.scan("t").rows()
    wanted = [expected if k % 2 else None for k in range(60)] + [expected]
    assert [_aware(row["v"]) for row in found] == wanted
    assert [row["w"] for row in found] == [value] * 61
    assert _aware(db.get("t", 1)["v"]) == expected  # type: ignore[index]
    db.sql("CREATE VIEW whole AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    catch_up(db.store)
    assert {_aware(row["v"]): row["n"] for row in db.scan("whole").rows()} == {
        None: 30,
        expected: 31,
    }


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) else value


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("ALTER TABLE votes ADD COLUMN stars INT", CatalogError, "has a column stars already"),
        ("ALTER TABLE votes ADD COLUMN a INT DEFAULT 'x'", TypeMismatch, "cannot hold"),
        ("ALTER TABLE votes ADD COLUMN a INT DEFAULT b", SqlError, "constant"),
        ("ALTER TABLE votes ADD COLUMN a INT NOT NULL", Unsupported, "NOT NULL"),
        ("ALTER TABLE votes ADD COLUMN a INT PRIMARY KEY", Unsupported, "key stays what it is"),
        ("ALTER TABLE votes DROP COLUMN id", CatalogError, "id is a key column"),
        ("ALTER TABLE votes DROP COLUMN nothing", CatalogError, "has no column nothing"),
        ("ALTER TABLE votes RENAME COLUMN id TO stars", CatalogError, "has a column stars already"),
        ("ALTER TABLE votes ALTER COLUMN story TYPE INT", CatalogError, "does not hold all of its"),
        ("ALTER TABLE votes ALTER COLUMN id TYPE DOUBLE", CatalogError, "id is a key column"),
        ("ALTER TABLE votes ALTER COLUMN stars TYPE BIGINT", CatalogError, "scores: it needs star"),
        ("ALTER TABLE votes ALTER COLUMN zip SET DEFAULT 1", CatalogError, "has no column zip"),
        ("ALTER TABLE scores ADD COLUMN a INT", Unsupported, "scores is a view"),
        ("ALTER TABLE nowhere ADD COLUMN a INT", SqlError, "nowhere"),
        ("ALTER VIEW scores RENAME TO x", SqlError, "ALTER"),
        ("ALTER TABLE IF EXISTS votes ADD COLUMN a INT", Unsupported, "IF EXISTS"),
        ("ALTER TABLE votes ADD COLUMN a INT AFTER id", Unsupported, "after the others"),
        ("ALTER TABLE votes ADD COLUMN a INT FIRST", Unsupported, "after the others"),
        ("DROP TABLE votes CASCADE", Unsupported, "CASCADE is not taken"),
    ],
)
def test_refused(db: viewkeep.Database, text: str, error: type[Exception], message: str) -> None:
    before = newest_plan(db.store)
    with pytest.raises(error, match=message or None):
        db.sql(text)
    assert newest_plan(db.store) == before


def test_a_view_whose_sql_would_mean_something_else_refuses_a_column(db: viewkeep.Database) -> None:
    """A name that an inner query takes from outside would be the new column's."""
    db.sql("CREATE TABLE stories (story BIGINT PRIMARY KEY, topic STRING)")
    db.sql(
        "CREATE VIEW voted AS SELECT story FROM stories s "
        "WHERE EXISTS (SELECT 1 FROM votes v WHERE v.story = s.story AND topic = 'a')"
    )
    with pytest.raises(CatalogError, match=r"voted.*(something else|ambiguous)"):
        db.sql("ALTER TABLE votes ADD COLUMN topic STRING")
    db.sql("ALTER TABLE votes ADD COLUMN topics STRING")


def test_views_of_all_columns_keep_those_that_there_were(db: viewkeep.Database) -> None:
    """Also in a backup, which creates them again."""
    db.sql("CREATE VIEW whole AS SELECT * FROM votes")
    catch_up(db.store)
    db.sql("ALTER TABLE votes ADD COLUMN note STRING DEFAULT 'a'")
    db.put("votes", {"id": 1, "stars": 7})
    catch_up(db.store)
    assert db.get("whole", 1) == {"id": 1, "story": 1, "stars": 7}
    text = db.sql("SHOW CREATE VIEW whole").one()["createtab_stmt"]
    table = db.sql("SHOW CREATE TABLE votes").one()["createtab_stmt"]
    assert "`note` STRING DEFAULT 'a'" in table
    with viewkeep.open(":memory:") as fresh:
        fresh.sql(f"{table}; {text}")
        fresh.put("votes", db.scan("votes").rows())
        fresh.wait()
        assert fresh.scan("whole").rows() == db.scan("whole").rows()


def test_who_read_the_catalog_before_reads_rows_written_after(db: viewkeep.Database) -> None:
    """And does not take a column away from a row by a put of others."""
    old = db._table("votes")
    db.sql("ALTER TABLE votes ADD COLUMN note STRING")
    db.put("votes", {"id": 1, "note": "kept"})
    (row,) = db.store.tables.get(old.number, [old.encode_key(1)])
    assert row is not None
    assert old.as_dict(row) == {"id": 1, "story": 1, "stars": 1}
    assert old.frame([row] * 50).rows() == [(1, 1, 1)] * 50
    with pytest.raises(viewkeep.errors.Conflict, match="columns were changed just now"):
        db.store.tables.write(old.puts({"id": 1, "stars": 9}))
    assert db.get("votes", 1) == {"id": 1, "story": 1, "stars": 1, "note": "kept"}


class Model:
    """A table under random changes, as plain Python, with views that are made and dropped."""

    def __init__(self, path: Path, seed: int):
        self.path, self.random = path, random.Random(seed)
        self.db = viewkeep.make(path, durability="relaxed")
        self.db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, a INT, b STRING)")
        self.types = {"a": "INT", "b": "STRING"}
        self.defaults: dict[str, Any] = {}
        self.rows: dict[int, dict[str, Any]] = {}
        self.views: dict[str, str] = {}
        self.made = 0

    def value(self, type: str) -> Any:
        number = self.random.randrange(4)
        given = {"STRING": f"s{number}", "DOUBLE": float(number), "DECIMAL(14,2)": Decimal(number)}
        return None if self.random.random() < 0.2 else given.get(type, number)

    def act(self) -> None:
        kinds = [
            *("put",) * 6,
            *("delete", "epoch", "epoch", "epoch", "view", "view"),
            *("add", "drop", "rename", "widen", "default", "unview", "reopen", "crash"),
        ]
        getattr(self, self.random.choice(kinds))()

    def put(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            key = self.random.randrange(12)
            given = {n: self.value(t) for n, t in self.types.items() if self.random.random() < 0.6}
            self.db.put("t", {"k": key, **given})
            known = self.rows.get(key) or {n: self.defaults.get(n) for n in self.types}
            self.rows[key] = {**known, **given}

    def delete(self) -> None:
        key = self.random.randrange(12)
        self.db.delete("t", key)
        self.rows.pop(key, None)

    def alter(self, text: str, column: str | None = None) -> bool:
        """Whether a change was done: it is refused if and only if a view reads the column."""
        used = [n for n, sql in self.views.items() if column is not None and f"{column} " in sql]
        if used:
            with pytest.raises(CatalogError, match="could not go on"):
                self.db.sql(f"ALTER TABLE t {text}")
            return False
        self.db.sql(f"ALTER TABLE t {text}")
        return True

    def add(self) -> None:
        self.made += 1
        name, type = f"c{self.made}", self.random.choice(["INT", "STRING", "DOUBLE"])
        value = self.value(type)
        default = "" if value is None else f" DEFAULT {value!r}{'D' * (type == 'DOUBLE')}"
        assert self.alter(f"ADD COLUMN {name} {type}{default}")
        self.types[name] = type
        if value is not None:
            self.defaults[name] = value
        for row in self.rows.values():
            row[name] = value

    def drop(self) -> None:
        if self.types and self.alter(f"DROP COLUMN {(name := self.pick())}", name):
            del self.types[name]
            self.defaults.pop(name, None)
            for row in self.rows.values():
                del row[name]

    def pick(self) -> str:
        return self.random.choice(sorted(self.types))

    def rename(self) -> None:
        self.made += 1
        to = f"c{self.made}"
        if self.types and self.alter(f"RENAME COLUMN {(name := self.pick())} TO {to}", name):
            self.types = {to if n == name else n: t for n, t in self.types.items()}
            self.defaults = {to if n == name else n: v for n, v in self.defaults.items()}
            for key, row in self.rows.items():
                self.rows[key] = {to if n == name else n: v for n, v in row.items()}

    def widen(self) -> None:
        names = [name for name, type in self.types.items() if type == "INT"]
        if names:
            name, type = self.random.choice(names), self.random.choice(["BIGINT", "DECIMAL(14,2)"])
            if self.alter(f"ALTER COLUMN {name} TYPE {type}", name):
                self.types[name] = type

    def default(self) -> None:
        if self.types:
            name = self.pick()
            value = self.value(self.types[name])
            text = {"DOUBLE": f"{value}D"}.get(self.types[name], f"{str(value)!r}")
            if self.types[name] not in ("DOUBLE", "STRING"):
                text = str(value)
            how = "DROP DEFAULT" if value is None else f"SET DEFAULT {text}"
            assert self.alter(f"ALTER COLUMN {name} {how}")
            self.defaults.pop(name, None)
            if value is not None:
                self.defaults[name] = value

    def view(self) -> None:
        if not self.types or len(self.views) > 4:
            return
        self.made += 1
        name, other = self.pick(), self.pick()
        sql = self.random.choice(
            [
                f"SELECT {name} AS g, COUNT({other} ) AS n FROM t GROUP BY {name} ",
                f"SELECT k, {name} AS x, {other} AS y FROM t WHERE {name} IS NOT NULL",
                f"SELECT l.k AS k, l.{name} AS x, r.{other} AS y FROM t l JOIN t r ON l.k = r.k",
                f"SELECT {name} AS x, k FROM t ORDER BY x DESC, k LIMIT 3",
                f"SELECT MAX({name} ) AS m, COUNT(DISTINCT {other} ) AS d FROM t",
            ]
        )
        self.views[f"v{self.made}"] = sql
        self.db.sql(f"CREATE VIEW v{self.made} AS {sql}")

    def unview(self) -> None:
        if self.views:
            name = self.random.choice(sorted(self.views))
            del self.views[name]
            self.db.sql(f"DROP VIEW {name}")

    def epoch(self, crash: bool = False) -> None:
        epochs = Epochs(self.db.store)
        lease = epochs.acquire()
        limits = Limits(operations=self.random.randrange(1, 9), chunk=self.random.choice([2, 50]))
        if (opened := epochs.open_next(lease.term, limits)) is not None:
            reports = run_epoch(self.db.store, opened)
            if not crash:
                epochs.publish(lease.term, opened, reports)
                housekeep(self.db.store)
        epochs.release(lease)

    def crash(self) -> None:
        """An epoch that is run, not published, and run again after more has happened."""
        self.epoch(crash=True)

    def reopen(self) -> None:
        self.db.close()
        self.db = viewkeep.open(self.path)

    def check(self) -> None:
        found = {row.pop("k"): row for row in self.db.scan("t").rows()}
        assert found == self.rows
        for key in self.rows:
            assert self.db.get("t", key) == {"k": key, **self.rows[key]}

    def finish(self) -> None:
        self.check()
        catch_up(self.db.store)
        columns = ", ".join(f"{name} {type}" for name, type in self.types.items())
        with viewkeep.open(":memory:") as oracle:
            oracle.sql(f"CREATE TABLE t (k BIGINT PRIMARY KEY{', ' * bool(columns)}{columns})")
            oracle.put("t", [{"k": key, **row} for key, row in self.rows.items()])
            for name, sql in self.views.items():
                oracle.sql(f"CREATE VIEW {name} AS {sql}")
            oracle.wait()
            for name, sql in self.views.items():
                assert self.db.scan(name).rows() == oracle.scan(name).rows(), (name, sql)
        self.db.close()


@pytest.mark.parametrize("seed", range(12))
def test_random_changes_writes_epochs_and_crashes(tmp_path: Path, seed: int) -> None:
    model = Model(tmp_path / "test.vk", seed)
    for _ in range(60):
        model.act()
        if model.random.random() < 0.2:
            model.check()
    model.finish()


@pytest.mark.usefixtures("columns_lane")
@pytest.mark.parametrize("seed", range(12, 18))
def test_random_changes_in_the_columns_lane(tmp_path: Path, seed: int) -> None:
    test_random_changes_writes_epochs_and_crashes(tmp_path, seed)
