"""Damage of the base: every row and every log segment is read, which checks its checksum.

Law: a table or a log that is not reported was read as a whole, and no record of its node is hidden
by damage to the pages that lead to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from viewkeep.errors import Corrupt
from viewkeep.plan.nodes import Source
from viewkeep.stores.contract import Store

_ROWS = 10_000  # read at a time


def damaged_tables(store: Store, tables: Iterable[Source]) -> dict[str, str]:
    """Those of these tables that cannot be read as a whole, each with the reason."""
    found = {}
    hidden = _hidden(store)
    for table in tables:
        try:
            for node in range(store.tables.parts):
                if node in hidden:  # nobody knows of which table
                    raise hidden[node]
                _read_rows(store, node, table.number)
        except Corrupt as error:
            found[table.table] = str(error)
    return found


def damaged_logs(store: Store) -> dict[str, str]:
    """The logs that cannot be read as a whole, each with the reason."""
    found = {}
    try:
        splits = store.log.splits(store.log.kept(), store.log.head())
    except Corrupt as error:  # nobody knows where the logs begin or end
        return {"every log": str(error)}
    for split in splits:
        try:
            cells = store.capabilities.cells is not None
            deque((store.log.cells if cells else store.log.read)(split), maxlen=0)
        except Corrupt as error:
            found[split.log] = str(error)
    return found


def _hidden(store: Store) -> dict[int, Corrupt]:
    """The nodes in which records are hidden."""
    found = {}
    for node in range(store.tables.parts):
        try:
            store.tables.check_counts(node)
        except Corrupt as error:
            found[node] = error
    return found


def _read_rows(store: Store, node: int, table: int) -> None:
    start, more = b"", True
    while more:
        chunk = store.tables.scan(node, table, start=start, limit=_ROWS)
        more = chunk.more
        if more:
            start = chunk.keys[-1] + b"\0"
