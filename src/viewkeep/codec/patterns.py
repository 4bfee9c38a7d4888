"""Key patterns: which columns of a key must hold which bytes, and where the next such key may be.

Law: no matching key lies between a key that does not match and what `after` gives for it, nor,
going back, between it and what `before` gives. So a scan that jumps there leaves out nothing. A key
that was cut (see `codec.keys`) matches if what is left of it may match; `fits` tells by its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from viewkeep.codec.keys import KEPT, MAX_KEY, KeyCodec, prefix_end
from viewkeep.codec.physical import WIDTHS

# Whether the key's column lies after the wanted bytes; where; those bytes. A key that matching ones
# may lie on both sides of lacks a zero byte at its end: the next possible key is the very next.
_Gap = tuple[bool, int, bytes]


class KeyPattern:
    """Keys of a codec whose columns equal `values`, given by the place of each column."""

    def __init__(self, codec: KeyCodec, values: Mapping[int, object]):
        self._encoders = {place: codec.column_encoder(place) for place in values}
        self.wanted = {place: self._encoders[place](value) for place, value in values.items()}
        last = max(values, default=-1)
        # What to do with each column up to the last that matters.
        self._steps = [(_width(codec, at), codec.descending[at]) for at in range(last + 1)]

    def gap(self, key: bytes) -> _Gap | None:
        """The first column that does not match; None if all do, or may in a key that was cut."""
        at = 0
        for place, (width, descending) in enumerate(self._steps):
            wanted = self.wanted.get(place)
            if wanted is None:
                at = at + width if width else _end(key, at, descending)
            elif key.startswith(wanted, at):
                at += len(wanted)
            else:
                # Matching keys that were cut have these bytes, then a digest: they may lie before
                # or after any key that has them too.
                sought = wanted[: max(0, KEPT - at)]
                found = key[at : at + len(sought)]
                if found != sought:
                    return found > sought, at, sought
                return None if len(key) >= MAX_KEY else (False, len(key), b"\0")
            if at > KEPT and len(key) >= MAX_KEY:
                return None
        return None

    def matches(self, key: bytes) -> bool:
        """Whether a key matches, or may."""
        return self.gap(key) is None

    @staticmethod
    def after(key: bytes, gap: _Gap) -> bytes | None:
        """The smallest key after one with this gap that may match; None if there is none."""
        greater, at, wanted = gap
        return prefix_end(key[:at]) if greater else key[:at] + wanted

    @staticmethod
    def before(key: bytes, gap: _Gap) -> bytes | None:
        """What all matching keys before one with this gap are less than; None if there is none."""
        greater, at, wanted = gap
        if not greater:
            return key[:at] or None
        return prefix_end(key[:at] + wanted)

    def fits(self, values: Sequence[object]) -> bool:
        """Whether the values of a whole key match."""
        return all(self._encoders[at](values[at]) == want for at, want in self.wanted.items())


def _width(codec: KeyCodec, place: int) -> int:
    """The bytes of a fixed-width column; 0 for others."""
    type = codec.types[place]
    return 0 if type.is_variable else 1 + WIDTHS[type.name]


def _end(key: bytes, at: int, descending: bool) -> int:
    """Where a STRING or BINARY column that starts at `at` ends."""
    null, end = (b"\xff", b"\xff") if descending else (b"\0", b"\0")
    if key[at : at + 1] == null:
        return at + 1
    place = at + 1
    while (place := key.find(end, place)) >= 0:
        if key[place + 1 : place + 2] == end:
            return place + 2
        place += 2
    return len(key)
