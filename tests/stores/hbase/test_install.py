"""`viewkeep hbase install` on a real cluster: what it says is missing, and what it finds sound."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from tests.stores.hbase.conftest import Cluster
from typer.testing import CliRunner

from viewkeep.cli.commands import app
from viewkeep.errors import StoreError
from viewkeep.stores.hbase.connection import HbaseConnection
from viewkeep.stores.hbase.install import InstallTarget
from viewkeep.stores.hbase.log import HbaseLog
from viewkeep.stores.hbase.wire import Family

Look = Callable[..., tuple[int, list[dict[str, str]]]]


@pytest.fixture
def name(cluster: Cluster) -> Iterator[str]:
    """A database's name, whose tables go after the test."""
    name = f"t{uuid.uuid4().hex[:8]}"
    yield name
    with closing(HbaseConnection("127.0.0.1", cluster.port)) as connection:
        if name in connection.namespaces():
            for table in connection.tables(name):
                connection.drop_table(table)
            connection.drop_namespace(name)


@pytest.fixture
def install(cluster: Cluster, name: str) -> Look:
    def look(*options: str) -> tuple[int, list[dict[str, str]]]:
        url = f"hbase://127.0.0.1:{cluster.port}/{name}"
        done = CliRunner().invoke(app, ["hbase", "install", url, "--json", *options])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.output
        return done.exit_code, json.loads(done.stdout)

    return look


def missing(found: list[dict[str, str]]) -> list[str]:
    return [one["what"] for one in found if one["state"] == "missing"]


@pytest.mark.hbase
def test_looking_makes_nothing(install: Look, cluster: Cluster, name: str) -> None:
    code, found = install("--check")
    assert (code, missing(found)) == (1, [f"The log table {name}:log does not exist."])
    with closing(HbaseConnection("127.0.0.1", cluster.port)) as connection:
        assert name not in connection.namespaces()


@pytest.mark.hbase
def test_an_administrator_is_told_what_to_do(install: Look, name: str) -> None:
    code, found = install()
    assert (code, missing(found)) == (1, ["No region server has begun to append to the log table."])
    assert f"add_peer 'viewkeep_{name}', ENDPOINT_CLASSNAME => " in found[-1]["remedy"]
    assert "SERIAL => true" in found[-1]["remedy"]


@pytest.mark.hbase
def test_with_a_peer_a_probe_arrives(
    install: Look, peer: Callable[[str], None], cluster: Cluster, name: str
) -> None:
    install()
    peer(f"{name}:log")
    code, found = install("--check", "--wait", "60")
    assert (code, missing(found)) == (0, [])
    assert "was in the log after" in found[-1]["what"]
    with closing(HbaseConnection("127.0.0.1", cluster.port)) as connection:
        assert connection.tables(name) == [f"{name}:log"]
        assert not HbaseLog(connection, f"{name}:log", lambda change, tables: ()).heads().tables


@pytest.mark.hbase
def test_a_table_that_is_not_logged_is_found(install: Look, cluster: Cluster, name: str) -> None:
    with closing(HbaseConnection("127.0.0.1", cluster.port)) as connection:
        install()
        table = f"{name}:votes"
        families = [Family(b"f"), Family(b"g", scope=1, seconds_to_live=60)]
        connection.create_table(table, families)
        HbaseLog(connection, f"{name}:log", lambda change, tables: ()).add_table(table)
    _, found = install("--check")
    assert f"Changes of family f of table {table} are not logged." in missing(found)
    (ttl,) = (one for one in found if "expire after 60 s" in one["what"])
    assert ttl["state"] == "warning"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("hbase://h:1/news", InstallTarget("h", 1, "news")),
        ("hbase://h/news?state=/tmp/x", InstallTarget("h", 9090, "news")),
        ("hbase://h:1", InstallTarget("h", 1, "viewkeep")),
    ],
)
def test_urls(url: str, target: InstallTarget) -> None:
    assert InstallTarget.of(url) == target


@pytest.mark.parametrize("url", ["news.vk", "hbase://h:x/news", "lmdb:news"])
def test_urls_of_others_are_refused(url: str) -> None:
    with pytest.raises(StoreError):
        InstallTarget.of(url)
