"""Bytes beyond what memory should hold: they wait in a file until they are asked for.

Law: what is put is given back as it was; the file has no name, so it goes with its process whatever
happens. It lies in the folder for temporary files (TMPDIR, or the one of the Spark worker).
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from typing import IO, NamedTuple, TypeAlias

Message: TypeAlias = tuple[int, bytes]  # target shard, blob

HELD_BYTES = 64 << 20  # of messages, or of the input of operators, that wait in memory


class Place(NamedTuple):
    """Where bytes lie in a spool."""

    start: int
    size: int


class Spool:
    """A file of bytes, which is made when the first are put there."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0

    def put(self, data: bytes) -> Place:
        """Write bytes; where they are."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="viewkeep-")  # noqa: SIM115 - as long as self
        place = Place(self._end, len(data))
        self._file.seek(place.start)
        self._file.write(data)
        self._end += place.size
        return place

    def get(self, place: Place) -> bytes:
        """The bytes at a place."""
        assert self._file is not None
        self._file.seek(place.start)
        return self._file.read(place.size)


class Mailbox:
    """Messages by shard, as many in memory as should be, the others in a spool."""

    def __init__(self) -> None:
        self._blobs: dict[int, list[bytes | Place]] = {}
        self._spool, self._held = Spool(), 0
        self.size = 0  # bytes of all messages

    def put(self, message: Message) -> None:
        """Take a message."""
        shard, blob = message
        self.size += len(blob)
        self._held += len(blob)
        waiting = self._blobs.setdefault(shard, [])
        if self._held <= HELD_BYTES:
            waiting.append(blob)
        else:
            self._held -= len(blob)
            waiting.append(self._spool.put(blob))

    @property
    def shards(self) -> Collection[int]:
        """The shards that have messages."""
        return self._blobs.keys()

    def take(self, shard: int) -> Iterator[bytes]:
        """The messages of a shard, which are held no longer."""
        waiting = self._blobs.pop(shard, [])
        waiting.reverse()
        while waiting:
            blob = waiting.pop()
            if isinstance(blob, Place):
                yield self._spool.get(blob)
            else:
                self._held -= len(blob)
                yield blob
