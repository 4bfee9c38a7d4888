"""What a server refuses because it is too much, and the bound on the bytes of a request.

Law: nothing that one client sends or asks makes the server hold more than the settings allow; what
is refused is refused with a clear error before it costs much.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError

from viewkeep.errors import Timeout, ViewkeepError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Stopping(ViewkeepError):
    """The server is going down; nothing was done. Try again elsewhere or later."""


class TooLarge(ViewkeepError):
    """A request or its answer is larger than the settings allow."""


def has_more_tokens(text: str, most: int, dialect: type[Dialect]) -> bool:
    """Whether a statement has more tokens than this; False if it cannot be cut into tokens.

    Python's garbage collector looks at all parts of a syntax tree in one go, and nothing else runs
    meanwhile. What it has to look at is in proportion to the tokens, not to the characters.
    """
    if len(text) <= most:
        return False
    try:
        return len(dialect().tokenize(text)) > most
    except TokenError:
        return False


class BoundedBody:
    """Refuses requests whose bodies are too large, announced or not, or do not come to an end."""

    def __init__(self, app: ASGIApp, max_body: int, max_seconds: float):
        self._app, self._max, self._seconds = app, max_body, max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._max:
                raise self._refusal()
        size, complete = 0, False
        deadline = asyncio.get_running_loop().time() + self._seconds

        async def bounded() -> Message:
            nonlocal size, complete
            try:
                # After the body it is the client's leaving that is waited for, however long.
                async with asyncio.timeout_at(None if complete else deadline):
                    message = await receive()
            except TimeoutError as error:
                seconds = f"{self._seconds:g} s"
                raise Timeout(f"the body of the request did not arrive within {seconds}") from error
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > self._max:
                raise self._refusal()
            return message

        await self._app(scope, bounded, send)

    def _refusal(self) -> TooLarge:
        return TooLarge(f"a request has at most {self._max:,} bytes here; send it in parts")
