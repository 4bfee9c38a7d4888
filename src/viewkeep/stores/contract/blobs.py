"""Blobs: bytes of any size under a name, written once.

Law: a blob has its whole content or is not there. `put` never replaces one, and once it has
returned, the blob is durable and every process finds and lists it.

A store that offers them can hold the changelog of state that is kept elsewhere. Names are text with
slashes, at most 120 characters, and the part before a slash is a folder. A wide-column store needs
one table for it: the name is the row's key, `put` is a conditional write, and `names` and
`remove_folder` are scans of a prefix. Blobs have at most 8 MiB and what one commit of an epoch
writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from viewkeep.errors import StoreError


class Missing(StoreError):
    """A blob is not there, or is no longer there."""


class Blobs(ABC):
    """Blobs in folders. Methods may be called from several threads and processes."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> bool:
        """Make a blob with this content durable; False if there is one of this name."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """The content of a blob. Raises Missing if it is not there."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The names directly in a folder, of blobs and folders, in order; none if it is absent."""

    @abstractmethod
    def size(self, name: str) -> int:
        """The bytes of a blob; 0 if it is not there."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a blob. It may be gone already."""

    @abstractmethod
    def remove_folder(self, name: str) -> None:
        """Remove a folder with all that is in it. It may be gone already."""

    def close(self) -> None:  # noqa: B027
        """Release the connection, if this has one of its own."""
