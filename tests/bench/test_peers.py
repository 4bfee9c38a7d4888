"""The contract of the peers, by one that needs nothing installed; what each says of itself."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from peers.contract import Job, Peer, main
from peers.offered import offer, quantiles
from suite import peers
from suite.bench import Bench
from suite.contract import SIZES, NotMeasured
from suite.equality import difference
from suite.peers import PEERS, run_peer
from suite.task import ANSWER
from suite.workloads.vote import counting

TASK = counting(500, 20, True)


class Plain(Peer):
    """Counts in a dictionary."""

    packages = ("pytest", "no-such-package")
    closed = False

    def prepare(self) -> None:
        self.counts: Counter[str] = Counter()

    def run(self, number: int) -> None:
        self.counts.clear()
        for file in self.job.tables["votes"].files("csv"):
            self.counts.update(line.split(",")[1] for line in file.read_text().splitlines())

    def result(self) -> Iterator[tuple[str, int]]:
        yield from self.counts.items()

    def close(self) -> None:
        Plain.closed = True


def test_a_peer_answers_with_rates_rows_and_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = TASK.files(tmp_path / "files")
    job = Job("count", TASK.views[ANSWER], sources, TASK.columns, str(tmp_path), runs=3)
    given, answered = tmp_path / "job.json", tmp_path / "answer.json"
    given.write_text(json.dumps(dataclasses.asdict(job)))
    monkeypatch.setattr(sys, "argv", ["peer", str(given), str(answered)])
    main(Plain)
    answer = json.loads(answered.read_text())
    assert len(answer["samples"]["operations/s"]) == 3
    assert answer["versions"]["no-such-package"] == "missing"
    assert Plain.closed
    assert difference({ANSWER: pl.read_csv(answer["result"])}, TASK.expected()) is None


def test_a_peer_that_is_not_there_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    with pytest.raises(NotMeasured, match="make bench-peers"):
        run_peer(PEERS["flink"], TASK, Bench(SIZES["tiny"], tmp_path), {}, 1)


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_says_what_it_does_not_do(name: str) -> None:
    assert len(PEERS[name].lacks()) > 20


@pytest.mark.parametrize("kind", ["fails", "hangs"])
def test_a_peer_that_fails_or_hangs_is_ended_and_told(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path / "bench")
    place = tmp_path / "bench" / "flink"
    (place / "bin").mkdir(parents=True)
    (place / ".installed").touch()
    program = place / "bin" / "python"
    program.write_text("#!/bin/sh\n" + ("echo wrong; exit 3" if kind == "fails" else "sleep 600"))
    program.chmod(0o755)
    size = dataclasses.replace(SIZES["tiny"], limit=60.0 if kind == "fails" else 0.2)
    with pytest.raises(RuntimeError, match=r"ended with 3: wrong|not done after 0.2 s"):
        run_peer(PEERS["flink"], TASK, Bench(size, tmp_path, PEERS), {}, 1)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("flink")]


def test_latency_counts_from_when_an_operation_was_due() -> None:
    done: list[tuple[str, int]] = []
    figures = offer(
        [("r", 1), ("w", 2), ("r", 3)],
        1e9,  # all are due at once
        lambda key: done.append(("r", key)),
        lambda number, key: done.append(("w", key)),
    )
    assert done == [("r", 1), ("w", 2), ("r", 3)]
    assert figures["share of the offered load"] < 1
    assert figures["read p50, ms"] >= 0
    assert figures["write p99, ms"] > 0


def test_quantiles() -> None:
    assert dict(quantiles([n / 1_000 for n in range(100)])) == pytest.approx(
        {"p50": 50, "p95": 95, "p99": 99}
    )
    assert dict(quantiles([])) == {}
