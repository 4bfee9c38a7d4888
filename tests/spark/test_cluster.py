"""The pipeline on a real Spark standalone cluster: one master, two or three workers on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import viewkeep
from viewkeep import Database

from .test_faults import descendants
from .test_resident import await_resident

pytestmark = pytest.mark.cluster
HERE = Path(__file__).parent
HOME = Path(pyspark.__file__).parent
SECONDS = 120.0


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """A master and some workers, each with a state folder of its own, as machines have disks."""

    def __init__(self, folder: Path):
        self.folder, self.port = folder, free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.started: list[subprocess.Popen[bytes]] = []
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self._start("master.Master", {}, "--port", str(self.port))
        await_port(self.port)

    def add(self, number: int) -> None:
        """A worker joins, or comes back."""
        common = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"w{number}")]
        own = {"VIEWKEEP_STATE": str(self.state(number))}
        self.workers[number] = self._start("worker.Worker", own, *common, self.url)

    def kill(self, number: int) -> None:
        """A machine loses power: the worker with its executors and their Python processes."""
        worker = self.workers.pop(number)
        for pid in [worker.pid, *descendants(worker.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.wait(SECONDS)

    def state(self, number: int) -> Path:
        """The state folder of a worker."""
        return self.folder / f"state-{number}"

    def close(self) -> None:
        """End all processes by their ids."""
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            process.wait(timeout=SECONDS)

    def _start(self, name: str, own: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(HOME),
        }
        with (self.folder / f"{name}-{len(self.started)}.log").open("wb") as log:
            command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
            common = ["--host", "127.0.0.1", "--webui-port", str(free_port())]
            process = subprocess.Popen(
                [*command, *common, *arguments], env=environment | own, stdout=log, stderr=log
            )
        self.started.append(process)
        return process


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without workers; its processes are ended by their ids."""
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def master(cluster: Cluster) -> str:
    """The url of a cluster of two workers."""
    for number in range(2):
        cluster.add(number)
    return cluster.url


def await_port(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the master does not listen"
        time.sleep(0.1)


def test_pipeline_on_a_cluster(master: str, db: Database, spark: SparkSession) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
    db.sql("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    db.sql("CREATE VIEW w AS SELECT n, COUNT(*) AS groups FROM v GROUP BY n")
    for turn in range(2):
        db.put("t", [{"id": n, "x": n % 11} for n in range(1000 * turn, 1000 * turn + 1000)])
        done = subprocess.run(
            [sys.executable, str(HERE / "driver.py"), db.store.url, master, "once"],
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "executors: 2"
        assert db.epochs.read().published.cut.positions == db.store.log.head().positions
    verdicts = db.verify(spark=spark)
    assert all(verdict.ok for verdict in verdicts), "\n".join(map(str, verdicts))


def test_resident_on_a_cluster(master: str, db: Database, spark: SparkSession) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
    db.sql("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    code = "from viewkeep.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "run", db.url, "--master", master],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.DEVNULL,
    ) as driver:
        try:
            await_resident(db)
            before = db.store.meta.get("resident")
            for number in range(20):
                db.put("t", {"id": number, "x": number % 3})
                published = db.wait(SECONDS)
            assert db.store.meta.get("resident") == before  # one turn, and so one job
            assert published.epoch >= 20
        finally:
            driver.terminate()
            driver.wait(SECONDS)
    assert driver.returncode == 0
    verdicts = db.verify(spark=spark)
    assert all(verdict.ok for verdict in verdicts), "\n".join(map(str, verdicts))


def test_workers_with_disks_of_their_own(cluster: Cluster, spark: SparkSession) -> None:
    """Machines are lost, come back and join; their disks are theirs, and every view stays right."""
    folder = cluster.folder
    store = f"{folder / 'store' / 'db'}?changelog={folder / 'store' / 'changelog'}"
    for number in range(3):
        cluster.add(number)
    url = f"apart:{store}&state={folder / 'home'}"
    with viewkeep.open(url, nodes=2, shards=6, durability="relaxed") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
        db.sql("CREATE VIEW v AS SELECT x, COUNT(*) AS n, MAX(id) AS last FROM t GROUP BY x")
        db.sql("CREATE VIEW w AS SELECT n, COUNT(*) AS groups FROM v GROUP BY n")
        db.sql("CREATE VIEW late AS SELECT id, n FROM t JOIN v ON v.x = t.x")
        driver = subprocess.Popen(
            [sys.executable, str(HERE / "driver.py"), db.url, cluster.url, "staged"],
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "VIEWKEEP_STATE": str(folder / "d")},
        )

        def write(turn: int) -> None:
            first = 400 * turn
            db.put("t", [{"id": n, "x": n % 97} for n in range(first, first + 400)])
            for number in range(20):
                db.delete("t", first // 2 + number)
            db.wait(SECONDS)

        try:
            for turn in range(3):
                write(turn)
            cluster.kill(0)
            for turn in range(3, 6):
                write(turn)
            shutil.rmtree(cluster.state(1))  # while it runs
            cluster.add(3)
            for turn in range(6, 9):
                write(turn)
            cluster.add(0)  # as it was when it was killed
            cluster.kill(2)
            for turn in range(9, 12):
                write(turn)
        finally:
            driver.terminate()
            driver.wait(SECONDS)
        assert driver.returncode == 0
        # The driver has none; at least three of the four workers have some.
        assert not (folder / "d").exists() or not list((folder / "d").glob("*/shard-*"))
        held = [number for number in range(4) if list(cluster.state(number).glob("*/shard-*"))]
        assert len(held) >= 3, "the workers have no state of their own"
        verdicts = db.verify(spark=spark)
        assert all(verdict.ok for verdict in verdicts), "\n".join(map(str, verdicts))
        assert len(db.scan("late").rows()) == len(db.scan("t").rows())
