"""Change feeds over HTTP: server-sent events and WebSockets with the same JSON.

Law: what a client gets, replayed, is the view at every epoch; it can go on after any event by that
event's token. A follower costs no thread, and no more memory than one turn's events: the next ones
are read when it has taken these. One that takes nothing is cut off, and loses its place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import FastAPI, Header, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from viewkeep.access.feeds.feed import Event, Feed
from viewkeep.errors import ViewkeepError
from viewkeep.serve.http.answers import Json
from viewkeep.serve.http.errors import InvalidRequest, detail_of, documented, status_of
from viewkeep.serve.http.selections import Texts
from viewkeep.serve.http.sessions import Token, caught_up
from viewkeep.serve.http.values import dumps, key_of_texts
from viewkeep.serve.links import LONGEST_SECONDS, FeedLinks
from viewkeep.serve.service import Service

TURN_SECONDS = 10.0  # a feed keeps its place by being asked, and a client hears a sign of life
CLOSE_CODES = 4000  # and the HTTP status: how a WebSocket ends after an error

View = Annotated[str, Path(description="A view.", examples=["scores"])]
Prefix = Annotated[
    Texts, Query(description="Only keys that start with these values, repeated in key order.")
]
After = Annotated[
    str | None, Query(description="The token of an event: go on after it, instead of anew.")
]
Progress = Annotated[
    bool, Query(description="Also give an event for epochs that changed nothing in the view.")
]
LastEventId = Annotated[
    str | None, Header(description="The id of the last event; stands before `token`.")
]

_STREAM = """
event: rows
data: {"kind":"rows","epoch":12,"token":"f2.5d0c5bd7a9f1.12.0.3.00000000.8c2f7a10","rows":[{"story":7,"votes":12}],"more":false}
id: f2.5d0c5bd7a9f1.12.0.3.00000000.8c2f7a10

event: changes
data: {"kind":"changes","epoch":13,"token":"f2.5d0c5bd7a9f1.13.0.3.00000000.1f0b3a55","changes":[{"key":[7],"old":{"story":7,"votes":12},"new":{"story":7,"votes":13}}],"more":false}
id: f2.5d0c5bd7a9f1.13.0.3.00000000.1f0b3a55
"""  # noqa: E501 - an event is one line


@dataclass(frozen=True)
class Told:
    """An event as JSON; `token` is where to go on after it."""

    kind: str
    token: str | None
    json: bytes


class LinkRequest(BaseModel):
    """Which feed a link is for, and for how long."""

    path: str = Field(max_length=8_192, examples=["/v1/scores/changes?prefix=7"])
    seconds: float = Field(3600.0, gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)


class Link(BaseModel):
    """A path that opens a feed without the password."""

    link: str


def link_routes(app: FastAPI, links: FeedLinks | None) -> None:
    """Add the route that signs links to feeds."""

    @app.post("/v1/links", tags=["feeds"], response_model=Link, responses=documented())
    async def link(wanted: LinkRequest) -> Json:
        """Sign a link to a feed: a page in a browser follows it without knowing the password."""
        if links is None:
            raise InvalidRequest("this server has no password, so feeds need no links")
        return Json({"link": links.sign(wanted.path, wanted.seconds)})


def routes(app: FastAPI, service: Service) -> None:
    """Add the routes that tell of changes."""
    db = service.db

    async def subscribed(
        view: str, prefix: Texts, token: str | None, progress: bool, session: str | None
    ) -> Feed:
        await caught_up(service, session, f"view {view}")
        values = key_of_texts(prefix, db.schema(view), view) or None
        return await service.run(db.subscribe, view, prefix=values, token=token, progress=progress)

    @app.get(
        "/v1/{name}/changes",
        tags=["feeds"],
        response_model=None,
        response_class=Response,
        responses={
            200: {
                "description": "Server-sent events, without end.",
                "content": {
                    "text/event-stream": {"schema": {"type": "string"}, "example": _STREAM}
                },
            },
            **documented(404, 410, 504),
        },
    )
    async def changes(
        name: View,
        prefix: Prefix = (),
        token: After = None,
        progress: Progress = False,
        last_event_id: LastEventId = None,
        session: Token = None,
    ) -> EventStream:
        """Follow a view: its rows at the published epoch, then what each epoch changes.

        Each event's id is a token to go on after it. The event `end` says why a feed cannot go on:
        after EpochGone, subscribe anew.
        """
        begin = last_event_id or token
        return EventStream(service, await subscribed(name, prefix, begin, progress, session))

    @app.websocket("/v1/{name}/changes/ws")
    async def changes_socket(
        socket: WebSocket,
        name: str,
        prefix: Prefix = (),
        token: After = None,
        progress: Progress = False,
        session: Token = None,
    ) -> None:
        """The same events, each a text message of JSON."""
        await socket.accept()
        try:
            feed = await subscribed(name, prefix, token, progress, session)
        except ViewkeepError as error:
            await _end_socket(socket, error)
            return
        with service.following():
            await _until_gone(_follow_socket(service, feed, socket), _closed(socket))


async def turns(service: Service, feed: Feed) -> AsyncIterator[list[Told]]:
    """What a feed gives, turn by turn; an empty turn where it is time for a sign of life.

    Raises what ends the feed: EpochGone, or Stopping.
    """
    heard = time.monotonic()
    while True:
        service.hub.check()
        found = await service.run(_polled, feed)
        if found or time.monotonic() - heard >= TURN_SECONDS:
            service.metrics.events.inc(len(found))
            yield found
            heard = time.monotonic()
        if feed.more:
            continue
        try:
            await service.hub.wait(feed.epoch, TURN_SECONDS)
        except TimeoutError:
            continue


class EventStream(Response):
    """A feed as server-sent events."""

    media_type = "text/event-stream"

    def __init__(self, service: Service, feed: Feed):
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._service, self._feed = service, feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.following(), self._feed:
            await _until_gone(self._follow(send), _disconnected(receive))

    async def _follow(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            async for turn in turns(self._service, self._feed):
                told = b"".join(map(_block, turn)) or _sign_of_life(self._feed)
                await send({"type": "http.response.body", "body": told, "more_body": True})
        except ViewkeepError as error:
            await send({"type": "http.response.body", "body": _block(_end(error))})


async def _follow_socket(service: Service, feed: Feed, socket: WebSocket) -> None:
    try:
        with feed:
            async for turn in turns(service, feed):
                for told in turn:
                    await socket.send_text(told.json.decode())
                if not turn:
                    alive = {"kind": "alive", "epoch": feed.epoch, "token": feed.token}
                    await socket.send_text(dumps(alive).decode())
    except ViewkeepError as error:
        await _end_socket(socket, error)


async def _end_socket(socket: WebSocket, error: ViewkeepError) -> None:
    await socket.send_text(_end(error).json.decode())
    await socket.close(CLOSE_CODES + status_of(error))


async def _until_gone(work: Coroutine[Any, Any, None], gone: Coroutine[Any, Any, None]) -> None:
    """Run work until it ends, or until its client has gone."""
    working, going = asyncio.ensure_future(work), asyncio.ensure_future(gone)
    try:
        await asyncio.wait((working, going), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = working.done()
        working.cancel()
        going.cancel()
        await asyncio.gather(working, going, return_exceptions=True)
    if ended and (error := working.exception()) and not isinstance(error, WebSocketDisconnect):
        raise error


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _closed(socket: WebSocket) -> None:
    """What a client sends means nothing, but that it goes does."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


def _polled(feed: Feed) -> list[Told]:
    return [Told(event.kind, event.token, dumps(_json(event))) for event in feed.poll()]


def _json(event: Event) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": event.kind, "epoch": event.epoch, "token": event.token}
    if event.rows is not None:
        told["rows"] = event.rows
    else:
        told["changes"] = [{"key": c.key, "old": c.old, "new": c.new} for c in event.changes]
    return {**told, "more": event.more}


def _end(error: ViewkeepError) -> Told:
    return Told("end", None, dumps({"kind": "end", "error": detail_of(error)}))


def _block(told: Told) -> bytes:
    """A server-sent event. JSON here has no line breaks, so it is one line."""
    head = f"id: {told.token}\n" if told.token else ""
    return f"{head}event: {told.kind}\ndata: ".encode() + told.json + b"\n\n"


def _sign_of_life(feed: Feed) -> bytes:
    """A comment; its id moves the place to go on from, past epochs that changed nothing."""
    return f": epoch {feed.epoch}\nid: {feed.token}\n\n".encode()
