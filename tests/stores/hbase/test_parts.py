"""The parts of an HBase database, by the suites that all stores share, on a real cluster."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from viewkeep.errors import OutcomeUnknown
from viewkeep.stores.hbase.blobs import HbaseBlobs
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.meta import HbaseMeta

from ..blobs import BlobsFactory, BlobSuite, blobs  # noqa: F401

pytestmark = pytest.mark.hbase


class TestBlobs(BlobSuite):
    @pytest.fixture
    def blobs_factory(self, connection: HbaseConnection, namespace: str) -> BlobsFactory:
        def opened() -> HbaseBlobs:
            return HbaseBlobs(connection, f"{namespace}:blobs")

        opened().create()
        return opened


@pytest.fixture
def meta(connection: HbaseConnection, namespace: str) -> HbaseMeta:
    made = HbaseMeta(connection, f"{namespace}:meta")
    assert made.create()
    return made


def test_records_change_by_compare_and_set(meta: HbaseMeta) -> None:
    assert meta.get("a") is None
    assert meta.cas("a", None, b"")
    assert meta.get("a") == b""
    assert not meta.cas("a", None, b"1")
    assert meta.cas("a", b"", b"1")
    assert not meta.cas("a", b"", b"2")
    assert meta.cas("a", b"1", None)
    assert meta.get("a") is None
    assert meta.cas("a", None, None)
    assert meta.cas("a", None, b"3")
    assert meta.get("a") == b"3"


def test_records_are_scanned_by_prefix(meta: HbaseMeta) -> None:
    for name in ("p/1", "p/2", "q", "it's/1", "it's/2", "p"):
        assert meta.cas(name, None, name.encode())
    assert meta.cas("p/1", b"p/1", None)
    assert meta.scan("p/") == [("p/2", b"p/2")]
    assert meta.scan("it's/") == [("it's/1", b"it's/1"), ("it's/2", b"it's/2")]
    assert [name for name, _ in meta.scan("")] == ["it's/1", "it's/2", "p", "p/2", "q"]


def test_ticks_differ_after_any_change(meta: HbaseMeta, connection: HbaseConnection) -> None:
    other = HbaseMeta(connection, meta.table)
    seen = [meta.ticks()]
    for writer, (old, new) in zip(
        (meta, other, meta, meta, other),
        ((None, b"1"), (b"1", b"2"), (b"2", None), (None, b"1"), (b"1", b"2")),
        strict=True,
    ):
        assert writer.cas("a", old, new)
        assert other.ticks() not in seen
        seen.append(meta.ticks())
    meta.get("a")
    assert not other.cas("a", b"1", b"2")
    assert meta.ticks() == seen[-1]


def test_of_many_writers_one_wins(meta: HbaseMeta, connection: HbaseConnection) -> None:
    """Each adds one as often, so nothing is lost and nothing is done twice."""
    assert meta.cas("n", None, b"0")

    def add() -> None:
        mine, left = HbaseMeta(connection, meta.table), 25
        while left:
            now = mine.get("n")
            assert now is not None
            left -= mine.cas("n", now, str(int(now) + 1).encode())

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meta.get("n") == b"100"


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_is_asked_for(
    meta: HbaseMeta, connection: HbaseConnection, monkeypatch: Any, arrives: bool
) -> None:
    """Whether or not the change itself was made, it is made once and said to be done."""
    call, lost = HbaseConnection.check_and_mutate, iter([True])

    def losing(self: HbaseConnection, *arguments: Any) -> bool:
        if not next(lost, False):
            return call(self, *arguments)
        if arrives:
            call(self, *arguments)
        raise OutcomeUnknown("no answer in time")

    monkeypatch.setattr(HbaseConnection, "check_and_mutate", losing)
    assert meta.cas("a", None, b"1")
    assert meta.get("a") == b"1"
    assert not meta.cas("a", None, b"2")


def test_a_wait_ends_with_a_change(meta: HbaseMeta, connection: HbaseConnection) -> None:
    other = HbaseMeta(connection, meta.table)
    thread = threading.Thread(target=lambda: other.cas("a", None, b"1"))
    thread.start()
    assert meta.watch("a", None, 60) == b"1"
    thread.join()
    assert meta.watch("a", b"1", 0) == b"1"
