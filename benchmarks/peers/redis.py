"""Redis counters: an increment for each vote, a GET for each read.

The Debian package's server in a scratch folder, reached by a socket, with an append-only file that
is synced each second, as its page on persistence advises. The filled log is increments in pipelines
of a thousand.

What it does not do: keep a query (the application must know which counter to change, and votes are
not stored, so nothing can be recounted), sync a write before it is acknowledged (a power loss loses
a second), or undo a vote that is sent twice.
"""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Iterator

import redis

from peers.contract import main
from peers.mix import MixPeer

PIPELINE, START_SECONDS = 1_000, 20


class Redis(MixPeer):
    """A server that this process starts and stops."""

    packages = ("redis",)
    server: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        socket = str(self.folder / "s")
        self.server = subprocess.Popen(
            f"redis-server --port 0 --unixsocket {socket} --dir {self.folder} "
            "--appendonly yes --appendfsync everysec".split(),
            stdout=subprocess.DEVNULL,
        )
        self.client = redis.Redis(unix_socket_path=socket)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.client.ping()
                break
            except redis.exceptions.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def clear(self) -> None:
        self.client.flushall()

    def count(self) -> None:
        waiting = self.client.pipeline(transaction=False)
        for file in self.job.tables["votes"].files("csv"):
            with file.open(newline="") as rows:
                for _, story in csv.reader(rows):
                    waiting.incr(story)
                    if len(waiting) == PIPELINE:
                        waiting.execute()
        waiting.execute()

    def read(self, story: int) -> object:
        return self.client.get(str(story))

    def vote(self, vote: int, story: int) -> object:
        return self.client.incr(str(story))

    def result(self) -> Iterator[tuple[int, int]]:
        keys = list(self.client.scan_iter(count=PIPELINE))
        for key, count in zip(keys, self.client.mget(keys) if keys else [], strict=True):
            yield int(key), int(count)

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "redis-server": self.client.info()["redis_version"]}

    def close(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=START_SECONDS)


if __name__ == "__main__":
    main(Redis)
