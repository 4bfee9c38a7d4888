"""Plans of subqueries without references to outer rows: conditions of a join with them instead.

Law: for each outer row, the rows of the subquery are the rows of the decorrelated node for which
its conditions hold. There are two ways. Conditions are *pulled up* out of Filters, where an
equation becomes one more key of the groups and partitions above it. Where that does not do, the
different outer values are *pushed down*: the subquery is computed for all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from viewkeep.errors import Unsupported
from viewkeep.expr import Call, Expr, Lit, Ref, references, unused
from viewkeep.plan.conditions import conjuncts, rewritten
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Match,
    Named,
    Node,
    Ordering,
    Project,
    TopK,
    Union,
    Values,
    Window,
    inputs,
    nodes,
)
from viewkeep.plan.passes.rebuild import projected
from viewkeep.sql.canonical import make
from viewkeep.sql.columns import filtered
from viewkeep.sql.joins import joined, names_of, refs
from viewkeep.sql.outer import has_outer, inward, outer, outers
from viewkeep.types import DataType

_COUNTS = ("count_star", "count", "count_distinct")


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
    if not is_dependent(node):
        return Free(_shifted(node), tuple(outputs), (), always, complete=always)
    pulled = _pulled(node, top=absent_too)
    if pulled is not None:
        below, conditions = pulled
        absent = tuple(_absent(node)) if always else ()
        return Free(_shifted(below), tuple(outputs), tuple(conditions), always, absent)
    read = {ref.name: ref for ref in _outers(node)}
    wanted = [read[name] for name in sorted(read)]
    pushed = _Pushed(host(), wanted, set(_every_name(node)))
    made, columns = pushed.down(node)
    pairs = [(outer(ref.name, ref.type), columns[ref.name]) for ref in wanted]
    matches = tuple(make("null_safe_eq", theirs, own) for theirs, own in pairs)
    return Free(made, tuple(outputs), matches, always, complete=always)


def _has_one_row(node: Node) -> bool:
    """Whether a plan gives exactly one row whatever there is."""
    while isinstance(node, Project):
        node = node.input
    if isinstance(node, Values):
        return len(node.rows) == 1
    return isinstance(node, Aggregate) and not node.keys


def outer_names(node: Node, outputs: Sequence[Expr]) -> set[str]:
    """The columns of the query just around that a subquery reads."""
    given = (ref.name for expr in outputs for ref in outers(expr))
    return {*given, *(ref.name for ref in _outers(node))}


def is_dependent(node: Node) -> bool:
    """Whether a plan reads rows of the query just around it."""
    return next(_outers(node), None) is not None


def _outers(node: Node) -> Iterator[Ref]:
    for one in nodes([node]):
        for expr in _expressions(one):
            yield from outers(expr)


def _expressions(node: Node) -> Iterator[Expr]:
    match node:
        case Filter():
            yield node.predicate
        case Project():
            yield from (out.expr for out in node.outputs)
        case Aggregate():
            yield from (key.expr for key in node.keys)
            for call in node.aggregates:
                yield from () if call.argument is None else (call.argument,)
                yield from (part.expr for part in call.by)
        case Join():
            for match in node.on:
                yield from (match.left, match.right)
        case Window():
            for asked in node.calls:
                yield from asked.arguments


def _mapped(node: Node, change: Callable[[Expr], Expr], below: tuple[Node, ...]) -> Node:
    """The node over other inputs with all its expressions changed."""
    match node:
        case Filter():
            return Filter(below[0], change(node.predicate))
        case Project():
            return Project(below[0], tuple(Named(o.name, change(o.expr)) for o in node.outputs))
        case Aggregate():
            keys = tuple(Named(key.name, change(key.expr)) for key in node.keys)
            return Aggregate(below[0], keys, tuple(_called(c, change) for c in node.aggregates))
        case Join():
            on = tuple(Match(change(m.left), change(m.right), m.null_safe) for m in node.on)
            return Join(node.kind, below[0], below[1], on)
        case Window():
            calls = tuple(
                replace(call, arguments=tuple(change(arg) for arg in call.arguments))
                for call in node.calls
            )
            return replace(node, input=below[0], calls=calls)
        case Union():
            return Union(below, node.row_key)
        case TopK():
            return replace(node, input=below[0])
    return node


def _every_name(node: Node) -> Iterator[str]:
    """The names of the columns of a plan's nodes."""
    for one in nodes([node]):
        yield from names_of(one)


def _called(call: AggregateCall, change: Callable[[Expr], Expr]) -> AggregateCall:
    argument = None if call.argument is None else change(call.argument)
    by = tuple(Ordering(change(part.expr), part.descending) for part in call.by)
    return replace(call, argument=argument, by=by)


def _shifted(node: Node) -> Node:
    """A plan that reads no rows of the query around, as a part of that query's plan."""
    made: dict[str, Node] = {}
    for one in nodes([node]):
        below = tuple(made[part.id] for part in inputs(one))
        same = all(new is old for new, old in zip(below, inputs(one), strict=True))
        if not same or any(has_outer(expr) for expr in _expressions(one)):
            made[one.id] = _mapped(one, lambda expr: inward(expr, _none), below)
        else:
            made[one.id] = one
    return made[node.id]


def _none(name: str, type_: DataType) -> Expr:
    raise AssertionError(f"{name} is a reference that was not pulled up")


# -- pulling up --------------------------------------------------------------------------------


def _pulled(node: Node, top: bool = False) -> tuple[Node, list[Expr]] | None:
    """The node without its conditions on outer rows, and these over its columns; None if not so.

    `top` means that nothing but projections stands above, as an aggregate without groups needs.
    """
    if not is_dependent(node):
        return node, []
    if isinstance(node, Join):
        return _pulled_join(node)
    if isinstance(node, Union):
        return None
    own = list(_expressions(node))
    if not isinstance(node, Filter) and any(next(outers(expr), None) for expr in own):
        return None
    (lower,) = inputs(node)
    plain = isinstance(node, Project) and all(isinstance(expr, Ref) for expr in own)
    found = _pulled(lower, top and plain)
    if found is None:
        return None
    below, conditions = found
    match node:
        case Filter():
            parts = conjuncts(node.predicate)
            mine = [part for part in parts if next(outers(part), None)]
            kept = [part for part in parts if part not in mine]
            for part in kept:
                below = filtered(below, part)
            return below, [*conditions, *mine]
        case Project():
            return _pulled_project(node, below, conditions)
        case Aggregate():
            if not node.keys and not top:
                return None
            return _pulled_aggregate(node, below, conditions)
        case TopK() | Window():
            return _pulled_partition(node, below, conditions)
    return None


def _pulled_join(node: Join) -> tuple[Node, list[Expr]] | None:
    """Conditions of both sides of an inner join, or of the side whose rows any join keeps."""
    if node.kind != "inner" and is_dependent(node.right):
        return None
    left, right = _pulled(node.left), _pulled(node.right)
    if left is None or right is None:
        return None
    made, other = left[0], right[0]
    shows = node.shows_right
    if shows and names_of(made) & names_of(other):
        return None  # columns that were added for the conditions
    return Join(node.kind, made, other, node.on), [*left[1], *right[1]]


def _pulled_project(node: Project, below: Node, conditions: list[Expr]) -> tuple[Node, list[Expr]]:
    outputs, meaning = list(node.outputs), dict[str, Expr]()
    own = refs(below)
    for name in dict.fromkeys(n for condition in conditions for n in references(condition)):
        shown = next((o.name for o in outputs if o.expr == own[name]), None)
        if shown is None:
            shown = unused(name, [out.name for out in outputs])
            outputs.append(Named(shown, own[name]))
        meaning[name] = Ref(shown, own[name].type)
    return projected(below, outputs), [rewritten(part, meaning) for part in conditions]


def _pulled_aggregate(
    node: Aggregate, below: Node, conditions: list[Expr]
) -> tuple[Node, list[Expr]] | None:
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


def _pulled_partition(
    node: TopK | Window, below: Node, conditions: list[Expr]
) -> tuple[Node, list[Expr]] | None:
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
            if call.function in _COUNTS:
                yield call.name, Lit(0, call.type)
            elif call.type.is_array:
                raise Unsupported(
                    "an ARRAY of a subquery that reads outer rows is not taken",
                    hint="Join with the inner query, grouped by what it is asked for",
                )


# -- pushing down ------------------------------------------------------------------------------


class _Pushed:
    """A subquery computed for all different values of some columns of the rows around."""

    def __init__(self, host: Node, wanted: Sequence[Ref], taken: set[str]):
        self._host, self._wanted, self._numbers = host, wanted, count()
        self._taken = {name.partition(".")[0] for name in taken}

    def down(self, node: Node) -> tuple[Node, dict[str, Ref]]:
        """The node for all outer values, and its columns that hold them."""
        columns = self._fresh()
        return self._pushed(node, columns), columns

    def _fresh(self) -> dict[str, Ref]:
        # A subquery inside this one may have been pushed down before.
        mark = next(m for n in self._numbers if (m := f"#outer{n or ''}") not in self._taken)
        return {ref.name: Ref(f"{mark}.{ref.name}", ref.type) for ref in self._wanted}

    def _values(self, columns: dict[str, Ref]) -> Node:
        keys = tuple(Named(columns[ref.name].name, ref) for ref in self._wanted)
        return Aggregate(self._host, keys, ())

    def _pushed(self, node: Node, columns: dict[str, Ref]) -> Node:
        def change(expr: Expr) -> Expr:
            return inward(expr, lambda name, _: columns[name])

        added = [Named(ref.name, ref) for ref in columns.values()]
        names = tuple(ref.name for ref in columns.values())
        if not is_dependent(node):
            return Join("inner", self._values(columns), _shifted(node), ())
        if isinstance(node, Join):
            return self._pushed_join(node, columns, change)
        if isinstance(node, Union):
            branches = [self._pushed(part, columns) for part in node.inputs]
            return _united(branches, node, names)
        (lower,) = inputs(node)
        below = self._pushed(lower, columns)
        match node:
            case Filter():
                parts = conjuncts(change(node.predicate))
                if isinstance(below, Join) and below.kind == "inner" and not below.on:
                    return joined("inner", below.left, below.right, parts)
                for part in parts:
                    below = filtered(below, part)
                return below
            case Project():
                outputs = [Named(out.name, change(out.expr)) for out in node.outputs]
                return projected(below, [*outputs, *added])
            case Aggregate():
                keys = (*(Named(k.name, change(k.expr)) for k in node.keys), *added)
                calls = tuple(_called(call, change) for call in node.aggregates)
                made = Aggregate(below, keys, calls)
                return made if node.keys else self._with_absent(made, node, columns)
            case TopK():
                return replace(node, input=below, partition=node.partition + names)
            case Window():
                made_node = _mapped(node, change, (below,))
                assert isinstance(made_node, Window)
                return replace(made_node, partition=node.partition + names)
        raise AssertionError(f"{type(node).__name__} reads outer rows")

    def _pushed_join(
        self, node: Join, columns: dict[str, Ref], change: Callable[[Expr], Expr]
    ) -> Node:
        if not is_dependent(node.right):
            left = self._pushed(node.left, columns)
            return Join(node.kind, left, _shifted(node.right), node.on)
        if node.kind == "inner" and not is_dependent(node.left):
            right = self._pushed(node.right, columns)
            return Join("inner", _shifted(node.left), right, node.on)
        again = self._fresh()
        left, right = self._pushed(node.left, columns), self._pushed(node.right, again)
        same = tuple(Match(columns[name], again[name], True) for name in columns)
        return Join(node.kind, left, right, (*node.on, *same))

    def _with_absent(self, made: Aggregate, node: Aggregate, columns: dict[str, Ref]) -> Node:
        """One row for each outer value, also where there is nothing to aggregate."""
        again = self._fresh()
        outputs = [Named(again[name].name, ref) for name, ref in columns.items()]
        outputs += [Named(call.name, Ref(call.name, call.type)) for call in made.aggregates]
        found = projected(made, outputs)
        same = tuple(Match(columns[name], again[name], True) for name in columns)
        both = Join("left", self._values(columns), found, same)
        absent = dict(_absent(node))
        shown = [Named(ref.name, ref) for ref in columns.values()]
        for call in made.aggregates:
            value: Expr = Ref(call.name, call.type)
            if call.name in absent:
                value = make("coalesce", value, absent[call.name])
            shown.append(Named(call.name, value))
        return projected(both, shown)


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
