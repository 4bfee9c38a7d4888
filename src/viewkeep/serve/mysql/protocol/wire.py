"""One connection as packets: frames them, checks their order, bounds their size, speaks TLS.

Law: a peer cannot make the server hold more than one packet of the largest allowed size and one
read of the socket, nor more than a part of an answer that it does not take. `receive` gives whole
packets, each once; after `Gone` there are none.

    packet   length 3, sequence 1, payload of that length
    A payload of 2^24-1 bytes goes on in the next packet; the last part is shorter, maybe empty.
    The sequence counts the packets of one command, both ways, from 0.

TLS begins in the middle of the stream, and its first bytes may come together with the request for
it. So the bytes go through an `ssl.MemoryBIO` here, instead of a transport that could lose them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable
from typing import cast

from viewkeep.engine.budget import Cancel
from viewkeep.serve.mysql.protocol.packets import Malformed

_MOST = 0xFFFFFF  # bytes of a packet's part
_READ_AHEAD = 256 * 1024
_RESET = struct.pack("ii", 1, 0)  # linger for no time
_LAST_SECONDS = 5.0  # for the peer to take the last bytes of a connection that is closed


class Gone(Exception):
    """The peer has closed the connection, or it was lost."""


class PacketTooLarge(Exception):
    """A packet is larger than this server takes."""


class OutOfOrder(Malformed):
    """A packet does not have the sequence number that comes next."""


class Wire(asyncio.Protocol):
    """The packets of one connection; one coroutine receives, the same one sends."""

    def __init__(self, max_packet: int):
        self.sequence = 0
        # Tried on a command that has come whole, before the coroutine that receives is woken; True
        # if that was all. It saves a turn of the loop: a tenth of a read by key, client included.
        self.at_once: Callable[[bytes], bool] | None = None
        self.client = Cancel()  # set when the connection is lost
        self._max = max_packet
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._writable = self._reading = True
        self._lost = False
        self._tls: _Tls | None = None
        self.heard = 0.0  # time of the last bytes
        self.began: float | None = None  # time of the first bytes of what is not whole yet
        self.blocked: float | None = None  # time since which the peer takes less than it is sent

    @property
    def address(self) -> str:
        """The peer's."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    # -- what the loop calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of its kind
        self.heard = time.monotonic()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        if self._tls is not None:
            try:
                data = self._tls.receive(data)
            except ssl.SSLError:
                self.close()
                return
            finally:
                self._flush()
            if self._tls.ended:
                self.close()
        if self.at_once is not None and not self._buffer and self._taken_at_once(data):
            return
        if self.began is None:
            self.began = self.heard
        self._buffer += data
        ahead = len(self._buffer) > _READ_AHEAD and self._arrived is None
        if ahead and self._reading and not self._open().is_closing():
            self._reading = False
            self._open().pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        return False  # the transport closes, and `connection_lost` follows

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self.client.set()
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._writable = False
        self.blocked = time.monotonic()

    def resume_writing(self) -> None:
        self._writable = True
        self.blocked = None
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # -- packets -------------------------------------------------------------------------------

    def limit(self, max_packet: int) -> None:
        """Take packets of at most this size from now on."""
        self._max = max_packet

    async def receive(self) -> bytes:
        """The next payload. PacketTooLarge, OutOfOrder or Gone instead."""
        whole = b""
        while True:
            header = await self._take(4)
            length = header[0] | header[1] << 8 | header[2] << 16
            if len(whole) + length > self._max:
                raise PacketTooLarge(
                    f"a packet has more than {self._max:,} bytes, which is the limit"
                )
            if header[3] != self.sequence & 0xFF:
                raise OutOfOrder(f"packet {header[3]} came where {self.sequence & 0xFF} was due")
            self.sequence += 1
            part = await self._take(length)
            if length < _MOST:
                self.began = time.monotonic() if self._buffer else None
                return whole + part if whole else part
            whole += part

    def send(self, *payloads: bytes) -> None:
        """Send payloads, each as its own packet; the bytes go out in one write."""
        self._write(self._framed(payloads))

    async def stream(self, payloads: Iterable[bytes]) -> None:
        """Send many payloads, not faster than the peer takes them."""
        batch: list[bytes] = []
        size = 0
        for payload in payloads:
            batch.append(payload)
            size += len(payload)
            if size > _READ_AHEAD:
                self._write(self._framed(batch))
                await self.drain()
                await asyncio.sleep(0)  # others have a turn, however fast the peer is
                batch, size = [], 0
        self._write(self._framed(batch))

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was sent."""
        if not self._writable and not self._lost:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        if self._lost:
            raise Gone

    async def secure(self, context: ssl.SSLContext) -> None:
        """Go on with TLS; what came after the last packet is its beginning."""
        self._tls = _Tls(context)
        early, self._buffer = bytes(self._buffer), bytearray()
        if early:
            self.data_received(early)

    @property
    def is_full(self) -> bool:
        """Whether the peer takes less than it is sent."""
        return not self._writable

    @property
    def secured(self) -> bool:
        return self._tls is not None

    def close(self) -> None:
        """Close when what was sent has gone out; the peer has a moment to take it."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            if not self._lost and transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(_LAST_SECONDS, self.abort)

    def abort(self) -> None:
        """Close at once, and let the system forget what it still has to send."""
        if self._transport is not None:
            if (held := self._transport.get_extra_info("socket")) is not None and not self._lost:
                held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    # -- private -------------------------------------------------------------------------------

    async def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if self._lost:
                raise Gone
            self._arrived = asyncio.get_running_loop().create_future()
            if not self._reading:
                self._reading = True
                self._open().resume_reading()
            try:
                await self._arrived
            finally:
                self._arrived = None
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _taken_at_once(self, data: bytes) -> bool:
        length = data[0] | data[1] << 8 | data[2] << 16 if len(data) > 4 else -1
        if length + 4 != len(data) or data[3] or length > self._max or self.at_once is None:
            return False
        self.sequence = 1
        if self.at_once(data[4:]):
            return True
        self.sequence = 0
        return False

    def _framed(self, payloads: Iterable[bytes]) -> bytes:
        parts: list[bytes] = []
        for payload in payloads:
            while len(payload) >= _MOST:
                parts += (b"\xff\xff\xff", bytes((self.sequence & 0xFF,)), payload[:_MOST])
                self.sequence += 1
                payload = payload[_MOST:]
            parts += (len(payload).to_bytes(3, "little"), bytes((self.sequence & 0xFF,)), payload)
            self.sequence += 1
        return b"".join(parts)

    def _write(self, data: bytes) -> None:
        if self._lost or not data:
            return
        if self._tls is None:
            self._open().write(data)
            return
        self._tls.send(data)
        self._flush()

    def _flush(self) -> None:
        assert self._tls is not None
        if (data := self._tls.outgoing.read()) and not self._lost:
            self._open().write(data)

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def _open(self) -> asyncio.Transport:
        if self._transport is None:
            raise Gone
        return self._transport


class _Tls:
    """The server's side of TLS, from bytes to bytes."""

    def __init__(self, context: ssl.SSLContext):
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self.outgoing, server_side=True)
        self._ready = self.ended = False

    def receive(self, data: bytes) -> bytes:
        """What the peer's bytes say."""
        self._incoming.write(data)
        clear = bytearray()
        try:
            if not self._ready:
                self._object.do_handshake()
                self._ready = True
            while part := self._object.read(_READ_AHEAD):
                clear += part
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return bytes(clear)

    def send(self, data: bytes) -> None:
        self._object.write(data)
