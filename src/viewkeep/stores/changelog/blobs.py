"""A changelog of blobs: files of any file system that all workers reach, or a store's own table.

Law: that of `contract`. It rests on blobs that are whole or absent, and on two orders: a
snapshot's manifest is written after its chunks, and the floor before anything below it goes.

    shop.changelog/
    ├── changelog.json                  format, the id of the changelog
    └── shard-00003/
        ├── log-00000000000000/         256 epochs to a folder, its number in hex
        │   └── 0000000000000005-00010000   a record: epoch and part in hex (`records`)
        ├── snapshots/
        │   ├── 0000000000000100.json   a complete snapshot: its folder, its chunks, their sums
        │   └── floor-0000000000000100  records up to this epoch may be gone
        └── chunks-0000000000000100-9f31.../000000 ...

A listing asks for one folder of records, or two, and for `snapshots`. Records are asked for first:
if the floor, which is read after them, is not above the epoch that they were asked from, then
nothing of them had gone when they were listed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from zlib import crc32

from viewkeep.errors import Corrupt, FormatVersion, StoreError
from viewkeep.stores.changelog import records
from viewkeep.stores.changelog.contract import Changelog, Different, Entry, Listing, Missing
from viewkeep.stores.contract import Blobs

FORMAT = 1
SETTINGS = "changelog.json"
_EPOCHS = 256  # whose records share a folder
_FOLDERS = 4  # that are listed without asking which there are
_COMPLETE = ".json"
_FLOOR = "floor-"


class BlobChangelog(Changelog):
    """The changelog in some blobs; `uri` says where they are."""

    def __init__(self, uri: str, blobs: Blobs, id: str):
        self.uri, self.id, self._blobs = uri, id, blobs

    @classmethod
    def create(cls, uri: str, blobs: Blobs, id: str = "") -> BlobChangelog:
        """Make an empty changelog with this id, or one of its own; StoreError if there is one."""
        id = id or uuid.uuid4().hex
        if not blobs.put(SETTINGS, json.dumps({"format": FORMAT, "id": id}).encode()):
            raise StoreError(
                f"{uri} is the changelog of a database already; give each database a folder of "
                "its own"
            )
        return cls(uri, blobs, id)

    @classmethod
    def open(cls, uri: str, blobs: Blobs) -> BlobChangelog:
        """Open the changelog that was made there."""
        try:
            content = json.loads(blobs.get(SETTINGS))
            version, id = content["format"], str(content["id"])
        except Missing as error:
            raise StoreError(
                f"there is no changelog at {uri}: is the file system mounted here?"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{SETTINGS} of the changelog at {uri} is damaged: {error}") from error
        if version != FORMAT:
            raise FormatVersion(
                f"the changelog at {uri} has format {version}, and this viewkeep reads {FORMAT}"
            )
        return cls(uri, blobs, id)

    @classmethod
    def begin(cls, uri: str, blobs: Blobs, id: str) -> BlobChangelog:
        """Open the changelog, which is made with this id if there is none."""
        return cls.open(uri, blobs) if blobs.size(SETTINGS) else cls.create(uri, blobs, id)

    def close(self) -> None:
        self._blobs.close()

    # -- records -----------------------------------------------------------------------------

    def append(self, shard: int, entry: Entry, record: bytes) -> None:
        name = _record_name(shard, entry)
        if self._blobs.put(name, record):
            return
        present = self._blobs.get(name)
        records.check(present, f"{self.uri}/{name}")
        if not records.same(present, record):
            raise Different(
                f"the changelog at {self.uri} holds other rows for shard {shard}, {entry}. A run "
                "of an epoch writes the same rows as any other run of it, so the workers run "
                "different versions of viewkeep, or the database was restored from a backup that "
                "is older than its changelog"
            )

    def entries(self, shard: int, after: int, upto: int | None = None) -> Listing:
        first = (after + 1) // _EPOCHS
        last = None if upto is None else upto // _EPOCHS
        if last is not None and last - first < _FOLDERS:
            numbers = list(range(first, last + 1))
        else:
            numbers = [
                number
                for number in self._folders(shard)
                if first <= number and (last is None or number <= last)
            ]
        entries = []
        for number in numbers:
            for name in self._blobs.names(_log_folder(shard, number)):
                entry = _entry(name)
                if entry and after < entry.epoch and (upto is None or entry.epoch <= upto):
                    entries.append(entry)
        return Listing(sorted(entries), self._floor(shard))

    def read(self, shard: int, entry: Entry) -> bytes:
        return self._blobs.get(_record_name(shard, entry))

    def size(self, shard: int, after: int) -> int:
        entries = self.entries(shard, after).entries
        return sum(self._blobs.size(_record_name(shard, entry)) for entry in entries)

    # -- snapshots ---------------------------------------------------------------------------

    def write_snapshot(self, shard: int, epoch: int, chunks: Iterable[bytes]) -> bool:
        manifest = _manifest_name(shard, epoch)
        if epoch in self.snapshots(shard):
            return False
        folder = f"{_shard_folder(shard)}/chunks-{epoch:016x}-{uuid.uuid4().hex[:8]}"
        written = []
        for number, chunk in enumerate(chunks):
            self._blobs.put(f"{folder}/{number:06d}", chunk)
            written.append([len(chunk), crc32(chunk)])
        content = {"folder": folder.rpartition("/")[2], "chunks": written}
        # An older floor must not let it count: whoever truncates looks for the epoch it names.
        if self._blobs.put(manifest, json.dumps(content).encode()):
            return True
        self._blobs.remove_folder(folder)
        return False

    def snapshots(self, shard: int) -> dict[int, int]:
        names = self._blobs.names(_snapshot_folder(shard))
        floor = _floor_of(names)
        found = {}
        for name in names:
            if name.endswith(_COMPLETE) and (epoch := int(name[:16], 16)) >= floor:
                try:
                    chunks = self._manifest(shard, epoch)[1]
                except (Missing, Corrupt):
                    continue
                found[epoch] = sum(size for size, _ in chunks)
        return found

    def read_snapshot(self, shard: int, epoch: int) -> Iterator[bytes]:
        folder, chunks = self._manifest(shard, epoch)
        for number, (size, checksum) in enumerate(chunks):
            name = f"{_shard_folder(shard)}/{folder}/{number:06d}"
            chunk = self._blobs.get(name)
            if len(chunk) != size or crc32(chunk) != checksum:
                raise Corrupt(f"{self.uri}/{name} is damaged: its checksum does not match")
            yield chunk

    def truncate(self, shard: int, upto: int) -> None:
        if upto not in self.snapshots(shard):
            raise StoreError(
                f"the changelog of shard {shard} cannot be cut at epoch {upto}: it has no "
                "complete snapshot of that epoch"
            )
        folder, kept = _snapshot_folder(shard), f"{_FLOOR}{upto:016x}"
        self._blobs.put(f"{folder}/{kept}", b"")
        names = self._blobs.names(folder)
        if _floor_of(names) > upto:
            return  # somebody has cut it further
        for name in names:
            is_old_floor = name.startswith(_FLOOR) and name < kept
            is_old_snapshot = name.endswith(_COMPLETE) and int(name[:16], 16) < upto
            if is_old_floor or is_old_snapshot:
                self._blobs.remove(f"{folder}/{name}")
        for name in self._blobs.names(_shard_folder(shard)):
            path = f"{_shard_folder(shard)}/{name}"
            if name.startswith("chunks-") and int(name[7:23], 16) < upto:
                self._blobs.remove_folder(path)
            elif name.startswith("log-"):
                number = int(name[4:], 16)
                if (number + 1) * _EPOCHS - 1 <= upto:
                    self._blobs.remove_folder(path)
                elif number * _EPOCHS <= upto:
                    for record in self._blobs.names(path):
                        entry = _entry(record)
                        if entry and entry.epoch <= upto:
                            self._blobs.remove(f"{path}/{record}")

    # -- private -----------------------------------------------------------------------------

    def _manifest(self, shard: int, epoch: int) -> tuple[str, list[tuple[int, int]]]:
        name = _manifest_name(shard, epoch)
        try:
            content = json.loads(self._blobs.get(name))
            return content["folder"], [(size, checksum) for size, checksum in content["chunks"]]
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{self.uri}/{name} is damaged: {error}") from error

    def _floor(self, shard: int) -> int:
        return _floor_of(self._blobs.names(_snapshot_folder(shard)))

    def _folders(self, shard: int) -> list[int]:
        names = self._blobs.names(_shard_folder(shard))
        return [int(name[4:], 16) for name in names if name.startswith("log-")]


def _shard_folder(shard: int) -> str:
    return f"shard-{shard:05d}"


def _snapshot_folder(shard: int) -> str:
    return f"{_shard_folder(shard)}/snapshots"


def _manifest_name(shard: int, epoch: int) -> str:
    return f"{_snapshot_folder(shard)}/{epoch:016x}{_COMPLETE}"


def _log_folder(shard: int, number: int) -> str:
    return f"{_shard_folder(shard)}/log-{number:014x}"


def _record_name(shard: int, entry: Entry) -> str:
    return f"{_log_folder(shard, entry.epoch // _EPOCHS)}/{entry.epoch:016x}-{entry.part:08x}"


def _entry(name: str) -> Entry | None:
    """The entry of a record's name; None for what is no record."""
    epoch, dash, part = name.partition("-")
    if len(epoch) != 16 or not dash or len(part) != 8:
        return None
    try:
        return Entry(int(epoch, 16), int(part, 16))
    except ValueError:
        return None


def _floor_of(names: Iterable[str]) -> int:
    floors = [int(name[len(_FLOOR) :], 16) for name in names if name.startswith(_FLOOR)]
    return max(floors, default=0)
