"""Awkward corners: plan changes while loading, sums out of range, long keys, races with readers."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import viewkeep
from viewkeep.access.reads import DatabaseReader
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.housekeeping import housekeep
from viewkeep.engine.local import catch_up
from viewkeep.engine.programs import _cache, _opened, load_plan
from viewkeep.errors import CatalogError, EpochGone
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.nodes import CreateView
from viewkeep.stores import create_store
from viewkeep.stores.contract import Chunk, Store

from .history import FOLDER, History, keys, rows
from .test_histories import STACKED, VIEWS, created, one_epoch, phases, slow


@pytest.fixture
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        made = create_store(str(Path(folder) / "db"), durability="relaxed")
        yield made
        made.close()


@pytest.fixture
def history(store: Store) -> History:
    return History(store)


def settle(history: History) -> None:
    catch_up(history.store)
    history.check()


def put(history: History, **columns: list[Any]) -> None:
    """Rows with ids from 0 on, one per value."""
    count = len(next(iter(columns.values())))
    history.put(
        [
            {"id": i, "part": 0, "h": 1, **{name: values[i] for name, values in columns.items()}}
            for i in range(count)
        ]
    )


# -- plan changes at any time ----------------------------------------------------------------

POOL = [*STACKED, *created([VIEWS[i] for i in (0, 2, 5, 7, 9, 10, 12, 15)])]
NAMES = [text.split()[2] for text in POOL]
changes = st.one_of(
    st.tuples(st.just("create"), st.integers(0, len(POOL) - 1)),
    st.tuples(st.just("drop"), st.integers(0, len(POOL) - 1)),
    st.tuples(st.just("rebuild"), st.integers(0, len(POOL) - 1)),
    st.tuples(st.just("put"), st.lists(rows(), min_size=1, max_size=5)),
    st.tuples(st.just("delete"), st.lists(keys, min_size=1, max_size=3)),
    st.tuples(st.just("epoch"), st.integers(1, 6)),
    st.tuples(st.just("epoch"), st.integers(1, 6)),
)


@settings(max_examples=150, deadline=None, suppress_health_check=slow, phases=phases)
@given(st.lists(changes, min_size=5, max_size=30), st.integers(0, 2**32))
def test_views_come_and_go_while_others_load(steps: list[tuple[str, Any]], seed: int) -> None:
    random = Random(seed)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        try:
            model = History(store)
            model.create_view(POOL[0])
            epochs = Epochs(store)
            term = epochs.acquire().term
            for kind, detail in steps:
                # A view may not exist, exist already, or be read by another one.
                with suppress(CatalogError, viewkeep.ViewkeepError):
                    if kind == "create":
                        model.create_view(POOL[detail])
                    elif kind == "drop":
                        model.catalog.drop_view(NAMES[detail])
                    elif kind == "rebuild":
                        model.catalog.rebuild_view(NAMES[detail])
                if kind == "put":
                    model.put(detail)
                elif kind == "delete":
                    model.delete(detail)
                elif kind == "epoch":
                    one_epoch(model, epochs, term, Limits(operations=detail, chunk=1), random)
            while one_epoch(model, epochs, term, Limits(chunk=2), random):
                pass
            assert all(epochs.ready(name) for name in model.catalog.current().views)
        finally:
            store.close()


def test_a_view_over_a_table_dropped_meanwhile_is_refused(history: History) -> None:
    text = "CREATE VIEW v AS SELECT g, COUNT(*) AS n FROM items GROUP BY g"
    statement = analyse(parse(text)[0], history.catalog.resolve)
    assert isinstance(statement, CreateView)
    history.catalog.drop_table("items")
    with pytest.raises(CatalogError, match="was dropped or replaced meanwhile"):
        history.catalog.create_view(statement.view)
    history.catalog.create_table(
        "items", history.tables["items"].schema
    )  # another table of that name
    with pytest.raises(CatalogError, match="was dropped or replaced meanwhile"):
        history.catalog.create_view(statement.view)


def test_a_view_over_a_view_replaced_meanwhile_is_refused(history: History) -> None:
    history.create_view("CREATE VIEW inner_one AS SELECT id, x FROM items")
    basis = history.catalog.current()
    text = "CREATE VIEW v AS SELECT COUNT(*) AS n FROM inner_one"
    statement = analyse(parse(text)[0], history.catalog.resolve)
    assert isinstance(statement, CreateView)
    history.catalog.drop_view("inner_one")
    history.create_view("CREATE VIEW inner_one AS SELECT id, x FROM items WHERE x > 0")
    with pytest.raises(CatalogError, match="was dropped or replaced meanwhile"):
        history.catalog.create_view(statement.view, basis=basis)


# -- aggregates ------------------------------------------------------------------------------


def test_expressions_over_aggregates_without_groups(history: History) -> None:
    history.create_view("CREATE VIEW a AS SELECT COUNT(*) + 1 AS n, MAX(x) - 1 AS w FROM items")
    history.create_view("CREATE VIEW b AS SELECT MAX(x) AS n FROM items HAVING COUNT(*) > 1")
    settle(history)  # one row of no rows
    put(history, x=[4, 5, 9])
    settle(history)
    history.create_view("CREATE VIEW late AS SELECT COUNT(*) + 2 AS n FROM items")
    history.create_view("CREATE VIEW later AS SELECT n + 1 AS m FROM late")
    settle(history)
    history.delete([(0, 0), (1, 0), (2, 0)])
    settle(history)


def test_a_sum_of_doubles_leaves_the_range_and_returns(history: History) -> None:
    history.create_view("CREATE VIEW v AS SELECT h, SUM(d) AS s, AVG(d) AS a FROM items GROUP BY h")
    put(history, d=[1.7e308, 1.7e308, 1.7e308, -1e300])
    catch_up(history.store)
    for i in range(10, 16):  # through both ends of the range
        history.put([{"id": i, "part": 0, "h": 1, "d": -1.7e308}])
        catch_up(history.store)
    history.delete([(i, 0) for i in (0, 1, *range(10, 16))])
    settle(history)


def test_averages_of_bigint_do_not_wrap(history: History) -> None:
    history.create_view(
        "CREATE VIEW v AS SELECT h, AVG(x) AS a, COUNT(x) AS n FROM items GROUP BY h"
    )
    history.create_view("CREATE VIEW w AS SELECT AVG(DISTINCT x) AS a FROM items")
    put(history, x=[9 * 10**18, 8 * 10**18, 8 * 10**18, None])
    settle(history)
    put(history, x=[-9 * 10**18, -8 * 10**18, -8 * 10**18, -7])
    settle(history)
    put(history, x=[1, 2, 2, None])
    settle(history)


def test_sums_of_bigint_wrap_and_return(history: History) -> None:
    history.create_view("CREATE VIEW v AS SELECT h, AVG(x) AS a, SUM(x) AS s FROM items GROUP BY h")
    put(history, x=[2**62, 2**62, -1])
    catch_up(history.store)
    reader = DatabaseReader(history.store, Epochs(history.store), "")
    assert reader.get("v", 1)["s"] == 2**63 - 1  # type: ignore[index]
    put(history, x=[2**62, 5, -1])
    settle(history)


def test_sums_of_wide_decimals_are_null_out_of_range_and_return() -> None:
    with (
        tempfile.TemporaryDirectory(dir=FOLDER) as folder,
        viewkeep.open(str(Path(folder) / "db")) as db,
    ):
        db.sql(
            "CREATE TABLE t (k INT, m DECIMAL(38,2), PRIMARY KEY (k));"
            "CREATE VIEW v AS SELECT SUM(m) AS s, AVG(m) AS a, SUM(DISTINCT m) AS d FROM t"
        )
        big = Decimal(9 * 10**35)
        for k in range(4):  # one epoch each
            db.put("t", {"k": k, "m": big})
            catch_up(db.store)
            assert db.get("v", ())["s"] == (big if k == 0 else None)  # type: ignore[index]
            assert db.get("v", ())["d"] == big  # type: ignore[index]
        db.put("t", [{"k": k, "m": -big} for k in range(4, 7)])
        catch_up(db.store)
        assert db.get("v", ()) == {"s": big, "a": None, "d": 0}
        for k in range(7):
            db.put("t", {"k": k, "m": Decimal("-0.05") * k})
        catch_up(db.store)
        assert db.get("v", ()) == {
                "s": Decimal("-1.05"), "a": Decimal("-0.15"), "d": Decimal("-1.05"),
            }  # fmt: skip


@pytest.mark.parametrize("tail", range(6))
def test_extremes_among_keys_cut_and_not_cut(history: History, tail: int) -> None:
    """Keys of 480 to 495 bytes lie among those that were cut after 480, in no order of values."""
    history.create_view("CREATE VIEW v AS SELECT MIN(g) AS lo, MAX(g) AS hi FROM items")
    same = "b" * 479
    longer = [same + "a" * 100 + str(tail), same + "zzz" + str(tail) * 90]
    put(history, g=["a", "c", same + "z" * 5, same + "b", *longer])
    settle(history)
    history.delete([(0, 0), (1, 0)])
    settle(history)


def test_a_computed_minus_zero_is_taken_back_as_it_came(history: History) -> None:
    """-0.0 is stored as 0.0, so what stands on the aggregate must be given 0.0 as well."""
    history.create_view("CREATE VIEW a AS SELECT h, MIN(d * -1) AS e FROM items GROUP BY h")
    history.create_view("CREATE VIEW b AS SELECT d * -1 AS e, COUNT(*) AS n FROM items GROUP BY e")
    for name in "ab":
        history.create_view(
            f"CREATE VIEW on_{name} AS SELECT CAST(e AS STRING) AS t, COUNT(*) AS n FROM {name} "
            "GROUP BY CAST(e AS STRING)"
        )
    for value in (0.0, 2.0, 0.0, -0.0, 3.0):
        put(history, d=[value, 2.0])
        catch_up(history.store)
    settle(history)
    history.delete([(0, 0), (1, 0)])
    settle(history)


def test_groups_with_keys_of_every_length(history: History) -> None:
    history.create_view(
        "CREATE VIEW a AS SELECT g, MIN(x) AS lo, MAX(raw) AS r, COUNT(DISTINCT x) AS n FROM items "
        "GROUP BY g"
    )
    history.create_view("CREATE VIEW b AS SELECT n, g FROM a ORDER BY g DESC, n DESC")
    lengths = (*range(220, 242, 3), *range(474, 498, 3), 600)
    texts = ["q" * length + tail for length in lengths for tail in ("", "a", "b")]
    history.put(
        [
            {"id": i, "part": part, "g": text, "x": i * part, "raw": b"\xff" * (i * 7)}
            for i, text in enumerate(texts)
            for part in (0, 1)
        ]
    )
    settle(history)
    reader = DatabaseReader(history.store, Epochs(history.store), "")
    for text in texts:
        row = reader.get("a", text)
        assert row is not None
        assert row["g"] == text
        assert reader.get("b", (text, row["n"])) == {"g": text, "n": row["n"]}
    history.delete([(i, 0) for i in range(0, len(texts), 2)])
    settle(history)
    history.delete([(i, 1) for i in range(0, len(texts), 3)])
    settle(history)


def test_prefixes_and_ranges_of_descending_keys(history: History) -> None:
    history.create_view("CREATE VIEW v AS SELECT d, g, id FROM items ORDER BY d DESC, g DESC, id")
    numbers = [None, 0.0, -0.0, float("nan"), float("inf"), -1.5]
    texts = [None, "", "a", "ab", "a\x00", "b", "\U0010ffff"]
    pairs = list(itertools.product(numbers, texts))
    put(history, d=[d for d, _ in pairs], g=[g for _, g in pairs])
    settle(history)
    reader = DatabaseReader(history.store, Epochs(history.store), "")
    whole = list(reader.scan("v"))
    for d, g in pairs:
        of_d = [row for row in whole if repr(row["d"]) == repr(d if d is None else d + 0.0)]
        place = next(i for i, row in enumerate(of_d) if row["g"] == g)
        of_g = [row for row in of_d if row["g"] == g]
        assert repr(list(reader.scan("v", prefix=(d,)))) == repr(of_d)
        assert repr(list(reader.scan("v", prefix=(d, g)))) == repr(of_g)
        assert repr(list(reader.scan("v", prefix=(d,), range=((g,), None)))) == repr(of_d[place:])
        found = reader.scan("v", prefix=(d,), range=(None, (g,)), reverse=True, limit=3)
        assert repr(list(found)) == repr(of_d[:place][::-1][:3])


# -- readers and housekeeping ----------------------------------------------------------------


def test_a_pin_renewed_just_in_time_stays(history: History, monkeypatch: Any) -> None:
    epochs, store = Epochs(history.store), history.store
    pin = epochs.pin(ttl=-1.0)  # expired, and not yet dropped by anybody
    scan = store.meta.scan

    def renewed_after(prefix: str) -> list[tuple[str, bytes]]:
        found = scan(prefix)
        Epochs(store).renew_pin(pin, 60.0)
        return found

    monkeypatch.setattr(store.meta, "scan", renewed_after)
    assert [kept.id for kept in epochs.pins()] == [pin.id]
    monkeypatch.undo()
    assert [kept.id for kept in epochs.pins()] == [pin.id]


def test_a_read_is_not_torn_by_a_rebuild(history: History, monkeypatch: Any) -> None:
    """The old state of a view is dropped between the shards of a scan."""
    history.create_view("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM items GROUP BY x")
    put(history, x=list(range(40)))
    settle(history)
    store = history.store
    reader = DatabaseReader(store, Epochs(store), "")
    scan, pending = store.state.scan, [1]

    def rebuilt_meanwhile(*args: Any, **kwargs: Any) -> Chunk:
        found = scan(*args, **kwargs)
        if pending:
            pending.clear()
            history.catalog.rebuild_view("v")
            catch_up(store)
            housekeep(store)
        return found

    monkeypatch.setattr(store.views, "scan", rebuilt_meanwhile)
    assert len(reader.scan("v")) == 40


def test_a_get_is_not_torn_by_a_rebuild(history: History, monkeypatch: Any) -> None:
    history.create_view("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM items GROUP BY x")
    put(history, x=[1])
    settle(history)
    store, epochs = history.store, Epochs(history.store)
    reader = DatabaseReader(store, epochs, "")
    stale = [epochs.read()]
    assert reader.get("v", 1) == {"x": 1, "n": 1}
    history.catalog.rebuild_view("v")
    catch_up(store)
    housekeep(store)
    read = epochs.read
    monkeypatch.setattr(epochs, "read", lambda: stale.pop() if stale else read())
    assert reader.get("v", 1) == {"x": 1, "n": 1}


def test_a_plan_gone_since_the_epoch_was_looked_up_is_no_damage(
    history: History, monkeypatch: Any
) -> None:
    history.create_view("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM items GROUP BY x")
    put(history, x=[1])
    settle(history)
    store, epochs = history.store, Epochs(history.store)
    stale = epochs.read()
    history.create_view("CREATE VIEW w AS SELECT g, COUNT(*) AS n FROM items GROUP BY g")
    catch_up(store)
    housekeep(store)
    _cache.clear()  # as in a process that never knew the plan
    _opened.clear()
    with pytest.raises(EpochGone):
        load_plan(store, stale.published.plan)
    records, read = [stale], epochs.read
    monkeypatch.setattr(epochs, "read", lambda: records.pop() if records else read())
    assert DatabaseReader(store, epochs, "").get("v", 1) == {"x": 1, "n": 1}


def test_a_database_made_anew_at_the_same_place_has_its_own_plans() -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        place = Path(folder) / "db"
        for column in ("a", "b"):
            with viewkeep.open(str(place)) as db:
                db.sql(f"CREATE TABLE t (k INT, {column} INT, PRIMARY KEY (k))")
                db.sql(f"CREATE VIEW v AS SELECT k, {column} FROM t WHERE {column} > 1")
                db.put("t", {"k": 1, column: 2})
                catch_up(db.store)
                assert db.get("v", 1) == {"k": 1, column: 2}
            shutil.rmtree(place)


def test_ranges_of_a_snapshot_do_not_move(history: History) -> None:
    history.create_view("CREATE VIEW v AS SELECT * FROM items")
    history.put([{"id": i, "part": part, "x": i} for i in range(20) for part in (0, 1)])
    settle(history)
    selections: list[dict[str, Any]] = [
        {"range": ((3, 1), (9,))},
        {"prefix": 4},
        {"range": (None, (5,)), "reverse": True, "limit": 3},
    ]
    with DatabaseReader(history.store, Epochs(history.store), "").snapshot() as snapshot:
        before = [list(snapshot.scan("items", **chosen)) for chosen in selections]
        history.delete([(i, 0) for i in range(20)])
        history.put([{"id": 4, "part": 7, "x": 1}, {"id": 5, "part": 1, "x": 99}])
        for name in ("items", "v"):
            assert [list(snapshot.scan(name, **chosen)) for chosen in selections] == before
            catch_up(history.store)
            housekeep(history.store)
            assert [list(snapshot.scan(name, **chosen)) for chosen in selections] == before


def test_a_snapshot_reads_the_table_that_was(history: History) -> None:
    """A table dropped and created anew does not take the place of the old one in a snapshot."""
    put(history, x=[1, 2, 3])
    settle(history)
    reader = DatabaseReader(history.store, Epochs(history.store), "")
    with reader.snapshot() as snapshot:
        history.catalog.drop_table("items")
        history.catalog.create_table("items", history.tables["items"].schema)
        catch_up(history.store)
        housekeep(history.store)
        assert len(snapshot.scan("items")) == 3
        assert snapshot.get("items", (1, 0)) is not None
    assert len(reader.scan("items")) == 0
