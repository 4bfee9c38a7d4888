"""The connection against a server that answers as it is told; `make test-hbase` has a real one."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TApplicationException, TException, TProcessor
from thriftpy2.transport import TBufferedTransport, TSocket

from viewkeep.errors import OutcomeUnknown, StoreError
from viewkeep.stores.hbase.connection import HbaseConnection, NoTable
from viewkeep.stores.hbase.wire import Cell, Column, HBase, Mutation, Put, ServerError

CHECK = Column(b"f", b"q")
CHANGE = [Mutation(put=Put(b"k", [Cell(b"f", b"q", b"v", 1)]))]


class HangUp(Exception):
    """The server ends the connection instead of answering."""


class Answers:
    """What the server does for each call: the next of a list, or what it did last."""

    def __init__(self) -> None:
        self.planned: list[Any] = []
        self.calls: list[str] = []
        self.tables = {"t"}

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)

        def answer(*arguments: Any) -> Any:
            self.calls.append(method)
            if method == "tableExists":
                return arguments[0].qualifier.decode() in self.tables
            outcome = self.planned.pop(0) if len(self.planned) > 1 else self.planned[0]
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        return answer


class Server:
    """A Thrift server on loopback."""

    def __init__(self, answers: Answers):
        self._processor = TProcessor(HBase, answers)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.clients: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for client in self.clients:
            self.hang_up(client)

    def hang_up(self, client: socket.socket) -> None:
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                self.clients.append(client)
                threading.Thread(target=self._handle, args=[client], daemon=True).start()

    def _handle(self, client: socket.socket) -> None:
        protocol = TBinaryProtocol(TBufferedTransport(TSocket(sock=client)))
        with client, suppress(HangUp, TException, OSError, AssertionError):
            while True:
                self._processor.process(protocol, protocol)


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def server(answers: Answers) -> Iterator[Server]:
    with closing(Server(answers)) as made:
        yield made


@pytest.fixture
def connection(server: Server) -> Iterator[HbaseConnection]:
    made = HbaseConnection("127.0.0.1", server.port, timeout=10, patience=10)
    yield made
    made.close()


def test_reads_are_repeated_until_the_server_answers(
    answers: Answers, connection: HbaseConnection
) -> None:
    passing = ServerError("NotServingRegionException: t", True)
    answers.planned = [HangUp(), passing, passing, []]
    assert connection.get_many("t", [b"k"]) == []
    assert answers.calls.count("getMultiple") == 4


def test_errors_that_last_are_not_met_again(answers: Answers, connection: HbaseConnection) -> None:
    answers.planned = [ServerError("java.lang.Denied: no", False)]
    with pytest.raises(StoreError, match=r"get of t: java\.lang\.Denied: no"):
        connection.get("t", b"k")
    assert answers.calls == ["get"]


def test_a_fault_of_the_thrift_server_is_not_repeated_for_minutes(
    answers: Answers, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when HBase refuses an argument in a way that its Thrift server does not foresee."""
    monkeypatch.setattr("viewkeep.stores.hbase.connection._FAULT_PATIENCE", 0.2)
    fault = TApplicationException(TApplicationException.INTERNAL_ERROR, "Internal error")
    answers.planned = [fault, HangUp(), []]
    with closing(HbaseConnection("127.0.0.1", server.port, patience=60)) as connection:
        assert connection.get_many("t", [b"k"]) == []
        answers.planned = [fault]
        began = time.monotonic()
        with pytest.raises(StoreError, match="get of t: Internal error"):
            connection.get("t", b"k")
    assert time.monotonic() - began < 30
    assert answers.calls.count("get") > 1


def test_a_missing_table_is_told_apart(answers: Answers, connection: HbaseConnection) -> None:
    answers.planned = [ServerError("nope", False)]
    with pytest.raises(NoTable, match="has no table nope"):
        connection.get("nope", b"k")
    answers.planned = [ServerError("NoSuchColumnFamilyException: g", True)]
    with pytest.raises(NoTable, match="NoSuchColumnFamily"):
        connection.put("t", [Put(b"k", [Cell(b"g", b"", b"", 1)])])


def test_a_conditional_change_is_made_once(answers: Answers, connection: HbaseConnection) -> None:
    for lost in (HangUp(), ServerError("RegionTooBusyException", True)):
        answers.planned = [lost]
        answers.calls.clear()
        with pytest.raises(OutcomeUnknown, match="checkAndMutate of t"):
            connection.check_and_mutate("t", b"k", CHECK, b"1", CHANGE)
        assert answers.calls == ["checkAndMutate"]


def test_a_socket_that_the_server_has_closed_is_not_used(
    answers: Answers, server: Server, connection: HbaseConnection
) -> None:
    """Else a conditional change would have no outcome although nothing is wrong."""
    answers.planned = [True]
    for _ in range(3):
        assert connection.check_and_mutate("t", b"k", CHECK, b"1", CHANGE)
        server.hang_up(server.clients[-1])
    assert len(server.clients) == 3


def test_no_server(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    connection = HbaseConnection("127.0.0.1", port, patience=0)
    for call in (
        lambda: connection.get("t", b"k"),
        lambda: connection.check_and_mutate("t", b"k", CHECK, None, CHANGE),
    ):
        with pytest.raises(StoreError, match=f"no Thrift server of HBase answers at .*:{port}"):
            call()


def test_no_answer_in_time(answers: Answers, server: Server) -> None:
    release = threading.Event()
    answers.planned = [[]]
    answers.get = lambda *_: release.wait(30)  # type: ignore[attr-defined]
    connection = HbaseConnection("127.0.0.1", server.port, timeout=0.05, patience=0)
    try:
        with pytest.raises(StoreError, match="get of t: no answer in time"):
            connection.get("t", b"k")
    finally:
        release.set()
        connection.close()


def test_threads_and_forks_share_no_socket(
    answers: Answers, server: Server, connection: HbaseConnection
) -> None:
    answers.planned = [[]]
    connection.get_many("t", [b"k"])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            connection.get_many("t", [b"k"])
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    connection.get_many("t", [b"k"])
    assert len(server.clients) == 2


def test_a_closed_connection_says_so(answers: Answers, connection: HbaseConnection) -> None:
    answers.planned = [[]]
    connection.get_many("t", [b"k"])
    connection.close()
    connection.close()
    with pytest.raises(StoreError, match="closed"):
        connection.get("t", b"k")
