"""The LMDB connector passes the shared suite, with the default layout and with a single node."""

import pytest

from viewkeep.stores import create_store

from .conformance import BaseSuite, LogSuite, MetaSuite, ScanSuite, StateSuite, store  # noqa: F401


@pytest.fixture(params=[(2, 4), (1, 2), (3, 3)], ids=["2 nodes", "1 node", "3 nodes"])
def store_factory(request, tmp_path):
    nodes, shards = request.param
    return lambda: create_store(
        f"lmdb:{tmp_path / 'db'}", nodes=nodes, shards=shards, durability="relaxed"
    )


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
