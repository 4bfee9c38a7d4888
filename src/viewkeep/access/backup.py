"""Backups: the base tables at one cut, and the statements that create tables and views again.

Law: a backup holds every row of every table as it was at one moment, whatever is written while it
runs. A part that is damaged or missing is found before it is used, and nothing that a complete
backup needs is ever changed or removed.

A backup folder keeps many backups. Rows lie in parts: Parquet files that are named by a hash of
their bytes, so a later backup writes only parts that have changed. The rows' keys say where a part
ends, so a row that comes or goes changes one part and moves no others.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from zlib import crc32

from viewkeep.access.definitions import create_statements
from viewkeep.access.ranges import EVERYTHING
from viewkeep.access.reads import DatabaseReader, ReadPoint
from viewkeep.access.relations import TableRelation
from viewkeep.deferred import pl
from viewkeep.errors import BackupError
from viewkeep.stores.contract import Store

VERSION = 1
PART_ROWS = 32_768  # rows of a part in the mean; at most four times as many
PART_BYTES = 32 << 20  # a part ends when its rows have so many bytes
PIN_SECONDS = 60.0
_LEAST_ROWS = PART_ROWS // 4
# What others keep about a table, in records named after its number.
COMPANIONS = ("mysql/table/", "mysql/next/")

OnRows = Callable[[str, int], None]  # a table's name, rows done


@dataclass(frozen=True)
class TableBackup:
    """A table in a backup: its parts in key order, and how many rows they have."""

    name: str
    rows: int
    parts: tuple[str, ...]
    companions: dict[str, str]


@dataclass(frozen=True)
class Backup:
    """One backup. `statements` create its tables, then its views."""

    name: str
    moment: str
    statements: tuple[str, ...]
    tables: tuple[TableBackup, ...]
    nodes: int
    shards: int
    version: int = VERSION

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)


@dataclass(frozen=True)
class BackedUp:
    """What a backup has written: rows in it, parts of it, new parts and their bytes."""

    name: str
    rows: int
    parts: int
    new_parts: int
    new_bytes: int


class BackupFolder:
    """A folder of backups."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._parts, self._backups = self.path / "parts", self.path / "backups"

    def backups(self) -> list[Backup]:
        """The complete backups, the newest last."""
        return [self.read(path.stem) for path in sorted(self._backups.glob("*.json"))]

    def read(self, name: str | None = None) -> Backup:
        """A backup by its name, or the newest."""
        names = sorted(path.stem for path in self._backups.glob("*.json"))
        if not names:
            raise BackupError(f"there is no backup in {self.path}")
        name = names[-1] if name is None else name
        if name not in names:
            raise BackupError(
                f"there is no backup {name} in {self.path}; the newest is {names[-1]}"
            )
        try:
            content = json.loads((self._backups / f"{name}.json").read_bytes())
            if content["version"] != VERSION:
                raise BackupError(
                    f"backup {name} has version {content['version']}, this viewkeep reads "
                    f"{VERSION}; restore it with the viewkeep that made it"
                )
            tables = tuple(
                TableBackup(**{**table, "parts": tuple(table["parts"])})
                for table in content.pop("tables")
            )
            statements = tuple(content.pop("statements"))
            return Backup(tables=tables, statements=statements, **content)
        except (ValueError, KeyError, TypeError) as error:
            raise BackupError(f"backup {name} in {self.path} is damaged: {error}") from error

    def write(self, backup: Backup) -> None:
        """Record a backup whose parts are all there."""
        self._backups.mkdir(parents=True, exist_ok=True)
        body = json.dumps(asdict(backup), indent=1).encode()
        _write_whole(self._backups / f"{backup.name}.json", body)

    def put(self, frame: pl.DataFrame) -> tuple[str, int]:
        """Keep the rows of a frame; the name of their part, and the bytes written, 0 if known."""
        buffer = BytesIO()
        frame.write_parquet(buffer, compression="zstd")
        body = buffer.getvalue()
        name = _part_name(body)
        path = self._part(name)
        if path.exists() and path.stat().st_size == len(body):
            return name, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_whole(path, body)
        return name, len(body)

    def get(self, name: str) -> pl.DataFrame:
        """The rows of a part, exactly as they were saved."""
        try:
            body = self._part(name).read_bytes()
        except FileNotFoundError:
            raise BackupError(f"part {name} is missing in {self.path}") from None
        if _part_name(body) != name:
            raise BackupError(f"part {name} in {self.path} is damaged")
        return pl.read_parquet(BytesIO(body))

    def keep(self, count: int) -> int:
        """Remove all but the newest `count` backups and the parts that only those used.

        Returns the bytes freed. No backup may run into the folder meanwhile.
        """
        backups = self.backups()
        old, kept = backups[: max(0, len(backups) - count)], backups[-count:]
        for backup in old:
            (self._backups / f"{backup.name}.json").unlink()
        used = {part for backup in kept for table in backup.tables for part in table.parts}
        freed = 0
        for path in self._parts.glob("*/*"):
            if path.stem not in used:
                freed += path.stat().st_size
                path.unlink()
        return freed

    def _part(self, name: str) -> Path:
        return self._parts / name[:2] / f"{name}.parquet"


def back_up(
    reader: DatabaseReader, folder: BackupFolder, on_rows: OnRows = lambda *_: None
) -> BackedUp:
    """Write a backup of all tables as they are now; writes and epochs go on meanwhile."""
    store = reader.store
    parts = new_parts = new_bytes = 0
    tables: list[TableBackup] = []
    with reader.snapshot(PIN_SECONDS):  # keeps the log after its cut, and so all that comes now
        plan = reader.current()
        point = reader.head()
        moment = dt.datetime.now(dt.UTC)
        for name in sorted(plan.tables):
            table = reader.table(name)
            ids: list[str] = []
            rows = 0
            for frame in table_parts(reader, table, point):
                part, written = folder.put(frame)
                ids.append(part)
                rows += frame.height
                new_parts, new_bytes = new_parts + bool(written), new_bytes + written
                on_rows(name, frame.height)
            parts += len(ids)
            companions = _companions(store, plan.tables[name].number)
            tables.append(TableBackup(name, rows, tuple(ids), companions))
    backup = Backup(
        name=moment.strftime("%Y%m%dT%H%M%S.%fZ"),
        moment=moment.isoformat(timespec="milliseconds"),
        statements=tuple(create_statements(plan)),
        tables=tuple(tables),
        nodes=store.tables.parts,
        shards=store.state.shards,
    )
    folder.write(backup)
    return BackedUp(backup.name, backup.rows, parts, new_parts, new_bytes)


def table_parts(
    reader: DatabaseReader, table: TableRelation, point: ReadPoint
) -> Iterator[pl.DataFrame]:
    """The rows of a table at a point, cut into parts where the keys say so."""
    rows: list[bytes] = []
    size = 0
    for chunk in reader.chunks_at(table, EVERYTHING, point):
        for key, row in chunk:
            rows.append(row)
            size += len(row)
            if _ends_part(key, len(rows), size):
                yield table.frame(rows)
                rows, size = [], 0
    if rows:
        yield table.frame(rows)


def _part_name(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _ends_part(key: bytes, rows: int, size: int) -> bool:
    if size >= PART_BYTES or rows >= 4 * PART_ROWS:
        return True
    return rows >= _LEAST_ROWS and crc32(key) % (PART_ROWS - _LEAST_ROWS) == 0


def _companions(store: Store, number: int) -> dict[str, str]:
    found = {prefix: store.meta.get(f"{prefix}{number}") for prefix in COMPANIONS}
    return {
        prefix: base64.b64encode(body).decode()
        for prefix, body in found.items()
        if body is not None
    }


def _write_whole(path: Path, body: bytes) -> None:
    """A file that is there whole or not at all, also after power loss."""
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_bytes(body)
    _sync(draft)
    draft.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
