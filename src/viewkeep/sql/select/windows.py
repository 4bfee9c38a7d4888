"""Window functions: recognised in a query, typed as Spark types them, and stacked as plan nodes.

Law: windows see the rows, or groups, that WHERE and HAVING left, and QUALIFY chooses among them
afterwards. There is one Window node for each partition and order, however many functions ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from viewkeep.errors import SqlError, TypeMismatch, UnknownName, Unsupported
from viewkeep.expr import Expr, Lit, Ref, unused
from viewkeep.ops.functions import cast_to
from viewkeep.plan.nodes import Frame, KeyPart, Node, Window, WindowCall
from viewkeep.sql.expressions.canonical import fold
from viewkeep.sql.expressions.scalars import Leaf, lower, predicate
from viewkeep.sql.grouping.aggregates import Calls, is_aggregate
from viewkeep.sql.grouping.group_by import Item, Rewrite, alias_leaf, blamed, typed
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.columns import computed
from viewkeep.sql.relations.scope import Scope
from viewkeep.sql.select.order_by import Order, Spelt, check_nulls, directed, ordered_also
from viewkeep.types import DOUBLE, INT

_RANKS = {
    "row_number": INT,
    "rank": INT,
    "dense_rank": INT,
    "percent_rank": DOUBLE,
    "cume_dist": DOUBLE,
    "ntile": INT,
}
_SHIFTS = ("lag", "lead")
_PICKS = {
    "first_value": "first_value",
    "first": "first_value",
    "last_value": "last_value",
    "last": "last_value",
    "nth_value": "nth_value",
}
_TOTALS = ("count_star", "count", "sum", "avg", "min", "max")
_AGGREGATES = ("count", "count_if", "sum", "avg", "mean", "min", "max")
_HELD = "#held"  # stands for an aggregate inside a window function
_ALL = Frame("rows", None, None)


@dataclass(frozen=True)
class _Over:
    """What a function is computed over: partition, order, and the frame that was written.

    `ordered` says that there is an ORDER BY, also one that tells no rows of a partition apart: all
    of them are peers then.
    """

    partition: tuple[Expr, ...]
    order: Order
    ordered: bool
    frame: Frame | None


@dataclass(frozen=True)
class _Found:
    """A window function of the query, and where it was written."""

    trees: tuple[exp.Window, ...]
    over: _Over
    call: WindowCall


class Windows:
    """The window functions of one SELECT, each once, over what `below` gives a meaning to."""

    def __init__(self, select: exp.Expr, below: Leaf, node: Node):
        self._below, self._named = below, _definitions(select)
        self._taken = frozenset(column.name for column in node.columns)
        self.found: dict[str, _Found] = {}

    def leaf(self, tree: exp.Expr) -> Expr | None:
        """The meaning of a window function: a column of a Window node; else what `below` says."""
        if not isinstance(tree, exp.Window):
            return self._below(tree)
        try:
            found = self._function(tree)
        except SqlError as error:
            if error.fragment is not None:
                raise
            raise type(error)(error.reason, fragment=text_of(tree), hint=error.hint) from error
        name = found.call.name
        if name in self.found:  # asked for again, elsewhere in the text
            found = replace(found, trees=self.found[name].trees + found.trees)
        self.found[name] = found
        return Ref(found.call.name, found.call.type)

    def over(self, node: Node, spelt: Spelt, rewrite: Rewrite = lambda expr: expr) -> Node:
        """The rows of a node with all the functions; `rewrite` says expressions of its columns.

        Where a function has to choose between peers, the row key decides, in the plan and, as far
        as `spelt` has names for its columns, in the text.
        """
        made = [_rewritten(self.found[name], rewrite) for name in sorted(self.found)]
        made = [_decided(one, node) if _chooses(one.call) else one for one in made]
        exprs = [expr for one in made for expr in one.over.partition]
        exprs += [expr for one in made for expr, _ in one.over.order]
        node, names = computed(node, exprs)
        stacked: dict[tuple[tuple[str, ...], tuple[KeyPart, ...]], list[WindowCall]] = {}
        for one in made:
            partition = tuple(sorted(names[expr] for expr in one.over.partition))
            order = tuple(KeyPart(names[expr], descending) for expr, descending in one.over.order)
            stacked.setdefault((partition, order), []).append(one.call)
        for one in made:
            if _chooses(one.call):
                self._spell(one, spelt)
        for place in sorted(stacked, key=repr):
            node = Window(node, *place, tuple(stacked[place]))
        return node

    def _spell(self, found: _Found, spelt: Spelt) -> None:
        """Write into the text what decides between peers."""
        added = found.over.order[len(self.found[found.call.name].over.order) :]
        for tree in found.trees:
            definition = self._definition(tree)
            if definition is not tree:
                for part in ("partition_by", "order", "spec"):
                    value = definition.args.get(part)
                    tree.set(part, value.copy() if isinstance(value, exp.Expr) else value)
                tree.set("alias", None)
            tree.set("order", ordered_also(tree.args.get("order"), added, spelt))

    def _function(self, tree: exp.Window) -> _Found:
        function, ignore_nulls = _bare(tree)
        over = self._over(tree)
        call = self._call(tree, function, over)
        if ignore_nulls:
            if call.function not in (*_SHIFTS, *_PICKS.values()):
                raise Unsupported(f"{call.function} takes no IGNORE NULLS", hint="Leave it out")
            call = replace(call, ignore_nulls=True)
        name = unused(_text(call, over), self._taken)
        return _Found((tree,), over, replace(call, name=name))

    def _over(self, tree: exp.Window) -> _Over:
        spec = self._definition(tree)
        parts = [lower(part, self._below) for part in spec.args.get("partition_by") or ()]
        partition = {typed("PARTITION BY", part) for part in parts if not isinstance(part, Lit)}
        order = spec.args.get("order")
        found = []
        for part in order.expressions if order is not None else ():
            check_nulls(part)
            found.append((part, lower(part.this, self._below)))
        # A constant, and what a partition is made by, is the same in all rows of a partition.
        directions = directed(found, lambda expr: expr)
        kept = tuple((expr, desc) for expr, desc in directions if expr not in partition)
        for expr, _ in kept:
            typed("ORDER BY", expr)
        frame = spec.args.get("spec")
        written = None if frame is None else _frame(frame, bool(found))
        return _Over(tuple(sorted(partition, key=str)), kept, bool(found), written)

    def _definition(self, tree: exp.Window) -> exp.Expr:
        alias = tree.args.get("alias")
        if alias is None:
            return tree
        if any(tree.args.get(part) for part in ("partition_by", "order", "spec")):
            raise Unsupported("a named window is taken as it is", hint="Write the window out")
        name = alias.name.lower()
        if name not in self._named:
            raise UnknownName(f"there is no window {name}", hint="Define it with WINDOW name AS")
        return self._named[name]

    def _call(self, tree: exp.Window, function: exp.Expr, over: _Over) -> WindowCall:
        if isinstance(function, exp.Anonymous):
            name = function.name.lower()
            arguments = function.expressions
            if name in _RANKS:
                return self._rank(name, arguments, over)
            if name in _SHIFTS:
                return self._shift(name, arguments, over)
            if name in _PICKS:
                return self._pick(_PICKS[name], arguments, over)
        if not is_aggregate(function):
            raise Unsupported("this is no window function", fragment=text_of(tree.this))
        return self._total(function, over)

    def _rank(self, name: str, arguments: list[exp.Expr], over: _Over) -> WindowCall:
        _need_order(name, over)
        wanted = 1 if name == "ntile" else 0
        _need_arguments(name, arguments, wanted, wanted)
        # The frame that Spark computes these over may be written, and changes nothing.
        if over.frame not in (None, Frame("rows", None, 0)):
            raise _no_frame(name)
        given = [self._number(name, argument, 1) for argument in arguments]
        return WindowCall("", name, tuple(given), _RANKS[name])

    def _shift(self, name: str, arguments: list[exp.Expr], over: _Over) -> WindowCall:
        _need_order(name, over)
        _need_arguments(name, arguments, 1, 3)
        if over.frame is not None:
            raise _no_frame(name)
        value = typed(name, lower(arguments[0], self._below))
        given: list[Expr] = [value]
        distance = self._number(name, arguments[1]) if len(arguments) > 1 else Lit(1, INT)
        given.append(distance)
        if len(arguments) > 2:
            default = fold(cast_to(lower(arguments[2], self._below), value.type))
            if not (isinstance(default, Lit) and default.value is None):
                given.append(default)
        return WindowCall("", name, tuple(given), value.type)

    def _pick(self, name: str, arguments: list[exp.Expr], over: _Over) -> WindowCall:
        _need_order(name, over)
        _need_arguments(name, arguments, 2 if name == "nth_value" else 1, 2)
        value = typed(name, lower(arguments[0], self._below))
        # Which of the peers is the last decides the row key, also where all rows are peers.
        frame = over.frame or Frame("range", None, 0)
        if name == "nth_value":
            number = self._number(name, arguments[1], 1)
            return WindowCall("", name, (value, number), value.type, frame)
        ignored = False
        if len(arguments) > 1:
            flag = lower(arguments[1], self._below)
            if not isinstance(flag, Lit) or not isinstance(flag.value, bool):
                raise TypeMismatch(f"the second argument of {name} is TRUE or FALSE")
            ignored = flag.value
        return WindowCall("", name, (value,), value.type, frame, ignored)

    def _total(self, function: exp.Expr, over: _Over) -> WindowCall:
        held: list[exp.Expr] = []

        def below(tree: exp.Expr) -> Expr | None:
            if isinstance(tree, exp.Column) and tree.table == _HELD:
                return self._below(held[int(tree.name)])
            return self._below(tree)

        made = Calls(below, ())
        made.leaf(_holding(function, held))
        call = next(iter(made.found.values()))
        if call.function.endswith("_distinct"):
            raise Unsupported(
                "DISTINCT is not taken in a window",
                hint="Aggregate by GROUP BY first, and join",
            )
        inner = function.this if isinstance(function, exp.Filter) else function
        if call.function not in _TOTALS or inner.name.lower() not in _AGGREGATES:
            raise Unsupported(
                f"{inner.name.lower()} is not taken over a window",
                hint=f"Taken are {', '.join(_AGGREGATES)} and the ranking functions",
            )
        arguments = () if call.argument is None else (call.argument,)
        frame = _default(over)
        if frame.unit == "rows" and frame != _ALL:
            _need_order(f"a ROWS frame of {call.function}", over)
        return WindowCall("", call.function, arguments, call.type, frame)

    def _number(self, name: str, tree: exp.Expr, least: int | None = None) -> Lit:
        made = lower(tree, self._below)
        if not isinstance(made, Lit) or not made.type.is_integer or not isinstance(made.value, int):
            raise TypeMismatch(f"the number of {name} must be a constant", fragment=text_of(tree))
        if least is not None and made.value < least:
            raise TypeMismatch(f"the number of {name} is at least {least}", fragment=text_of(tree))
        return Lit(made.value, INT)


def qualified(select: exp.Expr, items: list[Item], scope: Scope, windows: Windows) -> Expr | None:
    """The condition of QUALIFY: of columns and functions first, else of names of SELECT."""
    clause = select.args.get("qualify")
    if clause is None:
        return None
    made = predicate(clause.this, alias_leaf(items, scope, windows.leaf))
    if not windows.found:
        raise Unsupported(
            "QUALIFY needs a window function",
            fragment=text_of(clause.this),
            hint="Put conditions on rows into WHERE, on groups into HAVING",
        )
    return made


def _definitions(select: exp.Expr) -> dict[str, exp.Expr]:
    """The named windows of a WINDOW clause."""
    made: dict[str, exp.Expr] = {}
    for window in select.args.get("windows") or ():
        name = window.name.lower()
        if name in made:
            raise Unsupported(f"two windows are called {name}", fragment=text_of(window))
        if window.args.get("alias") is not None:
            raise Unsupported(
                "a window is not made from another", fragment=text_of(window), hint="Write it out"
            )
        made[name] = window
    return made


def _bare(tree: exp.Window) -> tuple[exp.Expr, bool]:
    """The function of a window without its NULL treatment, and whether it passes over NULLs."""
    function = tree.this
    ignored = isinstance(function, exp.IgnoreNulls)
    if isinstance(function, exp.IgnoreNulls | exp.RespectNulls):
        function = function.this
    inner = function.expressions if isinstance(function, exp.Anonymous) else ()
    if any(isinstance(arg, exp.IgnoreNulls | exp.RespectNulls) for arg in inner):
        raise Unsupported("IGNORE NULLS stands after the arguments", hint="Write f(x) IGNORE NULLS")
    return function, ignored


def _holding(function: exp.Expr, held: list[exp.Expr]) -> exp.Expr:
    """The aggregate with the aggregates inside it, which are of groups, taken out."""
    copy = function.copy()
    outer = copy.this if isinstance(copy, exp.Filter) else copy
    parts = list(outer.expressions)
    if isinstance(copy, exp.Filter):
        parts.append(copy.expression)
    for part in parts:
        for inner in list(_outermost(part)):
            place = exp.column(exp.to_identifier(str(len(held)), quoted=True), table=_HELD)
            held.append(inner.copy())
            inner.replace(place)
    return copy


def _outermost(tree: exp.Expr) -> Iterator[exp.Expr]:
    for node in tree.walk(prune=lambda node: is_aggregate(node) or isinstance(node, exp.Query)):
        if is_aggregate(node):
            yield node


def _frame(spec: exp.Expr, ordered: bool) -> Frame:
    unit = str(spec.args["kind"]).lower()
    if unit == "groups":
        raise Unsupported("GROUPS frames are not taken", hint="Write ROWS or RANGE")
    start = _bound(spec, "start", "PRECEDING")
    stop = _bound(spec, "end", "FOLLOWING") if spec.args.get("end") is not None else 0
    if unit == "range" and {start, stop} - {0, None}:
        raise Unsupported(
            "RANGE with a distance is not taken",
            hint="Count rows with ROWS, or join the rows of the range",
        )
    if start is not None and stop is not None and start > stop:
        raise Unsupported("the frame ends before it begins")
    if (start, stop) == (None, None) or (unit == "range" and not ordered):
        return _ALL
    return Frame(unit, start, stop)


def _bound(spec: exp.Expr, name: str, unbounded: str) -> int | None:
    value, side = spec.args.get(name), str(spec.args.get(f"{name}_side") or "").upper()
    if value == "CURRENT ROW":
        return 0
    if value == "UNBOUNDED":
        if side != unbounded:
            raise Unsupported(f"a frame cannot {name} at UNBOUNDED {side}")
        return None
    if isinstance(value, exp.Interval):
        raise Unsupported(
            "RANGE with a distance is not taken",
            hint="Count rows with ROWS, or join the rows of the range",
        )
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit():
        return int(value.name) * (-1 if side == "PRECEDING" else 1)
    raise Unsupported("the distance of a frame is a whole number")


def _default(over: _Over) -> Frame:
    """The frame that was written, or Spark's: up to the row and its peers if there is an order."""
    if over.frame is not None:
        return over.frame
    return Frame("range", None, 0) if over.order else _ALL


def _chooses(call: WindowCall) -> bool:
    """Whether peers get different values by their order, which has to be decided then.

    Over a RANGE frame that ends at the row, the row's peers matter, and an order that tells them
    apart would leave them out; so there the row key decides without being part of the order.
    """
    if call.function in ("row_number", "ntile", *_SHIFTS):
        return True
    if call.frame is None:
        return False
    if call.frame.unit == "rows":
        return call.frame != _ALL or call.function in _PICKS.values()
    return (call.function, call.frame.start, call.ignore_nulls) == ("first_value", None, False)


def _decided(found: _Found, node: Node) -> _Found:
    """The function with the row key at the end of its order."""
    types = {column.name: column.type for column in node.columns}
    keys = [Ref(name, types[name]) for name in node.row_key]
    known = {*found.over.partition, *(expr for expr, _ in found.over.order)}
    added = tuple((key, False) for key in keys if key not in known)
    return replace(found, over=replace(found.over, order=found.over.order + added))


def _need_order(name: str, over: _Over) -> None:
    if not over.ordered:
        raise Unsupported(f"{name} needs an ORDER BY in its window", hint="Say which row is first")


def _need_arguments(name: str, arguments: list[exp.Expr], least: int, most: int) -> None:
    if not least <= len(arguments) <= most:
        takes = str(least) if least == most else f"{least} to {most}"
        raise TypeMismatch(f"{name} takes {takes} arguments")


def _no_frame(name: str) -> Unsupported:
    return Unsupported(f"{name} takes no frame", hint="Leave ROWS or RANGE out")


def _text(call: WindowCall, over: _Over) -> str:
    """What a function computes, as the name of its column."""
    parts = []
    if over.partition:
        parts.append("partition by " + ", ".join(map(str, over.partition)))
    if over.order:
        order = (f"{expr}{' desc' if descending else ''}" for expr, descending in over.order)
        parts.append("order by " + ", ".join(order))
    if call.frame is not None and call.frame != _default(replace(over, frame=None)):
        bounds = ["unbounded" if d is None else str(d) for d in (call.frame.start, call.frame.stop)]
        parts.append(f"{call.frame.unit} {' to '.join(bounds)}")
    name = "count" if call.function == "count_star" else call.function
    inner = ", ".join(map(str, call.arguments)) or ("*" if name == "count" else "")
    nulls = " ignore nulls" if call.ignore_nulls else ""
    return f"{name}({inner}){nulls} over ({' '.join(parts)})"


def _rewritten(found: _Found, rewrite: Rewrite) -> _Found:
    text = text_of(found.trees[0])

    def said(expr: Expr) -> Expr:
        return blamed(text, expr, rewrite)

    partition = tuple(said(expr) for expr in found.over.partition)
    order = tuple((said(expr), descending) for expr, descending in found.over.order)
    arguments = tuple(said(expr) for expr in found.call.arguments)
    over = replace(found.over, partition=partition, order=order)
    return replace(found, over=over, call=replace(found.call, arguments=arguments))
