"""Zones and levels: where operators lie, and when they run.

Level 0 runs over node logs and needs no re-distribution: a node log holds all operations of its
keys. An operator whose state is keyed differently from its producer's lies one level up; one that
shares its producer's key lies in the same zone and is fed in memory. Law: an operator's level is
greater than its producer's, or equal and in the same zone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from viewkeep.plan.connect import Branch, Unplaced
from viewkeep.plan.nodes import (
    ReaderNode,
    Side,
    Source,
    StatefulNode,
    TableShape,
    Values,
    names,
    traced,
)
from viewkeep.plan.operators import Operator, OperatorFeed, Port, StateTable, Steps
from viewkeep.types import Column

_Made = Source | Values | Operator
_Way = tuple[_Made, Steps]


def place(part: Unplaced, placed: Mapping[str, Operator], number: Callable[[str], int]) -> Operator:
    """The operator of a part whose producers are `placed`.

    `number` gives the state table number for a state key (operator id and purpose).
    """
    node = part.node
    if isinstance(node, ReaderNode):
        return _reader(node, part.sides, [placed[side.node.id] for side in part.sides])
    assert isinstance(node, StatefulNode)
    return _stateful(node, [_way(branch, placed) for branch in part.branches], number)


def _way(branch: Branch, placed: Mapping[str, Operator]) -> _Way:
    producer = branch.producer
    if isinstance(producer, Source | Values):
        return producer, branch.steps
    return placed[producer.id], branch.steps


def _reader(node: ReaderNode, sides: Sequence[Side], below: Sequence[Operator]) -> Operator:
    """A reader lies where its arrangements lie."""
    ports = tuple(
        Port(operator.id, operator.rows_table, side.group, side.steps, _shown(side))
        for side, operator in zip(sides, below, strict=True)
    )
    level = max(1, *(operator.level for operator in below))
    zones = [side.group for side in sides[: node.zones]]
    kept = tuple(zone for zone in zones if names(node).issuperset(zone))
    return Operator(node.id, node, level, (), (), ports, kept)


def _stateful(
    node: StatefulNode, branches: Sequence[_Way], number: Callable[[str], int]
) -> Operator:
    """An operator with state lies one level above the producers that lie elsewhere."""
    only = branches[0] if len(branches) == 1 else None
    keyed_as_base = only is not None and _keyed_as_base(node, *only)
    aligned = keyed_as_base or (only is not None and _in_zone(*only, node.row_key))
    tables = tuple(_table(node, shape, number) for shape in node.tables(aligned))
    by = tuple(map(node.copied_from, tables[0].shard_by))
    local = [_in_zone(producer, steps, by) for producer, steps in branches]
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
    (needed,) = node.reads(names(node))
    feeds = tuple(
        OperatorFeed(
            f"{node.id}:{place}",
            producer.id if isinstance(producer, Operator) else producer,
            steps,
            there and (not isinstance(producer, Operator) or producer.level == level),
            frozenset(needed),
        )
        for place, ((producer, steps), there) in enumerate(zip(branches, local, strict=True))
    )
    return Operator(node.id, node, level, feeds, tables, (), (tables[0].shard_by,))


def _table(node: StatefulNode, shape: TableShape, number: Callable[[str], int]) -> StateTable:
    key = f"{node.id} {shape.purpose}"
    return StateTable(
        number(key), shape.purpose, shape.columns, shape.key, shape.shard_by, shape.group
    )


def _in_zone(producer: _Made, steps: Steps, by: Sequence[str | None]) -> bool:
    """Whether rows that are sharded by these columns lie where their producer is."""
    names = [name for name in by if name is not None]
    if isinstance(producer, Source | Values) or producer.level == 0 or len(names) != len(by):
        return False
    return traced(names, steps) in producer.zones


def _keyed_as_base(node: StatefulNode, producer: _Made, steps: Steps) -> bool:
    """Whether a view has the key of its base table, so that it lies where the node log is."""
    if node.base_key is None or not isinstance(producer, Source):
        return False
    return traced(node.base_key, steps) == producer.row_key


def _shown(side: Side) -> tuple[Column, ...]:
    return side.steps[-1].columns if side.steps else side.node.columns
