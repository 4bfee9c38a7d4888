"""Aggregates at every published epoch of random histories equal DuckDB's recomputation.

DuckDB's own functions are used where they mean the same; else what Spark does is spelt out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import viewkeep
from viewkeep.codec.keys import KeyCodec, bounded
from viewkeep.engine import changes, exchange
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import catch_up
from viewkeep.engine.programs import load_plan
from viewkeep.engine.values import pages
from viewkeep.ops.aggregates import ordered
from viewkeep.stores import create_store
from viewkeep.stores.contract import Found, Store
from viewkeep.stores.lmdb import log
from viewkeep.stores.wrapped import WrappedStore
from viewkeep.types import STRING

from .history import FOLDER, History, assert_same, view_rows
from .test_histories import created, histories, one_epoch, phases, slow

MACROS = """
CREATE MACRO place(l, i) AS l[CAST(i AS BIGINT) + 1];
CREATE MACRO mixed(lo, hi, pos) AS CASE WHEN lo = hi OR pos = floor(pos) THEN lo
  ELSE (ceil(pos) - pos) * lo + (pos - floor(pos)) * hi END;
CREATE MACRO cont(l, p) AS
  mixed(place(l, floor((len(l) - 1) * p)), place(l, ceil((len(l) - 1) * p)), (len(l) - 1) * p);
CREATE MACRO disc(l, p) AS l[greatest(CAST(ceil(len(l) * p) AS BIGINT), 1)];
CREATE MACRO spread(wild, value) AS CASE WHEN wild THEN 'nan'::DOUBLE ELSE value END;
"""
UP = "list(CAST({0} AS DOUBLE) ORDER BY {0}) FILTER (WHERE {0} IS NOT NULL)"
DOWN = "list(CAST({0} AS DOUBLE) ORDER BY {0} DESC) FILTER (WHERE {0} IS NOT NULL)"
WILD = "count(*) FILTER (WHERE NOT isfinite({0})) > 0"
TAME = "FILTER (WHERE isfinite({0}))"

VIEWS = [
    (  # spreads
        "SELECT h, stddev(x) AS a, stddev_pop(x) AS b, variance(x) AS c, var_pop(x) AS e, "
        "std(m) AS f, var_samp(DISTINCT x) AS i FROM items GROUP BY h",
        "SELECT h, stddev_samp(x), stddev_pop(x), var_samp(x), var_pop(x), stddev_samp(m), "
        "var_samp(DISTINCT x) FROM items GROUP BY h",
    ),
    (
        "SELECT h, stddev_samp(d) AS a, var_pop(d) AS b, var_pop(d) FILTER (WHERE b) AS c "
        "FROM items GROUP BY h",
        f"SELECT h, CASE WHEN count(d) > 1 THEN spread({WILD.format('d')}, "
        f"stddev_samp(d) {TAME.format('d')}) END, "
        f"spread({WILD.format('d')}, var_pop(d) {TAME.format('d')}), "
        "spread(count(*) FILTER (WHERE b AND NOT isfinite(d)) > 0, "
        "var_pop(d) FILTER (WHERE b AND isfinite(d))) FROM items GROUP BY h",
    ),
    (
        "SELECT g, covar_pop(x, m) AS a, covar_samp(x, h) AS b, corr(x, h) AS c FROM items "
        "GROUP BY g",
        "SELECT g, covar_pop(x, m), covar_samp(x, h), CASE WHEN "
        "var_pop(x) FILTER (WHERE h IS NOT NULL) > 0 AND "
        "var_pop(h) FILTER (WHERE x IS NOT NULL) > 0 THEN corr(x, h) END FROM items GROUP BY g",
    ),
    (  # truths and bits
        "SELECT g, bool_and(b) AS a, every(x > 0) AS c, bool_or(b) AS e, some(x > 0) AS f, "
        "bool_or(b) FILTER (WHERE x > 0) AS i, any(b) AS j FROM items GROUP BY g",
        "SELECT g, bool_and(b), bool_and(x > 0), bool_or(b), bool_or(x > 0), "
        "bool_or(b) FILTER (WHERE x > 0), bool_or(b) FROM items GROUP BY g",
    ),
    (
        "SELECT bit_xor(x) AS a, bit_xor(h) AS b, bit_xor(DISTINCT x) AS c FROM items",
        "SELECT bit_xor(x), bit_xor(h), bit_xor(DISTINCT x) FROM items",
    ),
    (
        "SELECT b, count(DISTINCT g, h) AS a, count(g, x) AS c, any_value(g) AS e, "
        "any_value(d) IGNORE NULLS AS f, count(DISTINCT d, raw) FILTER (WHERE h > 0) AS i "
        "FROM items GROUP BY b",
        "SELECT b, count(DISTINCT (g, h)) FILTER (WHERE g IS NOT NULL AND h IS NOT NULL), "
        "count(*) FILTER (WHERE g IS NOT NULL AND x IS NOT NULL), min(g), min(d), "
        "count(DISTINCT (d, raw)) FILTER (WHERE d IS NOT NULL AND raw IS NOT NULL AND h > 0) "
        "FROM items GROUP BY b",
    ),
    (  # chosen rows
        "SELECT g, min_by(x, h) AS a, max_by(x, h) AS b, min_by(g, d) AS c, max_by(d, ts) AS e, "
        "max_by(x, h) FILTER (WHERE b) AS f FROM items GROUP BY g",
        "SELECT g, first(x ORDER BY h, x NULLS FIRST) FILTER (WHERE h IS NOT NULL), "
        "first(x ORDER BY h DESC, x DESC NULLS LAST) FILTER (WHERE h IS NOT NULL), "
        "first(g ORDER BY d, g NULLS FIRST) FILTER (WHERE d IS NOT NULL), "
        "first(d ORDER BY ts DESC, d DESC NULLS LAST) FILTER (WHERE ts IS NOT NULL), "
        "first(CASE WHEN b THEN x END ORDER BY h DESC, x DESC NULLS LAST) "
        "FILTER (WHERE h IS NOT NULL AND b) FROM items GROUP BY g",
    ),
    (  # long values, whose keys are cut
        "SELECT h, min_by(x, g || g) AS a, max_by(g || g, g || g) AS b, min(g || g) AS c "
        "FROM items GROUP BY h",
        "SELECT h, first(x ORDER BY g || g, x NULLS FIRST) FILTER (WHERE g IS NOT NULL), "
        "max(g || g), min(g || g) FROM items GROUP BY h",
    ),
    (  # places
        "SELECT h, median(x) AS a, percentile(x, 0.25) AS b, percentile(d, 0.9) AS c, "
        "percentile(m, 1) AS e, median(DISTINCT x) AS f, median(x) FILTER (WHERE b) AS i "
        "FROM items GROUP BY h",
        f"SELECT h, cont({UP.format('x')}, 0.5), cont({UP.format('x')}, 0.25), "
        f"cont({UP.format('d')}, 0.9), CAST(max(m) AS DOUBLE), "
        "cont(list_sort(list(DISTINCT CAST(x AS DOUBLE)) FILTER (WHERE x IS NOT NULL)), 0.5), "
        "cont(list(CAST(x AS DOUBLE) ORDER BY x) FILTER (WHERE b AND x IS NOT NULL), 0.5) "
        "FROM items GROUP BY h",
    ),
    (
        "SELECT percentile_cont(0.3) WITHIN GROUP (ORDER BY x) AS a, "
        "percentile_cont(0.3) WITHIN GROUP (ORDER BY x DESC) AS b, "
        "percentile_disc(0.3) WITHIN GROUP (ORDER BY x) AS c, "
        "percentile_disc(0.3) WITHIN GROUP (ORDER BY x DESC) AS e, "
        "percentile_disc(0.5) WITHIN GROUP (ORDER BY d) FILTER (WHERE h > 0) AS f FROM items",
        f"SELECT cont({UP.format('x')}, 0.3), cont({DOWN.format('x')}, 0.3), "
        f"disc({UP.format('x')}, 0.3), disc({DOWN.format('x')}, 0.3), "
        "disc(list(d ORDER BY d) FILTER (WHERE h > 0 AND d IS NOT NULL), 0.5) FROM items",
    ),
    (
        "SELECT g, median(x + h) AS a, percentile_disc(0) WITHIN GROUP (ORDER BY x) AS b "
        "FROM items GROUP BY g",
        f"SELECT g, cont({UP.format('x + h')}, 0.5), min(x) FROM items GROUP BY g",
    ),
    (  # lists
        "SELECT h, listagg(g, ',') AS a, string_agg(DISTINCT g, ';') AS b, "
        "listagg(g, ',') WITHIN GROUP (ORDER BY x DESC, g) AS c, listagg(x, ' ') AS e, "
        "listagg(g) FILTER (WHERE b) AS f, "
        "listagg(DISTINCT x, ' ') WITHIN GROUP (ORDER BY x DESC) AS i, "
        "listagg(g, '|') WITHIN GROUP (ORDER BY x) AS j FROM items GROUP BY h",
        "SELECT h, string_agg(g, ',' ORDER BY g), string_agg(DISTINCT g, ';' ORDER BY g), "
        "string_agg(g, ',' ORDER BY x DESC NULLS LAST, g), "
        "string_agg(CAST(x AS VARCHAR), ' ' ORDER BY x), "
        "string_agg(g, '' ORDER BY g) FILTER (WHERE b), "
        "array_to_string(list_transform(list_reverse_sort("
        "list(DISTINCT x) FILTER (WHERE x IS NOT NULL)), lambda e: CAST(e AS VARCHAR)), ' '), "
        "string_agg(g, '|' ORDER BY x NULLS FIRST, g) FROM items GROUP BY h",
    ),
    (  # arrays
        "SELECT h, collect_list(x) AS a, collect_set(g) AS b, array_agg(m) FILTER (WHERE b) AS c, "
        "collect_list(ts) AS e, collect_set(b) AS f, collect_list(DISTINCT day) AS i, "
        "collect_list(raw) AS j FROM items GROUP BY h",
        "SELECT h, coalesce(list(x ORDER BY x) FILTER (WHERE x IS NOT NULL), []), "
        "coalesce(list_sort(list(DISTINCT g) FILTER (WHERE g IS NOT NULL)), []), "
        "coalesce(list(m ORDER BY m) FILTER (WHERE b AND m IS NOT NULL), []), "
        "coalesce(list(ts ORDER BY ts) FILTER (WHERE ts IS NOT NULL), []), "
        "coalesce(list_sort(list(DISTINCT b) FILTER (WHERE b IS NOT NULL)), []), "
        "coalesce(list_sort(list(DISTINCT day) FILTER (WHERE day IS NOT NULL)), []), "
        "coalesce(list(raw ORDER BY raw) FILTER (WHERE raw IS NOT NULL), []) "
        "FROM items GROUP BY h",
    ),
    (
        "SELECT collect_list(x) AS a, count(*) AS n FROM items WHERE x > 1",
        "SELECT coalesce(list(x ORDER BY x), []), count(*) FROM items WHERE x > 1",
    ),
    (  # arrays and lists in an order
        "SELECT h, array_agg(x ORDER BY g) AS a, array_agg(g ORDER BY x DESC, d) AS b, "
        "array_agg(g ORDER BY x NULLS LAST) AS c, array_agg(g ORDER BY x DESC NULLS FIRST) AS e, "
        "array_agg(x ORDER BY x DESC) AS f, collect_set(g ORDER BY g DESC) AS i, "
        "collect_list(g ORDER BY id DESC) FILTER (WHERE b) AS j, "
        "string_agg(g, ',' ORDER BY d NULLS LAST, x DESC) AS k FROM items GROUP BY h",
        "SELECT h, coalesce(list(x ORDER BY g, x) FILTER (WHERE x IS NOT NULL), []), "
        "coalesce(list(g ORDER BY x DESC NULLS LAST, d, g) FILTER (WHERE g IS NOT NULL), []), "
        "coalesce(list(g ORDER BY x NULLS LAST, g) FILTER (WHERE g IS NOT NULL), []), "
        "coalesce(list(g ORDER BY x DESC NULLS FIRST, g) FILTER (WHERE g IS NOT NULL), []), "
        "coalesce(list(x ORDER BY x DESC) FILTER (WHERE x IS NOT NULL), []), "
        "coalesce(list_reverse_sort(list(DISTINCT g) FILTER (WHERE g IS NOT NULL)), []), "
        "coalesce(list(g ORDER BY id DESC, g) FILTER (WHERE b AND g IS NOT NULL), []), "
        "string_agg(g, ',' ORDER BY d NULLS LAST, x DESC NULLS LAST, g) FROM items GROUP BY h",
    ),
    (
        "SELECT array_agg(day ORDER BY m DESC NULLS FIRST, raw) AS a, "
        "array_agg(b ORDER BY ts) AS b, array_agg(x + h ORDER BY x % 2, h DESC) AS c FROM items",
        "SELECT coalesce(list(day ORDER BY m DESC NULLS FIRST, raw, day) "
        "FILTER (WHERE day IS NOT NULL), []), "
        "coalesce(list(b ORDER BY ts, b) FILTER (WHERE b IS NOT NULL), []), "
        "coalesce(list(x + h ORDER BY x % 2, h DESC NULLS LAST, x + h) "
        "FILTER (WHERE x + h IS NOT NULL), []) FROM items",
    ),
    (  # shared state
        "SELECT h, min(x) AS a, median(x) AS b, count(DISTINCT x) AS c, listagg(x, ',') AS e, "
        "sum(x) AS f, count(x) AS i, var_pop(x) AS j FROM items GROUP BY h",
        f"SELECT h, min(x), cont({UP.format('x')}, 0.5), count(DISTINCT x), "
        "string_agg(CAST(x AS VARCHAR), ',' ORDER BY x), sum(x), count(x), var_pop(x) "
        "FROM items GROUP BY h",
    ),
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    made = duckdb.connect()
    made.execute("SET TimeZone='UTC'; SET default_null_order='nulls_first'")
    made.execute(MACROS)
    yield made
    made.close()


@dataclass
class Checked(History):
    """A history that is checked by queries written for the oracle."""

    expected: dict[str, str] = field(default_factory=dict)
    oracle: duckdb.DuckDBPyConnection | None = None

    def check(self) -> None:
        assert self.oracle is not None
        epochs = Epochs(self.store)
        published = epochs.read().published
        plan = load_plan(self.store, published.plan)
        schema = self.tables["items"].schema.polars
        rows = self.rows_at(published.cut)["items"]
        self.oracle.register("items", pl.DataFrame(rows, schema=schema, orient="row").to_arrow())
        for name in plan.views:
            if epochs.ready(name):
                wanted = self.oracle.execute(self.expected[name]).fetchall()
                found = view_rows(self.store, plan.program.placements[name], published.epoch)
                assert_same(found, wanted, f"{name} {self.expected[name]}")


@contextmanager
def fresh() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        try:
            yield store
        finally:
            store.close()


def play(
    chosen: list[tuple[str, str]],
    split: int,
    history: list[tuple[str, Any]],
    seed: int,
    oracle: duckdb.DuckDBPyConnection,
) -> None:
    """Run a history; the views from `split` on are created half way, over rows that exist."""
    random = Random(seed)
    with fresh() as store, pytest.MonkeyPatch.context() as patch:
        # Small pages, so that few values make many.
        patch.setattr(pages, "FULL", random.choice([20, 60, pages.FULL]))
        patch.setattr(pages, "PART", pages.FULL // 2)
        patch.setattr(pages, "AT_ONCE", random.choice([1, 3, pages.AT_ONCE]))
        model = Checked(store)
        model.oracle = oracle
        model.expected = {f"v{i}": text for i, (_, text) in enumerate(chosen)}
        statements = created([text for text, _ in chosen])
        for text in statements[:split]:
            model.create_view(text)
        epochs = Epochs(store)
        term = epochs.acquire().term
        for number, (kind, detail) in enumerate([*history, ("epoch", 6)]):
            if number == len(history) // 2:
                for text in statements[split:]:
                    model.create_view(text)
            if kind == "put":
                model.put(detail)
            elif kind == "delete":
                model.delete(detail)
            else:
                one_epoch(model, epochs, term, Limits(operations=detail, chunk=2), random)
        while one_epoch(model, epochs, term, Limits(chunk=2), random):
            pass
        assert all(epochs.ready(name) for name in model.expected)


@settings(max_examples=40, deadline=None, suppress_health_check=slow, phases=phases)
@given(
    st.lists(st.sampled_from(VIEWS), min_size=1, max_size=3, unique=True),
    histories,
    st.integers(0, 2**32),
)
def test_aggregates_equal_recomputation(
    oracle: duckdb.DuckDBPyConnection,
    chosen: list[tuple[str, str]],
    history: list[tuple[str, Any]],
    seed: int,
) -> None:
    play(chosen, seed % (len(chosen) + 1), history, seed, oracle)


ORDERED = VIEWS[6:]
crowd = st.fixed_dictionaries(
    {
        "id": st.integers(0, 30),
        "part": st.just(0),
        "h": st.integers(0, 1),
        "x": st.none() | st.integers(0, 6),
        "d": st.none() | st.sampled_from([-1.5, 0.0, 2.5, float("inf")]),
        "g": st.none() | st.sampled_from(["a", "b", "b" * 300 + "x", "b" * 300]),
    }
)
crowds = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(crowd, min_size=1, max_size=12)),
        st.tuples(
            st.just("delete"),
            st.lists(st.tuples(st.integers(0, 30), st.just(0)), min_size=1, max_size=8),
        ),
        st.tuples(st.just("epoch"), st.integers(1, 20)),
    ),
    min_size=6,
    max_size=16,
)


@settings(max_examples=30, deadline=None, suppress_health_check=slow, phases=phases)
@given(st.sampled_from(ORDERED), crowds, st.integers(0, 2**32))
def test_orders_in_crowded_groups(
    oracle: duckdb.DuckDBPyConnection,
    view: tuple[str, str],
    history: list[tuple[str, Any]],
    seed: int,
) -> None:
    play([view], seed % 2, history, seed, oracle)


def test_every_aggregate_takes_part(oracle: duckdb.DuckDBPyConnection) -> None:
    """A fixed history over all views at once, so that none depends on chance to be run."""
    row = {"g": "a", "h": 1, "d": 0.1, "m": None, "b": True}
    rows = [{"id": i, "part": i % 2, **row, "x": i} for i in range(6)]
    history: list[tuple[str, Any]] = [
        ("put", rows),
        ("epoch", 6),
        ("put", [{"id": 3, "part": 1, "x": 100, "g": "zz"}]),
        ("epoch", 6),
        ("delete", [(0, 0), (5, 1)]),
        ("epoch", 6),
        ("put", [{"id": 1, "part": 1, "g": None}]),
        ("epoch", 6),
        ("delete", [(i, i % 2) for i in range(6)]),
        ("epoch", 6),
    ]
    play(VIEWS, len(VIEWS), history, 1, oracle)
    play(VIEWS, 0, history, 2, oracle)


def test_small_deviations_of_large_numbers() -> None:
    """Variances stay right when the mean is 1e8 times the deviation, also after deletes."""
    random = Random(5)
    with fresh() as store:
        model = History(store)
        model.create_view("CREATE VIEW v AS SELECT var_pop(d) AS a, stddev(d) AS b FROM items")
        held: dict[int, float] = {}
        for _ in range(12):
            for _ in range(60):
                number = random.randrange(80)
                if number in held and random.random() < 0.5:
                    del held[number]
                    model.delete([(number, 0)])
                else:
                    held[number] = 1e8 + random.gauss(0, 1)
                    model.put([{"id": number, "part": 0, "d": held[number]}])
            epoch = catch_up(store).epoch
            placement = model.catalog.current().program.placements["v"]
            ((variance, deviation),) = view_rows(store, placement, epoch)
            values = [Fraction(value) for value in held.values()]
            mean = sum(values, Fraction(0)) / len(values)
            squares = sum(((value - mean) ** 2 for value in values), Fraction(0))
            exact = squares / len(values)
            assert abs(Fraction(variance) - exact) <= exact * Fraction(1, 10**12)
            sample = squares / (len(values) - 1)
            assert abs(Fraction(deviation) ** 2 - sample) <= sample * Fraction(1, 10**12)


def test_groups_with_long_keys_do_not_mix() -> None:
    """A group whose key is not cut is not taken for the beginning of one whose key is."""
    codec, short = KeyCodec((STRING,)), "a" * 222
    whole = codec.encode_one((short,))
    long = next(
        text
        for text in (f"{short}\0{i}{'b' * 200}" for i in count())
        if bounded(codec.encode_one((text,)), 240).startswith(whole)
    )
    with fresh() as store:
        model = History(store)
        model.create_view(
            "CREATE VIEW v AS SELECT g, min(x) AS a, max(x) AS b, median(x) AS c, "
            "listagg(x, ',') AS e FROM items GROUP BY g"
        )
        held = {(1, short): 5, (2, short): 6, (3, short): 7, (4, long): 1, (5, long): 9}
        model.put([{"id": i, "part": 0, "g": g, "x": x} for (i, g), x in held.items()])
        catch_up(store)
        model.delete([(1, 0), (3, 0)])
        epoch = catch_up(store).epoch
        found = view_rows(store, model.catalog.current().program.placements["v"], epoch)
        assert sorted(found) == [(short, 6, 6, 6.0, "6"), (long, 1, 9, 5.0, "1,9")]


class Counting(WrappedStore):
    """A store that counts the state rows that are read from it."""

    rows = 0

    def call(self, method: str, act: Any, *args: Any, **named: Any) -> Any:
        found = act(*args, **named)
        if method == "state.get":
            self.rows += len(found)
        elif method == "state.scan":
            self.rows += 1 + len(found.keys)
        elif method == "state.floor":
            self.rows += len(found.rows)
        elif method == "state.scan_ranges":
            return self._counted(found)
        return found

    def _counted(self, batches: Iterator[Found]) -> Iterator[Found]:
        self.rows += 1
        for batch in batches:
            self.rows += len(batch.rows)
            yield batch


GROWING = (
    "SELECT h, median(x) AS a, percentile(x, 0.9) AS b, min_by(d, x) AS c, max_by(d, x) AS e, "
    "min(x) AS f, var_pop(x) AS i, count(DISTINCT x, d) AS j, bool_and(x > 0) AS k, "
    "bit_xor(x) AS l, percentile_disc(0.1) WITHIN GROUP (ORDER BY x DESC) AS m "
    "FROM items GROUP BY h"
)


def reads_of_one_update(size: int, change: int) -> int:
    """The state rows that one update reads in a group of some rows, an epoch each."""
    with fresh() as store:
        model = History(store)
        model.create_view(f"CREATE VIEW v AS {GROWING}")
        model.put([{"id": i, "part": 0, "h": 1, "x": i, "d": 0.5} for i in range(size)])
        catch_up(store)
        counting = Counting(store)
        for number, value in ((0, size), (size - 1, 5), (size // 2, -1), (1, size // 2)):
            if change:
                model.put([{"id": number, "part": 0, "x": value}])
            else:
                model.delete([(number, 0)])
            catch_up(counting)  # type: ignore[arg-type]
        return counting.rows


@pytest.mark.parametrize("change", [0, 1])
def test_the_cost_of_an_update_does_not_grow(change: int) -> None:
    few, many = reads_of_one_update(10, change), reads_of_one_update(20_000, change)
    assert 0 < many <= 2 * few


@pytest.mark.parametrize("lane", ["rows", "columns"])
def test_extremes_behind_many_pages_that_went(lane: str, request: pytest.FixtureRequest) -> None:
    """Of some groups hundreds of values leave at both ends, of others one, of one all."""
    if lane == "columns":
        request.getfixturevalue("columns_lane")
    with fresh() as store:
        model = History(store)
        model.create_view(
            "CREATE VIEW v AS SELECT g, MIN(x) AS a, MAX(x) AS b FROM items GROUP BY g"
        )
        for g in range(4):
            model.put([{"id": n, "part": g, "g": f"g{g}", "x": 7 * n} for n in range(1_000)])
        catch_up(store)
        model.delete([(n, g) for n in range(400) for g in (0, 1)])
        model.delete([(999 - n, 0) for n in range(500)])
        model.delete([(0, 2), (999, 2)])
        catch_up(store)
        model.check()
        model.delete([(n, 1) for n in range(400, 1_000)])
        catch_up(store)
        model.check()


@pytest.mark.usefixtures("columns_lane")
@pytest.mark.parametrize("most", [5, 100_000], ids=["few values", "many values"])
def test_values_come_combined_or_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(log, "BATCH_OPERATIONS", 40)
    monkeypatch.setattr(changes, "_FEW", 1)
    monkeypatch.setattr(exchange, "_COMBINE_AT", 50)
    monkeypatch.setattr(ordered, "_LARGE", 10)
    monkeypatch.setattr(ordered, "_SAMPLED", 2)
    random, rows = Random(5), dict[int, tuple[int, int]]()
    with viewkeep.make(tmp_path / "test.vk") as db:
        db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, g BIGINT, x BIGINT)")
        db.sql(
            "CREATE VIEW v AS SELECT g, MIN(x) AS low, MAX(x) AS high, "
            "COUNT(DISTINCT x) AS n FROM t GROUP BY g"
        )
        for _ in range(3):
            for _ in range(20):
                made = {random.randrange(400): random.randrange(most) for _ in range(25)}
                rows |= {k: (k % 7, x) for k, x in made.items()}
                db.put("t", [{"k": k, "g": k % 7, "x": x} for k, x in made.items()])
                gone = [random.randrange(400) for _ in range(5)]
                db.delete_many("t", gone)
                for k in gone:
                    rows.pop(k, None)
            catch_up(db.store)
            groups: dict[int, list[int]] = {}
            for g, x in rows.values():
                groups.setdefault(g, []).append(x)
            assert sorted(db.scan("v").tuples()) == sorted(
                (g, min(xs), max(xs), len(set(xs))) for g, xs in groups.items()
            )


@pytest.mark.usefixtures("columns_lane")
@pytest.mark.parametrize(
    ("x", "combined"),
    [("k", False), ("k % 3", True), ("k % 2 = 0", True)],
)
@pytest.mark.parametrize("g", ["k % 7", "1"])
def test_values_are_combined_if_few_are_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, g: str, x: str, combined: bool
) -> None:
    seen: list[bool] = []
    differ = exchange.mostly_differ

    def watched(parts: Sequence[pl.DataFrame]) -> bool:
        seen.append(differ(parts))
        return seen[-1]

    monkeypatch.setattr(exchange, "mostly_differ", watched)
    monkeypatch.setattr(log, "BATCH_OPERATIONS", 400)
    monkeypatch.setattr(changes, "_FEW", 1)
    monkeypatch.setattr(exchange, "_COMBINE_AT", 5)
    with viewkeep.make(tmp_path / "test.vk", nodes=1) as db:
        db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        pairs = f"SELECT {g} AS g, {x} AS x FROM t"
        db.sql(f"CREATE VIEW v AS SELECT g, ARRAY_AGG(x) AS xs FROM ({pairs}) GROUP BY g")
        for start in range(0, 2_000, 400):
            db.put("t", [{"k": k} for k in range(start, start + 400)])
        catch_up(db.store)
    assert seen
    assert all(seen) is not combined
    assert any(seen) is not combined
