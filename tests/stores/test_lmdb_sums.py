"""Checksums: many at once are as one by one, and any damage shows."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.errors import Corrupt
from viewkeep.stores.lmdb import sums

records = st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=90)))


class Named:
    """What an error asks of an environment."""

    def __init__(self, path):
        self.path = path


@given(records, st.integers(1, 200), st.booleans())
def test_many_are_sealed_as_one_by_one(items, count, are_of_one_size):
    if are_of_one_size:
        items = [(b"%08d" % n, b"%040d" % (n * n)) for n in range(count)]
    keys, values = [key for key, _ in items], [value for _, value in items]
    stored = sums.sealed_all(keys, values)
    assert stored == [sums.sealed(key, value) for key, value in items]
    assert {crc32(key + value) for key, value in zip(keys, stored, strict=True)} <= {0}
    sums.check(None, keys, stored)


@given(st.data())
def test_a_damaged_record_among_many_is_named(tmp_path_factory, data):
    items = data.draw(records.filter(bool))
    keys, values = [key for key, _ in items], [value for _, value in items]
    stored = sums.sealed_all(keys, values)
    place = data.draw(st.integers(0, len(items) - 1))
    record = bytearray(keys[place] + stored[place])
    at = data.draw(st.integers(0, len(record) - 1))
    record[at] ^= data.draw(st.integers(1, 255))
    width = len(keys[place])
    keys[place], stored[place] = bytes(record[:width]), bytes(record[width:])
    shard = Named(tmp_path_factory.getbasetemp() / "shard-0")
    with pytest.raises(Corrupt, match=f"table {int.from_bytes(keys[place][:4], 'big')} "):
        sums.check(shard, keys, stored)
    with pytest.raises(Corrupt):
        sums.check_all(shard, [b"absent", *keys], [None, *stored])
