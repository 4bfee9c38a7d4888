"""The connection to a Thrift server of HBase, as the calls that viewkeep makes.

Law: a call that may be made twice (reads, writes with timestamps of their own) is made again until
it succeeds or patience is over. Any other that got no answer raises OutcomeUnknown. Nothing but the
errors of `viewkeep.errors` leaves this module.

Any Thrift server of the cluster will do, and any number of processes may share one. A connection
takes a socket for each thread that is in a call, and keeps those that are idle for the next calls.
"""

from __future__ import annotations

import os
import select
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TClient, TException
from thriftpy2.transport import TCyBufferedTransport, TSocket, TTransportException

from viewkeep.errors import OutcomeUnknown, StoreError
from viewkeep.stores.hbase.wire import (
    BadArgument,
    Column,
    Comparison,
    Delete,
    Family,
    Get,
    HBase,
    Mutation,
    Mutations,
    Namespace,
    Put,
    Region,
    RegionLocation,
    Row,
    Scan,
    ServerError,
    Table,
    TableName,
    Times,
)

Answer = TypeVar("Answer")

CONNECT = 5.0  # seconds to reach the server
TIMEOUT = 60.0  # seconds for one answer: HBase itself goes on trying for a while
PATIENCE = 180.0  # seconds in which a call is made again: as long as a region may be unavailable
_FAULT_PATIENCE = 10.0  # the same for a fault within the Thrift server, which seldom passes
_BUFFER = 1 << 16
_LEAST_PAUSE, _MOST_PAUSE = 0.05, 2.0
_MOST_TEXT = 300  # letters of an error of HBase, which may list a table's whole description
_AT_ONCE = 1_000  # rows of one call to get or write


class NoTable(StoreError):
    """A table, or a column family, is not in HBase."""


class HbaseConnection:
    """Calls to one Thrift server, from any number of threads."""

    def __init__(
        self, host: str, port: int, *, timeout: float = TIMEOUT, patience: float = PATIENCE
    ):
        self.host, self.port = host, port
        self.address = f"{host}:{port}"
        self._timeout, self.patience = timeout, patience
        self._idle: list[_Client] = []
        self._inherited: list[_Client] = []  # sockets of the process that we were forked from
        self._is_closed = False
        _connections.add(self)

    # Reads.

    def get(
        self,
        table: str,
        row: bytes,
        columns: Sequence[Column] | None = None,
        *,
        times: Times | None = None,
        versions: int | None = None,
        filter: bytes | None = None,
    ) -> Row:
        """One row as it is at one moment; without key and cells if it is not there."""
        wanted = Get(row, columns, times, versions, filter)
        found: Row = self._again(table, "get", table.encode(), wanted)
        return found

    def get_many(
        self,
        table: str,
        rows: Sequence[bytes],
        columns: Sequence[Column] | None = None,
        *,
        times: Times | None = None,
        versions: int | None = None,
    ) -> list[Row]:
        """Rows in the order of their keys as given, each as it is at one moment."""
        found: list[Row] = []
        for at in range(0, len(rows), _AT_ONCE):
            gets = [Get(row, columns, times, versions) for row in rows[at : at + _AT_ONCE]]
            found += self._again(table, "getMultiple", table.encode(), gets)
        return found

    def scan(
        self,
        table: str,
        start: bytes = b"",
        stop: bytes | None = None,
        columns: Sequence[Column] | None = None,
        *,
        limit: int,
        times: Times | None = None,
        versions: int | None = None,
        reverse: bool = False,
        filter: bytes | None = None,
        attributes: Mapping[bytes, bytes] | None = None,
    ) -> list[Row]:
        """Up to `limit` rows with start <= key < stop in key order, or backwards from the end.

        Each row is as it is at one moment. Fewer than `limit` means that there are no more.
        """
        if limit <= 0 or (stop is not None and stop <= start):
            return []
        low, high = (stop, _before(start)) if reverse else (start, stop)
        # HBase begins backward scans with `start` itself, which is not ours.
        extra = reverse and stop is not None
        wanted = Scan(
            start=low or None,
            stop=high or None,
            columns=columns,
            caching=min(limit + extra, _AT_ONCE * 10),
            versions=versions,
            times=times,
            filter=filter,
            attributes=attributes,
            reversed=reverse or None,
            limit=limit + extra,
        )
        found: list[Row] = self._again(
            table, "getScannerResults", table.encode(), wanted, limit + extra
        )
        if reverse:
            found = [row for row in found if row.key != stop and (row.key or b"") >= start]
        return found[:limit]

    # Writes. Each row's part is atomic, and nothing else is.

    def put(self, table: str, puts: Sequence[Put]) -> None:
        """Put cells, all of which say their timestamps, so that it may be done twice."""
        for at in range(0, len(puts), _AT_ONCE):
            self._again(table, "putMultiple", table.encode(), puts[at : at + _AT_ONCE])

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete with timestamps, so that it may be done twice."""
        for at in range(0, len(deletes), _AT_ONCE):
            # HBase's client removes from the list what it has done, so each call has its own.
            self._again(table, "deleteMultiple", table.encode(), deletes[at : at + _AT_ONCE])

    def mutate(self, table: str, row: bytes, mutations: Sequence[Mutation]) -> None:
        """Several puts and deletes of one row as one, all of which say their timestamps."""
        self._again(table, "mutateRow", table.encode(), Mutations(row, mutations))

    def check_and_mutate(
        self,
        table: str,
        row: bytes,
        column: Column,
        old: bytes | None,
        mutations: Sequence[Mutation],
    ) -> bool:
        """Change a row if a cell has this value (None: is not there, or empty); whether it had.

        It is made once. OutcomeUnknown means that HBase may do it, or may have done it.
        """
        family, qualifier, encoded = column.family, column.qualifier or b"", table.encode()
        change, expected = Mutations(row, mutations), old or b""

        def call(client: Any) -> bool:
            done: bool = client.checkAndMutate(
                encoded, row, family, qualifier, Comparison.EQUAL, expected, change
            )
            return done

        return self._once(table, "checkAndMutate", call)

    # Tables.

    def regions(self, table: str) -> list[Region]:
        """The regions of a table, in the order of their keys."""
        return [location.region for location in self.locations(table)]

    def locations(self, table: str) -> list[RegionLocation]:
        """The same with the servers that have them."""
        found = self._again(table, "getAllRegionLocations", table.encode())
        locations = [one for one in found if not one.region.replica]
        return sorted(locations, key=lambda location: location.region.start or b"")

    def has_table(self, table: str) -> bool:
        found: bool = self._again(table, "tableExists", name_of(table))
        return found

    def describe(self, table: str) -> Table:
        """A table's column families and attributes. Raises NoTable if it is not there."""
        found: Table = self._again(table, "getTableDescriptor", name_of(table))
        return found

    def tables(self, namespace: str) -> list[str]:
        """The tables of a namespace, by their whole names."""
        found = self._again(namespace, "getTableNamesByNamespace", namespace)
        return sorted(text_of(name) for name in found)

    def create_table(
        self,
        table: str,
        families: Sequence[Family],
        splits: Sequence[bytes] = (),
        attributes: Mapping[bytes, bytes] | None = None,
    ) -> bool:
        """Make a table, and its namespace; False if there is one of this name."""
        if self.has_table(table):
            return False
        name = name_of(table)
        self._make_namespace((name.space or b"default").decode())
        described = Table(name, families, attributes)
        # Made again after a lost answer, it exists; and that is what it is asked for.
        with suppress(_Exists):
            self._again(table, "createTable", described, list(splits) or None)
        return True

    def add_family(self, table: str, family: Family) -> None:
        self._again(table, "addColumnFamily", name_of(table), family)

    def change_family(self, table: str, family: Family) -> None:
        self._again(table, "modifyColumnFamily", name_of(table), family)

    def drop_table(self, table: str) -> None:
        """Remove a table. It may be gone already."""
        name = name_of(table)
        with suppress(NoTable, _Disabled):
            self._again(table, "disableTable", name)
        with suppress(NoTable):
            self._again(table, "deleteTable", name)

    def drop_namespace(self, name: str) -> None:
        """Remove a namespace without tables. It may be gone already."""
        with suppress(NoTable):
            self._again(name, "deleteNamespace", name)

    def namespaces(self) -> list[str]:
        found: list[str] = self._again("", "listNamespaces")
        return sorted(found)

    def close(self) -> None:
        """Close the sockets that are idle. Calling it twice is harmless."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _make_namespace(self, name: str) -> None:
        if name not in self.namespaces():
            with suppress(_Exists):
                self._again(name, "createNamespace", Namespace(name))

    def _again(self, subject: str, method: str, *arguments: Any) -> Any:
        """Call until it succeeds: it may have been done before."""
        began, pause = time.monotonic(), _LEAST_PAUSE
        while True:
            patience = self.patience
            try:
                with self._client() as client:
                    return getattr(client, method)(*arguments)
            except _Unreachable as error:
                failure: Exception = StoreError(str(error))
            except (ServerError, BadArgument) as error:
                failure = self._failure(subject, method, error)
                if not isinstance(failure, _Passing):
                    raise failure from error
            except _BROKEN as error:
                failure = StoreError(self._broken(subject, method, error))
                if isinstance(error, TApplicationException):
                    patience = min(patience, _FAULT_PATIENCE)
            if time.monotonic() + pause > began + patience:
                raise failure
            time.sleep(pause)
            pause = min(pause * 2, _MOST_PAUSE)

    def _once(self, subject: str, method: str, call: Callable[[Any], Answer]) -> Answer:
        """Call once; only the way to the server is tried again."""
        deadline, pause = time.monotonic() + self.patience, _LEAST_PAUSE
        while True:
            try:
                with self._client() as client:
                    return call(client)
            except _Unreachable as error:
                if time.monotonic() + pause > deadline:
                    raise StoreError(str(error)) from error
            except (ServerError, BadArgument) as error:
                failure = self._failure(subject, method, error)
                if isinstance(failure, _Passing):
                    raise OutcomeUnknown(str(failure)) from error
                raise failure from error
            except _BROKEN as error:
                raise OutcomeUnknown(self._broken(subject, method, error)) from error
            time.sleep(pause)
            pause = min(pause * 2, _MOST_PAUSE)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """A socket for one call; a failure on the way closes it."""
        if self._is_closed:
            raise StoreError(f"the connection to HBase at {self.address} is closed; open it again")
        client = self._take()
        try:
            yield client.calls
        except (ServerError, BadArgument):
            self._idle.append(client)  # an answer like any other
            raise
        except BaseException:
            client.close()
            raise
        self._idle.append(client)

    def _take(self) -> _Client:
        """An idle socket that the server has not closed, or a new one."""
        while True:
            try:
                client = self._idle.pop()
            except IndexError:
                return _Client(self.host, self.port, self._timeout)
            if client.is_open:
                return client
            client.close()

    def _broken(self, subject: str, method: str, error: Exception) -> str:
        reason = "no answer in time" if isinstance(error, TimeoutError) else _text(error)
        return f"HBase at {self.address}: {method} of {subject or 'the cluster'}: {reason}"

    def _failure(self, subject: str, method: str, error: ServerError | BadArgument) -> StoreError:
        """The error that tells of one of HBase's own; _Passing if a second call may not meet it."""
        reason = _text(error)
        text = f"HBase at {self.address}: {method} of {subject or 'the cluster'}: {reason}"
        for kind, words in _KINDS.items():
            if any(word in reason for word in words):
                return kind(text)
        # For a table that is not there the reason is often no more than its name.
        if reason.endswith(subject) or f"{subject}: 1 time" in reason:
            with suppress(Exception), self._client() as client:
                if not client.tableExists(name_of(subject)):
                    return NoTable(f"HBase at {self.address} has no table {subject}")
        is_lasting = isinstance(error, BadArgument) or error.can_retry is False
        return StoreError(text) if is_lasting else _Passing(text)

    def _begin_anew(self) -> None:
        """In a forked child: leave the parent's sockets to it."""
        self._inherited += self._idle
        self._idle = []


class _Client:
    """One socket, and the calls that are made through it."""

    def __init__(self, host: str, port: int, timeout: float):
        self._socket = TSocket(
            host, port, socket_timeout=int(timeout * 1000), connect_timeout=int(CONNECT * 1000)
        )
        transport = TCyBufferedTransport(self._socket, _BUFFER)
        try:
            transport.open()
        except (TTransportException, OSError) as error:
            raise _Unreachable(
                f"no Thrift server of HBase answers at {host}:{port}; start one "
                "(hbase thrift2 start), or say in the url where it is"
            ) from error
        self.calls = TClient(HBase, TCyBinaryProtocol(transport))
        self._events = select.poll()
        self._events.register(self._socket.sock, select.POLLIN)

    @property
    def is_open(self) -> bool:
        """Whether nothing is to be read: a server that closes an idle socket sends its end."""
        return not self._events.poll(0)

    def close(self) -> None:
        self._socket.close()


class _Unreachable(Exception):
    """There is no way to the server; nothing was sent."""


class _Passing(StoreError):
    """A failure that a later call may not meet."""


class _Exists(StoreError):
    """A table or a namespace exists."""


class _Disabled(StoreError):
    """A table is disabled already."""


_KINDS: dict[type[StoreError], tuple[str, ...]] = {
    NoTable: ("TableNotFound", "NoSuchColumnFamily", "NamespaceNotFound"),
    _Exists: ("TableExists", "NamespaceExist"),
    _Disabled: ("TableNotEnabled",),
    StoreError: ("DoNotRetry", "AccessDenied", "IllegalArgument"),
}


def name_of(table: str) -> TableName:
    """A table's name, with its namespace before a colon if it has one."""
    space, colon, name = table.rpartition(":")
    return TableName(space.encode() if colon else None, name.encode())


def text_of(name: TableName) -> str:
    """The same as text."""
    qualifier = name.qualifier.decode()
    if not name.space or name.space == b"default":
        return qualifier
    return f"{name.space.decode()}:{qualifier}"


def _before(key: bytes) -> bytes:
    """A key before this one, and after most others that are."""
    if not key or key[-1] == 0:
        return key[:-1]
    return key[:-1] + bytes([key[-1] - 1]) + b"\xff" * 8


def _text(error: Exception) -> str:
    """What an error says, in one line."""
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return str(text).strip().splitlines()[0][:_MOST_TEXT]


# ServerError and BadArgument are TExceptions too: catch those first.
_BROKEN = (TException, OSError, EOFError)
_connections: weakref.WeakSet[HbaseConnection] = weakref.WeakSet()


def _after_fork() -> None:
    for connection in _connections:
        connection._begin_anew()


os.register_at_fork(after_in_child=_after_fork)
