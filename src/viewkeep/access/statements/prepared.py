"""A statement made ready once, to be run with other values for its parameters.

Law: running it with some values is running its text with those values as constants, in the catalog
as it is then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from viewkeep.access.results import Result
from viewkeep.engine.budget import limited
from viewkeep.types import DataType

if TYPE_CHECKING:
    from viewkeep.access.reads import At
    from viewkeep.access.statements.execute import StatementRunner


class Prepared:
    """One statement with `?` where values come later; threads may share it.

    `parameters` is the number of `?`. `columns` are the names and types of a SELECT's columns, None
    for other statements; where a type depends on a value, it is that for NULL. `is_point` tells
    that the statement reads at most one row by its key, which takes microseconds.
    """

    def __init__(
        self,
        executor: StatementRunner,
        text: str,
        dialect: str,
        parameters: int,
        begin: Callable[[], None] | None = None,
    ):
        self._executor, self.text, self.dialect = executor, text, dialect
        self.parameters, self._begin = parameters, begin
        self._template, self._constants = executor.template(text, dialect)

    @property
    def columns(self) -> list[tuple[str, DataType]] | None:
        return self._executor.columns_of(self.text, self.dialect, self.parameters)

    @property
    def is_point(self) -> bool:
        return self._executor.is_point(self._template)

    def run(
        self,
        *values: Any,
        at: At | None = None,
        max_seconds: float | None = None,
        max_query_memory: int | None = None,
    ) -> Result:
        """Run it with these values, one for each `?`; limits as for `Database.sql`."""
        with limited(max_seconds, max_query_memory):
            if self._begin is not None:
                self._begin()
            known = self._executor.shaped(self._template, self._constants, values, at)
            if known is not None:
                return known
            return self._executor.one(self.text, at, values, self.dialect)

    def point(self, *values: Any, at: At | None = None) -> Result | None:
        """The result if with these values it is one lookup of a key, else None: then `run` it.

        For callers that must not be kept waiting: nothing is scanned, and nothing written.
        """
        if self._begin is not None:
            self._begin()
        if not self._template.is_lookup:
            return None
        return self._executor.shaped(self._template, self._constants, values, at)

    def __repr__(self) -> str:
        return f"<prepared: {self.text}>"
