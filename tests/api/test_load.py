"""Bulk loading of files and tables, and the refusal of bad ones."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from viewkeep.errors import DuplicateKey, InvalidRow, UnknownName

if TYPE_CHECKING:
    from pathlib import Path

    from viewkeep import Database

ROWS = [
    (1, "a", Decimal("1.50"), dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 10), True),
    (2, None, None, None, None, None),
    (3, 'c,"d"', Decimal("-2.25"), dt.date(2025, 12, 31), dt.datetime(1969, 1, 1), False),
]
NAMES = ("id", "name", "price", "day", "at", "good")


@pytest.fixture
def shop(db: Database) -> Database:
    db.sql("""
        CREATE TABLE items (id BIGINT PRIMARY KEY, name STRING, price DECIMAL(8,2), day DATE,
                            at TIMESTAMP, good BOOLEAN)
    """)
    return db


@pytest.fixture
def frame() -> pl.DataFrame:
    return pl.DataFrame(ROWS, schema=NAMES, orient="row")


@pytest.mark.parametrize("format", ["parquet", "csv", "arrow", "feather", "stream"])
def test_files(shop: Database, frame: pl.DataFrame, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"items.{'arrow' if format == 'stream' else format}"
    if format == "parquet":
        frame.write_parquet(path)
    elif format == "csv":
        frame.write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%S")
    elif format == "arrow":
        frame.write_ipc(path)
    elif format == "stream":
        frame.write_ipc_stream(path)
    else:
        pyarrow.feather.write_feather(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), path)
    done = shop.load("items", path, progress=False, batch_rows=2)
    assert (done.rows, done.batches) == (3, 2)
    assert shop.scan("items").tuples() == ROWS


def test_tables_and_frames(shop: Database, frame: pl.DataFrame) -> None:
    table = frame.to_arrow()
    assert shop.load("items", table, progress=False).rows == 3
    assert shop.load("items", frame, replace=True, progress=False).rows == 3
    assert shop.load("items", table.to_reader(), replace=True, progress=False).rows == 3
    assert shop.load("items", frame.to_pandas(), replace=True, progress=False).rows == 3
    assert shop.scan("items").tuples() == ROWS


def test_replace_or_refuse(shop: Database, frame: pl.DataFrame) -> None:
    shop.load("items", frame, progress=False)
    with pytest.raises(DuplicateKey, match="id = 1 already"):
        shop.load("items", frame, progress=False)
    changed = frame.with_columns(pl.lit("new").alias("name"))
    shop.load("items", changed, replace=True, progress=False)
    assert {row["name"] for row in shop.scan("items")} == {"new"}


def test_a_bad_value_names_its_row_and_column(shop: Database, tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("id,price\n1,1.00\n2,2.00\n3,cheap\n4,4.00\n")
    with pytest.raises(InvalidRow, match=r"row 3: column price: 'cheap' is not a DECIMAL\(8,2\)"):
        shop.load("items", path, progress=False)
    assert len(shop.scan("items")) == 0
    with pytest.raises(InvalidRow, match="the 2 rows before this batch are loaded"):
        shop.load("items", path, progress=False, batch_rows=2)
    assert [row["id"] for row in shop.scan("items")] == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,price\n1,1.005\n", "1.005"),
        ("id,day\n1,yesterday\n", "is not a DATE"),
        ("id,at\n1,noon\n", "is not a TIMESTAMP"),
        ("id,good\n1,perhaps\n", "is not a BOOLEAN"),
        ("id\n1.5\n", "is not a BIGINT"),
        ("id,name\n,x\n", "id"),
        ("id,colour\n1,red\n", "no column colour"),
        ("name\nx\n", "key column id is missing"),
    ],
)
def test_bad_csv(shop: Database, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "items.csv"
    path.write_text(text)
    with pytest.raises(InvalidRow, match=message):
        shop.load("items", path, progress=False)
    assert len(shop.scan("items")) == 0


def test_bad_files(shop: Database, tmp_path: Path) -> None:
    with pytest.raises(InvalidRow, match="there is no file"):
        shop.load("items", tmp_path / "none.csv")
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(b"PAR1 nothing of the kind")
    with pytest.raises(InvalidRow, match=r"damaged.parquet is not a readable parquet file"):
        shop.load("items", damaged, progress=False)
    unknown = tmp_path / "items.xls"
    unknown.write_text("x")
    with pytest.raises(InvalidRow, match="give one of parquet, csv, arrow"):
        shop.load("items", unknown)
    with pytest.raises(InvalidRow, match="cannot load from int"):
        shop.load("items", 7)
    with pytest.raises(UnknownName):
        shop.load("itemz", unknown)


def test_lossy_conversions_are_refused(shop: Database) -> None:
    floats = pa.table({"id": [1], "price": [0.1]})
    with pytest.raises(InvalidRow, match=r"0\.1 is not exactly a DECIMAL.*round\(2\)\.cast"):
        shop.load("items", floats, progress=False)
    with pytest.raises(InvalidRow, match="takes no String"):
        shop.put("items", pl.DataFrame({"id": [1], "price": ["1.5"]}))
    late = pa.table({"id": [1], "day": pa.array([dt.datetime(2026, 1, 1, 5)])})
    with pytest.raises(InvalidRow, match="is not a DATE"):
        shop.load("items", late, progress=False)
    shop.load("items", pa.table({"id": pa.array([1.0, 2.0])}), progress=False)
    assert [row["id"] for row in shop.scan("items")] == [1, 2]


def test_a_decimal_takes_a_float_that_is_exact(shop: Database) -> None:
    """A float is m * 2**e; with two decimals, those are the quarters."""
    floats = [0.25, -7.5, 3.0, None, 123456.75]
    shop.put("items", pl.DataFrame({"id": range(5), "price": floats}))
    shop.put("items", {"id": 5, "price": 0.5})
    prices = [row["price"] for row in shop.scan("items")]
    assert prices == [None if x is None else Decimal(x) for x in [*floats, 0.5]]
    with pytest.raises(
        InvalidRow, match=r"the float 0\.3 is not exactly .* give Decimal\('0\.30'\)"
    ):
        shop.put("items", {"id": 6, "price": 0.3})
