"""Change feeds over HTTP: replayed they are the view at every epoch, and they can be resumed."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from viewkeep.serve.http import feeds as feeds_module
from viewkeep.serve.http.sessions import HEADER

if TYPE_CHECKING:
    from tests.serve.conftest import Pipeline

    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

    CatchUp = Callable[[], Published]
    Serve = Callable[..., Server]

Block = dict[str, str]
Rows = dict[tuple[Any, ...], dict[str, Any]]


def blocks(answer: httpx.Response) -> Iterator[Block]:
    """The blocks of an event stream, as their fields; comments under ''."""
    block: Block = {}
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            block[name] = value
        else:
            yield block
            block = {}


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """The events of a stream as JSON; each has its token as its id."""
    for block in blocks(answer):
        if "data" in block:
            event = json.loads(block["data"])
            assert block["event"] == event["kind"]
            assert block.get("id") == event.get("token")
            yield event


@asynccontextmanager
async def socket(server: Server, path: str) -> AsyncIterator[ClientConnection]:
    url = server.http_url.replace("http", "ws", 1) + path
    async with connect(url, max_size=None, compression=None) as made:
        yield made


async def heard(made: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(20):
        found = json.loads(await made.recv())
    assert isinstance(found, dict)
    return found


class Replay:
    """Events applied one after another; every change starts from what is there."""

    def __init__(self, key: tuple[str, ...]):
        self.key, self.rows, self.epoch, self.more = key, Rows(), 0, False
        self.history: dict[int, Rows] = {}

    def apply(self, event: dict[str, Any]) -> None:
        if event["kind"] == "rows":
            assert event["epoch"] == self.epoch or not self.rows
            for row in event["rows"]:
                self.rows[tuple(row[name] for name in self.key)] = row
        else:
            assert event["kind"] == "changes"
            assert event["epoch"] > self.epoch or self.more, "an epoch came twice, or too late"
            for change in event["changes"]:
                key = tuple(change["key"])
                assert self.rows.get(key) == change["old"]
                assert change["old"] != change["new"]
                if change["new"] is None:
                    del self.rows[key]
                else:
                    self.rows[key] = change["new"]
        self.epoch, self.more = event["epoch"], event["more"]
        self.history[self.epoch] = dict(self.rows)

    def at(self, epoch: int) -> Rows:
        """The view at an epoch, which the last event before or at it has made."""
        return self.history[max(number for number in self.history if number <= epoch)]


def test_large_epochs_come_in_parts(db: Database, serve: Serve, catch_up: CatchUp) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY); CREATE VIEW v AS SELECT id FROM t")
    catch_up()
    with (
        httpx.Client(base_url=serve(db).http_url) as client,
        client.stream("GET", "/v1/v/changes") as answer,
    ):
        found, replay = events(answer), Replay(("id",))
        replay.apply(next(found))
        db.put("t", [{"id": number} for number in range(12_001)])
        epoch = catch_up().epoch
        parts = [next(found)]
        while parts[-1]["more"]:
            parts.append(next(found))
        assert [len(part["changes"]) for part in parts] == [5_000, 5_000, 2_001]
        for part in parts:
            assert part["epoch"] == epoch
            replay.apply(part)
        assert len(replay.rows) == 12_001
        again = client.stream("GET", "/v1/v/changes", params={"token": parts[1]["token"]})
        with again as answer:
            assert next(events(answer)) == parts[2]


# -- server-sent events -----------------------------------------------------------------------


def test_rows_then_changes(site: Database, client: httpx.Client, catch_up: CatchUp) -> None:
    with client.stream("GET", "/v1/scores/changes") as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        found = events(answer)
        first = next(found)
        assert first["rows"] == [{"story": story, "votes": 3} for story in range(3)]
        assert first["more"] is False
        site.put("votes", [{"id": 50, "story": 1}, {"id": 51, "story": 5}])
        site.delete_many("votes", [2, 5, 8])
        epoch = catch_up().epoch
        second = next(found)
        assert second["epoch"] == epoch
        assert sorted(second["changes"], key=lambda change: change["key"]) == [
            {"key": [1], "old": {"story": 1, "votes": 3}, "new": {"story": 1, "votes": 4}},
            {"key": [2], "old": {"story": 2, "votes": 3}, "new": None},
            {"key": [5], "old": None, "new": {"story": 5, "votes": 1}},
        ]


def test_one_key_and_typed_prefixes(
    site: Database, client: httpx.Client, catch_up: CatchUp
) -> None:
    with client.stream("GET", "/v1/yearly/changes?prefix=eu&prefix=2024") as answer:
        found = events(answer)
        assert [row["amount"] for row in next(found)["rows"]] == [30]
        site.put("sales", {"region": "us", "year": 2024, "item": 5, "amount": 1})
        catch_up()
        site.put("sales", {"region": "eu", "year": 2024, "item": 5, "amount": 1})
        catch_up()
        assert [change["key"] for change in next(found)["changes"]] == [["eu", 2024]]


def test_resumed_by_last_event_id(site: Database, client: httpx.Client, catch_up: CatchUp) -> None:
    with client.stream("GET", "/v1/scores/changes") as answer:
        token = next(events(answer))["token"]
    site.put("votes", {"id": 50, "story": 1})
    catch_up()
    site.put("votes", {"id": 51, "story": 1})
    catch_up()
    headers = {"Last-Event-ID": token}
    with client.stream("GET", "/v1/scores/changes?token=old", headers=headers) as answer:
        found = events(answer)
        one, two = next(found), next(found)
        assert (one["changes"][0]["new"]["votes"], two["changes"][0]["new"]["votes"]) == (4, 5)
    with client.stream("GET", "/v1/scores/changes", params={"token": one["token"]}) as answer:
        assert next(events(answer)) == two


def test_refusals(client: httpx.Client) -> None:
    for query, status, kind in (
        ("scores/changes?token=x", 400, "InvalidToken"),
        ("scores/changes?prefix=x", 400, "InvalidRow"),
        ("scores/changes?progress=perhaps", 400, "InvalidRequest"),
        ("votes/changes", 404, "UnknownName"),
        ("nope/changes", 404, "UnknownName"),
    ):
        answer = client.get(f"/v1/{query}")
        assert (answer.status_code, answer.json()["error"]["kind"]) == (status, kind)
    with client.stream("GET", "/v1/scores/changes") as stream:
        token = next(events(stream))["token"]
    answer = client.get("/v1/total/changes", params={"token": token})
    assert (answer.status_code, answer.json()["error"]["kind"]) == (410, "EpochGone")


def test_feeds_pass_over_to_a_view_that_replaces_theirs(
    site: Database, client: httpx.Client, catch_up: CatchUp
) -> None:
    with client.stream("GET", "/v1/scores/changes") as answer:
        found = events(answer)
        token = next(found)["token"]
        site.sql(
            "CREATE OR REPLACE VIEW scores AS SELECT story, 1 AS one FROM votes GROUP BY story"
        )
        epoch = catch_up().epoch
        event = next(found)
        rows = [{"story": story, "one": 1} for story in range(3)]
        assert (event["kind"], event["epoch"], event["rows"]) == ("replaced", epoch, rows)
    with client.stream("GET", "/v1/scores/changes", headers={"Last-Event-ID": token}) as answer:
        assert next(events(answer))["kind"] == "replaced"


def test_a_dropped_view_ends_its_feeds(
    site: Database, client: httpx.Client, catch_up: CatchUp
) -> None:
    with client.stream("GET", "/v1/scores/changes") as answer:
        found = events(answer)
        token = next(found)["token"]
        site.sql("DROP VIEW scores")
        site.sql("CREATE VIEW scores AS SELECT story, 1 AS one FROM votes GROUP BY story")
        catch_up()
        last = next(found)
        assert last["kind"] == "end"
        assert last["error"]["kind"] == "EpochGone"
        assert "Subscribe anew" in last["error"]["message"]
        assert next(found, None) is None
    answer = client.get("/v1/scores/changes", headers={"Last-Event-ID": token})
    assert answer.status_code == 410


def test_progress_and_signs_of_life(
    site: Database,
    client: httpx.Client,
    catch_up: CatchUp,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with client.stream("GET", "/v1/scores/changes?progress=true") as answer:
        found = events(answer)
        next(found)
        site.put("sales", {"region": "x", "year": 1, "item": 1, "amount": 1})
        epoch = catch_up().epoch
        assert next(found)["epoch"] == epoch
    monkeypatch.setattr(feeds_module, "TURN_SECONDS", 0.05)
    with client.stream("GET", "/v1/scores/changes") as answer:
        found_blocks = blocks(answer)
        first = next(found_blocks)
        site.put("sales", {"region": "x", "year": 1, "item": 1, "amount": 2})
        epoch = catch_up().epoch
        while (alive := next(found_blocks)).get("") != f"epoch {epoch}":
            assert "data" not in alive
        assert alive["id"] != first["id"]  # the place to go on from has moved
    headers = {"Last-Event-ID": alive["id"]}
    with client.stream("GET", "/v1/scores/changes", headers=headers) as answer:
        site.put("votes", {"id": 50, "story": 1})
        catch_up()
        assert next(events(answer))["changes"][0]["new"] == {"story": 1, "votes": 4}


def test_a_feed_after_own_writes(client: httpx.Client, epochs: Pipeline) -> None:
    token = client.put("/v1/votes/rows", json={"rows": [{"id": 50, "story": 9}]}).headers[HEADER]
    with client.stream("GET", "/v1/scores/changes?prefix=9", headers={HEADER: token}) as answer:
        assert next(events(answer))["rows"] == [{"story": 9, "votes": 1}]


def test_large_views_come_in_parts(db: Database, serve: Serve, catch_up: CatchUp) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY); CREATE VIEW v AS SELECT id FROM t")
    db.put("t", [{"id": number} for number in range(12_001)])
    catch_up()
    with (
        httpx.Client(base_url=serve(db).http_url) as client,
        client.stream("GET", "/v1/v/changes") as answer,
    ):
        found, parts = events(answer), []
        while True:
            parts.append(next(found))
            if not parts[-1]["more"]:
                break
        assert len({part["token"] for part in parts}) == len(parts) > 2
        again = client.stream("GET", "/v1/v/changes", params={"token": parts[0]["token"]})
        with again as answer:
            assert next(events(answer)) == parts[1]
        rows = [row["id"] for part in parts for row in part["rows"]]
        assert sorted(rows) == list(range(12_001))


# -- WebSockets -------------------------------------------------------------------------------


def test_socket(site: Database, server: Server, catch_up: CatchUp) -> None:
    async def run() -> None:
        async with socket(server, "/v1/scores/changes/ws") as made:
            first = await heard(made)
            assert len(first["rows"]) == 3
            site.put("votes", {"id": 50, "story": 1})
            await asyncio.to_thread(catch_up)
            await made.send("what a client says means nothing")
            second = await heard(made)
            assert second["changes"][0]["new"] == {"story": 1, "votes": 4}
        site.put("votes", {"id": 51, "story": 1})
        await asyncio.to_thread(catch_up)
        async with socket(server, f"/v1/scores/changes/ws?token={first['token']}") as made:
            assert await heard(made) == second
            assert (await heard(made))["changes"][0]["new"] == {"story": 1, "votes": 5}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "code", "kind"),
    [
        ("/v1/nope/changes/ws", 4404, "UnknownName"),
        ("/v1/votes/changes/ws", 4404, "UnknownName"),
        ("/v1/scores/changes/ws?token=x", 4400, "InvalidToken"),
        ("/v1/scores/changes/ws?prefix=x", 4400, "InvalidRow"),
    ],
)
def test_socket_refusals(server: Server, path: str, code: int, kind: str) -> None:
    async def run() -> None:
        async with socket(server, path) as made:
            assert (await heard(made))["error"]["kind"] == kind
            with pytest.raises(ConnectionClosed):
                await made.recv()
            assert made.close_code == code

    asyncio.run(run())


def test_socket_of_a_dropped_view(site: Database, server: Server, catch_up: CatchUp) -> None:
    async def run() -> None:
        async with socket(server, "/v1/scores/changes/ws") as made:
            await heard(made)
            site.sql("DROP VIEW scores")
            await asyncio.to_thread(catch_up)
            assert (await heard(made))["error"]["kind"] == "EpochGone"
            with pytest.raises(ConnectionClosed):
                await made.recv()
            assert made.close_code == 4410

    asyncio.run(run())


def test_socket_signs_of_life(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "TURN_SECONDS", 0.05)

    async def run() -> None:
        async with socket(server, "/v1/scores/changes/ws") as made:
            first = await heard(made)
            alive = await heard(made)
            assert alive == {"kind": "alive", "epoch": first["epoch"], "token": first["token"]}

    asyncio.run(run())


# -- linearity --------------------------------------------------------------------------------


def expected(db: Database, epoch: int) -> Rows:
    return {(row["story"],): row for row in db.scan("scores", at=epoch)}


def linear(db: Database, server: Server, turns: int, after_turn: Callable[[int], None]) -> None:
    """Feeds of all kinds, some that break off and resume, while others write and epochs pass.

    What each has got is at every epoch the view at that epoch.
    """
    seed = random.Random(7)
    kept: dict[int, Rows] = {}

    def keep() -> None:
        with db.snapshot() as snapshot:
            kept[snapshot.epoch] = expected(db, snapshot.epoch)

    def write() -> None:
        with db.session(timeout=60) as session:
            for turn in range(turns):
                rows = [
                    {"id": seed.randrange(60), "story": seed.randrange(6)}
                    for _ in range(seed.randrange(1, 6))
                ]
                session.put("votes", rows)
                session.delete_many("votes", [seed.randrange(60) for _ in range(3)])
                if turn % 4 == 0:
                    session.wait()
                    keep()
                after_turn(turn)
            session.wait()
            keep()
        db.put("votes", {"id": 1_000, "story": 1_000})  # the last change, which all wait for

    def ended(replay: Replay) -> bool:
        return (1_000,) in replay.rows

    def stream(replay: Replay, breaks: bool) -> None:
        token: str | None = None
        with httpx.Client(base_url=server.http_url, timeout=60) as client:
            while not ended(replay):
                headers = {"Last-Event-ID": token} if token else {}
                with client.stream("GET", "/v1/scores/changes", headers=headers) as answer:
                    assert answer.status_code == 200
                    for event in events(answer):
                        replay.apply(event)
                        token = event["token"] or token
                        if ended(replay) or (breaks and replay.epoch % 3 == 0):
                            break

    async def follow(replay: Replay, breaks: bool) -> None:
        token = ""
        while not ended(replay):
            query = f"?token={token}" if token else ""
            async with socket(server, f"/v1/scores/changes/ws{query}") as made:
                while not ended(replay):
                    event = await heard(made)
                    if event["kind"] == "alive":
                        continue
                    replay.apply(event)
                    token = event["token"] or token
                    if breaks and replay.epoch % 5 == 0:
                        break

    async def run(replays: list[Replay]) -> None:
        await asyncio.gather(
            asyncio.to_thread(write),
            asyncio.to_thread(stream, replays[0], False),
            asyncio.to_thread(stream, replays[1], True),
            follow(replays[2], False),
            follow(replays[3], True),
        )

    replays = [Replay(("story",)) for _ in range(4)]
    asyncio.run(run(replays))
    checked = 0
    for replay in replays:
        for epoch, rows in kept.items():
            if epoch >= min(replay.history):
                assert replay.at(epoch) == rows, epoch
                checked += 1
        assert replay.rows == {(row["story"],): row for row in db.scan("scores")}
    assert checked > turns / 2


def test_replayed_feeds_are_the_view_at_every_epoch(
    site: Database, server: Server, epochs: Pipeline
) -> None:
    linear(site, server, 60, lambda turn: None)


PIPELINE = """
import sys, viewkeep
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import advance
with viewkeep.open(sys.argv[1]) as db:
    lease = Epochs(db.store).acquire()
    print("driving", flush=True)
    while True:
        advance(db.store, lease.term, Limits(operations=3))
"""


@pytest.mark.parametrize("kills", [2, pytest.param(25, marks=pytest.mark.faults)])
def test_replayed_feeds_under_a_killed_pipeline(site: Database, server: Server, kills: int) -> None:
    """The driver is killed in the middle of epochs; another one finishes what it began."""

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PIPELINE, site.url]
        made = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert made.stdout is not None
        assert made.stdout.readline() == "driving\n"
        return made

    driver = [start()]

    def end() -> None:
        driver[0].kill()
        driver[0].communicate()

    def kill(turn: int) -> None:
        if turn % 10 == 9:
            end()
            driver[0] = start()

    try:
        linear(site, server, 10 * kills + 5, kill)
    finally:
        end()
