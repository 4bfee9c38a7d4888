"""The bundle: the five parts of one store, and what it offers beyond the bare contract."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from viewkeep.cells import CellRules
from viewkeep.stores.contract.log import Log
from viewkeep.stores.contract.meta import Meta
from viewkeep.stores.contract.named import NamedTable, NamedView
from viewkeep.stores.contract.state import State, TableSize
from viewkeep.stores.contract.tables import Tables
from viewkeep.stores.contract.views import Views
from viewkeep.stores.contract.waiting import Looks


@dataclass(frozen=True)
class Capabilities:
    """What a store offers beyond the bare contract: callers read this, never the class."""

    before_image: bool = True  # log records carry the old row, once, in the row's order
    shared_state: bool = True  # every process reaches every shard of the state
    # A log has every operation on the rows of one part, and part p of the tables has the keys of
    # the shards s with s % parts == p. Then level 0 writes views that are keyed like their table.
    aligned: bool = True
    views_apart: bool = False  # views are written to `views`; else they are state
    cells: CellRules | None = None  # how cells merge, where the log brings cells and not rows


@dataclass(frozen=True)
class Unreadable:
    """What of a table's rows, which others write, could not be read, and the last reason."""

    rows: int = 0  # whose keys are none of the table's
    cells: int = 0  # that are no values of their columns
    last: str = ""


@dataclass(frozen=True)
class Sizes:
    """Bytes on disk and operations kept, as `status` shows them."""

    base_bytes: int
    state_bytes: int
    log_operations: Mapping[str, int]  # per log, still kept
    tables: Mapping[int, TableSize] = field(default_factory=dict)  # state tables by number
    used_bytes: int = 0  # of everything, without what is free for reuse
    max_bytes: int | None = None  # after which no rows are taken
    free_bytes: int | None = None  # on the disk
    refusal: str | None = None  # why no rows are taken now
    base_rows: int | None = None  # of all base tables, if the store counts them
    unreadable: Mapping[int, Unreadable] = field(default_factory=dict)  # base tables by number


class Store(ABC):
    """A key-value store, opened by this process. Methods may be called from several threads.

    Opening after a fork is the caller's duty (`stores.open_store` keeps one per process and url).
    """

    url: str
    capabilities: Capabilities
    log: Log
    tables: Tables
    state: State
    views: Views
    meta: Meta

    def learn(self, tables: Iterable[NamedTable], views: Callable[[], Iterable[NamedView]]) -> None:
        """Be told what the numbers of tables and views mean, before any call with these numbers.

        Of stores that other programs read and write by names and columns; others, such as this
        default, need not know.
        """
        return

    def ticks(self) -> object:
        """A value that differs after any write of base rows, logs or meta records.

        While two answers are equal, nobody has written between them. A waiting process asks this
        every few milliseconds, so stores have a cheaper way than this default, without locks. A
        store must never miss a write that has returned; answers may differ without one.
        """
        return self.log.head(), self.meta.scan("")

    def wait(self, seen: object, seconds: float) -> object:
        """Wait until `ticks` differ from `seen`, at most so long; what they are then.

        This default asks again and again. A store that is far away has one call for all of it.
        """
        deadline, looks = time.monotonic() + seconds, Looks()
        while (ticks := self.ticks()) == seen and (left := deadline - time.monotonic()) > 0:
            looks.pause(left)
        return ticks

    @abstractmethod
    def sizes(self) -> Sizes:
        """What `status` reports; may be approximate."""

    @abstractmethod
    def close(self) -> None:
        """Release files and maps. Calling it twice is harmless."""
