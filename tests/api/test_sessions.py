"""Sessions: own writes are seen, time never goes back, and a token takes that elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewkeep
from viewkeep.access.tokens import read_token, write_token
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.identity import database_id
from viewkeep.engine.local import advance
from viewkeep.errors import DuplicateKey, InvalidToken, NotReady, Timeout, UnknownName

if TYPE_CHECKING:
    from pathlib import Path

    from viewkeep import Database
    from viewkeep.engine.epochs import Published

    CatchUp = Callable[[], Published]

SITE = """
    CREATE TABLE votes (id INT PRIMARY KEY, story INT);
    CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story;
    CREATE VIEW total AS SELECT COUNT(*) AS votes FROM votes;
"""


@pytest.fixture
def site(db: Database, catch_up: CatchUp) -> Database:
    db.sql(SITE)
    db.put("votes", {"id": 0, "story": 1})
    catch_up()
    return db


@pytest.fixture
def running(site: Database) -> Iterator[threading.Event]:
    """Epochs pass in the background, a few operations each; set the event to hold them."""
    epochs = Epochs(site.store)
    lease = epochs.acquire()
    done, held = threading.Event(), threading.Event()

    def run() -> None:
        while not done.is_set():
            if held.is_set() or advance(site.store, lease.term, Limits(operations=3)) is None:
                done.wait(0.002)

    thread = threading.Thread(target=run)
    thread.start()
    yield held
    done.set()
    thread.join()


def test_every_read_sees_own_writes(site: Database, running: threading.Event) -> None:
    with site.session() as session:
        for number in range(1, 16):
            session.put("votes", [{"id": number, "story": 1}, {"id": -number, "story": 2}])
            match number % 5:
                case 0:
                    row = session.get("scores", 1)
                case 1:
                    row = session.get_many("scores", [1, 2])[0]
                case 2:
                    row = session.scan("scores", prefix=1).one()
                case 3:
                    row = session.read([("scores", 1), ("total", ())])[0]
                case _:
                    row = session.sql("SELECT votes FROM scores WHERE story = 1").one()
            assert row is not None
            assert row["votes"] == number + 1
            assert session.get("votes", number) == {"id": number, "story": 1}
        session.delete("votes", 1)
        session.delete_many("votes", [2, 3])
        session.sql("DELETE FROM votes WHERE id = 4; INSERT INTO votes VALUES (99, 1)")
        assert session.get("scores", 1) == {"story": 1, "votes": 13}
        with pytest.raises(DuplicateKey):
            session.insert("votes", {"id": 99, "story": 1})
        session.insert("votes", {"id": 98, "story": 1})
        assert session.get("total") == {"votes": 28 + 1}


def test_many_sessions_at_once(site: Database, running: threading.Event) -> None:
    """Each has a story of its own; every read finds all of its votes, and its epochs only grow."""
    failures: list[BaseException] = []

    def use(story: int) -> None:
        try:
            token, epoch = None, 0
            for number in range(1, 11):
                with site.session(token) as session:
                    session.put("votes", {"id": story * 100 + number, "story": story})
                    token = session.token
                with site.session(token) as session:
                    assert session.get("scores", story) == {"story": story, "votes": number}
                    assert session.epoch >= epoch
                    token, epoch = session.token, session.epoch
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(story,)) for story in range(10, 14)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_timeout_says_how_far_behind(site: Database, catch_up: CatchUp) -> None:
    with site.session(timeout=0.0) as session:
        assert session.get("scores", 1) == {"story": 1, "votes": 1}
        session.put("votes", [{"id": n, "story": 1} for n in range(5, 8)])
        expected = (
            r"after 0 s view scores lacks 3 operations of this session "
            r"\(\d+\.\d s behind\); is the pipeline running\? .*viewkeep run"
        )
        for read in (
            lambda: session.get("scores", 1),
            lambda: session.get_many("scores", [1]),
            lambda: session.scan("scores"),
        ):
            with pytest.raises(Timeout, match=expected):
                read()
        with pytest.raises(Timeout, match="what is read lacks 3 operations"):
            session.read([("scores", 1)])
        with pytest.raises(Timeout, match="the query reads lacks 3 operations"):
            session.sql("SELECT * FROM scores")
        with pytest.raises(Timeout):
            session.get("votes", 5, at="stable")
        assert session.get("votes", 5) == {"id": 5, "story": 1}
        assert len(session.scan("votes")) == 4
        assert len(session.sql("SELECT * FROM votes")) == 4
        assert session.get("scores", 1, at="latest") == {"story": 1, "votes": 1}
        with pytest.raises(Timeout):
            session.wait()
        catch_up()
        assert session.get("scores", 1) == {"story": 1, "votes": 4}
        assert session.wait().epoch == session.epoch


def test_before_the_first_epoch(db: Database) -> None:
    db.sql(SITE)
    with db.session(timeout=0.0) as session:
        with pytest.raises(NotReady):
            session.get("scores", 1)
        session.put("votes", {"id": 1, "story": 1})
        with pytest.raises(Timeout, match=r"1 operation of this session \(no epoch is published"):
            session.get("scores", 1)
        with pytest.raises(UnknownName):
            session.get("score", 1)


def test_a_view_made_in_the_session_is_waited_for(site: Database, running: threading.Event) -> None:
    with site.session() as session:
        session.sql("CREATE VIEW pairs AS SELECT story, MAX(id) AS last FROM votes GROUP BY story")
        assert session.get("pairs", 1) == {"story": 1, "last": 0}
        session.sql("CREATE VIEW more AS SELECT id FROM votes")
        assert len(session.sql("SELECT * FROM more")) == 1
        token = session.token
        session.sql("CREATE VIEW other AS SELECT story FROM votes")
    running.set()
    with site.session(token, timeout=0.0) as session:
        session.sql("CREATE VIEW late AS SELECT id + 1 AS k FROM votes")
        with pytest.raises(NotReady):
            session.get("late", 1)


def test_a_token_is_read_your_writes_elsewhere(site: Database, catch_up: CatchUp) -> None:
    with site.session() as session:
        session.put("votes", [{"id": n, "story": 1} for n in range(5, 8)])
        token = session.token
    other = viewkeep.open(site.url)
    with other.session(token, timeout=0.0) as late, pytest.raises(Timeout, match="3 operations"):
        late.get("scores", 1)
    catch_up()
    with other.session(token, timeout=0.0) as late:
        assert late.get("scores", 1) == {"story": 1, "votes": 4}
        assert len(late.token) < 40
    other.close()


def test_reads_never_go_back(site: Database, catch_up: CatchUp) -> None:
    """The token of a session that has read a newer epoch than the one a reader is given."""
    with site.session() as session:
        session.get("scores", 1)
        database = database_id(site.store)
        parts = read_token("s3", database, session.token, "session")
    assert int(parts[0]) == session.epoch == site.status().epoch
    later = write_token("s3", database, [session.epoch + 1, *parts[1:]])
    with site.session(later, timeout=0.0) as behind:
        with pytest.raises(Timeout, match=r"view scores is at epoch \d+, and this session has"):
            behind.get("scores", 1)
        site.put("votes", {"id": 50, "story": 1})
        catch_up()
        assert behind.get("scores", 1) == {"story": 1, "votes": 2}


def test_reads_are_monotonic_over_processes_and_tokens(
    site: Database, running: threading.Event
) -> None:
    """A count that only grows, read by sessions that hand a token around, never shrinks."""
    writer = site.session()
    code = (
        "import sys, json, viewkeep\n"
        "db = viewkeep.open(sys.argv[1])\n"
        "for line in sys.stdin:\n"
        "    with db.session(line.strip()) as s:\n"
        "        row = s.get('total')\n"
        "        print(json.dumps([row['votes'], s.epoch, s.token]), flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, site.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    token, last, epoch = site.session().token, 0, 0
    for number in range(100, 140):
        writer.put("votes", {"id": number, "story": 3})
        if number % 2:
            print(token, file=child.stdin, flush=True)
            count, seen, token = json.loads(child.stdout.readline())
        else:
            with site.session(token) as session:
                row = session.get("total")
                assert row is not None
                count, seen, token = row["votes"], session.epoch, session.token
        assert count >= last
        assert seen >= epoch
        last, epoch = count, seen
    child.stdin.close()
    assert child.wait(20) == 0
    child.stdout.close()


def test_tokens_are_checked(site: Database, tmp_path: Path) -> None:
    session = site.session()
    session.put("votes", [{"id": n, "story": 1} for n in range(100, 120)])
    token = session.token
    for wrong in ("", "x", token[:-1], token + "1", token.replace("s3", "s2"), "s3." + "9" * 5000):
        with pytest.raises(InvalidToken):
            site.session(wrong)
    with pytest.raises(InvalidToken):
        site.session(b"s3")  # type: ignore[arg-type]
    with pytest.raises(InvalidToken, match="damaged: '' is no number"):
        site.session(write_token("s3", database_id(site.store), ["1", "", "0", "0"]))
    for nodes in (2, 3):
        other = viewkeep.open(tmp_path / f"{nodes}.vk", nodes=nodes)
        with pytest.raises(InvalidToken, match="token of the session is of another database"):
            other.session(token)
        # A copy of a database that was made before those writes has its id, and not the writes.
        parts = read_token("s3", database_id(site.store), token, "session")
        copied = write_token("s3", database_id(other.store), parts)
        with pytest.raises(InvalidToken, match="writes that this database does not"):
            other.session(copied)
        other.close()


@given(st.text(max_size=40) | st.from_regex(r"s3(\.[0-9]{0,3}){0,5}", fullmatch=True))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        read_token("s3", "0a1b", text, "session")


@given(
    st.lists(st.integers(0, 2**63) | st.from_regex(r"[A-Za-z0-9_-]{0,9}", fullmatch=True)),
    st.integers(0, 200),
    st.sampled_from("0123456789abcdef.xyz"),
)
def test_tokens_survive_no_change(parts: list[int | str], place: int, letter: str) -> None:
    token = write_token("k1", "0a1b", parts)
    assert read_token("k1", "0a1b", token, "thing") == [str(part) for part in parts]
    place %= len(token)
    changed = token[:place] + letter + token[place + 1 :]
    if changed != token:
        with pytest.raises(InvalidToken):
            read_token("k1", "0a1b", changed, "thing")
