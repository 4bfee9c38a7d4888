"""The job of docs/spark-submit.md, as spark-submit starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import viewkeep
from viewkeep.engine.local import catch_up

PAGE = Path(__file__).parents[2] / "docs" / "spark-submit.md"


@pytest.mark.long
def test_the_job_of_the_page(tmp_path: Path) -> None:
    """It runs twice: the second run has what changed since the first."""
    job = tmp_path / "totals.py"
    job.write_text(PAGE.read_text().partition("```python\n")[2].partition("```")[0])
    url = str(tmp_path / "news.vk")

    def submit() -> pl.DataFrame:
        program = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2,4]"]
        program += ["--conf", "spark.ui.enabled=false", str(job), url, str(tmp_path)]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr[-3000:]
        return pl.read_parquet(tmp_path / "changes" / "*.parquet")

    first = submit()
    assert sorted(first["stars"].to_list()) == [333, 333, 334]
    assert set(first["_change"]) == {"insert"}
    with viewkeep.open(url) as db:
        db.put("votes", {"id": 5000, "story": 9, "stars": 5})
        epoch = catch_up(db.store).epoch
    new = submit().filter(pl.col("story") == 9)
    assert new.rows() == [(9, 5, epoch, "insert")]
