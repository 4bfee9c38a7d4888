"""State that any worker can take over: a changelog of its writes, and replicas of it.

Law: a write of state is durable in the changelog before it is applied anywhere; a replica is a
cache of the changelog, and may be lost at any time.
"""

from viewkeep.stores.changelog.blobs import BlobChangelog
from viewkeep.stores.changelog.contract import (
    DROP,
    REVERT,
    Changelog,
    Different,
    Entry,
    Listing,
    Missing,
)
from viewkeep.stores.changelog.files import files_of

__all__ = [
    "DROP",
    "REVERT",
    "BlobChangelog",
    "Changelog",
    "Different",
    "Entry",
    "Listing",
    "Missing",
    "files_of",
]
