"""Many threads write to one node until the power fails: `python -m tests.campaign.threads SEED`.

Law: what any of them was told is written is there when power is back, and nothing is half there.
The rounds of the campaign run one thread, so that a seed replays them; here threads share commits,
and a seed decides only where the power fails and which unsynced sectors are lost.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
from itertools import count
from pathlib import Path

from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.rows import RowCodec
from viewkeep.errors import StoreError
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import Kind, Store, TableWrite
from viewkeep.stores.lmdb import environment
from viewkeep.types import BIGINT, STRING, Column

from .disk import VARIABLE, Disk, build

TABLE, THREADS = 1, 6
KEYS = KeyCodec((BIGINT,))
ROWS = RowCodec((Column("id", BIGINT), Column("pair", STRING)))


def main(seed: int) -> int:
    """Play one round, with the disk preloaded; 1 if it finds something."""
    if VARIABLE not in os.environ:
        library = build()
        if library is None:
            print("there is no compiler")
            return 2
        os.environ[VARIABLE] = os.environ["LD_PRELOAD"] = str(library)
        os.execv(sys.executable, [sys.executable, "-m", "tests.campaign.threads", str(seed)])
    Path(os.environ.pop("LD_PRELOAD")).unlink()
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=base, prefix="viewkeep-threads-") as folder:
        return play(random.Random(seed), Path(folder))


def play(rng: random.Random, folder: Path) -> int:
    """Three times: threads write until the power fails, and what is left is looked at."""
    url, disk = str(folder / "db"), Disk()
    create_store(url, nodes=1, shards=1).close()
    numbers, done = count(), set[int]()
    disk.begin(folder)
    for _ in range(3):
        store = open_store(url)
        disk.cut_power(rng.choice((3, 10, 30, 100, 300)))
        threads = [
            threading.Thread(target=write, args=(store, numbers, done)) for _ in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert disk.is_dead
        for shared in environment._shared.values():
            shared.env.close()
        environment._shared.clear()
        lost = disk.lose(rng.getrandbits(40), rng.choice((0, 50, 90, 100)))
        for file in Path(url).glob("*/lock.mdb"):
            file.unlink()
        store = open_store(url)
        found = [KEYS.decode_one(key)[0] for key in store.scan(0, TABLE, limit=10**6).keys]
        logged = store.head().offsets[0]
        store.close()
        print(f"{len(done)} writes acknowledged, {len(found)} rows found, {lost} sectors lost")
        pairs = {number // 2 for number in found}
        if missing := done - pairs:
            print(f"acknowledged and lost: {sorted(missing)}")
            return 1
        if len(found) != 2 * len(pairs) or logged != len(found):
            print(f"half written: {len(found)} rows of {len(pairs)} pairs, {logged} logged")
            return 1
    return 0


def write(store: Store, numbers: count[int], done: set[int]) -> None:
    """Write pair after pair of rows until the disk is dead."""
    while True:
        number = next(numbers)
        ids = (2 * number, 2 * number + 1)
        keys = [KEYS.encode_one((each,)) for each in ids]
        rows = [ROWS.encode_one((each, "x" * (number % 70))) for each in ids]
        try:
            store.write([TableWrite(TABLE, ROWS, Kind.PUT, keys, rows)])
        except StoreError:
            return
        done.add(number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
