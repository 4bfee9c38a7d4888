"""SELECT to plan nodes, in canonical form.

FROM gives a scope; WHERE a Filter; GROUP BY or an aggregate an Aggregate; HAVING a Filter over it;
the select list and ORDER BY name columns, computed by one Project where they are not columns
already. Derived tables, CTEs and views are inlined, so equal queries become equal nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from viewkeep.errors import SqlError, Unsupported
from viewkeep.expr import Expr, Lit, Ref
from viewkeep.ops.functions import VOID
from viewkeep.plan.nodes import Aggregate, Filter, KeyPart, Named, Node, Project
from viewkeep.sql.aggregates import Calls, group_rewriter, has_aggregate, is_aggregate
from viewkeep.sql.expressions import Leaf, conjunction, conjuncts, lower, predicate
from viewkeep.sql.parse import text_of
from viewkeep.sql.scope import Resolve, Scope, find
from viewkeep.sql.statements import Query

_TAKEN = {
    "expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct",
    "with_", "kind", "hint",
}  # fmt: skip
_REFUSALS = {
    "joins": ("joins are not taken yet", "Make a view of each table, and join when reading"),
    "laterals": ("LATERAL is not taken", None),
    "windows": ("window functions are not taken yet", None),
    "qualify": ("QUALIFY is not taken yet", None),
    "cluster": ("CLUSTER BY is not taken", "ORDER BY chooses the order of a view's rows"),
    "sort": ("SORT BY is not taken", "ORDER BY chooses the order of a view's rows"),
    "distribute": ("DISTRIBUTE BY is not taken", None),
    "sample": ("TABLESAMPLE has another value each time it is asked", None),
    "pivots": ("PIVOT is not taken", "Write the columns with FILTER or CASE"),
}


@dataclass(frozen=True)
class Output:
    """An item of the select list: what it is called, and what it computes."""

    name: str
    expr: Expr


@dataclass(frozen=True)
class Lowered:
    """A query before its outputs are given columns."""

    node: Node
    outputs: tuple[Output, ...]
    order: tuple[tuple[Expr, bool], ...] = ()  # expression, descending
    limit: int | None = None
    offset: int = 0

    def finish(self) -> Query:
        """The query with every output and order expression a column of its node."""
        wanted = [output.expr for output in self.outputs] + [expr for expr, _ in self.order]
        node, names = with_columns(self.node, wanted)
        columns = tuple((out.name, names[out.expr]) for out in self.outputs)
        order = tuple(KeyPart(names[expr], descending) for expr, descending in self.order)
        return Query(node, columns, order, self.limit, self.offset)


def lower_query(tree: exp.Expr, resolve: Resolve) -> Query:
    """The plan of a SELECT."""
    return _select(tree, resolve, {}).finish()


def with_columns(node: Node, wanted: Sequence[Expr]) -> tuple[Node, dict[Expr, str]]:
    """A node in which each expression is a column, and the names of those columns."""
    taken = {column.name for column in node.columns}
    names: dict[Expr, str] = {}
    for expr in wanted:
        text = expr.name if isinstance(expr, Ref) else str(expr)
        while not isinstance(expr, Ref) and text in taken:
            text += "'"
        names[expr] = text
    if all(isinstance(expr, Ref) for expr in wanted):
        return node, names
    types = {column.name: column.type for column in node.columns}
    outputs = {name: Named(name, Ref(name, types[name])) for name in node.row_key}
    for expr, name in names.items():
        outputs.setdefault(name, Named(name, expr))
    return Project(node, tuple(outputs[name] for name in sorted(outputs))), names


def filtered(node: Node, condition: Expr) -> Node:
    """The rows of a node for which a condition is true; one Filter, however many conditions."""
    parts = conjuncts(condition)
    if isinstance(node, Filter):
        parts = conjuncts(conjunction([*parts, *conjuncts(node.predicate)]))
        node = node.input
    return Filter(node, conjunction(parts))


def _select(tree: exp.Expr, resolve: Resolve, known: Mapping[str, Scope]) -> Lowered:
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    if isinstance(tree, exp.SetOperation):
        kind = type(tree).__name__.upper()
        raise Unsupported(f"{kind} is not taken yet", hint="Make a view of each part")
    if not isinstance(tree, exp.Select):
        raise Unsupported("a query is a SELECT", fragment=text_of(tree))
    _refuse_unknown(tree)
    known = _with_ctes(tree, resolve, known)
    scope = _from(tree, resolve, known)
    node = scope.node

    def rows(leaf: exp.Expr) -> Expr | None:
        return scope.column(leaf) if isinstance(leaf, exp.Column) else None

    where = tree.args.get("where")
    if where is not None:
        if has_aggregate(where):
            raise Unsupported(
                "WHERE chooses rows before they are grouped",
                fragment=text_of(where),
                hint="Put conditions on aggregates into HAVING",
            )
        node = filtered(node, predicate(where.this, rows))
    items = list(_items(tree, scope))
    group, having = tree.args.get("group"), tree.args.get("having")
    aggregated = (
        group is not None
        or having is not None
        or any(has_aggregate(item) for _, item in items if isinstance(item, exp.Expr))
    )
    if aggregated:
        node, lowered = _grouped(tree, node, items, rows)
    else:
        lowered = [(name, lower(i, rows) if isinstance(i, exp.Expr) else i) for name, i in items]
    outputs = tuple(Output(name, _typed(name, expr)) for name, expr in lowered)
    _refuse_duplicates(outputs)
    if tree.args.get("distinct") is not None:
        node, outputs = _distinct(tree, node, outputs)
    order = _order(tree, outputs, rows, aggregated or tree.args.get("distinct") is not None)
    return Lowered(node, outputs, order, _count(tree, "limit"), _count(tree, "offset") or 0)


def _with_ctes(
    tree: exp.Select, resolve: Resolve, known: Mapping[str, Scope]
) -> Mapping[str, Scope]:
    with_ = tree.args.get("with_")
    if with_ is None:
        return known
    if with_.args.get("recursive"):
        raise Unsupported("recursive queries are not taken", fragment=text_of(with_))
    made = dict(known)
    for cte in with_.expressions:
        name = cte.alias.lower()
        made[name] = _derived(cte.this, name, cte, resolve, made)
    return made


def _from(tree: exp.Select, resolve: Resolve, known: Mapping[str, Scope]) -> Scope:
    source = tree.args.get("from_")
    if source is None:
        raise Unsupported("a query needs a table to read", hint="Add FROM with a table or view")
    relation = source.this
    if relation.args.get("joins"):
        raise Unsupported(_REFUSALS["joins"][0], fragment=text_of(relation))
    if isinstance(relation, exp.Subquery):
        return _derived(relation.this, relation.alias.lower(), relation, resolve, known)
    if not isinstance(relation, exp.Table) or not relation.name:
        raise Unsupported("FROM takes a table, a view or a SELECT", fragment=text_of(relation))
    for extra in ("sample", "pivots", "laterals", "version", "hints"):
        if relation.args.get(extra):
            raise Unsupported(f"{extra} is not taken here", fragment=text_of(relation))
    if relation.db:
        raise Unsupported("tables have no schema in front", fragment=text_of(relation))
    name = relation.name.lower()
    return find(name, resolve, known, (relation.alias or name).lower())


def _derived(
    inner: exp.Expr,
    alias: str,
    holder: exp.Expr,
    resolve: Resolve,
    known: Mapping[str, Scope],
) -> Scope:
    """The scope of a derived table or CTE, with its columns renamed if it says so."""
    made = _select(inner, resolve, known)
    if made.limit is not None or made.offset:
        raise _no_limit(inner)
    names = [output.name for output in made.outputs]
    renamed = holder.args.get("alias")
    given = [column.name.lower() for column in renamed.columns] if renamed is not None else []
    if given and len(given) != len(names):
        raise Unsupported(f"{alias} names {len(given)} columns but has {len(names)}")
    columns = zip(given or names, (output.expr for output in made.outputs), strict=True)
    return Scope(made.node, dict(columns), alias)


def _items(tree: exp.Select, scope: Scope) -> Iterator[tuple[str, exp.Expr | Expr]]:
    """The select list with * spelt out: names, and syntax trees or, for *, expressions."""
    for item in tree.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            if star.args.get("except_") or star.args.get("replace"):
                raise Unsupported("* EXCEPT is not taken", hint="Name the columns")
            yield from scope.columns.items()
        else:
            named = item.this if isinstance(item, exp.Alias) else item
            name = item.alias_or_name or text_of(named)
            yield name.lower(), named


def _grouped(
    tree: exp.Select, node: Node, items: list[tuple[str, exp.Expr | Expr]], rows: Leaf
) -> tuple[Node, list[tuple[str, Expr]]]:
    keys = _group_keys(tree, items, rows)
    calls = Calls(rows, [str(key) for key in keys])
    made = [
        (name, lower(item, calls.leaf) if isinstance(item, exp.Expr) else item)
        for name, item in items
    ]
    having = tree.args.get("having")
    condition = None
    if having is not None:
        aliases = dict(made)

        def leaf(inner: exp.Expr) -> Expr | None:
            # HAVING may name an item of the select list.
            if isinstance(inner, exp.Column) and not inner.table:
                named = aliases.get(inner.name.lower())
                if named is not None and not _is_row_column(inner, rows):
                    return named
            return calls.leaf(inner)

        condition = predicate(having.this, leaf)
    names = {key: _key_name(key) for key in keys}
    rewrite = group_rewriter(names, calls.found)
    grouped: Node = Aggregate(
        node,
        tuple(Named(names[key], key) for key in keys),
        tuple(calls.found[name] for name in sorted(calls.found)),
    )
    if condition is not None:
        grouped = filtered(grouped, rewrite(condition))
    return grouped, [(name, _blamed(name, expr, rewrite)) for name, expr in made]


def _blamed(name: str, expr: Expr, rewrite: object) -> Expr:
    assert callable(rewrite)
    try:
        made: Expr = rewrite(expr)
    except SqlError as error:
        raise type(error)(error.reason, fragment=name, hint=error.hint) from error
    return made


def _is_row_column(tree: exp.Column, rows: Leaf) -> bool:
    try:
        return rows(tree) is not None
    except SqlError:
        return False


def _key_name(key: Expr) -> str:
    return key.name if isinstance(key, Ref) else str(key)


def _group_keys(
    tree: exp.Select, items: list[tuple[str, exp.Expr | Expr]], rows: Leaf
) -> list[Expr]:
    """The expressions of GROUP BY; a name or a number may point at the select list."""
    group = tree.args.get("group")
    if group is None:
        return []
    for extra in ("grouping_sets", "cube", "rollup", "all", "totals"):
        if group.args.get(extra):
            raise Unsupported(f"GROUP BY {extra.upper()} is not taken yet", fragment=text_of(group))
    named = dict(items)
    keys: dict[str, Expr] = {}
    for part in group.expressions:
        target: exp.Expr | Expr = part
        if isinstance(part, exp.Literal) and not part.is_string:
            place = int(part.name)
            if not 1 <= place <= len(items):
                raise Unsupported(f"GROUP BY {place}: there are {len(items)} items in SELECT")
            target = items[place - 1][1]
        elif isinstance(part, exp.Column) and not _is_row_column(part, rows):
            target = named.get(part.name.lower(), part)
        if isinstance(target, exp.Expr):
            if has_aggregate(target):
                raise Unsupported("GROUP BY comes before aggregates", fragment=text_of(target))
            target = lower(target, rows)
        keys[str(target)] = _typed("GROUP BY", target)
    return [keys[text] for text in keys]


def _distinct(
    tree: exp.Select, node: Node, outputs: tuple[Output, ...]
) -> tuple[Node, tuple[Output, ...]]:
    if tree.args["distinct"].args.get("on") is not None:
        raise Unsupported("DISTINCT ON is not taken yet", hint="Use GROUP BY with MIN or MAX")
    keys = {output.expr: _key_name(output.expr) for output in outputs}
    grouped = Aggregate(node, tuple(Named(name, expr) for expr, name in keys.items()), ())
    refs = tuple(Output(out.name, Ref(keys[out.expr], out.expr.type)) for out in outputs)
    return grouped, refs


def _order(
    tree: exp.Select, outputs: tuple[Output, ...], rows: Leaf, only_outputs: bool
) -> tuple[tuple[Expr, bool], ...]:
    order = tree.args.get("order")
    if order is None:
        return ()
    named = {output.name: output.expr for output in outputs}
    made: dict[Expr, bool] = {}
    for part in order.expressions:
        target, descending = part.this, bool(part.args.get("desc"))
        # NULLs come first ascending and last descending, which is Spark's rule too.
        if bool(part.args.get("nulls_first")) == descending:
            raise Unsupported(
                "NULLS FIRST and LAST are fixed by the direction", fragment=text_of(part)
            )
        expr: Expr | None = None
        if isinstance(target, exp.Literal) and not target.is_string:
            place = int(target.name)
            if not 1 <= place <= len(outputs):
                raise Unsupported(f"ORDER BY {place}: there are {len(outputs)} items in SELECT")
            expr = outputs[place - 1].expr
        elif isinstance(target, exp.Column) and not target.table:
            expr = named.get(target.name.lower())
        if expr is None:
            if only_outputs or is_aggregate(target):
                raise Unsupported(
                    "ORDER BY of a grouped query names items of SELECT", fragment=text_of(part)
                )
            expr = lower(target, rows)
        made.setdefault(_typed("ORDER BY", expr), descending)
    return tuple(made.items())


def _count(tree: exp.Select, name: str) -> int | None:
    part = tree.args.get(name)
    if part is None:
        return None
    value = part.expression
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
        raise Unsupported(f"{name.upper()} takes a number", fragment=text_of(part))
    return int(value.name)


def _typed(name: str, expr: Expr) -> Expr:
    if expr.type == VOID or (isinstance(expr, Lit) and expr.type == VOID):
        raise Unsupported(f"{name} is NULL without a type", hint="Write CAST(NULL AS type)")
    return expr


def _refuse_duplicates(outputs: tuple[Output, ...]) -> None:
    names = [output.name for output in outputs]
    for name in names:
        if names.count(name) > 1:
            raise Unsupported(f"two columns are called {name}", hint="Give one an alias with AS")


def _refuse_unknown(tree: exp.Select) -> None:
    """Refuse every clause that the lowering below would pass over."""
    for name, value in tree.args.items():
        if not value or name in _TAKEN:
            continue
        reason, hint = _REFUSALS.get(name, (f"{name.upper()} is not taken", None))
        part = value[0] if isinstance(value, list) else value
        shown = text_of(part) if isinstance(part, exp.Expr) else None
        raise Unsupported(reason, fragment=shown, hint=hint)


def _no_limit(tree: exp.Expr) -> Unsupported:
    limit = tree.args.get("limit") or tree.args.get("offset") or tree
    return Unsupported(
        "LIMIT in a view is not taken yet",
        fragment=text_of(limit),
        hint="Keep all rows in the order you want with ORDER BY, and read the first with "
        "scan(limit=)",
    )
