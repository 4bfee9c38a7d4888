"""Which rows a request asks for: keys, prefixes, ranges and slices, in URLs and in JSON.

Law: a selection in a URL and the same one in JSON choose the same rows, those that `Database.scan`
chooses for the same arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from viewkeep.access.reads import At
from viewkeep.errors import InvalidRow
from viewkeep.serve.http.values import key_of, key_of_texts, slice_of, slice_of_texts
from viewkeep.types import Schema

PAGE_ROWS = 1_000  # unless a limit is given

Name = Annotated[str, Path(description="A table or view.", examples=["scores"])]
Table = Annotated[str, Path(description="A base table.", examples=["votes"])]
Texts = Sequence[str]
Key = Annotated[
    Texts,
    Query(
        description="The key: one value per key column, repeated in key order.", examples=[["7"]]
    ),
]
AtText = Annotated[
    str | None,
    Query(
        alias="at",
        pattern=r"^(stable|latest|[0-9]{1,18})$",
        description="`stable`: the published epoch (views by default). `latest`: the newest rows "
        "(tables by default). A number: that epoch, if it is kept.",
    ),
]
Limit = Annotated[int, Query(ge=0, le=1 << 31, description="At most so many rows.")]


def at_of(text: str | None) -> At | None:
    """The `at` of a URL."""
    if text is None or text == "stable" or text == "latest":
        return text  # type: ignore[return-value] # one of the two, as the line before says
    return int(text)


class Selected:
    """The rows of a prefix, range or slice, as the parameters of a URL; a dependency of routes."""

    def __init__(
        self,
        prefix: Annotated[
            Texts, Query(description="The first values of the key, repeated in key order.")
        ] = (),
        start: Annotated[
            Texts,
            Query(alias="from", description="The first key, of the columns after the prefix."),
        ] = (),
        stop: Annotated[
            Texts, Query(alias="to", description="The key to stop before, likewise.")
        ] = (),
        slice: Annotated[
            Texts, Query(description="`column=value` of any key column; repeat it for several.")
        ] = (),
    ):
        self._prefix, self._start, self._stop, self._slice = prefix, start, stop, slice

    def arguments(self, schema: Schema, name: str) -> dict[str, Any]:
        """The same as arguments of `Database.scan`."""
        prefix = key_of_texts(self._prefix, schema, name)
        skip = len(prefix)
        if self._slice:
            _refuse_both(prefix, self._start or self._stop)
            return {"slice": slice_of_texts(self._slice, schema, name)}
        start = key_of_texts(self._start, schema, name, skip) if self._start else None
        stop = key_of_texts(self._stop, schema, name, skip) if self._stop else None
        return _bounds(prefix, start, stop)


class Wanted(BaseModel):
    """One part of a batch read: a row by its key, rows by their keys, or rows in key order."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str = Field(description="A table or view.")
    key: Any = Field(None, description="A value, a list in key order, or an object.")
    keys: list[Any] | None = Field(None, description="Several keys.")
    prefix: Any = Field(None, description="The first values of the key.")
    start: Any = Field(None, alias="from", description="The first key after the prefix.")
    stop: Any = Field(None, alias="to", description="The key to stop before.")
    slice: dict[str, Any] | None = Field(None, description="Values of some key columns.")
    limit: int = Field(PAGE_ROWS, ge=0, le=1 << 31)
    reverse: bool = False

    @property
    def by_key(self) -> bool:
        """Whether one row is asked for."""
        return "key" in self.model_fields_set

    def arguments(self, schema: Schema) -> dict[str, Any]:
        """The selection as arguments of `Database.scan`."""
        prefix = () if self.prefix is None else key_of(self.prefix, schema, self.name)
        if self.slice is not None:
            _refuse_both(prefix, self.start is not None or self.stop is not None)
            return {"slice": slice_of(self.slice, schema, self.name)}
        skip = len(prefix)
        start = None if self.start is None else key_of(self.start, schema, self.name, skip)
        stop = None if self.stop is None else key_of(self.stop, schema, self.name, skip)
        return _bounds(prefix, start, stop)


def _bounds(
    prefix: tuple[Any, ...], start: tuple[Any, ...] | None, stop: tuple[Any, ...] | None
) -> dict[str, Any]:
    bounds = None if start is None and stop is None else (start, stop)
    return {"prefix": prefix or None, "range": bounds}


def _refuse_both(prefix: object, bounds: object) -> None:
    if prefix or bounds:
        raise InvalidRow("give a slice, or a prefix and a range, not both")
