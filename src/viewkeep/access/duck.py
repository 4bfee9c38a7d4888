"""Queries that our operators do not answer, answered by DuckDB over rows read at one point.

Law: DuckDB sees the rows of the relations that the query names, at one point, and nothing else: it
may not read files, reach the network, load extensions or change its settings. Rows, memory and time
are bounded; what would be more ends with an error that says so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl
import pyarrow as pa

from viewkeep.access.queries import BY_SCAN, Answer, source_ranges
from viewkeep.access.readers import TableReader, ViewReader
from viewkeep.access.reads import At, Reader, ReadPoint
from viewkeep.errors import SqlError, Timeout, UnknownName, Unsupported
from viewkeep.sql.outside import Outside
from viewkeep.types import DataType

MOST_ROWS = 5_000_000  # read for a query
MOST_RESULTS = 1_000_000  # given back by it
MOST_BYTES = 256 << 20  # of what is given back
MOST_MEMORY = "2GB"
MOST_SECONDS = 30.0

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # Python variables are no tables
    "memory_limit": MOST_MEMORY,
    "temp_directory": "",
    "threads": "2",
}
_BATCH = 100_000
_HINT = "Narrow what is read by its key, or create a view that has less"
_CAST = "CAST it to one of the types of columns"


class DuckQuery:
    """A query that DuckDB has accepted, with the error for which our analysis refused it."""

    def __init__(self, query: Outside, refused: SqlError):
        self._query, self._refused = query, refused
        with _connection() as duck:
            try:
                for name, columns in query.columns.items():
                    schema = pa.schema([(column.name, column.type.arrow) for column in columns])
                    duck.register(name, schema.empty_table())
                asked = duck.sql(query.text)
                self._names = [name.lower() for name in asked.columns]
                self._types = [_Taken(str(type_)) for type_ in asked.types]
            except _errors() as error:
                raise self._blamed(error) from refused
        if len(set(self._names)) < len(self._names):
            raise refused

    @property
    def columns(self) -> list[tuple[str, DataType]]:
        """The names and types of the columns."""
        return [(n, taken.type) for n, taken in zip(self._names, self._types, strict=True)]

    @property
    def relations(self) -> Sequence[str]:
        """The names of what it reads."""
        return list(self._query.columns)

    def run(self, reader: Reader, at: At | None, views: bool) -> Answer:
        """The rows, all relations read at one point; `views` tells whether one is a view."""
        if at is None:
            at = "stable" if views else "latest"
        if at == "latest" and not views:
            frames, ways, epoch = reader.at_head(lambda point: self._read(reader, point))
        else:
            frames, ways, epoch = reader.run_at(at, lambda point: self._read(reader, point))
        with _connection() as duck:
            try:
                for name, frame in frames.items():
                    duck.register(name, frame.to_arrow())
                table = _fetched(duck, self._query.text)
            except _errors() as error:
                raise self._blamed(error) from self._refused
        taken = zip(self._names, self._types, table.columns, strict=True)
        rows = pl.DataFrame([type_.series(name, column) for name, type_, column in taken])
        return Answer(rows, _how(ways), epoch)

    def _read(
        self, reader: Reader, point: ReadPoint
    ) -> tuple[dict[str, pl.DataFrame], dict[str, str], int | None]:
        frames, ways, left = {}, {}, MOST_ROWS
        for name, needed in self._query.columns.items():
            relation, columns = reader.open(name, point), [column.name for column in needed]
            frames[name], ways[name] = self._frame(reader, relation, columns, point, left)
            left -= frames[name].height
        return frames, ways, point.epoch

    def _frame(
        self,
        reader: Reader,
        relation: TableReader | ViewReader,
        columns: Sequence[str],
        point: ReadPoint,
        most: int,
    ) -> tuple[pl.DataFrame, str]:
        """The columns of a relation that are needed, read a chunk at a time."""
        ranges, how = source_ranges(relation, [self._query.conditions[relation.name]])
        frames = [relation.frame([], columns)]
        for bounds in ranges:
            if isinstance(relation, ViewReader):
                chunks = relation.chunks(reader.store, bounds, point.epoch)
            else:
                chunks = relation.chunks(reader.store, bounds, point.cut)
            for pairs in chunks:
                most -= len(pairs)
                if most < 0:
                    raise Unsupported(
                        f"the query reads more than {MOST_ROWS:,} rows, which is the limit where "
                        "DuckDB answers",
                        hint=_HINT,
                    )
                frames.append(relation.frame([row for _, row in pairs], columns))
        return pl.concat(frames), how

    def _blamed(self, error: Exception) -> SqlError | Timeout:
        """Our own reason, with what DuckDB says of the query."""
        kind, said = type(error).__name__, str(error).strip().splitlines()
        if kind == "InterruptException":
            return Timeout(f"the query took DuckDB more than {MOST_SECONDS:g} s")
        if kind == "OutOfMemoryException":
            return Unsupported(
                f"the query needs more than {MOST_MEMORY} of memory in DuckDB", hint=_HINT
            )
        refused = self._refused
        if isinstance(refused, UnknownName):
            return refused
        reason = f"{refused.reason}; and DuckDB says: {said[0] if said else kind}"
        return type(refused)(reason, fragment=refused.fragment, hint=refused.hint)


def _how(ways: dict[str, str]) -> str:
    if not ways:
        return "by DuckDB"
    if len(ways) > 1 and set(ways.values()) == {BY_SCAN}:
        return f"by DuckDB over {', '.join(sorted(ways))} by scanning them"
    return f"by DuckDB over {', '.join(f'{name} {ways[name]}' for name in sorted(ways))}"


def _errors() -> type[Exception]:
    import duckdb

    error: type[Exception] = duckdb.Error
    return error


@contextmanager
def _connection() -> Iterator[Any]:
    """An empty DuckDB in memory that can reach nothing outside, stopped when its time is over."""
    import duckdb

    connection = duckdb.connect(":memory:", config=_SETTINGS)
    timer = threading.Timer(MOST_SECONDS, connection.interrupt)
    timer.daemon = True
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET lock_configuration = true")
        timer.start()
        yield connection
    finally:
        timer.cancel()
        connection.close()


def _fetched(connection: Any, text: str) -> pa.Table:
    reader = connection.sql(text).to_arrow_reader(_BATCH)
    batches, count, size = [], 0, 0
    for batch in reader:
        count += batch.num_rows
        size += batch.nbytes
        if size > MOST_BYTES:
            raise Unsupported(
                f"the query gives more than {MOST_BYTES:,} bytes, which is the limit where DuckDB "
                "answers",
                hint="Add a LIMIT, or aggregate",
            )
        if count > MOST_RESULTS:
            raise Unsupported(
                f"the query gives more than {MOST_RESULTS:,} rows, which is the limit where DuckDB "
                "answers",
                hint="Add a LIMIT, or aggregate",
            )
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


class _Taken:
    """A column of DuckDB in one of our types: the narrowest that holds all its values."""

    _TYPES = {
        "BOOLEAN": "BOOLEAN",
        "TINYINT": "INT",
        "SMALLINT": "INT",
        "INTEGER": "INT",
        "UTINYINT": "INT",
        "USMALLINT": "INT",
        "UINTEGER": "BIGINT",
        "BIGINT": "BIGINT",
        "UBIGINT": "BIGINT",
        "HUGEINT": "BIGINT",  # what SUM of integers is; BIGINT in Spark
        "UHUGEINT": "BIGINT",
        "FLOAT": "DOUBLE",
        "DOUBLE": "DOUBLE",
        "VARCHAR": "STRING",
        "UUID": "STRING",
        '"NULL"': "STRING",
        "BLOB": "BINARY",
        "DATE": "DATE",
        "TIMESTAMP": "TIMESTAMP",
        "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
        "TIMESTAMP_S": "TIMESTAMP",
        "TIMESTAMP_MS": "TIMESTAMP",
        "TIMESTAMP_NS": "TIMESTAMP",
    }

    def __init__(self, name: str):
        self._name = name
        self.type = self._ours(name)

    def series(self, name: str, column: pa.ChunkedArray) -> pl.Series:
        """A column in our type; a number that does not fit is an error, never a wrong one."""
        if self._name == "TIMESTAMP WITH TIME ZONE":
            column = column.cast(pa.timestamp("us"))
        elif self._name == "UUID":
            column = column.cast(pa.string())
        series = pl.Series(name, column)
        try:
            return series.cast(self.type.polars)
        except pl.exceptions.InvalidOperationError as error:
            raise Unsupported(
                f"column {name} is {self._name} in DuckDB and has a value that no {self.type} can "
                "hold",
                hint=_CAST,
            ) from error

    def _ours(self, name: str) -> DataType:
        if name.endswith("[]"):
            inner = self._ours(name[:-2])
            if not inner.is_array:
                return DataType(f"ARRAY<{inner}>")
        elif name in self._TYPES:
            return DataType(self._TYPES[name])
        elif name.startswith("DECIMAL("):
            return DataType.parse(name.replace(" ", ""))
        elif name.startswith("ENUM("):
            return DataType("STRING")
        raise Unsupported(f"a column is {name}, which is no type here", hint=_CAST)
