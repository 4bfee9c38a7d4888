"""The dashboard's addresses: the page at `/`, its files, and what it shows as JSON.

Law: looking changes nothing. What does change something (SQL, a verification) is a POST or DELETE,
which the server refuses if a browser sends it for another site.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from viewkeep import __version__
from viewkeep.database import Database
from viewkeep.errors import UnknownName
from viewkeep.serve.auth import check_sql
from viewkeep.serve.dashboard.files import DOCS, HEADERS, PAGE, VIEW, File, web_files
from viewkeep.serve.dashboard.graph import MOST_NODES, figures_of, graph_of
from viewkeep.serve.dashboard.losses import losses
from viewkeep.serve.dashboard.rows import MOST_ROWS, read_rows, sample_rows, table_of
from viewkeep.serve.dashboard.samples import Samples
from viewkeep.serve.dashboard.samples import plain as plain_sample
from viewkeep.serve.dashboard.slow import slow_epochs
from viewkeep.serve.dashboard.verification import Verifier
from viewkeep.serve.dashboard.verification import plain as plain_run
from viewkeep.serve.dashboard.views import sql_of, view_of, views_of
from viewkeep.serve.http.statements import is_query, statements_of
from viewkeep.serve.service import Service

Key = Annotated[list[str] | None, Query(max_length=64)]


class StatementText(BaseModel):
    """SQL to run, or to explain."""

    sql: str = Field(max_length=64 * 1024)
    explain: bool = False
    sure: bool = False  # somebody was asked whether to drop what it drops


class ViewsToVerify(BaseModel):
    """Views to verify; none: all."""

    views: list[str] = Field(default_factory=list, max_length=1_000)


def router(service: Service) -> APIRouter:
    """The dashboard of one service. It begins to look at once, and ends with the service's hub."""
    verifier = Verifier(service.db.url)
    samples = Samples(service, on_end=verifier.stop)
    samples.start()
    made = APIRouter(include_in_schema=False)
    _add_files(made, web_files())
    _add_looks(made, service, samples)
    _add_rows(made, service)
    _add_verification(made, service, verifier)
    return made


def _add_files(made: APIRouter, files: dict[str, File]) -> None:
    @made.get("/")
    async def page(request: Request) -> Response:
        return _file(files[PAGE], request)

    @made.get("/docs")
    async def docs(request: Request) -> Response:
        return _file(files[DOCS], request)

    @made.get("/views/{name}")
    async def view(name: str, request: Request) -> Response:
        return _file(files[VIEW], request)  # which asks for what it shows

    @made.get("/web/{name}")
    async def file(name: str, request: Request) -> Response:
        found = files.get(name)
        if found is None:
            raise HTTPException(404, "there is no such file")
        return _file(found, request)


def _add_looks(made: APIRouter, service: Service, samples: Samples) -> None:
    db = service.db

    @made.get("/dashboard/graph")
    async def graph(
        view: str | None = None, limit: Annotated[int, Query(ge=1, le=2_000)] = MOST_NODES
    ) -> Response:
        if view is not None:
            _need_views(db, [view])
        return JSONResponse(await service.run(graph_of, db, samples.rates(), view, limit))

    @made.get("/dashboard/views")
    async def views() -> Response:
        return JSONResponse({**await service.run(views_of, db), "version": __version__})

    @made.get("/dashboard/view")
    async def view(name: str) -> Response:
        _need_views(db, [name])
        return JSONResponse({**await service.run(view_of, db, name), "version": __version__})

    @made.get("/dashboard/history")
    async def history() -> Response:
        samples.start()
        return JSONResponse([plain_sample(sample) for sample in samples.history()])

    @made.get("/dashboard/epochs")
    async def epochs() -> Response:
        return JSONResponse([plain_sample(epoch) for epoch in samples.epochs()])

    @made.get("/dashboard/slowest")
    async def slowest() -> Response:
        return JSONResponse(await service.run(slow_epochs, db))

    @made.get("/dashboard/live")
    async def live() -> Response:
        samples.start()

        async def events() -> AsyncIterator[str]:
            epoch = -1
            with service.following():
                async for sample in samples.live():
                    yield _event("sample", plain_sample(sample))
                    if sample.epoch != epoch:
                        epoch = sample.epoch
                        yield _event("figures", await service.run(figures_of, db, samples.rates()))

        headers = {**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


def _add_rows(made: APIRouter, service: Service) -> None:
    db = service.db

    @made.get("/dashboard/sample")
    async def sample(node: str) -> Response:
        return JSONResponse(await service.run(sample_rows, db, node))

    @made.get("/dashboard/sql")
    async def definitions(view: Key = None) -> Response:
        return JSONResponse(await service.run(sql_of, db, view or []))

    @made.get("/dashboard/read")
    async def read(
        name: str,
        key: Key = None,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 25,
        after: str | None = None,
        reverse: bool = False,
    ) -> Response:
        return JSONResponse(
            await service.run(read_rows, db, name, key or [], limit, after, reverse)
        )

    @made.post("/dashboard/sql")
    async def sql(request: Request, statement: StatementText) -> Response:
        if statement.explain:
            text = await service.run(db.explain, statement.sql)
            return JSONResponse({"explain": text})
        texts = statements_of(statement.sql)
        check_sql(request.scope, texts)
        if not statement.sure and (lost := losses(texts)):
            return JSONResponse({"ask": lost})
        run = service.run if is_query(statement.sql) else service.write
        return JSONResponse(table_of(await run(db.sql, statement.sql)))


def _add_verification(made: APIRouter, service: Service, verifier: Verifier) -> None:
    db = service.db

    @made.get("/dashboard/verify")
    async def verdict() -> Response:
        return JSONResponse(plain_run(verifier.last()))

    @made.post("/dashboard/verify")
    async def verify(wanted: ViewsToVerify) -> Response:
        _need_views(db, wanted.views)
        return JSONResponse(plain_run(verifier.begin(wanted.views)), status_code=202)

    @made.delete("/dashboard/verify")
    async def stop() -> Response:
        await verifier.stop()
        return JSONResponse(plain_run(verifier.last()))


def _file(file: File, request: Request) -> Response:
    headers = {**HEADERS, "ETag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.type, headers=headers)


def _need_views(db: Database, names: Sequence[str]) -> None:
    plan = db.catalog.current()
    for name in names:
        if name not in plan.views and name not in plan.unreadable:
            raise UnknownName(f"there is no view {name[:100]}")


def _event(name: str, value: object) -> str:
    return f"event: {name}\ndata: {json.dumps(value)}\n\n"
