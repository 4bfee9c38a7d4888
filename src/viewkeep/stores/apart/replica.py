"""One shard of state on this machine's disk: a cache of the changelog that may be lost any time.

Law: if the latest epoch that a replica has seen is e, it holds all that the changelog has of the
epochs before e. So a replica that is behind, or was killed in the middle of a replay, goes on with
the records from e on; replaying one twice changes nothing. If those are truncated, or there is no
replica, it begins with the newest snapshot.

    STATE/<id of the changelog>/
    ├── boot               the boot of the system that wrote these; another one begins anew
    ├── shard-3/           an LMDB environment, as in the embedded store, never synced
    └── shard-3.lock       held by the process that replays

The processes of a machine share its replicas. Of a replica that another process has replaced, a
process keeps its own files until it replays next; what it reads there is right all the same.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from viewkeep.errors import Corrupt, EpochGone, Fenced, StoreError
from viewkeep.stores.changelog import DROP, REVERT, Changelog, Different, Entry, Missing
from viewkeep.stores.changelog.records import Record, RecordKind, agree, decode
from viewkeep.stores.contract import StateWrite, TableSize
from viewkeep.stores.lmdb import ranges, state
from viewkeep.stores.lmdb.database import SHARD_DBS
from viewkeep.stores.lmdb.environment import Environment, make, release, share

_ATTEMPTS = 5  # at a replay whose records are truncated meanwhile
_PARTS = 256  # commits of one level and epoch
_RECORDS = 5_000  # since the last snapshot, from which another one is due
_BYTES = 64 << 20  # of them, or as much as the shard has
_CHUNK_BYTES = 8 << 20  # of a snapshot
_SWEPT = 1_000  # deleted rows with each commit, and twice as many as it writes


class _Closing(Exception):
    """The process gives up a snapshot."""


class Replica:
    """A shard on this machine. Methods may be called from several threads and processes."""

    def __init__(self, folder: Path, shard: int, changelog: Changelog, map_size: int):
        self._path, self._shard = folder / f"shard-{shard}", shard
        self._lock_file = folder / f"shard-{shard}.lock"
        self._changelog, self._map_size = changelog, map_size
        self._environment: Environment | None = None
        self._file: tuple[int, int] | None = None  # of the environment
        self._retired: list[Environment] = []  # that another thread may still read
        self._complete = -1  # the replica holds all up to this epoch, which was published
        self._applied = set[Entry]()  # of later epochs
        self._threads = threading.RLock()
        self._reverted = 0  # this process has reverted epochs up to it
        # Of the changelog since the last snapshot, at most; a process that has begun asks first.
        self._records, self._bytes = _RECORDS, 0
        self._snapshots: threading.Thread | None = None
        self._is_closing = False

    @property
    def is_here(self) -> bool:
        """Whether this machine has something of the shard."""
        return self._path.is_dir()

    @property
    def used_bytes(self) -> int:
        """The bytes of its file; 0 if it is not here."""
        return self._opened().used_bytes if self.is_here else 0

    def sizes(self) -> dict[int, TableSize]:
        """The sizes of its tables; none if it is not here."""
        return state.sizes(self._opened()) if self.is_here else {}

    def at(self, epoch: int | None) -> Environment:
        """The environment, with all that was written up to a published epoch (None: so far)."""
        environment = self._environment
        if environment is not None and epoch is not None and epoch <= self._complete:
            return environment
        with self._locked():
            for _ in range(_ATTEMPTS):
                try:
                    return self._replay(epoch)
                except Missing:
                    self._restore()
            raise StoreError(
                f"{self._changelog.uri}: the changelog of shard {self._shard} is truncated faster "
                "than it can be read"
            )

    def apply(self, epoch: int, horizon: int, writes: Sequence[StateWrite]) -> None:
        """Make the writes durable in the changelog, then apply them here."""
        state.check_writes(epoch, horizon, writes)
        environment = self.at(epoch - 1)
        if epoch < (seen := max(state.seen(environment)[0], self._reverted + 1)):
            raise Fenced(f"epoch {epoch} is over: epoch {seen} has already written to this shard")
        tables = [write.table for write in writes if len(write.keys)]
        entry = None
        if tables:
            record = Record(RecordKind.WRITES, self._shard, 0, epoch, 0, horizon, tuple(writes))
            # Levels and operators write tables of their own, so this names the commit.
            entry = self._append(record, min(tables) * _PARTS)
        state.apply(environment, epoch, horizon, writes)
        if entry is not None:
            self._applied.add(entry)
        state.sweep(environment, horizon, _SWEPT + 2 * sum(len(write.keys) for write in writes))

    def revert(self, after: int, upto: int) -> None:
        """Take epochs back, here and wherever the changelog is replayed."""
        self._reverted = max(self._reverted, upto)
        record = Record(RecordKind.REVERT, self._shard, REVERT, upto, after)
        self._changelog.append(self._shard, Entry(upto, REVERT), record.encode())
        if self.is_here:
            state.revert(self.at(upto), after, upto)

    def sweep(self, horizon: int, budget: int) -> bool:
        """Sweep what is here; each replica also sweeps itself when it commits."""
        return self.is_here and state.sweep(self._opened(), horizon, budget)

    def drop(self, table: int, budget: int, epoch: int) -> bool:
        """Drop a table here, and in other replicas when they come to this epoch."""
        record = Record(RecordKind.DROP, self._shard, DROP + table, epoch, 0, table=table)
        self._changelog.append(self._shard, Entry(epoch, DROP + table), record.encode())
        return self.is_here and _drop(self._opened(), table, budget)

    def snapshot(self) -> int | None:
        """Write a snapshot as of the last epoch that is complete here, and truncate the changelog.

        Its epoch; None if there is nothing new since the last one.
        """
        with self._locked():
            epoch = self._complete
            if self._environment is None or epoch < 1:
                return None
            environment = self._environment
            # What this replica has seen of that epoch is all; it need not be replayed again.
            state.go_on(environment, epoch + 1, 0)
            self._records = self._bytes = 0
        if epoch in self._changelog.snapshots(self._shard):
            return None
        try:
            self._changelog.write_snapshot(self._shard, epoch, self._chunks(environment, epoch))
        except (EpochGone, _Closing):  # so many epochs went by meanwhile, or the process ends
            return None
        self._changelog.truncate(self._shard, epoch)
        return epoch

    def snapshot_if_due(self) -> None:
        """Have a thread write a snapshot if the changelog has grown as large as the shard."""
        if self._records < _RECORDS and self._bytes < max(_BYTES, self.used_bytes):
            return
        with self._threads:
            if self._snapshots is None or not self._snapshots.is_alive():
                self._snapshots = threading.Thread(target=self._snapshot, daemon=True)
                self._snapshots.start()

    def close(self) -> None:
        """Release the files. A snapshot that is being written is given up."""
        self._is_closing = True
        if self._snapshots is not None:
            self._snapshots.join()
        with self._threads:
            for environment in [*self._retired, self._environment]:
                if environment is not None:
                    release(environment)
            self._retired, self._environment, self._complete = [], None, -1
        self._is_closing = False

    # -- private -----------------------------------------------------------------------------

    def _note(self, data: bytes) -> None:
        """A record was appended or replayed."""
        self._records += 1
        self._bytes += len(data)

    def _snapshot(self) -> None:
        """A snapshot, unless another worker has written one meanwhile."""
        # The changelog may be full or out of reach: later commits try again.
        with suppress(StoreError):
            newest = max(self._changelog.snapshots(self._shard), default=0)
            self._records = len(self._changelog.entries(self._shard, newest).entries)
            self._bytes = self._changelog.size(self._shard, newest)
            if self._records >= _RECORDS or self._bytes >= max(_BYTES, self.used_bytes):
                self.snapshot()

    def _replay(self, upto: int | None) -> Environment:
        """Apply what is missing, in order."""
        environment = self._opened()
        seen = state.seen(environment)[0]
        after = max(seen - 1, self._complete, 0)
        if upto is None or upto > after:
            listing = self._changelog.entries(self._shard, after, upto)
            if listing.floor > after:
                raise Missing(f"the changelog of shard {self._shard} begins at {listing.floor}")
            for entry in listing.entries:
                if entry not in self._applied:
                    data = self._changelog.read(self._shard, entry)
                    where = f"{self._changelog.uri}: shard {self._shard}, {entry}"
                    self._apply(environment, decode(data, where))
                    self._applied.add(entry)
                    self._note(data)
            after = max(after, upto or 0)
        self._complete = max(self._complete, after)
        self._applied = {entry for entry in self._applied if entry.epoch > self._complete}
        return environment

    def _apply(self, environment: Environment, record: Record) -> None:
        if record.kind is RecordKind.REVERT:
            state.revert(environment, record.before, record.epoch)
        elif record.kind is RecordKind.DROP:
            while _drop(environment, record.table, 10_000):
                pass
        else:
            try:
                state.apply(environment, record.epoch, record.horizon, record.writes)
            except Fenced:
                return  # another process has replayed it, and went on
            state.sweep(environment, record.horizon, _SWEPT)

    def _append(self, record: Record, part: int) -> Entry:
        """Append a record under the first name from `part` on that it or nobody has."""
        for step in range(_PARTS):
            entry = Entry(record.epoch, part + step)
            try:
                data = replace(record, part=entry.part).encode()
                self._changelog.append(self._shard, entry, data)
            except Different:
                # A later commit of the same tables, or another run that has made its commits of
                # other rows of the epoch: any number of them is right if they agree on each row.
                present = self._changelog.read(self._shard, entry)
                if not agree(decode(present, str(entry)), record):
                    raise
            else:
                self._note(data)
                return entry
        raise StoreError(f"an epoch has more than {_PARTS} commits to one table of a shard")

    def _opened(self) -> Environment:
        """The environment as it lies on the disk now, made if it is not there."""
        with self._threads:
            if self._environment is not None and self._file != _identity(self._path):
                self._retire()  # it was removed or replaced
            if self._environment is None:
                if not self._path.is_dir():
                    self._restore()
                try:
                    self._environment = self._share(self._path)
                except Corrupt:
                    self._restore()
                    self._environment = self._share(self._path)
                self._file = _identity(self._path)
            return self._environment

    def _retire(self) -> None:
        if self._environment is not None:
            self._retired.append(self._environment)
        self._environment, self._complete, self._applied = None, -1, set()

    def _share(self, path: Path) -> Environment:
        return share(path, SHARD_DBS, self._map_size, sync=False)

    def _restore(self) -> None:
        """Put the newest snapshot, or an empty shard, in the place of what is here."""
        with self._threads:
            self._retire()
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self._path.with_name(f".draft-{uuid.uuid4().hex}")
            try:
                make(draft, SHARD_DBS, self._map_size)
                epoch = max(self._changelog.snapshots(self._shard), default=0)
                if epoch:
                    self._load(draft, epoch)
                shutil.rmtree(self._path, ignore_errors=True)
                os.rename(draft, self._path)
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def _load(self, draft: Path, epoch: int) -> None:
        environment = self._share(draft)
        try:
            for number, data in enumerate(self._changelog.read_snapshot(self._shard, epoch)):
                where = f"{self._changelog.uri}: snapshot {epoch}, chunk {number}"
                record = decode(data, where)
                state.apply(environment, epoch, epoch - 1, record.writes)
            state.go_on(environment, epoch + 1, epoch)
        finally:
            release(environment)

    def _chunks(self, environment: Environment, epoch: int) -> Iterator[bytes]:
        """The rows at an epoch as records, a few megabytes each."""
        number, held, size = 0, list[tuple[int, bytes, bytes]](), 0
        for table, key, row in state.whole(environment, epoch):
            if self._is_closing:
                raise _Closing
            held.append((table, key, row))
            size += len(key) + len(row)
            if size >= _CHUNK_BYTES:
                yield self._chunk(epoch, number, held)
                number, held, size = number + 1, [], 0
        yield self._chunk(epoch, number, held)

    def _chunk(self, epoch: int, number: int, rows: Sequence[tuple[int, bytes, bytes]]) -> bytes:
        writes = []
        for table, some in groupby(rows, lambda row: row[0]):
            part = list(some)
            keys, bodies = [row[1] for row in part], [row[2] for row in part]
            writes.append(StateWrite(table, keys, bodies, are_new=True))
        kind = RecordKind.WRITES
        return Record(kind, self._shard, number, epoch, 0, epoch - 1, tuple(writes)).encode()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Of all threads and processes of the machine, the one that replays this shard."""
        with self._threads:
            self._lock_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file lies here now."""
    try:
        there = os.stat(path / "data.mdb")
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _drop(environment: Environment, table: int, budget: int) -> bool:
    _, more = ranges.drop_rows(environment, table, budget)
    if not more:
        state.forget_size(environment, table)
    return more
