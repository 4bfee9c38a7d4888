"""One epoch in the rows lane: all levels and shards in this process, one operator after the other.

Law: it writes the bytes that the columns lane writes. Sums of DOUBLEs are rounded with each part,
so the parts are those of the columns lane: what a split of a log sends, and what a shard sends at
one level. Nothing is written before the last operator has run, so it can give up at any place.
"""

from __future__ import annotations

import heapq
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from viewkeep.codec.key_order import hash_key
from viewkeep.engine.amounts import TOGETHER, amount_of
from viewkeep.engine.blame import Announce, Blame
from viewkeep.engine.cells.level import cell_boxes, cell_sources, purge_below, purging
from viewkeep.engine.cells.loading import load_cells, loads_due
from viewkeep.engine.cells.travel import CellBox, spread
from viewkeep.engine.epochs import OpenEpoch
from viewkeep.engine.load_chunks import state_chunks, table_chunks
from viewkeep.engine.loading import LoadChunk, Progress
from viewkeep.engine.log_splits import even_splits, is_first
from viewkeep.engine.operators import Executor, Fed
from viewkeep.engine.report import Report
from viewkeep.engine.rows.convert import rows_of
from viewkeep.engine.rows.delta import FEW, Boxes, ColumnsNeeded, Rows, TooMany
from viewkeep.engine.rows.lane import Lane, RowFeed
from viewkeep.engine.state import ShardState
from viewkeep.engine.views import view_tables
from viewkeep.errors import StoreError
from viewkeep.plan.nodes import CellSource, Source
from viewkeep.plan.program import Operator, Program, producer_id
from viewkeep.stores.contract import LogBatch, LogSplit, Store


def run_rows(
    store: Store, epoch: OpenEpoch, program: Program, announce: Announce | None = None
) -> list[Report] | None:
    """Run an open epoch; None if it does not belong here, and nothing was written."""
    if epoch.operations > FEW or epoch.rows_to_load > FEW:
        return None
    if any(feed.id in epoch.loading for _, feed, _ in program.constants):
        return None  # they are loaded once, with the first chunk
    try:
        return _Run(store, epoch, _lane(program), announce).run()
    except TooMany:
        return None


_MOST_BYTES = 4 << 20  # of the rows in a split of a log, before and after
_MOST_AMOUNT = 50_000  # of the operations on cells in a split of a log
_SLOT = 16  # bytes of a value in a frame besides those of its text, at most


class _Run:
    def __init__(self, store: Store, epoch: OpenEpoch, lane: Lane, announce: Announce | None):
        self.store, self.epoch, self.lane = store, epoch, lane
        self.program, self.shards = lane.program, store.state.shards
        self.blame = Blame(lane.program, announce)
        self.states: dict[int, ShardState] = {}
        self.below = purge_below(store, epoch.cut)
        # What has come for each operator: level -> shard -> operator -> boxes.
        self.inputs: dict[int, dict[int, dict[str, list[Any]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )
        self.rows_in: dict[int, int] = defaultdict(int)
        self.seconds: list[float] = []
        self.progress = Progress()

    def run(self) -> list[Report]:
        began, worked = time.perf_counter(), time.process_time()
        for share in even_splits(self.store, self.program, self.epoch):
            for split in share:
                self._read(split)
        self._wake()
        for level in range(self.program.levels):
            for shard in sorted(self.inputs.get(level, ())):
                self._run_shard(level, shard)
            self.seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
        written = sum(self.states[shard].commit() for shard in sorted(self.states))
        self.seconds[-1] += time.perf_counter() - began
        last = self.program.levels - 1
        reports = [
            Report(level, rows_in=self.rows_in[level], seconds=seconds)
            for level, seconds in enumerate(self.seconds[:last])
        ]
        worked = time.process_time() - worked
        whole = self.progress.report(
            last, self.rows_in[last], written, self.seconds[last], worked, self.blame.costs
        )
        return [*reports, whole]

    def _read(self, split: LogSplit) -> None:
        """Level 0 of a split of a log."""
        if split.is_empty and not self.epoch.loading:
            return
        cells = cell_sources(self.program)
        sources = {n: source for n, source in self.lane.sources.items() if n not in cells}
        sent = _Sent(self)
        self._read_cells(split, cells)
        chunks = self._load_tables(split, sources, sent) if self.epoch.loading else {}
        deltas: dict[int, Rows] = {}
        size = 0
        has_changes = sources and not split.is_empty
        for batch in self.store.log.read(split, frozenset(sources)) if has_changes else ():
            size += batch.size
            if size > _MOST_BYTES:
                raise TooMany
            source = sources[batch.table]
            with self.blame(producer_id(source)):
                unpack = self.lane.unpacker(source)
                deltas.setdefault(batch.table, []).extend(_changes(batch, unpack))
        for number, rows in deltas.items():
            self.rows_in[0] += len(rows)
            sent.feed(f"table:{number}", rows, -1, chunks.get(number, {}))
        sent.flush()

    def _load_tables(
        self, split: LogSplit, sources: Mapping[int, Source], sent: _Sent
    ) -> dict[int, dict[str, LoadChunk]]:
        """Send the rows that a split loads; the chunk of each feed, by table."""
        store, epoch = self.store, self.epoch
        sends = split.part is not None or is_first(store, epoch, split)
        chunks: dict[int, dict[str, LoadChunk]] = defaultdict(dict)
        for number, source in sources.items():
            name = producer_id(source)
            consumers = self.program.consumers(name)
            with self.blame(name):
                found = table_chunks(store, epoch, split, source, consumers)
            for chunk, feeds in found:
                chunks[number].update((feed.id, chunk) for _, feed in feeds)
                if not sends:
                    continue
                with self.blame(name):
                    unpack = self.lane.unpacker(source)
                    pairs = zip(chunk.keys, chunk.rows, strict=True)
                    rows = [(key, unpack(row), 1) for key, row in pairs]
                for _, feed in feeds:
                    self.progress.note(feed.id, split.part or 0, chunk)
                    sent.put(self.lane.feed(name, feed.id), rows, -1)
                chunk.release()
        return chunks

    def _read_cells(self, split: LogSplit, cells: Mapping[int, CellSource]) -> None:
        """Level 0 of a split of a log of cell operations."""
        for number, box in cell_boxes(self.store, self.epoch, split, cells):
            if box.amount > _MOST_AMOUNT:
                raise TooMany
            self.rows_in[0] += len(box)
            self._route(number, box)
        due = loads_due(self.store, self.epoch, split, self.program, cells)
        for table, operator, feed, part, bound in due:
            with self.blame(operator.id):
                read = load_cells(self.store, self.epoch, feed.id, part, table, bound)
            self.progress.note(feed.id, part, read.as_noted)
            self._route(table.number, read.box)

    def _route(self, number: int, box: CellBox) -> None:
        """Send operations on cells to the shards of their rows."""
        for operator, _ in self.program.consumers(f"table:{number}"):
            for shard, part in spread(box, self.shards):
                self.inputs[operator.level][shard][operator.id].append(part)

    def _wake(self) -> None:
        """Have operators run that have something to do without any input.

        An Aggregate without keys has a row: see that it is there. A DELTA purges. Whose rows are
        loaded reads a chunk of them.
        """
        for name in self.program.unasked:
            executor = self.lane.executor(name)
            shard = hash_key(b"") % self.shards
            table = executor.operator.rows_table
            if self.state(shard).lookup(table, [b""]) == [None]:
                self.inputs[executor.operator.level][shard][name].append(executor.new_box())

        for operator in purging(self.store, self.epoch, self.program):
            for shard in range(self.shards):
                self._wake_on(operator, shard)
        for feed, parts in self.epoch.loading.items():
            producer = self.program.producer_of(feed)
            if producer is not None:
                for part in parts:
                    self._wake_on(self.program.by_id[producer], int(part))

    def _wake_on(self, operator: Operator, shard: int) -> None:
        boxes = self.inputs[operator.level][shard][operator.id]
        if not boxes:
            boxes.append(self.lane.executor(operator.id).new_box())

    def _run_shard(self, level: int, shard: int) -> None:
        """The operators of a level that have input on a shard, producers first."""
        inputs, position = self.inputs[level][shard], self.lane.position
        sent = _Sent(self)
        waiting = [position[name] for name in inputs]
        heapq.heapify(waiting)
        operators = self.program.operators
        while inputs:
            name = operators[heapq.heappop(waiting)].id
            boxes = inputs.pop(name, None)
            if boxes is None:
                continue
            executor = self.lane.executor(name)
            with self.blame(name):
                chunks = state_chunks(
                    self.epoch, self.state(shard), self.program, executor.operator
                )
                for loaded, chunk in chunks.items():
                    self.progress.note(loaded, shard, chunk)
                rows = self._run_operator(executor, self.state(shard), boxes)
            self.blame.changed(name, len(rows))
            if not rows and not chunks:
                continue
            if rows:
                _check_part(rows)
            for reader, place in self.program.readers(name) if rows else ():
                with self.blame(reader.id):
                    port = self.lane.port(reader.id, place)
                    some = rows if port is None else port(rows)
                if some:
                    box = self.lane.executor(reader.id).new_box()
                    box[place].extend(some)
                    self.inputs[reader.level][shard][reader.id].append(box)
                    if reader.level == level:
                        heapq.heappush(waiting, position[reader.id])
            sent.feed(name, rows, shard, chunks)
            for loaded, chunk in chunks.items():
                self._load(executor, self.lane.feed(name, loaded), chunk, sent, shard)
            for woken in sent.stayed:
                heapq.heappush(waiting, position[woken])
            sent.stayed.clear()
        sent.flush()

    def _load(
        self,
        executor: Executor[Any, Any],
        feed: RowFeed,
        chunk: LoadChunk,
        sent: _Sent,
        shard: int,
    ) -> None:
        """Send the rows of an operator that one of its consumers loads."""
        count = 0
        with self.blame(feed.operator.id):
            for frame in executor.rows_for(self.state(shard), executor.loaded(chunk)):
                count += frame.height
                if count >= TOGETHER:
                    raise TooMany
                sent.put(feed, rows_of(frame, executor.shape), shard)

    def _run_operator(
        self, executor: Executor[Any, Any], state: ShardState, boxes: list[Any]
    ) -> Rows:
        count = sum(map(executor.size, boxes))
        heard = self.program.is_heard(executor.operator.id)
        self.rows_in[executor.operator.level] += count
        if executor.has_rows and 0 < count <= FEW:
            try:
                return executor.run_rows(state, boxes, heard)
            except ColumnsNeeded:
                pass
        rows: Rows = []
        given = executor.frames_of(boxes) if count else executor.nothing
        for delta in executor.run_columns(state, given, heard):
            if len(rows) + delta.height >= TOGETHER:
                raise TooMany
            rows += rows_of(delta, executor.shape)
        return rows

    def state(self, shard: int) -> ShardState:
        """The state of a shard, whose writes wait for the end of the epoch."""
        if shard not in self.states:
            epoch, horizon = self.epoch.epoch, self.epoch.horizon
            views = view_tables(self.store, self.program)
            self.states[shard] = ShardState(self.store, shard, epoch, horizon, self.below, views)
        return self.states[shard]


class _Sent:
    """What one sender (a split of a log, or a shard at a level) has for other operators."""

    def __init__(self, run: _Run):
        self._run = run
        self._boxes: dict[str, Boxes[list[Any]]] = {}
        self.stayed: list[str] = []  # operators of this shard and level that got rows

    def feed(self, producer: str, rows: Rows, here: int, chunks: Mapping[str, LoadChunk]) -> None:
        """Feed the consumers of a producer with its changes; those that load, with a part."""
        parts: list[tuple[RowFeed, Rows]] = []
        for feed, some in self._run.lane.feeds(producer).reached(rows) if rows else ():
            chunk = chunks.get(feed.feed.id)
            if chunk is None:
                self.put(feed, some, here)
            else:
                parts.append((feed, chunk.passed_rows(some)))
        for feed, some in parts:
            self.put(feed, some, here)

    def put(self, feed: RowFeed, rows: Rows, here: int) -> None:
        """Put rows of its producer into a feed."""
        if not rows:
            return
        run, operator = self._run, feed.operator
        with run.blame(operator.id):
            boxes: Boxes[Any] = Boxes(feed.fed.new_box)
            feed.run(rows, boxes, run.shards, here)
        if not boxes:
            return
        if feed.stays:
            run.inputs[operator.level][here][operator.id].append(boxes[here])
            self.stayed.append(operator.id)
            return
        held = self._boxes.setdefault(operator.id, Boxes(list))
        for shard, box in boxes.items():
            held[shard].append(box)

    def flush(self) -> None:
        """Send what was taken, combined."""
        run = self._run
        for name, held in self._boxes.items():
            executor = run.lane.executor(name)
            assert isinstance(executor, Fed)
            inputs = run.inputs[executor.operator.level]
            for shard, boxes in held.items():
                inputs[shard][name].append(executor.combined(boxes))


def _check_part(rows: Rows) -> None:
    """Give up where the columns lane may hand on changes in several parts: sums would differ."""
    texts = sum(len(cell) for _, values, _ in rows for cell in values if type(cell) is bytes)
    keys = sum(len(key) for key, _, _ in rows)
    slots = _SLOT * (len(rows[0][1]) + 2) * len(rows)
    if amount_of(len(rows), texts + keys + slots) >= TOGETHER:
        raise TooMany


def _changes(batch: LogBatch, unpack: Any) -> Rows:
    """The operations of a batch as rows that come and rows that go."""
    if batch.before is None:
        raise StoreError("this store's log has no before-images, which views need so far")
    keys = batch.keys.all_bytes()
    made: Rows = []
    for rows, weight in ((batch.rows, 1), (batch.before, -1)):
        made += [
            (key, unpack(row), weight)
            for key, row in zip(keys, rows, strict=True)
            if row is not None
        ]
    return made


_lanes: list[Lane] = []
_KEPT_LANES = 4


def _lane(program: Program) -> Lane:
    """The lane of a program, kept for the last few."""
    for lane in _lanes:
        if lane.program is program:
            return lane
    made = Lane(program, _lanes[0] if _lanes else None)
    _lanes.insert(0, made)
    del _lanes[_KEPT_LANES:]
    return made
