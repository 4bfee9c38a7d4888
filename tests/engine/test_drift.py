"""Sums of doubles after very many updates agree with an exact recomputation."""

from __future__ import annotations

import random
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import polars as pl

from viewkeep.catalog import Catalog
from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.engine.local import catch_up
from viewkeep.plan.nodes import Source
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.nodes import CreateTable, CreateView
from viewkeep.stores import create_store
from viewkeep.stores.contract import Kind, TableWrite

from .history import view_rows


def test_sums_do_not_drift(tmp_path: Path) -> None:
    source = random.Random(7)
    with closing(create_store(str(tmp_path / "db"), durability="relaxed")) as store:
        catalog = Catalog(store)
        for text in (
            "CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE)",
            "CREATE VIEW v AS SELECT SUM(x) AS s, AVG(x) AS a FROM t",
        ):
            statement = analyse(parse(text)[0], catalog.resolve)
            if isinstance(statement, CreateTable):
                catalog.create_table(statement.name, statement.schema)
            elif isinstance(statement, CreateView):
                catalog.create_view(statement.view)
        table = catalog.resolve("t")
        assert isinstance(table, Source)
        keys, rows = KeyCodec(table.schema.types(("id",))), RowCodec(table.schema.columns)
        current: dict[int, float] = {}
        for _ in range(40):  # 80,000 updates that mix very large and very small numbers
            batch = {
                source.randrange(100): source.choice([1e-9, 1.0, 1e15]) * source.uniform(-1, 1)
                for _ in range(2000)
            }
            current |= batch
            frame = pl.DataFrame({"id": list(batch), "x": list(batch.values())})
            encoded = keys.encode([frame["id"]])
            store.tables.write(
                [TableWrite(table.number, rows, Kind.PUT, encoded, rows.encode(frame))]
            )
            published = catch_up(store)
        placement = catalog.current().program.placements["v"]
        ((found, mean),) = view_rows(store, placement, published.epoch)
        exact = sum(map(Fraction, current.values()), Fraction(0))
        assert abs(Fraction(found) - exact) <= abs(exact) * Fraction(1, 10**12)
        assert abs(Fraction(mean) * len(current) - exact) <= abs(exact) * Fraction(1, 10**12)
