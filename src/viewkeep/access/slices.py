"""Slices: reads by any part of a composite key, with ANY for the parts that may be anything.

Law: a slice holds exactly the rows whose key columns equal the values given, whatever part of the
key they are. The leading values narrow the range that is read; those after an ANY are sought from
one possible key to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from viewkeep.access.writes import Key, named_key
from viewkeep.errors import InvalidRow


class Anything:
    """The type of ANY, the wildcard."""

    def __repr__(self) -> str:
        return "ANY"

    def __reduce__(self) -> str:
        return "ANY"  # there is one


ANY: Final = Anything()


def split_slice(
    given: Key, names: Sequence[str], what: str
) -> tuple[tuple[object, ...], dict[int, object]]:
    """The leading values of a slice, and the later ones by the place of their column.

    A slice is a tuple in key order, ANY for what may be anything and what is left out at the end,
    or a dict of the columns that matter.
    """
    if isinstance(given, Mapping):
        given = named_key(given, names, what)
        values = tuple(given.get(name, ANY) for name in names)
    else:
        values = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(values) > len(names):
        raise InvalidRow(f"the key of {what} is ({', '.join(names)}); got {len(values)} values")
    size = next((at for at, value in enumerate(values) if value is ANY), len(values))
    later = {at: value for at, value in enumerate(values) if at > size and value is not ANY}
    return values[:size], later
