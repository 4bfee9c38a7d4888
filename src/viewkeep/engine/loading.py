"""Loading of new views inside epochs: which feeds still miss rows that were there before them.

A new operator sees its input restricted to the keys loaded so far. Each epoch loads the next chunk
of the producer's rows as of the epoch before, in key order, as insertions, and then passes on the
epoch's own changes of loaded keys alone. Law: after epoch e an operator's state is that of its
input at e restricted to keys at or before the bound; when the last chunk is in, the restriction is
gone. A part is one of a base table, or a shard of a producer's state; rows that a query writes
itself are one part.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import TypeAlias

from viewkeep.deferred import pl
from viewkeep.delta import KEY
from viewkeep.engine.amounts import amount_of
from viewkeep.engine.programs import PlanVersion, load_plan
from viewkeep.engine.report import Report
from viewkeep.engine.rows.delta import Rows
from viewkeep.plan.nodes import ReaderNode, Source, Values
from viewkeep.plan.program import OperatorFeed, Program, StateTable
from viewkeep.stores import contract as stores
from viewkeep.stores.contract import Cut, Store

# feed -> part -> last key loaded, as hex ("" before the first); a finished part is not listed. Of a
# DELTA the bound may also be a cut (`engine.cells.loading`).
Loading: TypeAlias = Mapping[str, Mapping[str, str]]

_FIRST = 1_000  # rows of a chunk that are read first


def begin_loading(
    store: Store, loading: Loading, cut: Cut, old_version: int, plan: PlanVersion
) -> Loading:
    """What is left to load once `plan` replaces the published plan at `cut`."""
    if plan.version == old_version:
        return loading
    old = {(op.id, op.tables) for op in load_plan(store, old_version).program.operators}
    made: dict[str, Mapping[str, str]] = {}
    for operator in plan.program.operators:
        for feed in operator.feeds:
            if (operator.id, operator.tables) in old:
                if feed.id in loading:
                    made[feed.id] = loading[feed.id]
                continue
            parts = _parts(store, cut, plan.program, feed, old)
            if parts:
                made[feed.id] = dict.fromkeys(parts, "")
    return made


def _parts(
    store: Store,
    cut: Cut,
    program: Program,
    feed: OperatorFeed,
    old: Container[tuple[str, tuple[StateTable, ...]]],
) -> list[str]:
    """The parts of a new operator's producer that have rows already."""
    if isinstance(feed.producer, Source):
        # The log brings what came with it; a table may be older than that.
        may_have_rows, table = store.tables.may_have_rows, feed.producer.number
        parts = range(store.tables.parts)
        return [str(part) for part in parts if may_have_rows(part, table, cut)]
    if isinstance(feed.producer, Values):
        return ["0"]
    producer = program.by_id[feed.producer]
    # A reader has no state of its own: its rows come from those of its arrangements. While one that
    # it has no rows without is new it begins empty, and that one's changes bring all of its rows.
    holders = [producer]
    if isinstance(producer.node, ReaderNode):
        holders = [program.by_id[producer.ports[p].producer] for p in producer.node.empty_without]
    known = all((holder.id, holder.tables) in old for holder in holders)
    return [str(shard) for shard in range(store.state.shards)] if known else []


def merge_progress(loading: Loading, reports: Iterable[Report]) -> Loading:
    """What is left to load after the tasks have reported."""
    left = {feed: dict(parts) for feed, parts in loading.items()}
    for report in reports:
        for feed, parts in report.progress.items():
            for part, bound in parts.items():
                if bound is None:
                    left.get(feed, {}).pop(part, None)
                elif feed in left:
                    left[feed][part] = bound
    return {feed: parts for feed, parts in left.items() if parts}


def add_loaded(
    before: Mapping[str, int], loading: Loading, reports: Iterable[Report]
) -> dict[str, int]:
    """How many rows are in so far for each feed that is still being loaded."""
    counts = {feed: before.get(feed, 0) for feed in loading}
    for report in reports:
        for feed, rows in report.loaded.items():
            if feed in counts:
                counts[feed] += rows
    return counts


class LoadChunk:
    """The rows to load for feeds that stand at one bound, and the changes they let pass."""

    def __init__(self, bound: str, keys: list[bytes], rows: list[bytes], more: bool):
        self.keys, self.rows = keys, rows
        last = keys[-1].hex() if keys else bound
        self.progress: str | None = last if more else None

    @classmethod
    def read(cls, bound: str, most: int, scan: Callable[[bytes, int], stores.Chunk]) -> LoadChunk:
        """The rows after a bound, as many as `most` allows, as amounts.

        `scan` gives so many rows from a key on. The first few tell how wide rows are.
        """
        keys, rows, more = list[bytes](), list[bytes](), True
        start = bytes.fromhex(bound) + b"\0" if bound else b""
        step, size, left = min(_FIRST, most), 0, most
        while more and left > 0:
            found = scan(start, step)
            keys += found.keys
            rows += found.rows
            more = found.more
            size += sum(map(len, found.keys)) + sum(map(len, found.rows))
            if more:
                start = keys[-1] + b"\0"
                held = amount_of(len(rows), size)
                left = most - held
                step = max(1, left * len(rows) // held)
        return cls(bound, keys, rows, more)

    def release(self) -> None:
        """Let go of the rows, once they are sent; what passes is still known."""
        self.keys, self.rows = [], []

    def passed(self, delta: pl.DataFrame) -> pl.DataFrame:
        """The changes of keys that are loaded, this chunk's among them."""
        if self.progress is None:
            return delta
        if not self.progress:
            return delta.clear()
        return delta.filter(pl.col(KEY) <= bytes.fromhex(self.progress))

    def passed_rows(self, rows: Rows) -> Rows:
        """The same in the rows lane."""
        if self.progress is None:
            return rows
        if not self.progress:
            return []
        bound = bytes.fromhex(self.progress)
        return [row for row in rows if row[0] <= bound]


class Progress:
    """Collects what a task has loaded, for its report."""

    def __init__(self) -> None:
        self._bounds: dict[str, dict[str, str | None]] = {}
        self._rows: dict[str, int] = {}

    def note(self, feed: str, part: int, chunk: LoadChunk) -> None:
        """Take notice of a chunk that a feed has been given."""
        self._bounds.setdefault(feed, {})[str(part)] = chunk.progress
        self._rows[feed] = self._rows.get(feed, 0) + len(chunk.rows)

    def report(
        self,
        level: int,
        rows_in: int,
        rows_written: int,
        seconds: float,
        processor: float,
        costs: Mapping[str, tuple[float, int]],
    ) -> Report:
        """The report of a task that ends."""
        bounds, rows = self._bounds, self._rows
        return Report(level, bounds, rows, rows_in, rows_written, seconds, processor, costs)
