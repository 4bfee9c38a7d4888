"""The embedded default store: LMDB environments in a local folder."""

from viewkeep.stores.lmdb.store import LmdbStore

__all__ = ["LmdbStore"]
