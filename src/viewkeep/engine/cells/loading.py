"""Loading a DELTA: the cells of a table that existed before, scanned while its log goes on.

A scan reads what is there now, so two runs of an epoch would read different cells. Hence the first
run keeps what it has read in a record of the epoch, and every run merges that: an epoch stays a
pure function. Law: scan and log overlap as they like, since they are merged. What a scan has read
may be newer than the cut of its epoch; so a part counts as loaded only once a published cut covers
all that was written before its last chunk was read, and views are not read before.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from viewkeep.engine.cells.travel import CellBox
from viewkeep.engine.epochs import Epochs, OpenEpoch
from viewkeep.engine.loading import LoadChunk
from viewkeep.engine.log_splits import parts_to_load
from viewkeep.errors import Fenced
from viewkeep.ops.cells import form
from viewkeep.ops.cells.ranges import Segment
from viewkeep.plan.nodes import CellSource
from viewkeep.plan.program import Operator, OperatorFeed, Program
from viewkeep.stores.contract import Cut, LogSplit, Store

_SCANS: Final = "scan/"
_MOST_ROWS: Final = 5_000  # of a chunk: it is one record
_READ: Final = "read until "  # the bound of a part whose rows are all read, before the cut


@dataclass(frozen=True)
class CellsRead:
    """A chunk of a scan, and the bound after it; None if its part is loaded."""

    box: CellBox
    bound: str | None

    @property
    def as_noted(self) -> LoadChunk:
        """The same for the report of a task."""
        noted = LoadChunk("", list(self.box.rows), [b""] * len(self.box.rows), more=False)
        noted.progress = self.bound
        return noted


def loads_due(
    store: Store,
    epoch: OpenEpoch,
    split: LogSplit,
    program: Program,
    cells: Mapping[int, CellSource],
) -> Iterator[tuple[CellSource, Operator, OperatorFeed, int, str]]:
    """What the task of a split loads: the tables and who reads them, part by part, with bounds."""
    for table in cells.values() if epoch.loading and epoch.chunk else ():
        for operator, feed in program.consumers(f"table:{table.number}"):
            for part in parts_to_load(store, epoch, split):
                bound = epoch.loading.get(feed.id, {}).get(str(part))
                if bound is not None:
                    yield table, operator, feed, part, bound


def load_cells(
    store: Store, epoch: OpenEpoch, feed: str, part: int, source: CellSource, bound: str
) -> CellsRead:
    """The next chunk of a part, the same at every run of the epoch."""
    if is_read(bound):
        until = Cut.from_json(json.loads(bound.removeprefix(_READ)))
        return CellsRead(CellBox(), None if epoch.start.covers(until) else bound)
    name = f"{_SCANS}{epoch.epoch:012d}/{feed}/{part}"
    record = store.meta.get(name)
    if record is None:
        store.meta.cas(name, None, _scan(store, epoch, part, source, bound))
        record = store.meta.get(name)
    # Records of published epochs are dropped, so of these another run may have made one anew.
    current = Epochs(store).read().open
    if record is None or current is None or current.epoch != epoch.epoch:
        raise Fenced(f"epoch {epoch.epoch} is no longer open: another driver has finished it")
    value = json.loads(record)
    return CellsRead(_unpacked(value), value["bound"])


def is_read(bound: str) -> bool:
    """Whether all rows of a part are read, so that it waits for a cut alone."""
    return bound.startswith(_READ)


def drop_chunks_before(store: Store, epoch: int) -> None:
    """Drop the records of published epochs."""
    for name, record in store.meta.scan(_SCANS):
        if int(name.removeprefix(_SCANS).partition("/")[0]) <= epoch:
            store.meta.cas(name, record, None)


def _scan(store: Store, epoch: OpenEpoch, part: int, source: CellSource, bound: str) -> bytes:
    start = bytes.fromhex(bound) + b"\0" if bound else b""
    limit = min(epoch.chunk, _MOST_ROWS)
    chunk = store.tables.scan_cells(part, source.number, start=start, limit=limit)
    box = CellBox()
    for operation in chunk.operations:
        box.take(operation, source.rules)
    after: str | None
    if chunk.more:
        assert chunk.last is not None
        after = chunk.last.hex()
    else:
        head = store.log.head()
        after = None if epoch.cut.covers(head) else _READ + json.dumps(head.to_json())
    return json.dumps({"bound": after, **_packed(box)}).encode()


def _packed(box: CellBox) -> dict[str, Any]:
    return {
        "rows": [[_text(key), _text(form.pack(state))] for key, state in box.rows.items()],
        "ranges": [
            [_text(start), None if stop is None else _text(stop), through]
            for start, stop, through in box.ranges.segments
        ],
    }


def _unpacked(value: Any) -> CellBox:
    box = CellBox()
    box.rows = {_bytes(key): form.unpack(_bytes(state)) for key, state in value["rows"]}
    box.segments = [
        Segment(_bytes(start), None if stop is None else _bytes(stop), through)
        for start, stop, through in value["ranges"]
    ]
    return box


def _text(data: bytes) -> str:
    return base64.b85encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b85decode(text)
