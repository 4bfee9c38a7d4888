"""The id of a database, by which its tokens are told from those of others.

Law: a database has one id, made with it, for ever; a copy of its files has the same. A database of
an earlier version gets one when it is first asked for.
"""

from __future__ import annotations

import secrets

from viewkeep.stores.contract import Store

_RECORD = "database"


def database_id(store: Store) -> str:
    """The id: some hexadecimal digits."""
    found = store.meta.get(_RECORD)
    if found is None:
        store.meta.cas(_RECORD, None, secrets.token_hex(6).encode())
        found = store.meta.get(_RECORD)  # another process may have been first
    assert found is not None
    return found.decode()
