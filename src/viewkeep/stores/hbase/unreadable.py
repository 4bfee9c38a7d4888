"""How often row keys and cells of HBase could not be read, as all processes of a database met them.

They are counted where the log and rows to be loaded are read, each time they are read: a row that
is read again after a failure counts again. Each such read adds its counts to a record, if it has
any. Law: counts are only for people. A store that fails loses no read to them.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from threading import Lock
from typing import TYPE_CHECKING

from viewkeep.errors import StoreError
from viewkeep.stores.contract import Meta, Unreadable
from viewkeep.stores.contract.records import record_from

if TYPE_CHECKING:
    from viewkeep.stores.hbase.mapping import TableMapping
    from viewkeep.stores.hbase.tables import Mappings

_RECORDS = "hbase/unreadable/"


class UnreadableCounts:
    """The counts of one database, by the numbers of its tables."""

    def __init__(self, meta: Meta, mappings: Mappings):
        self._meta, self._mappings = meta, mappings
        self._lock = Lock()
        self._told: dict[int, Unreadable] = {}  # what of this process's counts is in the records

    def tell(self) -> None:
        """Add to the records what this process has met since the last call."""
        for mapping in self._mappings:
            if mapping.unreadable != self._told.get(mapping.number, Unreadable()):
                with self._lock, suppress(StoreError):
                    self._tell(mapping)

    def read(self) -> dict[int, Unreadable]:
        """The sums of all processes."""
        records = self._meta.scan(_RECORDS)
        return {int(key.removeprefix(_RECORDS)): _decode(body) for key, body in records}

    def forget(self, table: int) -> None:
        """A table was dropped."""
        key = f"{_RECORDS}{table}"
        while (record := self._meta.get(key)) is not None:
            self._meta.cas(key, record, None)

    def _tell(self, mapping: TableMapping) -> None:
        key, mine = f"{_RECORDS}{mapping.number}", mapping.unreadable
        told = self._told.get(mapping.number, Unreadable())
        while mine != told:
            record = self._meta.get(key)
            sums = Unreadable() if record is None else _decode(record)
            rows = sums.rows + mine.rows - told.rows
            cells = sums.cells + mine.cells - told.cells
            new = json.dumps(asdict(Unreadable(rows, cells, mine.last))).encode()
            if self._meta.cas(key, record, new):
                self._told[mapping.number] = told = mine


def _decode(record: bytes) -> Unreadable:
    return record_from(Unreadable, json.loads(record))
