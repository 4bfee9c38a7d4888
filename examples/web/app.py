"""A web application: what it writes are rows, and what its pages show are views.

    pip install viewkeep uvicorn
    python app.py                # http://127.0.0.1:8000/docs

A visitor's cookie holds a session token, so a page that is loaded after a vote shows that vote.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Cookie, FastAPI, HTTPException, Response
from pydantic import BaseModel, Field

import viewkeep
from viewkeep import Database

TABLES = """
CREATE TABLE IF NOT EXISTS stories (id BIGINT PRIMARY KEY, title STRING);
CREATE TABLE IF NOT EXISTS votes (story BIGINT, voter STRING, stars INT,
    PRIMARY KEY (story, voter));
"""
VIEWS = """
CREATE VIEW scores AS
    SELECT story, COUNT(*) AS votes, AVG(stars) AS mean FROM votes GROUP BY story;
CREATE VIEW top AS
    SELECT c.votes, s.id, s.title FROM scores c JOIN stories s ON s.id = c.story
    ORDER BY votes DESC, id;
"""
Seen = Annotated[str | None, Cookie()]  # the token of what this visitor has written and seen


class Story(BaseModel):
    """A new story."""

    id: int
    title: str


class Vote(BaseModel):
    """One voter's stars for a story; a second vote replaces the first."""

    voter: str
    stars: int = Field(ge=1, le=5)


def application(db: Database) -> FastAPI:
    """The application over a database, whose tables and views it makes if they are not there."""
    db.sql(TABLES)
    if "scores" not in db.views():
        db.sql(VIEWS)
    app = FastAPI(title="News")

    @app.post("/stories", status_code=201)
    def publish(story: Story, response: Response, seen: Seen = None) -> None:
        with db.session(seen) as session:
            session.put("stories", story.model_dump())
            response.set_cookie("seen", session.token)

    @app.post("/stories/{story}/votes", status_code=201)
    def vote(story: int, vote: Vote, response: Response, seen: Seen = None) -> None:
        with db.session(seen) as session:
            session.put("votes", {"story": story, **vote.model_dump()})
            response.set_cookie("seen", session.token)

    @app.get("/stories/{story}")
    def show(story: int, seen: Seen = None) -> dict[str, Any]:
        with db.session(seen) as session:
            # Two lookups at one epoch, whatever the number of votes.
            row, score = session.read([("stories", story), ("scores", story)])
        if row is None:
            raise HTTPException(404, "there is no such story")
        return row | (score or {"story": story, "votes": 0, "mean": None})

    @app.get("/top")
    def top(seen: Seen = None) -> list[dict[str, Any]]:
        with db.session(seen) as session:
            return session.scan("top", limit=10).rows()  # the view is kept in this order

    return app


if __name__ == "__main__":
    import uvicorn

    # In production the pipeline is a process of its own: viewkeep run news.vk
    with viewkeep.open("news.vk") as db, db.pipeline():
        uvicorn.run(application(db))
