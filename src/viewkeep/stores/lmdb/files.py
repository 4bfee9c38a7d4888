"""What can be told of a damaged file when it is opened, before any record is read.

Law: a file that passes is long enough to be mapped, and is read as its last transaction left it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import lmdb

from viewkeep.errors import Corrupt

# Pages freed in the transaction that made them are never written, so a sound file may lack a few.
_UNWRITTEN_PAGES = 64
_TRANSACTION_AT = 144  # bytes into each of the two pages that say where the trees begin
_LOOKS = 10  # at those pages, since another process may write them meanwhile


def check_file(path: Path, env: lmdb.Environment) -> None:
    """Refuse an environment whose file was cut short or damaged at its beginning."""
    _check_length(path, env)
    _check_beginning(path, env)


def _check_length(path: Path, env: lmdb.Environment) -> None:
    """Refuse a file that was cut: reading past its end would kill the process."""
    needed = (env.info()["last_pgno"] + 1 - _UNWRITTEN_PAGES) * env.stat()["psize"]
    size = (path / "data.mdb").stat().st_size
    if size < needed:
        raise Corrupt(f"{path / 'data.mdb'} is cut short: {size} bytes of at least {needed}")


def _check_beginning(path: Path, env: lmdb.Environment) -> None:
    """Refuse a file that would be read as an earlier transaction left it.

    Each transaction writes one of the two first pages in turn, and LMDB goes by the later number.
    """
    page = int(env.stat()["psize"])
    with open(path / "data.mdb", "rb") as file:
        for _ in range(_LOOKS):
            pages = os.pread(file.fileno(), 2 * page, 0)
            first, second = (
                int.from_bytes(pages[at : at + 8], sys.byteorder)
                for at in (_TRANSACTION_AT, page + _TRANSACTION_AT)
            )
            if abs(first - second) <= 1:
                return
    raise Corrupt(f"{path / 'data.mdb'} is damaged: its first pages do not follow on each other")
