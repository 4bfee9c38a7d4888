"""Blobs in a local folder, through PyArrow, and in the embedded store's own table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyarrow import fs

from viewkeep.errors import Corrupt, StoreError
from viewkeep.stores.changelog.files import ArrowFiles, LocalFiles
from viewkeep.stores.lmdb.blobs import LmdbBlobs
from viewkeep.stores.lmdb.database import FolderSettings, create_database, open_database
from viewkeep.stores.lmdb.parts import Opened

from .blobs import BlobsFactory, BlobSuite, blobs  # noqa: F401


class TestLocal(BlobSuite):
    @pytest.fixture
    def blobs_factory(self, tmp_path: Path) -> BlobsFactory:
        return lambda: LocalFiles(tmp_path)


class TestArrow(BlobSuite):
    @pytest.fixture
    def blobs_factory(self, tmp_path: Path) -> BlobsFactory:
        return lambda: ArrowFiles(fs.LocalFileSystem(), str(tmp_path))

    def test_of_many_writers_one_puts(self, blobs_factory: BlobsFactory) -> None:
        """Where a file can be replaced, all of them may: a changelog's writers agree on content."""
        first, second = blobs_factory(), blobs_factory()
        assert first.put("race", b"same")
        assert not second.put("race", b"same")


class TestTable(BlobSuite):
    @pytest.fixture
    def blobs_factory(self, table: Callable[[], LmdbBlobs]) -> BlobsFactory:
        return table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Callable[[], LmdbBlobs]]:
    """Opens the table of one database."""
    settings = FolderSettings(1, 1, "relaxed", changelog="id", blobs=True)
    create_database(tmp_path / "db", settings)
    with ExitStack() as stack:

        def opened() -> LmdbBlobs:
            made = LmdbBlobs(Opened("it", open_database(tmp_path / "db")))
            stack.callback(made.close)
            return made

        yield opened


def test_a_closed_table_says_so(table: Callable[[], LmdbBlobs]) -> None:
    first, second = table(), table()
    first.put("a", b"1")
    first.close()
    first.close()
    with pytest.raises(StoreError, match="closed"):
        first.get("a")
    assert second.get("a") == b"1"


def test_damage_in_the_table_is_noticed(tmp_path: Path, table: Callable[[], LmdbBlobs]) -> None:
    made = table()
    for name in ("a", "b", "c"):
        made.put(name, f"the content of {name}".encode())
    made.close()
    file = tmp_path / "db" / "blobs" / "data.mdb"
    content = file.read_bytes()
    assert b"the content of b" in content
    file.write_bytes(content.replace(b"the content of b", b"the content of X"))
    with pytest.raises(Corrupt, match="checksum"):
        table().get("b")
