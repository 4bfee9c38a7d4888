"""The physical plan: operators with their state tables, placed in zones and levels.

Level 0 runs once per node log and needs no re-distribution: a node log holds all operations of its
keys. An operator whose state is keyed differently from its producer's lies one level up; one that
shares its producer's key lies in the same zone and is fed in memory. Law: an operator's level is
greater than its producer's, or equal and in the same zone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.expr import Expr, Ref, references
from viewkeep.ops.aggregate import TIMES, VALUE, Accumulators
from viewkeep.plan.accumulators import accumulators
from viewkeep.plan.nodes import Aggregate, Arrange, Filter, KeyPart, Node, Project, Source, View
from viewkeep.types import BIGINT, Column

# A stateless step as it runs: a predicate to keep rows by, or the outputs to compute.
Step: TypeAlias = Expr | tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class StateTable:
    """A keyed, versioned table of the store. The first `shard_by` key columns choose the shard."""

    number: int
    purpose: str
    columns: tuple[Column, ...]
    key: tuple[KeyPart, ...]
    shard_by: tuple[str, ...]

    @cached_property
    def row_codec(self) -> RowCodec:
        return RowCodec(self.columns)

    @cached_property
    def key_codec(self) -> KeyCodec:
        types = {column.name: column.type for column in self.columns}
        return KeyCodec(
            tuple(types[part.name] for part in self.key),
            tuple(part.descending for part in self.key),
        )

    @cached_property
    def shard_codec(self) -> KeyCodec:
        """Encodes the columns that choose the shard: a prefix of the key."""
        count = len(self.shard_by)
        return KeyCodec(self.key_codec.types[:count], self.key_codec.descending[:count])

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.key)


@dataclass(frozen=True)
class Feed:
    """What flows into an operator: a producer's changes, through stateless steps.

    `producer` is a Source, or the id of the operator that makes the rows. `local` means that the
    producer is in the same zone, so rows need no re-distribution.
    """

    id: str
    producer: Source | str
    steps: tuple[Filter | Project, ...]
    local: bool


@dataclass(frozen=True)
class Operator:
    """A stateful node of the plan with its place and its tables."""

    id: str
    node: Aggregate | Arrange
    level: int
    feed: Feed
    tables: tuple[StateTable, ...]

    @property
    def rows_table(self) -> StateTable:
        """The table that holds the operator's output rows."""
        return self.tables[0]

    @cached_property
    def zone(self) -> tuple[str, ...]:
        return self.rows_table.shard_by

    @cached_property
    def accumulators(self) -> Accumulators:
        """What an Aggregate keeps per group."""
        assert isinstance(self.node, Aggregate)
        return accumulators(self.node)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The columns of its input that the operator uses."""
        if isinstance(self.node, Arrange):
            return frozenset(column.name for column in self.node.columns)
        expressions = [key.expr for key in self.node.keys]
        expressions += [c.argument for c in self.node.aggregates if c.argument is not None]
        return frozenset(name for expr in expressions for name in references(expr))

    @cached_property
    def narrowed(self) -> tuple[frozenset[str], tuple[Step, ...]]:
        """The producer's columns that are read, and the feed's steps without unused outputs."""
        needed, steps = self.needs, list[Step]()
        for step in reversed(self.feed.steps):
            if isinstance(step, Filter):
                steps.append(step.predicate)
                needed |= set(references(step.predicate))
            else:
                outputs = tuple((o.name, o.expr) for o in step.outputs if o.name in needed)
                steps.append(outputs)
                needed = frozenset(name for _, expr in outputs for name in references(expr))
        return needed, tuple(reversed(steps))


@dataclass(frozen=True)
class Placement:
    """Where a view's rows are: a state table and which of its columns the view shows."""

    view: View
    table: StateTable
    columns: tuple[tuple[str, str], ...]
    feeds: frozenset[str]  # every feed that the view depends on


@dataclass(frozen=True)
class Program:
    """All views as one plan."""

    operators: tuple[Operator, ...]  # producers before consumers
    placements: Mapping[str, Placement]

    @cached_property
    def levels(self) -> int:
        """The number of levels, level 0 included."""
        return 1 + max((operator.level for operator in self.operators), default=0)

    def at_level(self, level: int) -> tuple[Operator, ...]:
        return self._by_level.get(level, ())

    @cached_property
    def _by_level(self) -> dict[int, tuple[Operator, ...]]:
        found: dict[int, list[Operator]] = {}
        for operator in self.operators:
            found.setdefault(operator.level, []).append(operator)
        return {level: tuple(members) for level, members in found.items()}

    @cached_property
    def by_id(self) -> dict[str, Operator]:
        return {operator.id: operator for operator in self.operators}

    def consumers(self, producer: str) -> tuple[Operator, ...]:
        """The operators fed by an operator (its id) or by a base table (`table:NUMBER`)."""
        return self._consumers.get(producer, ())

    @cached_property
    def _consumers(self) -> dict[str, tuple[Operator, ...]]:
        found: dict[str, list[Operator]] = {}
        for operator in self.operators:
            found.setdefault(producer_id(operator.feed.producer), []).append(operator)
        return {producer: tuple(fed) for producer, fed in found.items()}

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The base tables that some operator reads."""
        found = {
            operator.feed.producer.number: operator.feed.producer
            for operator in self.operators
            if isinstance(operator.feed.producer, Source)
        }
        return tuple(found[number] for number in sorted(found))


def producer_id(producer: Source | str) -> str:
    """The name under which `Program.consumers` knows a producer."""
    return f"table:{producer.number}" if isinstance(producer, Source) else producer


def compile_program(views: Iterable[View], number: Callable[[str], int]) -> Program:
    """Place the operators of all views; equal nodes become one operator.

    `number` gives the state table number for a state key (operator id and purpose).
    """
    builder = _Builder(number)
    placements = {view.name: builder.place(view) for view in views}
    return Program(tuple(builder.operators.values()), placements)


def state_keys(views: Iterable[View]) -> Iterator[str]:
    """The state keys that `compile_program` will ask numbers for, once each."""
    seen: dict[str, None] = {}

    def note(key: str) -> int:
        seen[key] = None
        return 0

    compile_program(views, note)
    yield from seen


class _Builder:
    def __init__(self, number: Callable[[str], int]):
        self.number = number
        self.operators: dict[str, Operator] = {}

    def place(self, view: View) -> Placement:
        node = view.node
        producer, steps = _strip(node.input)
        if isinstance(producer, Aggregate) and not steps and _same_key(node, producer.row_key):
            operator = self._operator(producer)
        else:
            operator = self._operator(node)
        return Placement(view, operator.rows_table, view.columns, self._feeds(operator))

    def _feeds(self, operator: Operator) -> frozenset[str]:
        producer = operator.feed.producer
        above = frozenset[str]() if isinstance(producer, Source) else self._feeds_of(producer)
        return above | {operator.feed.id}

    def _feeds_of(self, operator_id: str) -> frozenset[str]:
        return self._feeds(self.operators[operator_id])

    def _operator(self, node: Aggregate | Arrange) -> Operator:
        if node.id not in self.operators:
            made = self._make(node)
            self.operators[node.id] = made
        return self.operators[node.id]

    def _make(self, node: Aggregate | Arrange) -> Operator:
        below, steps = _strip(node.input)
        above = None if isinstance(below, Source) else self._operator(below)
        source_key = below.row_key if isinstance(below, Source) else None
        if isinstance(node, Arrange):
            local = _same_key(node, source_key if above is None else above.zone)
            shard_by = node.row_key if local else node.row_key[:1]
            tables = [self._table(node.id, "rows", node.columns, node.key, shard_by)]
        else:
            # A group of base keys would be local too, but its rows come combined: keep one path.
            local = above is not None and node.row_key == above.zone and not _renamed(node)
            tables = self._aggregate_tables(node)
        level = (above.level if above else 0) + (0 if local else 1)
        producer: Source | str = below if isinstance(below, Source) else below.id
        return Operator(node.id, node, level, Feed(node.id, producer, steps, local), tuple(tables))

    def _aggregate_tables(self, node: Aggregate) -> list[StateTable]:
        group = tuple(KeyPart(name) for name in node.row_key)
        kept = accumulators(node)
        keys = tuple(key.column for key in node.keys)
        tables = [self._table(node.id, "groups", keys + kept.columns, group, node.row_key)]
        for argument in kept.ordered:
            columns = (*keys, Column(VALUE, argument.type), Column(TIMES, BIGINT))
            purpose = f"values of {argument}"
            ordered = (*group, KeyPart(VALUE))
            tables.append(self._table(node.id, purpose, columns, ordered, node.row_key))
        return tables

    def _table(
        self,
        owner: str,
        purpose: str,
        columns: tuple[Column, ...],
        key: tuple[KeyPart, ...],
        shard_by: tuple[str, ...],
    ) -> StateTable:
        return StateTable(self.number(f"{owner} {purpose}"), purpose, columns, key, shard_by)


def _strip(node: Node) -> tuple[Source | Aggregate, tuple[Filter | Project, ...]]:
    """The producer below a node's stateless steps, and those steps in running order."""
    steps: list[Filter | Project] = []
    while isinstance(node, Filter | Project):
        steps.append(node)
        node = node.input
    if isinstance(node, Arrange):
        raise ValueError("an Arrange is the top of a plan, never an input")
    return node, tuple(reversed(steps))


def _same_key(node: Arrange, key: tuple[str, ...] | None) -> bool:
    return node.key == tuple(KeyPart(name) for name in key or ())


def _renamed(node: Aggregate) -> bool:
    return any(key.expr != Ref(key.name, key.expr.type) for key in node.keys)
