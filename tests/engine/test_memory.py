"""The memory of an epoch follows its bounds, not what its joins make of it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import viewkeep
from viewkeep.delta import KEY, WEIGHT
from viewkeep.engine import inbox as inbox_module
from viewkeep.engine import spool as spool_module
from viewkeep.engine.inbox import Inbox
from viewkeep.engine.local import catch_up
from viewkeep.engine.parcels import ROWS
from viewkeep.engine.programs import load_plan
from viewkeep.engine.spool import Mailbox
from viewkeep.ops.arrange import ROW
from viewkeep.plan.program import Operator

TABLES = """
    CREATE TABLE a (id INT PRIMARY KEY, k INT, x BIGINT);
    CREATE TABLE b (id INT PRIMARY KEY, k INT, y BIGINT);
"""
SUMS = """
    CREATE VIEW v AS SELECT a.k, COUNT(*) AS n, SUM(a.x) AS s
        FROM a JOIN b ON a.k = b.k GROUP BY a.k
"""
PAIRS = "CREATE VIEW v AS SELECT a.id AS i, b.id AS j, a.x, b.y FROM a JOIN b ON a.k = b.k"
WIDE = "CREATE VIEW v AS SELECT a.id AS i, a.x, b.y FROM a JOIN b ON a.k = b.id"
CHAIN = """
    CREATE VIEW v AS SELECT c.id AS k, COUNT(*) AS n
        FROM a JOIN b ON a.k = b.k JOIN b AS c ON c.id = a.x + b.y GROUP BY c.id
"""
EPOCH = """
import sys
import viewkeep
from viewkeep.engine import inbox, spool, state
from viewkeep.engine.local import catch_up
share = int(sys.argv[2])
inbox.PART_ROWS //= share
spool.HELD_BYTES = inbox.HELD_BYTES = spool.HELD_BYTES // share
state._MUCH_ROWS //= share
db = viewkeep.open(sys.argv[1])
catch_up(db.store)
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if "VmHWM" in line))
"""


def test_parts_hold_all_rows_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order in which rows come, and whether they wait in memory or in a file."""
    monkeypatch.setattr(inbox_module, "PART_ROWS", 500)
    operator = _operator(tmp_path)
    keys = [number.to_bytes(4, "big") for number in range(1_000)]
    rows = [(key, bytes([turn]), 1 - 2 * (turn % 2)) for key in keys for turn in range(3)]
    shares = []
    for seed, held in ((1, 1 << 30), (2, 1_000), (3, 1_000)):
        monkeypatch.setattr(inbox_module, "HELD_BYTES", held)
        random.Random(seed).shuffle(rows)
        inbox = Inbox(())
        for start in range(0, len(rows), 100):
            frame = pl.DataFrame(rows[start : start + 100], (KEY, ROW, WEIGHT), orient="row")
            inbox.put(operator.id, ROWS, frame)
        parts = [set(part[ROWS][KEY].to_list()) for part in inbox.parts(operator)]
        assert 4 <= len(parts) <= 7
        assert sum(map(len, parts)) == len(set.union(*parts)) == len(keys)
        assert [max(part) for part in parts] == sorted(max(part) for part in parts)
        shares.append(parts)
    assert shares[0] == shares[1] == shares[2]


def test_messages_wait_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "HELD_BYTES", 10)
    mailbox = Mailbox()
    sent = [(number % 3, bytes([number]) * 4) for number in range(20)]
    for message in sent:
        mailbox.put(message)
    for shard in range(3):
        assert list(mailbox.take(shard)) == [blob for to, blob in sent if to == shard]
    assert not mailbox.shards


@pytest.mark.parametrize(
    ("view", "rows", "others", "megabytes", "share"),
    [
        pytest.param(PAIRS, 1_000, 1_000, 330, 10, id="pairs"),
        pytest.param(PAIRS, 2_000, 2_000, 1024, 1, id="all pairs", marks=pytest.mark.long),
        pytest.param(PAIRS, 4_000, 4_000, 1024, 1, id="more pairs", marks=pytest.mark.long),
        pytest.param(SUMS, 10_000, 10_000, 1024, 1, id="sums", marks=pytest.mark.long),
        pytest.param(CHAIN, 2_000, 2_000, 1024, 1, id="chain", marks=pytest.mark.long),
        pytest.param(WIDE, 1_000_000, 1, 1024, 1, id="wide", marks=pytest.mark.long),
    ],
)
def test_a_join_that_explodes(
    tmp_path: Path, view: str, rows: int, others: int, megabytes: int, share: int
) -> None:
    """All rows of both sides share a key. The peak is that of a process which runs the epoch alone.

    `share`: the bounds are divided by that, as the rows are.
    """
    db = viewkeep.open(tmp_path / "m.vk", durability="relaxed")
    db.sql(TABLES + view)
    catch_up(db.store)
    db.put("b", pl.DataFrame({"id": range(others), "k": [0] * others, "y": [1] * others}))
    db.put("a", pl.DataFrame({"id": range(rows), "k": [0] * rows, "x": [1] * rows}))
    if view == WIDE:
        catch_up(db.store)
        db.put("b", {"id": 0, "k": 0, "y": 2})
    command = [sys.executable, "-c", EPOCH, db.url, str(share)]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(made.stdout) < megabytes
    if view in (SUMS, CHAIN):
        expected = {"k": 0 if view == SUMS else 2, "n": rows * others}
        assert db.scan("v").one().items() >= expected.items()
    else:
        assert db.aggregate("v", "count(*)", "max(y)") == {
            "count(*)": rows * others,
            "max(y)": 2 if view == WIDE else 1,
        }
    db.close()


def _operator(folder: Path) -> Operator:
    db = viewkeep.open(folder / "o.vk")
    db.sql(TABLES + "CREATE VIEW v AS SELECT id, x FROM a")
    catch_up(db.store)
    plan = load_plan(db.store, db.epochs.read().published.plan)
    db.close()
    return plan.program.operators[0]
