"""Files without free pages: each is copied without them, and the copy takes its place.

Law: at every moment each file is whole, the old one or a copy with the same records, so a process
that dies in between leaves the database as it was. Nobody else has the database open meanwhile.

LMDB uses pages again that became free, and never gives them back. To copy the pages in use takes as
long as to write them, and as much room on the disk as the largest file needs.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import lmdb

from viewkeep.errors import Corrupt
from viewkeep.stores.lmdb.commit_record import forget_commits
from viewkeep.stores.lmdb.database import FolderSettings, open_database, read_settings
from viewkeep.stores.lmdb.environment import (
    DATA,
    closed_to_others,
    sync_folder,
    translate_system,
    translated,
)
from viewkeep.stores.lmdb.files import check_file

_DRAFT = "compacted.mdb"


@dataclass(frozen=True)
class Compaction:
    """The bytes of a database's files before and after."""

    before: int
    after: int


def compact_database(path: Path) -> Compaction:
    """Make a database's files smaller; StoreError, and nothing done, if a process has it open."""
    open_database(path).close()  # makes a commit again that a power loss took
    settings = read_settings(path)
    folders = settings.folders()
    with ExitStack() as stack:
        for name, _ in folders:
            stack.enter_context(closed_to_others(path / name))
        before = _size(path, settings)
        for name, dbs in folders:
            _compact(path / name, dbs)
        return Compaction(before, _size(path, settings))


def _size(path: Path, settings: FolderSettings) -> int:
    return sum((path / name / DATA).stat().st_size for name, _ in settings.folders())


def _compact(folder: Path, dbs: tuple[str, ...]) -> None:
    """Copy an environment without its free pages, if that makes it smaller."""
    data, draft = folder / DATA, folder / _DRAFT
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with translated:
                env = _open(data, len(dbs))
                try:
                    check_file(folder, env)
                    forget_commits(folder, env)  # the copy's transactions are numbered anew
                    env.copyfd(file, compact=True)
                    held = _counts(env, dbs)
                finally:
                    env.close()
            os.fsync(file)
        finally:
            os.close(file)
        if draft.stat().st_size >= data.stat().st_size:
            draft.unlink()
            return
        with translated:
            copy = _open(draft, len(dbs))
            try:
                if _counts(copy, dbs) != held:
                    raise Corrupt(f"a copy of {data} has other records than it; nothing was done")
            finally:
                copy.close()
        os.replace(draft, data)
        sync_folder(folder)
    except OSError as error:
        _forget(draft)
        raise translate_system(error, f"cannot compact {data}") from error
    except BaseException:
        _forget(draft)
        raise


def _open(file: Path, dbs: int) -> lmdb.Environment:
    """Open one file to read it, without LMDB's locks: they are ours."""
    return lmdb.open(
        os.fspath(file),
        map_size=max(1 << 20, file.stat().st_size),
        subdir=False,
        readonly=True,
        create=False,
        lock=False,
        max_dbs=dbs,
    )


def _counts(env: lmdb.Environment, dbs: tuple[str, ...]) -> list[int]:
    """The number of records of each named database."""
    with env.begin() as txn:
        return [
            int(txn.stat(env.open_db(name.encode(), txn, create=False))["entries"]) for name in dbs
        ]


def _forget(draft: Path) -> None:
    with suppress(OSError):
        draft.unlink(missing_ok=True)
