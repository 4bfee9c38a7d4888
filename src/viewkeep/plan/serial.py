"""Plans as JSON and back: what the store keeps and what workers load.

Law: `decode(encode(x)) == x` for every plan value, and the JSON of equal values is equal. Only the
classes listed here are ever built, so a database from elsewhere cannot run code. Nothing recurses
with the depth of a plan or an expression.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from viewkeep.codec.tablerows import RowLayout, StoredColumn, TableHistory
from viewkeep.expr import Call, Lit, Ref
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Arrange,
    CellSource,
    Filter,
    Frame,
    Join,
    KeyPart,
    Match,
    Named,
    Node,
    Ordering,
    Project,
    Source,
    Threshold,
    TopK,
    Union,
    Values,
    View,
    WantedKeys,
    Window,
    WindowCall,
)
from viewkeep.types import Column, DataType, Schema

CLASSES: dict[str, type[Any]] = {
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
        CellSource,
        WantedKeys,
        Values,
        Filter,
        Project,
        Union,
        Join,
        Aggregate,
        Threshold,
        TopK,
        Window,
        Arrange,
        View,
        Column,
        Schema,
        StoredColumn,
        RowLayout,
        TableHistory,
    )
}


def encode(value: object) -> Any:
    """A plan value as JSON: its parts (nodes and calls), each once and after those it is made of.

    Where a part stands in another, or in the value, is its place among the parts. So the JSON of a
    plan grows with what is different in it, and neither its depth nor its sharing matters. Fields
    that are `optional` are left out where they are None: versions that lack them read the rest.
    """
    parts: list[Any] = []
    places: dict[object, int] = {}  # of a node by its id, of a call by what it is made of
    at: dict[int, int] = {}  # of objects

    def spelt(value: object) -> Any:
        if id(value) in at:
            return {"part": at[id(value)]}
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, tuple):
            return [spelt(item) for item in value]
        tagged = _scalar(value)
        if tagged is not None:
            return tagged
        name = type(value).__name__
        if name not in CLASSES or not dataclasses.is_dataclass(value):
            raise TypeError(f"{name} is not a plan value")
        fields = {
            f.name: spelt(held)
            for f in dataclasses.fields(value)
            if (held := getattr(value, f.name)) is not None or not f.metadata.get("optional")
        }
        return {"is": name, **fields}

    for part in _parts(value):
        made = spelt(part)
        key = json.dumps(made) if isinstance(part, Call) else part.id
        if key not in places:
            places[key] = len(parts)
            parts.append(made)
        at[id(part)] = places[key]
    return {"parts": parts, "value": spelt(value)}


def decode(value: Any) -> Any:
    """The plan value whose `encode` is `value`."""
    parts: list[Any] = []

    def built(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(built(item) for item in value)
        if not isinstance(value, dict):
            return value
        if "is" in value:
            fields = {name: built(item) for name, item in value.items() if name != "is"}
            return CLASSES[value["is"]](**fields)
        ((tag, inner),) = value.items()
        return parts[inner] if tag == "part" else _SCALARS[tag](inner)

    for part in value["parts"]:
        parts.append(built(part))
    return built(value["value"])


def _parts(value: object) -> Iterator[Node | Call]:
    """The nodes and calls in a value, inner ones first, each object once."""
    done: set[int] = set()
    waiting: list[tuple[object, bool]] = [(value, False)]
    while waiting:
        one, ready = waiting.pop()
        if id(one) in done:
            continue
        if ready:
            assert isinstance(one, Call | Node)
            done.add(id(one))
            yield one
            continue
        if isinstance(one, tuple):
            waiting.extend((item, False) for item in reversed(one))
        elif _has_parts(one):
            if isinstance(one, Call | Node):
                waiting.append((one, True))
            names = [field.name for field in dataclasses.fields(one)]  # type: ignore[arg-type]
            waiting.extend((getattr(one, name), False) for name in reversed(names))


def _has_parts(value: object) -> bool:
    return type(value) is CLASSES.get(type(value).__name__) and not isinstance(value, _LEAVES)


def _scalar(value: object) -> dict[str, str] | None:
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
    return None


_LEAVES = (Ref, Lit, KeyPart, Frame, Column, Schema, TableHistory)
_SCALARS: dict[str, Any] = {
    "type": DataType.parse,
    "float": float.fromhex,
    "decimal": Decimal,
    "bytes": base64.b64decode,
    "timestamp": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
}
