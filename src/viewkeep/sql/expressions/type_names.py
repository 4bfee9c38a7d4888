"""SQL type names to column types."""

from __future__ import annotations

from sqlglot import exp

from viewkeep.errors import TypeMismatch
from viewkeep.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    DataType,
    decimal,
)

_TYPES = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": INT,
    "SMALLINT": INT,
    "INT": INT,
    "BIGINT": BIGINT,
    "DOUBLE": DOUBLE,
    "FLOAT": DOUBLE,
    "VARCHAR": STRING,
    "CHAR": STRING,
    "TEXT": STRING,
    "BINARY": BINARY,
    "VARBINARY": BINARY,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "DATETIME": TIMESTAMP,
}
NAMES = "BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p,s), STRING, BINARY, DATE and TIMESTAMP"


_CAST_ONLY_AS_COLUMNS = ("TINYINT", "SMALLINT", "FLOAT")


def type_of(tree: exp.DataType) -> DataType:
    """The column type that a type name stands for; a wider one has every value of a narrower."""
    name = tree.this.name if hasattr(tree.this, "name") else str(tree.this)
    if name == "DECIMAL":
        digits = [int(param.name) for param in tree.expressions] or [10, 0]
        try:
            return decimal(digits[0], digits[1] if len(digits) > 1 else 0)
        except ValueError as error:
            raise TypeMismatch(str(error), fragment=tree.sql("spark")) from error
    if name not in _TYPES or tree.args.get("nested"):
        shown = tree.sql("spark") if tree.expressions else name
        raise TypeMismatch(f"there is no column type {shown}", hint=f"The types are {NAMES}")
    if tree.expressions:
        raise TypeMismatch(
            f"{tree.sql('spark')} has a length, which would not be kept",
            hint=f"Write {_TYPES[name]}",
        )
    return _TYPES[name]


def cast_type(tree: exp.DataType) -> DataType:
    """The type of a CAST: a narrower type than ours would change values, so it is refused."""
    found = type_of(tree)
    if tree.this.name in _CAST_ONLY_AS_COLUMNS:
        raise TypeMismatch(
            f"a cast to {tree.this.name} would keep more than that type can hold",
            hint=f"Cast to {found}",
        )
    return found
