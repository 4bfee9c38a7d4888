"""The store contract: what a key-value store must do to carry base tables, logs, state and views.

A store speaks bytes. It knows tables by number, keys as order-preserving bytes (`codec.keys`) and
rows as row bytes (`codec.rows`); it knows nothing of SQL, plans or Spark. A `Store` bundles five
parts, each a small contract in a file of its own:

- `log`: what was written, in order, and cuts of it;
- `tables`: the rows of base tables as they are now, and writing them;
- `state`: versioned rows of state tables, in shards;
- `views`: the published tables, for those who read them;
- `meta`: small records with compare-and-set.

Beside them, `blobs` are what the changelog of state that is kept elsewhere asks of a store.

Law, on which all else rests: a read of state at epoch e sees exactly the writes stamped at or
before e, and applying the same writes of an epoch again changes nothing.
"""

from viewkeep.stores.contract.blobs import Blobs, Missing
from viewkeep.stores.contract.cut import BEGINNING, START, Cut, united
from viewkeep.stores.contract.log import Log, LogBatch, LogSplit
from viewkeep.stores.contract.meta import Meta
from viewkeep.stores.contract.named import NamedTable, NamedView
from viewkeep.stores.contract.rows import (
    NONE,
    ROW_BYTES,
    CellChunk,
    Changed,
    Chunk,
    Floor,
    Found,
    KeyRange,
)
from viewkeep.stores.contract.state import State, TableSize
from viewkeep.stores.contract.store import Capabilities, Sizes, Store, Unreadable
from viewkeep.stores.contract.tables import ABSENT, Kind, Tables, TableWrite
from viewkeep.stores.contract.versioned import StateWrite, Versioned
from viewkeep.stores.contract.views import Views
from viewkeep.stores.contract.waiting import Looks

__all__ = [
    "ABSENT",
    "BEGINNING",
    "NONE",
    "ROW_BYTES",
    "START",
    "Blobs",
    "Capabilities",
    "CellChunk",
    "Changed",
    "Chunk",
    "Cut",
    "Floor",
    "Found",
    "KeyRange",
    "Kind",
    "Log",
    "LogBatch",
    "LogSplit",
    "Looks",
    "Meta",
    "Missing",
    "NamedTable",
    "NamedView",
    "Sizes",
    "State",
    "StateWrite",
    "Store",
    "TableSize",
    "TableWrite",
    "Tables",
    "Unreadable",
    "Versioned",
    "Views",
    "united",
]
