"""DuckDB in processes of their own, which can be ended at any moment and then return all memory.

Law: a request ends by its budget's deadline and takes no more than its budget's bytes, whatever
DuckDB is doing. DuckDB's own means do not reach as far: `interrupt` waits for the end of a call of
a scalar function, and its `memory_limit` does not count what such a call allocates.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from viewkeep.deferred import pa, pl
from viewkeep.engine.budget import MIB, Budget
from viewkeep.errors import QueryTooLarge

CHILD = Path(__file__).with_name("child.py")  # not imported here: it brings DuckDB
WARM = 2  # processes that are kept for the next queries
MOST_RESULTS = 1_000_000  # rows of a result
MOST_BYTES = 256 * MIB  # of a result

# Arrow's other allocator reserves a gigabyte at once, which counts as used.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}


class DuckError(Exception):
    """What DuckDB says of a query; `kind` is the name of its class."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class DuckResult:
    """The columns of a query, their types in DuckDB's words, and its rows, if it was run."""

    names: list[str]
    types: list[str]
    table: pa.Table


class DuckRelations:
    """The rows that DuckDB may see, written to memory that both processes share."""

    def __init__(self, budget: Budget):
        self._budget, self._held = budget, 0
        self._file = FileIO(os.memfd_create("viewkeep-relations"), "wb")
        self._parts: list[tuple[str, int, int]] = []

    def add(self, name: str, empty: pa.Table, frames: Iterable[pl.DataFrame] = ()) -> None:
        """Add a relation, a frame at a time; `empty` has its columns."""
        start = self._file.tell()
        with pa.ipc.new_stream(self._file, empty.schema) as writer:
            for frame in frames:
                for batch in frame.to_arrow().to_batches():
                    writer.write_batch(batch)
                more = self._file.tell() - self._held
                self._budget.hold(more, f"reading {name} for DuckDB")
                self._held += more
        self._parts.append((name, start, self._file.tell()))

    def clear(self) -> None:
        """Drop all relations."""
        self._budget.release(self._held)
        self._held, self._parts = 0, []
        self._file.seek(0)
        self._file.truncate()

    def request(self) -> tuple[list[tuple[str, int, int]], int]:
        """The places of the relations, and the file that has them."""
        if not self._file.tell():
            self._file.write(b"\0")  # an empty file cannot be mapped
        return self._parts, self._file.fileno()

    def close(self) -> None:
        """Free the memory."""
        self._file.close()

    def __enter__(self) -> DuckRelations:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class DuckPool:
    """The DuckDB processes that this process has started; threads share them.

    One is started when a query needs it; `WARM` of them wait for the next query.
    """

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def describe(self, text: str, relations: DuckRelations, budget: Budget) -> DuckResult:
        """The columns of a query, which is not run."""
        return self._ask(text, relations, budget, run=False)

    def run(self, text: str, relations: DuckRelations, budget: Budget) -> DuckResult:
        """Run a query."""
        return self._ask(text, relations, budget, run=True)

    def close(self) -> None:
        """End the processes that wait; the pool can still be used."""
        if os.getpid() == self._owner:
            with self._lock:
                idle, self._idle = self._idle, []
            for child in idle:
                child.end()

    def _ask(self, text: str, relations: DuckRelations, budget: Budget, *, run: bool) -> DuckResult:
        budget.take_turn()
        budget.check()
        parts, file = relations.request()
        request = {
            "text": text,
            "relations": parts,
            "run": run,
            "memory": budget.memory,
            "rows": MOST_RESULTS if budget.rows is None else min(budget.rows, MOST_RESULTS),
            "bytes": min(budget.answer, MOST_BYTES),
        }
        with self._child() as child:
            answer, result = child.ask(request, file, budget)
            if answer["large"]:
                child.end()
        with FileIO(result, "rb") as mapped:
            if "error" in answer:
                raise _failure(answer, request, budget)
            table = _table(mapped) if run else pa.table({})
            return DuckResult(answer["names"], answer["types"], table)

    @contextmanager
    def _child(self) -> Iterator[_Child]:
        """A process for one request; it is ended if the request does not end well."""
        if os.getpid() != self._owner:  # after a fork the parent's processes are the parent's
            self._owner, self._lock, self._idle = os.getpid(), threading.Lock(), []
        child = None
        with self._lock:
            while self._idle and (child is None or not child.is_alive):
                child = self._idle.pop()
        if child is None or not child.is_alive:
            child = _Child()
        try:
            yield child
        except BaseException:
            child.end()
            raise
        with self._lock:
            if child.is_alive and len(self._idle) < WARM:
                self._idle.append(child)
                return
        child.end()


POOL = DuckPool()
atexit.register(POOL.close)


class _Child:
    """One process that runs DuckDB."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(CHILD), str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server, which lets queries end
                env=os.environ
                | _ENVIRONMENT
                | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    @property
    def is_alive(self) -> bool:
        """Whether it takes requests; one that had nothing to do for long has ended."""
        return self._socket.fileno() >= 0 and not self._readable(0.0)

    def ask(self, request: dict[str, Any], file: int, budget: Budget) -> tuple[dict[str, Any], int]:
        """The answer to a request and the file of its result; an error ends the process."""
        body = json.dumps(request).encode()
        try:
            socket.send_fds(self._socket, [struct.pack("<I", len(body))], [file])
            self._socket.sendall(body)
            with budget.cancel.calling(self._process.kill):
                if not self._readable(budget.left):
                    raise budget.late()
            head, files, _, _ = socket.recv_fds(self._socket, 4, 1)
            if len(head) == 4:
                (length,) = struct.unpack("<I", head)
                return json.loads(self._received(length)), files[0]
        except OSError:
            pass  # as an end without an answer
        budget.cancel.check()
        raise self._died(budget)

    def end(self) -> None:
        """End the process at once, whatever it does; its memory is free then."""
        self._process.kill()
        self._process.wait()
        self._socket.close()

    def _received(self, left: int) -> bytes:
        parts = []
        while left:
            part = self._socket.recv(left)
            if not part:
                raise OSError("the process ended within its answer")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _readable(self, seconds: float | None) -> bool:
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        return bool(ready.poll(None if seconds is None else seconds * 1000))

    def _died(self, budget: Budget) -> QueryTooLarge:
        """A process that ends without an answer could not get the memory that it needed."""
        status = self._process.wait()
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        return budget.too_large(f"the query ended DuckDB's process ({how}): it probably")


def _failure(answer: dict[str, Any], request: Mapping[str, Any], budget: Budget) -> Exception:
    kind = answer["error"]
    if kind == "rows":
        limit = f"{request['rows']:,} rows"
    elif kind == "bytes":
        limit = f"{request['bytes']:,} bytes"
    elif kind == "memory":
        return budget.too_large("the query, in DuckDB,")
    else:
        return DuckError(kind, answer["message"])
    return QueryTooLarge(
        f"the query gives more than {limit}, which is the limit where DuckDB answers",
        hint="Add a LIMIT, or aggregate",
    )


def _table(file: FileIO) -> pa.Table:
    """The result, which stays where the other process wrote it."""
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    with pa.ipc.open_stream(pa.py_buffer(mapped)) as stream:
        return stream.read_all()
