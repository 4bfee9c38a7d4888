"""IN with a subquery as a value, written out for Spark.

Spark computes `x IN (SELECT ...)` as a value by a join that knows only whether there is a partner:
it says FALSE where SQL, and Spark's own documentation, say NULL. As a condition of its own it is
right. Law: the text after this pass gives the three values in Spark too.
"""

from __future__ import annotations

from sqlglot import exp


def three_valued(tree: exp.Expr) -> exp.Expr:
    """A query in which IN as a value is a CASE of conditions that Spark gets right."""
    found = [node for node in tree.find_all(exp.In) if node.args.get("query") is not None]
    for node in found:
        if not isinstance(node.this, exp.Tuple) and not _is_condition(node):
            node.replace(_spelt_out(node))
    return tree


def _is_condition(node: exp.Expr) -> bool:
    """Whether a node stands by itself in WHERE or HAVING: there FALSE is as good as NULL."""
    child, above = node, node.parent
    if isinstance(above, exp.Not):  # NOT IN as a condition of its own is right as well
        child, above = above, above.parent
    while isinstance(above, exp.And | exp.Paren):
        child, above = above, above.parent
    return isinstance(above, exp.Where | exp.Having) and above.this is child


def _spelt_out(node: exp.In) -> exp.Expr:
    value, query = node.this, node.args["query"]
    inner = query.this if isinstance(query, exp.Subquery) else query
    unknown = exp.or_(
        exp.Is(this=value.copy(), expression=exp.Null()),
        exp.GT(this=_counted(inner, "COUNT(*) - COUNT(q.c)"), expression=exp.Literal.number(0)),
    )
    none = exp.EQ(this=_counted(inner, "COUNT(*)"), expression=exp.Literal.number(0))
    cases = [
        exp.If(this=node.copy(), true=exp.true()),
        exp.If(this=none, true=exp.false()),
        exp.If(this=unknown, true=exp.Null()),
    ]
    return exp.Paren(this=exp.Case(ifs=cases, default=exp.false()))


def _counted(query: exp.Expr, what: str) -> exp.Expr:
    """A scalar subquery that counts the rows of a query, or its NULLs."""
    alias = exp.TableAlias(this=exp.to_identifier("q"), columns=[exp.to_identifier("c")])
    derived = exp.Subquery(this=query.copy(), alias=alias)
    return exp.Subquery(this=exp.select(what).from_(derived))
