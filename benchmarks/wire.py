"""How long a point SELECT takes over the MySQL protocol: viewkeep and MariaDB, the same client.

Both servers run here, each in a process of its own, and are asked in turns over loopback by
PyMySQL: one row by its key, from a view of viewkeep and from a table with a primary key of MariaDB,
with other constants each time. PyMySQL's own work is in both figures.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import uvloop
from pymysql.cursors import Cursor
from shared.measure import SCORES, VOTES, show

QUERY = "SELECT story, votes FROM scores WHERE story = %s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=5_000, help="of each server")
    parser.add_argument("--rows", type=int, default=10_000, help="of the view and of the table")
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        uvloop.run(serve(arguments.serve, arguments.rows))
        return
    rows = arguments.rows
    with (
        tempfile.TemporaryDirectory(prefix="viewkeep-bench-") as folder,
        viewkeep(folder, rows) as ours,
        mariadb(folder, rows) as theirs,
    ):
        figures = compare(ours, theirs, arguments.reads, rows)
    show("wire", figures)


def compare(ours: Cursor, theirs: Cursor, reads: int, rows: int) -> dict[str, float | int | str]:
    """Ask both in turns, a hundred times each, so that both meet the same quiet and noise."""
    seconds: dict[str, list[float]] = {"viewkeep": [], "mariadb": []}
    chosen = random.Random(7)
    for story in range(200):  # both are warm then
        answered(ours, story), answered(theirs, story)
    for _ in range(reads // 100):
        for name, cursor in (("viewkeep", ours), ("mariadb", theirs)):
            for _ in range(100):
                story = chosen.randrange(rows)
                began = time.perf_counter()
                cursor.execute(QUERY, (story,))
                row = cursor.fetchone()
                seconds[name].append(time.perf_counter() - began)
                assert row == (story, 2), row
    figures: dict[str, float | int | str] = {"reads of each": reads}
    for name, measured in seconds.items():
        ordered = sorted(measured)
        figures[f"{name} median, ms"] = 1e3 * ordered[len(ordered) // 2]
        figures[f"{name} p99, ms"] = 1e3 * ordered[int(0.99 * len(ordered))]
    ratio = float(figures["viewkeep median, ms"]) / float(figures["mariadb median, ms"])
    return {**figures, "ratio of the medians": ratio}


def answered(cursor: Cursor, story: int) -> None:
    cursor.execute(QUERY, (story,))
    assert cursor.fetchone() == (story, 2)


@contextmanager
def viewkeep(folder: str, rows: int) -> Iterator[Cursor]:
    """A cursor on a server of this file's own."""
    command = [sys.executable, __file__, "--serve", f"{folder}/bench.vk", "--rows", str(rows)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with pymysql.connect(host="127.0.0.1", port=port, user="bench", autocommit=True) as client:
            yield client.cursor()
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


async def serve(folder: str, rows: int) -> None:
    """Serve a view of `rows` rows, and print the port."""
    import viewkeep
    from viewkeep.engine.local import catch_up
    from viewkeep.serve.mysql import start_mysql
    from viewkeep.serve.service import Service
    from viewkeep.serve.settings import Settings

    with viewkeep.open(folder, durability="relaxed") as db:
        db.sql(VOTES)
        db.sql(SCORES)
        db.put("votes", [{"id": n, "story": n % rows} for n in range(2 * rows)])
        catch_up(db.store)
        service = Service(db, Settings(http_port=None, mysql_port=0))
        await service.start()
        server = await start_mysql(service)
        print(server.port, flush=True)
        await asyncio.Event().wait()


@contextmanager
def mariadb(folder: str, rows: int) -> Iterator[Cursor]:
    """A cursor on a MariaDB that lives as long as it."""
    install, daemon = shutil.which("mariadb-install-db"), shutil.which("mariadbd")
    if install is None or daemon is None:
        sys.exit("MariaDB is not there; install it (on Debian: apt-get install mariadb-server)")
    data = Path(folder) / "mariadb"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options = ["--no-defaults", f"--datadir={data}", "--user=root"]
    subprocess.run([install, *options, "--skip-test-db"], check=True, **quiet)
    port = free_port()
    listen = [f"--socket={folder}/mariadb.sock", f"--port={port}", "--bind-address=127.0.0.1"]
    process = subprocess.Popen([daemon, *options, *listen, "--skip-grant-tables"], **quiet)
    try:
        with connected(port) as client:
            cursor = client.cursor()
            cursor.execute("CREATE DATABASE bench")
            client.select_db("bench")
            cursor.execute("CREATE TABLE scores (story BIGINT PRIMARY KEY, votes BIGINT)")
            cursor.executemany(
                "INSERT INTO scores VALUES (%s, %s)", [(story, 2) for story in range(rows)]
            )
            yield cursor
    finally:
        process.terminate()
        process.wait()


def connected(port: int) -> pymysql.Connection[Cursor]:
    for _ in range(300):
        try:
            return pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
        except pymysql.err.OperationalError:
            time.sleep(0.1)
    raise SystemExit("MariaDB did not start")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
