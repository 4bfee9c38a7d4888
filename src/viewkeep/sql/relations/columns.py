"""Plan nodes with the columns and the rows that a query asks for: one Project, one Filter.

Columns are named by the text of what they compute. A text that is taken gets a mark, so that two
columns of a node never share a name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from viewkeep.expr import Expr, Lit, Ref, unused
from viewkeep.plan.nodes import Filter, Named, Node, Project
from viewkeep.sql.expressions.canonical import conjunction, conjuncts
from viewkeep.sql.relations.top_rows import first_rows
from viewkeep.types import BOOLEAN


def named(exprs: Iterable[Expr], taken: Collection[str] = ()) -> dict[Expr, str]:
    """A column name for each expression; a column keeps its own, others avoid those taken."""
    exprs = list(exprs)
    used = {*taken, *(expr.name for expr in exprs if isinstance(expr, Ref))}
    names: dict[Expr, str] = {}
    for expr in exprs:
        if isinstance(expr, Ref):
            names[expr] = expr.name
        elif expr not in names:
            names[expr] = unused(str(expr), used)
            used.add(names[expr])
    return names


def with_columns(node: Node, wanted: Sequence[Expr]) -> tuple[Node, dict[Expr, str]]:
    """A node in which each expression is a column, and the names of those columns."""
    types = {column.name: column.type for column in node.columns}
    names = named(wanted, types)
    if all(isinstance(expr, Ref) for expr in wanted):
        return node, names
    outputs = {name: Named(name, Ref(name, types[name])) for name in node.row_key}
    outputs |= {name: Named(name, expr) for expr, name in names.items() if name not in outputs}
    return Project(node, tuple(outputs[name] for name in sorted(outputs))), names


def computed(node: Node, wanted: Sequence[Expr]) -> tuple[Node, dict[Expr, str]]:
    """A node with all its columns in which each expression is a column too, and their names."""
    types = {column.name: column.type for column in node.columns}
    names = named(wanted, types)
    made = {name: Named(name, expr) for expr, name in names.items() if name not in types}
    if not made:
        return node, names
    own = tuple(Named(name, Ref(name, type_)) for name, type_ in types.items())
    return Project(node, own + tuple(made[name] for name in sorted(made))), names


def filtered(node: Node, condition: Expr) -> Node:
    """The rows of a node for which a condition is true; one Filter, however many conditions.

    A condition on row numbers is a TopK.
    """
    if isinstance(node, Filter):
        condition = conjunction([node.predicate, condition])
        node = node.input
    node, rest = first_rows(node, conjuncts(condition))
    condition = conjunction(rest)
    return node if condition == Lit(True, BOOLEAN) else Filter(node, condition)
