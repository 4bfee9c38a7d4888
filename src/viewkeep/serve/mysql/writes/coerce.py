"""Values that clients write as values of a column: converted as MySQL does, or refused.

Law: a conversion keeps the value: '12' may become 12, but 1.5 does not become 2 and a text that is
too long is not cut. MySQL in its strict mode refuses the same, except that it rounds numbers.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, InvalidOperation
from typing import Any

from viewkeep.serve.mysql.catalog.declare import Declared
from viewkeep.serve.mysql.faults import Fault
from viewkeep.types import DataType

RANGES = {
    "tinyint": (-(2**7), 2**7 - 1),
    "smallint": (-(2**15), 2**15 - 1),
    "mediumint": (-(2**23), 2**23 - 1),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
    "tinyint unsigned": (0, 2**8 - 1),
    "smallint unsigned": (0, 2**16 - 1),
    "mediumint unsigned": (0, 2**24 - 1),
    "int unsigned": (0, 2**32 - 1),
    "bigint unsigned": (0, 2**64 - 1),
}
_TOO_FINE = re.compile(r"\.\d{6}\d*[1-9]")


def coerced(value: Any, column: Declared, type: DataType) -> Any:
    """A value as one of the column."""
    if value is None:
        if not column.nullable:
            raise Fault(1048, "23000", f"Column '{column.name}' cannot be null")
        return None
    made: Any
    try:
        made = _CONVERT["DECIMAL" if type.is_decimal else type.name](value, type)
    except (ValueError, TypeError, ArithmeticError, KeyError) as error:
        raise _refused(value, column) from error
    if column.type in RANGES:
        low, high = RANGES[column.type]
        if not low <= made <= high:
            raise Fault(1264, "22003", f"Out of range value for column '{column.name}': {made}")
    if column.length is not None and len(made) > column.length:
        raise Fault(
            1406, "22001", f"Data too long for column '{column.name}': {column.length} at most"
        )
    return made


def _refused(value: Any, column: Declared) -> Fault:
    shown = repr(value)[:60]
    if column.type in ("date", "datetime(6)"):
        return Fault(1292, "22007", f"{shown} is no value of column '{column.name}' {column.type}")
    return Fault(
        1366, "HY000", f"column '{column.name}' is {column.type} and cannot hold {shown} as it is"
    )


def _boolean(value: Any, type: DataType) -> bool:
    number = _integer(value, type)
    if number not in (0, 1):
        raise ValueError("not 0 or 1")
    return bool(number)


def _integer(value: Any, type: DataType) -> int:
    if isinstance(value, str):
        value = Decimal(value.strip())
    if isinstance(value, bytes):
        raise ValueError("bytes are no number")
    number = int(value)
    if number != value:
        raise ValueError("not whole")
    return number


def _double(value: Any, type: DataType) -> float:
    if isinstance(value, bytes):
        raise ValueError("bytes are no number")
    return float(value)


def _decimal(value: Any, type: DataType) -> Decimal:
    if isinstance(value, bytes):
        raise ValueError("bytes are no number")
    number = Decimal(repr(value) if isinstance(value, float) else value)
    try:
        exact = number.quantize(Decimal(1).scaleb(-type.scale))
    except InvalidOperation as error:
        raise ValueError("too many digits") from error
    if exact != number or exact.adjusted() >= type.precision - type.scale:
        raise ValueError("digits would be lost")
    return exact


def _string(value: Any, type: DataType) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return "1" if value else "0"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _binary(value: Any, type: DataType) -> bytes:
    return value if isinstance(value, bytes) else _string(value, type).encode()


def _date(value: Any, type: DataType) -> dt.date:
    moment = _timestamp(value, type)
    if moment.time() != dt.time():
        raise ValueError("a time of day would be lost")
    return moment.date()


def _timestamp(value: Any, type: DataType) -> dt.datetime:
    if isinstance(value, dt.datetime):
        moment = value
    elif isinstance(value, dt.date):
        moment = dt.datetime.combine(value, dt.time())
    elif isinstance(value, str):
        if _TOO_FINE.search(value):
            raise ValueError("finer than microseconds")
        moment = dt.datetime.fromisoformat(value.strip())
    else:
        raise ValueError("no time")
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)


_CONVERT = {
    "BOOLEAN": _boolean,
    "INT": _integer,
    "BIGINT": _integer,
    "DOUBLE": _double,
    "DECIMAL": _decimal,
    "STRING": _string,
    "BINARY": _binary,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
}
