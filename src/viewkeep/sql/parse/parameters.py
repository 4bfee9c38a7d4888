"""Parameters of statements: `?` in a text, and the values that take their places in its tree.

Law: a statement with values for its parameters means what it would with the values written out as
constants of their types; a value is never read as SQL.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect as AnyDialect
from sqlglot.errors import SqlglotError, TokenError

from viewkeep.errors import SqlSyntaxError, TypeMismatch
from viewkeep.sql.parse.limits import check_tokens, check_tree, too_nested
from viewkeep.sql.parse.syntax import Dialect, parse, text_of
from viewkeep.sql.parse.templates import MARK

SPARK = "spark"
_MOST_PLACES = 1_000  # after the point, of a value that is written out


def parse_as(text: str, dialect: str = SPARK) -> list[exp.Expr]:
    """The statements of a text in a dialect, as trees of our own."""
    if dialect == SPARK:
        return parse(text)
    try:
        reader = _dialect(dialect)
        tokens = reader.tokenize(text)
        check_tokens(tokens)
        trees = reader.parser().parse(tokens, text)
        for tree in trees:
            if tree is not None:
                check_tree(tree)
        written = [tree.sql(dialect=Dialect, comments=False) for tree in trees if tree is not None]
    except SqlglotError as error:
        reason = str(error).splitlines()[0].rstrip(". ")
        raise SqlSyntaxError(f"syntax error in {dialect}: {reason}") from error
    except RecursionError as error:
        raise too_nested() from error
    return [tree for one in written for tree in parse(one)]


def parse_with_parameters(text: str, dialect: str = SPARK) -> tuple[list[exp.Expr], int]:
    """The statements of a text with every `?` a numbered place, and how many there are."""
    try:
        tokens = _dialect(dialect).tokenize(text)
    except TokenError as error:
        raise SqlSyntaxError(f"syntax error: {error}") from error
    places = [token for token in tokens if token.token_type == TokenType.PLACEHOLDER]
    parts, end = [], 0
    for number, token in enumerate(places):
        parts += [text[end : token.start], f" :{MARK}{number} "]
        end = token.end + 1
    return parse_as("".join([*parts, text[end:]]), dialect), len(places)


def bound(tree: exp.Expr, values: Sequence[exp.Expr]) -> exp.Expr:
    """A copy of a tree with values in its numbered places."""
    holder = exp.Paren(this=tree.copy())  # so that the tree may be a place itself
    for place in list(holder.find_all(exp.Placeholder)):
        number = place_of(place)
        if number is None or number >= len(values):
            raise SqlSyntaxError("a parameter is written as ?", fragment=text_of(place))
        place.replace(values[number].copy())
    made: exp.Expr = holder.this
    made.pop()
    return made


def place_of(tree: exp.Expr) -> int | None:
    """The number of a place; None if the tree is none."""
    if not isinstance(tree, exp.Placeholder) or not tree.name.startswith(MARK):
        return None
    digits = tree.name[len(MARK) :]
    return int(digits) if digits.isdecimal() else None


def check_count(wanted: int, given: Sequence[object]) -> None:
    """Refuse more or fewer values than the statement has parameters."""
    if len(given) != wanted:
        raise SqlSyntaxError(
            f"the statement has {wanted} {'parameter' if wanted == 1 else 'parameters'} (?) and "
            f"{len(given)} {'value was' if len(given) == 1 else 'values were'} given"
        )


def constant_tree(value: object) -> exp.Expr:
    """A Python value as the constant that it is in SQL."""
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int):
        return _signed(str(abs(value)), value < 0)
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return exp.HexString(this=bytes(value).hex())
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(dt.UTC).replace(tzinfo=None)
        return _cast(value.isoformat(" "), "TIMESTAMP")
    if isinstance(value, dt.date):
        return _cast(value.isoformat(), "DATE")
    raise TypeMismatch(
        f"a {type(value).__name__} is no value of SQL",
        hint="Parameters are None, bool, int, float, Decimal, str, bytes, date or datetime",
    )


def _text(value: str) -> exp.Expr:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise TypeMismatch(
            f"{value[:60]!r} is no text: it has half of a surrogate pair",
            hint="Text is what UTF-8 can hold",
        ) from error
    return exp.Literal.string(value)


def _signed(digits: str, negative: bool) -> exp.Expr:
    number = exp.Literal.number(digits)
    return exp.Neg(this=number) if negative else number


def _double(value: float) -> exp.Expr:
    if not math.isfinite(value):
        return _cast(str(value), "DOUBLE")
    text = repr(abs(value))
    return _signed(text if "e" in text else f"{text}e0", math.copysign(1.0, value) < 0)


def _decimal(value: Decimal) -> exp.Expr:
    if not value.is_finite() or not -_MOST_PLACES <= value.adjusted() <= 38:
        raise TypeMismatch(f"{value} is no DECIMAL", hint="A DECIMAL has 38 digits")
    text = format(value.copy_abs(), "f")  # `abs` would round to the digits of a context
    return _signed(text if "." in text else f"{text}.", value < 0)


def _cast(text: str, name: str) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(name, dialect="spark"))


def _dialect(name: str) -> AnyDialect:
    if name == SPARK:
        return Dialect()
    try:
        return AnyDialect.get_or_raise(name)
    except ValueError as error:
        raise SqlSyntaxError(f"there is no SQL dialect {name}") from error
