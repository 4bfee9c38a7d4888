"""UPDATE and DELETE of rows that a predicate chooses.

Law: the rows written are the rows that were read. Each row is written only if it still holds the
bytes that the predicate saw; if one has changed meanwhile nothing is written, and the statement
reads again. So a statement is atomic, at the price of holding its rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from viewkeep.access.ranges import EVERYTHING
from viewkeep.access.relations import TableRelation
from viewkeep.deferred import pl
from viewkeep.errors import Conflict, DuplicateKey, InvalidRow
from viewkeep.expr import Expr
from viewkeep.ops.evaluate import filter_rows, project
from viewkeep.stores.contract import ABSENT, Kind, Store, TableWrite

Write = Callable[[Sequence[TableWrite]], int]
KeyValues = Sequence[tuple[object, ...]]

TRIES = 10
_PLACE = "#place"


def update(
    store: Store,
    table: TableRelation,
    write: Write,
    assignments: Mapping[str, Expr],
    predicate: Expr | None,
    keys: KeyValues | None,
) -> int:
    """Set columns of the rows that match; the number of rows. `keys` narrows what is read."""

    def writes(found: pl.DataFrame, old_keys: list[bytes], old: list[bytes]) -> list[TableWrite]:
        computed = project(found, tuple(assignments.items()))
        new = found.with_columns(computed).select(table.names)
        base = table.base
        base.refuse_nulls(new)
        rows = base.row_codec.encode(new)
        if not set(assignments) & set(table.key):
            return [TableWrite(base.number, base.row_codec, Kind.PUT, old_keys, rows, expect=old)]
        return _moved(table, old_keys, old, new, rows)

    return _retried(store, table, write, predicate, keys, writes)


def delete(
    store: Store, table: TableRelation, write: Write, predicate: Expr | None, keys: KeyValues | None
) -> int:
    """Delete the rows that match; the number of rows."""

    def writes(found: pl.DataFrame, old_keys: list[bytes], old: list[bytes]) -> list[TableWrite]:
        base = table.base
        return [TableWrite(base.number, base.row_codec, Kind.DELETE, old_keys, expect=old)]

    return _retried(store, table, write, predicate, keys, writes)


def _moved(
    table: TableRelation,
    old_keys: list[bytes],
    old: list[bytes],
    new: pl.DataFrame,
    rows: list[bytes],
) -> list[TableWrite]:
    """Rows whose key changes: the old ones go, then the new ones come, and meet no other row."""
    base = table.base
    new_keys = base.key_codec.encode([new.get_column(name) for name in table.key])
    if len(set(new_keys)) != len(new_keys):
        raise DuplicateKey(f"the UPDATE gives two rows of {table.name} the same key")
    return [
        TableWrite(base.number, base.row_codec, Kind.DELETE, old_keys, expect=old),
        TableWrite(base.number, base.row_codec, Kind.PUT, new_keys, rows, expect=ABSENT),
    ]


def _retried(
    store: Store,
    table: TableRelation,
    write: Write,
    predicate: Expr | None,
    keys: KeyValues | None,
    writes: Callable[[pl.DataFrame, list[bytes], list[bytes]], list[TableWrite]],
) -> int:
    for _ in range(TRIES):
        old_keys, old, found = _matching(store, table, predicate, keys)
        if not old:
            return 0
        try:
            write(writes(found, old_keys, old))
        except DuplicateKey:
            raise
        except Conflict:
            continue  # a row changed between reading and writing
        return len(old)
    raise Conflict(
        f"rows of {table.name} kept changing while the statement ran ({TRIES} tries); "
        "nothing was written. Narrow the predicate, or try again"
    )


def _matching(
    store: Store, table: TableRelation, predicate: Expr | None, keys: KeyValues | None
) -> tuple[list[bytes], list[bytes], pl.DataFrame]:
    """Keys, row bytes and columns of the rows for which the predicate is true."""
    if keys is None:
        pairs = table.scan(store, EVERYTHING, None)
    else:
        wanted = list(dict.fromkeys(_encoded(table, keys)))
        rows = store.tables.get(table.base.number, wanted)
        pairs = [(key, row) for key, row in zip(wanted, rows, strict=True) if row is not None]
    found = table.frame([row for _, row in pairs]).with_row_index(_PLACE)
    if predicate is not None:
        found = filter_rows(found, predicate)
    places = found.get_column(_PLACE).to_list()
    kept = [pairs[place] for place in places]
    return [key for key, _ in kept], [row for _, row in kept], found.drop(_PLACE)


def _encoded(table: TableRelation, keys: KeyValues) -> list[bytes]:
    """Key bytes; a NULL or a value that no key can hold matches nothing."""
    found = []
    for key in keys:
        try:
            found.append(table.base.encode_key(key))
        except InvalidRow:
            continue
    return found
