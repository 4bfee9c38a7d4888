"""Operators: what runs, with its state tables, its feeds, and its place in zones and levels.

Arrange, Aggregate and Delta hold state. Joins, TOP-K and windows hold none: they *read* the state
tables of the arrangements below them, which other operators may read too, and which lie in their
zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from viewkeep.codec.keys import GROUP_BYTES, KeyCodec, bounded_all, group_prefix, key_series
from viewkeep.codec.packed import longest
from viewkeep.codec.rows import RowCodec
from viewkeep.deferred import pl
from viewkeep.expr import Expr, references
from viewkeep.plan.nodes import Filter, KeyPart, OperatorNode, Project, Source, Values
from viewkeep.types import Column

# A stateless step as it runs: a predicate to keep rows by, or the outputs to compute.
Step: TypeAlias = Expr | tuple[tuple[str, Expr], ...]
Steps: TypeAlias = tuple[Filter | Project, ...]


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

    def groups(self, columns: Sequence[pl.Series], count: int, name: str) -> pl.Series:
        """The bytes of each row's group, given the columns of the group."""
        return _encoded(self.group_codec, columns, count, name)

    def prefix(self, group: bytes) -> bytes:
        """What the keys of a group's rows start with, and no others."""
        return group if self.unique_groups else group_prefix(group)

    def keys(self, rows: pl.DataFrame, name: str) -> pl.Series:
        """The keys of some rows."""
        columns = [rows[part] for part in self.key_names]
        if self.unique_groups or not self.group:
            return _encoded(self.key_codec, columns, rows.height, name)
        keys = self.key_codec.pack(columns)
        if longest(keys) < GROUP_BYTES:
            return key_series(keys, name)
        # Some group may be too long to stand in a key as it is.
        groups = self.group_codec.encode(columns[: self.group])
        rest = self.rest_codec.encode(columns[self.group :])
        whole = zip(map(group_prefix, groups), rest, strict=True)
        return key_series(bounded_all([group + end for group, end in whole]), name)


def _encoded(codec: KeyCodec, columns: Sequence[pl.Series], count: int, name: str) -> pl.Series:
    """Keys; the key of no columns is empty."""
    if not columns:
        return pl.Series(name, [b""] * count, pl.Binary)
    return codec.encode_series(columns, name)


@dataclass(frozen=True)
class OperatorFeed:
    """What flows into an operator: a producer's changes, through stateless steps.

    `producer` is a Source or Values, or the id of the operator that makes the rows. `local` means
    that the producer is in the same zone and level, so rows are handed on in memory (those of a
    log if it is whole). `needs` are the columns after the steps that the operator uses.
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
    node: OperatorNode
    level: int
    feeds: tuple[OperatorFeed, ...]
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

    @property
    def producers(self) -> Iterator[str]:
        """The ids of the operators that it is fed by or reads."""
        yield from (feed.producer for feed in self.feeds if isinstance(feed.producer, str))
        yield from (port.producer for port in self.ports)


def producer_id(producer: Source | Values | str) -> str:
    """The name under which `Program.consumers` knows a producer."""
    if isinstance(producer, Source):
        return f"table:{producer.number}"
    return producer if isinstance(producer, str) else producer.id
