"""Ordinary clients of HBase with a model of what they leave, for tests in which anything fails.

Law: a client writes rows of its own, one after the other, so its model is what HBase shows. It
never puts what an earlier deletion would hide: HBase's own answer then depends on compactions.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.wire import Cell, Column, Delete, Deletion, Put

CREATE = """CREATE TABLE votes (story STRING, user STRING, n BIGINT, note STRING,
                PRIMARY KEY (story, user))
            USING hbase OPTIONS ('table' = '{table}', 'key' = '{{story:text}}|{{user:text}}',
                'columns' = 'n=d:n:text, note=e:note')"""
VIEWS = {
    "scores": "SELECT story, COUNT(*) AS votes, SUM(n) AS total, COUNT(note) AS notes FROM votes "
    "GROUP BY story",
    "even": "SELECT story, user, n, note FROM votes WHERE n % 2 = 0",
    "sizes": "SELECT votes, COUNT(*) AS stories FROM scores GROUP BY votes",
}
STORIES = "bdfhjlnprt"
NUMBER, NOTE = Column(b"d", b"n"), Column(b"e", b"note")
PAST = 1_000_000  # milliseconds that late timestamps reach back
_NEWEST = 3  # versions among which one is chosen to be deleted
_KEPT = 8  # timestamps of a cell that count; one of them stays, as older ones are uncovered no more

Row = tuple[int | None, str | None]


@dataclass
class Votes:
    """One row: the versions of its number by their timestamps, and its note.

    `times` are the timestamps that its number ever had.
    """

    numbers: dict[int, int] = field(default_factory=dict)
    times: set[int] = field(default_factory=set)
    note: str | None = None

    @property
    def row(self) -> Row | None:
        number = self.numbers[max(self.numbers)] if self.numbers else None
        return None if number is None and self.note is None else (number, self.note)


class Client:
    """Writes rows of its own; `rows` are those that it has left."""

    def __init__(self, port: int, table: str, name: str, seed: object):
        self._connection, self._table = HbaseConnection("127.0.0.1", port), table
        self._name, self._source = name, random.Random(f"{seed} {name}")
        self._at = time.time_ns() // 1_000_000
        self._votes: dict[str, Votes] = {}
        self._used: set[int] = set()  # late timestamps
        self.writes = 0

    def rows(self) -> dict[tuple[str, str], Row]:
        found = dict[tuple[str, str], Row]()
        for key, votes in self._votes.items():
            if (row := votes.row) is not None:
                story, _, user = key.partition("|")
                found[story, user] = row
        return found

    def write(self) -> None:
        """One write of one row. Rows of odd users have late timestamps and lose single versions."""
        number, source = self._source.randrange(6), self._source
        key = f"{source.choice(STORIES)}{source.randrange(2)}|{self._name}{number}"
        votes = self._votes.setdefault(key, Votes())
        self._at = max(self._at + 2, time.time_ns() // 1_000_000)
        if number % 2:
            self._change_version(key, votes)
        else:
            self._change_row(key, votes)
        self.writes += 1

    def write_many(self, count: int) -> None:
        """Puts of some thousand rows, as of a client that goes on while nobody reads the log."""
        self._at += 2
        puts = list[Put]()
        for number in range(count):
            key = f"{self._source.choice(STORIES)}{number % 7}|{self._name}{number % 3_000}-"
            votes = self._votes.setdefault(key, Votes())
            self._at += 2
            votes.numbers[self._at] = number
            puts.append(Put(key.encode(), [Cell(b"d", b"n", b"%d" % number, self._at)]))
        for at in range(0, count, 500):
            self._connection.put(self._table, puts[at : at + 500])
        self.writes += count

    def close(self) -> None:
        self._connection.close()

    def _change_row(self, key: str, votes: Votes) -> None:
        choice, at = self._source.random(), self._at
        if choice < 0.5:
            cells = [Cell(b"d", b"n", b"%d" % self.writes, at)]
            votes.numbers = {at: self.writes}
            if choice < 0.2:
                votes.note = f"note {self.writes}"
                cells.append(Cell(b"e", b"note", votes.note.encode(), at))
            self._put(key, cells)
        elif choice < 0.65:
            self._delete(key, None)
            votes.numbers, votes.note = {}, None
        elif choice < 0.75:
            self._delete(key, NUMBER, Deletion.CELLS)
            votes.numbers = {}
        elif choice < 0.85:
            self._delete(key, Column(b"e"), Deletion.FAMILY)
            votes.note = None
        elif votes.numbers:
            self._put(key, [Cell(b"d", b"n", b"-1", 1)])  # older than what is there

    def _change_version(self, key: str, votes: Votes) -> None:
        choice, numbers = self._source.random(), votes.numbers
        there = [at for at in sorted(votes.times)[-_KEPT:] if at in numbers]
        if choice < 0.3 and len(there) > (len(votes.times) >= _KEPT):
            at = self._source.choice(there[-_NEWEST:])
            if choice < 0.15:
                self._delete(key, NUMBER, Deletion.VERSION, at)
            else:
                self._delete(key, Column(b"d"), Deletion.FAMILY_VERSION, at)
            del numbers[at]
            return
        at = self._at
        if choice > 0.6:  # odd, so that no timestamp comes twice
            at = self._at - 1 - 2 * self._source.randrange(PAST // 2)
            if at in self._used:
                return
            self._used.add(at)
        numbers[at] = self.writes
        votes.times.add(at)
        self._put(key, [Cell(b"d", b"n", b"%d" % self.writes, at)])

    def _put(self, key: str, cells: list[Cell]) -> None:
        self._connection.put(self._table, [Put(key.encode(), cells)])

    def _delete(
        self, key: str, column: Column | None, kind: int | None = None, at: int | None = None
    ) -> None:
        at = self._at if at is None else at
        columns = None if column is None else [Column(column.family, column.qualifier, at)]
        delete = Delete(key.encode(), columns, None if columns else at, kind)
        self._connection.delete(self._table, [delete])


def expected(rows: dict[tuple[str, str], Row]) -> dict[str, set[tuple[object, ...]]]:
    """The views of these rows, computed by hand."""
    scores = dict[str, tuple[int, int | None, int]]()
    sizes = dict[int, int]()
    for (story, _), (n, note) in rows.items():
        votes, total, notes = scores.get(story, (0, None, 0))
        total = total if n is None else n + (total or 0)
        scores[story] = votes + 1, total, notes + (note is not None)
    for votes, _, _ in scores.values():
        sizes[votes] = sizes.get(votes, 0) + 1
    return {
        "scores": {(story, *of) for story, of in scores.items()},
        "even": {
            (*key, *row) for key, row in rows.items() if row[0] is not None and not row[0] % 2
        },
        "sizes": set(sizes.items()),
    }
