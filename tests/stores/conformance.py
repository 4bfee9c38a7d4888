"""What every store must do, whatever it is made of.

A connector runs this suite unchanged: subclass each class in a test module that has a fixture
`store_factory`, a function that makes a new empty store and takes `nodes` and `shards`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import groupby, islice, pairwise
from typing import Any
from zlib import crc32

import pytest

from viewkeep.codec.keys import KeyCodec, prefix_end
from viewkeep.codec.packed import Packed
from viewkeep.codec.patterns import KeyPattern
from viewkeep.codec.rows import RowCodec
from viewkeep.errors import Conflict, DuplicateKey, EpochGone, Fenced, InvalidRow
from viewkeep.stores import open_store
from viewkeep.stores.contract import (
    ABSENT,
    NONE,
    START,
    Cut,
    Floor,
    Kind,
    State,
    StateWrite,
    Store,
    TableSize,
    TableWrite,
)
from viewkeep.types import BIGINT, STRING, Column

StoreFactory = Callable[..., Store]

ROWS = RowCodec((Column("id", BIGINT), Column("name", STRING), Column("votes", BIGINT)))
KEYS = KeyCodec((BIGINT,))
PAIRS = KeyCodec((BIGINT, BIGINT))
TABLE = 7
OTHER = 8


def key(number: int) -> bytes:
    return KEYS.encode_one((number,))


def row(number: int, name: str | None = None, votes: int | None = None) -> bytes:
    return ROWS.encode_one((number, name, votes))


def put(numbers: Any, name: str = "x", table: int = TABLE, **options: Any) -> TableWrite:
    numbers = list(numbers)
    rows = [row(number, name, number * 10) for number in numbers]
    return TableWrite(table, ROWS, Kind.PUT, [key(n) for n in numbers], rows, **options)


def delete(numbers: Any, table: int = TABLE, **options: Any) -> TableWrite:
    return TableWrite(table, ROWS, Kind.DELETE, [key(n) for n in numbers], **options)


def names(store: Store, numbers: Any, table: int = TABLE) -> list[str | None]:
    found = store.tables.get(table, [key(number) for number in numbers])
    return [None if data is None else ROWS.decode_one(data)[1] for data in found]


def lows_of(keys: list[bytes], width: int) -> list[tuple[bytes, int]]:
    """The first bytes of keys that are in order, each with how many of them have it."""
    return [(low, len(list(some))) for low, some in groupby(keys, lambda key: key[:width])]


Versions = list[tuple[int, bytes | None]]


def rows_at(
    store: Store, epoch: int | None, start: bytes = b"", stop: bytes | None = None
) -> dict[bytes, bytes]:
    """The rows of a state table at an epoch, on the first shard."""
    chunk = store.state.scan(0, TABLE, start=start, stop=stop, limit=9_999, at=epoch)
    return dict(zip(chunk.keys, chunk.rows, strict=True))


def changes_of(
    store: Store, after: int, upto: int, limit: int, start: bytes, stop: bytes | None
) -> dict[bytes, Versions]:
    """All changes of a range, read `limit` rows at a time."""
    found: dict[bytes, Versions] = {}
    more = True
    while more:
        part = store.state.changes(0, TABLE, after, upto, start=start, stop=stop, limit=limit)
        assert part.keys == sorted(part.keys)
        found.update(zip(part.keys, part.versions, strict=True))
        more = part.more
        start = part.keys[-1] + b"\0" if more else b""
    return found


def scan_all(store: Store, table: int, limit: int = 3, **options: Any) -> dict[bytes, bytes]:
    """All rows of a table, a chunk at a time, with the order checked."""
    everything: dict[bytes, bytes] = {}
    for node in range(store.tables.parts):
        start, stop = options.get("start", b""), options.get("stop")
        seen: list[bytes] = []
        while True:
            chunk = store.tables.scan(
                node,
                table,
                start=start,
                stop=stop,
                limit=limit,
                at=options.get("at"),
                reverse=options.get("reverse", False),
                only=options.get("only"),
            )
            assert len(chunk.keys) == len(chunk.rows) <= limit
            seen += chunk.keys
            everything.update(zip(chunk.keys, chunk.rows, strict=True))
            if not chunk.more:
                break
            assert chunk.keys
            if options.get("reverse"):
                stop = chunk.keys[-1]
            else:
                start = chunk.keys[-1] + b"\0"
        assert seen == sorted(seen, reverse=options.get("reverse", False))
        assert len(seen) == len(set(seen))
    return everything


def log_entries(
    store: Store, start: Cut, stop: Cut, tables: frozenset[int] | None = None
) -> list[list[tuple[int, int, int, bytes, bytes | None, bytes | None]]]:
    """Per log: (offset, table, kind, key, row, before) in log order."""
    result = []
    for split in store.log.splits(start, stop):
        entries = []
        for batch in store.log.read(split, tables):
            assert batch.before is not None
            entries += list(
                zip(
                    batch.offsets.tolist(),
                    [batch.table] * len(batch.offsets),
                    batch.kinds.tolist(),
                    batch.keys.to_list(),
                    batch.rows.to_list(),
                    batch.before.to_list(),
                    strict=True,
                )
            )
        result.append(sorted(entries))
    return result


@pytest.fixture
def store(store_factory: StoreFactory) -> Iterator[Store]:
    opened = store_factory()
    yield opened
    opened.close()


class BaseSuite:
    """Base rows and their conditions."""

    def test_put_get_delete(self, store: Store) -> None:
        store.tables.write([put(range(5)), put([1], "other", table=OTHER)])
        assert names(store, range(6)) == ["x"] * 5 + [None]
        assert names(store, [1, 2], OTHER) == ["other", None]
        store.tables.write([delete([1, 3, 99])])
        assert names(store, range(5)) == ["x", None, "x", None, "x"]
        assert names(store, [1], OTHER) == ["other"]
        assert store.tables.get(TABLE, []) == []

    def test_get_keeps_the_order_and_repeats_of_the_keys(self, store: Store) -> None:
        store.tables.write([put([1], "one"), put([2], "two")])
        assert names(store, [2, 9, 1, 2]) == ["two", None, "one", "two"]

    def test_an_empty_write_does_nothing(self, store: Store) -> None:
        assert store.tables.write([]).positions == {}
        assert store.tables.write([put([])]).positions == {}
        assert store.log.head().operations == 0

    def test_partial_put_keeps_the_other_columns(self, store: Store) -> None:
        store.tables.write([put([1])])
        partial = [row(0, "changed", 999)] * 2
        store.tables.write(
            [TableWrite(TABLE, ROWS, Kind.PUT, [key(1), key(2)], partial, columns=(1,))]
        )
        first, second = store.tables.get(TABLE, [key(1), key(2)])
        assert ROWS.decode_one(first or b"") == (1, "changed", 10)
        assert ROWS.decode_one(second or b"") == (None, "changed", None)

    def test_one_partial_put(self, store: Store) -> None:
        for expected in [(None, None, 5), (None, "b", 5)]:
            chosen = 2 if expected[1] is None else 1
            store.tables.write(
                [TableWrite(TABLE, ROWS, Kind.PUT, [key(1)], [row(9, "b", 5)], columns=(chosen,))]
            )
            assert ROWS.decode_one(store.tables.get(TABLE, [key(1)])[0] or b"") == expected

    def test_existing_only_leaves_absent_rows_alone(self, store: Store) -> None:
        store.tables.write([put([1])])
        before = store.log.head()
        store.tables.write([put([1, 2, 3], "new", existing_only=True)])
        store.tables.write([put([4], "new", existing_only=True)])
        assert names(store, [1, 2, 3, 4]) == ["new", None, None, None]
        assert sum(map(len, log_entries(store, before, store.log.head()))) == 1

    def test_deleting_absent_rows_logs_nothing(self, store: Store) -> None:
        store.tables.write([delete([1])])
        store.tables.write([delete(range(10))])
        assert store.log.head().operations == 0

    def test_expect_absent_refuses_the_whole_call(self, store: Store) -> None:
        store.tables.write([put([5], "kept")])
        before = store.log.head()
        for writes in (
            [put(range(10), expect=ABSENT)],
            [put([5], expect=ABSENT)],
            [put([1, 1], expect=ABSENT)],
            [put([1]), put([1], expect=ABSENT)],
        ):
            with pytest.raises(DuplicateKey):
                store.tables.write(writes)
        assert store.log.head() == before
        assert names(store, [1, 5]) == [None, "kept"]
        store.tables.write([put([1, 2], "new", expect=ABSENT)])
        assert names(store, [1, 2]) == ["new", "new"]

    def test_expect_rows(self, store: Store) -> None:
        store.tables.write([put([1, 2])])
        old = store.tables.get(TABLE, [key(1), key(2), key(3)])
        store.tables.write([put([1, 2, 3], "y", expect=old)])
        before = store.log.head()
        with pytest.raises(Conflict):
            store.tables.write([put([9]), put([1, 2, 3], "z", expect=old)])
        with pytest.raises(Conflict):
            store.tables.write([delete([1], expect=[None])])
        assert store.log.head() == before
        assert names(store, [1, 2, 3, 9]) == ["y", "y", "y", None]

    def test_invalid_writes_are_refused_whole(self, store: Store) -> None:
        huge = b"\0" * ((64 << 20) + 1)
        for bad in (
            TableWrite(TABLE, ROWS, Kind.PUT, [key(1)], None),
            TableWrite(TABLE, ROWS, Kind.DELETE, [key(1)], [row(1)]),
            TableWrite(TABLE, ROWS, Kind.PUT, [key(1)], [row(1), row(2)]),
            TableWrite(TABLE, ROWS, Kind.PUT, [key(1)], [row(1)], expect=[]),
            TableWrite(TABLE, ROWS, Kind.PUT, [b"k" * 600], [row(1)]),
            TableWrite(TABLE, ROWS, Kind.PUT, [key(1)], [huge]),
        ):
            with pytest.raises(InvalidRow):
                store.tables.write([put([2]), bad])
        assert store.log.head().operations == 0
        assert names(store, [1, 2]) == [None, None]

    def test_large_rows(self, store: Store) -> None:
        big = ROWS.encode_one((1, "x" * (3 << 20), 1))
        store.tables.write([TableWrite(TABLE, ROWS, Kind.PUT, [key(1), key(2), key(1)], [big] * 3)])
        assert store.tables.get(TABLE, [key(1)]) == [big]
        entries = log_entries(store, START, store.log.head())
        assert sum(map(len, entries)) == 3

    def test_drop_table_within_a_budget(self, store: Store) -> None:
        store.tables.write([put(range(20)), put([1], table=OTHER)])
        before = store.log.head()
        calls = 1
        while store.tables.drop(TABLE, budget=7):
            calls += 1
        assert calls >= 3
        assert scan_all(store, TABLE) == {}
        assert len(scan_all(store, OTHER)) == 1
        assert store.log.head() == before

    def test_use_after_close_is_refused(self, store_factory: StoreFactory) -> None:
        opened = store_factory()
        opened.close()
        opened.close()
        with pytest.raises(Exception, match="closed"):
            opened.tables.get(TABLE, [key(1)])


class ScanSuite:
    """Ordered scans of base rows, now and at a cut."""

    def test_ranges_limits_and_direction(self, store: Store) -> None:
        store.tables.write([put(range(30)), put([5], table=OTHER), put([5], table=TABLE - 1)])
        for limit in (1, 4, 100):
            for reverse in (False, True):
                options: dict[str, Any] = {"limit": limit, "reverse": reverse}
                assert len(scan_all(store, TABLE, **options)) == 30
                part = scan_all(store, TABLE, start=key(10), stop=key(20), **options)
                assert sorted(part) == [key(number) for number in range(10, 20)]
                assert scan_all(store, TABLE, start=key(20), stop=key(20), **options) == {}

    def test_more_is_false_when_the_range_ends_at_the_limit(self, store: Store) -> None:
        store.tables.write([put(range(10))])
        for node in range(store.tables.parts):
            total = len(store.tables.scan(node, TABLE, limit=100).keys)
            assert not store.tables.scan(node, TABLE, limit=total).more
            assert store.tables.scan(node, TABLE, limit=total - 1).more

    def test_prefix(self, store: Store) -> None:
        codec = KeyCodec((STRING, BIGINT))
        keys = [codec.encode_one((text, n)) for text in ("a", "b", "ba") for n in range(3)]
        store.tables.write([TableWrite(TABLE, ROWS, Kind.PUT, keys, [row(1)] * len(keys))])
        prefix = codec.encode_one(("b",))
        assert sorted(scan_all(store, TABLE, start=prefix, stop=prefix_end(prefix))) == keys[3:6]

    @pytest.mark.parametrize("reverse", [False, True])
    def test_patterns(self, store: Store, reverse: bool) -> None:
        pairs = [(a, b) for a in range(6) for b in range(5) if (a + b) % 4]
        made = [PAIRS.encode_one(pair) for pair in pairs]
        rows = [row(a, None, b) for a, b in pairs]
        store.tables.write([TableWrite(TABLE, ROWS, Kind.PUT, made, rows)])
        cut = store.log.head()
        gone = [PAIRS.encode_one(pair) for pair in pairs if pair[0] == 3]
        store.tables.write([TableWrite(TABLE, ROWS, Kind.DELETE, gone)])
        extra = [PAIRS.encode_one((a, 2)) for a in (8, 9)]
        store.tables.write([TableWrite(TABLE, ROWS, Kind.PUT, extra, [row(8), row(9)])])
        for wanted in range(6):
            only = KeyPattern(PAIRS, {1: wanted})
            for at, there in ((cut, made), (None, [k for k in made if k not in gone] + extra)):
                expected = {k for k in there if PAIRS.decode_one(k)[1] == wanted}
                for start, stop in ((b"", None), (PAIRS.encode_one((1,)), PAIRS.encode_one((9,)))):
                    found = scan_all(
                        store, TABLE, at=at, start=start, stop=stop, reverse=reverse, only=only
                    )
                    assert set(found) == {
                        k for k in expected if k >= start and (stop is None or k < stop)
                    }

    def test_rows_at_a_cut(self, store: Store) -> None:
        store.tables.write([put(range(10), "old")])
        cut = store.log.head()
        then = scan_all(store, TABLE)
        store.tables.write([put(range(5, 15), "new")])
        store.tables.write([delete([0, 5, 14])])
        store.tables.write([put([0], "again")])
        store.tables.write([put([3], "elsewhere", table=OTHER)])
        now = scan_all(store, TABLE)
        assert then != now
        for limit in (1, 3, 100):
            assert scan_all(store, TABLE, limit=limit, at=cut) == then
            assert scan_all(store, TABLE, limit=limit, at=cut, reverse=True) == then
        part = scan_all(store, TABLE, at=cut, start=key(2), stop=key(8))
        assert part == {k: r for k, r in then.items() if key(2) <= k < key(8)}
        assert scan_all(store, TABLE, at=START) == {}
        assert scan_all(store, TABLE, at=store.log.head()) == now
        keys = [key(n) for n in (3, 0, 14, 5, 99, 3, 9)]
        for rows, at in ((then, cut), (now, store.log.head()), ({}, START)):
            assert store.tables.get(TABLE, keys, at) == [rows.get(one) for one in keys]
            assert [store.tables.get(TABLE, [one], at)[0] for one in keys] == store.tables.get(
                TABLE, keys, at
            )

    def test_a_cut_before_the_kept_log_is_gone(self, store: Store) -> None:
        store.tables.write([put(range(10))])
        cut = store.log.head()
        store.tables.write([put(range(10), "new")])
        store.log.truncate(store.log.head())
        with pytest.raises(EpochGone):
            scan_all(store, TABLE, at=cut)
        with pytest.raises(EpochGone):
            store.tables.get(TABLE, [key(n) for n in range(10)], cut)
        assert len(scan_all(store, TABLE, at=store.log.head())) == 10


class LogSuite:
    """Node logs and cuts."""

    def test_ticks_differ_after_any_write(self, store: Store) -> None:
        """Also after one by another handle, on any node, and of a meta record."""
        seen = [store.ticks()]
        assert store.ticks() == seen[-1]
        with closing(open_store(store.url)) as other:
            for number in range(8):
                other.tables.write([put([number])])
                seen.append(store.ticks())
            other.tables.write([delete([1])])
            seen.append(store.ticks())
            assert other.meta.cas("a", None, b"1")
            seen.append(store.ticks())
            assert other.meta.cas("a", b"1", None)
            seen.append(store.ticks())
            other.log.head()
            other.tables.get(TABLE, [key(1)])
            assert other.ticks() == store.ticks()
        assert all(seen[place] not in seen[:place] for place in range(len(seen)))
        assert store.ticks() == seen[-1]

    def test_ticks_are_no_less_than_the_default_says(self, store: Store) -> None:
        """A store that has no way of its own is right too."""
        before, always = store.ticks(), Store.ticks(store)
        assert Store.ticks(store) == always
        store.tables.write([put([1])])
        assert (store.ticks() != before, Store.ticks(store) != always) == (True, True)

    def test_log_tells_what_happened(self, store: Store) -> None:
        store.tables.write([put([1], "a")])
        store.tables.write([put([1], "b"), delete([1])])
        store.tables.write([put([1], "c")])
        a, b, c = (row(1, name, 10) for name in "abc")
        node = crc32(key(1)) % store.tables.parts
        entries = log_entries(store, START, store.log.head())[node]
        assert [entry[0] for entry in entries] == [0, 1, 2, 3]
        assert [entry[2:] for entry in entries] == [
            (Kind.PUT, key(1), a, None),
            (Kind.PUT, key(1), b, a),
            (Kind.DELETE, key(1), None, b),
            (Kind.PUT, key(1), c, None),
        ]

    def test_same_key_twice_in_one_write(self, store: Store) -> None:
        store.tables.write([put([1, 2, 1, 1], "x")])
        entries = log_entries(store, START, store.log.head())
        mine = [entry for node in entries for entry in node if entry[3] == key(1)]
        assert [entry[5] for entry in mine] == [None, row(1, "x", 10), row(1, "x", 10)]

    def test_keys_that_come_again_in_one_write_meet_what_was_left(self, store: Store) -> None:
        source, now = random.Random(3), dict[int, tuple[str | None, int | None]]()
        expected: dict[int, list[tuple[int, bytes | None, bytes | None]]] = {}

        def told(number: int) -> bytes | None:
            return row(number, *now[number]) if number in now else None

        for call in range(40):
            writes = []
            for _ in range(3):
                numbers = source.choices(range(12), k=source.choice([2, 30]))
                name, kind = f"n{call}", source.choice(["whole", "partial", "existing", "delete"])
                for number in numbers:
                    before = told(number)
                    if kind == "delete":
                        now.pop(number, None)
                    elif kind == "partial":
                        now[number] = (name, now[number][1] if number in now else None)
                    elif kind == "whole" or number in now:
                        now[number] = (name, number * 10)
                    if before is not None or kind in ("whole", "partial"):
                        done = Kind.DELETE if kind == "delete" else Kind.PUT
                        expected.setdefault(number, []).append((done, told(number), before))
                options = {"partial": {"columns": (0, 1)}, "existing": {"existing_only": True}}
                if kind == "delete":
                    writes.append(delete(numbers))
                else:
                    writes.append(put(numbers, name, **options.get(kind, {})))
            store.tables.write(writes)
        found: dict[int, list[tuple[int, bytes | None, bytes | None]]] = {}
        for node in log_entries(store, START, store.log.head()):
            for _, _, done, full, after, before in node:
                (number,) = KEYS.decode_one(full)
                found.setdefault(number, []).append((done, after, before))
        assert found == expected
        assert scan_all(store, TABLE) == {key(n): told(n) for n in now}

    def test_positions_are_the_ends_of_the_logs(self, store: Store) -> None:
        total = 0
        for numbers in ([1], range(50), [2], []):
            cut = store.tables.write([put(numbers)])
            head = store.log.head()
            assert head.covers(cut)
            assert all(head.position(log) == end for log, end in cut.positions.items())
            total += len(list(numbers))
            assert store.log.head().operations == total

    def test_many_operations_in_any_range(self, store: Store) -> None:
        for start in range(0, 60, 3):
            store.tables.write([put(range(start, start + 3)), put([start], table=OTHER)])
        store.tables.write([put(range(10_000))])
        everything = log_entries(store, START, store.log.head())
        whole = store.log.splits(START, store.log.head())
        for log, entries in zip(whole, everything, strict=True):
            assert [entry[0] for entry in entries] == list(range(log.stop))
            assert log.operations == len(entries)
        source = random.Random(1)
        for _ in range(30):
            for log in whole:
                sizes = [source.randrange(1, 1 + log.operations // 3) for _ in range(3)]
                pieces = store.log.divide(log, sizes)
                assert pieces == store.log.divide(log, sizes)
                read = []
                for piece in pieces:
                    offsets = [
                        offset
                        for batch in store.log.read(piece)
                        for offset in batch.offsets.tolist()
                    ]
                    assert len(offsets) == piece.operations
                    read += sorted(offsets)
                assert read == list(range(log.stop))
        only = log_entries(store, START, store.log.head(), frozenset([OTHER]))
        assert sum(map(len, only)) == 20
        assert {entry[1] for node in only for entry in node} == {OTHER}

    def test_truncation_keeps_offsets_and_moments(self, store: Store) -> None:
        for number in range(20):
            store.tables.write([put([number])])
        middle = store.log.head()
        for number in range(20):
            store.tables.write([put([number, number + 100])])
        end = store.log.head()
        later = log_entries(store, middle, end)
        rounds = 1
        while store.log.truncate(middle, budget=6):
            rounds += 1
        assert rounds >= 3
        assert log_entries(store, middle, end) == later
        assert sum(store.sizes().log_operations.values()) == 40
        assert store.log.kept().positions == middle.positions
        for split in store.log.splits(START, end):
            with pytest.raises(EpochGone):
                list(store.log.read(split))
        while store.log.truncate(end):
            pass
        assert store.log.head() == end
        store.tables.write([put([1])])
        assert store.log.head().operations == end.operations + 1
        assert store.log.head().watermark > end.watermark

    def test_the_oldest_write_after_a_cut(self, store: Store) -> None:
        cuts, moments = [START], []
        assert store.log.first_after(cuts[0]) is None
        for number in range(12):
            store.tables.write([put(range(number, number + 1 + number % 3))])
            cuts.append(store.log.head())
            moments.append(cuts[-1].watermark)
        for cut, moment in zip(cuts, moments, strict=False):
            assert store.log.first_after(cut) == moment
        assert store.log.first_after(cuts[-1]) is None
        store.log.truncate(cuts[6])
        assert store.log.first_after(cuts[6]) == moments[6]
        with pytest.raises(EpochGone):
            store.log.first_after(cuts[0])
        store.log.truncate(cuts[-1])
        assert store.log.first_after(cuts[-1]) is None
        store.tables.write([put([1])])
        assert store.log.first_after(cuts[-1]) == store.log.head().watermark

    def test_bounded_cut_splits_no_write(self, store: Store) -> None:
        cuts = [store.log.head()]
        source = random.Random(2)
        for _ in range(40):
            count = source.choice([1, 1, 2, 7])
            store.tables.write([put(source.sample(range(1000), count))])
            cuts.append(store.log.head())
        known = [cut.positions for cut in cuts]
        for budget in (1, 2, 5, 30, 10_000):
            at = cuts[0]
            steps = 0
            while not at.covers(cuts[-1]):
                after = store.log.bounded_cut(at, cuts[-1], budget, 1 << 40)
                index = known.index(after.positions)
                before = known.index(at.positions)
                used = after.operations - at.operations
                assert used <= budget or index == before + 1
                if index + 1 < len(cuts):
                    assert cuts[index + 1].operations - at.operations > budget
                at, steps = after, steps + 1
            assert steps == 1 or budget < 10_000
            assert at.watermark <= cuts[-1].watermark

    def test_bounded_cut_by_bytes(self, store: Store) -> None:
        for number in range(20):
            store.tables.write([put([number], "x" * 1000)])
        at, end = START, store.log.head()
        steps = 0
        while not at.covers(end):
            at = store.log.bounded_cut(at, end, 1 << 40, 5000)
            steps += 1
        assert 4 <= steps <= 10

    def test_bounded_cut_after_truncation(self, store: Store) -> None:
        store.tables.write([put(range(10))])
        middle = store.log.head()
        store.log.truncate(middle)
        for number in range(4):
            store.tables.write([put([number])])
        cut = store.log.bounded_cut(middle, store.log.head(), 2, 1 << 40)
        assert cut.operations - middle.operations == 2


class StateSuite:
    """Versioned rows."""

    def test_reads_are_pinned_at_an_epoch(self, store: Store) -> None:
        keys = [key(number) for number in range(4)]
        store.state.apply(0, 1, 0, [StateWrite(TABLE, keys[:3], [b"a", b"b", b"c"])])
        store.state.apply(0, 2, 0, [StateWrite(TABLE, keys, [b"a2", None, b"c", b"d"])])
        assert store.state.get(0, TABLE, keys, 0) == [None] * 4
        assert store.state.get(0, TABLE, keys, 1) == [b"a", b"b", b"c", None]
        assert store.state.get(0, TABLE, keys, 2) == [b"a2", None, b"c", b"d"]
        assert store.state.get(0, TABLE, keys, None) == [b"a2", None, b"c", b"d"]
        assert store.state.get(0, TABLE, keys[:1], 1) == [b"a"]
        assert store.state.get(0, OTHER, keys[:1], 2) == [None]
        assert store.state.get(1, TABLE, keys, 2) == [None] * 4
        assert store.state.get(0, TABLE, [], 2) == []

    @pytest.mark.parametrize("form", [list, Packed.from_list], ids=["listed", "packed"])
    @pytest.mark.parametrize("width", [3, None])
    def test_rows_that_are_said_to_be_new(self, store: Store, form: Any, width: int | None) -> None:
        """They are kept as if nothing had been said, be it true or not."""
        plain, said = TABLE, OTHER
        rows = [b"x" * (width or number % 5) for number in range(600)]
        keys = [key(number) for number in range(600)]
        epochs: list[tuple[list[bytes], list[bytes | None]]] = [
            (keys[:300], [*rows[:300]]),
            (keys[:300], [None] * 300),
            (keys[200:], [*rows[200:]]),  # 100 were deleted, 300 are new
            (keys[100:400], [*rows[:300]]),
            ([key(number) for number in range(900, 1_200)], [None] * 300),  # never were
        ]
        for epoch, (some, held) in enumerate(epochs, 1):
            store.state.apply(0, epoch, 0, [StateWrite(plain, some, held)])
            for _ in range(2):  # a task may run again
                store.state.apply(0, epoch, 0, [StateWrite(said, form(some), form(held), True)])
        for at in range(len(epochs) + 1):
            expected = store.state.scan(0, plain, limit=999, at=at)
            assert store.state.scan(0, said, limit=999, at=at) == expected
        assert store.sizes().tables[said] == store.sizes().tables[plain]
        while store.state.sweep(0, len(epochs), budget=1_000):
            pass
        assert store.sizes().tables[said] == store.sizes().tables[plain]

    def test_scan_skips_rows_that_are_not_there(self, store: Store) -> None:
        keys = [key(number) for number in range(10)]
        store.state.apply(0, 1, 0, [StateWrite(TABLE, keys, [b"1"] * 10)])
        store.state.apply(0, 2, 0, [StateWrite(TABLE, keys[2:8], [None] * 6)])
        first = store.state.scan(0, TABLE, limit=3, at=2)
        assert (first.keys, first.more) == (keys[:2] + keys[8:9], True)
        last = store.state.scan(0, TABLE, limit=3, at=2, reverse=True)
        assert (last.keys, last.more) == ([keys[9], keys[8], keys[1]], True)
        assert not store.state.scan(0, TABLE, limit=4, at=2).more
        assert store.state.scan(0, TABLE, limit=99, at=1).keys == keys
        part = store.state.scan(0, TABLE, start=keys[1], stop=keys[9], limit=99, at=None)
        assert part.keys == [keys[1], keys[8]]

    @pytest.mark.parametrize("reverse", [False, True])
    def test_patterns(self, store: Store, reverse: bool) -> None:
        made = [PAIRS.encode_one((a, b)) for a in range(6) for b in range(5) if (a + b) % 4]
        store.state.apply(0, 1, 0, [StateWrite(TABLE, made, made)])
        store.state.apply(
            0, 1, 0, [StateWrite(OTHER, made, made), StateWrite(TABLE - 1, made, made)]
        )
        store.state.apply(0, 2, 1, [StateWrite(TABLE, made[:9], [None] * 9)])
        for wanted in range(6):
            only = KeyPattern(PAIRS, {1: wanted})
            for at, there in ((1, made), (2, made[9:]), (None, made[9:])):
                expected = [k for k in there if PAIRS.decode_one(k)[1] == wanted]
                expected.sort(reverse=reverse)
                chunk = store.state.scan(0, TABLE, limit=99, at=at, reverse=reverse, only=only)
                assert (chunk.keys, chunk.rows, chunk.more) == (expected, expected, False)
                chunk = store.state.scan(0, TABLE, limit=2, at=at, reverse=reverse, only=only)
                assert (chunk.keys, chunk.more) == (expected[:2], len(expected) > 2)

    @pytest.mark.parametrize("size", [1, 2, 3, 100])
    @pytest.mark.parametrize("limits", [None, [2, 0, 1, 5, 3]])
    def test_find_by_prefixes(self, store: Store, size: int, limits: list[int] | None) -> None:
        keys = [bytes([group, row]) for group in (1, 2, 4) for row in range(4)] + [b"\xff\xff"]
        store.state.apply(0, 1, 0, [StateWrite(TABLE, keys, list(keys))])
        store.state.apply(0, 2, 1, [StateWrite(TABLE, [keys[0], keys[5]], [None, None])])
        prefixes = [b"\x02", b"\x01", b"\x03", b"\xff", b"\x04"]
        for at in (1, 2):
            there = store.state.scan(0, TABLE, limit=99, at=at).keys
            expected = [
                (place, key, key)
                for place, prefix in enumerate(prefixes)
                for key in [k for k in there if k.startswith(prefix)][
                    : None if limits is None else limits[place]
                ]
            ]
            batches = list(store.state.find(0, TABLE, prefixes, at, limits=limits, size=size))
            found = [row for b in batches for row in zip(b.places, b.keys, b.rows, strict=True)]
            assert found == expected
            assert all(0 < len(batch.rows) <= size for batch in batches)

    @pytest.mark.parametrize("size", [1, 3, 100])
    @pytest.mark.parametrize("reverse", [False, True])
    def test_scan_ranges(self, store: Store, size: int, reverse: bool) -> None:
        source = random.Random(size)
        letters = [bytes([a, b]) for a in range(3) for b in range(5)] + [b"", b"\xff", b"\xff\xff"]
        for table in (TABLE - 1, TABLE, TABLE + 1):
            store.state.apply(0, 1, 0, [StateWrite(table, letters[::2], letters[::2])])
        gone = source.sample(letters, 6)
        store.state.apply(0, 2, 0, [StateWrite(TABLE, gone, [None] * 6)])
        came = source.sample(letters, 4)
        store.state.apply(0, 3, 0, [StateWrite(TABLE, came, [b"new"] * 4)])
        for at in (0, 1, 2, 3, None):
            for _ in range(20):
                bounds = source.choices([*letters, b"\1\1\1", None], k=source.randrange(10))
                ranges = [(source.choice(letters), stop) for stop in bounds]  # some are empty
                limits = source.choice([None, [source.randrange(4) for _ in ranges]])
                expected = list[tuple[int, bytes, bytes]]()
                for place, (start, stop) in enumerate(ranges):
                    limit = 99 if limits is None else limits[place]
                    part = store.state.scan(
                        0, TABLE, start=start, stop=stop, limit=99, at=at, reverse=reverse
                    )
                    rows = zip(part.keys, part.rows, strict=True)
                    expected += [(place, key, row) for key, row in islice(rows, limit)]
                for act in (store.state.scan_ranges, partial(State.scan_ranges, store.state)):
                    batches = list(
                        act(0, TABLE, ranges, at, limits=limits, reverse=reverse, size=size)
                    )
                    found = [
                        row for b in batches for row in zip(b.places, b.keys, b.rows, strict=True)
                    ]
                    assert found == expected
                    assert all(0 < len(batch.rows) <= size for batch in batches)

    def test_scan_ranges_before_the_horizon(self, store: Store) -> None:
        store.state.apply(0, 3, 2, [StateWrite(TABLE, [b"a"], [b"a"])])
        with pytest.raises(EpochGone):
            list(store.state.scan_ranges(0, TABLE, [(b"", None)], 1))

    @pytest.mark.parametrize("seed", range(5))
    def test_floor_is_the_last_row_at_or_before_a_key(self, store: Store, seed: int) -> None:
        source = random.Random(seed)
        letters = [bytes([a, b]) for a in range(3) for b in range(6)] + [b"", b"\xff", b"\xff\xff"]
        for table in (TABLE - 1, TABLE, TABLE + 1):
            store.state.apply(0, 1, 0, [StateWrite(table, letters[::2], letters[::2])])
        gone = source.sample(letters, 6)
        store.state.apply(0, 2, 0, [StateWrite(TABLE, gone, [None] * 6)])
        came = source.sample(letters, 4)
        store.state.apply(0, 3, 0, [StateWrite(TABLE, came, [b"new"] * 4)])
        for at in (0, 1, 2, 3, None):
            there = store.state.scan(0, TABLE, limit=99, at=at)
            rows = dict(zip(there.keys, there.rows, strict=True))
            for width in (0, 1, 2) * 20:
                keys = sorted(source.choices([*letters, b"\1\1\1", b"\5"], k=source.randrange(12)))
                lows = lows_of(keys, width)
                floor = store.state.floor(0, TABLE, keys, lows, at)
                expected = [
                    max((found for found in rows if key[:width] <= found <= key), default=None)
                    for key in keys
                ]
                found = [
                    None if place == NONE else floor.keys[place]
                    for place, count in floor.runs
                    for _ in range(count)
                ]
                assert found == expected
                assert floor.keys == sorted({key for key in expected if key is not None})
                assert floor.rows == [rows[key] for key in floor.keys]
                slowly = State.floor(store.state, 0, TABLE, keys, lows, at)
                assert slowly == floor

    def test_floor_passes_over_groups_without_rows(self, store: Store) -> None:
        store.state.apply(0, 1, 0, [StateWrite(TABLE, [b"aa"], [b"row"])])
        store.state.apply(0, 2, 0, [StateWrite(TABLE, [b"bc"], [b"not there yet"])])
        keys = [b"ab", b"bb", b"bd", b"ca", b"cd", b"dd"]
        floor = store.state.floor(0, TABLE, keys, lows_of(keys, 1), 1)
        assert floor == Floor([(0, 1), (NONE, 2), (NONE, 2), (NONE, 1)], [b"aa"], [b"row"])

    def test_floor_below_rows_that_are_not_there(self, store: Store) -> None:
        """A task's first run may have written thousands of rows that its second must not see."""
        keys = [key(number) for number in range(20_000)]
        store.state.apply(0, 1, 0, [StateWrite(TABLE, [b"", keys[15_000]], [b"first", b"later"])])
        store.state.apply(0, 2, 1, [StateWrite(TABLE, keys, [b"new"] * len(keys))])
        lows = [(b"", len(keys))]
        floor = store.state.floor(0, TABLE, keys, lows, 1)
        assert (floor.keys, floor.rows) == ([b"", keys[15_000]], [b"first", b"later"])
        assert floor.runs == [(0, 15_000), (1, 5_000)]
        store.state.apply(0, 3, 2, [StateWrite(TABLE, [b"", *keys], [None] * 20_001)])
        assert store.state.floor(0, TABLE, keys, lows, 3) == Floor([(NONE, len(keys))], [], [])

    @pytest.mark.parametrize("seed", range(5))
    def test_changes_lead_from_epoch_to_epoch(self, store: Store, seed: int) -> None:
        """Changes, replayed upon the rows of any kept epoch, give the rows of each later one."""
        source = random.Random(seed)
        keys = [key(number) for number in range(12)]
        for epoch in range(1, 9):
            chosen = source.sample(keys, source.randrange(6))
            rows = [source.choice([None, b"a", b"b", b"c" * 9]) for _ in chosen]
            for _ in range(source.choice([1, 2])):  # a task may run twice
                store.state.apply(
                    0, epoch, 2 if epoch > 2 else 0, [StateWrite(TABLE, chosen, rows)]
                )
            if source.random() < 0.3:
                store.state.sweep(0, min(epoch - 1, 2))
        store.state.apply(0, 9, 2, [StateWrite(TABLE, keys, [b"not published"] * 12)])
        with pytest.raises(EpochGone):
            store.state.changes(0, TABLE, 1, 8, limit=99)
        assert store.state.changes(0, OTHER, 2, 8, limit=99).keys == []
        assert store.state.changes(1, TABLE, 2, 8, limit=99).keys == []
        for after in range(2, 9):
            for low, high in ((0, 12), (3, 7)):
                stop = keys[high] if high < 12 else None
                changes = changes_of(store, after, 8, source.choice([1, 3, 99]), keys[low], stop)
                rows_now = rows_at(store, after, keys[low], stop)
                for epoch in range(after + 1, 9):
                    for changed, versions in changes.items():
                        assert versions[0] == (after, rows_at(store, after).get(changed))
                        assert all(a[1] != b[1] for a, b in pairwise(versions))
                        for stamped, body in versions[1:]:
                            if stamped == epoch and body is None:
                                del rows_now[changed]
                            elif stamped == epoch and body is not None:
                                rows_now[changed] = body
                    assert rows_now == rows_at(store, epoch, keys[low], stop)

    def test_applying_again_changes_nothing(self, store: Store) -> None:
        writes = [StateWrite(TABLE, [key(1), key(2)], [b"x", None])]
        store.state.apply(0, 1, 0, [StateWrite(TABLE, [key(2)], [b"y"])])
        for _ in range(3):
            store.state.apply(0, 2, 1, writes)
            assert store.state.get(0, TABLE, [key(1), key(2)], 1) == [None, b"y"]
            assert store.state.get(0, TABLE, [key(1), key(2)], 2) == [b"x", None]

    def test_an_older_epoch_is_fenced(self, store: Store) -> None:
        store.state.apply(0, 5, 4, [StateWrite(TABLE, [key(1)], [b"new"])])
        with pytest.raises(Fenced):
            store.state.apply(0, 4, 3, [StateWrite(TABLE, [key(1), key(2)], [b"old", b"old"])])
        assert store.state.get(0, TABLE, [key(1), key(2)], None) == [b"new", None]
        store.state.apply(1, 4, 3, [StateWrite(TABLE, [key(1)], [b"other shard"])])

    def test_an_empty_apply_still_fences(self, store: Store) -> None:
        store.state.apply(0, 5, 4, [])
        with pytest.raises(Fenced):
            store.state.apply(0, 4, 3, [])

    @pytest.mark.parametrize("many", [1, 5_000], ids=["few", "many"])
    def test_a_reverted_epoch_has_written_nothing(self, store: Store, many: int) -> None:
        keys = [key(number) for number in range(many)]
        store.state.apply(0, 1, 0, [StateWrite(TABLE, keys, [b"one"] * many)])
        store.state.apply(0, 2, 1, [StateWrite(TABLE, keys[:1], [None])])
        before = store.sizes().tables
        rows = {at: rows_at(store, at) for at in (1, 2)}
        new = [key(number) for number in range(many, 2 * many)]
        writes = [
            StateWrite(TABLE, keys, [b"three"] * many),
            StateWrite(TABLE, new, [b"new"] * many),
            StateWrite(OTHER, keys, [b"other"] * many),
        ]
        store.state.apply(0, 3, 1, writes)
        store.state.revert(0, 2, 3)
        for at in (1, 2):
            assert rows_at(store, at) == rows[at]
        assert rows_at(store, 3) == rows_at(store, None) == rows[2]
        assert store.state.scan(0, OTHER, limit=1, at=None).keys == []
        after = store.sizes().tables
        assert {t: size for t, size in after.items() if size.rows} == before
        assert store.state.changes(0, TABLE, 2, 3, limit=10).keys == []

    def test_a_reverted_epoch_is_fenced_on_shards_that_it_had_not_reached(
        self, store: Store
    ) -> None:
        store.state.apply(0, 3, 2, [StateWrite(TABLE, [key(1)], [b"x"])])
        for shard in range(store.state.shards):
            store.state.revert(shard, 2, 3)
            with pytest.raises(Fenced):
                store.state.apply(shard, 3, 2, [StateWrite(TABLE, [key(1)], [b"late"])])
            store.state.apply(shard, 4, 2, [StateWrite(TABLE, [key(1)], [b"next"])])
            assert store.state.get(shard, TABLE, [key(1)], 3) == [None]
            assert store.state.get(shard, TABLE, [key(1)], 4) == [b"next"]

    def test_reverting_late_or_again_changes_nothing(self, store: Store) -> None:
        store.state.apply(0, 1, 0, [StateWrite(TABLE, [key(1)], [b"one"])])
        store.state.apply(0, 2, 1, [StateWrite(TABLE, [key(1)], [b"two"])])
        for _ in range(2):
            store.state.revert(0, 1, 2)
            assert store.state.get(0, TABLE, [key(1)], None) == [b"one"]
        store.state.apply(0, 3, 1, [StateWrite(TABLE, [key(1)], [b"three"])])
        store.state.revert(0, 1, 2)  # by a driver that was replaced meanwhile
        assert store.state.get(0, TABLE, [key(1)], 3) == [b"three"]
        assert store.state.get(0, TABLE, [key(1)], 2) == [b"one"]

    def test_a_row_whose_return_was_reverted_is_swept(self, store: Store) -> None:
        store.state.apply(0, 1, 0, [StateWrite(TABLE, [key(1), key(2)], [b"one", b"two"])])
        store.state.apply(0, 2, 1, [StateWrite(TABLE, [key(1)], [None])])
        store.state.apply(0, 3, 2, [StateWrite(TABLE, [key(1)], [b"again"])])
        store.state.sweep(0, 2)
        store.state.revert(0, 2, 3)
        assert store.state.get(0, TABLE, [key(1), key(2)], None) == [None, b"two"]
        store.state.sweep(0, 2)
        assert store.sizes().tables[TABLE].rows == 1

    def test_versions_before_the_horizon_are_gone(self, store: Store) -> None:
        for epoch in range(1, 6):
            store.state.apply(0, epoch, max(epoch - 2, 0), [StateWrite(TABLE, [key(1)], [b"v"])])
        assert store.state.get(0, TABLE, [key(1)], 3) == [b"v"]
        for read in (
            lambda: store.state.get(0, TABLE, [key(1)], 2),
            lambda: store.state.scan(0, TABLE, limit=1, at=2),
        ):
            with pytest.raises(EpochGone):
                read()

    def test_sweep_removes_deleted_rows_only(self, store: Store) -> None:
        keys = [key(number) for number in range(20)]
        store.state.apply(0, 1, 0, [StateWrite(TABLE, keys, [b"1"] * 20)])
        store.state.apply(0, 2, 1, [StateWrite(TABLE, keys[:15], [None] * 15)])
        store.state.apply(0, 3, 1, [StateWrite(TABLE, keys[:5], [b"3"] * 5)])
        store.state.apply(0, 4, 1, [StateWrite(TABLE, keys[:2], [None] * 2)])
        assert not store.state.sweep(0, 1)
        assert store.state.get(0, TABLE, keys, 1) == [b"1"] * 20
        rounds = 1
        while store.state.sweep(0, 2, budget=4):
            rounds += 1
        assert rounds >= 3
        assert store.state.get(0, TABLE, keys, 2) == [None] * 15 + [b"1"] * 5
        assert store.state.get(0, TABLE, keys, 3) == [b"3"] * 5 + [None] * 10 + [b"1"] * 5
        assert not store.state.sweep(0, 4)
        assert (
            store.state.get(0, TABLE, keys, 4) == [None] * 2 + [b"3"] * 3 + [None] * 10 + [b"1"] * 5
        )

    def test_drop_within_a_budget(self, store: Store) -> None:
        keys = [key(number) for number in range(20)]
        for table in (TABLE, OTHER):
            store.state.apply(0, 1, 0, [StateWrite(table, keys, [b"1"] * 20)])
        rounds = 1
        while store.state.drop(0, TABLE, budget=6):
            rounds += 1
        assert rounds >= 3
        assert store.state.scan(0, TABLE, limit=99, at=None).keys == []
        assert store.state.scan(0, OTHER, limit=99, at=None).keys == keys

    def test_sizes_follow_the_rows(self, store: Store) -> None:
        def size(table: int) -> TableSize:
            return store.sizes().tables.get(table, TableSize())

        keys = [key(number) for number in range(6)]
        for _ in range(2):  # applying again changes nothing
            for shard in (0, 1):
                store.state.apply(shard, 1, 0, [StateWrite(TABLE, keys, [b"1"] * 6)])
            store.state.apply(0, 1, 0, [StateWrite(OTHER, keys[:2], [b"12", b"3"])])
        first = size(TABLE)
        assert (first.rows, size(OTHER).rows) == (12, 2)
        assert first.bytes > 12 * (len(keys[0]) + 1)
        store.state.apply(0, 2, 1, [StateWrite(TABLE, keys, [None] * 5 + [b"long" * 9])])
        while store.state.sweep(0, 2):
            pass
        assert size(TABLE).rows == 7
        while store.state.drop(0, TABLE) or store.state.drop(1, TABLE):
            pass
        assert size(TABLE) == TableSize()
        assert size(OTHER).rows == 2

    def test_an_oversize_key_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidRow):
            store.state.apply(0, 1, 0, [StateWrite(TABLE, [b"k" * 600], [b"1"])])


class MetaSuite:
    """Meta records."""

    def test_compare_and_set(self, store: Store) -> None:
        assert store.meta.get("a") is None
        assert not store.meta.cas("a", b"1", b"2")
        assert store.meta.cas("a", None, b"1")
        assert not store.meta.cas("a", None, b"2")
        assert store.meta.cas("a", b"1", b"2")
        assert store.meta.get("a") == b"2"
        assert store.meta.cas("a", b"2", None)
        assert store.meta.cas("a", None, None)
        assert store.meta.get("a") is None

    def test_scan_by_prefix(self, store: Store) -> None:
        for name in ("view/b", "view/a", "plan/1", "view", "viewer", "é/1"):
            assert store.meta.cas(name, None, name.encode())
        assert [name for name, _ in store.meta.scan("view/")] == ["view/a", "view/b"]
        assert store.meta.scan("é") == [("é/1", "é/1".encode())]
        assert len(store.meta.scan("")) == 6
        assert store.meta.scan("nothing") == []

    def test_sizes(self, store: Store) -> None:
        store.tables.write([put(range(10))])
        sizes = store.sizes()
        assert sizes.base_bytes > 0
        assert sizes.state_bytes > 0
        assert sum(sizes.log_operations.values()) == 10
