"""Logs: one line for each request, for people or as JSON, and the count of it for the metrics.

Law: a line says who, what, how it ended and how long it took, and never the password, a key or a
row: of an address only the path is logged.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from viewkeep.serve.metrics import Metrics

LOGGER = "viewkeep.serve"
Format = Literal["text", "json"]

log = logging.getLogger(LOGGER)


class Observed:
    """Notes every request when it has ended: a line in the log, a count in the metrics."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 101 if scope["type"] == "websocket" else 499  # 499: gone before the answer

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"].endswith("http.response.start"):
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            seconds = time.perf_counter() - began
            method = scope.get("method", "WS")
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.request(method, route, status, seconds)
            if log.isEnabledFor(logging.INFO):
                client = scope.get("client")
                fields = {
                    "method": method,
                    "path": scope["path"],
                    "status": status,
                    "milliseconds": round(seconds * 1e3, 2),
                    "client": client[0] if client else None,
                }
                log.info("request", extra={"fields": fields})


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None)
        if fields is None:
            said = record.getMessage()
        else:
            # A path may hold anything; what could move the cursor is written out.
            path = fields["path"].encode("unicode_escape").decode()
            said = (
                f"{fields['client']} {fields['method']} {path} "
                f"{fields['status']} {fields['milliseconds']:.2f} ms"
            )
        if record.exc_info:
            said += "\n" + self.formatException(record.exc_info)
        return f"{_time(record)} {record.levelname.lower():7} {said}"


def write_logs(to: IO[str], format: Format = "text") -> None:
    """Write the server's logs to a stream, one line each."""
    handler = logging.StreamHandler(to)
    handler.setFormatter(_Json() if format == "json" else _Text())
    for name, level in ((LOGGER, logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def _time(record: logging.LogRecord) -> str:
    moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
