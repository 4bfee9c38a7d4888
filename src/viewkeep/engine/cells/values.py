"""The rows of a base table out of the states of their cells.

Law: rows of equal states are equal; a row that is not there has no values.
"""

from __future__ import annotations

from viewkeep.codec.cells import physical_decoder
from viewkeep.codec.keys import KeyCodec
from viewkeep.engine.rows.delta import Values
from viewkeep.errors import Corrupt
from viewkeep.ops.cells import row
from viewkeep.ops.cells.row import RowState
from viewkeep.types import Schema


class CellRows:
    """Makes the physical values of rows of one schema."""

    def __init__(self, schema: Schema):
        self._key_codec = KeyCodec(schema.types(schema.key))
        self._keys = [schema.index(name) for name in schema.key]
        self._decoders = [physical_decoder(column.type) for column in schema.columns]
        self._names = schema.names

    def values(self, key: bytes, state: RowState) -> Values | None:
        """The values of a row in the order of the columns; None if it is not there."""
        cells = row.visible(state)
        if cells is None:
            return None
        values: list[object] = [None] * len(self._names)
        for place, data in cells.items():
            try:
                values[place] = self._decoders[place](data)
            except Exception as error:
                name = self._names[place] if place < len(self._names) else f"number {place}"
                raise Corrupt(f"column {name} has a cell with bytes of another type") from error
        whole = key if state.whole_key is None else state.whole_key
        for place, value in zip(self._keys, self._key_codec.physical(whole), strict=True):
            values[place] = value
        return tuple(values)
