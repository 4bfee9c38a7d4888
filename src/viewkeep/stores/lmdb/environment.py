"""One LMDB environment of a database, opened once per process however many stores use it.

Law: every LMDB failure leaves here as an error of our tree, with what to do about it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import lmdb

from viewkeep import claims
from viewkeep.errors import Corrupt, StoreError, StoreFull
from viewkeep.stores.lmdb.combining import Combining
from viewkeep.stores.lmdb.commit_record import CommitRecord
from viewkeep.stores.lmdb.files import check_file
from viewkeep.stores.lmdb.forks import Inherited
from viewkeep.stores.lmdb.locks import DEFAULT_SECONDS, WriteLock

# Whether values are bytes or memoryviews depends on `buffers`, which types cannot follow here.
Transaction: TypeAlias = Any
Cursor: TypeAlias = Any

_DAMAGED = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    # What a sound file never gives, as it is used here:
    lmdb.BadTxnError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.PageFullError,
)
DATA = "data.mdb"  # LMDB's own name for the file of an environment
_MAX_READERS = 2046
_SMALLEST_MAP = 1 << 28
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PROBE_BYTES = 1 << 20


class Translated:
    """A context in which LMDB failures become errors of our tree; one instance serves all."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, lmdb.Error):
            raise translate(error) from error


translated = Translated()


def translate(error: lmdb.Error) -> StoreError:
    """The error of our tree that says what this LMDB failure means."""
    text = str(error)
    if isinstance(error, lmdb.MapFullError):
        return StoreFull(
            "the database has reached its map size; raise map_size in viewkeep.json while nothing "
            "has the database open, drop unused tables or views, or let the pipeline run so that "
            "its log is truncated"
        )
    if any(os.strerror(number) in text for number in _FULL) or (
        # LMDB says so too when the system took only a part of a page.
        os.strerror(errno.EIO) in text and any(_is_full(shared.path) for shared in _all_shared())
    ):
        return disk_full()
    if isinstance(error, _DAMAGED):
        return Corrupt(f"the files of the database are damaged: {text}")
    if isinstance(error, lmdb.ReadersFullError):
        return StoreError(f"more than {_MAX_READERS} readers have the database open at once")
    return StoreError(text)


def translate_system(error: OSError, doing: str) -> StoreError:
    """The error of our tree for a failure of the file system."""
    return disk_full() if error.errno in _FULL else StoreError(f"{doing}: {error}")


def disk_full() -> StoreFull:
    return StoreFull("the disk is full; free space on it and write again")


def _is_full(folder: Path) -> bool:
    """Whether the system refuses the environment in this folder a little more space."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]  # of a file of this process
    try:
        size = os.stat(folder / DATA).st_size
        if limit != resource.RLIM_INFINITY and size + _PROBE_BYTES > limit:
            return True
        with tempfile.TemporaryFile(dir=folder) as probe:
            os.posix_fallocate(probe.fileno(), 0, _PROBE_BYTES)
    except OSError as error:
        return error.errno in _FULL
    return False


@dataclass
class Environment:
    """An open LMDB environment and its named databases. Get one from `share`."""

    path: Path
    env: Any
    dbs: dict[str, Any]
    lock: WriteLock | Inherited
    uses: int = field(default=0)
    # What threads want to write next; see `group`.
    calls: Combining[Any, int] = field(default_factory=Combining)
    # What `sums.remembered` has read, as of the transaction with this number.
    memory: tuple[int, dict[tuple[str, bytes], bytes | None]] = field(default=(-1, {}))
    # Where the log of a node ended after the transaction with this number; see `log.known_end`.
    log_end: tuple[int, Any] = (-1, None)
    # Whether LMDB leaves the last page of a commit to the next sync; see `last_commit`.
    is_deferred: bool = False
    record: CommitRecord | None = None
    durable: int = -1  # the last transaction that is known to survive power loss, if it is deferred

    def begin(self, *, write: bool = False, buffers: bool = False) -> Transaction:
        """A transaction; reads are a snapshot, and writes need `lock` until they have ended.

        With `buffers`, values are views of the map, valid until the transaction ends.
        """
        try:
            return self.env.begin(None, None, write, buffers)
        except lmdb.MapResizedError:
            # Another process uses a larger map; adopt its size.
            self.env.set_mapsize(0)
            return self.env.begin(None, None, write, buffers)

    def within(self, txn: Transaction) -> Transaction:
        """A write transaction within another, which it becomes a part of if it commits."""
        return self.env.begin(None, txn, True)

    @contextlib.contextmanager
    def writing(self, *, buffers: bool = False) -> Iterator[Transaction]:
        """A write transaction that commits at the end, or aborts if an error passes."""
        with translated, self.lock:
            with self.begin(write=True, buffers=buffers) as txn:
                number = txn.id()
                self.leave_unrecorded(number)
                yield txn
                claims.begin()
            if self.is_deferred and self.last_transaction == number:
                self.sync()

    @contextlib.contextmanager
    def reading(self, *, buffers: bool = False) -> Iterator[Transaction]:
        """A snapshot."""
        with translated, self.begin(buffers=buffers) as txn:
            yield txn

    def leave_unrecorded(self, number: int) -> None:
        """Transaction `number` has no commit record: one of this number is a dead writer's."""
        if self.record is not None and self.record.read(number) is not None:
            try:
                self.record.erase(number)
            except OSError as error:
                raise translate_system(error, f"cannot write to {self.path}") from error

    def sync(self) -> None:
        """Make a commit survive power loss, if it is deferred. The lock is held."""
        if self.is_deferred:
            number = self.last_transaction
            try:
                with translated:
                    self.env.sync(True)
            except StoreError:
                if self.record is not None:
                    with contextlib.suppress(OSError):
                        self.record.rewrite_meta()
                raise
            self.durable = number

    def close(self) -> None:
        """Close the files."""
        self.env.close()
        self.lock.close()
        if self.record is not None:
            self.record.close()

    def forget_dead_readers(self) -> None:
        """Free the slots of readers that were killed, which would keep old pages from reuse."""
        with translated:
            self.env.reader_check()

    @property
    def last_transaction(self) -> int:
        """The number of the last write transaction that any process has committed."""
        with translated:
            return int(self.env.info()["last_txnid"])

    @property
    def used_bytes(self) -> int:
        """Bytes of the file that hold pages in use or free for reuse."""
        with translated:
            return int((self.env.info()["last_pgno"] + 1) * self.env.stat()["psize"])


_lock = threading.Lock()
_shared: dict[tuple[int, int], Environment] = {}
_closed: set[Path] = set()  # what `closed_to_others` keeps from being opened in this process


def _all_shared() -> list[Environment]:
    return list(_shared.values())


def _after_fork() -> None:
    global _lock
    # Another thread may have held the lock when the process forked.
    _lock = threading.Lock()
    for shared in _shared.values():
        shared.env, shared.lock = Inherited(shared.env), Inherited(shared.lock)
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork)


def make(path: Path, names: tuple[str, ...], map_size: int) -> None:
    """Create an environment with these named databases, empty, and close it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with translated:
        env = _open(path, len(names), map_size, sync=True, metasync=True, create=True)
        try:
            for name in names:
                env.open_db(name.encode(), create=True)
            env.sync(True)
        finally:
            env.close()
    sync_folder(path)


@contextlib.contextmanager
def closed_to_others(path: Path) -> Iterator[None]:
    """Keep an environment from being opened; StoreError if it is open, in any process.

    LMDB holds a shared record lock on the first byte of `lock.mdb` while an environment is open.
    Other processes that open it wait until this ends.
    """
    with _lock:
        if path in _closed or any(shared.path == path for shared in _shared.values()):
            raise StoreError(f"{path} is open in this process; close it first")
        _closed.add(path)
    try:
        with _locked(path):
            yield
    finally:
        with _lock:
            _closed.discard(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """LMDB's lock of an environment, for this process alone."""
    if not path.exists():
        yield
        return
    held = os.open(path / "lock.mdb", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError) as error:
            raise StoreError(
                f"{path.parent} is open in another process, such as a pipeline or a server; "
                "end it first"
            ) from error
        yield
    finally:
        os.close(held)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive power loss, as syncing a file does its content."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def share(
    path: Path,
    names: tuple[str, ...],
    map_size: int,
    *,
    sync: bool,
    lock_seconds: float = DEFAULT_SECONDS,
    recover: Callable[[Environment], None] | None = None,
) -> Environment:
    """This process's handle on an environment; each call needs one `release`.

    With `recover`, commits are deferred, and it is called before anybody reads what is there.

    LMDB must not be opened twice by one process, nor used across a fork (`forks`); files are told
    apart by inode, so a database made anew at the same path is not mistaken for the old one.
    """
    with _lock, translated:
        if path in _closed:
            raise StoreError(f"{path} is being compacted or removed in this process")
        identity = _identity(path)
        shared = _shared.get(identity)
        if shared is None:
            metasync = sync and recover is None
            env = _open(path, len(names), map_size, sync=sync, metasync=metasync, create=False)
            while (opened := _identity(path)) != identity:  # compacted while it waited to be opened
                identity = opened
                env.close()
                env = _open(path, len(names), map_size, sync=sync, metasync=metasync, create=False)
            shared = Environment(path, env, {}, WriteLock(path, lock_seconds))
            try:
                check_file(path, env)
                with shared.lock:  # py-lmdb opens them in a write transaction
                    shared.dbs = {name: env.open_db(name.encode(), create=False) for name in names}
                    if recover is not None:
                        shared.is_deferred, shared.record = True, _record(path, env)
                if recover is not None:
                    recover(shared)
                shared.forget_dead_readers()
            except BaseException as error:
                shared.close()
                if isinstance(error, lmdb.NotFoundError):
                    raise Corrupt(f"{path} lacks a part of the database") from error
                raise
            _shared[identity] = shared
        shared.uses += 1
        return shared


def _identity(path: Path) -> tuple[int, int]:
    """What tells the file of an environment from one that takes its place."""
    try:
        status = os.stat(path / DATA)
    except OSError as error:
        raise Corrupt(f"{path} is missing from the database") from error
    return status.st_dev, status.st_ino


def release(shared: Environment) -> None:
    """Give back a handle; the last one closes the environment, with all of it on disk."""
    with _lock:
        shared.uses -= 1
        if shared.uses or isinstance(shared.env, Inherited):
            return
        for identity, candidate in list(_shared.items()):
            if candidate is shared:
                del _shared[identity]
        try:
            with translated:
                shared.env.sync(True)
        finally:
            shared.close()


def _record(path: Path, env: Any) -> CommitRecord | None:
    """The commit record of a node's file; None if there is no room for one."""
    try:
        return CommitRecord(path, env)
    except (lmdb.Error, OSError):
        return None


def _open(
    path: Path, dbs: int, map_size: int, *, sync: bool, metasync: bool, create: bool
) -> lmdb.Environment:
    """Open with the largest map the system grants, down from `map_size`."""
    while True:
        try:
            return lmdb.open(
                os.fspath(path),
                map_size=map_size,
                subdir=True,
                create=create,
                max_dbs=dbs,
                max_readers=_MAX_READERS,
                max_spare_txns=8,
                sync=sync,
                metasync=metasync,
                readahead=False,
                mode=0o600,
            )
        except (lmdb.MemoryError, MemoryError):
            if map_size <= _SMALLEST_MAP:
                raise
            # In large steps, so that the first environment leaves room for the others.
            map_size //= 16
