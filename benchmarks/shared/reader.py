"""Reads one view by key from a process of its own until its input ends; prints latencies as JSON.

Every other time it counts for as long as a read usually takes instead: where the machine is busy,
the tail of that is the least that the tail of reads can be.

python benchmarks/shared/reader.py URL VIEW KEYS READS_PER_SECOND
"""

from __future__ import annotations

import json
import random
import selectors
import statistics
import sys
import time

import viewkeep

LOOKED_AT = 200  # reads, to know what one usually takes


def main() -> None:
    url, view, keys, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    chosen, read, counted = random.Random(3), list[float](), list[float]()
    with viewkeep.open(url, create=False) as db, selectors.DefaultSelector() as ended:
        ended.register(sys.stdin, selectors.EVENT_READ)
        for _ in range(1_000):  # warm
            db.get(view, chosen.randint(1, keys))
        print("ready", flush=True)
        usual = 0.0
        while not ended.select(timeout=0.5 / rate):
            began = time.perf_counter()
            db.get(view, chosen.randint(1, keys))
            read.append(time.perf_counter() - began)
            if len(read) <= LOOKED_AT:
                usual = statistics.median(read)
            if ended.select(timeout=0.5 / rate):
                break
            began = time.perf_counter()
            until = began + usual
            while time.perf_counter() < until:
                pass
            counted.append(time.perf_counter() - began)
    print(json.dumps({"read": read, "counting": counted}))


if __name__ == "__main__":
    main()
