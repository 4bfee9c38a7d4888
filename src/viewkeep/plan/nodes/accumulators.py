"""What an Aggregate keeps per group, derived from its calls: totals, ordered values, outputs."""

from __future__ import annotations

from collections.abc import Sequence

from viewkeep.expr import Call, Expr, Lit
from viewkeep.ops.aggregates.accumulators import (
    COLLECTIONS,
    EXTREMES,
    PERCENTILES,
    Accumulators,
    Output,
)
from viewkeep.ops.aggregates.bit_xor import BitXor
from viewkeep.ops.aggregates.moments import MOMENTS, Product
from viewkeep.ops.aggregates.ordered import Ordered
from viewkeep.ops.aggregates.totals import Linear, Total
from viewkeep.plan.nodes.calls import AggregateCall
from viewkeep.types import BIGINT, BOOLEAN, Column


def accumulators(calls: Sequence[AggregateCall]) -> Accumulators:
    """The accumulators of an Aggregate; a COUNT asked for is its own output column."""
    rows = next((c.name for c in calls if c.function == "count_star"), "#rows")
    totals = _totals(calls)
    kept: dict[Linear, None] = dict.fromkeys(totals.values())
    ordered: dict[Ordered, None] = {}
    outputs = []
    for call in calls:
        output = _output(call, totals)
        kept |= dict.fromkeys(output.totals)
        if output.order is not None:
            ordered[output.order] = None
        outputs.append(output)
    for total in kept:
        if total.distinct:
            ordered[_ascending(*total.told_apart_by)] = None
    return Accumulators(rows, tuple(kept), tuple(ordered), tuple(outputs))


def _output(call: AggregateCall, totals: dict[_Counted, Total]) -> Output:
    function, distinct = _split(call)
    argument = call.argument
    if argument is None:
        return Output(call.name, function, call.type)
    linear: tuple[Linear, ...] = tuple(totals[counted] for counted in _counts(call))
    order: Ordered | None = None
    hidden: tuple[Column, ...] = ()
    if function == "bit_xor":
        linear = (*linear, BitXor(argument, distinct))
    elif function in MOMENTS:
        x, y = argument, call.by[0].expr if call.by else argument
        pairs = [(x, y), (x, x), (y, y)] if function == "corr" else [(x, y)]
        linear = (*linear, *(Product(left, right, distinct) for left, right in pairs))
    elif function in PERCENTILES:
        order = _ascending(argument)
        below = Column(f"#below({call.name})", BIGINT)
        hidden = (Column(f"#anchor({call.name})", argument.type), below)
    elif function in ("min_by", "max_by"):
        by = call.by[0].expr
        order = Ordered((by, argument), (False, False), (True, False))
        hidden = (Column(f"#by({call.name})", by.type),)
    elif function in EXTREMES:
        order = _ascending(argument)
    elif function in COLLECTIONS:
        order = _collection(call, argument)
    given = call.parameters
    return Output(call.name, function, call.type, distinct, linear, order, hidden, given)


def _ascending(*exprs: Expr) -> Ordered:
    return Ordered(exprs, (False,) * len(exprs), (True,) * len(exprs))


def _collection(call: AggregateCall, argument: Expr) -> Ordered:
    """The order asked for, up to where it reaches the value itself, then the value."""
    by = [part.expr for part in call.by]
    reached = by.index(argument) if argument in by else len(by)
    descending = reached < len(by) and call.by[reached].descending
    parts = dict[Expr, bool]()
    for part in call.by[:reached]:
        parts.setdefault(part.expr, part.descending)
    parts[argument] = descending
    needed = tuple(expr == argument for expr in parts)
    return Ordered(tuple(parts), tuple(parts.values()), needed)


_Counted = tuple[Expr, tuple[Expr, ...], bool]
"""What a Total is of: an argument, others that tell distinct rows apart, and whether distinct."""


def _counts(call: AggregateCall) -> list[_Counted]:
    """The totals that a call reads, the first of them its argument's."""
    function, distinct = _split(call)
    if call.argument is None or function in (*EXTREMES, *COLLECTIONS):
        return []
    others = tuple(part.expr for part in call.by)
    if function in MOMENTS:
        return [(expr, (), distinct) for expr in (call.argument, *(others or (call.argument,)))]
    if function == "count":
        return [(call.argument, others, distinct)]
    if function in ("bool_and", "bool_or"):
        return [(call.argument, (), False), (_if_true(call.argument), (), False)]
    return [(call.argument, (), distinct)]


def _totals(calls: Sequence[AggregateCall]) -> dict[_Counted, Total]:
    totals: dict[_Counted, Total] = {}
    for call in calls:
        for counted in _counts(call):
            totals[counted] = _extended(totals.get(counted), call, counted)
    return totals


def _if_true(argument: Expr) -> Expr:
    return Call("case", (argument, Lit(True, BOOLEAN), Lit(None, BOOLEAN)), BOOLEAN)


def _split(call: AggregateCall) -> tuple[str, bool]:
    function = call.function.removesuffix("_distinct")
    return function, function != call.function


def _extended(known: Total | None, call: AggregateCall, counted: _Counted) -> Total:
    argument, others, distinct = counted
    function, _ = _split(call)
    text = ", ".join(map(str, (argument, *others)))
    count = known.count if known else f"#count({'distinct ' if distinct else ''}{text})"
    if function == "count":
        count = call.name
    summed = function in ("sum", "avg", *MOMENTS) or (known is not None and known.summed)
    averaged = function == "avg" or (known is not None and known.averaged)
    return Total(argument, distinct, count, summed, averaged, others)
