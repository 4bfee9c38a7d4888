"""Queries that read no table of yours: of variables, of constants, of information_schema.

Law: they are answered by a DuckDB process of their own, which holds what the query names and
nothing else, and may touch neither files nor the network. They take bounded memory and time, and do
not wait for queries of tables and views.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from viewkeep.access.duckdb.pool import DuckError, DuckPool, DuckRelations
from viewkeep.deferred import pl
from viewkeep.engine.budget import MIB, Turns, of_query
from viewkeep.serve.mysql.catalog.information_schema import Information
from viewkeep.serve.mysql.dialect.rewrite import Surroundings, localise, name_columns, settle
from viewkeep.serve.mysql.faults import syntax
from viewkeep.serve.mysql.protocol.answers import Header, RowsAnswer, frame_rows
from viewkeep.serve.mysql.protocol.fields import field_of
from viewkeep.sql.duckdb_sql.likes import linear_likes

MEMORY = 128 * MIB  # bytes of one query
AT_ONCE = 4  # of them run at a time; others wait their turn
_PREFIX = "vk"


class System:
    """Answers the queries of all sessions about the server itself."""

    def __init__(self, information: Information):
        self._information = information
        self._turns = Turns(AT_ONCE * MEMORY)
        self._pool = DuckPool()

    def answer(self, tree: exp.Expr, around: Surroundings) -> RowsAnswer:
        """The rows of a query."""
        tree = tree.copy()
        localise(tree, around)
        names = _shown(tree)
        tree = settle(tree, around)
        constant = _constants(tree)
        if constant is not None:
            fields = [field_of(n, _type(v)) for n, v in zip(names, constant, strict=True)]
            return RowsAnswer(Header(fields), [tuple(constant)])
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
        text = linear_likes(tree).sql("duckdb", comments=False)
        with of_query() as around:
            budget = around.part(MEMORY, self._turns)
        with budget.applied(), DuckRelations(budget) as relations:
            for name, frame in frames.items():
                relations.add(name, frame.clear().to_arrow(), [frame])
            try:
                table = self._pool.run(text, relations, budget).table
            except DuckError as error:
                raise syntax(f"the query was not understood: {error}") from error
        if len(set(table.column_names)) < table.num_columns:  # a frame has each name once
            table = table.rename_columns([f"{n}#{i}" for i, n in enumerate(table.column_names)])
        found = pl.from_arrow(table)
        assert isinstance(found, pl.DataFrame)
        return found

    def close(self) -> None:
        """Let the memory go."""
        self._pool.close()


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
