"""Zones and levels: where operators lie, and when they run.

Level 0 runs over node logs and needs no re-distribution: a node log holds all operations of its
keys. An operator whose state is keyed differently from its producer's lies one level up; one that
shares its producer's key lies in the same zone and is fed in memory. Law: an operator's level is
greater than its producer's, or equal and in the same zone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from viewkeep.expr import Ref, references
from viewkeep.plan.accumulators import accumulators
from viewkeep.plan.arrangements import Side, traced
from viewkeep.plan.connect import Branch, Unplaced
from viewkeep.plan.nodes import Aggregate, Arrange, Delta, Join, KeyPart, Source, Values
from viewkeep.plan.operators import (
    Kept,
    Operator,
    OperatorFeed,
    Port,
    Reader,
    StateTable,
    Steps,
)
from viewkeep.types import BIGINT, BINARY, BOOLEAN, Column

_Made = Source | Values | Operator
_Way = tuple[_Made, Steps]


def place(part: Unplaced, placed: Mapping[str, Operator], number: Callable[[str], int]) -> Operator:
    """The operator of a part whose producers are `placed`.

    `number` gives the state table number for a state key (operator id and purpose).
    """
    node = part.node
    if isinstance(node, Delta):
        return _delta(node, number)
    if isinstance(node, Aggregate | Arrange):
        return _Stateful(node, number).operator([_way(branch, placed) for branch in part.branches])
    return _reader(node, part.sides, [placed[side.node.id] for side in part.sides])


def _way(branch: Branch, placed: Mapping[str, Operator]) -> _Way:
    producer = branch.producer
    if isinstance(producer, Source | Values):
        return producer, branch.steps
    return placed[producer.id], branch.steps


def _reader(node: Reader, sides: Sequence[Side], below: Sequence[Operator]) -> Operator:
    """A reader lies where its arrangements lie."""
    ports = tuple(
        Port(operator.id, operator.rows_table, side.group, side.steps, _shown(side))
        for side, operator in zip(sides, below, strict=True)
    )
    level = max(1, *(operator.level for operator in below))
    inner = isinstance(node, Join) and node.kind == "inner"
    zones = [side.group for side in sides[: 2 if inner else 1]]
    shown = {column.name for column in node.columns}
    kept = tuple(zone for zone in zones if shown.issuperset(zone))
    return Operator(node.id, node, level, (), (), ports, kept)


def _delta(node: Delta, number: Callable[[str], int]) -> Operator:
    """A DELTA is spread by the keys of its base table, as rows keyed like it are.

    Its tables hold bytes of their own, under keys of their own (`engine.cells.tables`): cells under
    the keys of the base table, ranges that were deleted, and what is to be purged when.
    """
    key, start, stop = (Column(name, BINARY) for name in ("key", "start", "stop"))
    through, at = Column("through", BIGINT), Column("at", BIGINT)
    is_segment = Column("is_segment", BOOLEAN)

    def table(purpose: str, columns: tuple[Column, ...], by: Sequence[str]) -> StateTable:
        state = number(f"{node.id} {purpose}")
        parts = tuple(KeyPart(name) for name in by)
        return StateTable(state, purpose, columns, parts, tuple(by))

    tables = (
        table("cells", node.columns, node.row_key),
        table("deleted ranges", (start, stop, through), ["start"]),
        table("due", (at, is_segment, key), ["at", "is_segment", "key"]),
    )
    needs = frozenset(column.name for column in node.columns)
    feed = OperatorFeed(f"{node.id}:0", node.input, (), False, needs)
    return Operator(node.id, node, 1, (feed,), tables, (), (node.row_key,))


class _Stateful:
    def __init__(self, node: Kept, number: Callable[[str], int]):
        self.node, self.number = node, number

    def operator(self, branches: Sequence[_Way]) -> Operator:
        """The operator, one level above the producers that lie elsewhere."""
        node = self.node
        tables, by = self._tables(node, branches)
        local = [_in_zone(producer, steps, by) for producer, steps in branches]
        keyed_as_base = len(branches) == 1 and _keyed_as_base(node, *branches[0])
        if keyed_as_base:
            level, local = 0, [True]
        else:
            level = max(
                1,
                *(
                    producer.level + (not there) if isinstance(producer, Operator) else 1
                    for (producer, _), there in zip(branches, local, strict=True)
                ),
            )
        feeds = tuple(
            OperatorFeed(
                f"{node.id}:{place}",
                producer.id if isinstance(producer, Operator) else producer,
                steps,
                there and (not isinstance(producer, Operator) or producer.level == level),
                _needs(node),
            )
            for place, ((producer, steps), there) in enumerate(zip(branches, local, strict=True))
        )
        return Operator(node.id, node, level, feeds, tables, (), (tables[0].shard_by,))

    def _tables(
        self, node: Kept, branches: Sequence[_Way]
    ) -> tuple[tuple[StateTable, ...], tuple[str | None, ...]]:
        """The state tables, and the input columns that choose the shard (None: one is computed)."""
        if isinstance(node, Aggregate):
            by = tuple(key.expr.name if isinstance(key.expr, Ref) else None for key in node.keys)
            return tuple(self._aggregate_tables(node)), by
        shard_by = node.row_key[: node.group] if node.group is not None else node.row_key[:1]
        if node.group is None and len(branches) == 1:
            producer, steps = branches[0]
            aligned = _keyed_as_base(node, producer, steps) or (
                not any(part.descending for part in node.key)
                and _in_zone(producer, steps, node.row_key)
            )
            shard_by = node.row_key if aligned else shard_by
        rows = self._table(node.id, "rows", node.columns, node.key, shard_by, node.group)
        turned = {part.name for part in node.key if part.descending}
        return (rows,), tuple(None if name in turned else name for name in shard_by)

    def _aggregate_tables(self, node: Aggregate) -> list[StateTable]:
        group = tuple(KeyPart(name) for name in node.row_key)
        kept = accumulators(node)
        keys = tuple(key.column for key in node.keys)
        width = len(group)
        tables = [self._table(node.id, "groups", keys + kept.columns, group, node.row_key, width)]
        for order in kept.ordered:
            parts = tuple(map(KeyPart, order.names, order.descending))
            columns, key = (*keys, *order.columns), (*group, *parts)
            purpose = f"values of {order.text}"
            tables.append(self._table(node.id, purpose, columns, key, node.row_key, width))
        return tables

    def _table(
        self,
        owner: str,
        purpose: str,
        columns: tuple[Column, ...],
        key: tuple[KeyPart, ...],
        shard_by: tuple[str, ...],
        group: int | None,
    ) -> StateTable:
        number = self.number(f"{owner} {purpose}")
        return StateTable(number, purpose, columns, key, shard_by, group)


def _needs(node: Kept) -> frozenset[str]:
    """The columns of its input that a node uses."""
    if isinstance(node, Arrange):
        return frozenset(column.name for column in node.columns)
    exprs = [key.expr for key in node.keys]
    exprs += [call.argument for call in node.aggregates if call.argument is not None]
    exprs += [part.expr for call in node.aggregates for part in call.by]
    return frozenset(name for expr in exprs for name in references(expr))


def _in_zone(producer: _Made, steps: Steps, by: Sequence[str | None]) -> bool:
    """Whether rows that are sharded by these columns lie where their producer is."""
    names = [name for name in by if name is not None]
    if isinstance(producer, Source | Values) or producer.level == 0 or len(names) != len(by):
        return False
    return traced(names, steps) in producer.zones


def _keyed_as_base(node: Kept, producer: _Made, steps: Steps) -> bool:
    """Whether a view has the key of its base table, so that it lies where the node log is."""
    if not isinstance(node, Arrange) or not isinstance(producer, Source) or node.group is not None:
        return False
    names = [part.name for part in node.key]
    straight = not any(part.descending for part in node.key)
    return straight and traced(names, steps) == producer.row_key


def _shown(side: Side) -> tuple[Column, ...]:
    return side.steps[-1].columns if side.steps else side.node.columns
