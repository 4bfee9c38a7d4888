"""Exports: the rows of a table or view as a Parquet, CSV, Arrow or SQL file.

Law: a file holds the rows of one cut in key order, and memory stays bounded by a chunk, whatever
their number. A file that is there is whole: it is written under another name first.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from viewkeep.access.definitions import create_table
from viewkeep.access.ranges import CHUNK, EVERYTHING
from viewkeep.access.reads import At, DatabaseReader
from viewkeep.access.relations import TableRelation
from viewkeep.deferred import pa, pl
from viewkeep.errors import InvalidRow, UnknownName

if TYPE_CHECKING:
    from viewkeep.access.relations import ViewRelation

EXPORTS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".sql": "sql",
}
_INSERT_ROWS = 500  # rows of an INSERT statement

Write: TypeAlias = "Callable[[pl.DataFrame], None]"


def export(
    reader: DatabaseReader,
    name: str,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    at: At | None = None,
    on_rows: Callable[[int], None] = lambda _: None,
) -> int:
    """Write all rows of a table or view to a file; the number of rows.

    Views are read at the published epoch, tables as they are now unless `at` is "stable".
    """
    target = Path(path)
    kind = format or EXPORTS.get(target.suffix.lower())
    if kind is None or kind not in _WRITERS:
        raise InvalidRow(
            f"the format of {target.name} is not known; give one of parquet, csv, arrow, sql"
        )
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    try:
        rows = _export(reader, name.lower(), draft, kind, at, on_rows)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    return rows


def _export(
    reader: DatabaseReader,
    name: str,
    path: Path,
    kind: str,
    at: At | None,
    on_rows: Callable[[int], None],
) -> int:
    rows = 0
    with reader.snapshot() as snapshot:
        is_view = reader.is_view(name)
        point = snapshot.point if is_view or at == "stable" else reader.head()
        relation = reader.open(name, point)
        if kind == "sql" and not isinstance(relation, TableRelation):
            raise UnknownName(
                f"{name} is a view, and INSERT statements would not make it again",
                hint="Export it as parquet or csv, or export the tables that it reads",
            )
        with _WRITERS[kind](path, relation) as write:
            walk = (row for _, row in reader.walk_at(relation, EVERYTHING, point))
            while chunk := list(islice(walk, CHUNK)):
                write(relation.frame(chunk))
                rows += len(chunk)
                on_rows(len(chunk))
    return rows


def _visible(relation: ViewRelation | TableRelation) -> pa.Schema:
    """The Arrow schema of the rows, as `frame` gives them."""
    return relation.frame([]).to_arrow().schema


@contextmanager
def _parquet(path: Path, relation: ViewRelation | TableRelation) -> Iterator[Write]:
    import pyarrow.parquet as pq

    schema = _visible(relation)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield lambda frame: writer.write_table(frame.to_arrow().cast(schema))


@contextmanager
def _arrow(path: Path, relation: ViewRelation | TableRelation) -> Iterator[Write]:
    schema = _visible(relation)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        yield lambda frame: writer.write_table(frame.to_arrow().cast(schema))


@contextmanager
def _csv(path: Path, relation: ViewRelation | TableRelation) -> Iterator[Write]:
    """As `load` reads it: a header, NULL as an empty field, BINARY in hex."""
    with path.open("wb") as file:
        relation.frame([]).write_csv(file)

        def write(frame: pl.DataFrame) -> None:
            hexed = [pl.col(pl.Binary).bin.encode("hex")]
            frame.with_columns(hexed).write_csv(file, include_header=False)

        yield write


@contextmanager
def _sql(path: Path, relation: ViewRelation | TableRelation) -> Iterator[Write]:
    assert isinstance(relation, TableRelation)
    schema = relation.schema
    names = ", ".join(f"`{name}`" for name in schema.names)
    with path.open("w", encoding="utf-8") as file:
        file.write(create_table(relation.name, schema) + ";\n")

        def write(frame: pl.DataFrame) -> None:
            for piece in frame.iter_slices(_INSERT_ROWS):
                rows = ",\n".join(_row(row) for row in piece.rows())
                file.write(f"INSERT INTO `{relation.name}` ({names}) VALUES\n{rows};\n")

        yield write


_WRITERS = {"parquet": _parquet, "csv": _csv, "arrow": _arrow, "sql": _sql}


def _row(values: tuple[object, ...]) -> str:
    return f"({', '.join(map(_literal, values))})"


def _literal(value: object) -> str:
    """A value as a constant of Spark SQL."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | Decimal():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            return f"TIMESTAMP'{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE'{value.isoformat()}'"
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
