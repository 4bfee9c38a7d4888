"""COUNT, and the truth functions, which compare counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from viewkeep.deferred import pl
from viewkeep.expr import Call, Expr, Lit
from viewkeep.ops.aggregates.function import AggregateFunction, Counted, Kept, Output
from viewkeep.ops.aggregates.totals import Total
from viewkeep.types import BIGINT, BOOLEAN, DataType

if TYPE_CHECKING:
    from viewkeep.ops.aggregates.call import AggregateCall


class CountRows(AggregateFunction):
    """COUNT(*): the rows of the group, which every group counts."""

    kept = Kept.COUNT
    is_never_null = True

    def result(self, given: DataType) -> DataType:
        return BIGINT


class Count(CountRows):
    """COUNT(x): the rows in which x is not NULL. The count of its total is its column."""

    takes_distinct = True

    def counted(self, call: AggregateCall) -> tuple[Counted, ...]:
        assert call.argument is not None
        others = tuple(part.expr for part in call.by)
        return (Counted(call.argument, call.is_distinct, others=others, shown=call.name),)


class Truth(AggregateFunction):
    """BOOL_AND and BOOL_OR: how many values are TRUE, of how many."""

    def counted(self, call: AggregateCall) -> tuple[Counted, ...]:
        assert call.argument is not None
        return (Counted(call.argument, False), Counted(when_true(call.argument), False))

    def finish(self, state: pl.DataFrame, output: Output) -> pl.Series:
        known, true = (pl.col(name) for name in _counts(output))
        made = true == known if self.name == "bool_and" else true > 0
        truth = pl.when(known > 0).then(made)
        return state.select(truth.alias(output.name)).to_series()

    def source(
        self, output: Output, columns: Mapping[str, str], names: dict[str, object]
    ) -> str | None:
        known, true = (columns.get(name, "?") for name in _counts(output))
        made = f"{true} == {known}" if self.name == "bool_and" else f"{true} > 0"
        return f"{made} if {known} > 0 else None"


def _counts(output: Output) -> tuple[str, str]:
    known, true = output.totals
    assert isinstance(known, Total)
    assert isinstance(true, Total)
    return known.count, true.count


def when_true(argument: Expr) -> Expr:
    """An argument that has a value where it is TRUE."""
    return Call("case", (argument, Lit(True, BOOLEAN), Lit(None, BOOLEAN)), BOOLEAN)
