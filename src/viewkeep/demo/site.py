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
    story BIGINT, voter BIGINT, stars INT, PRIMARY KEY (story, voter));
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
    SELECT s.author, SUM(v.stars) AS score, COUNT(*) AS votes, COUNT(DISTINCT s.id) AS stories
    FROM votes v JOIN stories s ON v.story = s.id GROUP BY s.author;
-- comments per story, and how many people wrote them
CREATE VIEW story_comments AS
    SELECT story, COUNT(*) AS comments, COUNT(DISTINCT author) AS people, MAX(posted) AS latest
    FROM comments GROUP BY story;
-- views on views: the ten stories with the most votes and all that the front page says of them
CREATE VIEW front_page AS
    SELECT v.votes, v.story, s.title, v.mean, coalesce(c.comments, 0) AS comments,
           coalesce(c.people, 0) AS people, s.author, a.score
    FROM story_scores v JOIN stories s ON s.id = v.story
         JOIN author_scores a ON a.author = s.author LEFT JOIN story_comments c ON c.story = s.id
    ORDER BY votes DESC, story LIMIT 10;
-- the best story of each section
CREATE VIEW section_best AS
    SELECT s.section, s.title, v.mean, v.votes
    FROM stories s JOIN story_scores v ON v.story = s.id WHERE v.votes >= 10
    QUALIFY ROW_NUMBER() OVER (PARTITION BY s.section ORDER BY v.mean DESC, s.id) = 1;
-- how many stories have how many votes
CREATE VIEW popularity AS
    SELECT votes, COUNT(*) AS stories FROM story_scores GROUP BY votes;
-- an index: the stories of a section, newest first
CREATE VIEW section_stories AS
    SELECT section, posted, id, title, author FROM stories ORDER BY section, posted DESC;
-- one row for the whole site
CREATE VIEW totals AS
    SELECT COUNT(*) AS votes, COUNT(DISTINCT voter) AS voters, AVG(stars) AS mean FROM votes;
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
        return {
            "id": number,
            "author": self._random.choice(AUTHORS),
            "section": self._random.choice(SECTIONS),
            "title": self._title(),
            "posted": START + dt.timedelta(minutes=number),
        }

    def _vote(self) -> dict[str, object]:
        story, voter = self._pick(), self._random.randrange(VOTERS)
        self._cast.append((story, voter))
        stars = self._random.choices((1, 2, 3, 4, 5), (1, 1, 3, 4, 3))[0]
        return {"story": story, "voter": voter, "stars": stars}

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
