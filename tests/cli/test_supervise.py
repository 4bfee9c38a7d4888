"""`serve --run`: a pipeline that fails is started again, and reads go on meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import pytest

import viewkeep
from viewkeep.cli import supervise
from viewkeep.cli.supervise import keep_running
from viewkeep.engine.failures import trouble_of
from viewkeep.engine.local import catch_up
from viewkeep.errors import PipelineError
from viewkeep.serve.server import Server
from viewkeep.serve.settings import Settings

SECONDS = 30.0


class Played:
    """Pipelines: some fail to start, some after a while, the last one runs until the end."""

    def __init__(self, told: threading.Event, *plays: str):
        self.told, self.plays, self.made = told, list(plays), 0
        self.stopped = 0
        self.reached = threading.Event()

    def __call__(self) -> Any:
        self.made += 1
        self.play = self.plays.pop(0) if self.plays else "run"
        return self

    def __enter__(self) -> Played:
        if self.play == "start":
            raise PipelineError("Spark does not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopped += 1

    def check(self) -> None:
        if self.play == "fail":
            raise PipelineError("an epoch failed: no memory")
        if self.play == "break":
            raise OSError("the gateway is gone")
        self.reached.set()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[viewkeep.Database]:
    with viewkeep.open(str(tmp_path / "db"), durability="relaxed") as made:
        made.sql("CREATE TABLE t (id INT PRIMARY KEY); CREATE VIEW v AS SELECT COUNT(*) n FROM t")
        made.put("t", {"id": 1})
        catch_up(made.store)
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and pauses are short."""
    monkeypatch.setattr(supervise, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(logging.getLogger(supervise.LOGGER), "propagate", True)


def test_it_is_started_again_and_the_reason_is_told(
    db: viewkeep.Database, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    told = threading.Event()
    played = Played(told, "start", "fail", "break", "fail")
    thread = threading.Thread(target=keep_running, args=(played, db.store, told))
    thread.start()
    try:
        assert played.reached.wait(SECONDS)
        trouble = trouble_of(db.store)
        assert trouble is not None
        assert (trouble.count, trouble.reason) == (4, "an epoch failed: no memory")
        assert "failed 4 times since epoch 1: an epoch failed: no memory" in str(
            db.status().trouble
        )
    finally:
        told.set()
        thread.join(SECONDS)
    assert played.made == 5
    assert played.stopped == 4  # one never started
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert "Spark does not start" in said[0]
    assert "the gateway is gone" in said[2]


def test_pauses_grow(db: viewkeep.Database, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    class Told(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is not None and timeout != supervise.LOOK_SECONDS:
                waited.append(timeout)
                if len(waited) == 8:
                    self.set()
            return self.is_set()

    monkeypatch.setattr(supervise, "FIRST_PAUSE", 1.0)
    told = Told()
    keep_running(Played(told, *["fail"] * 20), db.store, told)
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60]


def test_another_pipeline_is_no_trouble(db: viewkeep.Database, quick: None) -> None:
    told, lease = threading.Event(), db.epochs.acquire()
    played = Played(told, "start")
    thread = threading.Thread(target=keep_running, args=(played, db.store, told))
    thread.start()
    assert played.reached.wait(SECONDS)
    told.set()
    thread.join(SECONDS)
    assert trouble_of(db.store) is None
    db.epochs.release(lease)


def test_reads_go_on_and_readiness_tells(db: viewkeep.Database, quick: None) -> None:
    told = threading.Event()
    with (
        Server(db, Settings(http_port=0, mysql_port=None)) as server,
        httpx.Client(base_url=server.http_url) as client,
    ):
        played = Played(told, "fail")
        thread = threading.Thread(target=keep_running, args=(played, db.store, told))
        thread.start()
        try:
            assert played.reached.wait(SECONDS)
            assert client.get("/v1/v/row").json() == {"row": {"n": 1}}
            ready = client.get("/ready").json()
            assert ready["ready"] is True
            assert "no memory" in ready["warnings"][0]
            assert "no memory" in client.get("/v1/status").json()["trouble"]
        finally:
            told.set()
            thread.join(SECONDS)
