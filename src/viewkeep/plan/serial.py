"""Plans as JSON and back: what the store keeps and what workers load.

Law: `decode(encode(x)) == x` for every plan value, and the JSON of equal values is equal. Only the
classes listed here are ever built, so a database from elsewhere cannot run code.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
from decimal import Decimal
from typing import Any

from viewkeep.expr import Call, Lit, Ref
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Arrange,
    Filter,
    Frame,
    Join,
    KeyPart,
    Match,
    Named,
    Ordering,
    Project,
    Source,
    TopK,
    Union,
    Values,
    View,
    Window,
    WindowCall,
)
from viewkeep.types import Column, DataType, Schema

_CLASSES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        Ref,
        Lit,
        Call,
        Named,
        AggregateCall,
        KeyPart,
        Ordering,
        Match,
        Frame,
        WindowCall,
        Source,
        Values,
        Filter,
        Project,
        Union,
        Join,
        Aggregate,
        TopK,
        Window,
        Arrange,
        View,
        Column,
        Schema,
    )
}


def encode(value: object) -> Any:
    """A plan value as JSON: lists for tuples, tagged objects for everything else."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, DataType):
        return {"type": str(value)}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, dt.datetime):
        return {"timestamp": value.isoformat()}
    if isinstance(value, dt.date):
        return {"date": value.isoformat()}
    name = type(value).__name__
    if name not in _CLASSES or not dataclasses.is_dataclass(value):
        raise TypeError(f"{name} is not a plan value")
    fields = {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return {"is": name, **fields}


def decode(value: Any) -> Any:
    """The plan value whose `encode` is `value`."""
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "is" in value:
        fields = {name: decode(item) for name, item in value.items() if name != "is"}
        return _CLASSES[value["is"]](**fields)
    ((tag, inner),) = value.items()
    return _SCALARS[tag](inner)


_SCALARS: dict[str, Any] = {
    "type": DataType.parse,
    "float": float.fromhex,
    "decimal": Decimal,
    "bytes": base64.b64decode,
    "timestamp": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
}
