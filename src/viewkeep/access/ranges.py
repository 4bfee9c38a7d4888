"""Ranges of keys: what a prefix, range or slice is in key bytes, and rows of many parts in order.

Law: the rows of a range come in key order whatever number of nodes or shards holds them; a scan
that goes on by the token of its last page has each row of one epoch once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from zlib import crc32

from viewkeep.access.slices import split_slice
from viewkeep.access.tokens import read_bytes, read_token, write_bytes, write_token
from viewkeep.access.writes import Key, key_tuple
from viewkeep.codec.keys import KEPT, KeyCodec, prefix_end
from viewkeep.codec.patterns import KeyPattern
from viewkeep.engine.budget import hold
from viewkeep.errors import InvalidRow, InvalidToken
from viewkeep.stores.contract import Chunk

CHUNK = 10_000  # rows asked of a node or shard at a time
_PAIR_BYTES = 130  # that a key and a row take besides their bytes
_KIND, _WHAT = "c2", "scan"

Fits = Callable[[bytes, bytes], bool]  # whether a key and its row belong to a slice


@dataclass(frozen=True)
class ScanBounds:
    """A range of keys: start <= key < stop, backwards if `reverse`, at most `limit` rows.

    With `only`, of the keys that match. `origin` identifies the read that a page belongs to, and
    `database` is the id of its database. `last` is the whole key that a page goes on after, if it
    is longer than the store keeps keys (`longkeys`).
    """

    prefix: tuple[object, ...]
    start: bytes
    stop: bytes | None
    limit: int | None = None
    reverse: bool = False
    only: KeyPattern | None = None
    origin: int = 0
    database: str = ""
    last: bytes | None = None

    def page(self) -> ScanBounds:
        """The bounds with room for one row more, which tells whether the page is the last."""
        return self if self.limit is None else replace(self, limit=self.limit + 1)

    def token(self, last: bytes) -> str:
        """Where to go on after a page that ends with this key."""
        return write_token(_KIND, self.database, (f"{self.origin:08x}", write_bytes(last)))

    def after(self, token: str) -> ScanBounds:
        """The bounds of the page after the one that gave this token."""
        parts = read_token(_KIND, self.database, token, _WHAT)
        if len(parts) != 2:
            raise InvalidToken("the token of the scan is damaged; take it over whole")
        if parts[0] != f"{self.origin:08x}":
            raise InvalidToken("the token is of another scan: name, selection or order differ")
        last = read_bytes(parts[1], _WHAT)
        if len(last) > KEPT:
            return replace(self, last=last)
        if self.reverse:
            return replace(self, stop=last if self.stop is None else min(last, self.stop))
        return replace(self, start=max(self.start, last + b"\0"))


EVERYTHING = ScanBounds((), b"", None)


def bounds_of(
    codec: KeyCodec,
    names: tuple[str, ...],
    what: str,
    *,
    prefix: Key | None = None,
    range: tuple[Key | None, Key | None] | None = None,
    slice: Key | None = None,
    limit: int | None = None,
    reverse: bool = False,
    after: str | None = None,
    database: str = "",
) -> ScanBounds:
    """The bounds of a prefix or slice, a range, or a range of the columns after a prefix.

    A range (lo, hi) is half-open: it holds lo and not hi; None leaves that side open. Together with
    a slice it is about the columns after the slice's leading values. `after` is the token of the
    page before, of the database with this id.
    """
    if limit is not None and limit < 0:
        raise InvalidRow(f"limit is {limit}; it must not be negative")
    only = None
    if slice is None:
        head = () if prefix is None else key_tuple(prefix, names, what)
    elif prefix is None:
        head, later = split_slice(slice, names, what)
        try:
            only = KeyPattern(codec, later) if later else None
        except InvalidRow as error:
            raise InvalidRow(f"{what}: {error}") from error
    else:
        raise InvalidRow("give a prefix or a slice, not both: a slice may begin with values")

    def encode(values: tuple[object, ...]) -> bytes:
        if len(values) > len(names):
            raise InvalidRow(f"the key of {what} is ({', '.join(names)}); got {len(values)} values")
        try:
            encoded = codec.encode_one(values)
        except InvalidRow as error:
            raise InvalidRow(f"{what}: {error}") from error
        if len(encoded) >= KEPT:
            raise InvalidRow(f"{what}: a prefix or range bound is longer than {KEPT} bytes")
        return encoded

    start = encode(head)
    stop = prefix_end(start) if start else None
    if range is not None:
        lo, hi = range
        rest = names[len(head) :]
        if lo is not None:
            start = encode(head + key_tuple(lo, rest, what))
        if hi is not None:
            stop = encode(head + key_tuple(hi, rest, what))
    asked = repr((what, start, stop, only and only.wanted, reverse))
    bounds = ScanBounds(head, start, stop, limit, reverse, only, crc32(asked.encode()), database)
    return bounds if after is None else bounds.after(after)


def chunks(
    chunk: Callable[[int, bytes, bytes | None, int], Chunk],
    part: int,
    bounds: ScanBounds,
    fits: Fits | None = None,
) -> Iterator[list[tuple[bytes, bytes]]]:
    """The rows of one part, a chunk at a time."""
    start, stop, left = bounds.start, bounds.stop, bounds.limit
    while left is None or left > 0:
        size = CHUNK if left is None else min(CHUNK, left)
        got = chunk(part, start, stop, size)
        rows = list(zip(got.keys, got.rows, strict=True))
        if fits is not None:
            rows = [pair for pair in rows if fits(*pair)]
        yield rows
        if not got.more or not got.keys:
            return
        if bounds.reverse:
            stop = got.keys[-1]
        else:
            start = got.keys[-1] + b"\0"
        left = None if left is None else left - len(rows)


def merged(
    chunk: Callable[[int, bytes, bytes | None, int], Chunk],
    parts: Iterable[int],
    bounds: ScanBounds,
    fits: Fits | None = None,
) -> list[tuple[bytes, bytes]]:
    """The rows of all parts in key order, each part read a chunk at a time."""
    found: list[tuple[bytes, bytes]] = []
    several = 0
    for part in parts:
        several += 1
        for rows in chunks(chunk, part, bounds, fits):
            size = sum(map(len, chain.from_iterable(rows)))
            hold(size + _PAIR_BYTES * len(rows), "reading rows")
            found.extend(rows)
    if several > 1:
        # Keys are distinct, so rows are never compared.
        found.sort(reverse=bounds.reverse)
    return found if bounds.limit is None else found[: bounds.limit]
