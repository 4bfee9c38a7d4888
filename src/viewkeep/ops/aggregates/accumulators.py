"""Aggregate: group rows from totals, and what depends on an order from ordered tables of values.

Law: state(new) = state(old) + gain, where the gain of a delta is summed where the delta arises; a
group exists while it has rows (the group of an Aggregate without keys: always). An output is a
function of the group's state row alone, stored in it, so a retraction is read, never recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from viewkeep.deferred import pl
from viewkeep.delta import WEIGHT
from viewkeep.expr import Expr
from viewkeep.ops.aggregates.call import AggregateCall
from viewkeep.ops.aggregates.function import Counted, Kept, Output
from viewkeep.ops.aggregates.ordered import GROUP, VALUE, Ordered, ascending, counted, every_group
from viewkeep.ops.aggregates.totals import Linear, Total, add_up
from viewkeep.ops.evaluate import project
from viewkeep.types import BIGINT, Column


@dataclass(frozen=True)
class Accumulators:
    """What is kept per group after its key: `rows`, the totals, then outputs not among them."""

    rows: str
    totals: tuple[Linear, ...]
    ordered: tuple[Ordered, ...]
    outputs: tuple[Output, ...]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        kept = {self.rows: Column(self.rows, BIGINT)}
        for total in self.totals:
            kept |= {column.name: column for column in total.columns}
        for output in self.outputs:
            kept |= {column.name: column for column in output.hidden}
            kept.setdefault(output.name, Column(output.name, output.type))
        return tuple(kept.values())

    @cached_property
    def plain(self) -> tuple[Linear, ...]:
        """The totals over all rows; those over distinct values follow the ordered tables."""
        return tuple(total for total in self.totals if not total.distinct)

    def distinct(self, order: Ordered) -> tuple[Linear, ...]:
        """The totals over the distinct values of an ordered table."""
        found = (t for t in self.totals if t.distinct and t.told_apart_by == order.exprs)
        return tuple(found) if all(order.needed) and not any(order.descending) else ()

    def depending(self, kept: Kept, order: Ordered) -> tuple[Output, ...]:
        """The outputs that are kept so and read an ordered table."""
        return tuple(o for o in self.outputs if o.function.kept is kept and o.order == order)

    @cached_property
    def totalled(self) -> tuple[Output, ...]:
        """The outputs that are computed from totals."""
        return tuple(o for o in self.outputs if o.function.kept is Kept.TOTALS)

    @cached_property
    def arguments(self) -> tuple[Expr, ...]:
        plain = [argument for total in self.plain for argument in total.arguments]
        return tuple(dict.fromkeys([*plain, *(e for order in self.ordered for e in order.exprs)]))


def accumulators(calls: Sequence[AggregateCall]) -> Accumulators:
    """What groups keep for these calls; a COUNT asked for is its own output column."""
    rows = next((call.name for call in calls if call.argument is None), "#rows")
    totals: dict[tuple[object, ...], Total] = {}
    for call in calls:
        for asked in call.entry.counted(call):
            totals[asked.same] = _extended(totals.get(asked.same), asked)
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
            ordered[ascending(*total.told_apart_by)] = None
    return Accumulators(rows, tuple(kept), tuple(ordered), tuple(outputs))


def _output(call: AggregateCall, totals: Mapping[tuple[object, ...], Total]) -> Output:
    entry = call.entry
    return Output(
        call.name,
        entry,
        call.type,
        call.is_distinct,
        (*(totals[asked.same] for asked in entry.counted(call)), *entry.further(call)),
        entry.order(call),
        entry.hidden(call),
        call.parameters,
    )


def _extended(known: Total | None, asked: Counted) -> Total:
    """A Total that has what a call asks for besides what is known to be asked of it."""
    text = ", ".join(map(str, (asked.argument, *asked.others)))
    count = known.count if known else f"#count({'distinct ' if asked.distinct else ''}{text})"
    return Total(
        asked.argument,
        asked.distinct,
        asked.shown or count,
        asked.summed or (known is not None and known.summed),
        asked.averaged or (known is not None and known.averaged),
        asked.others,
    )


@dataclass(frozen=True)
class Gains:
    """What a delta adds: per group, and per group and value for each ordered table."""

    groups: pl.DataFrame
    values: tuple[pl.DataFrame, ...]


def gains(
    delta: pl.DataFrame,
    keys: Sequence[tuple[str, Expr]],
    kept: Accumulators,
    apart: bool = False,
) -> Gains:
    """The gains of a delta, one row per group (and value): the map-side combine.

    With `apart`, one value may have several rows, for the receiver to add up.
    """
    places = {argument: f"#argument{i}" for i, argument in enumerate(kept.arguments)}
    wanted = [*keys, *((name, argument) for argument, name in places.items())]
    rows = project(delta, wanted, keep=(WEIGHT,))
    names = [name for name, _ in keys]
    totals = [(total, tuple(places[arg] for arg in total.arguments)) for total in kept.plain]
    groups = add_up(rows, names, kept.rows, totals)
    values = tuple(
        counted(rows, names, order, [places[expr] for expr in order.exprs], apart)
        for order in kept.ordered
    )
    return Gains(groups, values)


def distinct_gain(changes: pl.DataFrame, totals: Sequence[Linear], groups: int) -> pl.DataFrame:
    """What the totals over distinct values gain, one row per group in order.

    `changes` holds values that appeared (weight +1) in a group or left it (-1).
    """
    made = add_up(changes, [GROUP], "#rows", [(total, (VALUE,)) for total in totals])
    return every_group(made, groups)
