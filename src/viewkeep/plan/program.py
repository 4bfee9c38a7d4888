"""The physical plan: operators with their state tables, placed in zones and levels.

Level 0 runs once per node log and needs no re-distribution: a node log holds all operations of its
keys. An operator whose state is keyed differently from its producer's lies one level up; one that
shares its producer's key lies in the same zone and is fed in memory. Law: an operator's level is
greater than its producer's, or equal and in the same zone.

Arrange and Aggregate hold state. Joins, TOP-K and windows hold none: they *read* the state tables
of the arrangements below them, which other operators may read too, and which lie in their zone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import polars as pl

from viewkeep.codec.keys import KeyCodec, bounded, group_prefix
from viewkeep.codec.rows import RowCodec
from viewkeep.expr import Expr, Ref, references
from viewkeep.ops.aggregate import Accumulators
from viewkeep.plan.accumulators import accumulators
from viewkeep.plan.arrangements import Side, arrangements, strip, traced
from viewkeep.plan.nodes import (
    Aggregate,
    Arrange,
    Filter,
    Join,
    KeyPart,
    Node,
    Project,
    Source,
    TopK,
    Union,
    Values,
    View,
    Window,
)
from viewkeep.types import Column

# A stateless step as it runs: a predicate to keep rows by, or the outputs to compute.
Step: TypeAlias = Expr | tuple[tuple[str, Expr], ...]
Reader: TypeAlias = Join | TopK | Window
Stateful: TypeAlias = Aggregate | Arrange


@dataclass(frozen=True)
class StateTable:
    """A keyed, versioned table of the store. The first `shard_by` key columns choose the shard.

    With `group`, the first so many key columns are a group that is scanned by its prefix.
    """

    number: int
    purpose: str
    columns: tuple[Column, ...]
    key: tuple[KeyPart, ...]
    shard_by: tuple[str, ...]
    group: int | None = None

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
        return self._part(0, len(self.shard_by))

    @cached_property
    def group_codec(self) -> KeyCodec:
        return self._part(0, self.group or 0)

    @cached_property
    def rest_codec(self) -> KeyCodec:
        return self._part(self.group or 0, len(self.key))

    def _part(self, start: int, stop: int) -> KeyCodec:
        whole = self.key_codec
        return KeyCodec(whole.types[start:stop], whole.descending[start:stop])

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.key)

    @cached_property
    def unique_groups(self) -> bool:
        """Whether a group has at most one row, found by its key."""
        return self.group is None or self.group == len(self.key)

    def groups(self, columns: Sequence[pl.Series], count: int) -> list[bytes]:
        """The bytes of each row's group, given the columns of the group."""
        return _encoded(self.group_codec, columns, count)

    def prefix(self, group: bytes) -> bytes:
        """What the keys of a group's rows start with, and no others."""
        return group if self.unique_groups else group_prefix(group)

    def keys(self, rows: pl.DataFrame) -> list[bytes]:
        """The keys of some rows."""
        columns = [rows[name] for name in self.key_names]
        if self.unique_groups or not self.group:
            return _encoded(self.key_codec, columns, rows.height)
        groups = self.groups(columns[: self.group], rows.height)
        rest = _encoded(self.rest_codec, columns[self.group :], rows.height)
        return [bounded(self.prefix(g) + end) for g, end in zip(groups, rest, strict=True)]


def _encoded(codec: KeyCodec, columns: Sequence[pl.Series], count: int) -> list[bytes]:
    """Keys; the key of no columns is empty."""
    return codec.encode(columns) if columns else [b""] * count


@dataclass(frozen=True)
class Feed:
    """What flows into an operator: a producer's changes, through stateless steps.

    `producer` is a Source or Values, or the id of the operator that makes the rows. `local` means
    that the producer is in the same zone and level, so rows are handed on in memory. `needs` are
    the columns after the steps that the operator uses.
    """

    id: str
    producer: Source | Values | str
    steps: tuple[Filter | Project, ...]
    local: bool
    needs: frozenset[str]

    @cached_property
    def narrowed(self) -> tuple[frozenset[str], tuple[Step, ...]]:
        """The producer's columns that are read, and the steps without unused outputs."""
        return _narrowed(self.steps, self.needs)


def _narrowed(
    through: Sequence[Filter | Project], needs: frozenset[str]
) -> tuple[frozenset[str], tuple[Step, ...]]:
    needed, steps = needs, list[Step]()
    for step in reversed(through):
        if isinstance(step, Filter):
            steps.append(step.predicate)
            needed |= set(references(step.predicate))
        else:
            outputs = tuple((o.name, o.expr) for o in step.outputs if o.name in needed)
            steps.append(outputs)
            needed = frozenset(name for _, expr in outputs for name in references(expr))
    return needed, tuple(reversed(steps))


@dataclass(frozen=True)
class Port:
    """An input of a reader: the operator whose table it reads, and steps for each row read."""

    producer: str
    table: StateTable
    group: tuple[str, ...]
    steps: tuple[Filter | Project, ...]
    columns: tuple[Column, ...]  # after the steps

    @cached_property
    def narrowed(self) -> tuple[frozenset[str], tuple[Step, ...]]:
        """The table's columns that are read, and the steps."""
        return _narrowed(self.steps, frozenset(column.name for column in self.columns))


@dataclass(frozen=True)
class Operator:
    """A node of the plan that runs: with state and feeds, or a reader of other operators' state."""

    id: str
    node: Stateful | Reader
    level: int
    feeds: tuple[Feed, ...]
    tables: tuple[StateTable, ...]
    ports: tuple[Port, ...] = ()
    zones: tuple[tuple[str, ...], ...] = ()  # output columns that choose the shard, all equal

    @property
    def rows_table(self) -> StateTable:
        """The table of the operator's output rows; of a reader, of the rows that it starts from."""
        return self.tables[0] if self.tables else self.ports[0].table

    @property
    def zone(self) -> tuple[str, ...]:
        return self.rows_table.shard_by

    @cached_property
    def accumulators(self) -> Accumulators:
        """What an Aggregate keeps per group."""
        assert isinstance(self.node, Aggregate)
        return accumulators(self.node)


@dataclass(frozen=True)
class Placement:
    """Where a view's rows are: a state table and which of its columns the view shows."""

    view: View
    table: StateTable
    columns: tuple[tuple[str, str], ...]
    operators: frozenset[str]  # every operator that the view stands on
    feeds: frozenset[str]  # every feed of those


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

    def consumers(self, producer: str) -> tuple[tuple[Operator, Feed], ...]:
        """The operators fed by an operator (its id) or by a base table (`table:NUMBER`)."""
        return self._consumers.get(producer, ())

    @cached_property
    def _consumers(self) -> dict[str, tuple[tuple[Operator, Feed], ...]]:
        found: dict[str, list[tuple[Operator, Feed]]] = {}
        for operator in self.operators:
            for feed in operator.feeds:
                found.setdefault(producer_id(feed.producer), []).append((operator, feed))
        return {producer: tuple(fed) for producer, fed in found.items()}

    def readers(self, producer: str) -> tuple[tuple[Operator, int], ...]:
        """The operators that read an operator's table, and by which of their ports."""
        return self._readers.get(producer, ())

    @cached_property
    def _readers(self) -> dict[str, tuple[tuple[Operator, int], ...]]:
        found: dict[str, list[tuple[Operator, int]]] = {}
        for operator in self.operators:
            for place, port in enumerate(operator.ports):
                found.setdefault(port.producer, []).append((operator, place))
        return {producer: tuple(readers) for producer, readers in found.items()}

    def uses(self, view: str, operator: str) -> bool:
        """Whether a view stands on an operator."""
        return operator in self.placements[view].operators

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The base tables that some operator reads."""
        producers = (feed.producer for operator in self.operators for feed in operator.feeds)
        found = {source.number: source for source in producers if isinstance(source, Source)}
        return tuple(found[number] for number in sorted(found))

    def needed(self, source: Source) -> frozenset[str]:
        """The columns of a base table that some operator reads."""
        return self._needed[source.number]

    @cached_property
    def _needed(self) -> dict[int, frozenset[str]]:
        found: dict[int, set[str]] = {}
        for operator in self.operators:
            for feed in operator.feeds:
                if isinstance(feed.producer, Source):
                    found.setdefault(feed.producer.number, set()).update(feed.narrowed[0])
        return {number: frozenset(names) for number, names in found.items()}

    def producer_of(self, feed: str) -> str | None:
        """The operator that a feed comes from; None if that is a base table, or no such feed."""
        return self._producers.get(feed)

    @cached_property
    def _producers(self) -> dict[str, str]:
        feeds = (feed for operator in self.operators for feed in operator.feeds)
        return {feed.id: feed.producer for feed in feeds if isinstance(feed.producer, str)}

    @cached_property
    def joins(self) -> frozenset[str]:
        """The ids of the joins, which new views may use too."""
        return frozenset(op.id for op in self.operators if isinstance(op.node, Join))

    @cached_property
    def unasked(self) -> frozenset[str]:
        """The operators that have a row without any input: Aggregates without keys."""
        return frozenset(
            operator.id
            for operator in self.operators
            if isinstance(operator.node, Aggregate) and not operator.node.keys
        )

    @cached_property
    def constants(self) -> tuple[tuple[Operator, Feed, Values], ...]:
        """The feeds of rows that are written in queries."""
        return tuple(
            (operator, feed, feed.producer)
            for operator in self.operators
            for feed in operator.feeds
            if isinstance(feed.producer, Values)
        )


def producer_id(producer: Source | Values | str) -> str:
    """The name under which `Program.consumers` knows a producer."""
    if isinstance(producer, Source):
        return f"table:{producer.number}"
    return producer if isinstance(producer, str) else producer.id


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
        self._below: dict[str, frozenset[str]] = {}

    def place(self, view: View) -> Placement:
        node = view.node
        producer, steps = strip(node.input)
        if isinstance(producer, Aggregate) and not steps and _same_key(node, producer.row_key):
            operator = self._operator(producer)
        else:
            operator = self._operator(node)
        stands_on = self._stands_on(operator)
        feeds = frozenset(f.id for below in stands_on for f in self.operators[below].feeds)
        return Placement(view, operator.rows_table, view.columns, stands_on, feeds)

    def _stands_on(self, operator: Operator) -> frozenset[str]:
        """An operator and all that it depends on."""
        if operator.id not in self._below:
            found = {operator.id}
            below = [feed.producer for feed in operator.feeds if isinstance(feed.producer, str)]
            for producer in (*below, *(port.producer for port in operator.ports)):
                found |= self._stands_on(self.operators[producer])
            self._below[operator.id] = frozenset(found)
        return self._below[operator.id]

    def _operator(self, node: Stateful | Reader) -> Operator:
        if node.id not in self.operators:
            reads = isinstance(node, Join | TopK | Window)
            made = self._reader(node) if reads else self._stateful(node)  # type: ignore[arg-type]
            self.operators[node.id] = made
        return self.operators[node.id]

    def _reader(self, node: Reader) -> Operator:
        sides = arrangements(node)
        below = [self._operator(side.node) for side in sides]
        ports = tuple(
            Port(operator.id, operator.rows_table, side.group, side.steps, _shown(side))
            for side, operator in zip(sides, below, strict=True)
        )
        level = max(1, *(operator.level for operator in below))
        zones = [side.group for side in sides[: 2 if _inner(node) else 1]]
        shown = {column.name for column in node.columns}
        kept = tuple(zone for zone in zones if shown.issuperset(zone))
        return Operator(node.id, node, level, (), (), ports, kept)

    def _stateful(self, node: Stateful) -> Operator:
        branches = [(self._producer(below), steps) for below, steps in _branches(node.input)]
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
            Feed(
                f"{node.id}:{place}",
                producer.id if isinstance(producer, Operator) else producer,
                steps,
                there and (not isinstance(producer, Operator) or producer.level == level),
                _needs(node),
            )
            for place, ((producer, steps), there) in enumerate(zip(branches, local, strict=True))
        )
        return Operator(node.id, node, level, feeds, tables, (), (tables[0].shard_by,))

    def _producer(self, node: Node) -> Source | Values | Operator:
        if isinstance(node, Source | Values):
            return node
        if isinstance(node, Arrange | Filter | Project | Union):
            raise ValueError(f"{type(node).__name__} produces no rows by itself")
        return self._operator(node)

    def _tables(
        self, node: Stateful, branches: Sequence[tuple[Source | Values | Operator, Steps]]
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


Steps: TypeAlias = tuple[Filter | Project, ...]


def _branches(node: Node) -> Iterator[tuple[Node, Steps]]:
    """The producers below a node, each with the steps to it: several where there is a Union."""
    below, steps = strip(node)
    if isinstance(below, Union):
        for branch in below.inputs:
            for producer, first in _branches(branch):
                yield producer, first + steps
    else:
        yield below, steps


def _needs(node: Stateful) -> frozenset[str]:
    """The columns of its input that a node uses."""
    if isinstance(node, Arrange):
        return frozenset(column.name for column in node.columns)
    exprs = [key.expr for key in node.keys]
    exprs += [call.argument for call in node.aggregates if call.argument is not None]
    exprs += [part.expr for call in node.aggregates for part in call.by]
    return frozenset(name for expr in exprs for name in references(expr))


def _in_zone(producer: Source | Values | Operator, steps: Steps, by: Sequence[str | None]) -> bool:
    """Whether rows that are sharded by these columns lie where their producer is."""
    names = [name for name in by if name is not None]
    if isinstance(producer, Source | Values) or producer.level == 0 or len(names) != len(by):
        return False
    return traced(names, steps) in producer.zones


def _keyed_as_base(node: Stateful, producer: Source | Values | Operator, steps: Steps) -> bool:
    """Whether a view has the key of its base table, so that it lies where the node log is."""
    if not isinstance(node, Arrange) or not isinstance(producer, Source) or node.group is not None:
        return False
    names = [part.name for part in node.key]
    straight = not any(part.descending for part in node.key)
    return straight and traced(names, steps) == producer.row_key


def _same_key(node: Arrange, key: tuple[str, ...]) -> bool:
    return node.key == tuple(KeyPart(name) for name in key)


def _inner(node: Reader) -> bool:
    return isinstance(node, Join) and node.kind == "inner"


def _shown(side: Side) -> tuple[Column, ...]:
    return side.steps[-1].columns if side.steps else side.node.columns
