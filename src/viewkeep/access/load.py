"""Bulk loading: Parquet, CSV and Arrow files, or Arrow tables, into a base table.

Law: memory stays bounded by the batch, whatever the size of the file; each batch is one write, and
a batch that holds a bad row is refused whole with the number of that row in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from viewkeep.access.incoming import as_polars, conform, is_frame
from viewkeep.access.writes import LOAD_ROWS, BaseTable
from viewkeep.errors import DuplicateKey, InvalidRow
from viewkeep.stores.contract import TableWrite

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


@dataclass(frozen=True)
class Loaded:
    """What a load did."""

    rows: int
    batches: int


@dataclass(frozen=True)
class LoadBatches:
    """Record batches to load. `text`: values are strings to be parsed, as in a CSV file."""

    batches: Iterator[pa.RecordBatch]
    total: int | None = None
    text: bool = False


def load(
    table: BaseTable,
    source: Any,
    write: Callable[[list[TableWrite]], object],
    *,
    format: str | None = None,
    replace: bool = False,
    progress: bool = True,
    batch_rows: int = LOAD_ROWS,
) -> Loaded:
    """Write the rows of a file or Arrow table; with `replace`, rows of existing keys are replaced.

    Batches that were written before a refused one stay; the error says how many rows that is.
    """
    rows = batches = 0
    with _batches(source, format, batch_rows) as given, _bar(progress, table.name, given) as step:
        for batch in given.batches:
            try:
                frame = conform(
                    table.schema,
                    as_polars(batch),
                    table=table.name,
                    first_row=rows + 1,
                    text=given.text,
                )
                write(table.put_frame(frame, absent=not replace, first_row=rows + 1))
            except (InvalidRow, DuplicateKey) as error:
                raise type(error)(f"{error} ({_so_far(rows)})") from error
            rows += batch.num_rows
            batches += 1
            step(batch.num_rows)
    return Loaded(rows, batches)


def _so_far(rows: int) -> str:
    return f"the {rows:,} rows before this batch are loaded" if rows else "nothing was loaded"


@contextmanager
def _batches(source: Any, format: str | None, size: int) -> Iterator[LoadBatches]:
    """The record batches of a source; its file is closed at the end."""
    if isinstance(source, (str, Path)):
        path = Path(source)
        kind = format or FORMATS.get(path.suffix.lower())
        if not path.is_file():
            raise InvalidRow(f"there is no file {path}")
        opener = {"parquet": _parquet, "csv": _csv, "arrow": _arrow}.get(kind or "")
        if opener is None:
            raise InvalidRow(
                f"the format of {path.name} is not known; give one of parquet, csv, arrow"
            )
        try:
            with opener(path, size) as given:
                yield given
        except pa.ArrowInvalid as error:
            raise InvalidRow(f"{path.name} is not a readable {kind} file: {error}") from error
    elif isinstance(source, pa.RecordBatchReader):
        yield LoadBatches(_sliced(iter(source), size))
    elif is_frame(source):
        table = source if isinstance(source, pa.Table) else as_polars(source).to_arrow()
        yield LoadBatches(iter(table.to_batches(max_chunksize=size)), table.num_rows)
    else:
        raise InvalidRow(f"cannot load from {type(source).__name__}; give a path, table or frame")


@contextmanager
def _parquet(path: Path, size: int) -> Iterator[LoadBatches]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield LoadBatches(file.iter_batches(batch_size=size), file.metadata.num_rows)


@contextmanager
def _csv(path: Path, size: int) -> Iterator[LoadBatches]:
    """All columns as text: the schema says what they mean, and a bad value gets its row number."""
    from pyarrow import csv

    with path.open("rb") as file:
        header = file.readline().decode("utf-8-sig").strip()
    names = next(iter(_fields(header)), [])
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
    )
    with csv.open_csv(path, convert_options=convert) as reader:
        yield LoadBatches(_sliced(iter(reader), size), text=True)


def _fields(line: str) -> Iterator[list[str]]:
    import csv

    yield from csv.reader([line])


@contextmanager
def _arrow(path: Path, size: int) -> Iterator[LoadBatches]:
    with pa.memory_map(str(path)) as mapped:
        try:
            file = pa.ipc.open_file(mapped)
        except pa.ArrowInvalid:
            yield LoadBatches(_sliced(iter(pa.ipc.open_stream(mapped)), size))
            return
        parts = (file.get_batch(index) for index in range(file.num_record_batches))
        yield LoadBatches(_sliced(parts, size))


def _sliced(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The batches cut to at most `size` rows."""
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)


@contextmanager
def _bar(enabled: bool, name: str, given: LoadBatches) -> Iterator[Callable[[int], None]]:
    """A progress bar; the yielded function moves it on."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, disable=not enabled, transient=True) as progress:
        task = progress.add_task(f"loading {name}", total=given.total)
        yield lambda rows: progress.advance(task, rows)
