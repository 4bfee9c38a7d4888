"""AUTO_INCREMENT: the next numbers of a table, taken in blocks from a record in the store.

Law: a number is given out once, by one server; the primary key sees to the rest, since a row whose
key exists is refused. Numbers grow within one server. There are gaps: what is left of a block is
lost when a server ends, and so are the numbers of refused rows.
"""

from __future__ import annotations

import threading

from viewkeep import claims
from viewkeep.database import Database
from viewkeep.plan.nodes import Source
from viewkeep.serve.mysql.catalog.declare import NEXT

_BLOCK = 100


class Sequences:
    """The numbers of all tables of one database."""

    def __init__(self, db: Database):
        self._db = db
        self._lock = threading.Lock()
        self._blocks: dict[int, tuple[int, int]] = {}  # table number -> next, end of the block

    def take(self, table: Source, count: int) -> int:
        """The first of `count` numbers that follow one another."""
        with self._lock:
            first, end = self._blocks.get(table.number, (0, 0))
            if first + count > end:
                first, end = self._reserve(table, max(count, _BLOCK))
            self._blocks[table.number] = (first + count, end)
            return first

    def passed(self, table: Source, number: int) -> None:
        """A row was written with a number that its writer chose: later ones are larger."""
        with self._lock:
            first, end = self._blocks.get(table.number, (0, 0))
            if first <= number < end:
                self._blocks[table.number] = (number + 1, end)
            elif number >= end:
                self._blocks[table.number] = self._reserve(table, _BLOCK, number + 1)

    def met(self, table: Source) -> None:
        """A number was taken already by another writer: go on after the largest."""
        with self._lock:
            self._blocks[table.number] = self._reserve(table, _BLOCK, self._largest(table) + 1)

    def _reserve(self, table: Source, count: int, least: int = 1) -> tuple[int, int]:
        store, key = self._db.store, f"{NEXT}{table.number}"
        with claims.aside():  # numbers that are lost are no write
            while True:
                old = store.meta.get(key)
                first = int(old) if old is not None else self._largest(table) + 1
                first = max(first, least)
                if store.meta.cas(key, old, str(first + count).encode()):
                    return first, first + count

    def _largest(self, table: Source) -> int:
        rows = self._db.scan(table.table, reverse=True, limit=1).rows()
        return max(0, int(rows[0][table.schema.key[0]])) if rows else 0
