"""Ranges of keys: what a prefix or a range means in key bytes, and rows of many parts in key order.

Law: the rows of a range come in key order whatever number of nodes or shards holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from viewkeep.access.writes import Key, key_tuple
from viewkeep.codec.keys import KEPT, KeyCodec, prefix_end
from viewkeep.errors import InvalidRow
from viewkeep.stores.contract import Chunk

CHUNK = 10_000  # rows asked of a node or shard at a time


@dataclass(frozen=True)
class Bounds:
    """A range of keys: start <= key < stop, backwards if `reverse`, at most `limit` rows."""

    prefix: tuple[object, ...]
    start: bytes
    stop: bytes | None
    limit: int | None = None
    reverse: bool = False


EVERYTHING = Bounds((), b"", None)


def bounds_of(
    codec: KeyCodec,
    names: tuple[str, ...],
    what: str,
    *,
    prefix: Key | None = None,
    range: tuple[Key | None, Key | None] | None = None,
    limit: int | None = None,
    reverse: bool = False,
) -> Bounds:
    """The bounds of a prefix, a range, or a range of the columns after a prefix.

    A range (lo, hi) is half-open: it holds lo and not hi; None leaves that side open.
    """
    if limit is not None and limit < 0:
        raise InvalidRow(f"limit is {limit}; it must not be negative")
    head = () if prefix is None else key_tuple(prefix, names, what)

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
    return Bounds(head, start, stop, limit, reverse)


def merged(
    chunk: Callable[[int, bytes, bytes | None, int], Chunk], parts: Iterable[int], bounds: Bounds
) -> list[tuple[bytes, bytes]]:
    """The rows of all parts in key order, each part read a chunk at a time."""
    found: list[tuple[bytes, bytes]] = []
    several = 0
    for part in parts:
        several += 1
        start, stop, left = bounds.start, bounds.stop, bounds.limit
        while left is None or left > 0:
            size = CHUNK if left is None else min(CHUNK, left)
            got = chunk(part, start, stop, size)
            found.extend(zip(got.keys, got.rows, strict=True))
            if not got.more or not got.keys:
                break
            if bounds.reverse:
                stop = got.keys[-1]
            else:
                start = got.keys[-1] + b"\0"
            left = None if left is None else left - len(got.keys)
    if several > 1:
        # Keys are distinct, so rows are never compared.
        found.sort(reverse=bounds.reverse)
    return found if bounds.limit is None else found[: bounds.limit]
