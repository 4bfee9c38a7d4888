"""How much memory state may take, as the database keeps it, and how sizes are written."""

from __future__ import annotations

import re
from typing import Final

from viewkeep.errors import InvalidSetting
from viewkeep.stores.contract import Store

_RECORD: Final = "memory"
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def size_of(text: str | int) -> int:
    """Bytes of a size like 512MB or 1.5GiB."""
    if isinstance(text, int):
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise InvalidSetting(f"{text!r} is no size; write it like 512MB or 1.5GiB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def bound_of(store: Store) -> int | None:
    """The bytes that state may hold; None if there is no bound."""
    raw = store.meta.get(_RECORD)
    return None if raw is None else int(raw)


def keep_bound(store: Store, size: int | None) -> None:
    """Make this the bound of a database; None lifts it."""
    body = None if size is None else str(size).encode()
    while not store.meta.cas(_RECORD, store.meta.get(_RECORD), body):
        pass
