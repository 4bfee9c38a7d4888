"""Parents that fork while they read; run as a script: `forking.py PARENT PATH`.

They are processes of their own, since forking a threaded test runner is not safe.
"""

import gc
import multiprocessing
import os
import sys
import threading
import traceback
from contextlib import contextmanager

import pytest

from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.errors import StoreError
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import Kind, TableWrite
from viewkeep.stores.lmdb import sums
from viewkeep.types import BIGINT, Column

ROWS = RowCodec((Column("id", BIGINT), Column("round", BIGINT)))
KEYS = KeyCodec((BIGINT,))
TABLE = 7
WIDTH = 1_000  # rows: enough pages that a writer who may reuse them soon does


# -- what children do --------------------------------------------------------------------------


def ends(path, store):
    """Nothing but to end as Python ends, with everything freed."""


def collects(path, store):
    """Drop all that was inherited, and collect it."""
    store.__dict__.clear()
    del store
    gc.collect()


def closes(path, store):
    """Use what was inherited, which is refused, and close it."""
    for use in (
        lambda: store.meta.get("a"),
        lambda: store.tables.get(TABLE, [key(1)]),
        lambda: write(store, 1, [1]),
        store.log.head,
    ):
        with pytest.raises(StoreError, match="fork"):
            use()
    store.close()
    gc.collect()


def uses(path, store):
    """Open the database, write and read, and close it."""
    for _ in range(2):
        with opened(path) as mine:
            write(mine, 1, range(WIDTH, WIDTH + 100))
            assert len(rounds(mine)) >= WIDTH
            mine.log.head()
    store.close()
    gc.collect()


def leaves(path, store):
    """Open the database and end without closing it."""
    mine = open_store(path)
    write(mine, 1, range(WIDTH, WIDTH + 100))
    assert len(rounds(mine)) >= WIDTH


def forks(path, store):
    """Open the database, and let a child of its own do so too."""
    with opened(path) as mine:
        rounds(mine)
        _forked(uses, path, mine)
        rounds(mine)
        write(mine, 1, [WIDTH])


CHILDREN = [ends, collects, closes, uses, leaves, forks]


# -- parents -----------------------------------------------------------------------------------


def fork(path):
    """A parent reads, has a snapshot open in a thread, and forks with os.fork."""
    _parent(path, _forked)


def process(path):
    """The same with a process of multiprocessing, which it forks."""
    _parent(path, lambda *child: _process("fork", *child))


def spawn(path):
    """A process of multiprocessing that starts anew, which inherits nothing."""
    _parent(path, lambda child, path, store: _process("spawn", leaves, path, None), [leaves])


def writing(path):
    """A parent forks while a thread of it is in the middle of a write."""
    store = create_store(path, durability="relaxed")
    write(store, 0, range(WIDTH))
    for number, child in enumerate(CHILDREN, 1):
        begun, over = threading.Event(), threading.Event()
        thread = threading.Thread(target=_hold, args=(store, begun, over), daemon=True)
        thread.start()
        begun.wait()
        child_id = _fork(child, path, store)
        over.set()
        thread.join()
        _wait(child_id)
        write(store, number, range(WIDTH))
        seen = rounds(store)
        assert all(seen[key(each)] == number for each in range(WIDTH))
    store.close()


def _hold(store, begun, over):
    with store._database.nodes[0].writing():
        begun.set()
        over.wait()


def _parent(path, start, children=CHILDREN):
    store = create_store(path, durability="relaxed")
    write(store, 0, range(WIDTH))
    before = rounds(store)
    with _snapshot(store) as again:
        for number, child in enumerate(children):
            assert len(rounds(store)) >= WIDTH
            slots = _slots(store)
            assert slots[1:3] == [2, 2], slots  # of each node: the snapshot's, and one for reuse
            start(child, path, store)
            assert _slots(store) == slots, (child, slots, _slots(store))
            for step in range(8):  # as many versions as reuse all pages that nobody reads
                write(store, 10 * number + step, range(WIDTH))
            assert again() == before, child
    store.close()


@contextmanager
def _snapshot(store):
    """A read transaction of each node, open in a thread; gives what it still sees."""
    nodes = store._database.nodes
    asked, answered, answers = threading.Semaphore(0), threading.Semaphore(0), []
    over = False

    def hold():
        snapshots = [(node, node.begin()) for node in nodes]
        answered.release()
        while True:
            asked.acquire()
            if over:
                break
            seen = {}
            for node, txn in snapshots:
                with txn.cursor(db=node.dbs["rows"]) as cursor:
                    for each, stored in cursor:
                        row = sums.opened(node, each, stored)
                        seen[each[4:]] = ROWS.decode_one(row)[1]
            answers.append(seen)
            answered.release()
        for _, txn in snapshots:
            txn.abort()

    def again():
        asked.release()
        answered.acquire()
        return answers.pop()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    answered.acquire()
    yield again
    over = True
    asked.release()
    thread.join()


def _slots(store):
    """This process's reader slots in each environment."""
    database = store._database
    mine = str(os.getpid())
    return [
        sum(line.split()[:1] == [mine] for line in environment.env.readers().splitlines())
        for environment in (database.meta, *database.nodes, *database.shards)
    ]


def _forked(child, path, store):
    _wait(_fork(child, path, store))


def _process(kind, child, path, store):
    running = multiprocessing.get_context(kind).Process(target=child, args=(path, store))
    running.start()
    running.join()
    assert running.exitcode == 0, running.exitcode


def _fork(child, path, store):
    """Run a child that ends as a process does, not with os._exit; its id."""
    child_id = os.fork()
    if child_id:
        return child_id
    try:
        child(path, store)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    sys.exit(0)


def _wait(child_id):
    _, status = os.waitpid(child_id, 0)
    assert status == 0, status


# -- rows --------------------------------------------------------------------------------------


@contextmanager
def opened(path):
    store = open_store(path)
    yield store
    store.close()


def key(number):
    return KEYS.encode_one((number,))


def write(store, number, keys):
    keys = list(keys)
    rows = [ROWS.encode_one((each, number)) for each in keys]
    store.tables.write([TableWrite(TABLE, ROWS, Kind.PUT, [key(each) for each in keys], rows)])


def rounds(store):
    found = {}
    for node in range(store.tables.parts):
        chunk = store.tables.scan(node, TABLE, limit=10 * WIDTH)
        rows = zip(chunk.keys, chunk.rows, strict=True)
        found.update((each, ROWS.decode_one(row)[1]) for each, row in rows)
    return found


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
