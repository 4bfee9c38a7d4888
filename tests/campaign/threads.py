"""A round with threads: they share commits until the power fails, and the disk runs full meanwhile.

Law: what any of them was told is written is there when power is back, and what one was told is
refused is not; nothing is half there. Counters, which threads raise by one if nobody else has done
so since they read them, count each raise that was acknowledged once. A seed decides where the disk
fails and which unsynced sectors are lost; which thread comes first it does not decide.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from itertools import count
from pathlib import Path

from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.errors import Conflict, OutcomeUnknown, StoreError, StoreFull
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import Kind, Store, TableWrite
from viewkeep.stores.lmdb import environment
from viewkeep.types import BIGINT, STRING, Column

from .disk import Disk
from .model import Finding

PAIRS, COUNTERS, THREADS, COUNTED = 1, 2, 6, 3
KEYS = KeyCodec((BIGINT,))
ROWS = RowCodec((Column("id", BIGINT), Column("pair", STRING)))
COUNTS = RowCodec((Column("id", BIGINT), Column("n", BIGINT)))


class ThreadRound:
    """Three times: threads write until the power fails, and what is left is looked at."""

    def __init__(self, seed: int, folder: Path, disk: Disk):
        self.rng, self.disk = random.Random(seed), disk
        self.folder = folder / "threads"
        self.url = str(self.folder / "db")
        self.history: list[str] = []
        self.happened: Counter[str] = Counter()
        self.numbers = count()
        self.lock = threading.Lock()
        self.done, self.refused = set[int](), set[int]()  # pairs
        self.raised: Counter[int] = Counter()  # acknowledged raises of each counter
        self.unsure: Counter[int] = Counter()  # those that power loss or a full disk met
        self.failure: Exception | None = None

    def remove(self) -> None:
        self.disk.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def play(self) -> Counter[str]:
        if not self.disk.is_there:
            return self.happened
        self.remove()
        nodes = self.rng.choice((1, 1, 2, 3))
        create_store(self.url, nodes=nodes, shards=nodes).close()
        self.history.append(f"{nodes} nodes")
        self.disk.begin(self.folder)
        for _ in range(3):
            self.write_until_the_power_fails()
            self.look()
        return self.happened

    def write_until_the_power_fails(self) -> None:
        rng, disk = self.rng, self.disk
        store = open_store(self.url)
        if is_full := rng.random() < 0.4:
            disk.run_full(rng.choice((2, 5, 20, 60)), rng.choice((1, 2, 5)), rng.random() < 0.5)
        else:
            disk.cut_power(rng.choice((3, 10, 30, 100, 300)))
        self.history.append("full disk" if is_full else "power loss")
        end = threading.Event()
        seeds = [rng.getrandbits(40) for _ in range(THREADS)]
        threads = [
            threading.Thread(target=self.work, args=(store, random.Random(seed))) for seed in seeds
        ]
        before = disk.faults
        for thread in threads:
            thread.start()
        if is_full:
            while disk.faults == before and any(thread.is_alive() for thread in threads):
                end.wait(0.001)
            end.wait(0.01)
            disk.disarm()
            disk.cut_power(rng.choice((3, 10, 30)))
            self.happened["threads met a full disk"] += 1
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        assert disk.is_dead
        for shared in environment._shared.values():
            shared.env.close()
        environment._shared.clear()
        self.happened["threads met a power loss"] += 1
        self.happened["sectors lost"] += disk.lose(
            rng.getrandbits(40), rng.choice((0, 50, 90, 100))
        )
        for file in Path(self.url).glob("*/lock.mdb"):
            file.unlink()

    def work(self, store: Store, rng: random.Random) -> None:
        """Write until the disk is dead."""
        try:
            while True:
                (self.put if rng.random() < 0.6 else self.raise_one)(store, rng)
        except Exception as error:
            if not (isinstance(error, StoreError) and self.disk.is_dead):
                self.failure = error
                self.disk.freeze()

    def put(self, store: Store, rng: random.Random) -> None:
        """A pair of rows, often on two nodes."""
        number = next(self.numbers)
        ids = (2 * number, 2 * number + 1)
        keys = [KEYS.encode_one((each,)) for each in ids]
        rows = [ROWS.encode_one((each, "x" * (number % 70))) for each in ids]
        try:
            store.tables.write([TableWrite(PAIRS, ROWS, Kind.PUT, keys, rows)])
        except StoreFull:
            with self.lock:
                self.refused.add(number)
                self.happened["thread refused: full disk"] += 1
        except OutcomeUnknown:
            pass
        else:
            with self.lock:
                self.done.add(number)

    def raise_one(self, store: Store, rng: random.Random) -> None:
        """Raise a counter by one, if it is still what it was."""
        place = rng.randrange(COUNTED)
        key = KEYS.encode_one((place,))
        (old,) = store.tables.get(COUNTERS, [key])
        known = 0 if old is None else COUNTS.decode_one(old)[1]
        new = COUNTS.encode_one((place, known + 1))
        try:
            store.tables.write([TableWrite(COUNTERS, COUNTS, Kind.PUT, [key], [new], expect=[old])])
        except Conflict:
            with self.lock:
                self.happened["thread refused: conflict"] += 1
        except StoreFull:
            pass
        except StoreError as error:
            with self.lock:
                self.unsure[place] += 1
            if not isinstance(error, OutcomeUnknown):
                raise
        else:
            with self.lock:
                self.raised[place] += 1

    def look(self) -> None:
        """What was acknowledged is there, whole and once."""
        store = open_store(self.url)
        try:
            found = [self.rows(store, node, PAIRS) for node in range(store.tables.parts)]
            counters = [self.rows(store, node, COUNTERS) for node in range(store.tables.parts)]
            logged = store.log.head().operations
        finally:
            store.close()
        ids = [KEYS.decode_one(key)[0] for rows in found for key, _ in rows]
        pairs = {each // 2 for each in ids}
        self.happened["write of a thread acknowledged"] += len(self.done)
        if missing := self.done - pairs:
            raise Finding(f"pairs {sorted(missing)} were acknowledged and are lost")
        if there := self.refused & pairs:
            raise Finding(f"pairs {sorted(there)} were refused and are there")
        if len(ids) != 2 * len(pairs):
            raise Finding(f"{len(ids)} rows of {len(pairs)} pairs are there: half a write")
        counts = dict(COUNTS.decode_one(row) for rows in counters for _, row in rows)
        for place in range(COUNTED):
            least, most = self.raised[place], self.raised[place] + self.unsure[place]
            if not least <= (value := counts.get(place, 0)) <= most:
                raise Finding(f"counter {place} is {value}, raised {least} to {most} times")
            self.raised[place], self.unsure[place] = value, 0
        if logged != len(ids) + sum(counts.values()):
            raise Finding(f"the logs hold {logged} operations of {len(ids)} rows and {counts}")
        self.done = pairs

    def rows(self, store: Store, node: int, table: int) -> list[tuple[bytes, bytes]]:
        chunk = store.tables.scan(node, table, limit=10**6)
        return list(zip(chunk.keys, chunk.rows, strict=True))
