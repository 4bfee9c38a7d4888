"""The edit distance of two texts.

Law: its time is bounded, whatever the texts are: beyond the bound there is no value.
"""

from __future__ import annotations

_MOST_COMPARED = 64_000_000  # pairs of characters, which take a tenth of a second


def levenshtein(a: str, b: str) -> int | None:
    """How many characters to insert, delete or change; None for texts that are too long.

    Myers' algorithm: the differences between neighbours of a column are the bits of two numbers.
    Each character of the longer text costs some operations on numbers of as many bits as the
    shorter one has characters.
    """
    if len(a) * len(b) > _MOST_COMPARED:
        return None
    a, b = sorted((a, b), key=len, reverse=True)
    if not b:
        return len(a)
    places: dict[str, int] = {}
    for i, y in enumerate(b):
        places[y] = places.get(y, 0) | 1 << i
    last, every = 1 << len(b) - 1, (1 << len(b)) - 1
    up, down, distance = every, 0, len(b)
    for x in a:
        same = places.get(x, 0)
        zero = (((same & up) + up) ^ up) | same | down
        right, left = down | ~(zero | up) & every, up & zero
        distance += bool(right & last) - bool(left & last)
        right = right << 1 | 1
        up, down = (left << 1 | ~(zero | right)) & every, right & zero & every
    return distance
