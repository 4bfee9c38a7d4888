"""Pathway: an incremental dataflow in memory, fed from files once ("static" mode).

Static mode is its fastest: all rows are one batch, and the rows of the result are written at the
end. One process with one thread per core, as its page on worker threads advises.

What it does not do: the state is in memory and gone with the process (persistence is an option that
static mode does not use), results cannot be read by key while it runs, and rows come in as one
batch, so no time of an update is measured.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from typing import Any

import pathway as pw
from pathway.internals.parse_graph import G

from peers.contract import Peer, main

KINDS = {"BIGINT": int, "DOUBLE": float, "STRING": str}


def _count(tables: dict[str, Any]) -> Any:
    votes = tables["votes"]
    return votes.groupby(votes.story).reduce(votes.story, votes=pw.reducers.count())


def _joined(tables: dict[str, Any]) -> Any:
    counted, stories = _count(tables), tables["stories"]
    return stories.join(counted, stories.story == counted.story).select(
        story=stories.story, title=stories.title, votes=counted.votes
    )


def _sums(tables: dict[str, Any]) -> Any:
    t = tables["t"]
    return t.groupby(t.g).reduce(
        t.g,
        total=pw.reducers.sum(t.x),
        low=pw.reducers.min(t.x),
        high=pw.reducers.max(t.x),
        mean=pw.reducers.avg(t.x),
        n=pw.reducers.count(),
    )


def _join(tables: dict[str, Any]) -> Any:
    r, s = tables["r"], tables["s"]
    return r.join(s, r.fk == s.fk).select(k=r.k, x=r.x, y=s.y)


TASKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "count": _count,
    "joined": _joined,
    "sums": _sums,
    "join": _join,
}


class Pathway(Peer):
    """The dataflow built anew for each run, over the same files."""

    packages = ("pathway",)

    def prepare(self) -> None:
        self.path = self.folder / "pathway.csv"

    def run(self, number: int) -> None:
        G.clear()
        tables = {}
        for name, table in self.job.tables.items():
            kinds = {column: KINDS[kind] for column, kind in table.columns.items()}
            schema = pw.schema_from_types(**kinds)
            folder = os.path.join(table.folder, "csv-headed")
            tables[name] = pw.io.csv.read(folder, schema=schema, mode="static")
        pw.io.csv.write(TASKS[self.job.task](tables), str(self.path))
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)

    def result(self) -> Iterator[list[Any]]:
        with self.path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["diff"] == "1":
                    yield [row[column] for column in self.job.columns]


if __name__ == "__main__":
    main(Pathway)
