"""A program as the rows lane runs it: its operators, and the generated functions between them.

Everything is made when it is first used and kept as long as the program: of thousands of views an
epoch reaches few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from viewkeep.codec.rows import RowCodec
from viewkeep.codec.rowsource import Generated, compiled
from viewkeep.engine.operators import Executor, Fed, executor
from viewkeep.engine.parcels import SHARD, pack
from viewkeep.engine.rows.convert import frame_of, rows_of
from viewkeep.engine.rows.delta import Boxes, Rows
from viewkeep.engine.rows.transform import row_writer, transform
from viewkeep.engine.steps import run_steps
from viewkeep.ops.rowcode import NoRowForm
from viewkeep.plan.nodes import Source
from viewkeep.plan.program import Feed, Operator, Program, producer_id
from viewkeep.types import Column


@dataclass(frozen=True)
class RowFeed:
    """A way into an operator: puts the rows of its producer into the boxes of shards."""

    operator: Operator
    fed: Fed[Any]
    stays: bool  # its rows stay on the shard where they are made
    source: str | None  # of the generated function; None: it takes the columns lane
    run: Callable[[Rows, Boxes[Any], int, int], None]  # rows, boxes, shards, this shard


class Lane:
    """The rows lane of one program."""

    def __init__(self, program: Program):
        self.program = program
        self._executors: dict[str, Executor[Any]] = {}
        self._feeds: dict[str, tuple[RowFeed, ...]] = {}
        self._ports: dict[tuple[str, int], Callable[[Rows], Rows] | None] = {}

    @cached_property
    def position(self) -> dict[str, int]:
        """Producers before consumers."""
        return {operator.id: place for place, operator in enumerate(self.program.operators)}

    def executor(self, name: str) -> Executor[Any]:
        """What runs an operator."""
        made = self._executors.get(name)
        if made is None:
            made = self._executors[name] = executor(self.program, self.program.by_id[name])
        return made

    def feeds(self, producer: str) -> tuple[RowFeed, ...]:
        """The ways from a producer (an operator's id, or `table:NUMBER`)."""
        made = self._feeds.get(producer)
        if made is None:
            shape = self._shape(producer)
            made = self._feeds[producer] = tuple(
                self._feed(shape, operator, feed)
                for operator, feed in self.program.consumers(producer)
            )
        return made

    def port(self, reader: str, place: int) -> Callable[[Rows], Rows] | None:
        """What turns a producer's changes into those at a port; None if they are the same."""
        if (reader, place) not in self._ports:
            self._ports[reader, place] = self._port(reader, place)
        return self._ports[reader, place]

    def _shape(self, producer: str) -> tuple[Column, ...]:
        if producer in self.program.by_id:
            return self.executor(producer).shape
        (columns,) = (s.columns for s in self.program.sources if producer_id(s) == producer)
        return columns

    def _feed(self, shape: Sequence[Column], operator: Operator, feed: Feed) -> RowFeed:
        fed = self.executor(operator.id)
        assert isinstance(fed, Fed)
        stays = feed.local and not isinstance(feed.producer, Source)
        try:
            made = _generated(shape, feed, fed, stays)
        except NoRowForm:
            return RowFeed(operator, fed, stays, None, _by_columns(shape, feed, fed, stays))
        return RowFeed(operator, fed, stays, made.source, _settling(made.call, fed))

    def _port(self, reader: str, place: int) -> Callable[[Rows], Rows] | None:
        port = self.program.by_id[reader].ports[place]
        shape = self.executor(port.producer).shape
        needed, steps = port.narrowed
        try:
            made = transform(
                tuple(column.name for column in shape),
                needed,
                steps,
                tuple(column.name for column in port.columns),
            )
        except NoRowForm:
            return lambda rows: rows_of(run_steps(steps, frame_of(rows, shape)), port.columns)
        return None if made is None else made.call

    def decoder(self, source: Source) -> Callable[[bytes], tuple[Any, ...]]:
        """Unpacks the rows of a base table."""
        unpack: Callable[[bytes], tuple[Any, ...]] = RowCodec(source.schema.columns).unpacker.call
        return unpack


def _generated(shape: Sequence[Column], feed: Feed, fed: Fed[Any], stays: bool) -> Generated:
    needed, steps = feed.narrowed
    writer = row_writer([column.name for column in shape], needed, steps)
    fed.write_input(writer, "here" if stays else "")
    lines = ["def feed(rows, boxes, shards, here):", "    for key, values, weight in rows:"]
    lines += [f"        {line}" for line in writer.lines]
    return compiled(lines, writer.names)


def _settling(
    feed: Callable[[Rows, Boxes[Any], int, int], None], fed: Fed[Any]
) -> Callable[[Rows, Boxes[Any], int, int], None]:
    """A generated feed, after which its boxes are settled."""
    if not fed.settles:
        return feed

    def run(rows: Rows, boxes: Boxes[Any], shards: int, here: int) -> None:
        feed(rows, boxes, shards, here)
        for box in boxes.values():
            fed.settle(box)

    return run


def _by_columns(
    shape: Sequence[Column], feed: Feed, fed: Fed[Any], stays: bool
) -> Callable[[Rows, Boxes[Any], int, int], None]:
    """A feed with a step that has no row form."""
    _, steps = feed.narrowed

    def run(rows: Rows, boxes: Boxes[Any], shards: int, here: int) -> None:
        delta = run_steps(steps, frame_of(rows, shape))
        if not delta.height:
            return
        frames = pack(fed.operator, delta, 1 if stays else shards)
        if stays:
            frames = {
                name: frame.with_columns((frame[SHARD] + here).alias(SHARD))
                for name, frame in frames.items()
            }
        fed.fill(boxes, frames)

    return run
