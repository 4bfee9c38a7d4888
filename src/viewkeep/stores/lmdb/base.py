"""Reading base rows of a node: now, or as they were at a cut.

Law: rows at a cut = current rows, overlaid with the earliest before-image logged after the cut for
each key; base rows and log are read in one snapshot, so the two always fit together.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from zlib import crc32

from viewkeep.codec.patterns import KeyPattern
from viewkeep.deferred import np
from viewkeep.stores.contract import Chunk
from viewkeep.stores.lmdb import log, sums
from viewkeep.stores.lmdb.environment import Environment, Transaction, translated
from viewkeep.stores.lmdb.ranges import PREFIX, blocks, key_range, walk

_FOREVER = (1 << 63) - 1


def get(
    nodes: Sequence[Environment], table: int, keys: Sequence[bytes], at: Sequence[int] | None = None
) -> list[bytes | None]:
    """The rows of these keys, in their order, now or at a cut."""
    prefix = table.to_bytes(PREFIX, "big")
    if len(keys) == 1 and at is None:
        node = nodes[crc32(keys[0]) % len(nodes)]
        with translated, node.begin() as txn:
            return [sums.get(node, txn, "rows", prefix + keys[0])]
    wanted: dict[int, list[bytes]] = {}
    for key in keys:
        wanted.setdefault(crc32(key) % len(nodes), []).append(prefix + key)
    found: dict[bytes, bytes | None] = {}
    for index, full in wanted.items():
        node = nodes[index]
        with translated, node.begin() as txn, txn.cursor(db=node.dbs["rows"]) as cursor:
            found.update(sums.present(node, cursor, sorted(full)))
            if at is not None:
                these = set(full).__contains__
                found.update(_before_images(node, txn, table, at[index], these))
    return [found.get(prefix + key) for key in keys]


def scan(
    node: Environment,
    table: int,
    start: bytes,
    stop: bytes | None,
    limit: int,
    at: int | None,
    reverse: bool,
    only: KeyPattern | None = None,
) -> Chunk:
    """Up to `limit` rows of a range, now or as they were when the node's log ended at `at`."""
    low, high = key_range(table, start, stop)

    def inside(key: bytes) -> bool:
        return low <= key < high

    with translated, node.begin() as txn, txn.cursor(db=node.dbs["rows"]) as cursor:
        earlier = {} if at is None else _before_images(node, txn, table, at, inside)
        if only is not None:
            earlier = {k: row for k, row in earlier.items() if only.matches(k[PREFIX:])}
        keys, rows = list[bytes](), list[bytes]()
        if earlier:
            now = walk(node, cursor, low, high, reverse, only)
            for key, row in islice(_overlay(now, earlier, reverse), limit + 1):
                keys.append(key)
                rows.append(row)
        else:
            for block, values in blocks(node, cursor, low, high, reverse, only):
                keys += block
                rows += values
                if len(rows) > limit:
                    break
    return Chunk([key[PREFIX:] for key in keys[:limit]], rows[:limit], len(rows) > limit)


def rows(node: Environment) -> int:
    """How many base rows a node has, of all tables."""
    with translated, node.begin() as txn:
        return int(txn.stat(node.dbs["rows"])["entries"])


def _before_images(
    node: Environment, txn: Transaction, table: int, at: int, wanted: Callable[[bytes], bool]
) -> dict[bytes, bytes | None]:
    """For each wanted key written after the cut, its row at the cut."""
    earlier: dict[bytes, bytes | None] = {}
    prefix = table.to_bytes(PREFIX, "big")
    while True:
        keys, values = log.gather(node, txn, at, _FOREVER)
        if not values:
            return earlier
        table_of, batch = log.parse(node, keys, values)
        chosen = np.flatnonzero((table_of == table) & (batch.offsets >= at))
        assert batch.before is not None
        for key, row in zip(
            batch.keys.take(chosen).to_list(), batch.before.take(chosen).to_list(), strict=True
        ):
            full = prefix + (key or b"")
            if wanted(full):
                earlier.setdefault(full, row)
        at = int(batch.offsets[-1]) + 1


def _overlay(
    rows: Iterator[tuple[bytes, bytes]], earlier: dict[bytes, bytes | None], reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """The rows with `earlier` in place of what their keys hold now, in key order."""
    kept = (item for item in rows if item[0] not in earlier)
    back = [(key, row) for key, row in earlier.items() if row is not None]
    back.sort(key=itemgetter(0), reverse=reverse)
    return heapq.merge(kept, back, key=itemgetter(0), reverse=reverse)
