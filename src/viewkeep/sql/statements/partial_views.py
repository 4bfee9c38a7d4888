"""Which views are partial, and by which columns: WITH (partial = ...), and parameters in WHERE.

Law: a view with parameters is the view without them, partial by the columns that they are compared
with. So `... WHERE s.id = ?` has, for each id, the rows that the query has with that id.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.sql.grouping.group_by import Item
from viewkeep.sql.parse.syntax import text_of

PROPERTY = "partial"
_HINT = "Write WITH (partial = true), or name columns of the view: WITH (partial = 'a, b')"


def partial_of(tree: exp.Create) -> tuple[str, ...] | None:
    """The visible columns by which a view is partial, () for the first of its key; None if not."""
    found: tuple[str, ...] | None = None
    for part in tree.args.get("properties") or ():
        if isinstance(part, exp.MaterializedProperty):
            continue
        if not isinstance(part, exp.Property) or part.name.lower() != PROPERTY:
            raise Unsupported("this property is not supported", fragment=text_of(part), hint=_HINT)
        value = part.args["value"]
        if isinstance(value, exp.Boolean):
            found = () if value.this else None
        elif isinstance(value, exp.Literal) and value.is_string:
            found = tuple(name.strip().lower() for name in value.name.split(","))
        else:
            raise Unsupported("partial is true or columns", fragment=text_of(part), hint=_HINT)
    return found


def take_parameters(query: exp.Expr) -> list[exp.Column]:
    """Take `column = ?` out of a query's WHERE; the columns that were compared."""
    found: list[exp.Column] = []
    where = query.args.get("where") if isinstance(query, exp.Select) else None
    if where is not None:
        kept = [part for part in _conjuncts(where.this) if not _takes(part, found)]
        rest = exp.and_(*(part.copy() for part in kept)) if kept else None
        query.set("where", exp.Where(this=rest) if rest is not None else None)
    left = next(query.find_all(exp.Placeholder), None)
    if left is not None:
        raise Unsupported(
            "a parameter of a view stands in its WHERE",
            fragment=text_of(left.parent or left),
            hint="Write column = ?, beside other conditions with AND, and not in a subquery",
        )
    if found and (query.args.get("limit") or query.args.get("offset")):
        raise Unsupported(
            "LIMIT in a view with parameters counts the rows of all keys",
            hint="For the first rows of each key use ROW_NUMBER() OVER (PARTITION BY ...)",
        )
    return found


def shown_as(column: exp.Column, items: Sequence[Item], shown: Sequence[str]) -> str:
    """The name under which a view shows a column: the item's, or that in the list of `shown`."""
    for place, item in enumerate(items):
        tree = item.tree
        if not isinstance(tree, exp.Column) or tree.name.lower() != column.name.lower():
            continue
        if "" in (column.table, tree.table) or column.table.lower() == tree.table.lower():
            return shown[place] if shown else item.name
    raise Unsupported(
        "a view shows the columns that its parameters are compared with",
        fragment=text_of(column),
        hint=f"Add {text_of(column)} to SELECT, and to GROUP BY if there is one",
    )


def _conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    if isinstance(tree, exp.And):
        return [*_conjuncts(tree.this), *_conjuncts(tree.expression)]
    return _conjuncts(tree.this) if isinstance(tree, exp.Paren) else [tree]


def _takes(part: exp.Expr, found: list[exp.Column]) -> bool:
    """Whether a condition is `column = ?`; then the column is noted."""
    if not isinstance(part, exp.EQ):
        return False
    for column, place in ((part.this, part.expression), (part.expression, part.this)):
        if isinstance(column, exp.Column) and isinstance(place, exp.Placeholder):
            found.append(column)
            return True
    return False
