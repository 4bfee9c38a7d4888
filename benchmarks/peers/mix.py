"""The read/write mix for peers that serve reads: the same operations, offered at the same loads."""

from __future__ import annotations

import csv
from abc import abstractmethod

from peers.contract import Peer
from peers.offered import offer


class MixPeer(Peer):
    """A server with counts by story: task "count" fills it, task "mix" reads and writes it."""

    def run(self, number: int) -> dict[str, float] | None:
        self.clear()
        if self.job.task == "count":
            self.count()
            return None
        operations: list[tuple[str, int]] = []
        for path in self.job.tables["mix"].files("csv"):
            with path.open(newline="") as file:
                operations += [(row[1], int(row[2])) for row in csv.reader(file)]
        return offer(operations, float(self.job.options["load"]), self.read, self.vote)

    @abstractmethod
    def clear(self) -> None:
        """Forget all votes."""

    @abstractmethod
    def count(self) -> None:
        """Take all votes of the files."""

    @abstractmethod
    def read(self, story: int) -> object:
        """The count of a story."""

    @abstractmethod
    def vote(self, vote: int, story: int) -> object:
        """One vote, acknowledged."""
