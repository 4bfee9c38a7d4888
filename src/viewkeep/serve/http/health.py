"""For who watches the server: is it alive, is it ready, and its metrics.

Law: `/health` says that the server answers; `/ready` that the store can be read and watched, that
all views but those that failed are loaded, that a pipeline runs if they lack writes, and that they
are no further behind than the asker accepts. They and `/metrics` answer within a bound, whatever
reads and writes do (`lookout`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from viewkeep.errors import ViewkeepError
from viewkeep.serve.http.answers import Json
from viewkeep.serve.http.errors import documented
from viewkeep.serve.metrics import MEDIA_TYPE
from viewkeep.serve.service import Service
from viewkeep.status import Status


class Alive(BaseModel):
    """The server answers."""

    alive: bool


class Ready(BaseModel):
    """Whether readers may be sent here."""

    ready: bool
    epoch: int = Field(description="The published one.")
    lag: int = Field(description="Operations that it does not cover.")
    lag_seconds: float | None = Field(
        description="The age of the oldest write that it does not cover; null if not known."
    )
    reasons: list[str] = Field(description="Why it is not ready.")
    warnings: list[str] = Field(
        description="What needs attention though readers may be sent here: views that failed, a "
        "pipeline that fails."
    )


Seconds = Annotated[
    float | None, Query(ge=0, allow_inf_nan=False, description="Accepted age of the views.")
]
Operations = Annotated[
    int | None, Query(ge=0, le=1 << 62, description="Accepted operations that the views lack.")
]


def routes(app: FastAPI, service: Service) -> None:
    """Add the routes for who watches."""

    @app.get("/health", tags=["operations"], response_model=Alive)
    async def health() -> Json:
        """Whether the server answers; open to all."""
        return Json({"alive": True})

    @app.get(
        "/ready",
        tags=["operations"],
        response_model=Ready,
        responses={503: {"model": Ready, "description": "Not ready"}, 400: documented()[400]},
    )
    async def ready(lag_seconds: Seconds = None, lag_operations: Operations = None) -> Json:
        """Whether the views are loaded, and not further behind than accepted; open to all."""
        try:
            service.hub.check()
            # Reasons may hold values of rows, which are not for everybody.
            why = not service.credentials.needed
            status, trouble = await service.status.look(), service.hub.trouble
            found = _readiness(status, trouble, lag_seconds, lag_operations, why)
        except ViewkeepError as error:
            nothing = {"epoch": 0, "lag": 0, "lag_seconds": None}
            found = {"ready": False, **nothing, "reasons": [str(error)], "warnings": []}
        return Json(found, 200 if found["ready"] else 503)

    @app.get(
        "/metrics",
        tags=["operations"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **documented()},
    )
    async def metrics() -> Response:
        """What Prometheus collects."""
        figures = None
        with suppress(ViewkeepError):
            figures = await service.figures.look()
        return Response(service.metrics.text(figures), headers={"Content-Type": MEDIA_TYPE})


def _readiness(
    status: Status, trouble: str, seconds: float | None, operations: int | None, why: bool
) -> dict[str, Any]:
    reasons = _reasons(status, seconds, operations)
    if trouble:
        reasons.append(f"sessions and feeds hear of no new epochs: {trouble}")
    return {
        "ready": not reasons,
        "epoch": status.epoch,
        "lag": status.lag,
        "lag_seconds": status.lag_seconds,
        "reasons": reasons,
        "warnings": _warnings(status, why),
    }


def _warnings(status: Status, why: bool) -> list[str]:
    """One view that failed is no reason to send nobody to all the others."""
    failed = [view for view in status.views if view.state == "failed"]
    found = [view.problem if why else f"view {view.name} has failed" for view in failed]
    if status.trouble:
        found.append(status.trouble if why else "the pipeline fails")
    return found


def _reasons(status: Status, seconds: float | None, operations: int | None) -> list[str]:
    missing = [view for view in status.views if view.state not in ("ready", "failed")]
    found = [f"view {view.name} is {view.state}" for view in missing]
    if status.driver is None and (missing or (status.views and status.lag)):
        found.append("no pipeline runs, so the views stay as they are; start one: viewkeep run")
    if operations is not None and status.lag > operations:
        plural = "" if status.lag == 1 else "s"
        found.append(f"the views lack {status.lag:,} operation{plural}")
    if seconds is not None and status.lag:
        if not status.epoch:
            found.append("no epoch is published yet")
        elif status.lag_seconds > seconds:
            found.append(f"the views are {status.lag_seconds:.1f} s behind")
    return found
