"""What a writer meets: a lock that a stopped process holds, and a full disk."""

import errno
import os
import signal
from contextlib import closing

import lmdb
import pytest

from viewkeep.errors import Locked, StoreError, StoreFull
from viewkeep.stores import create_store, open_store
from viewkeep.stores.lmdb import environment

from .conformance import put
from .processes import Worker
from .test_lmdb_files import change_settings, names


def test_a_stopped_writer_makes_others_wait_with_a_deadline(tmp_path):
    path = tmp_path / "db"
    create_store(str(path), durability="relaxed").close()
    change_settings(path, lock_seconds=0.2)
    with closing(open_store(str(path))) as store:
        holder = Worker("hold", path)
        assert holder.line() == "holds"
        os.kill(holder.process.pid, signal.SIGSTOP)
        try:
            message = f"process {holder.process.pid} has kept others from writing"
            with pytest.raises(Locked, match=message):
                store.tables.write([put(range(8), "late")])
            with pytest.raises(Locked, match=message):
                store.log.head()
            assert store.meta.cas("free", None, b"x")  # other environments are not held
            assert names(store, [1]) == [None]
        finally:
            holder.kill()
        store.tables.write([put([1], "in time")])
        assert names(store, [1]) == ["in time"]


def test_a_short_write_on_a_full_disk_is_a_full_store(tmp_path, monkeypatch):
    failure = lmdb.Error("mdb_txn_commit: Input/output error")
    with closing(create_store(str(tmp_path / "db"))):
        assert type(environment.translate(failure)) is StoreError

        def refuse(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "posix_fallocate", refuse)
        assert type(environment.translate(failure)) is StoreFull


def test_making_a_database_on_a_full_disk(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreFull, match="the disk is full"):
        create_store(str(tmp_path / "db"))
