"""What blobs must do, in whatever store or file system they lie.

A test module subclasses `BlobSuite` and has a fixture `blobs_factory`, a function that opens the
same blobs anew each time, as another process would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import pytest

from viewkeep.stores.contract import Blobs, Missing

BlobsFactory = Callable[[], Blobs]


@pytest.fixture
def blobs(blobs_factory: BlobsFactory) -> Blobs:
    return blobs_factory()


class BlobSuite:
    def test_a_blob_is_put_once(self, blobs: Blobs, blobs_factory: BlobsFactory) -> None:
        assert blobs.put("a/b", b"one")
        assert not blobs.put("a/b", b"two")
        other = blobs_factory()
        assert not other.put("a/b", b"")
        assert other.get("a/b") == b"one"
        assert other.size("a/b") == 3

    def test_what_is_not_there(self, blobs: Blobs) -> None:
        blobs.put("a/b", b"one")
        with pytest.raises(Missing):
            blobs.get("a/c")
        assert blobs.size("a/c") == 0
        assert blobs.names("c") == []
        blobs.remove("a/c")
        blobs.remove_folder("c")
        assert blobs.get("a/b") == b"one"

    def test_names_of_a_folder(self, blobs: Blobs, blobs_factory: BlobsFactory) -> None:
        for name in ("f/b/2", "f/b/1", "f/b-c", "f/b0", "f/bb/x/y", "f/a", "g/z", "top"):
            blobs.put(name, name.encode())
        other = blobs_factory()
        assert other.names("f") == ["a", "b", "b-c", "b0", "bb"]
        assert other.names("f/b") == ["1", "2"]
        assert other.names("f/bb") == ["x"]
        assert other.names("") == ["f", "g", "top"]
        assert other.names("f/bb/x/y/z") == []

    def test_removal(self, blobs: Blobs, blobs_factory: BlobsFactory) -> None:
        for name in ("f/b/2", "f/b/1", "f/b-c", "f/b0"):
            blobs.put(name, b"")
        blobs.remove("f/b-c")
        blobs.remove("f/b-c")
        assert blobs_factory().names("f") == ["b", "b0"]
        blobs.remove_folder("f/b")
        blobs.remove_folder("f/b")
        assert blobs_factory().names("f") == ["b0"]
        assert blobs.put("f/b/1", b"again")
        assert blobs_factory().get("f/b/1") == b"again"

    def test_a_folder_of_many(self, blobs: Blobs) -> None:
        names = [f"{number:05d}" for number in range(250)]
        for name in names:
            blobs.put(f"many/{name}", name.encode())
        assert blobs.names("many") == names
        blobs.remove_folder("many")
        assert blobs.names("many") == []

    def test_empty_and_large_ones(self, blobs: Blobs, blobs_factory: BlobsFactory) -> None:
        large = Random(1).randbytes(8 << 20)
        assert blobs.put("empty", b"")
        assert blobs.put("large", large)
        other = blobs_factory()
        assert other.get("empty") == b""
        assert not other.put("empty", b"x")
        assert other.get("large") == large
        assert other.size("large") == len(large)

    def test_long_names(self, blobs: Blobs) -> None:
        name = "/".join(["n" * 59, "m" * 60])
        blobs.put(name, b"long")
        assert blobs.get(name) == b"long"

    def test_of_many_writers_one_puts(self, blobs_factory: BlobsFactory) -> None:
        """And nobody sees a part of what it puts."""
        failures, won = list[BaseException](), list[tuple[int, int]]()
        contents = [bytes([writer]) * 20_000 for writer in range(4)]

        def write(writer: int) -> None:
            mine = blobs_factory()
            try:
                for number in range(20):
                    if mine.put(f"race/{number}", contents[writer]):
                        won.append((number, writer))
                    for name in mine.names("race"):
                        assert mine.get(f"race/{name}") in contents
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=[writer]) for writer in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert sorted(number for number, _ in won) == list(range(20))
        last = blobs_factory()
        assert all(last.get(f"race/{number}") == contents[writer] for number, writer in won)


__all__ = ["BlobSuite", "BlobsFactory", "blobs"]
