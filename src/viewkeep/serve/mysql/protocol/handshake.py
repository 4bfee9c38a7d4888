"""The beginning of a connection: greeting, TLS, who is there, and whether the password is right.

Law: before the password was right nothing of the database is looked at, and a client has a bounded
time and a bounded packet; wrong passwords slow their address down (`guesses`). Users have the
passwords and roles of the users file, all other names the password of the settings; none is asked
for where there is none, which only loopback may.

    server  greeting: version, connection id, nonce 20, capabilities, charset, plugin
    client  [SSL request: capabilities, then TLS], user, answer to the nonce, database, plugin
    server  OK | ERR | switch: plugin, new nonce   ->  client: answer   ->  server: OK | ERR
"""

from __future__ import annotations

import secrets
import ssl
from dataclasses import dataclass, replace

from viewkeep.serve.credentials import CACHING, NATIVE, Credentials, Grant
from viewkeep.serve.mysql.faults import Fault, denied
from viewkeep.serve.mysql.protocol.packets import STATUS_AUTOCOMMIT, Cursor, Malformed
from viewkeep.serve.mysql.protocol.wire import Wire
from viewkeep.serve.roles import Role

VERSION = "8.0.36-viewkeep"
NOTHING = Grant(Role.READ)  # until the client has shown its password
UTF8MB4_BIN = 46

CONNECT_WITH_DB = 0x8
PROTOCOL_41 = 0x200
SSL = 0x800
SECURE_CONNECTION = 0x8000
MULTI_STATEMENTS = 0x10000
PLUGIN_AUTH = 0x80000
CONNECT_ATTRS = 0x100000
PLUGIN_AUTH_LENENC = 0x200000
DEPRECATE_EOF = 0x1000000
# Also: long password, found rows, long flag, transactions, multi results, also of statements.
_OFFERED = (
    0x1 | 0x2 | 0x4 | 0x2000 | 0x20000 | 0x40000 | CONNECT_WITH_DB | PROTOCOL_41
    | SECURE_CONNECTION | MULTI_STATEMENTS | PLUGIN_AUTH | CONNECT_ATTRS | PLUGIN_AUTH_LENENC
    | DEPRECATE_EOF
)  # fmt: skip


@dataclass(frozen=True)
class Client:
    """Who has connected and what it can do."""

    user: str
    database: str
    capabilities: int
    charset: int
    grant: Grant = NOTHING

    @property
    def no_eof(self) -> bool:
        return bool(self.capabilities & DEPRECATE_EOF)

    @property
    def many_statements(self) -> bool:
        return bool(self.capabilities & MULTI_STATEMENTS)


async def shake(
    wire: Wire,
    number: int,
    credentials: Credentials,
    context: ssl.SSLContext | None,
) -> Client:
    """Greet a client and let it in, or raise; the caller sends the OK."""
    nonce = _nonce()
    offered = _OFFERED | (SSL if context is not None else 0)
    wire.send(_greeting(number, nonce, offered))
    data = await wire.receive()
    if context is not None and len(data) == 32 and int.from_bytes(data[:4], "little") & SSL:
        await wire.secure(context)
        data = await wire.receive()
    client, plugin, answer = _response(data, offered)
    if context is not None and not wire.secured and credentials.needed:
        raise Fault(3159, "HY000", "this server takes connections with TLS only")
    if not credentials.needed:
        return replace(client, grant=Grant(Role.ADMIN))
    proof = _Proof(wire, credentials, client.user)
    return replace(client, grant=await proof.given(plugin, nonce, answer))


async def change_user(wire: Wire, data: bytes, old: Client, credentials: Credentials) -> Client:
    """COM_CHANGE_USER: another user on the same connection, with a new proof."""
    cursor = Cursor(data, 1)
    user = cursor.until_zero().decode(errors="replace")
    cursor.take(cursor.uint(1))
    database = cursor.until_zero().decode(errors="replace")
    charset = cursor.uint(2) if cursor.left >= 2 else old.charset
    client = Client(user, database, old.capabilities, charset)
    if not credentials.needed:
        return replace(client, grant=Grant(Role.ADMIN))
    return replace(client, grant=await _Proof(wire, credentials, user).asked(NATIVE))


class _Proof:
    """Whether one client knows its password, and what it is let in as."""

    def __init__(self, wire: Wire, credentials: Credentials, user: str):
        self._wire, self._credentials, self._user = wire, credentials, user

    async def given(self, plugin: str, nonce: bytes, answer: bytes) -> Grant:
        """Take the answer to the greeting.

        A client that answers for another plugin than the greeting's is asked again for its own.
        """
        if plugin in (NATIVE, CACHING) and answer:
            return await self._check(plugin, nonce, answer)
        if plugin == NATIVE:
            raise denied(self._user, with_password=False)
        return await self.asked(CACHING if plugin == CACHING else NATIVE)

    async def asked(self, plugin: str) -> Grant:
        """Ask for an answer to a new nonce."""
        nonce = _nonce()
        self._wire.send(b"\xfe" + plugin.encode() + b"\0" + nonce + b"\0")
        return await self._check(plugin, nonce, await self._wire.receive())

    async def _check(self, plugin: str, nonce: bytes, answer: bytes) -> Grant:
        address = self._wire.address
        grant = await self._credentials.proven(address, self._user, plugin, nonce, answer)
        if grant is None:
            raise denied(self._user, with_password=bool(answer))
        if plugin == CACHING:
            self._wire.send(b"\x01\x03")  # the fast way: the answer was enough
        return grant


def _greeting(number: int, nonce: bytes, offered: int) -> bytes:
    return b"".join(
        (
            b"\x0a",
            VERSION.encode(),
            b"\0",
            (number & 0xFFFFFFFF).to_bytes(4, "little"),
            nonce[:8],
            b"\0",
            (offered & 0xFFFF).to_bytes(2, "little"),
            bytes((UTF8MB4_BIN,)),
            STATUS_AUTOCOMMIT.to_bytes(2, "little"),
            (offered >> 16).to_bytes(2, "little"),
            bytes((len(nonce) + 1,)),
            bytes(10),
            nonce[8:],
            b"\0",
            NATIVE.encode(),
            b"\0",
        )
    )


def _response(data: bytes, offered: int) -> tuple[Client, str, bytes]:
    cursor = Cursor(data)
    capabilities = cursor.uint(4) & offered
    if not capabilities & PROTOCOL_41:
        raise Malformed("the client speaks a protocol older than MySQL 4.1")
    cursor.take(4)  # the largest packet that it takes
    charset = cursor.uint(1)
    cursor.take(23)
    user = cursor.until_zero().decode(errors="replace")
    lenenc = capabilities & PLUGIN_AUTH_LENENC
    answer = cursor.string() if lenenc else cursor.take(cursor.uint(1))
    database = ""
    if capabilities & CONNECT_WITH_DB and cursor.left:
        database = cursor.until_zero().decode(errors="replace")
    plugin = NATIVE
    if capabilities & PLUGIN_AUTH and cursor.left:
        plugin = cursor.until_zero().decode(errors="replace")
    return Client(user, database, capabilities, charset), plugin, answer


def _nonce() -> bytes:
    # Bytes 1 to 127: some clients read the nonce as text that ends at a zero.
    return bytes(1 + secrets.randbelow(127) for _ in range(20))
