"""What an Aggregate keeps per group, derived from its calls: totals, ordered arguments, outputs."""

from __future__ import annotations

from viewkeep.expr import Expr
from viewkeep.ops.aggregate import Accumulators, Output
from viewkeep.ops.totals import Total
from viewkeep.plan.nodes import Aggregate, AggregateCall


def accumulators(node: Aggregate) -> Accumulators:
    """The accumulators of an Aggregate; a COUNT asked for is its own output column."""
    rows = next((c.name for c in node.aggregates if c.function == "count_star"), "#rows")
    totals: dict[tuple[Expr, bool], Total] = {}
    for call in node.aggregates:
        function, distinct = _split(call)
        if call.argument is not None and function in ("count", "sum", "avg"):
            known = totals.get((call.argument, distinct))
            totals[call.argument, distinct] = _extended(known, call, function, distinct)
    ordered: dict[Expr, None] = {}
    for call in node.aggregates:
        function, distinct = _split(call)
        if call.argument is not None and (distinct or function in ("min", "max")):
            ordered[call.argument] = None
    outputs = []
    for call in node.aggregates:
        function, distinct = _split(call)
        total = None if call.argument is None else totals.get((call.argument, distinct))
        outputs.append(Output(call.name, function, call.type, call.argument, total))
    return Accumulators(rows, tuple(totals.values()), tuple(ordered), tuple(outputs))


def _split(call: AggregateCall) -> tuple[str, bool]:
    function = call.function.removesuffix("_distinct")
    return function, function != call.function


def _extended(known: Total | None, call: AggregateCall, function: str, distinct: bool) -> Total:
    assert call.argument is not None
    text = f"distinct {call.argument}" if distinct else str(call.argument)
    count = known.count if known else f"#count({text})"
    if function == "count":
        count = call.name
    summed = function != "count" or (known is not None and known.summed)
    averaged = function == "avg" or (known is not None and known.averaged)
    return Total(call.argument, distinct, count, summed, averaged)
