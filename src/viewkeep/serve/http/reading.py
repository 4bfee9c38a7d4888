"""Reads: a row by its key, rows in key order, measures of them, and several reads at one cut.

Law: one request reads one cut. A row by its key is read in the event loop; all else in a thread,
and never more rows than the settings allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query
from pydantic import BaseModel, Field

from viewkeep.access.sessions import Session
from viewkeep.database import Database
from viewkeep.errors import EpochGone
from viewkeep.serve.http.answers import Json
from viewkeep.serve.http.errors import documented
from viewkeep.serve.http.selections import (
    PAGE_ROWS,
    AtText,
    Key,
    Limit,
    Name,
    Selected,
    Texts,
    Wanted,
    at_of,
)
from viewkeep.serve.http.sessions import Token, answer, reading, within
from viewkeep.serve.http.values import dumps, key_of, key_of_texts
from viewkeep.serve.limits import TooLarge
from viewkeep.serve.service import Service

Wish = Annotated[
    Sequence[str],
    Query(description="`count(*)`, `count(c)`, `sum(c)`, `min(c)` or `max(c)` of a column c."),
]
Reverse = Annotated[bool, Query(description="Backwards.")]
After = Annotated[str | None, Query(description="`next` of the page before.")]

ROW = "/v1/{name}/row"
TRIES = 3  # at the published epoch as it goes by, before one is kept
_Row = dict[str, Any]


class Row(BaseModel):
    """One row, or null where there is none."""

    row: _Row | None = Field(examples=[{"story": 7, "votes": 12}])


class Rows(BaseModel):
    """Rows in key order."""

    rows: list[_Row] = Field(examples=[[{"story": 7, "votes": 12}]])
    epoch: int | None = Field(description="That was read; null for a table as it is now.")
    next: str | None = Field(description="Give it as `after` for the next page; null at the end.")


class Measures(BaseModel):
    """Measures of rows."""

    measures: _Row = Field(examples=[{"count(*)": 3, "sum(votes)": 40}])


class BatchRead(BaseModel):
    """Several reads at one published cut."""

    reads: list[Wanted] = Field(
        max_length=10_000,
        examples=[
            [{"name": "scores", "key": [7]}, {"name": "sales", "prefix": ["eu"], "limit": 2}]
        ],
    )


class BatchRows(BaseModel):
    """The answers in the order of the reads: `{"row": ...}` or `{"rows": [...]}`."""

    epoch: int = Field(description="Whose cut all of them were read at.")
    results: list[_Row] = Field(examples=[[{"row": {"story": 7, "votes": 12}}, {"rows": []}]])


def routes(app: FastAPI, service: Service) -> None:
    """Add the routes that read."""
    database, most = service.db, service.settings.max_rows

    @app.get(ROW, tags=["read"], response_model=Row, responses=documented(404, 410, 504))
    async def row(name: Name, key: Key = (), at: AtText = None, session: Token = None) -> Json:
        """One row of a table or view by its key; null if there is none."""
        return await row_answer(service, name, key, at, session)

    @app.get(
        "/v1/{name}/rows", tags=["read"], response_model=Rows, responses=documented(404, 410, 504)
    )
    async def rows(
        name: Name,
        selected: Annotated[Selected, Depends()],
        limit: Limit = PAGE_ROWS,
        reverse: Reverse = False,
        after: After = None,
        at: AtText = None,
        session: Token = None,
    ) -> Json:
        """Rows in key order: all, or those of a prefix, range or slice, a page at a time."""
        relation = service.relation(name)
        selection = selected.arguments(relation.schema, name)
        page: dict[str, Any] = {"limit": min(limit, most), "reverse": reverse, "after": after}
        when = at_of(at)

        def scan(db: Database | Session) -> bytes:
            found = db.scan(name, at=when, **selection, **page)
            return dumps({"rows": found.rows(), "epoch": found.epoch, "next": found.next})

        return answer(*await reading(service, session, relation, when, scan))

    @app.get(
        "/v1/{name}/aggregate",
        tags=["read"],
        response_model=Measures,
        responses=documented(404, 410, 504),
    )
    async def aggregate(
        name: Name,
        selected: Annotated[Selected, Depends()],
        measure: Wish = ("count(*)",),
        at: AtText = None,
        session: Token = None,
    ) -> Json:
        """Measures of the rows of a prefix, range or slice: count, sum, min, max."""
        relation = service.relation(name)
        selection = selected.arguments(relation.schema, name)
        when = at_of(at)

        def measured(db: Database | Session) -> dict[str, Any]:
            return db.aggregate(name, *measure, at=when, **selection)

        found, token = await reading(service, session, relation, when, measured)
        return answer({"measures": found}, token)

    @app.post(
        "/v1/read", tags=["read"], response_model=BatchRows, responses=documented(404, 410, 504)
    )
    async def read(batch: BatchRead, session: Token = None) -> Json:
        """Several reads of tables and views, all at the cut of one published epoch."""

        def together(own: Session) -> bytes:
            own.wait()
            epoch, results = _at_one_cut(database, batch.reads, most)
            parts = b",".join(dumps(result) for result in results)
            return b'{"epoch":%d,"results":[%b]}' % (epoch, parts)

        return answer(*await within(service, session, "what is read", together))


async def row_answer(
    service: Service, name: str, key: Texts, at: str | None, session: str | None
) -> Json:
    """The answer to a read by key."""
    relation = service.relation(name)
    values = key_of_texts(key, relation.schema, name)
    when = at_of(at)
    found, token = await reading(
        service, session, relation, when, lambda db: db.get(name, values, at=when), quick=True
    )
    return answer({"row": found}, token)


def _at_one_cut(db: Database, reads: list[Wanted], most: int) -> tuple[int, list[_Row]]:
    """The published epoch and what it holds; one is kept for it if epochs pass too fast."""
    for _ in range(TRIES):
        epoch = db.epochs.read().published.epoch
        with suppress(EpochGone):
            return epoch, _all(db, reads, epoch, most)
    with db.snapshot() as kept:
        return kept.epoch, _all(db, reads, kept.epoch, most)


def _all(db: Database, reads: list[Wanted], epoch: int, most: int) -> list[_Row]:
    """The answers in their order; the keys of a table are read together."""
    left = most - sum(len(_keys(wanted)) for wanted in reads)
    if left < 0:
        raise _too_many(most)
    keys: dict[str, list[tuple[Any, ...]]] = {}
    schemas = {wanted.name: db.schema(wanted.name) for wanted in reads}
    for wanted in reads:
        name = wanted.name
        given = [key_of(key, schemas[name], name) for key in _keys(wanted)]
        keys.setdefault(name, []).extend(given)
    # A base table at an epoch is read with the log after its cut: once, not for every key.
    rows = {name: iter(db.get_many(name, wanted, at=epoch)) for name, wanted in keys.items()}
    found: list[_Row] = []
    for wanted in reads:
        name = wanted.name
        if wanted.by_key:
            found.append({"row": next(rows[name])})
        elif wanted.keys is not None:
            found.append({"rows": list(islice(rows[name], len(wanted.keys)))})
        else:
            page: dict[str, Any] = {"limit": wanted.limit, "reverse": wanted.reverse}
            scanned = db.scan(name, at=epoch, **wanted.arguments(schemas[name]), **page)
            left -= len(scanned)
            if left < 0:
                raise _too_many(most)
            found.append({"rows": scanned.rows(), "next": scanned.next})
    return found


def _keys(wanted: Wanted) -> Sequence[Any]:
    """The keys that one of the reads names."""
    if wanted.by_key:
        return (wanted.key,)
    return () if wanted.keys is None else wanted.keys


def _too_many(most: int) -> TooLarge:
    return TooLarge(f"the reads have more than {most:,} rows together; ask for fewer")
