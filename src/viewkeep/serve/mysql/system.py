"""Queries that read no table of yours: of variables, of constants, of information_schema.

Law: they are answered by a DuckDB of their own in memory, which holds what the query names and
nothing else, and may touch neither files nor the network. They take bounded memory and time.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from viewkeep.serve.mysql.answers import Header, Rows, frame_rows
from viewkeep.serve.mysql.dialect import Surroundings, localise, name_columns, settle
from viewkeep.serve.mysql.faults import Fault, syntax
from viewkeep.serve.mysql.fields import field_of
from viewkeep.serve.mysql.information import Information
from viewkeep.sql.likes import linear_likes

if TYPE_CHECKING:
    import duckdb

_CONFIG: dict[str, Any] = {
    "memory_limit": "256MB",
    "threads": "1",
    "enable_external_access": "false",
}
_PREFIX = "vk"


class System:
    """Answers the queries of all sessions about the server itself."""

    def __init__(self, information: Information, seconds: float):
        self._information, self._seconds = information, seconds
        self._lock = threading.Lock()
        self._base: duckdb.DuckDBPyConnection | None = None

    def answer(self, tree: exp.Expr, around: Surroundings) -> Rows:
        """The rows of a query."""
        tree = tree.copy()
        localise(tree, around)
        names = _shown(tree)
        tree = settle(tree, around)
        constant = _constants(tree)
        if constant is not None:
            fields = [field_of(n, _type(v)) for n, v in zip(names, constant, strict=True)]
            return Rows(Header(fields), [tuple(constant)])
        frames: dict[str, pl.DataFrame] = {}
        for table in tree.find_all(exp.Table):
            if not table.db:
                continue
            name = f"{_PREFIX}_{table.db}_{table.name}".lower()
            frames[name] = self._information.table(table.db.lower(), table.name.lower())
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
            table.set("db", None)
            table.set("this", exp.to_identifier(name))
        found = self.query(tree, frames)
        # A `*` has the names of the tables' columns.
        return frame_rows(found, names if len(names) == found.width else None)

    def filtered(self, frame: pl.DataFrame, where: exp.Expr) -> pl.DataFrame:
        """The rows of a frame that a WHERE of SHOW wants."""
        query = exp.select("*").from_("shown").where(where.this.copy())
        return self.query(query, {"shown": frame})

    def query(self, tree: exp.Expr, frames: dict[str, pl.DataFrame]) -> pl.DataFrame:
        """Run a query of MySQL's dialect over frames."""
        import duckdb

        text = linear_likes(tree).sql("duckdb", comments=False)
        connection = self._connect()
        timer = threading.Timer(self._seconds, connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            for name, frame in frames.items():
                connection.register(name, frame.to_arrow())
            found: pl.DataFrame = connection.sql(text).pl()
            return found
        except duckdb.InterruptException as error:
            raise Fault(3024, "HY000", "the query took too long") from error
        except duckdb.Error as error:
            raise syntax(f"the query was not understood: {str(error).splitlines()[0]}") from error
        finally:
            timer.cancel()
            connection.close()

    def close(self) -> None:
        """Let the memory go."""
        with self._lock:
            if self._base is not None:
                self._base.close()
                self._base = None

    def _connect(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        with self._lock:
            if self._base is None:
                self._base = duckdb.connect(":memory:", config=_CONFIG)
                self._base.execute("SET lock_configuration = true")
            return self._base.cursor()


def _shown(tree: exp.Expr) -> list[str]:
    names = name_columns(tree.copy())
    return [] if names is None else names


def _constants(tree: exp.Expr) -> list[Any] | None:
    """The values of a query of constants alone; None if it is more."""
    if not isinstance(tree, exp.Select):
        return None
    if any(value for name, value in tree.args.items() if name not in ("expressions", "limit")):
        return None
    values: list[Any] = []
    for item in tree.expressions:
        node = item.this if isinstance(item, exp.Alias) else item
        if isinstance(node, exp.Null):
            values.append(None)
        elif isinstance(node, exp.Literal):
            if not node.is_string and not node.name.isdecimal():
                return None
            values.append(node.name if node.is_string else int(node.name))
        else:
            return None
    return values


def _type(value: object) -> pl.DataType:
    if value is None:
        return pl.Null()
    return pl.Int64() if isinstance(value, int) else pl.String()
