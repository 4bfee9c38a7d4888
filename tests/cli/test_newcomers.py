"""Three people who are new to viewkeep do what they came for, each from nothing.

They use what the pages tell them: the command line, the Python API, Spark's own, HTTP.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from typer.testing import CliRunner

import viewkeep
from viewkeep.cli.commands import app
from viewkeep.serve.server import Server
from viewkeep.serve.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(*args: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == code, result.output
    return result.output


def data(*args: str, code: int = 0) -> Any:
    return json.loads(run(*args, "--json", code=code))


def test_a_spark_engineer_with_parquet_batches(tmp_path: Path, spark: SparkSession) -> None:
    """Spark writes a folder of Parquet files each hour; a view is to follow them."""
    url, out = str(tmp_path / "sales.vk"), tmp_path / "out"

    def batch(day: str, first: int) -> None:
        rows = spark.range(first, first + 50).selectExpr(
            "id", "concat('shop', id % 3) AS shop", "CAST(id % 7 AS DECIMAL(8,2)) AS amount"
        )
        rows.selectExpr("*", f"DATE '{day}' AS day").write.partitionBy("day").mode(
            "append"
        ).parquet(str(out))

    run("init", url, "--durability", "relaxed")
    run(
        "sql",
        url,
        "CREATE TABLE sales (id BIGINT PRIMARY KEY, shop STRING, amount DECIMAL(8,2), day DATE);"
        "CREATE VIEW daily AS SELECT day, shop, SUM(amount) AS amount, COUNT(*) AS sales "
        "FROM sales GROUP BY day, shop",
    )
    batch("2026-01-01", 0)
    run("load", url, "sales", "--follow", str(out), "--once")
    batch("2026-01-02", 50)
    run("load", url, "sales", "--follow", str(out), "--once")  # takes the new files alone
    run("run", url, "--once")

    read = spark.read.format("viewkeep").option("url", url)
    views = read.option("table", "daily").load()
    total = views.selectExpr("SUM(sales) AS n", "SUM(amount) AS s").collect()[0]
    expected = spark.read.parquet(str(out)).selectExpr("COUNT(*) AS n", "SUM(amount) AS s")
    assert total == expected.collect()[0]
    assert total["n"] == 100

    # A correction from Spark goes in whole or not at all.
    fixed = spark.sql("SELECT 3L AS id, CAST(99.5 AS DECIMAL(8,2)) AS amount")
    bad = spark.sql("SELECT CAST(NULL AS BIGINT) AS id, CAST(1 AS DECIMAL(8,2)) AS amount")
    append = {"url": url, "table": "sales"}
    with pytest.raises(Exception, match="id"):
        fixed.union(bad).write.format("viewkeep").options(**append).mode("append").save()
    assert data("get", url, "sales", "3")["amount"] == "3.00"
    fixed.write.format("viewkeep").options(**append).mode("append").save()
    assert data("get", url, "sales", "3") == {
        "id": 3,
        "shop": "shop0",
        "amount": "99.50",
        "day": "2026-01-01",
    }
    run("run", url, "--once")
    assert all(verdict["ok"] for verdict in data("verify", url))


def test_a_backend_developer_with_a_leaderboard() -> None:
    """Scores come in, a page shows the best ten; tested without Spark, followed over HTTP."""
    with viewkeep.open(":memory:") as db:
        db.sql("""
            CREATE TABLE rounds (player STRING, round INT, points INT, PRIMARY KEY (player, round));
            CREATE VIEW totals AS
                SELECT player, SUM(points) AS points FROM rounds GROUP BY player;
            CREATE VIEW board AS SELECT points, player FROM totals ORDER BY points DESC LIMIT 10;
        """)
        for number in range(30):
            db.put("rounds", {"player": f"p{number:02}", "round": 1, "points": number})
        best = [row["player"] for row in db.scan("board")]
        assert best == [f"p{number:02}" for number in range(29, 19, -1)]

        settings = Settings(
            http_port=0, mysql_port=None, password="secret", allow_origins=("https://game.example",)
        )
        with (
            Server(db, settings) as server,
            httpx.Client(base_url=server.http_url, timeout=20, auth=("x", "secret")) as backend,
            httpx.Client(base_url=server.http_url, timeout=20) as page,
        ):
            link = backend.post("/v1/links", json={"path": "/v1/board/changes"}).json()["link"]
            headers = {"Origin": "https://game.example"}
            with page.stream("GET", link, headers=headers) as feed:
                assert feed.headers["access-control-allow-origin"] == headers["Origin"]
                events = (json.loads(x[6:]) for x in feed.iter_lines() if x.startswith("data: "))
                assert len(next(events)["rows"]) == 10
                write = {"sql": "INSERT INTO rounds VALUES ('p00', 2, 1000)"}
                assert backend.post("/v1/sql", json=write).status_code == 200
                changes = next(events)["changes"]
                assert {"points": 1000, "player": "p00"} in [change["new"] for change in changes]
        db.delete("rounds", ("p00", 2))
        assert db.sql("SELECT COUNT(*) AS n FROM board WHERE player = 'p00'").one() == {"n": 0}


def test_a_careful_adopter(tmp_path: Path, spark: SparkSession) -> None:
    """Kills a writer, checks the views, bounds the disk, backs up, loses all of it, restores."""
    url, copy = str(tmp_path / "bank.vk"), str(tmp_path / "copy.vk")
    backups = str(tmp_path / "backups")
    run("init", url, "--max-size", "1GiB")
    run(
        "sql",
        url,
        "CREATE TABLE moves (id BIGINT PRIMARY KEY, account STRING, amount DECIMAL(12,2));"
        "CREATE VIEW balances AS "
        "SELECT account, SUM(amount) AS balance FROM moves GROUP BY account",
    )
    writer = (
        "import sys, viewkeep\n"
        "from decimal import Decimal\n"
        "with viewkeep.open(sys.argv[1]) as db:\n"
        "    for n in range(10**9):\n"
        "        db.put('moves', [{'id': 2 * n, 'account': 'a', 'amount': Decimal(-5)},\n"
        "                         {'id': 2 * n + 1, 'account': 'b', 'amount': Decimal(5)}])\n"
        "        print(n, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", writer, url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 20:
                process.kill()
                break
        acknowledged = int(line)
    run("run", url, "--once")
    rows = {row["account"]: row["balance"] for row in data("scan", url, "balances")}
    assert float(rows["a"]) + float(rows["b"]) == 0  # never half of a transfer
    assert float(rows["b"]) >= 5 * (acknowledged + 1)  # all that was acknowledged
    assert data("verify", url)[0]["ok"]
    status = data("status", url)
    assert status["views"][0]["state"] == "ready"
    assert 0 < status["used_bytes"] < status["max_bytes"] == 1 << 30

    run("backup", url, backups)
    assert "give --yes" in run("drop", url, code=2)
    shutil.rmtree(url)  # the disk is lost
    run("restore", backups, copy)
    run("run", copy, "--once")
    assert {row["account"]: row["balance"] for row in data("scan", copy, "balances")} == rows
    assert data("verify", copy)[0]["ok"]
