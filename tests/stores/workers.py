"""What the other processes do; run as a script: `workers.py NAME PATH ARGUMENTS...`."""

import os
import resource
import signal
import sys
import threading
from itertools import count

from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.errors import Conflict, StoreFull
from viewkeep.stores import open_store
from viewkeep.stores.contract import Kind, StateWrite, TableWrite
from viewkeep.stores.lmdb import write as writing
from viewkeep.types import BIGINT, STRING, Column

ROWS = RowCodec((Column("id", BIGINT), Column("name", STRING), Column("votes", BIGINT)))
KEYS = KeyCodec((BIGINT,))
TABLE = 7


def rounds(path, width):
    """Write round after round over all nodes: `width` rows that all hold the round's number."""
    store = open_store(path)
    keys = [KEYS.encode_one((number,)) for number in range(int(width))]
    for number in count(1):
        rows = [ROWS.encode_one((index, "x" * (number % 50), number)) for index in range(len(keys))]
        store.tables.write([TableWrite(TABLE, ROWS, Kind.PUT, keys, rows)])
        print(number, flush=True)


def pairs(path, first):
    """Eight threads write pair after pair of rows, each pair over all nodes or on one."""
    store = open_store(path)
    numbers = count(int(first), 2)

    def work():
        while True:
            number = next(numbers)
            pair = [number, number + 1]
            keys = [KEYS.encode_one((each,)) for each in pair]
            rows = [ROWS.encode_one((each, "x" * (each % 50), each)) for each in pair]
            store.tables.write([TableWrite(TABLE, ROWS, Kind.PUT, keys, rows)])
            os.write(1, b"%d\n" % number)  # in one call, so that lines stay whole

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def increments(path, times):
    """Count one row and one meta record up, each by compare-and-set."""
    store = open_store(path)
    key = KEYS.encode_one((1,))
    for _ in range(int(times)):
        while True:
            (old,) = store.tables.get(TABLE, [key])
            votes = ROWS.decode_one(old)[2] if old else 0
            new = ROWS.encode_one((1, "counter", votes + 1))
            try:
                store.tables.write([TableWrite(TABLE, ROWS, Kind.PUT, [key], [new], expect=[old])])
                break
            except Conflict:
                continue
        while True:
            old = store.meta.get("counter")
            if store.meta.cas("counter", old, b"%d" % (int(old or b"0") + 1)):
                break


def hold(path):
    """Take the turn to write to the first node, and keep it."""
    store = open_store(path)
    with store._database.nodes[0].writing():
        print("holds", flush=True)
        signal.pause()


def fill(path, limit):
    """Write rounds until the system grants the files no more bytes, as on a full disk."""
    store = open_store(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    for number in count(1):
        keys = [KEYS.encode_one((number * 100 + index,)) for index in range(20)]
        rows = [ROWS.encode_one((index, "x" * 500, number)) for index in range(20)]
        try:
            store.tables.write([TableWrite(TABLE, ROWS, Kind.PUT, keys, rows)])
        except StoreFull as error:
            print("full", error, flush=True)
            return
        print(number, flush=True)


def die_in_the_sync(path, width):
    """Write over all nodes and die in the first commit, when its last page is on disk.

    LMDB tells readers of a commit once that page is synced; until then they see the one before.
    The next writer finds that LMDB's lock was left by the dead, and makes up for it.
    """
    store = open_store(path)
    first = store._database.nodes[0]
    commit = writing.commit

    def commit_and_die(txn):
        before = first.last_transaction
        commit(txn)
        with open(first.path / "lock.mdb", "r+b") as file:
            head = file.read(256)
            file.seek(head.index((before + 1).to_bytes(8, "little")))
            file.write(before.to_bytes(8, "little"))
        commit_and_die.lock = first.begin(write=True)  # takes LMDB's own
        os.kill(os.getpid(), signal.SIGKILL)

    writing.commit = commit_and_die
    keys = [KEYS.encode_one((number,)) for number in range(int(width))]
    rows = [ROWS.encode_one((number, "whole", number)) for number in range(int(width))]
    store.tables.write([TableWrite(TABLE, ROWS, Kind.PUT, keys, rows)])


def epochs(path, width):
    """Apply epoch after epoch to one shard: `width` rows that all hold the epoch's number."""
    store = open_store(path)
    keys = [KEYS.encode_one((number,)) for number in range(int(width))]
    for epoch in count(1):
        rows = [b"%d" % epoch] * len(keys)
        store.state.apply(0, epoch, max(epoch - 5, 0), [StateWrite(TABLE, keys, rows)])
        print(epoch, flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
