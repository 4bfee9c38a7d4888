"""The command line as processes: the demo, and a pipeline that is told to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeep
from viewkeep.demo import run_demo

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def test_demo(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(seconds=2, rate=500, keep=tmp_path, plain=True)
    shown = capsys.readouterr().out
    assert "the dashboard, while this runs: http://127.0.0.1:" in shown
    assert "every view is right" in shown
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
