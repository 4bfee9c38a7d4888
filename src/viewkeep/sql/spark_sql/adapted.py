"""A view's SQL for Spark where our meaning differs on purpose (docs/design/semantics.md).

Law: the text that is made here means in Spark what the view keeps. An average of integers is their
exact sum over their number, where Spark adds doubles; a date or timestamp outside the years 1 to
9999 is NULL.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeep.sql.parse.syntax import parse, parse_expression, text_of

_TIMES = (
    "add_months", "date_add", "dateadd", "date_sub", "last_day", "make_date", "to_date", "trunc",
    "date_trunc", "to_timestamp", "timestamp_micros", "timestamp_millis", "timestamp_seconds",
    "date", "timestamp",
)  # fmt: skip
_INTEGERS = "('tinyint', 'smallint', 'int', 'bigint')"
_LONGEST = 1_000_000  # of a text: a guard repeats what it guards


def adapted(sql: str, exact_averages: bool) -> str | None:
    """The text, or None if there is nothing to adapt. Averages only where none is of decimals."""
    (tree,) = parse(sql)
    changed = False
    nodes = list(tree.walk())
    for node in reversed(nodes):  # what is inside comes first
        made = None
        if _is_time(node):
            made = f"CASE WHEN year({text_of(node)}) BETWEEN 1 AND 9999 THEN {text_of(node)} END"
        elif exact_averages and _is_average(node):
            node, made = _around(node), _average(node)
        if made is None:
            continue
        if len(made) > _LONGEST:
            return None
        changed = True
        node.replace(exp.Paren(this=parse_expression(made)))
    return text_of(tree) if changed else None


def _is_time(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _TIMES
    if isinstance(node, exp.Add | exp.Sub):
        return isinstance(node.expression, exp.Interval) or isinstance(node.this, exp.Interval)
    if isinstance(node, exp.Cast | exp.TryCast) and not isinstance(node.this, exp.Literal):
        return node.to.this in (exp.DataType.Type.DATE, exp.DataType.Type.TIMESTAMP)
    return False


def _is_average(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in ("avg", "mean")


def _around(node: exp.Expr) -> exp.Expr:
    """The call with its FILTER and its window."""
    while isinstance(node.parent, exp.Filter | exp.Window) and node.parent.this is node:
        node = node.parent
    return node


def _average(node: exp.Expr) -> str:
    outer = _around(node)
    (argument,) = node.expressions
    distinct = "DISTINCT " if isinstance(argument, exp.Distinct) else ""
    value = argument.expressions[0] if isinstance(argument, exp.Distinct) else argument

    def call(text: str) -> str:
        """Another aggregate of the same rows."""
        made = parse_expression(text)
        if outer is node:
            return text_of(made)
        copy = outer.copy()
        inner = copy
        while isinstance(inner, exp.Filter | exp.Window):
            inner = inner.this
        inner.replace(made)
        return text_of(copy)

    text = text_of(value)
    total = call(f"sum({distinct}CAST({text} AS DECIMAL(38, 0)))")
    return (
        f"CASE WHEN {call(f'max(typeof({text}))')} IN {_INTEGERS} "
        f"THEN CAST({total} AS DOUBLE) / {call(f'count({distinct}{text})')} "
        f"ELSE {call(text_of(node))} END"
    )
