"""The embedded default store: LMDB environments in a local folder.

Law: a write is whole or has not happened, whatever dies meanwhile, and a record that was damaged on
disk is never returned as if it were right.
"""

from viewkeep.stores.lmdb.store import LmdbStore

__all__ = ["LmdbStore"]
