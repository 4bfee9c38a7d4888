"""Answers and requests in exact JSON.

Law: every JSON body that goes in or out passes `values`, so that no digit of it is lost. The event
loop reads only short ones.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from viewkeep.serve.http.values import MEDIA_TYPE, dumps, loads

if TYPE_CHECKING:
    from viewkeep.serve.service import Service

SHORT_BYTES = 16 * 1024  # of a body that is read at once
PIECE_BYTES = 256 * 1024  # of an answer, written at once


class Json(Response):
    """An answer of values as `values.dumps` writes them."""

    media_type = MEDIA_TYPE

    def __init__(
        self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None
    ):
        super().__init__(content, status_code, headers)

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else dumps(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it in pieces, not faster than the client takes them."""
        if len(self.body) <= PIECE_BYTES:
            await super().__call__(scope, receive, send)
            return
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        for start in range(0, len(self.body), PIECE_BYTES):
            piece = self.body[start : start + PIECE_BYTES]
            more = start + PIECE_BYTES < len(self.body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})


class ExactRequest(Request):
    """A request whose JSON keeps all digits of its numbers."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body = await self.body()
            if len(body) <= SHORT_BYTES:
                self._json = loads(body)
            else:
                service: Service = self.app.state.service
                self._json = await service.parse(loads, body, service.settings.max_written)
        return self._json


class ExactRoute(APIRoute):
    """A route that reads its body so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def exactly(request: Request) -> Response:
            return await handle(ExactRequest(request.scope, request.receive, request._send))

        return exactly
