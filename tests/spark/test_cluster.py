"""The pipeline on a real Spark standalone cluster: one master and two workers on loopback."""

from __future__ import annotations

import os
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

from viewkeep import Database

from .test_resident import await_resident

pytestmark = pytest.mark.cluster
HERE = Path(__file__).parent
HOME = Path(pyspark.__file__).parent
SECONDS = 120.0


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The url of a standalone cluster; its processes are ended by their ids."""
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(HOME),
    }
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        with (tmp_path / f"{name}-{len(started)}.log").open("wb") as log:
            command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
            common = ["--host", "127.0.0.1", "--webui-port", str(free_port())]
            started.append(
                subprocess.Popen(
                    [*command, *common, *arguments], env=environment, stdout=log, stderr=log
                )
            )

    try:
        start("master.Master", "--port", str(port))
        await_port(port)
        for number in range(2):
            folder = str(tmp_path / f"worker-{number}")
            start("worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", folder, url)
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=SECONDS)


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
