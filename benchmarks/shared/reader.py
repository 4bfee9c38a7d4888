"""Reads one view by key from a process of its own until its input ends; prints latencies as JSON.

python benchmarks/shared/reader.py URL VIEW KEYS READS_PER_SECOND
"""

from __future__ import annotations

import json
import random
import selectors
import sys
import time

import viewkeep


def main() -> None:
    url, view, keys, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    chosen, spent = random.Random(3), list[float]()
    with viewkeep.open(url, create=False) as db, selectors.DefaultSelector() as ended:
        ended.register(sys.stdin, selectors.EVENT_READ)
        for _ in range(1_000):  # warm
            db.get(view, chosen.randint(1, keys))
        print("ready", flush=True)
        while not ended.select(timeout=1 / rate):
            began = time.perf_counter()
            db.get(view, chosen.randint(1, keys))
            spent.append(time.perf_counter() - began)
    print(json.dumps(spent))


if __name__ == "__main__":
    main()
