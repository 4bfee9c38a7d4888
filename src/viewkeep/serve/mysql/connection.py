"""One connection: the handshake, then command after command until the client leaves.

Law: whatever bytes come, the answer is rows, OK or ERR, or the connection ends; no other connection
notices. A command that runs is finished before the server stops. A client that is idle, sends its
command too slowly, or does not take its answer has a bounded time.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from viewkeep.errors import ViewkeepError
from viewkeep.serve.mysql.faults import Fault, denied, fault_of, unsupported
from viewkeep.serve.mysql.literals import SplitStatement
from viewkeep.serve.mysql.protocol.answers import Answer, Done, RowsAnswer
from viewkeep.serve.mysql.protocol.fields import (
    TEXT_CHARSET,
    VAR_STRING,
    Field,
    binary_row,
    text_row,
)
from viewkeep.serve.mysql.protocol.handshake import Client, change_user, shake
from viewkeep.serve.mysql.protocol.packets import (
    STATUS_AUTOCOMMIT,
    STATUS_IN_TRANSACTION,
    STATUS_MORE_RESULTS,
    Cursor,
    Malformed,
    eof,
    error,
    ok,
)
from viewkeep.serve.mysql.protocol.parameters import Types, read_parameters
from viewkeep.serve.mysql.protocol.wire import Gone, OutOfOrder, PacketTooLarge, Wire
from viewkeep.serve.mysql.session.session import ClientSession, Shared
from viewkeep.serve.mysql.session.who import Who
from viewkeep.serve.service import serving

_HANDSHAKE_BYTES = 64 * 1024
_STATEMENTS = 1_000  # prepared at a time
_SHORT = 4_000  # bytes of a query that is tried at once
_LATIN = frozenset({5, 8, 11, 15, 31, 47, 48, 49, 94})  # collations of latin1 and ascii
_QUIT, _INIT_DB, _QUERY, _FIELD_LIST, _STATISTICS, _PING = 0x01, 0x02, 0x03, 0x04, 0x09, 0x0E
_CHANGE_USER, _PREPARE, _EXECUTE, _LONG_DATA, _CLOSE = 0x11, 0x16, 0x17, 0x18, 0x19
_RESET_STATEMENT, _SET_OPTION, _RESET_CONNECTION = 0x1A, 0x1B, 0x1F

log = logging.getLogger(__name__)


class _Prepared:
    """A statement that a client has prepared."""

    def __init__(self, statement: SplitStatement):
        self.statement = statement
        self.types: Types | None = None
        self.long: dict[int, bytes] = {}


class Connection:
    """Serves one client over a wire."""

    def __init__(
        self,
        shared: Shared,
        wire: Wire,
        number: int,
        port: int,
        tls: ssl.SSLContext | None,
        let_in: Callable[[], None],
    ):
        self._shared, self._wire, self._number, self._port = shared, wire, number, port
        self._tls, self._let_in = tls, let_in
        self._prepared: dict[int, _Prepared] = {}
        self._next = 1
        self.idle = True
        self._is_in = False  # past the handshake
        self._ended = 0.0  # time of the end of the last command
        self.leaving = False  # after the command that runs
        self._many = False
        self._no_eof = False

    async def serve(self) -> None:
        """Serve until the client leaves or breaks the protocol."""
        wire = self._wire
        try:
            await self._begin()
            while not self.leaving:
                wire.sequence = 0
                self.idle, wire.at_once = True, self._at_once
                data = await wire.receive()
                self.idle, wire.at_once = False, None
                if not data or data[0] == _QUIT:
                    break
                if not self._is_welcome:
                    raise denied(self._client.user, with_password=True)
                with serving(wire.client):
                    await self._command(data)
                await wire.drain()
                self._ended = time.monotonic()
        except Gone:
            pass
        except TimeoutError:
            self._refuse(Fault(1159, "08S01", "the handshake took too long"))
        except PacketTooLarge as large:
            self._refuse(Fault(1153, "08S01", str(large)))
        except OutOfOrder as wrong:
            self._refuse(Fault(1156, "08S01", str(wrong)))
        except Malformed as wrong:
            self._refuse(Fault(1835, "HY000", f"Malformed communication packet: {wrong}"))
        except (Fault, ViewkeepError) as refusal:
            self._refuse(fault_of(refusal))
        finally:
            wire.close()

    def overdue(self, now: float) -> Fault | None:
        """Why the connection should end now: the client has let too much time pass."""
        settings, wire = self._shared.service.settings, self._wire
        if wire.blocked is not None and now - wire.blocked > settings.stalled_seconds:
            return Fault(1161, "08S01", "the client did not take what it was sent")
        if not (self.idle and self._is_in):
            return None
        if not self._is_welcome:
            return denied(self._client.user, with_password=True)
        if wire.began is not None and now - wire.began > settings.max_seconds:
            return Fault(1159, "08S01", "the command did not arrive in time")
        if now - max(wire.heard, self._ended) > self._session.variables.idle_seconds:
            return Fault(4031, "HY000", "the connection was idle for longer than wait_timeout")
        return None

    async def _begin(self) -> None:
        service = self._shared.service
        settings = service.settings
        async with asyncio.timeout(settings.handshake_seconds):
            self._wire.limit(_HANDSHAKE_BYTES)
            client = await shake(self._wire, self._number, service.credentials, self._tls)
            self._wire.limit(settings.max_body)
        self._let_in()
        self._session = ClientSession(self._shared, self._who_is(client), self._port)
        self._welcome(client)
        self._is_in = True

    def _who_is(self, client: Client) -> Who:
        return Who(client.user, self._number, client.grant.role)

    def _welcome(self, client: Client) -> None:
        self._client = client
        self._many, self._no_eof = client.many_statements, client.no_eof
        if client.charset in _LATIN:
            self._session.variables.set_names("latin1")
        self._session.use(client.database or "viewkeep")
        self._wire.send(ok(self._status()))

    @property
    def _is_welcome(self) -> bool:
        """Whether the user is still as it was when it was let in."""
        return self._shared.service.credentials.holds(self._client.grant)

    def _refuse(self, fault: Fault) -> None:
        self._wire.send(error(fault.code, fault.state, fault.message))

    def _at_once(self, data: bytes) -> bool:
        """Answer a command that takes microseconds; False if it is not one."""
        if data[0] != _QUERY or len(data) > _SHORT or self._wire.is_full or not self._is_welcome:
            return False
        try:
            text = data[1:].decode(self._session.variables.codec, "surrogateescape")
            found = self._session.known(text)
        except Exception:
            return False  # what is wrong with it is found again, and said, the usual way
        if found is None:
            return False
        head, rows, end = self._packets(found, self._status(), 0, binary=False)
        self._wire.send(*head, *rows, end)
        self._wire.sequence = 0
        return True

    # -- commands ------------------------------------------------------------------------------

    async def _command(self, data: bytes) -> None:
        """One command; an error of it is sent, and the connection goes on."""
        try:
            await self._do(data[0], data)
        except (Gone, Malformed, PacketTooLarge):
            raise
        except Exception as raised:
            fault = fault_of(raised)
            self._session.failed(fault)
            if fault.code == 1105:
                log.exception("a statement failed in a way that nobody foresaw")
            self._refuse(fault)

    async def _do(self, command: int, data: bytes) -> None:
        wire, session = self._wire, self._session
        if command == _QUERY:
            await self._query(data[1:].decode(session.variables.codec, "surrogateescape"))
        elif command == _EXECUTE:
            await self._execute(data)
        elif command == _PREPARE:
            await self._prepare(data[1:].decode(session.variables.codec, "surrogateescape"))
        elif command == _CLOSE:
            self._prepared.pop(Cursor(data, 1).uint(4), None)
        elif command == _LONG_DATA:
            self._take_long(Cursor(data, 1))
        elif command == _RESET_STATEMENT:
            self._find(Cursor(data, 1).uint(4)).long.clear()
            wire.send(ok(self._status()))
        elif command == _PING:
            wire.send(ok(self._status()))
        elif command == _INIT_DB:
            session.use(data[1:].decode("utf-8", "replace"))
            wire.send(ok(self._status()))
        elif command == _FIELD_LIST:
            await self._field_list(Cursor(data, 1).until_zero().decode("utf-8", "replace"))
        elif command == _STATISTICS:
            wire.send(f"Queries: {self._shared.queries}".encode())
        elif command == _SET_OPTION:
            self._many = Cursor(data, 1).uint(2) == 0
            wire.send(eof(self._status()))
        elif command == _RESET_CONNECTION:
            self._reset()
            session.use(self._client.database or "viewkeep")
            wire.send(ok(self._status()))
        elif command == _CHANGE_USER:
            credentials = self._shared.service.credentials
            client = await change_user(wire, data, self._client, credentials)
            self._reset()
            session.become(self._who_is(client))
            self._welcome(client)
        else:
            raise Fault(1047, "08S01", f"Unknown command {command:#x}")

    def _reset(self) -> None:
        self._prepared.clear()
        self._session.reset()

    async def _query(self, text: str) -> None:
        statements = await self._session.read(text)
        if not statements:
            raise Fault(1065, "42000", "Query was empty")
        if len(statements) > 1 and not self._many:
            raise unsupported("this client sends one statement at a time")
        for left, statement in enumerate(statements, 1 - len(statements)):
            answer = await self._session.run(statement)
            await self._answer(answer, binary=False, more=left < 0)

    # -- prepared statements -------------------------------------------------------------------

    async def _prepare(self, text: str) -> None:
        statements = await self._session.read(text)
        if len(statements) != 1:
            raise Fault(1064, "42000", "one statement is prepared at a time")
        (statement,) = statements
        held = sum(one.statement.size for one in self._prepared.values()) + statement.size
        most = self._shared.service.settings.max_body
        if len(self._prepared) >= _STATEMENTS or held > most:
            raise Fault(
                1461,
                "42000",
                f"at most {_STATEMENTS} statements of {most:,} bytes are prepared at a time",
            )
        if statement.parameters > self._shared.service.settings.max_parameters:
            raise Fault(1390, "HY000", "Prepared statement contains too many placeholders")
        columns = await self._session.columns(statement)
        number, self._next = self._next, self._next + 1
        self._prepared[number] = _Prepared(statement)
        count = statement.parameters
        head = b"".join(
            (
                b"\0",
                number.to_bytes(4, "little"),
                len(columns).to_bytes(2, "little"),
                count.to_bytes(2, "little"),
                b"\0\0\0",
            )
        )
        unknown = Field("?", VAR_STRING, 0, charset=TEXT_CHARSET)
        payloads = [head, *self._definitions([unknown] * count), *self._definitions(columns)]
        self._wire.send(*payloads)

    def _definitions(self, fields: Sequence[Field]) -> Iterator[bytes]:
        codec = self._session.variables.codec
        yield from (field.definition(codec) for field in fields)
        if fields and not self._no_eof:
            yield eof(self._status())

    async def _execute(self, data: bytes) -> None:
        cursor = Cursor(data, 1)
        prepared = self._find(cursor.uint(4))
        cursor.take(5)  # no cursors are kept, and it is done once
        codec = self._session.variables.codec
        count = prepared.statement.parameters
        prepared.types, values = read_parameters(
            cursor, count, prepared.types, prepared.long, codec
        )
        prepared.long.clear()
        statement = self._session.bind(prepared.statement, values)
        await self._answer(await self._session.run(statement), binary=True)

    def _take_long(self, cursor: Cursor) -> None:
        """A piece of a long value; nothing is answered, not even an error."""
        prepared = self._prepared.get(cursor.uint(4))
        place = cursor.uint(2)
        if prepared is None or place >= prepared.statement.parameters:
            return
        held = sum(map(len, prepared.long.values()))
        if held + cursor.left > self._shared.service.settings.max_body:
            raise PacketTooLarge("the long values of a statement are larger than a packet may be")
        prepared.long[place] = prepared.long.get(place, b"") + cursor.rest()

    def _find(self, number: int) -> _Prepared:
        if number not in self._prepared:
            raise Fault(1243, "HY000", f"Unknown prepared statement handler ({number})")
        return self._prepared[number]

    # -- answers -------------------------------------------------------------------------------

    async def _answer(self, answer: Answer, *, binary: bool, more: bool = False) -> None:
        status = self._status() | (STATUS_MORE_RESULTS if more else 0)
        warnings = len(self._session.warnings)
        if isinstance(answer, Done):
            done = ok(status, answer.affected, answer.last_id, warnings, answer.info)
            self._wire.send(done)
            return
        head, rows, end = self._packets(answer, status, warnings, binary=binary)
        await self._wire.stream(chain(head, rows, (end,)))

    def _packets(
        self, answer: RowsAnswer, status: int, warnings: int, *, binary: bool
    ) -> tuple[list[bytes], Iterator[bytes], bytes]:
        """The packets of rows: what stands before them, they themselves, and the end."""
        codec = self._session.variables.codec
        encoders = answer.header.encoders(codec, binary)
        encode = binary_row if binary else text_row
        head = answer.header.definitions(codec)
        end = eof(status, warnings)
        if self._no_eof:
            end = ok(status, warnings=warnings, end=True)
        else:
            head = [*head, end]
        return head, (encode(encoders, row) for row in answer.rows), end

    async def _field_list(self, table: str) -> None:
        run = self._shared.service.run
        columns = await run(self._shared.information.columns, table)
        codec = self._session.variables.codec
        fields = [Field(column.name, VAR_STRING, 0, charset=TEXT_CHARSET) for column in columns]
        # Here a definition ends with a default, of which there is none.
        self._wire.send(*[field.definition(codec) + b"\xfb" for field in fields])
        self._wire.send(ok(self._status(), end=True) if self._no_eof else eof(self._status()))

    def _status(self) -> int:
        status = STATUS_AUTOCOMMIT if self._session.variables.autocommit else 0
        return status | (STATUS_IN_TRANSACTION if self._session.transactions.open else 0)
