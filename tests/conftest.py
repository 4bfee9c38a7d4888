"""What all tests share: a database in a temporary folder and one Spark session for the run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeep import Database
    from viewkeep.engine.epochs import Published

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Times vary on a shared machine; a slow example is not a failure. The default run is the same every
# time, so that what it finds is there for everybody; `make test-explore` looks for what is new.
_ALWAYS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("default", derandomize=True, **_ALWAYS)
settings.register_profile("explore", **_ALWAYS)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell's background job ignores Ctrl-C, and so would all that tests start and end by it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """An empty database; relaxed, because tests need no protection from power loss."""
    import viewkeep

    with viewkeep.open(url_in(tmp_path), shards=4, durability="relaxed") as database:
        yield database


def url_in(folder: Path) -> str:
    """A database in a folder; with STORE=apart, its state is apart, and all tests of `db` pass."""
    path = str(folder / "test.vk")
    if os.environ.get("STORE") == "apart":
        return f"apart:{path}?state={folder / 'state'}&changelog={folder / 'changelog'}"
    return path


@pytest.fixture
def catch_up(db: Database) -> Callable[[], Published]:
    """Run epochs in this process, without Spark, until the views hold all that was written."""
    from contextlib import closing

    from viewkeep.engine.local import catch_up as run
    from viewkeep.stores import open_store
    from viewkeep.stores.apart import ApartStore

    if not isinstance(db.store, ApartStore):
        return lambda: run(db.store)

    def on_another_machine() -> Published:
        url = db.url.replace("/state&", "/worker&")
        with closing(open_store(url)) as store:
            return run(store)

    return on_another_machine


@pytest.fixture(autouse=True)
def _lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """With LANE=columns all epochs run in the columns lane; each lane passes all tests."""
    if os.environ.get("LANE", "auto") == "columns":
        _columns_only(monkeypatch)


@pytest.fixture
def columns_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small epochs run in the columns lane too, for tests of its parts."""
    _columns_only(monkeypatch)


def _columns_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from viewkeep.engine.rows import epoch

    monkeypatch.setattr(epoch, "FEW", -1)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run: starting one takes seconds."""
    from viewkeep.spark.session import session

    own = session("local[2]")
    yield own
    own.sparkContext.stop()
