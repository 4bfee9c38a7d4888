"""What a statement gives to its client: rows, or what it has done.

An answer is a value; how it is written in bytes is the business of the connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from viewkeep.deferred import pl
from viewkeep.serve.mysql.protocol.fields import (
    Encoder,
    Field,
    binary_encoders,
    field_of,
    text_encoders,
)
from viewkeep.serve.mysql.protocol.packets import lenenc


class Header:
    """The columns of an answer, and how they are written; made once for answers that repeat."""

    def __init__(self, fields: Sequence[Field]):
        self.fields = fields
        self._definitions: dict[str, list[bytes]] = {}
        self._encoders: dict[tuple[str, bool], list[Encoder]] = {}

    def definitions(self, codec: str) -> list[bytes]:
        """The packets that come before the rows."""
        if codec not in self._definitions:
            made = [field.definition(codec) for field in self.fields]
            self._definitions[codec] = [lenenc(len(self.fields)), *made]
        return self._definitions[codec]

    def encoders(self, codec: str, binary: bool) -> list[Encoder]:
        """How the values of each column are written."""
        if (codec, binary) not in self._encoders:
            make = binary_encoders if binary else text_encoders
            self._encoders[codec, binary] = make(self.fields, codec)
        return self._encoders[codec, binary]


@dataclass(frozen=True)
class RowsAnswer:
    """The rows of a query."""

    header: Header
    rows: Sequence[tuple[Any, ...]]

    @property
    def fields(self) -> Sequence[Field]:
        return self.header.fields


@dataclass(frozen=True)
class Done:
    """A statement without rows: how many it changed, and the first number it gave out."""

    affected: int = 0
    last_id: int = 0
    info: str = ""


Answer: TypeAlias = RowsAnswer | Done


def frame_rows(frame: pl.DataFrame, names: Sequence[str] | None = None) -> RowsAnswer:
    """A frame as an answer, under its own names or others."""
    shown = frame.columns if names is None else names
    fields = [field_of(name, dtype) for name, dtype in zip(shown, frame.dtypes, strict=True)]
    return RowsAnswer(Header(fields), frame.rows())


def text_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> RowsAnswer:
    """Rows of texts and whole numbers, as SHOW gives them; a column of numbers has no text."""
    fields = []
    for place, name in enumerate(names):
        numbers = rows and all(isinstance(row[place], int) for row in rows)
        fields.append(field_of(name, pl.Int64() if numbers else pl.String()))
    return RowsAnswer(Header(fields), [tuple(row) for row in rows])
