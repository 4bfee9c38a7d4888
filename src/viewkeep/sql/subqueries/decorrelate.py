"""Plans of subqueries without references to outer rows: conditions of a join with them instead.

Law: for each outer row, the rows of the subquery are the rows of the decorrelated node for which
its conditions hold. There are two ways. Conditions are *pulled up* out of Filters, where an
equation becomes one more key of the groups and partitions above it. Where that does not do, the
different outer values are *pushed down*: the subquery is computed for all of them at once.
Each pass visits every node once, inputs first, so a part that is read twice is transformed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import count
from typing import Final, TypeAlias

from viewkeep.errors import Unsupported
from viewkeep.expr import Call, Expr, Lit, Ref, references, unused
from viewkeep.plan.conditions import conjuncts, rewritten
from viewkeep.plan.nodes import (
    Aggregate,
    Change,
    Filter,
    Join,
    Match,
    Named,
    Node,
    Project,
    TopK,
    Union,
    Window,
    nodes,
    projected,
)
from viewkeep.plan.nodes import joined as joined_over
from viewkeep.sql.expressions.canonical import make
from viewkeep.sql.expressions.outer_references import has_outer, inward, outer, outers
from viewkeep.sql.relations.columns import filtered
from viewkeep.sql.relations.joins import joined, names_of, refs
from viewkeep.types import DataType

MOST_PULLED: Final = 8
"""Conditions that both sides of a join may have together and are pulled up.

A CTE that is joined with itself has each condition twice, four times a level further up.
"""


@dataclass(frozen=True)
class Free:
    """A subquery's plan without references to the query around, and when its rows are partners.

    `conditions` and `outputs` are over the node's columns and outer rows. `always` means that SQL
    has one row for every outer row, as of an aggregate without groups; where the node has no
    partner for one, its columns are NULL, but for those that `absent` gives a value. There is
    none such if it is `complete`.
    """

    node: Node
    outputs: tuple[Expr, ...]
    conditions: tuple[Expr, ...]
    always: bool = False
    absent: tuple[tuple[str, Lit], ...] = ()
    complete: bool = False


def decorrelated(
    node: Node, outputs: Sequence[Expr], host: Callable[[], Node], *, absent_too: bool
) -> Free:
    """A subquery's plan, freed of references to the rows of the query around, `host`.

    With `absent_too` the caller knows what to do where an aggregate without groups has no rows.
    """
    always = _has_one_row(node)
    dependent = _dependent(node)
    if node.id not in dependent:
        return Free(_shifted(node)[node.id], tuple(outputs), (), always, complete=always)
    pulled = _pulled(node, dependent, top=absent_too)
    if pulled is not None:
        below, conditions = pulled
        absent = tuple(_absent(node)) if always else ()
        shifted = _shifted(below)[below.id]
        return Free(shifted, tuple(outputs), tuple(conditions), always, absent)
    read = {ref.name: ref for ref in _outers(node)}
    wanted = [read[name] for name in sorted(read)]
    pushed = _Pushed(host(), wanted, node, dependent)
    made, columns = pushed.down(), pushed.columns
    pairs = [(outer(ref.name, ref.type), columns[ref.name]) for ref in wanted]
    matches = tuple(make("null_safe_eq", theirs, own) for theirs, own in pairs)
    return Free(made, tuple(outputs), matches, always, complete=always)


def _has_one_row(node: Node) -> bool:
    """Whether a plan gives exactly one row whatever there is."""
    while isinstance(node, Project):
        node = node.input
    return node.has_one_row


def outer_names(node: Node, outputs: Sequence[Expr]) -> set[str]:
    """The columns of the query just around that a subquery reads."""
    given = (ref.name for expr in outputs for ref in outers(expr))
    return {*given, *(ref.name for ref in _outers(node))}


def _dependent(node: Node) -> set[str]:
    """The ids of the nodes of a plan that read rows of the query just around it."""
    found: set[str] = set()
    for one in nodes([node]):
        own = any(next(outers(expr), None) for expr in one.expressions())
        if own or any(below.id in found for below in one.inputs):
            found.add(one.id)
    return found


def _outers(node: Node) -> Iterator[Ref]:
    for one in nodes([node]):
        for expr in one.expressions():
            yield from outers(expr)


def _every_name(node: Node) -> Iterator[str]:
    """The names of the columns of a plan's nodes."""
    for one in nodes([node]):
        yield from names_of(one)


def _shifted(node: Node, left_out: Collection[str] = ()) -> dict[str, Node]:
    """The nodes that read no rows of the query around, by id, as parts of that query's plan."""
    made: dict[str, Node] = {}
    for one in nodes([node]):
        if one.id in left_out:
            continue
        below = tuple(made[part.id] for part in one.inputs)
        same = all(new is old for new, old in zip(below, one.inputs, strict=True))
        if not same or any(has_outer(expr) for expr in one.expressions()):
            made[one.id] = one.mapped(lambda expr: inward(expr, _none), below)
        else:
            made[one.id] = one
    return made


def _none(name: str, type_: DataType) -> Expr:
    raise AssertionError(f"{name} is a reference that was not pulled up")


# -- pulling up --------------------------------------------------------------------------------


_Pulled: TypeAlias = tuple[Node, list[Expr]] | None


def _pulled(root: Node, dependent: Collection[str], *, top: bool) -> _Pulled:
    """The plan without its conditions on outer rows, and these over its columns; None if not so.

    An aggregate without groups needs that nothing but projections stands above, and `top`.
    """
    first = _first(root) if top else None
    made: dict[str, _Pulled] = {}
    for node in nodes([root]):
        if node.id not in dependent:
            made[node.id] = node, []
        else:
            below = [made[part.id] for part in node.inputs]
            made[node.id] = _pulled_node(node, below, node == first)
    return made[root.id]


def _first(node: Node) -> Node:
    """What stands below the projections on top of a plan that only name columns."""
    while isinstance(node, Project) and all(isinstance(out.expr, Ref) for out in node.outputs):
        node = node.input
    return node


def _pulled_node(node: Node, pulled: Sequence[_Pulled], first: bool) -> _Pulled:
    """A node over inputs whose conditions were pulled up, and these; None if there is no such."""
    if isinstance(node, Join):
        return _pulled_join(node, pulled[0], pulled[1])
    if len(pulled) != 1 or pulled[0] is None:
        return None
    below, conditions = pulled[0]
    if isinstance(node, Filter):
        return _pulled_filter(node, below, conditions)
    if any(next(outers(expr), None) for expr in node.expressions()):
        return None
    return _pulled_over(node, below, conditions, first)


def _pulled_filter(node: Filter, below: Node, conditions: list[Expr]) -> _Pulled:
    parts = conjuncts(node.predicate)
    mine = [part for part in parts if next(outers(part), None)]
    for part in parts:
        if part not in mine:
            below = filtered(below, part)
    return below, [*conditions, *mine]


@singledispatch
def _pulled_over(node: Node, below: Node, conditions: list[Expr], first: bool) -> _Pulled:
    """A node without outer references, over an input whose conditions were pulled up.

    Of a node that is not known here nothing is pulled up: it is pushed down, which always does.
    """
    return None


def _pulled_join(node: Join, left: _Pulled, right: _Pulled) -> _Pulled:
    """Conditions of both sides of an inner join, or of the side whose rows any join keeps."""
    if left is None or right is None or (node.kind != "inner" and right[1]):
        return None
    if left[1] and right[1] and len(left[1]) + len(right[1]) > MOST_PULLED:
        return None
    made, other = left[0], right[0]
    if node.shows_right and names_of(made) & names_of(other):
        return None  # columns that were added for the conditions
    return Join(node.kind, made, other, node.on), [*left[1], *right[1]]


@_pulled_over.register
def _pulled_project(node: Project, below: Node, conditions: list[Expr], first: bool) -> _Pulled:
    outputs, meaning = list(node.outputs), dict[str, Expr]()
    own = refs(below)
    for name in dict.fromkeys(n for condition in conditions for n in references(condition)):
        shown = next((o.name for o in outputs if o.expr == own[name]), None)
        if shown is None:
            shown = unused(name, [out.name for out in outputs])
            outputs.append(Named(shown, own[name]))
        meaning[name] = Ref(shown, own[name].type)
    return projected(below, outputs), [rewritten(part, meaning) for part in conditions]


@_pulled_over.register
def _pulled_aggregate(node: Aggregate, below: Node, conditions: list[Expr], first: bool) -> _Pulled:
    if not node.keys and not first:
        return None
    keys = list(node.keys)
    taken = names_of(node)
    pulled: list[Expr] = []
    for condition in conditions:
        sides = _equation(condition)
        if sides is None:
            return None
        inner, theirs, function = sides
        key = next((key for key in keys if key.expr == inner), None)
        if key is None:
            key = Named(unused(str(inner), taken), inner)
            taken.add(key.name)
            keys.append(key)
        pulled.append(make(function, Ref(key.name, inner.type), theirs))
    return Aggregate(below, tuple(keys), node.aggregates), pulled


@_pulled_over.register(TopK)
@_pulled_over.register(Window)
def _pulled_partition(
    node: TopK | Window, below: Node, conditions: list[Expr], first: bool
) -> _Pulled:
    partition = list(node.partition)
    pulled: list[Expr] = []
    for condition in conditions:
        sides = _equation(condition)
        if sides is None:
            return None
        inner, theirs, function = sides
        if not isinstance(inner, Ref):
            column = unused(str(inner), {*names_of(node), *names_of(below)})
            below = projected(below, [*_copies(below), Named(column, inner)])
            inner = Ref(column, inner.type)
        if inner.name not in partition:
            partition.append(inner.name)
        pulled.append(make(function, inner, theirs))
    return replace(node, input=below, partition=tuple(partition)), pulled


def _equation(condition: Expr) -> tuple[Expr, Expr, str] | None:
    """An expression of the subquery's rows alone that equals one of outer rows alone."""
    if not isinstance(condition, Call) or condition.function not in ("eq", "null_safe_eq"):
        return None
    for inner, theirs in (condition.args, condition.args[::-1]):
        if not has_outer(inner) and next(references(theirs), None) is None:
            return inner, theirs, condition.function
    return None


def _absent(node: Node) -> Iterator[tuple[str, Lit]]:
    """What columns of an aggregate without groups are where there are no rows."""
    if isinstance(node, Project):
        below = dict(_absent(node.input))
        for out in node.outputs:
            if isinstance(out.expr, Ref) and out.expr.name in below:
                yield out.name, below[out.expr.name]
    elif isinstance(node, Aggregate) and not node.keys:
        for call in node.aggregates:
            if call.entry.is_never_null:
                yield call.name, Lit(0, call.type)
            elif call.type.is_array:
                raise Unsupported(
                    "an ARRAY of a subquery that reads outer rows is not taken",
                    hint="Join with the inner query, grouped by what it is asked for",
                )


# -- pushing down ------------------------------------------------------------------------------


class _Pushed:
    """A subquery computed for all different values of some columns of the rows around.

    `columns` of its nodes hold these values.
    """

    def __init__(self, host: Node, wanted: Sequence[Ref], root: Node, dependent: Collection[str]):
        self._host, self._wanted, self._root, self._dependent = host, wanted, root, dependent
        self._numbers = count()
        self._taken = {name.partition(".")[0] for name in _every_name(root)}
        self._apart = _shifted(root, dependent)
        self.columns = self._fresh()

    def down(self) -> Node:
        """The plan for all outer values."""
        made: dict[str, Node] = {}
        for node in nodes([self._root]):
            if node.id in self._dependent:
                made[node.id] = self._pushed(node, made)
        return made[self._root.id]

    def _fresh(self) -> dict[str, Ref]:
        # A subquery inside this one may have been pushed down before.
        mark = next(m for n in self._numbers if (m := f"#outer{n or ''}") not in self._taken)
        return {ref.name: Ref(f"{mark}.{ref.name}", ref.type) for ref in self._wanted}

    def _values(self) -> Node:
        keys = tuple(Named(self.columns[ref.name].name, ref) for ref in self._wanted)
        return Aggregate(self._host, keys, ())

    def _with_values(self, node: Node, made: Mapping[str, Node]) -> Node:
        """A node for all outer values; one that does not read them has its rows for each."""
        if node.id in self._dependent:
            return made[node.id]
        return Join("inner", self._values(), self._apart[node.id], ())

    def _pushed(self, node: Node, made: Mapping[str, Node]) -> Node:
        """A dependent node for all outer values, over its inputs for them."""

        def change(expr: Expr) -> Expr:
            return inward(expr, lambda name, _: self.columns[name])

        if isinstance(node, Join):
            return self._pushed_join(node, made)
        if isinstance(node, Union):
            branches = [self._with_values(part, made) for part in node.inputs]
            return _united(branches, node, tuple(ref.name for ref in self.columns.values()))
        (lower,) = node.inputs
        below = self._with_values(lower, made)
        pushed = _pushed_over(node, below, change, tuple(self.columns.values()))
        return self._with_absent(pushed, node) if node.has_one_row else pushed

    def _pushed_join(self, node: Join, made: Mapping[str, Node]) -> Node:
        on = node.on
        if node.right.id not in self._dependent:
            left, right = made[node.left.id], self._apart[node.right.id]
        elif node.kind == "inner" and node.left.id not in self._dependent:
            left, right = self._apart[node.left.id], made[node.right.id]
        else:
            left, again = self._with_values(node.left, made), self._fresh()
            right = _renamed(made[node.right.id], self.columns, again)
            on += tuple(Match(self.columns[name], again[name], True) for name in again)
        # Both sides may have got columns of one name for their row keys.
        ours = {*names_of(node.left), *(ref.name for ref in self.columns.values())}
        return joined_over(node.kind, left, right, on, ours)

    def _with_absent(self, made: Node, node: Node) -> Node:
        """One row for each outer value, also where there is nothing to aggregate."""
        assert isinstance(made, Aggregate)
        columns, again = self.columns, self._fresh()
        outputs = [Named(again[name].name, ref) for name, ref in columns.items()]
        outputs += [Named(call.name, Ref(call.name, call.type)) for call in made.aggregates]
        found = projected(made, outputs)
        same = tuple(Match(columns[name], again[name], True) for name in columns)
        both = Join("left", self._values(), found, same)
        absent = dict(_absent(node))
        shown = [Named(ref.name, ref) for ref in columns.values()]
        for call in made.aggregates:
            value: Expr = Ref(call.name, call.type)
            if call.name in absent:
                value = make("coalesce", value, absent[call.name])
            shown.append(Named(call.name, value))
        return projected(both, shown)


@singledispatch
def _pushed_over(node: Node, below: Node, change: Change, values: tuple[Ref, ...]) -> Node:
    """A dependent node of one input, given that input for all outer values, which it keeps."""
    raise AssertionError(f"{type(node).__name__} reads outer rows")


@_pushed_over.register
def _(node: Filter, below: Node, change: Change, values: tuple[Ref, ...]) -> Node:
    parts = conjuncts(change(node.predicate))
    if isinstance(below, Join) and below.kind == "inner" and not below.on:
        return joined("inner", below.left, below.right, parts)
    for part in parts:
        below = filtered(below, part)
    return below


@_pushed_over.register
def _(node: Project, below: Node, change: Change, values: tuple[Ref, ...]) -> Node:
    outputs = [Named(out.name, change(out.expr)) for out in node.outputs]
    return projected(below, [*outputs, *(Named(ref.name, ref) for ref in values)])


@_pushed_over.register
def _(node: Aggregate, below: Node, change: Change, values: tuple[Ref, ...]) -> Node:
    keys = (Named(key.name, change(key.expr)) for key in node.keys)
    added = (Named(ref.name, ref) for ref in values)
    calls = tuple(call.mapped(change) for call in node.aggregates)
    return Aggregate(below, (*keys, *added), calls)


@_pushed_over.register(TopK)
@_pushed_over.register(Window)
def _(node: TopK | Window, below: Node, change: Change, values: tuple[Ref, ...]) -> Node:
    made = node.mapped(change, (below,))
    assert isinstance(made, TopK | Window)
    return replace(made, partition=node.partition + tuple(ref.name for ref in values))


def _renamed(node: Node, columns: Mapping[str, Ref], again: Mapping[str, Ref]) -> Node:
    """A node whose columns of outer values are called otherwise."""
    names = {ref.name: again[name].name for name, ref in columns.items()}
    outputs = [Named(names.get(name, name), ref) for name, ref in refs(node).items()]
    return projected(node, outputs)


def _united(branches: list[Node], node: Union, names: tuple[str, ...]) -> Node:
    """A union of its columns and the outer values; what joins added beside is left out."""
    wanted = [*(column.name for column in node.columns), *names]
    made = []
    for branch in branches:
        if set(branch.row_key) - set(wanted):
            # Rows differ in the union's row key and the outer values already.
            keys = tuple(Named(n, r) for n, r in refs(branch).items() if n in wanted)
            branch = Aggregate(branch, keys, ())
        own = refs(branch)
        made.append(projected(branch, [Named(name, own[name]) for name in wanted]))
    return Union(tuple(made), (*node.row_key, *names))


def _copies(node: Node) -> list[Named]:
    return [Named(name, ref) for name, ref in refs(node).items()]
