"""Those who wait for epochs outlast a store that fails for a while."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import httpx
import pytest

from viewkeep import Database
from viewkeep.access.watch import PublicationWatch
from viewkeep.engine.epochs import EpochRecord, Epochs
from viewkeep.errors import StoreError
from viewkeep.serve.hub import Hub

if TYPE_CHECKING:
    from collections.abc import Callable

    from viewkeep.engine.epochs import Published

    CatchUp = Callable[[], Published]


class FailingEpochs(Epochs):
    """Epochs of a store that can be made to fail."""

    fails = False

    def __init__(self, database: Database):
        super().__init__(database.store)
        self.again = threading.Semaphore(0)  # released by each failure

    def read(self) -> EpochRecord:
        if self.fails:
            self.again.release()
            raise StoreError("no Thrift server answers")
        return super().read()


@pytest.fixture
def epochs(site: Database) -> FailingEpochs:
    return FailingEpochs(site)


def test_waiters_outlast_a_store_that_fails(
    site: Database, epochs: FailingEpochs, catch_up: CatchUp
) -> None:
    async def wait() -> None:
        hub = Hub(epochs)
        hub.start()
        waiting = asyncio.create_task(hub.wait(hub.published.epoch, 60))
        try:
            epochs.fails = True
            for _ in range(3):
                assert await asyncio.to_thread(epochs.again.acquire, timeout=30)
            assert hub.trouble == "no Thrift server answers"
            assert not waiting.done()
            site.put("votes", [{"id": 100, "story": 1}])
            last = catch_up().epoch
            epochs.fails = False
            await waiting
            assert (await hub.wait(last - 1, 60)).epoch == last
            assert hub.trouble == ""
        finally:
            await hub.stop()

    asyncio.run(wait())


def test_ready_tells_of_it(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    failing, failures, wait = threading.Event(), threading.Semaphore(0), PublicationWatch.wait

    def fail(self: PublicationWatch, after: int, timeout: float) -> None:
        if failing.is_set():
            failures.release()
            raise StoreError("no Thrift server answers")
        wait(self, after, timeout)

    monkeypatch.setattr(PublicationWatch, "wait", fail)
    assert client.get("/ready").json()["ready"] is True
    failing.set()
    for _ in range(2):
        assert failures.acquire(timeout=30)
    answer = client.get("/ready")
    assert answer.status_code == 503
    (reason,) = answer.json()["reasons"]
    assert reason == "sessions and feeds hear of no new epochs: no Thrift server answers"
    failing.clear()
    while client.get("/ready").status_code != 200:
        pass
    assert client.get("/health").json() == {"alive": True}
