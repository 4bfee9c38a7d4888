"""Tests of the application: a database in memory for each, without Spark. Run them with pytest."""

from app import application
from fastapi.testclient import TestClient

from viewkeep import Database


def test_a_visitor_sees_their_own_vote(viewkeep_db: Database) -> None:
    with TestClient(application(viewkeep_db)) as visitor:
        visitor.post("/stories", json={"id": 7, "title": "Views that keep up"})
        assert visitor.get("/stories/7").json()["votes"] == 0
        visitor.post("/stories/7/votes", json={"voter": "ann", "stars": 5})
        visitor.post("/stories/7/votes", json={"voter": "bob", "stars": 2})
        visitor.post("/stories/7/votes", json={"voter": "bob", "stars": 3})  # changes their mind
        story = visitor.get("/stories/7").json()
        assert (story["title"], story["votes"], story["mean"]) == ("Views that keep up", 2, 4.0)


def test_the_best_stories_come_first(viewkeep_db: Database) -> None:
    with TestClient(application(viewkeep_db)) as visitor:
        for story in (1, 2, 3):
            visitor.post("/stories", json={"id": story, "title": f"story {story}"})
        for voter in ("ann", "bob"):
            visitor.post("/stories/2/votes", json={"voter": voter, "stars": 4})
        visitor.post("/stories/3/votes", json={"voter": "ann", "stars": 5})
        assert [row["id"] for row in visitor.get("/top").json()] == [2, 3]


def test_a_story_that_is_not_there(viewkeep_db: Database) -> None:
    with TestClient(application(viewkeep_db)) as visitor:
        assert visitor.get("/stories/9").status_code == 404
        assert visitor.post("/stories/9/votes", json={"voter": "a", "stars": 6}).status_code == 422
