"""Loading a folder that others add files to: each new file is taken once.

Law: the rows of a file are in the table exactly once, whenever the loader is killed and started
again, and however many loaders follow the folder. How far each file is loaded is a row of the
base table `loaded_files`, which one write changes together with a batch of the file's rows, and
only if it still is as the loader saw it.

A file is taken when two looks find it of the same size and age: better still, writers rename it
into the folder when it is whole, as Spark does. A file that grows later is not taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeep.access.files import DataFile, files_inside
from viewkeep.access.load import checked_batch, with_constants
from viewkeep.access.writes import LOAD_ROWS, BaseTable
from viewkeep.errors import Conflict, DuplicateKey, InvalidRow

if TYPE_CHECKING:
    from viewkeep.stores.contract import Tables, TableWrite

PROGRESS = "loaded_files"
PROGRESS_SQL = f"""
    CREATE TABLE IF NOT EXISTS {PROGRESS} (
        target STRING, file STRING, loaded BIGINT, is_whole BOOLEAN,
        PRIMARY KEY (target, file)
    )
"""


@dataclass(frozen=True)
class TakenFile:
    """A file that one look of a loader has taken, or the rest of it."""

    file: str
    rows: int


@dataclass
class FolderLoad:
    """Follows one folder into one table. `progress` is the table `loaded_files`."""

    table: BaseTable
    progress: BaseTable
    tables: Tables
    write: Callable[[Sequence[TableWrite]], object]
    folder: Path
    format: str | None = None
    replace: bool = False
    batch_rows: int = LOAD_ROWS
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)  # size and age at the last look
    _whole: set[str] = field(default_factory=set)
    _mine: bytes | None = None  # the last record of progress that this loader has written

    def look(self, *, settled: bool = False) -> Iterator[TakenFile]:
        """Take what is new. With `settled`, nobody writes to the files any more."""
        for file in self._new():
            name = self._name(file)
            stat = file.path.stat()
            state = (stat.st_size, stat.st_mtime_ns)
            if settled or self._seen.get(name) == state:
                rows = self._take(file, name)
                self._whole.add(name)
                if rows is not None:
                    yield TakenFile(name, rows)
            else:
                self._seen[name] = state

    def _new(self) -> list[DataFile]:
        if not self.folder.is_dir():
            raise InvalidRow(f"{self.folder} is not a folder")
        found = files_inside(self.folder, self.format)
        return [file for file in found if self._name(file) not in self._whole]

    def _name(self, file: DataFile) -> str:
        return str(file.path.relative_to(self.folder))

    def _take(self, file: DataFile, name: str) -> int | None:
        """The rows that were loaded; None if the file was loaded before."""
        key = self.progress.encode_key((self.table.name, name))
        while True:
            begun = self._record(key)
            try:
                return self._load(file, name, begun)
            except Conflict:
                # Was another loader faster? Then its rows are there: go on from where it is.
                if self._record(key) in (begun, self._mine):
                    raise

    def _record(self, key: bytes) -> bytes | None:
        return self.tables.get(self.progress.number, [key])[0]

    def _load(self, file: DataFile, name: str, row: bytes | None) -> int | None:
        known = None if row is None else self.progress.as_dict(row)
        if known is not None and known["is_whole"]:
            return None
        skip = 0 if known is None else int(known["loaded"])
        rows = 0
        with file.open(self.batch_rows) as opened:
            given = with_constants(opened, file, self.table)
            for batch in given.batches:
                first, rows = rows + 1, rows + batch.num_rows
                if rows <= skip:
                    continue
                if first <= skip:  # the batches were of another size
                    batch, first = batch.slice(skip + 1 - first), skip + 1
                try:
                    writes = checked_batch(self.table, batch, first, given.text, self.replace)
                    row = self._advance(writes, name, row, rows, is_whole=False)
                except (InvalidRow, DuplicateKey) as error:
                    at = f"{rows - batch.num_rows:,} rows of it are loaded"
                    raise type(error)(f"{file.path}: {error} ({at})") from error
        self._advance([], name, row, rows, is_whole=True)
        return rows - skip

    def _advance(
        self, writes: list[TableWrite], name: str, before: bytes | None, rows: int, is_whole: bool
    ) -> bytes:
        """Write rows together with how far the file is loaded; the record of that as it is now."""
        record = {"target": self.table.name, "file": name, "loaded": rows, "is_whole": is_whole}
        (advance,) = self.progress.puts(record)
        assert advance.rows is not None
        self.write([replaced(advance, expect=[before]), *writes])
        self._mine = advance.rows[0]
        return self._mine
