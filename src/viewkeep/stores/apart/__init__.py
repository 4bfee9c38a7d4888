"""A store whose state lies on each worker's own disk, and is durable in a changelog.

Law: every worker can run any shard: what its disk lacks, it replays from the changelog.
"""

from viewkeep.stores.apart.state import ApartState
from viewkeep.stores.apart.store import ApartStore, release_state, share_state

__all__ = ["ApartState", "ApartStore", "release_state", "share_state"]
