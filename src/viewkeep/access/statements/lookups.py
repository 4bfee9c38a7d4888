"""A SELECT of one row by its whole key, made ready once and then run with other constants.

Law: it answers only what it surely answers as the plan of the same statement would: constants of
the key columns' own types, conditions on whole numbers and text. For all else it gives None.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from viewkeep.access.reads import At, DatabaseReader
from viewkeep.access.relations import TableRelation, ViewRelation
from viewkeep.access.results import Result, few_rows
from viewkeep.errors import InvalidRow
from viewkeep.sql.statements.shapes import Condition, LookupShape, Placeholder
from viewkeep.types import DataType

BY_KEY = "by key"

_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no text in the store has
_RANGES = {"INT": 1 << 31, "BIGINT": 1 << 63}
_KINDS: dict[str, type] = {
    "INT": int,
    "BIGINT": int,
    "STRING": str,
    "BOOLEAN": bool,
    "BINARY": bytes,
    "DATE": dt.date,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_COMPARED = ("INT", "BIGINT", "STRING")
_MOST = 1 << 31
UNFIT: Final = object()


class OtherReader(Exception):
    """The name is read by another reader now: the catalog or the published plan has changed."""


def fitting(values: Sequence[Any], place: Placeholder, type_: DataType) -> Any:
    """The value at a place if it is one of the type as it stands, else UNFIT."""
    value = values[place.number]
    if type(value) is not _KINDS.get(type_.name):
        return UNFIT
    if place.negative:
        if type(value) is not int:
            return UNFIT
        value = -value
    if type(value) is str and not value.isascii() and _SURROGATE.search(value):
        return UNFIT
    limit = _RANGES.get(type_.name)
    return UNFIT if limit is not None and not -limit <= value < limit else value


class PointRead:
    """A lookup over one reader of a table or view; valid while that reader is the one in force."""

    def __init__(
        self, shape: LookupShape, relation: TableRelation | ViewRelation, keys: Sequence[Condition]
    ):
        self.name, self.relation = relation.name, relation
        chosen = shape.columns or tuple((name, name) for name in relation.names)
        self.columns = [(name, relation.schema[inner].type) for name, inner in chosen]
        self._at: At = "stable" if isinstance(relation, ViewRelation) else "latest"
        self.how = f"{self.name} {BY_KEY}"
        self._names = [name for name, _ in chosen]
        self._types = [type for _, type in self.columns]
        self._limit = shape.limit
        self._keys = [(c.place, relation.schema[c.column].type) for c in keys if c.place]
        rest = [condition for condition in shape.conditions if condition not in keys]
        self._rest = [(c.function, c.place, relation.schema[c.column].type) for c in rest]
        self._read = relation.positions([inner for _, inner in chosen] + [c.column for c in rest])
        self._decode = relation.row_codec.decode_one

    def run(self, reader: DatabaseReader, values: Sequence[Any], at: At | None) -> Result | None:
        """The answer; None if these values need the plan. OtherReader if it is out of date."""
        key = []
        for place, type_ in self._keys:
            value = fitting(values, place, type_)
            if value is UNFIT:
                return None
            key.append(value)
        rest = self._constants(values) if self._rest else None
        if rest is UNFIT:
            return None
        most = 1 if self._limit is None else values[self._limit.number]
        if type(most) is not int or not 0 <= most < _MOST:
            return None
        try:
            relation, row, epoch = reader.one(self.name, tuple(key), self._at if at is None else at)
        except InvalidRow:
            return None
        if relation is not self.relation:
            raise OtherReader
        found = []
        if row is not None and most:
            cells = self._decode(row, self._read)
            width = len(self._names)
            if rest is None:
                found.append(cells)
            elif self._holds(cells[width:], rest):
                found.append(cells[:width])
        return few_rows(self._names, self._types, found, epoch=epoch, how=self.how)

    def _constants(self, values: Sequence[Any]) -> Any:
        found = []
        for _, place, type_ in self._rest:
            value = None
            if place is not None:
                # A whole number out of the range of INT is compared with one all the same.
                wide = DataType("BIGINT") if type_.is_integer else type_
                value = fitting(values, place, wide)
                if value is UNFIT:
                    return UNFIT
            found.append(value)
        return found

    def _holds(self, cells: Sequence[Any], constants: Sequence[Any]) -> bool:
        for (function, _, _), cell, constant in zip(self._rest, cells, constants, strict=True):
            if cell is None:
                holds = function == "is_null"
            elif function in _COMPARISONS:
                holds = _COMPARISONS[function](cell, constant)
            else:
                holds = function == "is_not_null"
            if not holds:
                return False
        return True


def point_read(shape: LookupShape, relation: TableRelation | ViewRelation) -> PointRead | None:
    """The lookup over a reader; None if its conditions do not give the whole key."""
    shown = set(relation.names)
    wanted = [inner for _, inner in shape.columns or ()]
    wanted += [condition.column for condition in shape.conditions]
    if not set(wanted) <= shown or not relation.key or not set(relation.key) <= shown:
        return None
    keys = []
    for name in relation.key:
        equal = [c for c in shape.conditions if c.column == name and c.function == "eq"]
        if not equal or relation.schema[name].type.name not in _KINDS:
            return None
        keys.append(equal[0])
    for condition in shape.conditions:
        compared = condition not in keys and condition.place is not None
        if compared and relation.schema[condition.column].type.name not in _COMPARED:
            return None
    return PointRead(shape, relation, keys)
