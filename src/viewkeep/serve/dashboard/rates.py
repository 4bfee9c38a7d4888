"""How many rows of each operator an epoch has changed, and so rows a second.

The pipeline keeps no count per operator. Where a state table is small enough to be looked through,
its rows of the last epoch are counted; of larger ones only the growth is known. Law: looking costs
no more than `LARGEST` rows a table and shard, and a rate that cannot be had is None, not zero.
"""

from __future__ import annotations

from collections.abc import Mapping

from viewkeep.engine.epochs import Published
from viewkeep.errors import EpochGone
from viewkeep.plan.program import Operator, Program
from viewkeep.stores.contract import Sizes, Store, TableSize

LARGEST = 100_000  # rows of a table that is looked through for its changes
MOST_OPERATORS = 300  # whose changes are counted; more would make looking felt
_IDLE_SECONDS = 10.0  # an epoch that lies further back says nothing of now


class Rates:
    """Rows a second by operator, kept up to date by one `look` per epoch."""

    def __init__(self, store: Store):
        self._store = store
        self._before: Published | None = None
        self._rows: dict[str, int] = {}
        self._found: dict[str, float | None] = {}

    def look(
        self, program: Program, published: Published, sizes: Sizes, now: int, count: bool
    ) -> None:
        """Take notice of the published epoch; `now` in nanoseconds, as its `at`.

        Without `count` only of the sizes: nobody looks who would want the rest.
        """
        before, self._before = self._before, published
        rows = {operator.id: rows_of(operator, sizes) for operator in program.operators}
        if before is not None and published.epoch == before.epoch:
            if (now - published.at) / 1e9 > _IDLE_SECONDS:
                self._found = dict.fromkeys(self._found, 0.0)
            return
        earlier, self._rows = self._rows, rows
        if before is None or not before.at or published.at <= before.at:
            return
        seconds = (published.at - before.at) / 1e9
        found: dict[str, float | None] = {}
        for place, operator in enumerate(program.operators):
            if not operator.tables:
                continue
            changed = None
            if count and rows[operator.id] <= LARGEST and place < MOST_OPERATORS:
                changed = self._changed(operator, before.epoch, published.epoch)
            if changed is None and operator.id in earlier:
                changed = abs(rows[operator.id] - earlier[operator.id])
            found[operator.id] = None if changed is None else changed / seconds
        self._found = found

    def by_operator(self) -> Mapping[str, float | None]:
        """Rows a second, as of the last look."""
        return self._found

    def _changed(self, operator: Operator, after: int, upto: int) -> int | None:
        """Output rows that the epochs have changed; None if they are no longer told apart."""
        number = operator.rows_table.number
        try:
            return sum(
                len(self._store.state.changes(shard, number, after, upto, limit=LARGEST).keys)
                for shard in range(self._store.state.shards)
            )
        except EpochGone:
            return None


def rows_of(operator: Operator, sizes: Sizes) -> int:
    """Rows that an operator gives; what it keeps besides to compute them does not count."""
    return sizes.tables.get(operator.rows_table.number, TableSize()).rows


def size_of(operator: Operator, sizes: Sizes) -> TableSize:
    """Rows and bytes of all state tables of an operator."""
    held = [sizes.tables.get(table.number, TableSize()) for table in operator.tables]
    return sum(held, TableSize())
