"""Connections: how many there may be, and how long one may take to say what it wants.

Law: a connection above the limit is told so and closed at once, whatever it sends; one that is
opened and says nothing, begins a request and does not end its headers, or does not take what it is
sent, does not stay. What a client that has gone still reads ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from viewkeep.engine.budget import Cancel
from viewkeep.errors import Overloaded
from viewkeep.serve.http.errors import answer_of
from viewkeep.serve.service import serving

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_CLIENT = "viewkeep.client"  # of a request's scope: what is set when the connection is lost
SILENT_SECONDS = 30.0
# On every answer, those of the HTTP server itself too: browsers take no answer for something that
# it is not, show it in no frame of another site, and tell other sites nothing of its address.
SAFE_HEADERS = (
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)


def bounded_protocol(most: int, stalled_seconds: float) -> type[HttpToolsProtocol]:
    """A protocol for at most so many connections, each of which takes what it is sent."""

    class Bounded(HttpToolsProtocol):
        """Counts the connections of its server."""

        _silent: asyncio.TimerHandle | None = None
        _blocked: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._client = Cancel()
            if len(self.connections) > most:
                transport.write(_refusal(most))
                transport.close()
                return
            self._expect()

        def on_message_begin(self) -> None:
            self._expect()
            super().on_message_begin()
            scope: Any = self.scope
            scope[_CLIENT] = self._client

        def on_headers_complete(self) -> None:
            self._heard()
            super().on_headers_complete()

        def pause_writing(self) -> None:
            if self._blocked is None:
                self._blocked = self.loop.call_later(stalled_seconds, self._abort)
            super().pause_writing()

        def resume_writing(self) -> None:
            self._taken()
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._heard()
            self._taken()
            super().connection_lost(exc)
            self._client.set()

        def _expect(self) -> None:
            if self._silent is None:
                self._silent = self.loop.call_later(SILENT_SECONDS, self.transport.close)

        def _heard(self) -> None:
            if self._silent is not None:
                self._silent.cancel()
                self._silent = None

        def _taken(self) -> None:
            if self._blocked is not None:
                self._blocked.cancel()
                self._blocked = None

        def _abort(self) -> None:
            self.transport.abort()

    return Bounded


class Attended:
    """Ends the reads of clients that go away."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with serving(scope.get(_CLIENT)):
            await self._app(scope, receive, send)


def _refusal(most: int) -> bytes:
    error = Overloaded(f"the server has {most:,} connections, which is the limit; try again")
    answer: Any = answer_of(error)
    head = (
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
        f"content-length: {len(answer.body)}\r\nretry-after: 1\r\nconnection: close\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in SAFE_HEADERS)
        + "\r\n"
    )
    return head.encode() + bytes(answer.body)
