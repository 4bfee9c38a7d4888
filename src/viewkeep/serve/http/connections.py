"""Connections: how many there may be, and how long one may take to say what it wants.

Law: a connection above the limit is told so and closed at once, whatever it sends; one that is
opened and says nothing, or begins a request and does not end its headers, does not stay.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from viewkeep.errors import Overloaded
from viewkeep.serve.http.errors import answer_of

SILENT_SECONDS = 30.0


def bounded_protocol(most: int) -> type[HttpToolsProtocol]:
    """A protocol for at most so many connections."""

    class Bounded(HttpToolsProtocol):
        """Counts the connections of its server."""

        _silent: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.write(_refusal(most))
                transport.close()
                return
            self._expect()

        def on_message_begin(self) -> None:
            self._expect()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._heard()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._heard()
            super().connection_lost(exc)

        def _expect(self) -> None:
            if self._silent is None:
                self._silent = self.loop.call_later(SILENT_SECONDS, self.transport.close)

        def _heard(self) -> None:
            if self._silent is not None:
                self._silent.cancel()
                self._silent = None

    return Bounded


def _refusal(most: int) -> bytes:
    error = Overloaded(f"the server has {most:,} connections, which is the limit; try again")
    answer: Any = answer_of(error)
    head = (
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
        f"content-length: {len(answer.body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + bytes(answer.body)
