"""Counts of what could not be read: the sums of all processes, in records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from viewkeep.errors import StoreError
from viewkeep.stores import create_store
from viewkeep.stores.contract import Meta, NamedTable, Store
from viewkeep.stores.hbase.tables import Mappings
from viewkeep.stores.hbase.unreadable import UnreadableCounts
from viewkeep.types import BIGINT, STRING, Column, Schema

COLUMNS = (Column("k", STRING), Column("n", BIGINT))
VOTES = NamedTable("votes", 7, Schema(COLUMNS, ("k",)), (("key", "v|{k:text}"),))


class Process:
    """One process of the database."""

    def __init__(self, meta: Meta):
        self._mappings = Mappings()
        self._mappings.learn([VOTES])
        self.counts = UnreadableCounts(meta, self._mappings)

    def meet(self, *row_keys: bytes) -> None:
        for row_key in row_keys:
            self._mappings[7].key_of(row_key)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(create_store(str(tmp_path / "db"), durability="relaxed")) as made:
        yield made


def test_processes_add_up(store: Store) -> None:
    one, other = Process(store.meta), Process(store.meta)
    one.meet(b"v|fine", b"wrong")
    one.counts.tell()
    one.counts.tell()
    other.meet(b"wrong", b"also")
    other.counts.tell()
    one.meet(b"again")
    one.counts.tell()
    found = other.counts.read()
    assert found.keys() == {7}
    assert (found[7].rows, found[7].cells) == (4, 0)
    assert "again" in found[7].last
    other.counts.forget(7)
    assert one.counts.read() == {}


def test_without_any_nothing_is_written(store: Store) -> None:
    one = Process(store.meta)
    one.meet(b"v|fine")
    one.counts.tell()
    assert one.counts.read() == {}


def test_a_store_that_fails_loses_no_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise StoreError("no answer")

    one = Process(store.meta)
    one.meet(b"wrong")
    with monkeypatch.context() as context:
        context.setattr(store.meta, "get", fail)
        one.counts.tell()
    one.counts.tell()
    assert one.counts.read()[7].rows == 1
