"""Damaged files: what is read of them was once written, or is refused.

Law: whatever bytes of a file change, a read returns no row that was never stored under its key. It
may be refused (Corrupt), and LMDB may end the process. Damage to LMDB's own pages may hide rows or
bring back older ones (docs/operations.md); how often is counted.
"""

from __future__ import annotations

import os
import pickle
import random
import re
import resource
import shutil
import signal
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from viewkeep.errors import StoreError
from viewkeep.stores import open_store
from viewkeep.stores.contract import Store

from .model import Finding

TIMES = 4  # damages of one database
SECONDS = 30  # that a process may need to read a damaged database
_ALL = 10**6
_TABLES = 40  # more than a round numbers
_ENDED_BY = {signal.SIGBUS, signal.SIGABRT, signal.SIGSEGV}  # how LMDB may end a process

Place = tuple[Any, ...]  # what a value is stored under: "base", a table's number, a key
Record = tuple[Place, Any]
Decode = Callable[[Record], Record]


class Ever:
    """All values that were ever stored under each place; None where a row was deleted."""

    def __init__(self) -> None:
        self.values: dict[Place, set[Any]] = defaultdict(set)

    def note(self, method: str, args: tuple[Any, ...]) -> None:
        """A call of a store, which may store something."""
        if method == "state.apply":
            shard, _, _, writes = args
            for write in writes:
                for key, row in zip(write.key_list, write.rows, strict=True):
                    self.values["state", shard, write.table, bytes(key)].add(row)
        elif method == "meta.cas":
            self.values["meta", args[0]].add(args[2])

    def has(self, place: Place, value: Any) -> bool:
        """Whether a value was ever stored there; an operation of a log is a value of its row."""
        if place[0] == "log":
            place = ("base", place[1], place[4])
        return value in self.values.get(place, ())


def damage(
    rng: random.Random, folder: Path, states: Sequence[int], decode: Decode, ever: Ever
) -> Counter[str]:
    """Damage copies of a database that nothing has open; what came of it.

    `states` are the numbers of its state tables; `ever` has base rows as `decode` gives them.
    """
    happened: Counter[str] = Counter()
    store = open_store(str(folder))
    records = [record for read in _reads(store, states) for record in read()]
    store.close()
    sound = dict(map(decode, records))
    values = [value for _, value in records if value is not None and len(value) > 3]
    copy = folder.with_name("damaged")
    for _ in range(TIMES):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        what = _spoil(rng, *_place(rng, copy, values))
        try:
            happened[_outcome(copy, states, decode, sound, ever)] += 1
        except Finding as finding:
            raise Finding(f"{what} are damaged: {finding}") from finding
    shutil.rmtree(copy, ignore_errors=True)
    return happened


def _place(rng: random.Random, folder: Path, values: Sequence[bytes]) -> tuple[Path, int]:
    """A file and where to damage it: anywhere, or in or beside a record of now or of before."""
    files = sorted(folder.glob("*/data.mdb"))
    file = rng.choice(files)
    if values and rng.random() < 0.7:
        value = rng.choice(values)
        found = [
            (each, match.start())
            for each in files
            for match in re.finditer(re.escape(value), each.read_bytes())
        ]
        if found:
            file, start = rng.choice(found)
            return file, max(0, start + rng.randrange(-24, len(value) + 4))
    return file, rng.randrange(file.stat().st_size)


def _spoil(rng: random.Random, file: Path, offset: int) -> str:
    """Change bytes of a file: one, a few side by side, or a sector."""
    content = bytearray(file.read_bytes())
    length = min(rng.choice((1, 1, 1, 8, 512)), len(content) - offset)
    content[offset : offset + length] = (
        bytes(length) if rng.random() < 0.3 else rng.randbytes(length)
    )
    file.write_bytes(content)
    return f"{length} bytes at {offset} of {file.parent.name}"


def _outcome(
    copy: Path, states: Sequence[int], decode: Decode, sound: Mapping[Place, Any], ever: Ever
) -> str:
    """What a process of its own comes to that reads all of it."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        _tell(theirs, ours, copy, states)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if -code in _ENDED_BY:
        return "damage that ends a process"
    if code or not told:
        raise Finding(f"reading ends with {code}: {told.decode(errors='replace')}")
    records, is_refused, is_noticed = pickle.loads(told)
    found = dict(map(decode, records))
    for place, value in found.items():
        if (place not in sound or sound[place] != value) and not ever.has(place, value):
            raise Finding(f"{place} is {value!r}, which it never was")
    if is_refused:
        return "damage refused"
    if found == sound:
        return "damage without effect"
    return "damage that hides rows, noticed" if is_noticed else "damage that hides rows"


def _tell(theirs: int, ours: int, copy: Path, states: Sequence[int]) -> None:
    """In a child: read everything, write it to the pipe, and end."""
    code = 1
    try:
        os.close(ours)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what LMDB says before it aborts
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        found, is_refused, is_noticed = list[Record](), False, False
        try:
            store = open_store(str(copy))
        except StoreError:
            is_refused = True
        else:
            for read in _reads(store, states):
                try:
                    found += read()
                except StoreError:
                    is_refused = True
            for node in range(store.tables.parts):
                try:
                    store.tables.check_counts(node)
                except StoreError:
                    is_noticed = True
        with open(theirs, "wb") as pipe:
            pickle.dump((found, is_refused, is_noticed), pipe)
        code = 0
    except BaseException:
        os.write(theirs, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _reads(store: Store, states: Sequence[int]) -> Iterator[Callable[[], list[Record]]]:
    """Everything that can be read, piece by piece: where it is stored, and the bytes."""
    for node in range(store.tables.parts):
        for table in range(1, _TABLES):
            yield lambda node=node, table=table: _base(store, node, table)  # type: ignore[misc]
        yield lambda node=node: _log(store, node)  # type: ignore[misc]
    for shard in range(store.state.shards):
        for table in states:
            yield lambda shard=shard, table=table: _state(store, shard, table)  # type: ignore[misc]
    yield lambda: [(("meta", key), value) for key, value in store.meta.scan("")]


def _base(store: Store, node: int, table: int) -> list[Record]:
    chunk = store.tables.scan(node, table, limit=_ALL)
    return [(("base", table, key), row) for key, row in zip(chunk.keys, chunk.rows, strict=True)]


def _log(store: Store, node: int) -> list[Record]:
    split = store.log.splits(store.log.kept(), store.log.head())[node]
    return [
        (("log", batch.table, node, offset, key), row)
        for batch in store.log.read(split)
        for offset, key, row in zip(
            batch.offsets.tolist(), batch.keys.to_list(), batch.rows.to_list(), strict=True
        )
    ]


def _state(store: Store, shard: int, table: int) -> list[Record]:
    chunk = store.state.scan(shard, table, limit=_ALL, at=None)
    place = ("state", shard, table)
    return [((*place, key), row) for key, row in zip(chunk.keys, chunk.rows, strict=True)]
