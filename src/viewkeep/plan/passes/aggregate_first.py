"""Aggregates below joins: each side is grouped before it is joined, and its counts are multiplied.

Law: the same rows with the same types. A joined row stands for as many rows as the counts of the
two groups it is made of say, so COUNT sums products of counts, and SUM sums one side's sum times
the other side's count. This is exact: integers wrap in the same ring, and sums of DECIMALs are kept
in two parts where one part might not hold them (`partial_sums`).

A side is grouped if its groups are the arrangement that the join needs anyway: it is grouped by
what it is matched on alone, and a group may have several rows. So the plan never gets an operator
or a row of state more. The hint AGGREGATE_FIRST groups sides by other columns too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from viewkeep.expr import Call, Expr, Lit, Ref, references, unused
from viewkeep.plan.conditions import arranged, conjuncts, is_null_with, reads, rewritten_small
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Arrange,
    Filter,
    Join,
    Match,
    Named,
    Node,
    Project,
    Union,
    WantedKeys,
    filtered,
    names,
    never_null,
    nodes,
    over,
    projected,
    sources,
    strip,
    united,
)
from viewkeep.plan.passes.goal import Goal
from viewkeep.plan.passes.partial_sums import (
    SumPart,
    average,
    cast,
    counted_if,
    exact_product,
    is_summable,
    joined_parts,
    negated,
    or_else,
    parts_of,
    sum_type,
    times,
    whole,
)
from viewkeep.plan.passes.polynomials import Term, all_known, polynomial, product
from viewkeep.types import BIGINT, BOOLEAN, INT, DataType

_EXTREMES = ("min", "max", "bool_and", "bool_or")
_INSENSITIVE = (*_EXTREMES, "min_by", "max_by")
"""Functions whose value does not depend on how often a row is there, besides those of DISTINCT."""
_SUMMED = ("count", "sum", "avg", "bit_xor")
_MULTIPLIED = ("count", "sum", "avg")


def aggregate_first(node: Node, goal: Goal) -> Node:
    """Same rows, same columns: what an Aggregate over a join stands on is grouped before."""
    if goal.aggregate_first is False:
        return node
    always = goal.aggregate_first is True
    return _changed(node, always, frozenset() if always else frozenset(_read_otherwise(node)))


def _changed(node: Node, always: bool, kept: frozenset[str]) -> Node:
    """`kept` are joins that stay whatever is done here, so that reading them costs no state."""
    if isinstance(node, Arrange):
        return node
    if isinstance(node, Aggregate) and strip(node.input)[0].id not in kept:
        node = _rewritten(node, always) or node
    return over(node, tuple(_changed(below, always, kept) for below in node.inputs))


def _read_otherwise(root: Node) -> set[str]:
    """The ids of joins that others than Aggregates read, or Aggregates with no side to group."""
    every = [node for node in nodes([root]) if strip(node)[0] is node]
    kept, grouped = set[str](), set[str]()
    for node in every:
        if isinstance(node, Aggregate):
            plain = _rewritten(node, False) is None
            (kept if plain else grouped).add(strip(node.input)[0].id)
    for node in every:
        if not isinstance(node, Aggregate) and node.id not in grouped - kept:
            kept |= {strip(below)[0].id for below in node.inputs}
    return kept


def _rewritten(node: Aggregate, always: bool) -> Node | None:
    """An Aggregate over joins with sides grouped before; None if there are none to group."""
    below, steps = strip(node.input)
    if not isinstance(below, Union):
        made = _Rewriting.of(node)
        return made.result() if made is not None and made.choose(always) else None
    # A FULL JOIN is a union of joins.
    branches = []
    for branch in below.inputs:
        made = _Rewriting.of(replace(node, input=_stacked(steps, branch)))
        if made is None:
            return None
        branches.append(made)
    chosen = [made.choose(always) for made in branches]
    return _united(node, branches) if any(chosen) else None


def _stacked(steps: Sequence[Filter | Project], node: Node) -> Node:
    """Steps over another node with the same columns."""
    for step in steps:
        if isinstance(step, Filter):
            node = Filter(node, step.predicate)
        else:
            node = projected(node, step.outputs)
    return node


def _united(node: Aggregate, branches: list[_Rewriting]) -> Node | None:
    """An Aggregate over the joins of all branches, whose rows say how many rows they stand for."""
    parts, calls = [], list[tuple[AggregateCall, ...]]()
    for number, made in enumerate(branches):
        joined, keys, finished = made.taken_apart(counted=True)
        summed = [(call, made.part(call)) for call in made.outer.values()]
        outputs = [*keys, *(Named(call.name, part) for call, part in summed)]
        parts.append(projected(joined, [*outputs, Named("#branch", Lit(number, INT))]))
        calls.append(
            tuple(replace(call, argument=Ref(call.name, part.type), by=()) for call, part in summed)
        )
    if len(set(calls)) > 1 or any(call.by for made in branches for call in made.outer.values()):
        return None
    shown = {key.name for key in node.keys} | {call.name for call in calls[0]} | {"#branch"}
    whole = united(parts, ("#branch",), shown)
    above = tuple(Named(key.name, Ref(key.name, key.expr.type)) for key in node.keys)
    return _finished(Aggregate(whole, above, calls[0]), finished)


def _finished(made: Aggregate, finished: list[Named]) -> Node:
    """An Aggregate with values that are made of its columns."""
    if all(out.expr == Ref(out.name, out.expr.type) for out in finished):
        return made
    shown = [Named(key.name, Ref(key.name, key.expr.type)) for key in made.keys]
    return projected(made, [*shown, *finished])


def choice(node: Aggregate) -> str:
    """Which sides of the join below a planned Aggregate are grouped and why, for EXPLAIN."""
    below, steps = strip(node.input)
    branches = below.inputs if isinstance(below, Union) else (below,)
    found = dict[str, None]()
    for branch in branches:
        made = _Rewriting.of(replace(node, input=_stacked(steps, branch)))
        if made is not None and isinstance(strip(made.right.node)[0], WantedKeys):
            continue  # rows of a table are restricted after this pass
        found |= dict.fromkeys(made.reasons() if made is not None else ())
    return "; ".join(found)


@dataclass
class _Side:
    """A side of the join: what it is grouped by, and what is computed of each group.

    `extended`: its columns are NULL in rows that have no partner on this side.
    """

    node: Node
    extended: bool
    taken: set[str]
    shown: bool = True
    grouped: bool = False
    reason: str = ""
    keys: dict[Expr, str] = field(default_factory=dict)
    calls: dict[tuple[str, Expr | None], AggregateCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = names(self.node)

    def owns(self, expr: Expr) -> bool:
        """Whether an expression can be computed before the join."""
        return reads(expr, self.columns) and (
            not self.extended or isinstance(expr, Ref) or is_null_with(expr, self.columns)
        )

    def add_key(self, expr: Expr) -> None:
        if expr not in self.keys:
            name = expr.name if isinstance(expr, Ref) else unused(str(expr), self.taken)
            self.taken.add(name)
            self.keys[expr] = name

    def parts_in(self, expr: Expr) -> set[Expr]:
        """The largest parts of an expression that this side computes."""
        found: set[Expr] = set()
        waiting = [expr]
        while waiting:
            one = waiting.pop()
            if self.columns.isdisjoint(references(one)):
                continue
            if self.owns(one):
                found.add(one)
            elif isinstance(one, Call):
                waiting.extend(one.args)
        return found

    def call(self, function: str, argument: Expr | None, type_: DataType = BIGINT) -> Ref:
        """The column of a call over each group."""
        made = self.calls.get((function, argument))
        if made is None:
            inside = ", ".join(sorted(self.keys.values())) if argument is None else str(argument)
            name = unused(f"{function}({inside})", self.taken)
            self.taken.add(name)
            made = AggregateCall(name, function, argument, type_)
            self.calls[function, argument] = made
        return Ref(made.name, made.type)

    def rows(self) -> Expr | None:
        """How many rows a joined row stands for on this side; None for one."""
        if not self.grouped or not self.shown:
            return None
        count = self.call("count_star", None)
        return or_else(count, 1) if self.extended else count

    def count(self, argument: Expr) -> Expr:
        """How many of those have a value."""
        if not self.grouped:
            return counted_if(argument)
        if never_null(argument, self.node):
            count = self.call("count_star", None)
        else:
            count = self.call("count", argument)
        return or_else(count, 0) if self.extended else count

    def sum(self, argument: Expr) -> Expr:
        """Their sum; NULL if none has a value."""
        if not self.grouped:
            return whole(argument)
        return self.call("sum", argument, sum_type(argument.type))

    def product(self, factors: list[Expr], others: list[Expr]) -> Expr:
        """The sum of a product over rows in which others have values too; NULL if there are none.

        Without factors it is the number of those rows.
        """
        everywhere = not self.extended or self.grouped
        others = [one for one in others if not (everywhere and never_null(one, self.node))]
        if not factors and not others and self.grouped:
            return self.call("count_star", None)
        return self.sum(all_known(others, product(factors) if factors else Lit(1, BIGINT)))

    def above(self, expr: Expr) -> Expr:
        """An expression by the columns that the side has after it is grouped."""
        if not self.grouped or self.columns.isdisjoint(references(expr)):
            return expr
        if expr in self.keys:
            return Ref(self.keys[expr], expr.type)
        assert isinstance(expr, Call), f"{expr} is no key"
        return Call(expr.function, tuple(map(self.above, expr.args)), expr.type)

    def made(self) -> Node:
        """The side, grouped if it is to be."""
        if not self.grouped:
            return self.node
        keys = sorted((Named(name, expr) for expr, name in self.keys.items()), key=_name)
        if keys:
            return Aggregate(self.node, tuple(keys), tuple(sorted(self.calls.values(), key=_name)))
        # One group, which must not be there where there are no rows.
        some = Call("gt", (self.call("count_star", None), Lit(0, BIGINT)), BOOLEAN)
        calls = tuple(sorted(self.calls.values(), key=_name))
        return filtered(Aggregate(self.node, (), calls), [some])


def _name(one: Named | AggregateCall) -> str:
    return one.name


class _Rewriting:
    """An Aggregate over a join, with its expressions over the join's columns."""

    def __init__(self, node: Aggregate, join: Join, keys: list[Expr], calls: list[AggregateCall],
                 conditions: list[Expr]):  # fmt: skip
        self.node, self.join = node, join
        self.keys, self.calls, self.conditions = keys, calls, conditions
        taken = names(join.left) | names(join.right)
        self.left = _Side(join.left, False, taken)
        self.right = _Side(join.right, join.kind == "left", taken, join.shows_right)
        self.outer: dict[str, AggregateCall] = {}
        self.counted = False
        self.texts = {call.name: str(call.argument) for call in node.aggregates}

    @classmethod
    def of(cls, node: Aggregate) -> _Rewriting | None:
        """An Aggregate over a join, taken apart; None if it is none."""
        below, steps = strip(node.input)
        if not isinstance(below, Join):
            return None
        known: dict[Expr, Expr] = {expr: expr for expr in node.expressions()}
        conditions: list[Expr] = []
        for step in reversed(steps):
            if isinstance(step, Filter):
                conditions += conjuncts(step.predicate)
                continue
            by = {out.name: out.expr for out in step.outputs}
            moved = {old: rewritten_small(new, by) for old, new in known.items()}
            passed = [rewritten_small(condition, by) for condition in conditions]
            if None in moved.values() or None in passed:
                return None
            known = {old: new for old, new in moved.items() if new is not None}
            conditions = [condition for condition in passed if condition is not None]
        calls = [call.mapped(known.__getitem__) for call in node.aggregates]
        return cls(node, below, [known[key.expr] for key in node.keys], calls, conditions)

    @property
    def sides(self) -> tuple[_Side, _Side]:
        return self.left, self.right

    def choose(self, always: bool) -> bool:
        """Choose the sides that are grouped; whether there is one."""
        for side, own in zip(self.sides, self._matched(), strict=True):
            keys, side.reason = self._grouping(side, set(own), always)
            side.grouped = keys is not None
            for expr in sorted(keys or (), key=str):
                side.add_key(expr)
        return any(side.grouped for side in self.sides)

    def reasons(self) -> list[str]:
        """Of a planned join: which sides are grouped, then which are not and why."""
        self.choose(False)
        grouped, others = [], []
        for side in self.sides:
            below, _ = strip(side.node)
            bases = (one for one in sources(side.node) if not isinstance(one, WantedKeys))
            tables = dict.fromkeys(source.table for source in bases)
            label = ", ".join(tables) or "values"
            if isinstance(below, Aggregate):
                grouped.append(f"{label} by {', '.join(below.row_key) or 'nothing'}")
            else:
                others.append(f"not {label}: {'a hint' if side.grouped else side.reason}")
        return [*grouped, *others]

    def _grouping(
        self, side: _Side, matched: set[Expr], always: bool
    ) -> tuple[set[Expr] | None, str]:
        """What a side is to be grouped by, None if it is not, and why."""
        keys = set(matched)
        if side.shown:
            for expr in (*self.keys, *self.conditions):
                keys |= side.parts_in(expr)
        for call in self.calls if side.shown else ():
            needed = self._needed(call, side)
            if needed is None or (not always and not needed <= keys):
                return None, f"{call.name} is of its rows"
            keys |= needed
        if _unique(side.node, keys):
            return None, "each group would be a row"
        if any(expr.type.is_array for expr in keys):
            return None, "arrays make no groups"
        if not always and not keys <= matched:
            besides = ", ".join(sorted(map(str, keys - matched)))
            return None, f"{besides} is read besides what is matched"
        return keys, "its groups are what the join reads"

    def _matched(self) -> tuple[list[Expr], list[Expr]]:
        on = self.join.on
        return [m.left for m in on], [m.right for m in on]

    def _needed(self, call: AggregateCall, side: _Side) -> set[Expr] | None:
        """What a grouped side must keep as it is for a call; None if it must not be grouped."""
        if call.argument is None:
            return set()
        insensitive = call.function in _INSENSITIVE or call.function.endswith("_distinct")
        if not insensitive and not self._distributes(call):
            return None
        owner = self._owner(call.argument)
        if owner is not None and call.function in (*_SUMMED, *_EXTREMES):
            return set()
        if self._terms(call) is not None:
            return set()
        return set().union(*map(side.parts_in, call.expressions()))

    def _distributes(self, call: AggregateCall) -> bool:
        assert call.argument is not None
        if call.function in ("sum", "avg"):
            return is_summable(call.argument.type)
        return call.function in _SUMMED

    def _owner(self, expr: Expr) -> _Side | None:
        """The side that alone computes an expression; constants are the left side's."""
        return next((side for side in self.sides if side.shown and side.owns(expr)), None)

    def _terms(self, call: AggregateCall) -> list[Term[_Side]] | None:
        """An argument of both sides as a sum of products of what each of them computes."""
        if call.argument is None or call.function not in _MULTIPLIED:
            return None
        if call.function == "avg" and call.argument.type == BIGINT:
            return None  # its sum must not wrap
        return polynomial(call.argument, self._owner)

    def result(self) -> Node:
        joined, keys, finished = self.taken_apart()
        return _finished(Aggregate(joined, keys, tuple(self.outer.values())), finished)

    def taken_apart(self, counted: bool = False) -> tuple[Node, tuple[Named, ...], list[Named]]:
        """The join, what its rows are grouped by, and each value by the calls in `outer`.

        `counted`: also rows that stand for one row say so.
        """
        self.counted = counted
        finished = [Named(call.name, self._call(call)) for call in self.calls]
        keys = tuple(
            Named(key.name, self._above(expr))
            for key, expr in zip(self.node.keys, self.keys, strict=True)
        )
        ours, theirs = self._matched()
        on = tuple(
            Match(self.left.above(one), self.right.above(other), match.null_safe)
            for match, one, other in zip(self.join.on, ours, theirs, strict=True)
        )
        conditions = [self._above(condition) for condition in self.conditions]
        join = Join(self.join.kind, self.left.made(), self.right.made(), on)
        return filtered(join, conditions), keys, finished

    def part(self, call: AggregateCall) -> Expr:
        """The argument of a call above, of a type that does not depend on what is grouped."""
        assert call.argument is not None, "rows are counted"
        return (
            cast(call.argument, sum_type(call.argument.type))
            if (call.function == "sum")
            else call.argument
        )

    def _above(self, expr: Expr) -> Expr:
        made = self.left.above(expr)
        # Columns of a side that is not shown may be called as those of the other.
        return self.right.above(made) if self.right.shown else made

    def _rows(self, *beside: _Side) -> Expr | None:
        """How many rows a joined row stands for, without those sides."""
        found: Expr | None = None
        for side in self.sides:
            if side not in beside and (count := side.rows()) is not None:
                found = count if found is None else times(found, count)
        return found

    def _call(self, call: AggregateCall) -> Expr:
        """The value of a call, by the calls of the Aggregate above the join."""
        argument = call.argument
        if argument is None:
            rows = self._rows()
            if rows is None and not self.counted:
                return self._outer(call)
            return self._total(call.name, rows or Lit(1, BIGINT))
        owner = self._owner(argument)
        constant = isinstance(argument, Lit)
        if owner is not None and owner.grouped and call.function in _EXTREMES and not constant:
            inner = owner.call(call.function, argument, call.type)
            return self._outer(replace(call, argument=inner))
        plain = not self.counted and not any(side.grouped and side.shown for side in self.sides)
        if plain or call.function not in _SUMMED:
            return self._outer(call.mapped(self._above))
        if owner is None and (terms := self._terms(call)) is not None:
            return self._of_both(call, terms)
        if call.function == "count":
            return self._total(call.name, self._count(argument, owner))
        if call.function == "bit_xor":
            return self._outer(replace(call, argument=self._xored(call, argument, owner)))
        return self._sum(call, argument, owner)

    def _outer(self, call: AggregateCall) -> Ref:
        self.outer[call.name] = call
        return Ref(call.name, call.type)

    def _total(self, name: str, counts: Expr) -> Expr:
        """A sum of counts, which is 0 where there are no rows."""
        made = self._outer(AggregateCall(name, "sum", counts, BIGINT))
        if self.node.keys:
            return made
        inner = self._hidden("count", name, counts)
        del self.outer[name]
        return or_else(inner, 0)

    def _hidden(self, what: str, name: str, summed: Expr) -> Ref:
        call = AggregateCall(f"#{what} {name}", "sum", summed, sum_type(summed.type))
        return self._outer(call)

    def _count(self, argument: Expr, owner: _Side | None) -> Expr:
        if _is_null(argument):
            return Lit(0, BIGINT)
        if owner is None:
            count, rows = counted_if(self._above(argument)), self._rows()
        else:
            count, rows = owner.count(argument), self._rows(owner)
        return count if rows is None else times(count, rows)

    def _part(self, part: Expr, owner: _Side | None) -> Expr:
        if _is_null(part):
            return Lit(None, sum_type(part.type))
        if owner is None:
            value, rows = whole(self._above(part)), self._rows()
        else:
            value, rows = owner.sum(part), self._rows(owner)
        return value if rows is None else times(value, rows)

    def _sum(self, call: AggregateCall, argument: Expr, owner: _Side | None) -> Expr:
        parts: list[SumPart] = parts_of(argument, call.function)
        if _is_null(argument):  # as in a branch of a FULL JOIN; no side has a sum for it
            parts = [SumPart(p.name, Lit(None, p.expr.type)) for p in parts]
        if call.function == "sum" and len(parts) == 1:
            summed = self._part(parts[0].expr, owner)
            return self._outer(replace(call, argument=summed))
        sums = [self._hidden(part.name, self.texts[call.name], self._part(part.expr, owner))
                for part in parts]  # fmt: skip
        total = joined_parts(sums)
        if call.function == "sum":
            return average(total, None, call.type)
        count = self._hidden("count", self.texts[call.name], self._count(argument, owner))
        return average(total, count, call.type)

    def _of_both(self, call: AggregateCall, terms: list[Term[_Side]]) -> Expr:
        """COUNT, SUM or AVG of an argument that both sides compute."""
        assert call.argument is not None
        factors = {
            id(side): [factor for term in terms for factor in term.of(side)] for side in self.sides
        }
        counts: Expr | None = None
        for side in self.sides:
            known = list(dict.fromkeys(factors[id(side)]))
            one = known[0] if len(known) == 1 else all_known(known, Lit(True, BOOLEAN))
            count = side.count(one)
            counts = count if counts is None else times(counts, count)
        assert counts is not None
        if call.function == "count":
            return self._total(call.name, counts)
        type_ = sum_type(call.argument.type)
        summed: Expr | None = None
        for term in terms:
            value = self._term(term, factors, type_)
            if summed is None:
                summed = negated(value) if term.negative else value
            else:
                function = "subtract" if term.negative else "add"
                summed = Call(function, (summed, value), type_)
        assert summed is not None
        if call.function == "sum":
            return self._outer(replace(call, argument=summed))
        total = self._hidden("sum", self.texts[call.name], summed)
        count = self._hidden("count", self.texts[call.name], counts)
        return average(total, count, call.type)

    def _term(self, term: Term[_Side], factors: dict[int, list[Expr]], type_: DataType) -> Expr:
        """The sum of a term over all pairs of rows in which all factors have values."""
        sums = []
        for side in self.sides:
            own, known = term.of(side), factors[id(side)]
            others = [factor for factor in known if factor not in own]
            sums.append(side.product(own, others))
        left, right = sums
        return exact_product(left, right, type_)

    def _xored(self, call: AggregateCall, argument: Expr, owner: _Side | None) -> Expr:
        if owner is None:
            value, rows = self._above(argument), self._rows()
        else:
            inner = owner.call("bit_xor", argument, call.type) if owner.grouped else argument
            value, rows = inner, self._rows(owner)
        return value if rows is None else _if_odd(value, rows)


def _is_null(expr: Expr) -> bool:
    return isinstance(expr, Lit) and expr.value is None


def _if_odd(value: Expr, rows: Expr) -> Expr:
    """A value where the number of rows is odd; 0 where it is even, NULL where it is NULL."""
    odd = Call("remainder", (rows, Lit(2, BIGINT)), BIGINT)
    if value.type != BIGINT:
        odd = Call("cast", (odd,), value.type)
    return arranged(Call("multiply", (value, odd), value.type))


def _unique(node: Node, keys: Collection[Expr]) -> bool:
    """Whether no two rows are equal in these expressions."""
    return set(node.row_key) <= {key.name for key in keys if isinstance(key, Ref)}


__all__ = ["aggregate_first", "choice"]
