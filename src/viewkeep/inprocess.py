"""Epochs in the process that writes, without Spark: for an application's own tests.

Law: an epoch is the same function here as in a pipeline, so the views hold the same bytes. With
`each_write`, a write or a change of the catalog returns when the views hold it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from viewkeep.engine.epochs import Epochs, Limits, OpenEpoch, Published
from viewkeep.engine.failures import leave_out
from viewkeep.engine.housekeeping import Housekeeper
from viewkeep.engine.identity import database_id
from viewkeep.engine.local import run_epoch
from viewkeep.errors import OperatorFailed
from viewkeep.stores import create_store
from viewkeep.stores.contract import Store

_SHARED_MEMORY = Path("/dev/shm")  # a file system in memory, where the machine has one

OnEpoch = Callable[[Published], None]


class InProcess:
    """Runs the epochs of one store when asked to; threads take turns."""

    def __init__(self, store: Store, *, each_write: bool = True):
        self.each_write = each_write
        self._store, self._epochs = store, Epochs(store)
        self._house = Housekeeper()
        self._lock = threading.RLock()

    def after_change(self) -> None:
        """Something was written, or the catalog has changed."""
        if self.each_write:
            self.settle()

    def settle(self, on_epoch: OnEpoch | None = None) -> Published:
        """Run epochs until the views hold everything that was written.

        A view whose epoch fails is set aside, as a pipeline does: reading it raises ViewFailed.
        """
        with self._lock:
            lease = self._epochs.acquire()
            try:
                while (epoch := self._epochs.open_next(lease.term, Limits())) is not None:
                    published = self._run(lease.term, epoch)
                    if published is not None and on_epoch is not None:
                        on_epoch(published)
            finally:
                self._epochs.release(lease)
            return self._epochs.read().published

    def pipeline(self, on_epoch: OnEpoch | None = None) -> InProcessPipeline:
        """What takes the place of the pipeline on Spark."""
        return InProcessPipeline(self, on_epoch)

    def _run(self, term: int, epoch: OpenEpoch) -> Published | None:
        """Run and publish an epoch; None if a view was set aside instead."""
        try:
            reports = run_epoch(self._store, epoch)
        except OperatorFailed as error:
            leave_out(self._store, term, epoch, {error.operator: error.reason})
            return None
        published = self._epochs.publish(term, epoch, reports)
        self._house.note(published, sum(report.rows_written for report in reports))
        self._house.round(self._store)
        return published


class InProcessPipeline:
    """The pipeline of a database in memory: `Pipeline` without Spark, and without its threads."""

    def __init__(self, driver: InProcess, on_epoch: OnEpoch | None = None):
        self._driver, self._on_epoch = driver, on_epoch

    def start(self) -> InProcessPipeline:
        """Run the epochs that are due."""
        self.run_once()
        return self

    def run_once(self) -> Published:
        """Run epochs until the views hold everything that was written."""
        return self._driver.settle(self._on_epoch)

    def wait(self, timeout: float | None = None) -> Published:
        """The same. Nothing else runs epochs, so it waits for nothing and needs no `timeout`."""
        return self.run_once()

    def check(self) -> None:
        """Nothing runs that could have failed."""

    def stop(self) -> None:
        """Nothing runs that could be stopped."""

    @property
    def exception(self) -> None:
        """Always None: nothing runs that could have failed."""
        return None

    def __enter__(self) -> InProcessPipeline:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def create_in_memory(options: Mapping[str, object]) -> tuple[Store, Callable[[], object]]:
    """A store whose files lie in memory where the machine allows it; and what removes them.

    They are removed at the latest when this process ends. A child that was forked never does.
    """
    parent = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    folder = tempfile.mkdtemp(prefix="viewkeep-", dir=parent)
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    chosen = {"nodes": 1, "shards": 1, "durability": "relaxed", **options}
    try:
        store = create_store(f"{folder}/memory.vk", **chosen)
        database_id(store)
    except BaseException:
        remove()
        raise
    return store, weakref.finalize(store, remove)
