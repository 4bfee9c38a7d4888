"""The physical plan: the operators of all views, each once, and where each view's rows are.

`compile_program` goes from the views' nodes to that: `plan.connect` says which operators there are
and what each reads, `plan.place` gives them tables, zones and levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from viewkeep.plan.connect import connect, root
from viewkeep.plan.nodes import Aggregate, Join, Source, Values, View
from viewkeep.plan.operators import Operator, OperatorFeed, Port, StateTable, Step, producer_id
from viewkeep.plan.place import place
from viewkeep.plan.share_groups import Existing
from viewkeep.types import Column, Schema

__all__ = [
    "Operator",
    "OperatorFeed",
    "Placement",
    "Port",
    "Program",
    "StateTable",
    "Step",
    "compile_program",
    "extend_program",
    "producer_id",
    "state_keys",
]


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
    tables: Mapping[int, Source] = field(default_factory=dict)  # as they are now, by number

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

    def consumers(self, producer: str) -> tuple[tuple[Operator, OperatorFeed], ...]:
        """The operators fed by an operator (its id) or by a base table (`table:NUMBER`)."""
        return self._consumers.get(producer, ())

    @cached_property
    def _consumers(self) -> dict[str, tuple[tuple[Operator, OperatorFeed], ...]]:
        found: dict[str, list[tuple[Operator, OperatorFeed]]] = {}
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
            for which, port in enumerate(operator.ports):
                found.setdefault(port.producer, []).append((operator, which))
        return {producer: tuple(readers) for producer, readers in found.items()}

    def is_heard(self, operator: str) -> bool:
        """Whether anyone wants the changes of an operator."""
        return bool(self.consumers(operator) or self.readers(operator))

    def uses(self, view: str, operator: str) -> bool:
        """Whether a view stands on an operator."""
        return operator in self.placements[view].operators

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The base tables that some operator reads, each once."""
        found: dict[int, list[tuple[Source, frozenset[str]]]] = {}
        for operator in self.operators:
            for feed in operator.feeds:
                if isinstance(feed.producer, Source):
                    reading = (feed.producer, feed.narrowed[0])
                    found.setdefault(feed.producer.number, []).append(reading)
        return tuple(self._one_of(found[number]) for number in sorted(found))

    def _one_of(self, readings: Sequence[tuple[Source, frozenset[str]]]) -> Source:
        """A table as all its readers know it, which they may have met before and after a change.

        A column that somebody reads has been called so, and of its type, all the time.
        """
        first = readings[-1][0]
        now = self.tables.get(first.number)
        if now is None or now.history is None:
            return first
        columns, numbers = dict[str, Column](), dict[str, int]()
        for source, needed in readings:
            for column in source.schema.columns:
                if column.name in needed or column.name in source.schema.key:
                    columns[column.name] = column
                    numbers[column.name] = source.number_of(column.name)
        history = replace(now.history, columns=tuple(numbers.items()))
        schema = Schema(tuple(columns.values()), first.schema.key)
        return replace(first, schema=schema, history=history)

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
    def existing(self) -> Existing:
        """The joins and Aggregates, which new views may use too."""
        kept = [operator.node for operator in self.operators]
        joins = frozenset(node.id for node in kept if isinstance(node, Join))
        return Existing(joins).with_aggregates(kept)

    @cached_property
    def unasked(self) -> frozenset[str]:
        """The operators that have a row without any input: Aggregates without keys."""
        return frozenset(
            operator.id
            for operator in self.operators
            if isinstance(operator.node, Aggregate) and not operator.node.keys
        )

    @cached_property
    def constants(self) -> tuple[tuple[Operator, OperatorFeed, Values], ...]:
        """The feeds of rows that are written in queries."""
        return tuple(
            (operator, feed, feed.producer)
            for operator in self.operators
            for feed in operator.feeds
            if isinstance(feed.producer, Values)
        )


def compile_program(
    views: Iterable[View], number: Callable[[str], int], tables: Iterable[Source] = ()
) -> Program:
    """Place the operators of all views; equal nodes become one operator.

    `number` gives the state table number for a state key (operator id and purpose), `tables` are
    the base tables as they are now.
    """
    empty = Program((), {}, {source.number: source for source in tables})
    return extend_program(empty, views, number)


def extend_program(
    program: Program, views: Iterable[View], number: Callable[[str], int]
) -> Program:
    """A program with more views, or others under the names of some; what is placed stays so."""
    views = list(views)
    roots = [root(view) for view in views]
    operators = dict(program.by_id)
    for part in connect(roots, operators).values():
        operators[part.node.id] = place(part, operators, number)
    below: dict[str, frozenset[str]] = {}
    placements = dict(program.placements)
    for view, node in zip(views, roots, strict=True):
        placements[view.name] = _placement(view, operators[node.id], operators, below)
    return Program(tuple(operators.values()), placements, program.tables)


def state_keys(views: Iterable[View]) -> Iterator[str]:
    """The state keys that `compile_program` will ask numbers for, once each."""
    seen: dict[str, None] = {}

    def note(key: str) -> int:
        seen[key] = None
        return 0

    compile_program(views, note)
    yield from seen


def _placement(
    view: View,
    operator: Operator,
    operators: Mapping[str, Operator],
    below: dict[str, frozenset[str]],
) -> Placement:
    stands_on = _stands_on(operator, operators, below)
    feeds = frozenset(feed.id for one in stands_on for feed in operators[one].feeds)
    return Placement(view, operator.rows_table, view.columns, stands_on, feeds)


def _stands_on(
    operator: Operator, operators: Mapping[str, Operator], below: dict[str, frozenset[str]]
) -> frozenset[str]:
    """An operator and all that it depends on; `below` remembers."""
    if operator.id not in below:
        found: set[str] = set()
        waiting = [operator.id]
        while waiting:
            one = waiting.pop()
            if one in below:
                found |= below[one]
            elif one not in found:
                found.add(one)
                waiting.extend(operators[one].producers)
        below[operator.id] = frozenset(found)
    return below[operator.id]
