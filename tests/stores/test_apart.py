"""A store whose state is apart passes the shared suite, and any machine can take over."""

from __future__ import annotations

import pytest

from viewkeep.stores import create_store

from .conformance import BaseSuite, LogSuite, MetaSuite, ScanSuite, StateSuite, store  # noqa: F401


def url_of(folder):
    return f"apart:{folder / 'db'}?state={folder / 'state'}&changelog={folder / 'changelog'}"


@pytest.fixture
def store_factory(tmp_path):
    def create(nodes=2, shards=4):
        return create_store(url_of(tmp_path), nodes=nodes, shards=shards, durability="relaxed")

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
