"""What a read or a statement gives back: rows, as dicts, Arrow, polars or pandas.

A result is a value: it holds its rows in memory and stays what it is whatever is written later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from viewkeep.deferred import pa, pl
from viewkeep.types import DataType

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

SHOWN_ROWS = 40  # rows that `repr` shows
_PIECE_ROWS = 2_000  # rows that are made Python's values at once


class Result:
    """Rows in order, and for a statement that has none a `message` of what it did.

    `affected` counts the rows that INSERT, UPDATE or DELETE changed. `epoch` is the epoch that the
    rows were read at, None for base tables read as they are now. `how` says in which way a SELECT
    read each relation. `next` is where a scan goes on that ended at its limit, else None.
    """

    def __init__(
        self,
        frame: pl.DataFrame | None = None,
        *,
        message: str = "",
        affected: int = 0,
        epoch: int | None = None,
        how: str = "",
        next: str | None = None,
    ):
        self._made: pl.DataFrame | None = frame  # None: it is made of the rows when asked for
        self._rows: Sequence[tuple[Any, ...]] = ()
        self._names: list[str] = []
        self._types: list[DataType] = []
        self.message, self.affected, self.epoch = message, affected, epoch
        self.how, self.next = how, next

    @property
    def _frame(self) -> pl.DataFrame:
        if self._made is None:
            cells = list(zip(*self._rows, strict=True)) or [()] * len(self._names)
            self._made = pl.DataFrame(
                [
                    pl.Series(name, list(values), type.polars)
                    for name, values, type in zip(self._names, cells, self._types, strict=True)
                ]
            )
        return self._made

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._names) if self._made is None else self._made.columns

    @property
    def types(self) -> list[pl.DataType]:
        """The polars types of the columns, in order."""
        if self._made is None:
            return [type.polars for type in self._types]
        return self._made.dtypes

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts of Python values."""
        if self._made is None:
            return [dict(zip(self._names, row, strict=True)) for row in self._rows]
        if self._made.height <= _PIECE_ROWS:
            return self._made.to_dicts()
        return [row for piece in self._pieces() for row in piece.to_dicts()]

    def tuples(self) -> list[tuple[Any, ...]]:
        """The rows as tuples, in the order of `columns`."""
        if self._made is None:
            return list(self._rows)
        if self._made.height <= _PIECE_ROWS:
            return self._made.rows()
        return [row for piece in self._pieces() for row in piece.rows()]

    def _pieces(self) -> Iterator[pl.DataFrame]:
        """The rows in parts: polars lets no other thread run while it makes Python's values."""
        return self._frame.iter_slices(_PIECE_ROWS)

    def one(self) -> dict[str, Any]:
        """The only row; ValueError if there is none or more than one."""
        if len(self) != 1:
            raise ValueError(f"one row was expected, {len(self)} were found")
        return self.rows()[0]

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self._frame.to_arrow()

    def polars(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        return self._frame

    def pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame."""
        return self._frame.to_pandas()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._made is None:
            return iter(self.rows())
        return self._made.iter_rows(named=True)

    def __len__(self) -> int:
        return len(self._rows) if self._made is None else self._made.height

    def table(self, most: int | None = SHOWN_ROWS) -> Table:
        """The first rows as a table for the terminal; all of them where `most` is None."""
        if self._made is None:
            columns = [
                (name, type.is_numeric) for name, type in zip(self._names, self._types, strict=True)
            ]
            return _table(columns, self._rows[:most])
        frame = self._made if most is None else self._made.head(most)
        return table_of(frame, more=len(self) - len(frame))

    def __repr__(self) -> str:
        if not self.columns:
            return self.message or "(no rows)"
        from rich.console import Console

        console = Console(width=120, color_system=None, force_terminal=False)
        with console.capture() as capture:
            console.print(self.table())
        return capture.get().rstrip()


def few_rows(
    names: list[str],
    types: list[DataType],
    rows: Sequence[tuple[Any, ...]],
    *,
    epoch: int | None,
    how: str,
) -> Result:
    """A result of a few rows; a frame is made of them when it is asked for."""
    made = Result.__new__(Result)
    made._made, made._rows, made._names, made._types = None, rows, names, types
    made.message, made.affected, made.epoch, made.how, made.next = "", 0, epoch, how, None
    return made


def table_of(frame: pl.DataFrame, *, title: str | None = None, more: int = 0) -> Table:
    """A terminal table of a frame; numbers to the right, NULL shown as such."""
    columns = [(name, dtype.is_numeric()) for name, dtype in frame.schema.items()]
    return _table(columns, frame.iter_rows(), title=title, more=more)


def _table(
    columns: Sequence[tuple[str, bool]],
    rows: Iterable[tuple[Any, ...]],
    *,
    title: str | None = None,
    more: int = 0,
) -> Table:
    """Of columns given by name and whether they are numbers."""
    from rich.markup import escape
    from rich.table import Table

    caption = f"... and {more:,} more" if more > 0 else None
    table = Table(title=title, caption=caption, header_style="bold", caption_justify="left")
    for name, numbers in columns:
        table.add_column(name, justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*[escape(shown(value)) for value in row])
    return table


def shown(value: object) -> str:
    """One value as text for the terminal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 32 else value[:32].hex() + "..."
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e15 and value != int(value) else repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return str(value)
