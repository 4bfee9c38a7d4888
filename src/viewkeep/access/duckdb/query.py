"""Queries that our operators do not answer, answered by DuckDB over rows read at one point.

Law: DuckDB sees the rows of the relations that the query names, at one point, and nothing else. It
runs in a process of its own (`duck_pool`), within the budget of the query; what would be more ends
with an error that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewkeep.access.duckdb.pool import POOL, DuckError, DuckRelations
from viewkeep.access.reads import At, DatabaseReader, ReadPoint
from viewkeep.access.relations import TableRelation, ViewRelation
from viewkeep.access.statements.queries import BY_SCAN, QueryAnswer, source_ranges
from viewkeep.deferred import pa, pl
from viewkeep.engine import budget
from viewkeep.errors import QueryTooLarge, SqlError, UnknownName, Unsupported
from viewkeep.sql.duckdb_sql.outside import Outside
from viewkeep.types import DataType

MOST_ROWS = 5_000_000  # read for a query

_HINT = "Narrow what is read by its key, or create a view that has less"
_CAST = "CAST it to one of the types of columns"


class DuckQuery:
    """A query that DuckDB has accepted, with the error for which our analysis refused it."""

    def __init__(self, query: Outside, refused: SqlError):
        self._query, self._refused = query, refused
        with budget.of_query() as allowed, DuckRelations(allowed) as relations:
            for name, columns in query.columns.items():
                schema = pa.schema([(column.name, column.type.arrow) for column in columns])
                relations.add(name, schema.empty_table())
            try:
                asked = POOL.describe(query.text, relations, allowed)
            except DuckError as error:
                raise self._blamed(error) from refused
        self._names = [name.lower() for name in asked.names]
        self._types = [_Taken(name) for name in asked.types]
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

    def run(self, reader: DatabaseReader, at: At | None, views: bool) -> QueryAnswer:
        """The rows, all relations read at one point; `views` tells whether one is a view."""
        if at is None:
            at = "stable" if views else "latest"
        with budget.of_query() as allowed, DuckRelations(allowed) as relations:
            # Before anything is read: what waits for its turn holds nothing.
            allowed.take_turn()

            def read(point: ReadPoint) -> tuple[dict[str, str], int | None]:
                return self._read(reader, point, relations), point.epoch

            if at == "latest" and not views:
                ways, epoch = reader.at_head(read)
            else:
                ways, epoch = reader.run_at(at, read)
            try:
                table = POOL.run(self._query.text, relations, allowed).table
            except DuckError as error:
                raise self._blamed(error) from self._refused
        taken = zip(self._names, self._types, table.columns, strict=True)
        rows = pl.DataFrame([type_.series(name, column) for name, type_, column in taken])
        return QueryAnswer(rows, _how(ways), epoch)

    def _read(
        self, reader: DatabaseReader, point: ReadPoint, into: DuckRelations
    ) -> dict[str, str]:
        """Read what the query names; how each relation was read."""
        into.clear()  # of what an attempt before has read
        ways, left = {}, MOST_ROWS

        def frames(
            relation: TableRelation | ViewRelation, columns: Sequence[str]
        ) -> Iterator[pl.DataFrame]:
            nonlocal left
            ranges, ways[relation.name] = source_ranges(
                relation, [self._query.conditions[relation.name]]
            )
            for bounds in ranges:
                for pairs in reader.chunks_at(relation, bounds, point):
                    left -= len(pairs)
                    if left < 0:
                        raise QueryTooLarge(
                            f"the query reads more than {MOST_ROWS:,} rows, which is the limit "
                            "where DuckDB answers",
                            hint=_HINT,
                        )
                    yield relation.frame([row for _, row in pairs], columns)

        for name, needed in self._query.columns.items():
            relation = reader.open_as(name, point, needed)
            columns = [column.name for column in needed]
            empty = relation.frame([], columns).to_arrow()
            into.add(name, empty, frames(relation, columns))
        return ways

    def _blamed(self, error: DuckError) -> SqlError:
        """Our own reason, with what DuckDB says of the query."""
        refused = self._refused
        if isinstance(refused, UnknownName):
            return refused
        reason = f"{refused.reason}; and DuckDB says: {error}"
        return type(refused)(reason, fragment=refused.fragment, hint=refused.hint)


def _how(ways: dict[str, str]) -> str:
    if not ways:
        return "by DuckDB"
    if len(ways) > 1 and set(ways.values()) == {BY_SCAN}:
        return f"by DuckDB over {', '.join(sorted(ways))} by scanning them"
    return f"by DuckDB over {', '.join(f'{name} {ways[name]}' for name in sorted(ways))}"


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
