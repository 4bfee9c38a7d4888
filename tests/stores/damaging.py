"""Damage bytes of a database's files, and read all of it: `damaging.py PATH SEED TIMES`.

Each damage is read by a process of its own, since LMDB may end a process that reads a damaged tree
page. Prints how often each outcome was seen; `wrong` is what must never be.
"""

import json
import os
import random
import resource
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.errors import Corrupt, StoreError
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import START, Kind, StateWrite, TableWrite
from viewkeep.stores.lmdb.cuts import cut_at
from viewkeep.types import BIGINT, STRING, Column

ROWS = RowCodec((Column("id", BIGINT), Column("name", STRING)))
KEYS = KeyCodec((BIGINT,))
TABLES = (7, 8)
COUNT = 1_500  # rows: enough for trees of two levels
SAME, REFUSED, WRONG = 0, 3, 4


def key(number):
    return KEYS.encode_one((number,))


def build(path):
    """A database with base rows, a log, state rows of several versions, and meta records."""
    store = create_store(str(path), nodes=1, shards=1, durability="relaxed")
    for table in TABLES:
        for step in range(0, COUNT, 500):
            numbers = [2 * number for number in range(step, step + 500)]
            rows = [ROWS.encode_one((number, f"row {number}" * 3)) for number in numbers]
            keys = [key(number) for number in numbers]
            store.tables.write([TableWrite(table, ROWS, Kind.PUT, keys, rows)])
    for epoch in range(1, 5):
        numbers = [2 * number for number in range(epoch, COUNT, epoch)]
        rows = [None if number % 7 == 0 else b"%d at %d" % (number, epoch) for number in numbers]
        write = StateWrite(TABLES[0], [key(number) for number in numbers], rows)
        store.state.apply(0, epoch, max(epoch - 2, 0), [write])
    for number in range(100):
        store.meta.cas(f"record/{number}", None, b"value %d" % number * 5)
    store.close()


def reads(store):
    """Everything that can be read, as functions, each of which tells what it has read."""
    numbers = range(0, 2 * COUNT, 97)  # every second one is of a row that is there
    for table in TABLES:
        for number in numbers:
            yield lambda table=table, number=number: store.tables.get(table, [key(number)])
        yield lambda table=table: store.tables.get(
            table, [key(number) for number in range(2 * COUNT)]
        )
        yield lambda table=table: _chunk(store.tables.scan(0, table, limit=10 * COUNT))
        yield lambda table=table: _chunk(
            store.tables.scan(0, table, limit=10 * COUNT, reverse=True)
        )
        yield lambda table=table: _chunk(store.tables.scan(0, table, start=key(900), limit=50))
        yield lambda table=table: _chunk(
            store.tables.scan(
                0, table, start=key(900), stop=key(1000), limit=500, at=cut_at(1, (700,))
            )
        )
    yield lambda: _log(store, 0)
    yield lambda: _log(store, 1_234)
    yield lambda: store.log.head().positions
    yield lambda: store.log.bounded_cut(START, store.log.head(), 700, 1 << 30).positions
    table = TABLES[0]
    for at in (2, 3, 4, None):
        for number in numbers:
            yield lambda number=number, at=at: store.state.get(0, table, [key(number)], at)
        yield lambda at=at: store.state.get(0, table, [key(n) for n in range(2 * COUNT)], at)
        yield lambda at=at: _chunk(store.state.scan(0, table, limit=10 * COUNT, at=at))
        yield lambda at=at: _chunk(
            store.state.scan(0, table, start=key(300), stop=key(600), limit=500, at=at)
        )
        yield lambda at=at: [
            (found.places, found.keys, found.rows)
            for found in store.state.find(0, table, [key(number) for number in numbers], at)
        ]
        for reverse in (False, True):
            yield lambda at=at, reverse=reverse: [
                (found.places, found.keys, found.rows)
                for found in store.state.scan_ranges(
                    0, table, [(key(n), key(n + 3)) for n in numbers], at, reverse=reverse
                )
            ]
        yield lambda at=at: _floor(store, table, at)
    yield lambda: _changed(store.state.changes(0, table, 2, 4, limit=10 * COUNT))
    yield lambda: _changed(store.state.changes(0, table, 3, 4, start=key(800), limit=10))
    yield lambda: [store.meta.get(f"record/{number}") for number in range(110)]
    yield lambda: store.meta.scan("record/")
    yield lambda: store.meta.scan("record/5")


def _chunk(chunk):
    return chunk.keys, chunk.rows, chunk.more


def _log(store, start):
    batches = store.log.read(*store.log.splits(cut_at(0, (start,)), store.log.head()))
    return [
        (b.table, b.offsets.tolist(), b.kinds.tolist(), list(b.keys), list(b.rows), list(b.before))
        for b in batches
    ]


def _floor(store, table, at):
    keys = [key(number) for number in range(1, 2 * COUNT, 41)]
    found = store.state.floor(0, table, keys, [(key(0), len(keys))], at)
    return found.keys, found.rows, found.runs


def _changed(changed):
    return changed.keys, changed.versions, changed.more


def outcome(path, expected):
    """What reading a damaged database comes to."""
    try:
        store = open_store(str(path))
    except StoreError:
        return REFUSED
    refused = False
    for place, (read, right) in enumerate(zip(reads(store), expected, strict=True)):
        try:
            got = read()
        except Corrupt:
            refused = True
        else:
            if got != right:
                print(f"wrong: read {place}", flush=True)
                return WRONG
    return REFUSED if refused else SAME


@contextmanager
def damaged(random, file):
    """Change some bytes of a file for a while: one, a few side by side, or a sector."""
    size = file.stat().st_size
    length = random.choice([1, 1, 1, 8, 512])
    offset = random.randrange(0, size - length)
    new = bytes(length) if random.random() < 0.3 else random.randbytes(length)
    with open(file, "r+b", buffering=0) as data:
        old = os.pread(data.fileno(), length, offset)
        os.pwrite(data.fileno(), new, offset)
        yield f"{file.parent.name} {offset} {length} {old[:8].hex()} -> {new[:8].hex()}"
        os.pwrite(data.fileno(), old, offset)


def main(path, seed, times, first="0"):
    """Damage a database again and again, and count the outcomes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder = Path(path)
    build(folder)
    sound = open_store(path)
    expected = [read() for read in reads(sound)]
    sound.close()
    outcomes = Counter()
    for number in range(int(first), int(first) + int(times)):
        generator = random.Random(f"{seed}/{number}")
        file = folder / generator.choice(["node-0", "shard-0", "meta"]) / "data.mdb"
        with damaged(generator, file) as what:
            code = _forked(folder, expected)
        kind = {SAME: "same", REFUSED: "refused", WRONG: "wrong"}.get(code, f"ended {code}")
        outcomes[kind] += 1
        if kind not in ("same", "refused"):
            print(number, kind, what, flush=True)
    print(json.dumps(outcomes))


def _forked(folder, expected):
    """What a child comes to that reads the database; negative if a signal ended it."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what LMDB says before it aborts
        try:
            os._exit(outcome(folder, expected))
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
