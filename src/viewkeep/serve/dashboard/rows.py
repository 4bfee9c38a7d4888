"""Rows for people to look at: by key, by the start of a key, of a state table, of a query.

Law: an answer holds at most `MOST_ROWS` rows, and every value comes as text, so that no digit is
lost on its way into a browser; NULL is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from viewkeep.access.incoming import parse_value
from viewkeep.access.results import Result, shown
from viewkeep.database import Database
from viewkeep.deferred import pl
from viewkeep.errors import EpochGone, InvalidRow, UnknownName
from viewkeep.plan.nodes import Delta, Source
from viewkeep.plan.program import Operator, producer_id

MOST_ROWS = 500
_SAMPLE = 20
_TRIES = 3  # at an epoch that is gone before the read ends


def read_rows(
    db: Database, name: str, key: Sequence[str], limit: int, after: str | None, reverse: bool
) -> dict[str, Any]:
    """The row of a whole key, or a page of those whose keys start so. Values come as texts."""
    schema = db.schema(name)
    if len(key) > len(schema.key):
        raise InvalidRow(f"the key of {name} is ({', '.join(schema.key)})")
    pairs = zip(key, schema.key, strict=False)
    values = tuple(parse_value(text, schema[c].type, f"key column {c}") for text, c in pairs)
    page = min(limit, MOST_ROWS)
    found = db.scan(name, prefix=values or None, limit=page, after=after, reverse=reverse)
    whole = len(key) == len(schema.key)
    return {**table_of(found), "name": name, "whole": whole, "next": found.next}


def sample_rows(db: Database, node: str) -> dict[str, Any]:
    """Some rows of a node of the plan: a base table, or what an operator holds."""
    plan = db.catalog.current()
    for source in plan.tables.values():
        if producer_id(source) == node:
            return table_of(db.scan(source.table, limit=_SAMPLE))
    program = plan.program
    operator = program.by_id.get(node)
    if operator is None:
        raise UnknownName(f"the plan has no node {node[:60]}", hint="It may have changed just now")
    for name in sorted(program.placements):
        placement = program.placements[name]
        shown = name in plan.views and placement.table in operator.tables
        if shown and db.epochs.ready(name):
            return table_of(db.scan(name, limit=_SAMPLE))
    if not operator.tables:
        read = " and ".join(title_of(program.by_id[port.producer]) for port in operator.ports)
        return {"columns": [], "rows": [], "epoch": None, "note": f"holds no rows: it reads {read}"}
    if isinstance(operator.node, Delta):
        note = "holds the cells of its table, with timestamps"
        return {"columns": [], "rows": [], "epoch": None, "note": note}
    return _state_rows(db, operator)


def title_of(operator: Operator) -> str:
    """What a reader reads, in a few words."""
    node = operator.node
    inner = getattr(node, "input", None)
    base = f" of {inner.table}" if isinstance(inner, Source) else ""
    return f"state table {operator.rows_table.number}{base}"


def _state_rows(db: Database, operator: Operator) -> dict[str, Any]:
    table = operator.rows_table
    for _ in range(_TRIES):
        epoch = db.epochs.read().published.epoch
        rows: list[bytes] = []
        try:
            for shard in range(db.store.state.shards):
                left = _SAMPLE - len(rows)
                if left:
                    rows += db.store.state.scan(shard, table.number, limit=left, at=epoch).rows
        except EpochGone:
            continue
        frame = table.row_codec.decode(rows)
        return {**_cells(frame), "epoch": epoch}
    raise EpochGone("epochs follow each other too fast to read this one; try again")


def table_of(result: Result) -> dict[str, Any]:
    """A result as columns and rows of texts."""
    frame = result.polars().head(MOST_ROWS)
    return {
        **_cells(frame),
        "epoch": result.epoch,
        "how": result.how,
        "message": result.message,
        "more": max(0, len(result) - MOST_ROWS),
    }


def _cells(frame: pl.DataFrame) -> dict[str, Any]:
    return {
        "columns": [
            {"name": name, "number": dtype.is_numeric()} for name, dtype in frame.schema.items()
        ],
        "rows": [
            [None if value is None else shown(value) for value in row] for row in frame.iter_rows()
        ],
    }
