"""A program as the rows lane runs it: its operators, and the generated functions between them.

Everything is made when it is first used and kept as long as the program: of thousands of views an
epoch reaches few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from viewkeep.codec.rowsource import Generated, compiled
from viewkeep.engine.changes import row_codec
from viewkeep.engine.exchange import SHARD
from viewkeep.engine.operators import Executor, Fed, executors
from viewkeep.engine.rows.convert import frame_of, rows_of
from viewkeep.engine.rows.delta import Boxes, Rows
from viewkeep.engine.rows.index import ConsumerIndex
from viewkeep.engine.rows.transform import row_writer, transform
from viewkeep.engine.steps import run_steps
from viewkeep.ops.rowcode import NoRowForm
from viewkeep.plan.nodes import Source
from viewkeep.plan.program import Operator, OperatorFeed, Port, Program, Step, producer_id
from viewkeep.types import Column

Run = Callable[[Rows, Boxes[Any], int, int], None]  # rows, boxes, shards, this shard


class RowFeed:
    """A way into an operator: puts the rows of its producer into the boxes of shards."""

    def __init__(self, shape: Sequence[Column], feed: OperatorFeed, fed: Fed[Any]):
        self.shape, self.feed, self.fed = tuple(shape), feed, fed
        self.operator = fed.operator
        # Whether its rows stay on the shard where they are made.
        self.stays = feed.local and not isinstance(feed.producer, Source)

    @property
    def steps(self) -> Sequence[Step]:
        return self.feed.narrowed[1]

    @cached_property
    def source(self) -> str | None:
        """The generated function; None if a step or the operator has no row form."""
        return None if self._generated is None else self._generated.source

    @cached_property
    def run(self) -> Run:
        """Puts rows into boxes."""
        if self._generated is None:
            return _by_columns(self.shape, self.feed, self.fed, self.stays)
        return _settling(self._generated.call, self.fed)

    @cached_property
    def _generated(self) -> Generated | None:
        try:
            return _generated(self.shape, self.feed, self.fed, self.stays)
        except NoRowForm:
            return None


class Lane:
    """The rows lane of one program; functions that the lane `before` has too are taken over."""

    def __init__(self, program: Program, before: Lane | None = None):
        self.program = program
        self._known_feeds = {} if before is None else before._row_feeds
        self._executors = executors(program)
        self._row_feeds: dict[str, RowFeed] = {}
        self._feeds: dict[str, ConsumerIndex[RowFeed]] = {}
        self._ports: dict[tuple[str, int], Callable[[Rows], Rows] | None] = {}
        self._unpackers: dict[int, Callable[[bytes], tuple[Any, ...]]] = {}

    @cached_property
    def position(self) -> dict[str, int]:
        """Producers before consumers."""
        return {operator.id: place for place, operator in enumerate(self.program.operators)}

    @cached_property
    def sources(self) -> dict[int, Source]:
        """The base tables by number."""
        return {source.number: source for source in self.program.sources}

    def executor(self, name: str) -> Executor[Any, Any]:
        """What runs an operator."""
        return self._executors[name]

    def feeds(self, producer: str) -> ConsumerIndex[RowFeed]:
        """The ways from a producer (an operator's id, or `table:NUMBER`)."""
        made = self._feeds.get(producer)
        if made is None:
            shape = self.shape(producer)
            feeds = [
                self._row_feed(shape, operator, feed)
                for operator, feed in self.program.consumers(producer)
            ]
            made = ConsumerIndex([column.name for column in shape], feeds)
            self._feeds[producer] = made
        return made

    def feed(self, producer: str, feed: str) -> RowFeed:
        """One way from a producer, by the feed's id."""
        if feed not in self._row_feeds:
            self.feeds(producer)
        return self._row_feeds[feed]

    def _row_feed(self, shape: Sequence[Column], operator: Operator, feed: OperatorFeed) -> RowFeed:
        fed = self.executor(operator.id)
        assert isinstance(fed, Fed)
        made = self._known_feeds.get(feed.id)
        if made is None or (made.fed, made.feed, made.shape) != (fed, feed, tuple(shape)):
            made = RowFeed(shape, feed, fed)
        self._row_feeds[feed.id] = made
        return made

    def port(self, reader: str, place: int) -> Callable[[Rows], Rows] | None:
        """What turns a producer's changes into those at a port; None if they are the same."""
        if (reader, place) not in self._ports:
            self._ports[reader, place] = self._port(reader, place)
        return self._ports[reader, place]

    def unpacker(self, source: Source) -> Callable[[bytes], tuple[Any, ...]]:
        """Unpacks the rows of a base table."""
        made = self._unpackers.get(source.number)
        if made is None:
            made = row_codec(source).unpacker.call
            self._unpackers[source.number] = made
        return made

    def shape(self, producer: str) -> tuple[Column, ...]:
        """The columns of the rows that a producer gives out."""
        if producer in self.program.by_id:
            return self.executor(producer).shape
        (columns,) = (s.columns for s in self.program.sources if producer_id(s) == producer)
        return columns

    def port_source(self, reader: str, place: int) -> str | None:
        """The function behind `port`; None if there is none, or no row form."""
        try:
            made = self._transform(self.program.by_id[reader].ports[place])
        except NoRowForm:
            return None
        return None if made is None else made.source

    def _port(self, reader: str, place: int) -> Callable[[Rows], Rows] | None:
        port = self.program.by_id[reader].ports[place]
        shape, steps = self.executor(port.producer).shape, port.narrowed[1]
        try:
            made = self._transform(port)
        except NoRowForm:
            return lambda rows: rows_of(run_steps(steps, frame_of(rows, shape)), port.columns)
        return None if made is None else made.call

    def _transform(self, port: Port) -> Generated | None:
        needed, steps = port.narrowed
        shape = tuple(column.name for column in self.executor(port.producer).shape)
        shown = tuple(column.name for column in port.columns)
        return transform(shape, needed, steps, shown)


def _generated(
    shape: Sequence[Column], feed: OperatorFeed, fed: Fed[Any], stays: bool
) -> Generated:
    needed, steps = feed.narrowed
    writer = row_writer([column.name for column in shape], needed, steps)
    fed.write_input(writer, "here" if stays else "")
    lines = ["def feed(rows, boxes, shards, here):", "    for key, values, weight in rows:"]
    lines += [f"        {line}" for line in writer.lines]
    return compiled(lines, writer.names)


def _settling(feed: Run, fed: Fed[Any]) -> Run:
    """A generated feed, after which its boxes are settled."""
    if not fed.settles:
        return feed

    def run(rows: Rows, boxes: Boxes[Any], shards: int, here: int) -> None:
        feed(rows, boxes, shards, here)
        for box in boxes.values():
            fed.settle(box)

    return run


def _by_columns(shape: Sequence[Column], feed: OperatorFeed, fed: Fed[Any], stays: bool) -> Run:
    """A feed with a step that has no row form."""
    _, steps = feed.narrowed

    def run(rows: Rows, boxes: Boxes[Any], shards: int, here: int) -> None:
        delta = run_steps(steps, frame_of(rows, shape))
        if not delta.height:
            return
        frames = fed.pack(delta, 1 if stays else shards)
        if stays:
            frames = {
                name: frame.with_columns((frame[SHARD] + here).alias(SHARD))
                for name, frame in frames.items()
            }
        fed.fill(boxes, frames)

    return run
