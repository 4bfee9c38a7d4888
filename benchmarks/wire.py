"""How long one row takes to read by its key: viewkeep, MariaDB and Redis, in one run.

Each server is a process of its own and is asked over loopback, in turns: a view of viewkeep by HTTP
and by the MySQL protocol, and in this process without a server; a table of counts with a primary
key in MariaDB; counters in Redis. PyMySQL asks both MySQL servers, and a bare socket both others,
so the client's own work is the same in each pair. Every answer is checked.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pymysql
from shared.measure import SCORES, VOTES, show

QUERY = "SELECT story, votes FROM scores WHERE story = %s"
VOTES_EACH = 2
TURN = 100  # reads of one before the next has its turn

Read = Callable[[int], object]  # a story, to its row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=5_000, help="of each")
    parser.add_argument("--rows", type=int, default=10_000, help="of the view and of the others")
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.rows)
        return
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="viewkeep-bench-"))
        readers: dict[str, Read] = {}
        for system in (viewkeep, mariadb, redis):
            readers |= stack.enter_context(system(folder, arguments.rows))
        show("wire", compare(readers, arguments.reads, arguments.rows))


def compare(readers: dict[str, Read], reads: int, rows: int) -> dict[str, float | int | str]:
    """Ask all in turns, so that they meet the same quiet and noise."""
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    chosen = random.Random(7)
    for read in readers.values():
        for story in range(2 * TURN):  # all are warm then
            read(story)
    for _ in range(reads // TURN):
        for name, read in readers.items():
            for _ in range(TURN):
                story = chosen.randrange(rows)
                began = time.perf_counter()
                row = read(story)
                seconds[name].append(time.perf_counter() - began)
                assert row == (story, VOTES_EACH), (name, row)
    figures: dict[str, float | int | str] = {"reads of each": reads}
    for name, measured in seconds.items():
        ordered = sorted(measured)
        figures[f"{name}: median, ms"] = 1e3 * ordered[len(ordered) // 2]
        figures[f"{name}: p99, ms"] = 1e3 * ordered[int(0.99 * len(ordered))]
        figures[f"{name}: reads/s of one client"] = len(ordered) / sum(ordered)
    return figures


# -- viewkeep ----------------------------------------------------------------------------------


@contextmanager
def viewkeep(folder: str, rows: int) -> Iterator[dict[str, Read]]:
    """A view of viewkeep: without a server, by MySQL's protocol, by HTTP."""
    import viewkeep

    path = f"{folder}/bench.vk"
    command = [sys.executable, __file__, "--serve", path, "--rows", str(rows)]
    with running(command, stdout=subprocess.PIPE, text=True) as process:
        mysql, http = map(int, process.stdout.readline().split())
        with viewkeep.open(path, create=False) as db, by_mysql(mysql) as asked, wired(http) as web:

            def in_process(story: int) -> object:
                row = db.get("scores", story)
                return None if row is None else (row["story"], row["votes"])

            def by_http(story: int) -> object:
                web.sendall(
                    b"GET /v1/scores/row?key=%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % story
                )
                row = json.loads(http_body(web))["row"]
                return row["story"], row["votes"]

            yield {
                "viewkeep in process": in_process,
                "viewkeep by PyMySQL": asked,
                "viewkeep by HTTP": by_http,
            }


def serve(path: str, rows: int) -> None:
    """Serve a view of `rows` rows, and print the ports."""
    import viewkeep
    from viewkeep.engine.local import catch_up
    from viewkeep.serve import Server, Settings

    with viewkeep.open(path, durability="relaxed") as db:
        db.sql(VOTES)
        db.sql(SCORES)
        db.put("votes", [{"id": n, "story": n % rows} for n in range(VOTES_EACH * rows)])
        catch_up(db.store)
        with Server(db, Settings(http_port=0, mysql_port=0)) as server:
            print(server.mysql_port, server.http_port, flush=True)
            sys.stdin.read()  # until whoever started this ends


def http_body(connection: socket.socket) -> bytes:
    """The body of an answer with a Content-Length."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += received(connection)
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += received(connection)
    return body


# -- the others --------------------------------------------------------------------------------


@contextmanager
def mariadb(folder: str, rows: int) -> Iterator[dict[str, Read]]:
    """A table of counts, kept by hand, in a MariaDB that lives as long as this."""
    install, daemon = program("mariadb-install-db", "MariaDB"), program("mariadbd", "MariaDB")
    data = Path(folder) / "mariadb"
    options = ["--no-defaults", f"--datadir={data}", "--user=root"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([install, *options, "--skip-test-db"], check=True, **quiet)
    port = free_port()
    listen = [f"--socket={folder}/mariadb.sock", f"--port={port}", "--bind-address=127.0.0.1"]
    with running([daemon, *options, *listen, "--skip-grant-tables"], **quiet):
        with until_up(lambda: pymysql.connect(host="127.0.0.1", port=port, user="root")) as client:
            cursor = client.cursor()
            cursor.execute("CREATE DATABASE bench")
            cursor.execute("CREATE TABLE bench.scores (story BIGINT PRIMARY KEY, votes BIGINT)")
            counts = [(story, VOTES_EACH) for story in range(rows)]
            cursor.executemany("INSERT INTO bench.scores VALUES (%s, %s)", counts)
            client.commit()
        with by_mysql(port, "bench") as asked:
            yield {"MariaDB by PyMySQL": asked}


@contextmanager
def redis(folder: str, rows: int) -> Iterator[dict[str, Read]]:
    """Counters in a Redis that lives as long as this."""
    port = free_port()
    daemon = program("redis-server", "Redis")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    with (
        running([daemon, *options], stdout=subprocess.DEVNULL),
        until_up(lambda: socket.create_connection(("127.0.0.1", port))) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ask(*words: bytes) -> bytes:
            parts = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
            connection.sendall(b"*%d\r\n%s" % (len(words), parts))
            got = received(connection)
            lines = 2 if got.startswith(b"$") else 1
            while got.count(b"\r\n") < lines:
                got += received(connection)
            return got.split(b"\r\n")[lines - 1]

        for story in range(rows):
            ask(b"INCRBY", b"scores:%d" % story, b"%d" % VOTES_EACH)
        yield {"Redis": lambda story: (story, int(ask(b"GET", b"scores:%d" % story)))}


# -- processes and connections -----------------------------------------------------------------


@contextmanager
def by_mysql(port: int, database: str | None = None) -> Iterator[Read]:
    """Reads through PyMySQL."""
    with pymysql.connect(
        host="127.0.0.1", port=port, user="root", database=database, autocommit=True
    ) as client:
        cursor = client.cursor()

        def read(story: int) -> object:
            cursor.execute(QUERY, (story,))
            return cursor.fetchone()

        yield read


@contextmanager
def wired(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


@contextmanager
def running(command: list[str], **options: object) -> Iterator[subprocess.Popen]:
    """A process that ends with the block."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, **options) as process:
        try:
            yield process
        finally:
            process.terminate()


def until_up(connect: Callable[[], object]) -> object:
    """A connection to a server that has just been started."""
    for _ in range(300):
        try:
            return connect()
        except (OSError, pymysql.err.OperationalError):
            time.sleep(0.1)
    raise SystemExit("a server did not start")


def received(connection: socket.socket) -> bytes:
    got = connection.recv(65_536)
    if not got:
        raise ConnectionError("the server has closed the connection")
    return got


def program(name: str, of: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"{of} is not there; install it (on Debian: {of.lower()}-server)")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
