"""A changelog of files or of a table passes the suite, and meets what was torn, lost or damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyarrow import fs

from viewkeep.errors import Corrupt, FormatVersion, StoreError, StoreFull
from viewkeep.stores.changelog import BlobChangelog, Different, Entry, Missing
from viewkeep.stores.changelog.files import ArrowFiles, files_of
from viewkeep.stores.lmdb.blobs import LmdbBlobs
from viewkeep.stores.lmdb.database import FolderSettings, create_database, open_database
from viewkeep.stores.lmdb.parts import Opened

from .suite import ChangelogFactory, ChangelogSuite, changelog, record  # noqa: F401


@pytest.fixture
def changelog_factory(tmp_path: Path) -> ChangelogFactory:
    folder = str(tmp_path / "changelog")
    create(folder)
    return lambda: open_changelog(folder)


def create(uri: str) -> BlobChangelog:
    return BlobChangelog.create(uri, files_of(uri))


def open_changelog(uri: str) -> BlobChangelog:
    return BlobChangelog.open(uri, files_of(uri))


class TestTable(ChangelogSuite):
    """The same in a table of the embedded store."""

    @pytest.fixture
    def changelog_factory(self, tmp_path: Path) -> Iterator[ChangelogFactory]:
        create_database(
            tmp_path / "db", FolderSettings(1, 1, "relaxed", changelog="id", blobs=True)
        )
        with ExitStack() as stack:

            def opened() -> BlobChangelog:
                blobs = LmdbBlobs(Opened("it", open_database(tmp_path / "db")))
                stack.callback(blobs.close)
                return BlobChangelog.begin("table", blobs, "id")

            yield opened


class TestLocal(ChangelogSuite):
    pass


class TestArrow(ChangelogSuite):
    """The same by PyArrow's file systems, here the local one."""

    @pytest.fixture
    def changelog_factory(self, tmp_path: Path) -> ChangelogFactory:
        files = ArrowFiles(fs.LocalFileSystem(), str(tmp_path))
        return lambda: BlobChangelog("arrow", files, "id")


def record_file(root: Path) -> Path:
    (found,) = root.glob("changelog/shard-00000/log-*/*")
    return found


def test_a_folder_has_one_changelog(tmp_path: Path) -> None:
    made = create(str(tmp_path / "log"))
    assert open_changelog(str(tmp_path / "log")).id == made.id
    assert open_changelog(f"file://{tmp_path / 'log'}").id == made.id
    with pytest.raises(StoreError, match="changelog of a database already"):
        create(str(tmp_path / "log"))
    with pytest.raises(StoreError, match="is the file system mounted here"):
        open_changelog(str(tmp_path / "other"))
    (tmp_path / "log" / "changelog.json").write_text('{"format": 9, "id": "x"}')
    with pytest.raises(FormatVersion, match="format 9"):
        open_changelog(str(tmp_path / "log"))
    (tmp_path / "log" / "changelog.json").write_text('{"form')
    with pytest.raises(Corrupt, match="is damaged"):
        open_changelog(str(tmp_path / "log"))


def test_unknown_kind_of_file_system() -> None:
    with pytest.raises(StoreError, match="cannot reach the changelog at nowhere://x"):
        files_of("nowhere://x")


def test_a_torn_record_is_not_taken_for_its_own(
    tmp_path: Path, changelog_factory: ChangelogFactory
) -> None:
    """A file system that lost the end of an acknowledged file."""
    log = changelog_factory()
    log.append(0, Entry(1, 1), record(1))
    path = record_file(tmp_path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(Corrupt, match="is damaged"):
            log.append(0, Entry(1, 1), record(1))


def test_drafts_of_killed_writers_are_not_listed(
    tmp_path: Path, changelog_factory: ChangelogFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = changelog_factory()
    log.append(0, Entry(1, 1), record(1))

    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", killed)
        patch.setattr(os, "unlink", lambda path: None)
        with pytest.raises(SystemExit):
            log.append(0, Entry(2, 1), record(2))
    assert any(name.startswith(".draft") for name in os.listdir(record_file_folder(tmp_path)))
    assert log.entries(0, 0).entries == [Entry(1, 1)]
    log.append(0, Entry(2, 1), record(2))
    assert log.entries(0, 0).entries == [Entry(1, 1), Entry(2, 1)]


def record_file_folder(root: Path) -> Path:
    (found,) = root.glob("changelog/shard-00000/log-*")
    return found


def test_damaged_snapshots(tmp_path: Path, changelog_factory: ChangelogFactory) -> None:
    log = changelog_factory()
    log.write_snapshot(0, 5, [b"chunk one", b"chunk two"])
    (chunk,) = tmp_path.glob("changelog/shard-00000/chunks-*/000001")
    chunk.write_bytes(b"chunk twX")
    with pytest.raises(Corrupt, match="checksum"):
        list(log.read_snapshot(0, 5))
    chunk.unlink()
    with pytest.raises(Missing):
        list(log.read_snapshot(0, 5))
    (manifest,) = tmp_path.glob("changelog/shard-00000/snapshots/*.json")
    manifest.write_text('{"folder"')
    assert log.snapshots(0) == {}
    with pytest.raises(Corrupt):
        list(log.read_snapshot(0, 5))


def test_a_full_disk(changelog_factory: ChangelogFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    log = changelog_factory()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreFull, match="make room"):
            log.append(0, Entry(1, 1), record(1))
    assert log.entries(0, 0).entries == []
    log.append(0, Entry(1, 1), record(1))


def test_stale_writers_differ(changelog_factory: ChangelogFactory) -> None:
    """Two versions of viewkeep, or a database older than its changelog."""
    log = changelog_factory()
    log.append(0, Entry(1, 1), record(1))
    with pytest.raises(Different, match="backup"):
        changelog_factory().append(0, Entry(1, 1), record(1, row=b"new"))
