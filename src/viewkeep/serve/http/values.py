"""Values as JSON: the one place where rows become JSON, and JSON or text becomes values.

Law: what is sent and what is taken are exact and are inverse to each other. Integers are JSON
numbers of any length; DECIMAL is text ("12.50"), and so are DATE ("2024-02-29") and TIMESTAMP
("2024-02-29T12:00:00Z"); BINARY is base64; DOUBLE is a number, or "NaN", "Infinity", "-Infinity".
Taken are also DECIMAL as a number, which is read digit by digit, and any number as text.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from viewkeep.access.incoming import TOO_FINE
from viewkeep.access.writes import named_key
from viewkeep.errors import InvalidRow
from viewkeep.serve.http.pieces import WHOLE, JsonReader, written
from viewkeep.types import DataType, Schema

MEDIA_TYPE = "application/json"

_MOST_EXPONENT = 1_000  # of a number; DOUBLE goes to 308
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def dumps(value: object) -> bytes:
    """A value as JSON in UTF-8."""
    # Half of a surrogate pair can be in an error's quotation; JSON has an escape for it.
    return "".join(written(value, _encode)).encode("utf-8", "backslashreplace")


def loads(text: bytes, most: int = sys.maxsize) -> Any:
    """A JSON document; numbers with a point stay decimal, so that no digit is lost.

    Lists of documents that are read in pieces have at most `most` elements.
    """
    if len(text) <= WHOLE:
        return json.loads(text, cls=_Decoder)
    return JsonReader(_Decoder(), most).read(
        text.decode(json.detect_encoding(text), "surrogatepass")
    )


def row_of(given: Mapping[str, Any], schema: Schema, where: str) -> dict[str, Any]:
    """A row out of a JSON object, by the types of its columns; unknown columns stay as they are.

    They are refused by whoever takes the row, with the table's name.
    """
    row = {}
    for name, value in given.items():
        own = schema.spelt(name)
        row[name] = _typed(value, schema, own, where) if own in schema else value
    return row


def key_of(given: object, schema: Schema, where: str, skip: int = 0) -> tuple[Any, ...]:
    """Key values, or the first ones, out of a JSON value, list or object.

    `skip` key columns were given already.
    """
    names = schema.key[skip:]
    if isinstance(given, Mapping):
        given = named_key(given, names, where)
        first = names[: len(given)]
        if missing := [name for name in first if name not in given]:
            raise InvalidRow(f"{where}: the key starts with {missing[0]}, which is not given")
        given = [given[name] for name in first]
    values = given if isinstance(given, list) else [given]
    if len(values) > len(names):
        raise InvalidRow(f"{where}: the key is ({', '.join(names)}); got {len(values)} values")
    pairs = zip(values, names, strict=False)
    return tuple(_typed(value, schema, name, where) for value, name in pairs)


def check_key(value: object, most: int, where: str) -> None:
    """InvalidRow for a text in a key that is longer than the settings allow."""
    if isinstance(value, str | bytes) and len(value) > most:
        raise InvalidRow(f"{where}: a text in a key has at most {most:,} characters here")


def slice_of(given: Mapping[str, Any], schema: Schema, where: str) -> dict[str, Any]:
    """A slice out of a JSON object of key columns; unknown ones are refused by the read."""
    return row_of(given, schema, where)


def key_of_texts(
    texts: Sequence[str], schema: Schema, where: str, skip: int = 0
) -> tuple[Any, ...]:
    """Key values out of the texts of a URL. An empty one is NULL, but for STRING and BINARY."""
    names = schema.key[skip:]
    types = [schema[name].type for name in names]
    # One text too many is passed on, for `key_of` to say so.
    given = [
        _unquoted(text, types[at]) if at < len(types) else text for at, text in enumerate(texts)
    ]
    return key_of(given, schema, where, skip)


def slice_of_texts(texts: Sequence[str], schema: Schema, where: str) -> dict[str, Any]:
    """A slice out of texts `column=value`."""
    given = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidRow(f"{where}: a slice is column=value, not {text[:60]!r}")
        own = schema.spelt(name)
        given[name] = _unquoted(value, schema[own].type) if own in schema else value
    return slice_of(given, schema, where)


def _unquoted(text: str, type: DataType) -> object:
    """A text of a URL as it would be in JSON."""
    if type.name in ("STRING", "BINARY"):
        return text
    if not text:
        return None
    if type.name == "BOOLEAN":
        return {"true": True, "false": False}.get(text, text)
    return text


def _typed(value: object, schema: Schema, name: str, where: str) -> object:
    if value is None:
        return None
    type = schema[name].type
    take = _TAKE.get(type.name)
    try:
        return value if take is None else take(value)
    except ValueError as error:
        raise InvalidRow(f"{where}: column {name} ({type}): {error}") from error


def _integer(value: object) -> object:
    if isinstance(value, str):
        digits = value[1:] if value[:1] == "-" else value
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 40):
            raise ValueError(f"{value[:60]!r} is no integer")
        return int(value)
    if isinstance(value, Decimal) and abs(value.adjusted()) <= 40 and value == int(value):
        return int(value)  # 3.0
    return value


def _double(value: object) -> object:
    if isinstance(value, str):
        if value.removeprefix("-").isdecimal() and len(value) <= 40:
            return int(value)  # to the last digit, or refused
        value = _NOT_FINITE[value] if value in _NOT_FINITE else _decimal(value)
    if isinstance(value, Decimal):
        number = float(value)
        if math.isinf(number):
            raise ValueError(f"{value} does not fit a DOUBLE")
        return number
    return value


def _exact(value: object) -> object:
    return _decimal(value) if isinstance(value, str) else value


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text[:60]!r} is no number") from None
    if not number.is_finite():
        raise ValueError(f"{text[:60]!r} is not finite")
    return number


def _binary(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"is base64 text, not {_called(value)}")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{value[:60]!r} is no base64") from None


def _date(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f'is text like "2024-02-29", not {_called(value)}')
    try:
        return dt.date.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{value[:60]!r} is no date like 2024-02-29") from None


def _timestamp(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f'is text like "2024-02-29T12:00:00Z", not {_called(value)}')
    if TOO_FINE.search(value):
        raise ValueError(f"{value[:60]!r} is finer than microseconds")
    try:
        moment = dt.datetime.fromisoformat(value)
        return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        message = f"{value[:60]!r} is no timestamp like 2024-02-29T12:00:00Z"
        raise ValueError(message) from None


_TAKE: dict[str, Callable[[object], object]] = {
    "INT": _integer,
    "BIGINT": _integer,
    "DOUBLE": _double,
    "DECIMAL": _exact,
    "BINARY": _binary,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
}


def _called(value: object) -> str:
    """The kind of a JSON value, in JSON's words."""
    match value:
        case bool():
            return "a boolean"
        case int() | Decimal():
            return "a number"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "text"


def _plain(value: object) -> object:
    """What JSON has no form for."""
    match value:
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.isoformat() + "Z"
        case dt.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def _finite(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else _not_finite(value)
        case dict():
            return {name: _finite(held) for name, held in value.items()}
        case list() | tuple():
            return [_finite(held) for held in value]
        case _:
            return value


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _number(text: str) -> Decimal:
    """A number with a point or exponent.

    Whoever makes a whole number of 1e999999999 is busy for ever, so none such gets in.
    """
    number = Decimal(text)
    if abs(number.adjusted()) > _MOST_EXPONENT:
        raise ValueError(f"the exponent of {text[:60]} is out of range")
    return number


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON; send it as text")


class _Decoder(json.JSONDecoder):
    def __init__(self) -> None:
        super().__init__(parse_float=_number, parse_constant=_refuse_constant)


def _encode(value: object) -> str:
    try:
        return _ENCODER.encode(value)
    except ValueError:  # NaN or an infinity, which JSON has not
        return _ENCODER.encode(_finite(value))


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)
