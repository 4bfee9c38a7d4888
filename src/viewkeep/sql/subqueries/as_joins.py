"""Subqueries in expressions, as joins with the rows of the query around.

Law: a query keeps exactly its rows. EXISTS and IN as conditions of their own are semi-joins, and
with NOT anti-joins; NOT IN also takes out what NULL leaves unknown. Anywhere else a subquery is a
column: its value, or a mark of the rows that have a partner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.expr import Call, Expr, Lit, Ref, references, unused
from viewkeep.plan.conditions import TRUE, conjunction, conjuncts, disjunction, rewritten
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Match,
    Named,
    Node,
    Project,
    TopK,
    never_null,
    over,
    projected,
    strip,
    traced,
)
from viewkeep.sql.expressions.canonical import make
from viewkeep.sql.expressions.outer_references import (
    any_key,
    any_row,
    filled,
    has_outer,
    has_subquery,
    inward,
    rows,
    scalar,
    scalar_key,
    with_columns_of,
)
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.joins import (
    conditions_of,
    copied_key,
    joined,
    key_matches,
    match_of,
    names_of,
    refs,
    where,
)
from viewkeep.sql.subqueries.decorrelate import Free, decorrelated, outer_names
from viewkeep.types import BIGINT, BOOLEAN

_MOST_COLUMNS = 2  # of NOT IN with values that may be NULL: each makes for three anti-joins
_MARK = "#partner"


@dataclass(frozen=True)
class Inner:
    """A subquery: its plan, which may read outer rows, the columns it gives, and its text."""

    node: Node
    outputs: tuple[Expr, ...]
    text: str


@dataclass(frozen=True)
class _Partners:
    """The rows of a subquery beside those of the query around, with no names in common."""

    node: Node
    outputs: tuple[Expr, ...]
    conditions: tuple[Expr, ...]


class Subqueries:
    """The subqueries in the expressions of one query; `lowered` gives the plan of one."""

    def __init__(self, lowered: Callable[[exp.Expr], Inner]):
        self._lowered = lowered
        self._found: dict[str, Inner] = {}

    # -- reading -------------------------------------------------------------------------------

    def leaf(self, tree: exp.Expr) -> Expr | None:
        """The meaning of a subquery, to be made joins of later; None for other syntax."""
        if isinstance(tree, exp.Exists):
            return any_row(self._rows(tree.this), TRUE)
        if not isinstance(tree, exp.Subquery):
            return None
        if isinstance(tree.parent, exp.In) and tree.arg_key == "query":
            return self._rows(tree)
        key, inner = self._known(tree)
        if len(inner.outputs) != 1:
            raise Unsupported(
                f"a subquery that gives a value has one column, not {len(inner.outputs)}",
                fragment=text_of(tree),
            )
        return scalar(key, inner.outputs[0].type)

    def _rows(self, tree: exp.Expr) -> Call:
        key, inner = self._known(tree)
        return rows(key, [expr.type for expr in inner.outputs])

    def _known(self, tree: exp.Expr) -> tuple[str, Inner]:
        inner = self._lowered(tree)
        key = f"{inner.node.id}/{', '.join(str(expr) for expr in inner.outputs)}"
        self._found.setdefault(key, inner)
        return key, self._found[key]

    # -- rows ----------------------------------------------------------------------------------

    def where(self, node: Node, parts: Sequence[Expr]) -> Node:
        """The rows of a node for which conditions hold."""
        plain = [part for part in parts if not has_subquery(part)]
        node = where(node, plain)
        for part in parts:
            if part not in plain:
                node = self._chosen(node, part)
        return node

    def _chosen(self, node: Node, part: Expr) -> Node:
        key, condition = any_key(part), _asked(part)
        if key is not None and condition is not None and not has_subquery(condition):
            beside = self._beside(node, key)
            found = with_columns_of(condition, beside.outputs)
            return joined("semi", node, beside.node, [*beside.conditions, *conditions_of(found)])
        if isinstance(part, Call) and part.function == "not":
            (inner,) = part.args
            key, condition = any_key(inner), _asked(inner)
            if key is not None and condition is not None and not has_subquery(condition):
                return self._left_out(node, key, condition)
        node, (made,) = self._attached(node, [part], _certain(part))
        return where(node, conditions_of(made))

    def _left_out(self, node: Node, key: str, condition: Expr) -> Node:
        """NOT EXISTS, and NOT IN: a row stays if the condition is FALSE for all rows inside."""
        beside = self._beside(node, key)
        found = with_columns_of(condition, beside.outputs)
        for parts in _not_false(found, node, beside.node, self._found[key].text):
            node = joined("anti", node, beside.node, [*beside.conditions, *parts])
        return node

    # -- values --------------------------------------------------------------------------------

    def attached(self, node: Node, exprs: Sequence[Expr]) -> tuple[Node, list[Expr]]:
        """A node with all that expressions ask of subqueries as columns, and the expressions."""
        return self._attached(node, exprs, frozenset())

    def settled(self, node: Node, base: Node) -> Node:
        """A plan over `base` whose expressions may ask subqueries, without such questions."""
        if node is base or not self._found or not node.inputs or isinstance(node, Join):
            return node
        below = tuple(self.settled(one, base) for one in node.inputs)
        if isinstance(node, Filter):
            if not has_subquery(node.predicate):
                return where(below[0], [node.predicate])
            return self.where(below[0], conditions_of(node.predicate))
        if any(map(has_subquery, node.expressions())):
            return self._with_answers(node, below[0])
        return over(node, below)

    def _with_answers(self, node: Node, below: Node) -> Node:
        """A node over an input that gets what its expressions ask of subqueries as columns."""
        exprs = list(node.expressions())
        lower, made = self.attached(below, exprs)
        by = dict(zip(exprs, made, strict=True))
        if isinstance(node, Project):
            return projected(lower, [Named(out.name, by[out.expr]) for out in node.outputs])
        return node.mapped(by.__getitem__, (lower,))

    def _attached(
        self, node: Node, exprs: Sequence[Expr], certain: frozenset[Expr]
    ) -> tuple[Node, list[Expr]]:
        """As `attached`; of the calls that are `certain`, only whether they are TRUE matters."""
        meanings: dict[Expr, Expr] = {}
        for call in dict.fromkeys(found for expr in exprs for found in _questions(expr)):
            key = scalar_key(call)
            if key is not None:
                node, meanings[call] = self._value(node, key)
                continue
            key, condition = any_key(call), _asked(call)
            assert key is not None
            assert condition is not None
            condition = filled(condition, meanings.get)
            node, meanings[call] = self._mark(node, key, condition, call in certain)
        return node, [filled(expr, meanings.get) for expr in exprs]

    def _value(self, node: Node, key: str) -> tuple[Node, Expr]:
        """The value of a subquery for each row."""
        inner = self._found[key]
        free = self._free(node, key, absent_too=True)
        if not _is_single(free):
            raise Unsupported(
                "a subquery that gives a value must have at most one row",
                fragment=inner.text,
                hint="Take its MIN or MAX, compare its whole key, or ORDER BY with LIMIT 1",
            )
        (output,) = free.outputs
        if free.always:
            known = refs(free.node)
            absent = {name: make("coalesce", known[name], value) for name, value in free.absent}
            value = rewritten(output, absent)
            read = [known[name] for name in dict.fromkeys(references(value))]
            beside, by = _labelled(node, free, read)
            made = _said(value, by)
            kind = "inner" if free.complete else "left"
        elif has_outer(output):
            own = refs(free.node)
            read = [own[name] for name in dict.fromkeys(references(output))]
            beside, by = _labelled(node, free, [*read, TRUE])
            found, nothing = make("is_not_null", by[TRUE]), Lit(None, output.type)
            made = make("case", found, _said(output, by), nothing)
            kind = "left"
        else:
            beside, by = _labelled(node, free, [output])
            made, kind = by[output], "left"
        conditions = [_said(part, by) for part in free.conditions]
        return joined(kind, node, beside, conditions), made

    def _mark(self, node: Node, key: str, condition: Expr, certain: bool) -> tuple[Node, Expr]:
        """Whether any row of a subquery fulfils a condition, for each row."""
        beside = self._beside(node, key)
        found = with_columns_of(condition, beside.outputs)
        if certain or found == TRUE:
            return self._partnered(node, beside, conditions_of(found))
        host = node
        first, *others = _not_false(found, host, beside.node, self._found[key].text)
        node, true = self._partnered(node, beside, first)
        unknown: list[Expr] = []
        for parts in others:
            node, made = self._partnered(node, self._beside(node, key), parts)
            unknown.append(made)
        if not unknown:
            return node, true
        nothing = Lit(None, BOOLEAN)
        return node, make("case", true, TRUE, disjunction(unknown), nothing, Lit(False, BOOLEAN))

    def _partnered(self, node: Node, beside: _Partners, parts: Iterable[Expr]) -> tuple[Node, Expr]:
        """A column that tells the rows with a partner from the others."""
        ours, theirs = names_of(node), names_of(beside.node)
        on: list[Match] = []
        of_left: list[Expr] = []
        of_right: list[Expr] = []
        every = [*beside.conditions, *parts]
        for part in every:
            match, read = match_of(part, ours, theirs), set(references(part))
            if match is not None:
                on.append(match)
            elif read and read <= theirs and not has_outer(part):
                of_right.append(part)
            elif read <= ours:
                of_left.append(make("is_true", part))
            else:
                return _marked(node, joined("semi", node, beside.node, every))
        right = where(beside.node, of_right)
        label = _label(right, ours)
        if not on:
            counted = AggregateCall(f"{label}.count(*)", "count_star", None, BIGINT)
            one = Aggregate(right, (), (counted,))
            some = make("gt", Ref(counted.name, BIGINT), Lit(0, BIGINT))
            return Join("inner", node, one, ()), conjunction([*of_left, some])
        on = sorted(set(on), key=str)
        names = {m.right: f"{label}.{m.right}" for m in on}
        different: Node = Aggregate(right, tuple(Named(n, e) for e, n in names.items()), ())
        mark = Ref(f"{label}.{_MARK}", BOOLEAN)
        outputs = [Named(name, Ref(name, expr.type)) for expr, name in names.items()]
        different = Project(different, (*outputs, Named(mark.name, TRUE)))
        matches = tuple(Match(m.left, Ref(names[m.right], m.right.type), m.null_safe) for m in on)
        return Join("left", node, different, matches), conjunction(
            [*of_left, make("is_not_null", mark)]
        )

    # -- plans ---------------------------------------------------------------------------------

    def _free(self, node: Node, key: str, *, absent_too: bool) -> Free:
        inner = self._found[key]
        known = names_of(node)
        for name in outer_names(inner.node, inner.outputs):
            if name not in known:
                raise Unsupported(
                    f"{name} is neither grouped by nor inside an aggregate",
                    fragment=inner.text,
                    hint="Add it to GROUP BY, or aggregate in a derived table first",
                )
        return decorrelated(inner.node, inner.outputs, lambda: node, absent_too=absent_too)

    def _beside(self, node: Node, key: str) -> _Partners:
        free = self._free(node, key, absent_too=False)
        own = refs(free.node)
        read = [n for expr in (*free.outputs, *free.conditions) for n in references(expr)]
        beside, by = _labelled(node, free, [own[name] for name in dict.fromkeys(read)])
        return _Partners(
            beside,
            tuple(_said(expr, by) for expr in free.outputs),
            tuple(_said(expr, by) for expr in free.conditions),
        )


def _labelled(node: Node, free: Free, wanted: Sequence[Expr]) -> tuple[Node, dict[Expr, Ref]]:
    """A subquery's wanted columns under names that the query around does not have."""
    label = _label(free.node, names_of(node))
    own = refs(free.node)
    read = [own[n] for part in free.conditions for n in references(part)]
    exprs = dict.fromkeys([*(own[name] for name in free.node.row_key), *read, *wanted])
    names: dict[Expr, str] = {}
    for expr in exprs:
        text = _MARK if expr == TRUE else str(expr)
        names[expr] = unused(f"{label}.{text}", names.values())
    outputs = [Named(name, expr) for expr, name in names.items()] or [Named(f"{label}.#", TRUE)]
    made = Project(free.node, tuple(sorted(outputs, key=lambda out: out.name)))
    return made, {expr: Ref(name, expr.type) for expr, name in names.items()}


def _label(node: Node, taken: Iterable[str]) -> str:
    """What a subquery's columns are called after: a part of its id, again if it comes twice."""
    used = {name.partition(".")[0] for name in taken}
    label, number = node.id[:6], 1
    while label in used:
        number += 1
        label = f"{node.id[:6]}#{number}"
    return label


def _said(expr: Expr, by: dict[Expr, Ref]) -> Expr:
    """An expression over a subquery's rows and outer rows as one over both sides of a join."""
    renamed = {own.name: ref for own, ref in by.items() if isinstance(own, Ref)}
    return inward(rewritten(expr, renamed), Ref)


def _marked(node: Node, chosen: Node) -> tuple[Node, Expr]:
    """The rows of a node with a mark on those that are chosen."""
    taken = names_of(node)
    copies = copied_key(node, taken)
    mark = unused(_MARK, {*taken, *copies.values()})
    own = refs(node)
    outputs = [Named(copy, own[name]) for name, copy in copies.items()]
    right = Project(chosen, (*outputs, Named(mark, TRUE)))
    made = Join("left", node, right, tuple(key_matches(node, copies)))
    return made, make("is_not_null", Ref(mark, BOOLEAN))


def _not_false(found: Expr, ours: Node, theirs: Node, text: str) -> list[list[Expr]]:
    """The ways in which equations can be TRUE or unknown together; the first is that all are TRUE.

    An equation is unknown if either of its sides is NULL.
    """
    options: list[list[Expr]] = []
    for part in conjuncts(found):
        if isinstance(part, Lit):
            options.append([TRUE if part.value is None else part])
            continue
        assert isinstance(part, Call), part
        unknown = [
            make("is_null", side)
            for side in part.args
            if not never_null(side, ours) and not never_null(side, theirs)
        ]
        options.append([part, *unknown])
    if sum(len(option) > 1 for option in options) > _MOST_COLUMNS:
        raise Unsupported(
            f"NOT IN of more than {_MOST_COLUMNS} values that may be NULL is not taken",
            fragment=text,
            hint="Use NOT EXISTS, which has no unknown rows",
        )
    return [conditions_of(conjunction(parts)) for parts in product(*options)]


def _is_single(free: Free) -> bool:
    """Whether no outer row has more than one partner."""
    fixed = set[str]()
    for part in free.conditions:
        if isinstance(part, Call) and part.function in ("eq", "null_safe_eq"):
            for own, theirs in (part.args, part.args[::-1]):
                if isinstance(own, Ref) and next(references(theirs), None) is None:
                    fixed.add(own.name)
    node = free.node
    if set(node.row_key) <= fixed:
        return True
    below, steps = strip(node)
    kept = {found[0] for name in fixed if (found := traced((name,), steps))}
    return isinstance(below, TopK) and below.limit == 1 and kept.issuperset(below.partition)


def _questions(expr: Expr) -> Iterable[Expr]:
    """What an expression asks of subqueries, what is inside another question first."""
    if isinstance(expr, Call):
        for arg in expr.args:
            yield from _questions(arg)
        if scalar_key(expr) is not None or any_key(expr) is not None:
            yield expr


def _asked(expr: Expr) -> Expr | None:
    """The condition that any row of a subquery should fulfil."""
    return expr.args[1] if isinstance(expr, Call) and any_key(expr) is not None else None


def _certain(part: Expr) -> frozenset[Expr]:
    """Questions below AND and OR alone, where NULL is as good as FALSE."""
    if isinstance(part, Call) and part.function in ("and", "or"):
        return frozenset(one for arg in part.args for one in _certain(arg))
    return frozenset([part]) if any_key(part) is not None else frozenset()
