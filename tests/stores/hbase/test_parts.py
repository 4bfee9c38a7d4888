"""The parts of an HBase database, by the suites that all stores share, on a real cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from viewkeep.errors import OutcomeUnknown
from viewkeep.stores import create_store
from viewkeep.stores.contract import NamedView, Store
from viewkeep.stores.hbase.blobs import HbaseBlobs
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.meta import HbaseMeta
from viewkeep.stores.hbase.views import HbaseViews
from viewkeep.types import BIGINT, Column, Schema

from ..blobs import BlobsFactory, BlobSuite, blobs  # noqa: F401
from ..conformance import OTHER, TABLE, MetaSuite, StateSuite, store  # noqa: F401

pytestmark = pytest.mark.hbase


class TestBlobs(BlobSuite):
    @pytest.fixture
    def blobs_factory(self, connection: HbaseConnection, namespace: str) -> BlobsFactory:
        def opened() -> HbaseBlobs:
            return HbaseBlobs(connection, f"{namespace}:blobs")

        opened().create()
        return opened


@pytest.fixture
def store_factory(
    connection: HbaseConnection, namespace: str, tmp_path: Path
) -> Callable[..., Store]:
    url = f"hbase://{connection.address}/{namespace}?state={tmp_path}"
    return lambda nodes=2, shards=4: create_store(url, shards=shards)


class TestState(StateSuite):
    """State on a machine's disk, with its changelog in HBase."""


class TestMeta(MetaSuite):
    test_scan_by_prefix = None  # it has records of its own; below is another test
    test_sizes = None  # HBase does not tell the bytes of a table; `test_store` has the rest


class ViewsAsState:
    """Views in the place of state, which has their contract and more."""

    def __init__(self, connection: HbaseConnection, namespace: str):
        self.meta = HbaseMeta(connection, f"{namespace}:meta")
        self.meta.create()
        self.state = HbaseViews(connection, namespace, self.meta)
        self.state.shards = 4
        schema = Schema((Column("k", BIGINT),), ("k",))
        shapes = [NamedView(f"v{n}", n, schema, ()) for n in (TABLE - 1, TABLE, OTHER)]
        self.state.learn(lambda: shapes)

    def close(self) -> None:
        return


class TestViews(StateSuite):
    """Views by the suite of state, but for what their contract does not promise."""

    @pytest.fixture
    def store(self, connection: HbaseConnection, namespace: str) -> ViewsAsState:
        return ViewsAsState(connection, namespace)

    # Only state is looked up by prefixes and floors.
    test_find_by_prefixes = None
    test_scan_ranges = None
    test_scan_ranges_before_the_horizon = None
    test_floor_is_the_last_row_at_or_before_a_key = None
    test_floor_passes_over_groups_without_rows = None
    test_floor_below_rows_that_are_not_there = None
    # HBase does not tell how many rows a table has.
    test_rows_that_are_said_to_be_new = None
    test_a_reverted_epoch_has_written_nothing = None
    test_a_row_whose_return_was_reverted_is_swept = None
    test_sizes_follow_the_rows = None
    # An older epoch may write beside a newer one: readers know by the stamps.
    test_an_older_epoch_is_fenced = None
    test_an_empty_apply_still_fences = None
    # One epoch of 16 trims, and deleted rows are looked for every 256 epochs; `test_store` has it.
    test_versions_before_the_horizon_are_gone = None
    test_changes_lead_from_epoch_to_epoch = None
    test_sweep_removes_deleted_rows_only = None
    # A table is dropped by one call, with what it has of all shards.
    test_drop_within_a_budget = None


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
