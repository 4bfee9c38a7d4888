"""Many keys at once: the hash that places each, and their order.

Law: `hash_keys` is `hash_key` of each key, and `order` is that of Python's bytes. Keys of one
length, which all but strings make, are the rows of a matrix, and no key is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING
from zlib import crc32

from viewkeep.codec.packed import Packed, list_rows
from viewkeep.codec.physical import FEW, binary_series, packed_series
from viewkeep.deferred import np, pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NARROW = 64  # differing bytes up to which a table for each is faster than a call for each key
_WORD = 8  # bytes that are compared at once
_LONG = 2_048  # bytes of a row that numpy goes through at full speed


def hash_key(key: bytes) -> int:
    """The hash that places a key on a node or shard: crc32."""
    return crc32(key)


def hash_keys(keys: Sequence[bytes] | Packed | pl.Series) -> NDArray[np.uint32]:
    """`hash_key` of each key."""
    if isinstance(keys, pl.Series):
        keys = keys.to_list() if len(keys) <= FEW else packed_series(keys)
    if isinstance(keys, Packed):
        matrix = keys.matrix if len(keys) > FEW else None
        if matrix is not None:
            return hash_rows(matrix)
        keys = keys.all_bytes()
    return np.fromiter(map(crc32, keys), np.uint32, len(keys))


def hash_rows(matrix: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """`hash_key` of each row. crc32 is linear: every byte adds, by XOR, what it would among zeros.

    So a byte in which no rows differ is hashed once, with the first row.
    """
    count, width = matrix.shape
    differ = differing(matrix)
    if len(differ) > _NARROW:
        return np.fromiter(map(crc32, list_rows(matrix)), np.uint32, count)
    hashes = np.full(count, crc32(matrix[0].tobytes()), np.uint32)
    for place in differ.tolist():
        table = _byte_hashes(width - 1 - place)
        hashes ^= (table ^ table[matrix[0, place]])[matrix[:, place]]
    return hashes


@cache
def _byte_hashes(following: int) -> NDArray[np.uint32]:
    """What each byte adds to the hash if so many bytes follow it."""
    zeros = bytes(following)
    alone = np.array([crc32(bytes([byte]) + zeros) for byte in range(256)], np.uint32)
    made: NDArray[np.uint32] = alone ^ alone[0]
    return made


def rising(keys: Sequence[bytes] | Packed | pl.Series) -> bool:
    """Whether each key lies after the one before it, so that they are in order and distinct."""
    if isinstance(keys, Packed):
        matrix = keys.matrix
        if matrix is not None:
            strings = np.ascontiguousarray(matrix).view(f"S{matrix.shape[1]}").reshape(-1)
            return bool((strings[1:] > strings[:-1]).all())
        keys = binary_series("", keys)
    # A list is asked for first: polars is not loaded for it.
    if isinstance(keys, list) or not isinstance(keys, pl.Series):
        return all(map(lt, keys, islice(keys, 1, None)))
    return bool((keys.slice(1) > keys.slice(0, max(len(keys) - 1, 0))).all())


def order(keys: Packed) -> NDArray[np.int64]:
    """The places of these keys, the least key's first.

    Keys of one length are compared as numbers, of those bytes alone in which some differ: mostly
    the low ones of integers.
    """
    matrix = keys.matrix
    if matrix is None:
        return binary_series("", keys).arg_sort().to_numpy().astype(np.int64)
    differ = differing(matrix)
    words = [_numbers(matrix[:, differ[at : at + _WORD]]) for at in range(0, len(differ), _WORD)]
    if len(words) == 1:
        return np.argsort(words[0])
    return np.lexsort(words[::-1]) if words else np.arange(len(keys))


def differing(matrix: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The columns in which some rows differ; many rows are one, since numpy likes them long."""
    count, width = matrix.shape
    many = _LONG // width + 1
    even = count - count % many
    blocks = matrix[:even].reshape(-1, many * width) ^ np.tile(matrix[0], many)
    found = np.bitwise_or.reduce(blocks, axis=0).reshape(many, width).any(axis=0)
    return np.flatnonzero(found | (matrix[even:] != matrix[0]).any(axis=0))


def _numbers(matrix: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Rows of up to eight bytes as numbers in the same order."""
    padded = np.zeros((len(matrix), _WORD), np.uint8)
    padded[:, _WORD - matrix.shape[1] :] = matrix
    return padded.view(">u8").reshape(len(matrix)).astype(np.uint64)
