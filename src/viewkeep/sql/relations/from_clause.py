"""FROM: any number of relations, joined in every way, as units of an inner join with conditions.

Law: over several relations every column is called `label.column`, and the label is the table's
name or a part of the node's id, never an alias; so how a query calls its relations does not
matter for what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.expr import Expr, Ref, unused
from viewkeep.plan.nodes import Named, Node, Project, Source, strip
from viewkeep.sql.expressions.canonical import make
from viewkeep.sql.expressions.scalars import predicate
from viewkeep.sql.parse.limits import check_joined
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.joins import conditions_of, inner_joined, joined, refs
from viewkeep.sql.relations.scope import Relation, Scope, Shown

_SIDES = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass(frozen=True)
class Pool:
    """Relations that are joined: nodes of an inner join, its conditions, and what names mean."""

    units: tuple[Node, ...]
    conditions: tuple[Expr, ...]
    relations: tuple[Relation, ...]
    shown: tuple[Shown, ...]

    @property
    def scope(self) -> Scope:
        """The names of all relations; the node is only the first unit's."""
        return Scope(self.units[0], self.relations, self.shown)

    def where(self, parts: Sequence[Expr]) -> Node:
        """The rows of the join for which further conditions hold."""
        return inner_joined(self.units, [*self.conditions, *parts])


class From:
    """Reads the FROM clause of one query; `relation` gives the scope of a table or derived table.

    `outer` is the scope of the query around, which conditions of joins may name too.
    """

    def __init__(self, relation: Callable[[exp.Expr], Scope], outer: Scope | None):
        self._relation, self._outer = relation, outer
        self._labels: set[str] = set()

    def read(self, tree: exp.Select) -> Pool:
        """The relations of a query."""
        first, joins = tree.args["from_"].this, tree.args.get("joins") or []
        if not joins and not _joins(first):
            return _single(self._relation(_unwrapped(first)))
        made = self._chain(first, joins)
        aliases = [relation.alias for relation in made.relations if relation.alias]
        for alias in aliases:
            if aliases.count(alias) > 1:
                raise Unsupported(f"two relations are called {alias}", hint="Give one an alias")
        return made

    def _chain(self, first: exp.Expr, joins: Sequence[exp.Join]) -> Pool:
        made, crossed = self._operand(first), False
        for join in joins:
            side = (join.side or "").upper()
            # `a, b RIGHT JOIN c` and `a CROSS JOIN b RIGHT JOIN c` differ, and are read alike.
            if crossed and side in ("RIGHT", "FULL"):
                raise Unsupported(
                    f"{side} JOIN after a comma or CROSS JOIN may be meant in two ways",
                    fragment=text_of(join),
                    hint="Put parentheses around the joins that belong together",
                )
            crossed = crossed or (join.kind or "").upper() == "CROSS"
            kind = _kind(join)
            made = self._joined(made, join, kind, self._operand(join.this))
        return made

    def _operand(self, tree: exp.Expr) -> Pool:
        """A relation, or joins in parentheses."""
        joins = tree.args.get("joins") or []
        if joins:
            bare = tree.copy()
            bare.set("joins", None)
            return self._chain(bare, joins)
        if isinstance(tree, exp.Subquery) and isinstance(tree.this, exp.Table | exp.Subquery):
            if tree.alias and _joins(tree):
                raise Unsupported(
                    "joins in parentheses have no alias",
                    fragment=text_of(tree),
                    hint="Write (SELECT ... FROM ...) AS name",
                )
            if _joins(tree):
                return self._operand(tree.this)
        return self._labelled(self._relation(_unwrapped(tree)))

    def _labelled(self, scope: Scope) -> Pool:
        """A relation with its columns computed and under its label."""
        label = base = label_of(scope.node)
        number = 1
        while label in self._labels:
            number += 1
            label = f"{base}#{number}"
        self._labels.add(label)
        node, meaning = under_label(scope.node, [s.expr for s in scope.shown], label)
        columns = {s.name: meaning[s.expr] for s in scope.shown}
        (relation,) = scope.relations
        shown = tuple(Shown(s.name, s.alias, columns[s.name]) for s in scope.shown)
        return Pool((node,), (), (Relation(relation.alias, columns),), shown)

    def _joined(self, left: Pool, join: exp.Join, kind: str, right: Pool) -> Pool:
        names = self._shared(left, join, right)
        relations = left.relations + right.relations
        both = Pool(left.units + right.units, (), relations, left.shown + right.shown)
        parts: list[Expr] = []
        pairs = {name: (self._named(left, name), self._named(right, name)) for name in names}
        for mine, theirs in pairs.values():
            parts.append(make("eq", mine, theirs))
        on = join.args.get("on")
        if on is not None:
            self._refuse_subquery(on)
            scope = replace(both.scope, outer=self._outer)
            parts += conditions_of(predicate(on, scope.leaf))
        if kind in ("semi", "anti"):
            relations, shown = left.relations, left.shown
        else:
            shown = _shown(kind, left, right, pairs)
        if kind in ("inner", "full"):
            check_joined(len(both.units) if kind == "inner" else len(relations))
        if kind == "inner":
            conditions = (*left.conditions, *right.conditions, *parts)
            return Pool(both.units, conditions, relations, shown)
        one, other = left.where(()), right.where(())
        if kind == "right":
            node = joined("left", other, one, parts)
        else:
            node = joined(kind, one, other, parts)
        return Pool((node,), (), relations, shown)

    def _shared(self, left: Pool, join: exp.Join, right: Pool) -> list[str]:
        """The columns that USING or NATURAL make one of."""
        if (join.method or "").upper() == "NATURAL":
            theirs = {s.name for s in right.shown}
            return list(dict.fromkeys(s.name for s in left.shown if s.name in theirs))
        return [name.name.lower() for name in join.args.get("using") or ()]

    def _named(self, pool: Pool, name: str) -> Expr:
        return pool.scope.column(exp.column(exp.to_identifier(name, quoted=True)))

    def _refuse_subquery(self, on: exp.Expr) -> None:
        inner = on.find(exp.Query)
        if inner is not None:
            raise Unsupported(
                "a subquery in ON is not taken",
                fragment=text_of(inner),
                hint="Put the condition into WHERE, or join with the inner query",
            )


def label_of(node: Node) -> str:
    """What the columns of a relation are called after: its table, else a part of its id."""
    below, _ = strip(node)
    return below.table if isinstance(below, Source) else node.id[:6]


def under_label(node: Node, wanted: Sequence[Expr], label: str) -> tuple[Project, dict[Expr, Ref]]:
    """A node's row key and the wanted expressions as columns `label.name`, and their meaning."""
    own = refs(node)
    exprs: dict[Expr, None] = dict.fromkeys([*(own[name] for name in node.row_key), *wanted])
    names: dict[Expr, str] = {}
    for expr in sorted(exprs, key=lambda expr: (not isinstance(expr, Ref), str(expr))):
        names[expr] = unused(f"{label}.{expr}", names.values())
    outputs = tuple(Named(name, expr) for expr, name in names.items())
    return Project(node, outputs), {expr: Ref(name, expr.type) for expr, name in names.items()}


def _shown(
    kind: str, left: Pool, right: Pool, pairs: dict[str, tuple[Expr, Expr]]
) -> tuple[Shown, ...]:
    """What * stands for: the columns that were made one, then the others of both sides."""
    merged = []
    for name, (mine, theirs) in pairs.items():
        expr = make("coalesce", mine, theirs) if kind == "full" else mine
        merged.append(Shown(name, "", theirs if kind == "right" else expr))
    rest = [s for s in (*left.shown, *right.shown) if s.name not in pairs]
    return (*merged, *rest)


def _single(scope: Scope) -> Pool:
    return Pool((scope.node,), (), scope.relations, scope.shown)


def _kind(join: exp.Join) -> str:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if isinstance(join.this, exp.Lateral):
        raise Unsupported(
            "LATERAL is not taken",
            fragment=text_of(join),
            hint="Join with the inner query grouped by the columns that it is asked for",
        )
    method = (join.method or "").upper()
    if method not in ("", "NATURAL"):
        raise Unsupported(f"{method} JOIN is not taken", fragment=text_of(join))
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return kind.lower()
    if kind in ("", "INNER", "CROSS", "OUTER") and side in ("", *_SIDES):
        return _SIDES.get(side, "inner")
    raise Unsupported(f"{side} {kind} JOIN is not taken".strip(), fragment=text_of(join))


def _joins(tree: exp.Expr) -> bool:
    """Whether a part of FROM is more than one relation."""
    if tree.args.get("joins"):
        return True
    inner = tree.this if isinstance(tree, exp.Subquery) else None
    return isinstance(inner, exp.Table | exp.Subquery) and _joins(inner)


def _unwrapped(tree: exp.Expr) -> exp.Expr:
    """A relation without parentheses that mean nothing."""
    while isinstance(tree, exp.Subquery) and not tree.alias and isinstance(tree.this, exp.Table):
        tree = tree.this
    return tree
