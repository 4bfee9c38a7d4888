"""A task that any system can be given: queries over tables, and the changes that fill the tables.

Law: the expected rows are DuckDB's, over the rows that the changes leave; no system under test is
asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import duckdb
import polars as pl
from peers.contract import Source

from suite.contract import Result

PARTS = 20  # files per table
ANSWER = "answer"


@dataclass(frozen=True)
class Change:
    """One write: rows put into a table and then keys deleted from it."""

    table: str
    puts: pl.DataFrame | None = None
    deletes: pl.Series | None = None

    @property
    def operations(self) -> int:
        return sum(len(part) for part in (self.puts, self.deletes) if part is not None)


@dataclass(frozen=True)
class Task:
    """Views over tables whose first column is their key. `history` makes the changes, seeded."""

    name: str
    tables: Mapping[str, Mapping[str, str]]  # table -> column -> SQL type
    views: Mapping[str, str]
    history: Callable[[], list[Change]] = field(repr=False)
    digest: bool = False  # compare counts and sums of the views, not their rows

    @cached_property
    def changes(self) -> list[Change]:
        return self.history()

    @property
    def operations(self) -> int:
        return sum(change.operations for change in self.changes)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the one view."""
        (frame,) = self.expected().values()
        return tuple(frame.columns)

    def final(self) -> dict[str, pl.DataFrame]:
        """The rows of the tables after all changes."""
        return {name: _replay(name, columns, self.changes) for name, columns in self.tables.items()}

    def expected(self) -> Result:
        """The rows of every view by DuckDB."""
        with duckdb.connect() as oracle:
            for name, frame in self.final().items():
                oracle.register(name, frame.to_arrow())
            found = {
                name: pl.DataFrame(oracle.sql(sql).to_arrow_table())
                for name, sql in self.views.items()
            }
        return {name: digest(frame) for name, frame in found.items()} if self.digest else found

    def files(self, folder: Path) -> dict[str, Source]:
        """The tables as files for the peers, CSV and Parquet, in a folder of their own."""
        sources = {}
        for name, frame in self.final().items():
            place = folder / name
            for kind in ("csv", "csv-headed", "parquet"):
                (place / kind).mkdir(parents=True)
            rows = max(1, -(-len(frame) // PARTS))
            for number, part in enumerate(frame.iter_slices(rows)):
                part.write_csv(place / "csv" / f"{number:03}.csv", include_header=False)
                part.write_csv(place / "csv-headed" / f"{number:03}.csv")
                part.write_parquet(place / "parquet" / f"{number:03}.parquet")
            sources[name] = Source(str(place), dict(self.tables[name]), len(frame))
        return sources


def inserts(rows: int = 20_000, /, **frames: pl.DataFrame) -> list[Change]:
    """Changes that put the rows of some tables, batch by batch."""
    return [
        Change(table, part) for table, frame in frames.items() for part in frame.iter_slices(rows)
    ]


def digest(frame: pl.DataFrame) -> pl.DataFrame:
    """The number of rows and the sum of every column of numbers."""
    sums = [pl.col(name).sum() for name in sorted(frame.columns) if frame[name].dtype.is_numeric()]
    return frame.select(pl.len().cast(pl.Int64).alias("rows"), *sums)


def _replay(table: str, columns: Mapping[str, str], changes: list[Change]) -> pl.DataFrame:
    """The last put of every key that no later deletion follows."""
    key, parts = next(iter(columns)), list[pl.DataFrame]()
    for change in changes:
        if change.table != table:
            continue
        if change.puts is not None:
            parts.append(change.puts.with_columns(pl.lit(True).alias("_kept")))
        if change.deletes is not None:
            gone = change.deletes.alias(key).to_frame()
            parts.append(gone.with_columns(pl.lit(False).alias("_kept")))
    history = pl.concat(parts, how="diagonal")
    last = history.unique(key, keep="last", maintain_order=True)
    return last.filter("_kept").select(list(columns))
