"""A store whose parts come from several others: base tables here, state there, meta elsewhere.

Law: each part is the one of its store, and what the bundle offers is what all of them offer
together. Whether the shards of one store follow the parts of another is not known, so rows find
their shards through an exchange.

    bundle:BASE|STATE|META    each the url of a store, which may be of any kind
"""

from __future__ import annotations

from dataclasses import replace

from viewkeep.errors import StoreError
from viewkeep.stores import create_store, open_store
from viewkeep.stores.contract import Sizes, Store


class Bundle(Store):
    """The log and tables of one store, state and views of a second, and meta records of a third."""

    def __init__(self, base: Store, state: Store, meta: Store):
        self.stores = (base, state, meta)
        self.url = "bundle:" + "|".join(store.url for store in self.stores)
        self.log, self.tables = base.log, base.tables
        self.state, self.views, self.meta = state.state, state.views, meta.meta
        self.capabilities = replace(
            base.capabilities,
            aligned=False,
            shared_state=state.capabilities.shared_state,
            views_apart=state.capabilities.views_apart,
        )

    @classmethod
    def create(cls, path: str, nodes: int = 2, shards: int = 2, durability: str = "full") -> Bundle:
        """Make the three stores; `nodes` are the first one's, and `shards` the second one's."""
        base, state, meta = _urls(path)
        return cls(
            create_store(base, nodes=nodes, shards=nodes, durability=durability),
            create_store(state, nodes=1, shards=shards, durability=durability),
            create_store(meta, nodes=1, shards=1, durability=durability),
        )

    @classmethod
    def open(cls, path: str) -> Bundle:
        """Open three stores that were made."""
        base, state, meta = _urls(path)
        return cls(open_store(base), open_store(state), open_store(meta))

    def ticks(self) -> object:
        base, _, meta = self.stores
        return base.ticks(), meta.ticks()

    def sizes(self) -> Sizes:
        base, state, _ = (store.sizes() for store in self.stores)
        return replace(base, state_bytes=state.state_bytes, tables=state.tables)

    def close(self) -> None:
        for store in self.stores:
            store.close()


def _urls(path: str) -> list[str]:
    urls = path.split("|")
    if len(urls) != 3:
        raise StoreError(f"a bundle has three urls, BASE|STATE|META; {path!r} has {len(urls)}")
    return urls
