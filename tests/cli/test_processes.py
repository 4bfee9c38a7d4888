"""The command line as processes: the demo, and a pipeline that is told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

import viewkeep
from viewkeep.demo import run_demo

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def test_demo(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(seconds=2, rate=500, keep=tmp_path, plain=True)
    shown = capsys.readouterr().out
    assert "The dashboard, while this runs: http://127.0.0.1:" in shown
    assert "Every view is right" in shown
    assert "What to try next" in shown
    with viewkeep.open(tmp_path / "news.vk") as db:
        assert len(db.scan("front_page", limit=3)) == 3


def test_run_until_told(tmp_path: Path) -> None:
    """A pipeline of its own process: follows writes, and ends cleanly on SIGTERM."""
    url = str(tmp_path / "a.vk")
    with viewkeep.open(url, durability="relaxed") as db:
        db.sql("""
            CREATE TABLE t (k INT PRIMARY KEY, g INT);
            CREATE VIEW groups AS SELECT g, COUNT(*) AS n FROM t GROUP BY g;
        """)
        command = [sys.executable, "-c", "from viewkeep.cli import main; main()", "run", url]
        with subprocess.Popen(
            [*command, "--master", "local[1]"], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                db.put("t", [{"k": n, "g": n % 2} for n in range(10)])
                db.wait(timeout=120)
                assert db.get("groups", 1) == {"g": 1, "n": 5}
                assert db.status().driver is not None
                process.send_signal(signal.SIGTERM)
                output, _ = process.communicate(timeout=60)
            finally:
                process.kill()
        assert process.returncode == 0
        assert "0 operations behind" in output
        assert db.status().driver is None


def test_run_is_told_with_all_its_children(tmp_path: Path) -> None:
    """As systemd and terminals do it: the JVM and the workers get the signal too."""
    url = str(tmp_path / "a.vk")
    with viewkeep.open(url, durability="relaxed") as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY); CREATE VIEW total AS SELECT COUNT(*) n FROM t")
        command = [sys.executable, "-c", "from viewkeep.cli import main; main()", "run", url]
        with subprocess.Popen(
            [*command, "--master", "local[1]"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                db.put("t", {"k": 1})
                db.wait(timeout=120)
                os.killpg(process.pid, signal.SIGTERM)
                output, errors = process.communicate(timeout=60)
            finally:
                process.kill()
    assert process.returncode == 0, errors
    assert "Traceback" not in output + errors
    assert "published epoch" in output


def test_serve_outlives_its_spark(tmp_path: Path) -> None:
    """A server with a pipeline whose JVM is killed: reads go on, and a new pipeline starts."""
    url = str(tmp_path / "a.vk")
    with viewkeep.open(url, durability="relaxed") as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY); CREATE VIEW total AS SELECT COUNT(*) n FROM t")
        command = [sys.executable, "-c", "from viewkeep.cli import main; main()", "serve", url]
        options = ["--run", "--master", "local[1]", "--port", "0", "--no-mysql", "--json"]
        with subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            try:
                assert process.stdout is not None
                address = json.loads(process.stdout.readline())["http"]
                db.put("t", {"k": 1})
                db.wait(timeout=120)
                for child in java_children(process.pid):
                    os.kill(child, signal.SIGKILL)
                db.put("t", {"k": 2})
                assert httpx.get(f"{address}/v1/total/row").json() == {"row": {"n": 1}}
                db.wait(timeout=120)
                assert httpx.get(f"{address}/v1/total/row").json() == {"row": {"n": 2}}
                assert process.poll() is None
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=60)
            finally:
                process.kill()
        assert process.returncode == 0


def java_children(parent: int) -> list[int]:
    """The JVMs that a process has started."""
    found = []
    for child in Path(f"/proc/{parent}/task").glob("*/children"):
        for pid in child.read_text().split():
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                found.append(int(pid))
    assert found, "no JVM runs"
    return found
