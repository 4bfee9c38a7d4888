"""SQL over HTTP: statements one after another, and how views are kept.

Law: the statements of a request are run in one session, each when the published epoch covers those
before it; an error ends the run and the statements before it are done. No statement is run twice:
one that has to wait for an epoch has written nothing yet.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from pydantic import BaseModel, Field, WithJsonSchema
from sqlglot import TokenType
from sqlglot.errors import TokenError

from viewkeep.access.results import Result
from viewkeep.access.sessions import Session
from viewkeep.errors import SqlSyntaxError
from viewkeep.serve.auth import check_sql, check_writes
from viewkeep.serve.http.answers import Json
from viewkeep.serve.http.errors import InvalidRequest, documented
from viewkeep.serve.http.selections import at_of
from viewkeep.serve.http.sessions import Token, answer, within
from viewkeep.serve.http.values import dumps
from viewkeep.serve.limits import TooLarge, has_more_tokens
from viewkeep.serve.service import Service
from viewkeep.serve.settings import Settings
from viewkeep.sql.parse.syntax import Dialect
from viewkeep.sql.statements.bulk_insert import PlainRows, split_rows

_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|MERGE)\b")

_SHORT = 4_000  # characters that are cut into statements in the event loop

Number = Annotated[Decimal, WithJsonSchema({"type": "number"})]


class Statements(BaseModel):
    """Statements to run."""

    sql: str = Field(
        description="One or more statements, separated by `;`.",
        examples=["SELECT votes FROM scores WHERE story = 7"],
    )
    parameters: list[str | bool | int | Number | None] = Field(
        [],
        max_length=65_535,
        description="Values for the `?` of one statement, in order.",
        examples=[[]],
    )
    at: str | None = Field(
        None,
        pattern=r"^(stable|latest|[0-9]{1,18})$",
        description="What a SELECT sees: `stable`, `latest`, or a kept epoch.",
        examples=["stable"],
    )


class Answer(BaseModel):
    """What the last statement gave."""

    columns: list[str] = Field(examples=[["votes"]])
    rows: list[dict[str, Any]] = Field(examples=[[{"votes": 12}]])
    affected: int = Field(description="Rows that INSERT, UPDATE or DELETE changed.", examples=[0])
    message: str = Field(description="What a statement without rows did.", examples=[""])
    epoch: int | None = Field(description="That a SELECT read; null for tables as they are now.")
    how: str = Field(description="How each relation was read.", examples=["scores by key"])


class Explanation(BaseModel):
    """How views are kept."""

    explain: str


Of = Annotated[str | None, Query(description="A view, or a statement; all views if left out.")]


def routes(app: FastAPI, service: Service) -> None:
    """Add the routes of SQL."""
    db, most = service.db, service.settings.max_rows

    @app.post(
        "/v1/sql",
        tags=["sql"],
        response_model=Answer,
        responses=documented(404, 409, 410, 504, 507),
    )
    async def sql(request: Request, given: Statements, session: Token = None) -> Json:
        """Run statements; the answer is the last one's."""
        limits = service.settings
        if len(given.parameters) > limits.max_parameters:
            raise TooLarge(f"a statement has at most {limits.max_parameters:,} parameters here")
        texts: list[str] | PlainRows
        if len(given.sql) <= min(_SHORT, limits.max_sql, limits.max_tokens):
            texts = statements_of(given.sql)
        else:
            texts = await service.parse(_read, given.sql, limits)
        if isinstance(texts, PlainRows):
            check_writes(request.scope)
            return await insert(texts, session)
        if len(texts) > limits.max_statements:
            raise TooLarge(f"a text has at most {limits.max_statements:,} statements here")
        check_sql(request.scope, texts)
        if given.parameters and len(texts) != 1:
            raise InvalidRequest("parameters are for one statement; send them one by one")
        when = at_of(given.at)
        more: dict[str, Any] = {"parameters": given.parameters} if given.parameters else {}
        body, token = dumps(_content(Result(message="(no statement)"), most)), session

        for text in texts:

            def run(own: Session, text: str = text) -> bytes:
                return dumps(_content(own.sql(text, at=when, **more), most))

            writes = not is_query(text)
            body, token = await within(service, token, "what the query reads", run, writes=writes)
        return answer(body, token)

    async def insert(rows: PlainRows, token: str | None) -> Json:
        """Insert the rows of one long statement."""

        def run(own: Session) -> bytes:
            result = own.insert_plain(rows, service.settings.max_key)
            if result is None:
                raise _too_long(service.settings)
            return dumps(_content(result, most))

        return answer(*await within(service, token, "", run, writes=True))

    @app.get("/v1/explain", tags=["sql"], response_model=Explanation, responses=documented(404))
    async def explain(of: Of = None) -> Json:
        """How a view is kept, or a statement would be: zones, state tables and levels, as text."""
        return Json({"explain": await service.run(db.explain, of)})


def is_query(text: str) -> bool:
    """Whether a statement only reads, as far as its words tell: reads have threads of their own."""
    text = text.lstrip("( \t\r\n").upper()
    if text.startswith("WITH"):
        return _WRITES.search(text) is None
    return text.startswith(("SELECT", "VALUES"))


def statements_of(text: str) -> list[str]:
    """The statements of a text, each as it was written."""
    if ";" not in text.rstrip("; \t\r\n"):
        return [text]
    try:
        tokens = Dialect().tokenize(text)
    except TokenError as error:
        raise SqlSyntaxError(f"syntax error: {error}") from error
    ends = [token.start for token in tokens if token.token_type == TokenType.SEMICOLON]
    starts = [0, *(end + 1 for end in ends)]
    parts = [text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True)]
    return [part for part in parts if part.strip()]


def _read(text: str, limits: Settings) -> list[str] | PlainRows:
    """The statements of a long text, or the rows of an INSERT that is too long to be parsed."""
    if len(text) > limits.max_sql:
        found = split_rows(text, limits.max_written)
        if found is None:
            raise _too_long(limits)
        if len(found.rows) > limits.max_written:
            raise TooLarge(f"an INSERT has at most {limits.max_written:,} rows here")
        return found
    texts = statements_of(text)
    if any(has_more_tokens(one, limits.max_tokens, Dialect) for one in texts):
        raise TooLarge(
            f"a statement has at most {limits.max_tokens:,} tokens here (max_tokens); rows are "
            "sent as rows"
        )
    return texts


def _too_long(limits: Settings) -> TooLarge:
    return TooLarge(
        f"SQL has at most {limits.max_sql:,} characters here (max_sql), but for one INSERT of "
        "plain constants; rows are sent as rows"
    )


def _content(result: Result, most: int) -> dict[str, Any]:
    if len(result) > most:
        raise TooLarge(f"the answer has {len(result):,} rows, the limit is {most:,}; add a LIMIT")
    return {
        "columns": result.columns,
        "rows": result.rows(),
        "affected": result.affected,
        "message": result.message,
        "epoch": result.epoch,
        "how": result.how,
    }
