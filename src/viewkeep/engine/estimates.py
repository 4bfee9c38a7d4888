"""What a new plan will cost to load: rows to read, bytes to hold, processor time.

Law: an estimate is from sizes and costs that exist, and decides nothing. No filter is taken to drop
a row, and a grouping that is new to have as many groups as rows; so bytes are an upper bound unless
a join multiplies rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from viewkeep.engine.costs import read_costs
from viewkeep.engine.programs import PlanVersion
from viewkeep.engine.successors import completed
from viewkeep.plan.nodes import Aggregate, Arrange, Filter, Source, Values
from viewkeep.plan.program import Operator, OperatorFeed, StateTable, producer_id
from viewkeep.stores.contract import Store, TableSize

_SAMPLE = 2_000  # rows of each part of a base table
_ROW_BYTES = 40  # that a row of state takes beside its columns: its key, and its epoch
_FEWEST = 1_000  # operations that must have been processed before their cost says something


@dataclass(frozen=True)
class LoadCost:
    """What it takes to load some operators; None is unknown."""

    rows: int | None = 0  # to read
    bytes: int | None = 0  # to hold, at most
    seconds: float | None = 0.0  # of processor time

    def __add__(self, other: LoadCost) -> LoadCost:
        return LoadCost(
            None if self.rows is None or other.rows is None else self.rows + other.rows,
            None if self.bytes is None or other.bytes is None else self.bytes + other.bytes,
            None if self.seconds is None or other.seconds is None else self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class _Flow:
    """The rows that a producer gives: how many, and their bytes per column."""

    rows: int | None
    width: float


class Estimates:
    """Of a plan that is to follow another one."""

    def __init__(self, store: Store, before: PlanVersion, after: PlanVersion):
        self._store, self._before, self._after = store, before, after
        self._sizes = store.sizes()
        self._flows: dict[str, _Flow] = {}

    def loading(self, operators: Iterable[str]) -> LoadCost:
        """What it takes to load those of some operators that the plan before lacks."""
        total, wanted = LoadCost(), set(operators)
        for operator in self._after.program.operators:
            if operator.id in wanted and not self._is_there(operator):
                total += self._work(operator)
        return total

    def reused(self, operators: Iterable[str]) -> int:
        """The bytes of state that some operators have already."""
        wanted = set(operators)
        there = (op for op in self._after.program.operators if op.id in wanted)
        return sum(self._held(op).bytes for op in there if self._is_there(op))

    @cached_property
    def freed(self) -> int:
        """The bytes of state that the plan gives up."""
        left = self._before.state_numbers - completed(self._after).state_numbers
        return sum(size.bytes for number, size in self._sizes.tables.items() if number in left)

    def _is_there(self, operator: Operator) -> bool:
        known = self._before.program.by_id.get(operator.id)
        return known is not None and known.tables == operator.tables

    def _held(self, operator: Operator) -> TableSize:
        sizes = (self._size(table) for table in operator.tables)
        return sum(sizes, TableSize())

    def _size(self, table: StateTable) -> TableSize:
        return self._sizes.tables.get(table.number, TableSize())

    def _work(self, operator: Operator) -> LoadCost:
        if not operator.tables:
            return LoadCost()
        flows = [self._flow(feed.producer) for feed in operator.feeds]
        read = _sum(flow.rows for flow in flows)
        kept = self._kept(operator, read)
        width = max((flow.width for flow in flows), default=0.0)
        columns = sum(len(table.columns) for table in operator.tables)
        row = _ROW_BYTES * len(operator.tables) + width * columns
        size = None if kept is None else round(kept * row)
        seconds = None if read is None or self._pace is None else read * self._pace
        return LoadCost(read, size, seconds)

    def _kept(self, operator: Operator, read: int | None) -> int | None:
        """How many rows an operator keeps of those that it reads."""
        if not isinstance(operator.node, Aggregate):
            return read
        return 1 if not operator.node.keys else self._groups.get(_grouping(operator), read)

    @cached_property
    def _groups(self) -> dict[str, int]:
        """How many groups there are, by what is grouped and how."""
        return {
            _grouping(operator): self._size(operator.rows_table).rows
            for operator in self._before.program.operators
            if isinstance(operator.node, Aggregate)
        }

    @cached_property
    def _pace(self) -> float | None:
        """Seconds of processor time per row and operator, over what this database has processed."""
        spent, operators = read_costs(self._store), len(self._before.program.operators)
        if spent.operations < _FEWEST or not operators:
            return None
        return spent.seconds / spent.operations / operators

    def _flow(self, producer: Source | Values | str) -> _Flow:
        if isinstance(producer, Values):
            return _Flow(len(producer.rows), 8.0)
        if isinstance(producer, Source):
            return self._base[producer.number]
        if producer not in self._flows:
            self._flows[producer] = self._made(self._after.program.by_id[producer])
        return self._flows[producer]

    def _made(self, operator: Operator) -> _Flow:
        """The rows of an operator; of one that reads others, as many as the longest has."""
        if not operator.tables:
            flows = [self._flow(port.producer) for port in operator.ports]
            counts = [flow.rows for flow in flows if flow.rows is not None]
            most = max(counts) if len(counts) == len(flows) else None
            return _Flow(most, max(flow.width for flow in flows))
        table = operator.rows_table
        if self._is_there(operator):
            size = self._size(table)
            width = size.bytes / max(1, size.rows) - _ROW_BYTES
            return _Flow(size.rows, max(1.0, width) / len(table.columns))
        flows = [self._flow(feed.producer) for feed in operator.feeds]
        rows = self._kept(operator, _sum(flow.rows for flow in flows))
        return _Flow(rows, max((flow.width for flow in flows), default=8.0))

    @cached_property
    def _base(self) -> dict[int, _Flow]:
        """The rows of base tables: counted where they are few, else by what is known of all."""
        found, many = dict[int, _Flow](), dict[int, float]()
        for number, source in {s.number: s for s in self._after.tables.values()}.items():
            rows, size, more = self._sampled(source)
            width = size / max(1, rows) / len(source.schema.columns)
            if more:
                many[number] = width
            found[number] = _Flow(rows, width)
        whole = {number: rows for number, rows in self._arranged.items() if number in many}
        known = sum(flow.rows or 0 for number, flow in found.items() if number not in many)
        left = self._sizes.base_rows
        others = len(many.keys() - whole.keys())
        for number, width in many.items():
            rows_of = whole.get(number)
            if rows_of is None and left is not None:
                rows_of = max(0, left - known - sum(whole.values())) // others
            found[number] = _Flow(rows_of, width)
        return found

    def _sampled(self, source: Source) -> tuple[int, int, bool]:
        """Rows and bytes at the start of each part, and whether there are more."""
        rows, size, more = 0, 0, False
        if self._before.tables.get(source.table) != source:
            return rows, size, more  # it is to be made
        for part in range(self._store.tables.parts):
            found = self._store.tables.scan(part, source.number, limit=_SAMPLE)
            rows += len(found.rows)
            size += sum(map(len, found.keys)) + sum(map(len, found.rows))
            more |= found.more
        return rows, size, more

    @cached_property
    def _arranged(self) -> dict[int, int]:
        """How many rows base tables have, of those that some state holds whole."""
        found: dict[int, int] = {}
        for operator in self._before.program.operators:
            feed = operator.feeds[0] if len(operator.feeds) == 1 else None
            if isinstance(operator.node, Arrange) and feed is not None and _is_whole(feed):
                assert isinstance(feed.producer, Source)
                found[feed.producer.number] = self._size(operator.rows_table).rows
        return found


def _grouping(operator: Operator) -> str:
    """What an Aggregate groups, and by what."""
    node = operator.node
    assert isinstance(node, Aggregate)
    below = [f"{producer_id(feed.producer)} {feed.steps}" for feed in operator.feeds]
    return repr(([key.expr for key in node.keys], below))


def _is_whole(feed: OperatorFeed) -> bool:
    """Whether a feed brings every row of a base table."""
    filters = any(isinstance(step, Filter) for step in feed.steps)
    return isinstance(feed.producer, Source) and not filters


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for rows in counts:
        if rows is None:
            return None
        total += rows
    return total
