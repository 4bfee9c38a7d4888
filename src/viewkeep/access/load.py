"""Bulk loading: files, Arrow tables or frames into a base table.

Law: memory stays bounded by the batch, whatever the size of the file; each batch is one write, and
a batch that holds a bad row is refused whole with the number of that row in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from viewkeep.access.files import DataFile, LoadBatches, data_files, sliced
from viewkeep.access.incoming import as_polars, conform, is_frame, parse_value
from viewkeep.access.writes import LOAD_ROWS, BaseTable
from viewkeep.deferred import pa
from viewkeep.errors import DuplicateKey, InvalidRow
from viewkeep.stores.contract import TableWrite


@dataclass(frozen=True)
class Loaded:
    """What a load did."""

    rows: int
    batches: int
    files: int = 0


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
    """Write the rows of files or of a table; with `replace`, rows of existing keys are replaced.

    Batches that were written before a refused one stay; the error says how many rows that is.
    """
    if not _are_paths(source):
        with _bar(progress, table.name) as step:
            given = _given(source, batch_rows)
            rows, batches = _load_batches(table, given, write, replace, step, 0)
        return Loaded(rows, batches)
    files = data_files(source, format)
    rows = batches = 0
    with _bar(progress, table.name) as step:
        for file in files:
            with file.open(batch_rows) as opened:
                given = with_constants(opened, file, table)
                name = str(file.path) if len(files) > 1 else ""
                added = _load_batches(table, given, write, replace, step, rows, name)
            rows, batches = rows + added[0], batches + added[1]
    return Loaded(rows, batches, len(files))


def checked_batch(
    table: BaseTable, batch: pa.RecordBatch, first_row: int, text: bool, replace: bool
) -> list[TableWrite]:
    """The writes of one batch; InvalidRow names the row by its number in the file."""
    frame = conform(
        table.schema, as_polars(batch), table=table.name, first_row=first_row, text=text
    )
    return table.put_frame(frame, absent=not replace, first_row=first_row)


def with_constants(given: LoadBatches, file: DataFile, table: BaseTable) -> LoadBatches:
    """The batches of a file with the columns that its folders' names give."""
    if not file.constants:
        return given
    added = []
    for name, text in file.constants:
        if table.schema.spelt(name) not in table.schema:
            raise InvalidRow(f"{file.path}: {table.name} has no column {name}")
        column = table.schema[table.schema.spelt(name)]
        if given.text:
            added.append((column.name, pa.string(), text))
        else:
            what = f"folder {name}={text}"
            value = None if text is None else parse_value(text, column.type, what)
            added.append((column.name, column.type.arrow, value))

    def widened(batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, type, value in added:
            array = pa.array([value], type).take(pa.array([0] * batch.num_rows, pa.int64()))
            batch = batch.append_column(name, array)
        return batch

    return LoadBatches(map(widened, given.batches), given.total, given.text)


def _load_batches(
    table: BaseTable,
    given: LoadBatches,
    write: Callable[[list[TableWrite]], object],
    replace: bool,
    step: Callable[[int, int | None], None],
    before: int,
    name: str = "",
) -> tuple[int, int]:
    """Write batch by batch; how many rows and batches."""
    rows = batches = 0
    step(0, given.total)
    for batch in given.batches:
        try:
            write(checked_batch(table, batch, rows + 1, given.text, replace))
        except (InvalidRow, DuplicateKey) as error:
            where = f"{name}: " if name else ""
            raise type(error)(f"{where}{error} ({_so_far(before + rows)})") from error
        rows += batch.num_rows
        batches += 1
        step(batch.num_rows, None)
    return rows, batches


def _so_far(rows: int) -> str:
    return f"the {rows:,} rows before this batch are loaded" if rows else "nothing was loaded"


def _are_paths(source: object) -> bool:
    if isinstance(source, (str, Path)):
        return True
    return isinstance(source, (list, tuple)) and all(isinstance(x, (str, Path)) for x in source)


def _given(source: Any, size: int) -> LoadBatches:
    """The record batches of a reader, table or frame."""
    if isinstance(source, pa.RecordBatchReader):
        return LoadBatches(sliced(iter(source), size))
    if is_frame(source):
        table = source if isinstance(source, pa.Table) else as_polars(source).to_arrow()
        return LoadBatches(iter(table.to_batches(max_chunksize=size)), table.num_rows)
    raise InvalidRow(
        f"cannot load from {type(source).__name__}; give a path, paths, a table or a frame"
    )


@contextmanager
def _bar(enabled: bool, name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar; the yielded function moves it on, and adds to the rows expected."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, disable=not enabled, transient=True) as progress:
        task = progress.add_task(f"loading {name}", total=None)

        def step(rows: int, expected: int | None) -> None:
            if expected is not None:
                progress.update(task, total=(progress.tasks[0].total or 0) + expected)
            progress.advance(task, rows)

        yield step
