"""Typed expressions as Python functions of one row, generated as source and compiled once.

Law: a generated function gives exactly what `ops.evaluate` gives for the same row. It takes and
gives physical values (`ops.functions.rowform`), evaluates each part of its expressions once, in the
order in which they depend on each other, and calls no library for what Python's operators do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from viewkeep.codec.rowsource import compiled, tuple_source, variables
from viewkeep.codec.scalars import to_physical
from viewkeep.expr import Call, Expr, Lit, Ref, references
from viewkeep.ops.functions import FUNCTIONS
from viewkeep.ops.functions.casts import YEARS
from viewkeep.ops.functions.rowform import RowSite


@dataclass(frozen=True)
class RowFunction:
    """A compiled function: takes the values of `columns`, gives one value for each expression."""

    columns: tuple[str, ...]
    source: str
    call: Callable[..., tuple[Any, ...]]


class NoRowForm(Exception):
    """A function that only its kernel computes, by its name."""


@lru_cache(maxsize=10_000)
def row_function(exprs: tuple[Expr, ...]) -> RowFunction | None:
    """The function that computes these expressions; None if one has a part without a row form."""
    try:
        return generate(exprs)
    except NoRowForm:
        return None


def generate(exprs: Sequence[Expr]) -> RowFunction:
    """The function that computes these expressions; NoRowForm says which part has no row form."""
    columns = tuple(dict.fromkeys(name for expr in exprs for name in references(expr)))
    given = variables(columns)
    writer = RowWriter(dict(zip(columns, given, strict=True)))
    results = [writer.write(expr).source for expr in exprs]
    body = [*writer.lines, f"return {tuple_source(results)}"]
    made = compiled(
        [f"def row({', '.join(given)}):", *(f"    {line}" for line in body)], writer.names
    )
    return RowFunction(columns, made.source, made.call)


@dataclass(frozen=True)
class RowValue:
    """The source of a value that costs nothing to repeat, and whether it may be NULL."""

    source: str
    maybe_null: bool


class RowWriter:
    """Writes one assignment for each distinct call, in the order in which they are needed.

    `columns` are the sources of the values that expressions refer to. The lines stand in a
    function, or in a loop over rows.
    """

    def __init__(self, columns: Mapping[str, str]):
        self._columns = {name: RowValue(source, True) for name, source in columns.items()}
        self.lines: list[str] = []
        self.names: dict[str, object] = {"INFINITY": math.inf, "NAN": math.nan}
        self._known: dict[Expr, RowValue] = {}
        self._values = 0

    def project(self, outputs: Iterable[tuple[str, Expr]]) -> None:
        """From here on, expressions refer to these outputs."""
        made = {name: self.write(expr) for name, expr in outputs}
        self._columns, self._known = made, {}

    def keep_if(self, predicate: Expr) -> None:
        """Pass over the rest of the loop's body unless the predicate is TRUE."""
        self.lines.append(f"if not {self.write(predicate).source}: continue")

    def column(self, name: str) -> RowValue:
        """The value of a column."""
        return self._columns[name]

    def write(self, expr: Expr) -> RowValue:
        """The value of an expression, written after all that it depends on.

        By a stack of its own: expressions may be deeper than Python's.
        """
        waiting = [expr]
        while waiting:
            now = waiting[-1]
            missing = [arg for arg in _arguments(now) if arg not in self._known]
            if missing:
                waiting += reversed(missing)
                continue
            waiting.pop()
            if now not in self._known:
                self._known[now] = self._value(now)
        return self._known[expr]

    def variable(self, expr: Expr) -> str:
        """The name of a variable that has the value of an expression, which may be a constant."""
        source = self.write(expr).source
        return source if source.isidentifier() and source != "None" else self._assign(source)

    def _assign(self, source: str) -> str:
        name = f"v{self._values}"
        self._values += 1
        self.lines.append(f"{name} = {source}")
        return name

    def _value(self, expr: Expr) -> RowValue:
        if isinstance(expr, Ref):
            return self._columns[expr.name]
        if isinstance(expr, Lit):
            return _constant(expr)
        args = [self._known[arg] for arg in expr.args]
        function = FUNCTIONS[expr.function]
        site = RowSite(
            tuple(arg.source for arg in args),
            tuple(arg.type for arg in expr.args),
            expr.type,
            {at: arg.value for at, arg in enumerate(expr.args) if isinstance(arg, Lit)},
            tuple(arg.maybe_null for arg in args),
            self.names,
        )
        source = function.row(site) if function.row else None
        if source is None:
            raise NoRowForm(expr.function)
        if not function.sees_nulls:
            if any(arg.source == "None" for arg in args):
                source = "None"
            elif tests := " or ".join(site.nulls()):
                source = f"None if {tests} else {source}"
        name = self._assign(source)
        if expr.type in YEARS:
            first, last = YEARS[expr.type]
            self.lines.append(
                f"if {name} is not None and not {first} <= {name} <= {last}: {name} = None"
            )
        return RowValue(name, True)


def _arguments(expr: Expr) -> tuple[Expr, ...]:
    return expr.args if isinstance(expr, Call) else ()


def _constant(expr: Lit) -> RowValue:
    if expr.value is None:
        return RowValue("None", True)
    value = to_physical(expr.type)(expr.value)
    if isinstance(value, float) and not math.isfinite(value):
        source = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        return RowValue(source, False)
    return RowValue(repr(value), False)
