"""What every changelog must do, wherever it keeps its records.

A test module subclasses `ChangelogSuite` and has a fixture `changelog_factory`, a function that
opens the same changelog anew each time, as another process would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from viewkeep.errors import Corrupt, StoreError
from viewkeep.stores.changelog import Changelog, Different, Entry, Missing
from viewkeep.stores.changelog.records import Record, RecordKind
from viewkeep.stores.contract import StateWrite

ChangelogFactory = Callable[[], Changelog]


def record(epoch: int, part: int = 1, row: bytes = b"row", shard: int = 0) -> bytes:
    writes = (StateWrite(7, [b"a", b"b"], [row, None]),)
    return Record(RecordKind.WRITES, shard, part, epoch, epoch - 1, epoch - 1, writes).encode()


@pytest.fixture
def changelog(changelog_factory: ChangelogFactory) -> Changelog:
    return changelog_factory()


class ChangelogSuite:
    def test_records_come_back_in_order(
        self, changelog: Changelog, changelog_factory: ChangelogFactory
    ) -> None:
        entries = [Entry(epoch, part) for epoch in (1, 2, 300, 5000) for part in (1, 0x10002)]
        for entry in reversed(entries):
            changelog.append(0, entry, record(*entry))
        other = changelog_factory()
        assert other.entries(0, 0).entries == entries
        assert other.entries(0, 0).floor == 0
        assert other.entries(0, 2).entries == entries[4:]
        assert other.entries(0, 1, 300).entries == entries[2:6]
        assert other.entries(0, 5000).entries == []
        assert other.entries(1, 0).entries == []
        assert [other.read(0, entry) for entry in entries] == [record(*e) for e in entries]
        assert other.size(0, 2) == sum(len(record(*entry)) for entry in entries[4:])

    def test_shards_are_apart(self, changelog: Changelog) -> None:
        changelog.append(3, Entry(1, 1), record(1, shard=3))
        assert changelog.entries(0, 0).entries == []
        assert changelog.entries(3, 0).entries == [Entry(1, 1)]

    def test_appending_again_changes_nothing(self, changelog: Changelog) -> None:
        for _ in range(3):
            changelog.append(0, Entry(1, 1), record(1))
        assert changelog.entries(0, 0).entries == [Entry(1, 1)]
        assert changelog.read(0, Entry(1, 1)) == record(1)

    def test_another_record_of_the_same_name_is_refused(self, changelog: Changelog) -> None:
        changelog.append(0, Entry(1, 1), record(1))
        with pytest.raises(Different, match="writes the same rows as any other run"):
            changelog.append(0, Entry(1, 1), record(1, row=b"other"))
        assert changelog.read(0, Entry(1, 1)) == record(1)

    def test_writers_at_once(
        self, changelog: Changelog, changelog_factory: ChangelogFactory
    ) -> None:
        """Many attempts of one task, and readers beside them that never see half a record."""
        failures = list[BaseException]()

        def write() -> None:
            mine = changelog_factory()
            try:
                for epoch in range(1, 20):
                    mine.append(0, Entry(epoch, 1), record(epoch, row=b"x" * 10_000))
                    for entry in mine.entries(0, 0).entries:
                        assert mine.read(0, entry) == record(entry.epoch, row=b"x" * 10_000)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert [entry.epoch for entry in changelog.entries(0, 0).entries] == list(range(1, 20))

    def test_missing_record(self, changelog: Changelog) -> None:
        with pytest.raises(Missing):
            changelog.read(0, Entry(1, 1))

    def test_snapshots(self, changelog: Changelog, changelog_factory: ChangelogFactory) -> None:
        assert changelog.snapshots(0) == {}
        assert changelog.write_snapshot(0, 10, [b"one", b"two"])
        assert not changelog.write_snapshot(0, 10, [b"three"])
        assert changelog.write_snapshot(0, 300, [])
        other = changelog_factory()
        assert list(other.snapshots(0).items()) == [(10, 6), (300, 0)]
        assert list(other.read_snapshot(0, 10)) == [b"one", b"two"]
        assert list(other.read_snapshot(0, 300)) == []
        assert other.snapshots(1) == {}
        with pytest.raises(Missing):
            list(other.read_snapshot(0, 11))

    def test_half_a_snapshot_is_none(self, changelog: Changelog) -> None:
        def chunks() -> Iterator[bytes]:
            yield b"one"
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            changelog.write_snapshot(0, 10, chunks())
        assert changelog.snapshots(0) == {}
        with pytest.raises(StoreError, match="no complete snapshot"):
            changelog.truncate(0, 10)
        assert changelog.write_snapshot(0, 10, [b"one", b"two"])
        assert list(changelog.read_snapshot(0, 10)) == [b"one", b"two"]

    def test_truncation(self, changelog: Changelog, changelog_factory: ChangelogFactory) -> None:
        epochs = [1, 2, 255, 256, 257, 511, 512, 513]
        for epoch in epochs:
            changelog.append(0, Entry(epoch, 1), record(epoch))
            changelog.append(1, Entry(epoch, 1), record(epoch, shard=1))
        with pytest.raises(StoreError, match="no complete snapshot"):
            changelog.truncate(0, 257)
        assert len(changelog.entries(0, 0).entries) == len(epochs)
        for epoch in (100, 257, 400):
            changelog.write_snapshot(0, epoch, [b"%d" % epoch])
        for _ in range(2):
            changelog.truncate(0, 257)
            other = changelog_factory()
            listing = other.entries(0, 0)
            assert listing.floor == 257
            assert [entry.epoch for entry in listing.entries] == [511, 512, 513]
            assert list(other.snapshots(0)) == [257, 400]
            assert list(other.read_snapshot(0, 257)) == [b"257"]
        assert len(changelog.entries(1, 0).entries) == len(epochs)
        assert changelog.entries(1, 0).floor == 0

    def test_a_stale_writer_after_truncation(self, changelog: Changelog) -> None:
        """What it leaves below the floor is there for nobody who looks at the floor."""
        for epoch in (1, 2, 3):
            changelog.append(0, Entry(epoch, 1), record(epoch))
        changelog.write_snapshot(0, 2, [b"two"])
        changelog.truncate(0, 2)
        changelog.append(0, Entry(1, 1), record(1))
        changelog.write_snapshot(0, 1, [b"one"])
        listing = changelog.entries(0, 0)
        assert listing.floor == 2
        assert list(changelog.snapshots(0)) == [2]
        changelog.write_snapshot(0, 3, [b"three"])
        changelog.truncate(0, 3)
        assert changelog.entries(0, 0).entries == []
        assert list(changelog.snapshots(0)) == [3]

    def test_truncation_never_goes_back(self, changelog: Changelog) -> None:
        for epoch in (1, 2, 3):
            changelog.append(0, Entry(epoch, 1), record(epoch))
            changelog.write_snapshot(0, epoch, [b"x"])
        changelog.truncate(0, 3)
        with pytest.raises(StoreError):
            changelog.truncate(0, 2)
        assert changelog.entries(0, 0).floor == 3
        assert list(changelog.snapshots(0)) == [3]


__all__ = ["ChangelogFactory", "ChangelogSuite", "Corrupt", "changelog", "record"]
