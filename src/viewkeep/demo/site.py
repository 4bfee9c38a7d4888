"""The news site: its tables, its views, and the traffic of its readers.

Law: the traffic is a function of its seed; only its pace depends on the clock.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from viewkeep.database import Database

TABLES = """
CREATE TABLE stories (
    id BIGINT PRIMARY KEY, author STRING, section STRING, title STRING, posted TIMESTAMP);
CREATE TABLE votes (
    story BIGINT, voter BIGINT, author STRING, stars INT, PRIMARY KEY (story, voter));
CREATE TABLE comments (
    id BIGINT PRIMARY KEY, story BIGINT, author STRING, body STRING, posted TIMESTAMP);
"""

VIEWS = """
-- votes per story, with the mean and the extremes: one lookup to show a story
CREATE VIEW story_scores AS
    SELECT story, COUNT(*) AS votes, SUM(stars) AS stars, AVG(stars) AS mean,
           MIN(stars) AS worst, MAX(stars) AS best
    FROM votes GROUP BY story;
-- what authors have earned over all their stories
CREATE VIEW author_scores AS
    SELECT author, SUM(stars) AS score, COUNT(*) AS votes, COUNT(DISTINCT story) AS stories
    FROM votes GROUP BY author;
-- comments per story, and how many people wrote them
CREATE VIEW story_comments AS
    SELECT story, COUNT(*) AS comments, COUNT(DISTINCT author) AS people, MAX(posted) AS latest
    FROM comments GROUP BY story;
-- a view on a view: the stories in the order of their votes, for the front page
CREATE VIEW front_page AS
    SELECT votes, story, mean FROM story_scores ORDER BY votes DESC, story;
-- another view on that view: how many stories have how many votes
CREATE VIEW popularity AS
    SELECT votes, COUNT(*) AS stories FROM story_scores GROUP BY votes;
-- an index: the stories of a section, newest first
CREATE VIEW section_stories AS
    SELECT section, posted, id, title, author FROM stories ORDER BY section, posted DESC;
-- one row for the whole site
CREATE VIEW totals AS
    SELECT COUNT(*) AS votes, COUNT(DISTINCT author) AS authors, AVG(stars) AS mean FROM votes;
"""

SECTIONS = ("world", "science", "sport", "arts", "local")
AUTHORS = ("ann", "bob", "carla", "dmitri", "eve", "farid", "grace", "hugo", "iris", "jonas")
SUBJECTS = ("Mayor", "Comet", "Team", "Orchestra", "Bakery", "River", "Robot", "Library", "Bridge")
VERBS = ("finds", "loses", "rebuilds", "explains", "paints", "measures", "sells", "opens", "saves")
OBJECTS = ("a bridge", "the record", "old maps", "its past", "two cats", "the tower", "a theory")
STORIES = 300
VOTERS = 20_000
SKEW = 1.08  # Zipf exponent: a few stories get most of the votes
START = dt.datetime(2026, 1, 1)


@dataclass
class Traffic:
    """Readers and writers of the site, in a thread of their own."""

    db: Database
    rate: int  # votes a second, at most
    on_write: Callable[[int], None]  # called with the time before each write
    seed: int = 7
    written: int = 0
    failure: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        weights = [1 / (rank + 1) ** SKEW for rank in range(STORIES)]
        self._cumulative = list(accumulate(weights))
        self._stories: list[int] = list(range(1, STORIES + 1))
        self._random.shuffle(self._stories)
        self._authors: dict[int, str] = {}
        self._cast: list[tuple[int, int]] = []
        self._comments = 0

    def publish_stories(self) -> int:
        """The first stories, all in one write."""
        rows = [self._story(number) for number in sorted(self._stories)]
        return self.db.put("stories", rows)

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._run, name="viewkeep-traffic", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the write that is under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        began = time.monotonic()
        sent = 0
        try:
            while not self._stop.is_set():
                due = int((time.monotonic() - began) * self.rate) - sent
                if due <= 0:
                    self._stop.wait(0.02)
                    continue
                self._round(min(due, 500))
                sent += min(due, 500)
        except BaseException as error:  # shown by `stop`, in the caller's thread
            self.failure = error

    def _round(self, votes: int) -> None:
        """New votes, some changed and withdrawn ones, some comments, now and then an edit."""
        self.on_write(time.time_ns())
        self.written += self.db.put("votes", [self._vote() for _ in range(votes)])
        withdrawn = [
            self._cast.pop(self._random.randrange(len(self._cast))) for _ in range(votes // 20)
        ]
        if withdrawn:
            self.written += self.db.delete_many("votes", withdrawn)
        self.written += self.db.put("comments", [self._comment() for _ in range(1 + votes // 25)])
        if self._random.random() < 0.2:
            story = self._random.choice(self._stories)
            self.written += self.db.put(
                "stories", {"id": story, "title": self._title() + " (updated)"}
            )

    def _pick(self) -> int:
        place = bisect(self._cumulative, self._random.random() * self._cumulative[-1])
        return self._stories[min(place, STORIES - 1)]

    def _story(self, number: int) -> dict[str, object]:
        author = self._authors[number] = self._random.choice(AUTHORS)
        return {
            "id": number,
            "author": author,
            "section": self._random.choice(SECTIONS),
            "title": self._title(),
            "posted": START + dt.timedelta(minutes=number),
        }

    def _vote(self) -> dict[str, object]:
        story, voter = self._pick(), self._random.randrange(VOTERS)
        self._cast.append((story, voter))
        stars = self._random.choices((1, 2, 3, 4, 5), (1, 1, 3, 4, 3))[0]
        return {"story": story, "voter": voter, "author": self._authors[story], "stars": stars}

    def _comment(self) -> dict[str, object]:
        self._comments += 1
        return {
            "id": self._comments,
            "story": self._pick(),
            "author": f"reader{self._random.randrange(2000)}",
            "body": f"{self._random.choice(('Well said', 'Not so', 'More of this', 'Why?'))}.",
            "posted": START + dt.timedelta(seconds=self._comments),
        }

    def _title(self) -> str:
        parts: Sequence[Sequence[str]] = (SUBJECTS, VERBS, OBJECTS)
        return " ".join(self._random.choice(part) for part in parts)
