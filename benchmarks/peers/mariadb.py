"""MariaDB with a trigger: each inserted vote adds one to a row of a table of counts.

The Debian package's server in a scratch folder, reached by a socket, with its own default of one
sync per commit; a buffer pool that holds the data, as its page on tuning advises. The filled log is
a LOAD DATA of the files, the fastest way in that fires triggers.

What it does not do: maintain a query by itself (the trigger is written by hand for each view, and
for updates and deletes two more), keep readers of a hot row from waiting for its writers' locks, or
work on several cores for one load.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pymysql

from peers.contract import main
from peers.mix import MixPeer

TABLES = (
    "CREATE TABLE votes (vote BIGINT PRIMARY KEY, story BIGINT) ENGINE=InnoDB",
    "CREATE TABLE scores (story BIGINT PRIMARY KEY, votes BIGINT) ENGINE=InnoDB",
    "CREATE TRIGGER counted AFTER INSERT ON votes FOR EACH ROW "
    "INSERT INTO scores VALUES (NEW.story, 1) ON DUPLICATE KEY UPDATE votes = votes + 1",
)
START_SECONDS = 60


class MariaDB(MixPeer):
    """A server that this process starts and stops."""

    packages = ("pymysql",)
    server: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        data, self.socket = self.folder / "data", str(self.folder / "s")
        user = os.environ.get("USER", "root") if os.getuid() else "root"
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={data}",
                f"--user={user}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        server = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
        with (self.folder / "server.log").open("wb") as log:
            self.server = subprocess.Popen(
                [
                    server,
                    "--no-defaults",
                    f"--datadir={data}",
                    f"--socket={self.socket}",
                    f"--user={user}",
                    "--skip-networking",
                    "--local-infile=1",
                    "--innodb-buffer-pool-size=1G",
                    "--innodb-log-file-size=512M",
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.connection = pymysql.connect(
                    unix_socket=self.socket, user="root", autocommit=True, local_infile=True
                )
                break
            except pymysql.err.OperationalError:
                if time.monotonic() > deadline or self.server.poll() is not None:
                    raise
                time.sleep(0.1)
        self.cursor = self.connection.cursor()
        for statement in ("CREATE DATABASE bench", "USE bench", *TABLES):
            self.cursor.execute(statement)

    def clear(self) -> None:
        for table in ("votes", "scores"):
            self.cursor.execute(f"TRUNCATE {table}")

    def count(self) -> None:
        for file in self.job.tables["votes"].files("csv"):
            self.cursor.execute(
                f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE votes FIELDS TERMINATED BY ','"
            )

    def read(self, story: int) -> object:
        self.cursor.execute("SELECT votes FROM scores WHERE story = %s", (story,))
        return self.cursor.fetchone()

    def vote(self, vote: int, story: int) -> object:
        return self.cursor.execute("INSERT INTO votes VALUES (%s, %s)", (vote, story))

    def result(self) -> Iterator[tuple[Any, ...]]:
        self.cursor.execute("SELECT story, votes FROM scores")
        yield from self.cursor.fetchall()

    def versions(self) -> dict[str, str]:
        self.cursor.execute("SELECT VERSION()")
        found = self.cursor.fetchone()
        assert found is not None
        return {**super().versions(), "mariadb": found[0]}

    def close(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=START_SECONDS)


if __name__ == "__main__":
    main(MariaDB)
