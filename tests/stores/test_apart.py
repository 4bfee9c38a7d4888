"""A store whose state is apart passes the shared suite, and any machine can take over."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest

from viewkeep.errors import StoreError
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import StateWrite

from .conformance import BaseSuite, LogSuite, MetaSuite, ScanSuite, StateSuite, store  # noqa: F401


def url_of(folder, changelog="folder"):
    url = f"apart:{folder / 'db'}?state={folder / 'state'}"
    return url if changelog == "table" else f"{url}&changelog={folder / 'changelog'}"


@pytest.fixture(params=["folder", "table"])
def store_factory(tmp_path, request):
    url = url_of(tmp_path, request.param)

    def create(nodes=2, shards=4):
        return create_store(url, nodes=nodes, shards=shards, durability="relaxed")

    return create


class TestBase(BaseSuite):
    pass


class TestScan(ScanSuite):
    pass


class TestLog(LogSuite):
    pass


class TestState(StateSuite):
    pass


class TestMeta(MetaSuite):
    pass


def test_the_changelog_is_where_it_was_made(tmp_path):
    for changelog in ("folder", "table"):
        folder = tmp_path / changelog
        create_store(url_of(folder, changelog)).close()
        url = url_of(folder, "table" if changelog == "folder" else "folder")
        with pytest.raises(StoreError, match="changelog"):
            open_store(url)
        with pytest.raises(StoreError, match=r"is kept apart from it; open it as apart:.*state="):
            open_store(f"lmdb:{folder / 'db'}")
        open_store(url_of(folder, changelog)).close()


def test_stores_of_a_process_share_replicas(tmp_path):
    """Those that stay open go on when the first one is closed."""
    url = url_of(tmp_path, "table")
    first = create_store(url, nodes=1, shards=1)
    second = open_store(url)
    first.state.apply(0, 1, 0, [StateWrite(1, [b"a"], [b"1"])])
    first.close()
    second.state.apply(0, 2, 1, [StateWrite(1, [b"b"], [b"2"])])
    assert second.state.get(0, 1, [b"a", b"b"], 2) == [b"1", b"2"]
    second.close()
    shutil.rmtree(tmp_path / "state")
    with closing(open_store(url)) as third:
        assert third.state.get(0, 1, [b"a", b"b"], 2) == [b"1", b"2"]
