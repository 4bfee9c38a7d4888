"""What stands still: a stopped process with a lock, busy threads, a slow store. Who watches the
server is answered, reads go on, and a write that was given up never happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pymysql
import pytest

from viewkeep import claims
from viewkeep.serve import lookout as lookout_module
from viewkeep.serve import service as service_module
from viewkeep.serve import threads as threads_module

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

    Serve = Callable[..., Server]

HOLD = """
import signal, sys
from contextlib import ExitStack
from viewkeep.stores import open_store
store = open_store(sys.argv[1])
with ExitStack() as stack:
    for environment in (*store._database.nodes, store._database.meta):
        stack.enter_context(environment.writing())
    print("holds", flush=True)
    signal.pause()
"""


@contextmanager
def stopped_writer(db: Database) -> Iterator[int]:
    """A process that holds the write locks of all nodes and of the meta records, and stands."""
    arguments = [sys.executable, "-c", HOLD, db.store.url]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "holds\n"
            os.kill(process.pid, signal.SIGSTOP)
            yield process.pid
        finally:
            process.kill()


def story(client: httpx.Client, number: int) -> Any:
    row = client.get(f"/v1/votes/row?key={number}").json()["row"]
    return None if row is None else row["story"]


def put(client: httpx.Client, number: int, value: int) -> httpx.Response:
    rows = [{"id": other, "story": value} for other in range(number, number + 8)]
    return client.put("/v1/votes/rows", json={"rows": rows})


def error(answer: httpx.Response, status: int) -> tuple[str, str]:
    assert answer.status_code == status, answer.text
    found = answer.json()["error"]
    return found["kind"], found["message"]


def test_a_stopped_process_with_all_locks_stops_no_monitor_and_no_read(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty writes and forty reads of tables wait meanwhile, more than there are threads."""
    monkeypatch.setattr(lookout_module, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(lookout_module, "_LOCK_SECONDS", 0.1)
    monkeypatch.setattr(service_module, "LONG_WAIT_SECONDS", 0.1)
    server = serve(site, max_seconds=60)
    select = {"sql": "SELECT COUNT(*) AS n FROM votes"}
    with (
        ThreadPoolExecutor(80) as pool,
        httpx.Client(base_url=server.http_url, timeout=90) as client,
        httpx.Client(base_url=server.http_url, timeout=90) as others,
    ):
        with stopped_writer(site) as holder:
            writes = [pool.submit(put, others, 100 + 8 * n, n) for n in range(40)]
            reads = [pool.submit(others.post, "/v1/sql", json=select) for _ in range(40)]
            while not any(read.done() for read in reads):
                assert client.get("/health").status_code == 200
            for _ in range(5):
                began = time.monotonic()
                assert client.get("/health").json() == {"alive": True}
                ready = client.get("/ready")
                assert ready.status_code == 503
                assert f"process {holder} has kept others" in ready.json()["reasons"][0]
                metrics = client.get("/metrics")
                assert metrics.status_code == 200
                assert "viewkeep_store_answers 0.0" in metrics.text
                assert client.get("/v1/scores/row?key=1").json()["row"]["votes"] == 3
                assert len(client.get("/v1/scores/rows").json()["rows"]) == 3
                assert time.monotonic() - began < 20, "far less than anybody waits for the lock"
            assert not any(write.done() for write in writes)
        # It is gone: whoever waited goes on.
        assert {write.result().status_code for write in writes} == {200}
        found = {read.result().status_code for read in reads}
        assert found <= {200, 503}, "those that had no place to wait are told so"
        (reason,) = client.get("/ready").json()["reasons"]
        assert reason.startswith("no pipeline runs"), "which the rows that were written wait for"
        assert "viewkeep_store_answers 1.0" in client.get("/metrics").text


def test_a_write_that_met_its_deadline_did_not_happen(site: Database, serve: Serve) -> None:
    server = serve(site, max_seconds=0.5)
    with httpx.Client(base_url=server.http_url, timeout=30) as client:
        with stopped_writer(site) as holder:
            kind, message = error(put(client, 100, 1), 503)
            assert kind == "Locked"
            assert f"process {holder} has kept others from writing" in message
            assert "nothing was written" in message
        assert put(client, 100, 2).status_code == 200
        server.stop()
    assert site.get("votes", 100) == {"id": 100, "story": 2}


def test_writes_that_wait_in_the_queue_are_given_up_for_ever(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "WRITERS", 1)
    server = serve(site, max_seconds=0.5)
    with (
        ThreadPoolExecutor(20) as pool,
        httpx.Client(base_url=server.http_url, timeout=30) as client,
    ):
        with stopped_writer(site):
            late = list(pool.map(lambda n: put(client, 100, n), range(20)))
            for answer in late:
                kind, message = error(answer, answer.status_code)
                assert (answer.status_code, kind) in {(503, "Locked"), (504, "Timeout")}
                assert "nothing was written" in message
        assert put(client, 100, 77).status_code == 200
        server.stop()
    assert site.get("votes", 100) == {"id": 100, "story": 77}


class Gate:
    """Stops the first write that reaches a place in the store, until it is opened."""

    def __init__(self, work: Callable[..., Any], *, after: bool = False):
        self._work, self._after = work, after
        self._first = threading.Lock()
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        if not self._first.acquire(blocking=False):
            return self._work(*arguments)
        found = self._work(*arguments) if self._after else None
        self.reached.set()
        assert self.open.wait(60)
        return found if self._after else self._work(*arguments)


def test_a_late_write_never_follows_a_newer_one(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the older one stands before the write, and goes on when it is too late."""
    gate = Gate(site.store.tables.write)
    monkeypatch.setattr(site.store.tables, "write", gate)
    server = serve(site, max_seconds=0.3)
    with httpx.Client(base_url=server.http_url, timeout=30) as client:
        kind, message = error(put(client, 100, 1), 504)
        assert kind == "Timeout"
        assert "nothing was written" in message
        assert put(client, 100, 2).status_code == 200
        gate.open.set()
        server.stop()
    assert site.get("votes", 100) == {"id": 100, "story": 2}


def test_a_write_that_had_begun_has_an_unknown_outcome(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands with its locks, so a newer write comes after it."""
    monkeypatch.setattr(threads_module, "GRACE_SECONDS", 0.3)
    gate = Gate(claims.begin, after=True)
    monkeypatch.setattr(claims, "begin", gate)
    server = serve(site, max_seconds=1.0)
    with (
        ThreadPoolExecutor(1) as pool,
        httpx.Client(base_url=server.http_url, timeout=30) as client,
    ):
        kind, message = error(put(client, 100, 1), 504)
        assert kind == "OutcomeUnknown"
        assert "may have been done" in message
        newer = pool.submit(put, client, 100, 2)
        gate.open.set()
        assert newer.result().status_code == 200
        server.stop()
    assert site.get("votes", 100) == {"id": 100, "story": 2}


def test_a_write_that_ends_a_little_late_is_answered(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(claims.begin, after=True)
    monkeypatch.setattr(claims, "begin", gate)
    late = threads_module.Threads._late

    async def opening(self: Any, call: Any, seconds: float) -> Any:
        gate.open.set()
        return await late(self, call, seconds)

    monkeypatch.setattr(threads_module.Threads, "_late", opening)
    server = serve(site, max_seconds=0.3)
    with httpx.Client(base_url=server.http_url, timeout=30) as client:
        assert put(client, 100, 1).status_code == 200
        assert story(client, 100) == 1


def test_mysql_writes_keep_the_same_promises(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads_module, "GRACE_SECONDS", 0.3)
    server = serve(site, max_seconds=1.0, mysql_port=0)
    with pymysql.connect(
        host="127.0.0.1", port=server.mysql_port or 0, user="x", database="viewkeep"
    ) as client:
        cursor = client.cursor()
        rows = ", ".join(f"({number}, %s)" for number in range(100, 108))
        with stopped_writer(site) as holder:
            with pytest.raises(pymysql.err.OperationalError, match=str(holder)) as locked:
                cursor.execute(f"REPLACE INTO votes VALUES {rows}", [1] * 8)
            assert locked.value.args[0] == 1205
            cursor.execute("ROLLBACK")  # there is nothing to undo
        cursor.execute(f"REPLACE INTO votes VALUES {rows}", [2] * 8)
        assert site.get("votes", 100) == {"id": 100, "story": 2}
        client.commit()
        gate = Gate(claims.begin, after=True)
        monkeypatch.setattr(claims, "begin", gate)
        with pytest.raises(pymysql.err.OperationalError, match="may have been done") as unknown:
            cursor.execute(f"REPLACE INTO votes VALUES {rows}", [3] * 8)
        assert unknown.value.args[0] == 1180
        gate.open.set()
        with pytest.raises(pymysql.err.NotSupportedError, match="1196"):
            cursor.execute("ROLLBACK")  # what it wrote, if it did, stays
        cursor.execute(f"REPLACE INTO votes VALUES {rows}", [4] * 8)
    server.stop()
    assert site.get("votes", 100) == {"id": 100, "story": 4}


def test_busy_threads_and_a_full_queue(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "THREADS", 2)
    monkeypatch.setattr(service_module, "WAITING", 20)
    going = threading.Event()
    monkeypatch.setattr(site, "explain", lambda of: going.wait(60) and "done")
    server = serve(site)
    with (
        ThreadPoolExecutor(30) as pool,
        httpx.Client(base_url=server.http_url, timeout=90) as client,
        httpx.Client(base_url=server.http_url, timeout=90) as others,
    ):
        try:
            asked = [pool.submit(others.get, "/v1/explain") for _ in range(30)]
            while not any(one.done() for one in asked):
                assert client.get("/health").status_code == 200
            for _ in range(20):
                assert client.get("/ready").json()["ready"]
                assert "viewkeep_store_answers 1.0" in client.get("/metrics").text
            assert put(client, 100, 1).status_code == 200, "writes have their own threads"
            assert story(client, 100) == 1
        finally:
            going.set()
        statuses = [one.result().status_code for one in asked]
    assert statuses.count(200) == 22
    assert statuses.count(429) == 8


def test_a_store_that_does_not_answer_monitors(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand askers share one look, and none waits for it longer than the bound."""
    monkeypatch.setattr(lookout_module, "LOOK_SECONDS", 0.1)
    going = threading.Event()
    looks = []

    def hangs() -> Any:
        looks.append(1)
        going.wait(60)
        return status()

    status = site.status
    monkeypatch.setattr(site, "status", hangs)
    server = serve(site)
    with (
        ThreadPoolExecutor(8) as pool,
        httpx.Client(base_url=server.http_url, timeout=60) as client,
    ):
        try:
            answers = list(pool.map(lambda _: client.get("/ready"), range(1_000)))
            assert {answer.status_code for answer in answers} == {503}
            assert "has not answered" in answers[0].json()["reasons"][0]
            assert len(looks) == 1
            assert client.get("/health").status_code == 200
        finally:
            going.set()
        while client.get("/ready").status_code != 200:
            pass


def test_slow_reads_by_key_leave_the_event_loop(
    site: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "SLOW_SECONDS", 0.02)
    threads, get = [], site.get

    def slow(*arguments: Any, **more: Any) -> Any:
        threads.append(threading.current_thread().name)
        threading.Event().wait(0.05)
        return get(*arguments, **more)

    monkeypatch.setattr(site, "get", slow)
    server = serve(site)
    with httpx.Client(base_url=server.http_url, timeout=30) as client:
        for _ in range(3):
            assert client.get("/v1/votes/row?key=1").json()["row"] == {"id": 1, "story": 1}
    assert threads[0] == "viewkeep-server"
    assert all(name.startswith("viewkeep-read") for name in threads[1:])
