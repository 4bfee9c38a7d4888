"""Restoring: the tables, rows and views of a backup, in an empty database.

Law: afterwards the tables hold what they held at the backup's moment. Views are created again, and
the pipeline loads them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

from viewkeep.access.backup import Backup, BackupFolder, OnRows
from viewkeep.access.reads import DatabaseReader
from viewkeep.access.writes import BaseTable
from viewkeep.stores.contract import TableWrite

_TABLE = re.compile(r"CREATE TABLE\b")


def restore_into(
    reader: DatabaseReader,
    run: Callable[[str], object],
    write: Callable[[list[TableWrite]], object],
    folder: BackupFolder,
    backup: Backup,
    on_rows: OnRows = lambda *_: None,
) -> None:
    """Create the tables of a backup, write their rows, then create the views.

    `run` runs a statement; `write` takes operations.
    """
    tables = [text for text in backup.statements if _TABLE.match(text)]
    for text in tables:
        run(text)
    for table in backup.tables:
        source = reader.current().tables[table.name]
        base = BaseTable(source)
        for part in table.parts:
            frame = folder.get(part)
            write(base.put_frame(frame, absent=True))
            on_rows(table.name, frame.height)
        for prefix, body in table.companions.items():
            reader.store.meta.cas(f"{prefix}{source.number}", None, base64.b64decode(body))
    for text in backup.statements[len(tables) :]:
        run(text)
