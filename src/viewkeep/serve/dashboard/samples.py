"""How the database stands, once a second and at each epoch, for as long as the server runs.

Law: one coroutine looks, whatever number of browsers listens; what is kept is bounded. A listener
that is too slow misses samples, and never holds up others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

from viewkeep.database import Database
from viewkeep.engine.epochs import Published
from viewkeep.engine.lease import holder
from viewkeep.errors import ViewkeepError
from viewkeep.serve.dashboard.memory import of_driver, of_this_process
from viewkeep.serve.dashboard.rates import Rates
from viewkeep.serve.limits import Stopping
from viewkeep.serve.service import Service
from viewkeep.status import status_of

KEPT = 1_200  # samples: ten minutes of a busy database, twenty of an idle one
KEPT_EPOCHS = 200
EVERY_SECONDS = 1.0
APART_SECONDS = 0.5  # at least, however fast epochs follow each other
RATE_SECONDS = 5.0  # over which operations a second are counted
_QUEUED = 10  # samples that wait for a slow listener

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sample:
    """One look."""

    at: float  # seconds since 1970
    epoch: int
    plan: int
    kept_per_second: float | None  # operations that epochs have covered
    written_per_second: float | None  # operations that applications have written
    lag: int
    lag_seconds: float | None
    epoch_seconds: float
    loading: int  # views that are not ready
    server_bytes: int | None
    driver_bytes: int | None
    base_bytes: int
    state_bytes: int
    driver: str | None
    trouble: str | None  # why the pipeline fails, if it does


@dataclass(frozen=True)
class SeenEpoch:
    """A published epoch, as its record says."""

    epoch: int
    at: float
    operations: int
    seconds: float
    loaded: int  # rows brought in so far for views that are being loaded
    levels: tuple[float, ...]  # seconds of the longest task of each level


class Samples:
    """The samples of one server, for as long as its hub lives; `on_end` is awaited after."""

    def __init__(self, service: Service, on_end: Callable[[], Awaitable[None]]):
        self._service, self._on_end = service, on_end
        self._kept: deque[Sample] = deque(maxlen=KEPT)
        self._epochs: deque[SeenEpoch] = deque(maxlen=KEPT_EPOCHS)
        self._offsets: deque[tuple[float, int, int]] = deque()  # when, covered, written
        self._listeners: set[asyncio.Queue[Sample | None]] = set()
        self._rates = Rates(service.db.store)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look, unless it has begun, or there is no event loop yet."""
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            if self._task is None:
                self._task = loop.create_task(self._follow())

    def history(self) -> list[Sample]:
        """What is kept, oldest first."""
        return list(self._kept)

    def epochs(self) -> list[SeenEpoch]:
        """The epochs that were seen, newest first. Fast ones in a row may have passed unseen."""
        return list(reversed(self._epochs))

    def rates(self) -> dict[str, float | None]:
        """Rows a second by operator."""
        return dict(self._rates.by_operator())

    async def live(self) -> AsyncIterator[Sample]:
        """Each new sample, until the server stops."""
        queue: asyncio.Queue[Sample | None] = asyncio.Queue(_QUEUED)
        self._listeners.add(queue)
        try:
            if self._kept:
                yield self._kept[-1]
            while (sample := await queue.get()) is not None:
                yield sample
        finally:
            self._listeners.discard(queue)

    async def _follow(self) -> None:
        try:
            while True:
                await self._turn()
        except Stopping:
            pass
        finally:
            for queue in self._listeners:
                _give(queue, None)
            await self._on_end()

    async def _turn(self) -> None:
        """One look, and the wait for the next."""
        hub = self._service.hub
        hub.check()
        began, seen = time.monotonic(), hub.published.epoch
        try:
            self._keep(*await self._service.run(self._look))
        except (ViewkeepError, OSError) as error:  # a full disk may end; the next look may do
            log.warning("the dashboard could not look at the database: %s", error)
        with suppress(TimeoutError):
            await hub.wait(seen, EVERY_SECONDS)
        await asyncio.sleep(max(0.0, APART_SECONDS - (time.monotonic() - began)))

    def _keep(self, sample: Sample, published: Published) -> None:
        self._kept.append(sample)
        if published.epoch and (not self._epochs or self._epochs[-1].epoch < published.epoch):
            self._epochs.append(
                SeenEpoch(
                    published.epoch,
                    published.at / 1e9,
                    published.operations,
                    published.seconds,
                    sum(published.loaded.values()),
                    tuple(published.levels),
                )
            )
        for queue in self._listeners:
            _give(queue, sample)

    def _look(self) -> tuple[Sample, Published]:
        """Runs in a thread."""
        db: Database = self._service.db
        now = time.time_ns()
        status = status_of(db.store, db.catalog, db.epochs, db.url)
        published, plan = db.epochs.read().published, db.catalog.current()
        watched = bool(self._listeners)
        self._rates.look(plan.program, published, db.store.sizes(), now, count=watched)
        covered, written = status.covered, status.written
        kept_rate, written_rate = self._per_second(now / 1e9, covered, written)
        sample = Sample(
            at=now / 1e9,
            epoch=status.epoch,
            plan=plan.version,
            kept_per_second=kept_rate,
            written_per_second=written_rate,
            lag=status.lag,
            lag_seconds=status.lag_seconds,
            epoch_seconds=published.seconds,
            loading=sum(view.state in ("loading", "waiting") for view in status.views),
            server_bytes=of_this_process(),
            driver_bytes=of_driver(holder(db.store)),
            base_bytes=status.base_bytes,
            state_bytes=status.state_bytes,
            driver=status.driver,
            trouble=status.trouble,
        )
        return sample, published

    def _per_second(
        self, now: float, covered: int, written: int
    ) -> tuple[float | None, float | None]:
        """The rates since the oldest of the last looks."""
        looks = self._offsets
        looks.append((now, covered, written))
        while len(looks) > 2 and looks[1][0] <= now - RATE_SECONDS:
            looks.popleft()
        then, covered_then, written_then = looks[0]
        if now <= then:
            return None, None
        return (covered - covered_then) / (now - then), (written - written_then) / (now - then)


def plain(sample: Sample | SeenEpoch) -> dict[str, object]:
    """A sample as JSON takes it."""
    return asdict(sample)


def _give(queue: asyncio.Queue[Sample | None], sample: Sample | None) -> None:
    """Hand on a sample; a listener who has not taken the last ones loses the oldest."""
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(sample)
