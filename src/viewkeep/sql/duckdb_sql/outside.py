"""A SELECT that no view can be kept by, in the words of DuckDB, which answers it once.

Law: only tables and views of the catalog are read, by their names. DuckDB is asked only what it
means as Spark does (`agreed`); functions that read files or other sources are not among that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from viewkeep.errors import SqlError
from viewkeep.expr import Expr
from viewkeep.plan.nodes import Source, View
from viewkeep.sql.duckdb_sql.agreed import check
from viewkeep.sql.duckdb_sql.likes import linear_likes
from viewkeep.sql.expressions.canonical import conjunction
from viewkeep.sql.expressions.scalars import predicate
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.scope import scope_of
from viewkeep.types import Column, DataType


@dataclass(frozen=True)
class Outside:
    """The text for DuckDB, and of each relation the columns it may need and a condition on them.

    A condition holds for all rows that matter: it tells which keys are worth reading.
    """

    text: str
    columns: Mapping[str, tuple[Column, ...]]
    conditions: Mapping[str, Expr | None]


def outside(tree: exp.Expr, find: Callable[[str], Source | View | None]) -> Outside | None:
    """The query for DuckDB; None if it is not one that it may answer.

    Raises DiffersError if it may mean something else there.
    """
    if tree.find(exp.Placeholder) is not None:
        return None
    names = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    relations: dict[str, Source | View] = {}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.args.get("db") is not None:
            return None
        name = table.name.lower()
        relation = find(name)
        if relation is not None:
            relations[name] = relation
        elif name not in names:
            return None
    try:
        check(tree, {name: _typed(relation) for name, relation in relations.items()})
        written = _adapted(sqlglot.parse_one(text_of(tree), read="spark"))
        # Quoted, because DuckDB reserves other words than Spark.
        text = written.sql("duckdb", identify=True, unsupported_level=ErrorLevel.RAISE)
    except (SqlglotError, RecursionError, ValueError):
        return None
    columns = {}
    for name, relation in relations.items():
        needed = _columns(tree, _shown(relation))
        columns[name] = tuple(relation.schema[column] for column in needed)
    return Outside(text, columns, _conditions(tree, relations))


def _adapted(tree: exp.Expr) -> exp.Expr:
    """The tree with what DuckDB means otherwise in words by which it means the same."""
    for node in list(tree.find_all(exp.ArrayAgg)):
        # Spark makes an empty array of no values.
        node.replace(exp.Coalesce(this=node.copy(), expressions=[exp.Array(expressions=[])]))
    for rest in list(tree.find_all(exp.Mod)):
        divisor = exp.Nullif(this=rest.expression.copy(), expression=exp.Literal.number(0))
        rest.set("expression", divisor)
    return linear_likes(tree)


def _typed(relation: Source | View) -> list[tuple[str, DataType]]:
    return [(name, relation.schema[name].type) for name in _shown(relation)]


def _shown(relation: Source | View) -> tuple[str, ...]:
    return relation.visible if isinstance(relation, View) else relation.schema.names


def _columns(tree: exp.Expr, shown: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a query may name; at least one, so that rows can be counted."""
    counted = {id(call.this) for call in tree.find_all(exp.Count)}
    counted |= {
        id(argument)
        for call in tree.find_all(exp.Anonymous)
        if call.name.lower() == "count"
        for argument in call.expressions
    }
    stars = [star for star in tree.find_all(exp.Star) if id(star) not in counted]
    natural = any(join.args.get("method") for join in tree.find_all(exp.Join))
    renamed = any(alias.columns for alias in tree.find_all(exp.TableAlias))
    if stars or natural or renamed:
        return shown  # columns are matched by place, or without being named
    named = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    return tuple(name for name in shown if name in named) or shown[:1]


def _conditions(tree: exp.Expr, relations: Mapping[str, Source | View]) -> dict[str, Expr | None]:
    """What WHERE says of the rows of the only relation; nothing where several parts read them."""
    found: dict[str, Expr | None] = dict.fromkeys(relations)
    selects, tables = list(tree.find_all(exp.Select)), list(tree.find_all(exp.Table))
    where = tree.args.get("where")
    if len(selects) != 1 or selects[0] is not tree or len(tables) != 1 or where is None:
        return found
    (name,) = relations
    scope = scope_of(relations[name], (tables[0].alias or name).lower())
    parts = []
    for part in _parts(where.this):
        try:
            parts.append(predicate(part, scope.leaf))
        except (SqlError, RecursionError):
            continue  # DuckDB sees to it
    if parts:
        found[name] = conjunction(parts)
    return found


def _parts(tree: exp.Expr) -> list[exp.Expr]:
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if isinstance(tree, exp.And):
        return [*_parts(tree.this), *_parts(tree.expression)]
    return [tree]
