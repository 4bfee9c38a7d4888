"""Joins and TOP-K, from plan nodes made by hand, equal DuckDB's answer at every epoch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from viewkeep.engine import exchange, inbox, loading, state
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import catch_up
from viewkeep.engine.operators import top_k
from viewkeep.engine.operators.sides import columns as sides
from viewkeep.expr import Call, Expr, Lit, Ref
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Arrange,
    Filter,
    Join,
    KeyPart,
    Match,
    Named,
    Node,
    Project,
    Source,
    TopK,
    Union,
    Values,
    View,
)
from viewkeep.stores import create_store
from viewkeep.types import BIGINT, BOOLEAN, INT, STRING, Column

from .history import FOLDER, History
from .test_histories import one_epoch

A = "CREATE TABLE a (id BIGINT, k INT, s STRING, PRIMARY KEY (id))"
B = "CREATE TABLE b (id BIGINT, part INT, k INT, s STRING, PRIMARY KEY (id, part))"


def renamed(node: Node, label: str) -> Node:
    outputs = tuple(Named(f"{label}.{c.name}", Ref(c.name, c.type)) for c in node.columns)
    return Project(node, outputs)


class Plans:
    """The plans under test over the tables of a history, with their SQL."""

    def __init__(self, history: History):
        self.a, self.b = (history.tables[name].source for name in ("a", "b"))
        self.left, self.right = renamed(self.a, "a"), renamed(self.b, "b")

    def ref(self, name: str) -> Ref:
        types = {"id": BIGINT, "k": INT, "s": STRING, "part": INT}
        return Ref(name, types[name.split(".")[-1]])

    def match(self, *names: str, null_safe: bool = False) -> tuple[Match, ...]:
        return tuple(Match(self.ref(f"a.{n}"), self.ref(f"b.{n}"), null_safe) for n in names)

    def counted(self, node: Source, label: str) -> Node:
        count = AggregateCall("count(*)", "count_star", None, BIGINT)
        return renamed(Aggregate(node, (Named("k", self.ref("k")),), (count,)), label)

    def all(self) -> dict[str, tuple[Node, str]]:
        left, right = self.left, self.right
        on_k, on_ks = self.match("k"), self.match("k", "s")
        safe = self.match("k", null_safe=True)
        plus: Expr = Call("add", (self.ref("b.k"), Lit(1, INT)), INT)
        shifted = (Match(self.ref("a.k"), plus),)
        tagged = [
            Project(
                side,
                (
                    Named("#branch", Lit(place, INT)),
                    Named("id", Ref("id", BIGINT)),
                    Named("k", Ref("k", INT)),
                    Named("part", Ref("part", INT) if place else Lit(None, INT)),
                ),
            )
            for place, side in enumerate((self.a, self.b))
        ]
        pair = Values((Column("v", INT), Column("#row", INT)), ((1, 0), (2, 1)), ("#row",))
        whole = "a.id, a.k, a.s, b.id, b.part, b.k, b.s"
        mine = "SELECT a.id, a.k, a.s FROM a WHERE"
        return {
            "matched": (
                Join("inner", left, right, on_k),
                f"SELECT {whole} FROM a JOIN b USING (k)",
            ),
            "two_keys": (
                Join("inner", left, right, on_ks),
                f"SELECT {whole} FROM a JOIN b ON a.k = b.k AND a.s = b.s",
            ),
            "safe": (
                Join("inner", left, right, safe),
                f"SELECT {whole} FROM a JOIN b ON a.k <=> b.k",
            ),
            "shifted": (
                Join("left", left, right, shifted),
                f"SELECT {whole} FROM a LEFT JOIN b ON a.k = b.k + 1",
            ),
            "left_": (
                Join("left", left, right, on_k),
                f"SELECT {whole} FROM a LEFT JOIN b ON a.k = b.k",
            ),
            "with_": (
                Join("semi", self.a, right, (Match(self.ref("k"), self.ref("b.k")),)),
                f"{mine} EXISTS (SELECT * FROM b WHERE a.k = b.k)",
            ),
            "without_": (
                Join("anti", self.a, right, (Match(self.ref("k"), self.ref("b.k")),)),
                f"{mine} NOT EXISTS (SELECT * FROM b WHERE a.k = b.k)",
            ),
            "anti_safe": (
                Join("anti", self.a, right, (Match(self.ref("k"), self.ref("b.k"), True),)),
                f"{mine} NOT EXISTS (SELECT * FROM b WHERE a.k IS NOT DISTINCT FROM b.k)",
            ),
            "cross_": (Join("inner", left, right, ()), f"SELECT {whole} FROM a CROSS JOIN b"),
            "cross_semi": (
                Join("semi", self.a, Filter(right, _eq(self.ref("b.k"), 1)), ()),
                f"{mine} EXISTS (SELECT * FROM b WHERE b.k = 1)",
            ),
            "itself": (
                Join(
                    "left",
                    left,
                    renamed(self.a, "c"),
                    (Match(self.ref("a.k"), Ref("c.k", INT)),),
                ),
                "SELECT a.id, a.k, a.s, c.id, c.k, c.s FROM a LEFT JOIN a c ON a.k = c.k",
            ),
            "counted": (
                Join("left", left, self.counted(self.b, "n"), (_k("a.k", "n.k"),)),
                "SELECT a.id, a.k, a.s, n.k, n.n FROM a LEFT JOIN "
                "(SELECT k, COUNT(*) AS n FROM b GROUP BY k) n ON a.k = n.k",
            ),
            "having_": (
                Join(
                    "anti",
                    left,
                    Filter(
                        self.counted(self.b, "n"),
                        Call("gt", (Ref("n.count(*)", BIGINT), Lit(1, BIGINT)), BOOLEAN),
                    ),
                    (_k("a.k", "n.k"),),
                ),
                f"{mine} NOT EXISTS (SELECT k FROM b WHERE b.k = a.k GROUP BY k "
                "HAVING COUNT(*) > 1)",
            ),
            "both_counted": (
                Join(
                    "inner",
                    self.counted(self.a, "m"),
                    self.counted(self.b, "n"),
                    (_k("m.k", "n.k"),),
                ),
                "SELECT m.k, m.n, n.k, n.n FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) m "
                "JOIN (SELECT k, COUNT(*) AS n FROM b GROUP BY k) n ON m.k = n.k",
            ),
            "three": (
                Join(
                    "inner",
                    Join("inner", left, right, on_k),
                    renamed(self.a, "c"),
                    (Match(self.ref("b.id"), Ref("c.id", BIGINT)),),
                ),
                f"SELECT {whole}, c.id, c.k, c.s FROM a JOIN b ON a.k = b.k "
                "JOIN a c ON c.id = b.id",
            ),
            "union_": (
                Union(tuple(tagged), ("#branch", "id", "part")),
                "SELECT 0, id, k, NULL FROM a UNION ALL SELECT 1, id, k, part FROM b",
            ),
            "valued": (
                Join("inner", self.a, pair, (Match(self.ref("k"), Ref("v", INT)),)),
                "SELECT a.id, a.k, a.s, v, r FROM a JOIN "
                "(VALUES (1, 0), (2, 1)) AS p(v, r) ON a.k = p.v",
            ),
            "values_": (pair, "SELECT * FROM (VALUES (1, 0), (2, 1)) AS p(v, r)"),
            "top_": (
                TopK(self.a, (), (KeyPart("s", True), KeyPart("k")), 3, 1),
                "SELECT id, k, s FROM a ORDER BY s DESC NULLS LAST, k NULLS FIRST, id "
                "LIMIT 3 OFFSET 1",
            ),
            "top_each": (
                TopK(self.b, ("k",), (KeyPart("s"),), 2),
                "SELECT id, part, k, s FROM b QUALIFY ROW_NUMBER() OVER "
                "(PARTITION BY k ORDER BY s NULLS FIRST, id, part) <= 2",
            ),
        }

    def view(self, name: str, suffix: str = "") -> View:
        node, sql = self.all()[name]
        key = tuple(KeyPart(part) for part in node.row_key)
        names = tuple(column.name for column in node.columns)
        shown = tuple((f"c{i}", inner) for i, inner in enumerate(names))
        kept = Arrange(node, key, names)
        return View(name + suffix, sql, kept, shown, ("a", "b"))


def _k(left: str, right: str) -> Match:
    return Match(Ref(left, INT), Ref(right, INT))


def _eq(left: Expr, value: int) -> Expr:
    return Call("eq", (left, Lit(value, INT)), BOOLEAN)


TEXTS = [None, "", "x", "y", "x" * 300, "x" * 300 + "1", "x" * 600, "x" * 600 + "1"]


def play(names: list[str], late: list[str], seed: int, steps: int = 25) -> None:
    """A random history over both tables; the `late` views are made half way."""
    random = Random(seed)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        history = History(store, (A, B))
        try:
            plans = Plans(history)
            for name in names:
                history.catalog.create_view(plans.view(name))
            epochs = Epochs(store)
            term = epochs.acquire().term
            for number in range(steps):
                if number == steps // 2:
                    for name in late:
                        history.catalog.create_view(plans.view(name, "_late"))
                table = random.choice("ab")
                if random.random() < 0.65:
                    history.put([a_row(random, table) for _ in range(random.randint(1, 4))], table)
                else:
                    keys = [(random.randint(0, 7), random.randint(0, 1)) for _ in range(2)]
                    history.delete([key[: 1 if table == "a" else 2] for key in keys], table)
                if random.random() < 0.5:
                    one_epoch(history, epochs, term, Limits(operations=9, chunk=2), random)
            while one_epoch(history, epochs, term, Limits(chunk=2), random):
                pass
            assert all(epochs.ready(name) for name in history.catalog.current().views)
        finally:
            store.close()


def a_row(random: Random, table: str) -> dict[str, Any]:
    row: dict[str, Any] = {"id": random.randint(0, 7)}
    if table == "b":
        row["part"] = random.randint(0, 1)
    if random.random() < 0.8:
        row["k"] = random.choice([None, 0, 1, 2])
    if random.random() < 0.8:
        row["s"] = random.choice(TEXTS)
    return row


def chosen(seed: int) -> list[str]:
    names = list(NAMES)
    Random(seed).shuffle(names)
    return names


@pytest.mark.parametrize("seed", range(8))
def test_readers_equal_recomputation(seed: int) -> None:
    names = chosen(seed)
    play(names[:6], names[3:9], seed)


@pytest.mark.parametrize("seed", range(100, 104))
def test_in_the_smallest_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read, joined, combined and sent at once changes nothing."""
    monkeypatch.setattr(sides, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(exchange, "_COMBINE_AT", 1)
    monkeypatch.setattr(exchange, "_SEND_AT", 2)
    monkeypatch.setattr(state, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(state, "_MUCH_ROWS", 2)
    monkeypatch.setattr(inbox, "PART_ROWS", 3)
    monkeypatch.setattr(loading, "_FIRST", 1)
    monkeypatch.setattr(top_k, "_AT_ONCE", 2)
    names = chosen(seed)
    play(names[:6], names[3:9], seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1060))
def test_many_more(seed: int) -> None:
    test_readers_equal_recomputation(seed)


@pytest.mark.usefixtures("columns_lane")
def test_a_heavy_key_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """One join key with many partners on both sides: no frame is larger than a piece."""
    largest = [0]
    pairs = sides._Placed.pairs

    def watched(self: sides._Placed, others: pl.DataFrame) -> Iterator[pl.DataFrame]:
        for part in pairs(self, others):
            largest[0] = max(largest[0], part.height, self._rows.height, others.height)
            yield part

    monkeypatch.setattr(sides._Placed, "pairs", watched)
    monkeypatch.setattr(sides, "ROWS_AT_ONCE", 1_000)
    monkeypatch.setattr(state, "ROWS_AT_ONCE", 1_000)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        history = History(store, (A, B))
        try:
            history.create_view(
                "CREATE VIEW pairs AS SELECT a.k, COUNT(*) AS n FROM a JOIN b ON a.k = b.k "
                "GROUP BY a.k"
            )
            for start in range(0, 20_000, 1_000):
                rows = [{"id": n, "part": 0, "k": 1} for n in range(start, start + 1_000)]
                history.put(rows, "b")
                catch_up(store)
            history.put([{"id": n, "k": 1} for n in range(30)], "a")
            catch_up(store)
            history.check()
            history.delete([(7,), (8,)], "a")
            history.delete([(3, 0)], "b")
            catch_up(store)
            history.check()
        finally:
            store.close()
    assert 0 < largest[0] <= 2_000


NAMES = (
    "matched", "two_keys", "safe", "shifted", "left_", "with_", "without_", "anti_safe", "cross_",
    "cross_semi", "itself", "counted", "having_", "both_counted", "three", "union_", "valued",
    "values_", "top_", "top_each",
)  # fmt: skip
