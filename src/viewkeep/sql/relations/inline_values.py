"""VALUES in FROM, and queries without FROM: rows that are written in the query.

Law: every value is a constant of its column's type, which is the common type of the column's
values. Columns are called col1, col2 and so on unless they are named.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeep.errors import TypeMismatch, Unsupported
from viewkeep.expr import Expr, Lit, Ref
from viewkeep.ops.functions import VOID, cast_to
from viewkeep.ops.functions.coercion import widest
from viewkeep.plan.nodes import Values
from viewkeep.sql.expressions.canonical import fold
from viewkeep.sql.expressions.scalars import lower
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.scope import Scope, relation_scope
from viewkeep.types import INT, Column

_ROW = "#row"
NOTHING = Values((Column(_ROW, INT, False),), ((0,),), ())
"""The one row of a query without FROM."""


def values_scope(tree: exp.Values, alias: str) -> Scope:
    """The scope of VALUES."""
    rows = [_row(row) for row in tree.expressions]
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        raise Unsupported("the rows of VALUES differ in their number", fragment=text_of(tree))
    columns = [Column(_ROW, INT, False)]
    made: list[list[Lit]] = []
    for place in range(widths.pop()):
        name, given = f"col{place + 1}", [row[place] for row in rows]
        type_ = widest(lit.type for lit in given)
        if type_ is None or type_ == VOID:
            raise TypeMismatch(
                f"the values of {name} have no common type",
                fragment=text_of(tree),
                hint="Write a CAST in one of the rows",
            )
        cast = [fold(cast_to(lit, type_)) for lit in given]
        made.append([lit for lit in cast if isinstance(lit, Lit)])
        columns.append(Column(name, type_))
    numbered = [(place, *(column[place].value for column in made)) for place in range(len(rows))]
    node = Values(tuple(columns), tuple(numbered), (_ROW,))
    shown = {column.name: Ref(column.name, column.type) for column in columns[1:]}
    return relation_scope(node, shown, alias)


def _row(tree: exp.Expr) -> list[Lit]:
    values = tree.expressions if isinstance(tree, exp.Tuple) else [tree]
    return [_constant(value) for value in values]


def _constant(tree: exp.Expr) -> Lit:
    made: Expr = lower(tree, _no_columns)
    if not isinstance(made, Lit):
        raise Unsupported("VALUES takes constants", fragment=text_of(tree))
    return made


def _no_columns(tree: exp.Expr) -> Expr | None:
    if isinstance(tree, exp.Column):
        raise Unsupported(
            "VALUES takes constants", fragment=text_of(tree), hint="Quote text as 'text'"
        )
    return None
