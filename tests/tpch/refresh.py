"""Refreshes of the TPC-H tables: seeded batches of inserts, updates and deletes.

They touch lineitem, orders, customer, part and partsupp. Rows are drawn and changed so that the
narrow queries see changes too: the brands, containers, dates and quantities they ask for are often.
The same batch goes to viewkeep (by key) and to DuckDB (as SQL over the batch's rows).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from random import Random
from typing import Any

import duckdb
import polars as pl

from viewkeep.database import Database

from .schema import KEYS

Row = dict[str, Any]

BRANDS = ["Brand#12", "Brand#23", "Brand#34", "Brand#45", "Brand#51"]
CONTAINERS = ["SM CASE", "MED BOX", "MED BAG", "LG CASE", "LG BOX", "JUMBO JAR"]
TYPES = [
    "ECONOMY ANODIZED STEEL",
    "PROMO BURNISHED COPPER",
    "LARGE BRUSHED BRASS",
    "MEDIUM POLISHED TIN",
    "SMALL PLATED BRASS",
]
NAMES = ["forest green lace", "green blush navy", "forest ivory pink", "plum rose khaki"]
SEGMENTS = ["BUILDING", "AUTOMOBILE", "MACHINERY", "HOUSEHOLD", "FURNITURE"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
MODES = ["AIR", "AIR REG", "MAIL", "SHIP", "TRUCK"]
COMMENTS = ["the special pending requests", "quiet deposits", "special requests sleep"]


@dataclass(frozen=True)
class Change:
    """Rows of one table that are put (whole), or keys that are deleted."""

    table: str
    put: list[Row]
    delete: list[tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.put) + len(self.delete)


class Refresh:
    """Makes batches. `model` holds the rows as they are, and is kept in step by `apply`."""

    def __init__(self, model: duckdb.DuckDBPyConnection, seed: int):
        self.model, self.seed, self.random = model, seed, Random(seed)
        self.drawn = 0
        self.fresh = {
            table: self._one(f"SELECT max({KEYS[table][0]}) FROM {table}") + 1
            for table in ("orders", "customer", "part")
        }
        self.suppliers = self._one("SELECT max(s_suppkey) FROM supplier")

    def batch(self, size: int) -> list[Change]:
        """About `size` changes: most of them of orders and their lines."""
        some = max(1, size // 20)
        made = [
            *self._new_orders(2 * some),
            *self._ended_orders(some),
            self._updated("lineitem", 6 * some, self._line),
            self._updated("orders", 2 * some, self._order),
            self._updated("customer", some, self._customer),
            self._updated("part", some, self._part),
            self._updated("partsupp", some, self._offer),
            self._copied("customer", max(1, some // 2), self._customer),
            self._copied("part", max(1, some // 2), self._part),
            self._deleted("customer", max(1, some // 4)),
            self._deleted("part", max(1, some // 4)),
            self._deleted("partsupp", max(1, some // 2)),
        ]
        parts = made[-4].put
        offers = [
            {**row, "ps_partkey": parts[place // 2]["p_partkey"]}
            for place, row in enumerate(self._draw("partsupp", 2 * len(parts)))
        ]
        made.append(Change("partsupp", [self._offer(row) for row in _unique(offers)], []))
        return [change for change in made if len(change)]

    def apply(self, db: Database | None, batch: list[Change]) -> int:
        """Write a batch to viewkeep and to the model; the number of changes."""
        for change in batch:
            if db is not None and change.put:
                db.put(change.table, change.put)
            if db is not None and change.delete:
                keys = [key[0] if len(key) == 1 else key for key in change.delete]
                db.delete_many(change.table, keys)
            self._model(change)
        return sum(map(len, batch))

    def _model(self, change: Change) -> None:
        names = KEYS[change.table]
        gone = [tuple(row[name] for name in names) for row in change.put] + change.delete
        columns = {name: [key[place] for key in gone] for place, name in enumerate(names)}
        self.model.register("gone", pl.DataFrame(columns).to_arrow())
        match = " AND ".join(f"{change.table}.{name} = gone.{name}" for name in names)
        self.model.execute(f"DELETE FROM {change.table} USING gone WHERE {match}")
        if change.put:
            self.model.register(
                "rows", pl.DataFrame(change.put, infer_schema_length=None).to_arrow()
            )
            self.model.execute(f"INSERT INTO {change.table} BY NAME SELECT * FROM rows")

    # -- kinds of changes ----------------------------------------------------------------------

    def _new_orders(self, count: int) -> list[Change]:
        orders, lines = [], []
        sizes = [self.random.randint(1, 5) for _ in range(count)]
        drawn = iter(self._draw("lineitem", sum(sizes)))
        for order, size in zip(self._draw("orders", count), sizes, strict=True):
            key = self.fresh["orders"]
            self.fresh["orders"] += 1
            orders.append(self._order({**order, "o_orderkey": key}))
            for number, line in enumerate(islice(drawn, size), 1):
                lines.append(self._line({**line, "l_orderkey": key, "l_linenumber": number}))
        return [Change("orders", orders, []), Change("lineitem", lines, [])]

    def _ended_orders(self, count: int) -> list[Change]:
        keys = [row["o_orderkey"] for row in self._draw("orders", count)]
        shown = ", ".join(map(str, keys))
        lines = self.model.execute(
            f"SELECT l_orderkey, l_linenumber FROM lineitem WHERE l_orderkey IN ({shown}) "
            "ORDER BY ALL"
        ).fetchall()
        return [Change("orders", [], [(key,) for key in keys]), Change("lineitem", [], lines)]

    def _updated(self, table: str, count: int, change: Callable[[Row], Row]) -> Change:
        return Change(table, [change(row) for row in self._draw(table, count)], [])

    def _copied(self, table: str, count: int, change: Callable[[Row], Row]) -> Change:
        rows = []
        for row in self._draw(table, count):
            rows.append(change({**row, KEYS[table][0]: self.fresh[table]}))
            self.fresh[table] += 1
        return Change(table, rows, [])

    def _deleted(self, table: str, count: int) -> Change:
        keys = [tuple(row[name] for name in KEYS[table]) for row in self._draw(table, count)]
        return Change(table, [], keys)

    # -- new values ----------------------------------------------------------------------------

    def _line(self, row: Row) -> Row:
        pick, draw = self.random.choice, self.random.randint
        shipped = dt.date(1993, 1, 1) + dt.timedelta(draw(0, 5 * 365))
        heavy = self.random.random() < 0.2
        return {
            **row,
            "l_quantity": Decimal(draw(70, 150) if heavy else draw(1, 50)),
            "l_extendedprice": Decimal(draw(100_000, 9_999_999)) / 100,
            "l_discount": Decimal(draw(0, 10)) / 100,
            "l_returnflag": pick("RAN"),
            "l_shipdate": shipped,
            "l_commitdate": shipped + dt.timedelta(draw(-20, 40)),
            "l_receiptdate": shipped + dt.timedelta(draw(1, 30)),
            "l_shipmode": pick(MODES),
            "l_shipinstruct": pick(["DELIVER IN PERSON", "NONE"]),
            "l_suppkey": draw(1, self.suppliers),
        }

    def _order(self, row: Row) -> Row:
        pick, draw = self.random.choice, self.random.randint
        return {
            **row,
            "o_orderstatus": pick("FOP"),
            "o_totalprice": Decimal(draw(100_000, 49_999_999)) / 100,
            "o_orderdate": dt.date(1993, 1, 1) + dt.timedelta(draw(0, 4 * 365)),
            "o_orderpriority": pick(PRIORITIES),
            "o_comment": pick(COMMENTS),
        }

    def _customer(self, row: Row) -> Row:
        pick, draw = self.random.choice, self.random.randint
        nation = draw(0, 24)
        return {
            **row,
            "c_nationkey": nation,
            "c_phone": f"{nation + 10}{row['c_phone'][2:]}",
            "c_acctbal": Decimal(draw(-99_999, 999_999)) / 100,
            "c_mktsegment": pick(SEGMENTS),
        }

    def _part(self, row: Row) -> Row:
        pick, draw = self.random.choice, self.random.randint
        return {
            **row,
            "p_name": pick(NAMES),
            "p_brand": pick(BRANDS),
            "p_type": pick(TYPES),
            "p_size": pick([1, 5, 9, 14, 15, 15, 23, draw(1, 50)]),
            "p_container": pick(CONTAINERS),
        }

    def _offer(self, row: Row) -> Row:
        draw = self.random.randint
        return {
            **row,
            "ps_availqty": draw(1, 9999),
            "ps_supplycost": Decimal(draw(100, 100_000)) / 100,
        }

    # -- drawing -------------------------------------------------------------------------------

    def _draw(self, table: str, count: int) -> list[Row]:
        """Rows of the model in a seeded order: a hash of their keys with a new salt each time."""
        self.drawn += 1
        salt = f"{self.seed}/{self.drawn}"
        order = ", ".join(f"{name}::VARCHAR" for name in KEYS[table])
        found = self.model.execute(
            f"SELECT * FROM {table} ORDER BY hash(concat_ws('/', {order}, ?)), {order} LIMIT ?",
            [salt, count],
        )
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _one(self, text: str) -> int:
        row = self.model.execute(text).fetchone()
        assert row is not None
        return int(row[0])


def _unique(offers: list[Row]) -> list[Row]:
    return list({(row["ps_partkey"], row["ps_suppkey"]): row for row in offers}.values())
