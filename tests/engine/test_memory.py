"""The memory of an epoch follows its bounds, not what its joins make of it."""

from __future__ import annotations

import os
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
from viewkeep.engine.exchange import ROWS
from viewkeep.engine.inbox import Inbox
from viewkeep.engine.local import catch_up
from viewkeep.engine.operators.arrange import ArrangeExecutor
from viewkeep.engine.programs import load_plan
from viewkeep.engine.spool import Mailbox
from viewkeep.ops.arrange import ROW
from viewkeep.plan.program import Operator

pytestmark = pytest.mark.usefixtures("columns_lane")

TABLES = """
    CREATE TABLE a (id INT PRIMARY KEY, k INT, x BIGINT, t STRING);
    CREATE TABLE b (id INT PRIMARY KEY, k INT, y BIGINT, t STRING);
"""
BOTH = "FROM a JOIN b ON a.k = b.k"
SUMS = f"CREATE VIEW v AS SELECT a.k, COUNT(*) AS n, SUM(a.x) AS s {BOTH} GROUP BY a.k"
PAIRS = f"CREATE VIEW v AS SELECT a.id AS i, b.id AS j, a.x, b.y {BOTH}"
TEXTS = f"CREATE VIEW v AS SELECT a.id AS i, b.id AS j, a.t AS s, b.y, b.t {BOTH}"
FIRST = f"CREATE VIEW v AS SELECT a.id AS i, b.id AS j, b.y {BOTH} ORDER BY y DESC, i, j LIMIT 10"
OUTER = f"""
    CREATE VIEW p AS SELECT a.id AS i, b.id AS j, b.y {BOTH};
    CREATE VIEW v AS SELECT b.id, p.i, p.j, p.y FROM b LEFT JOIN p ON p.i = b.id
"""
WIDE = "CREATE VIEW v AS SELECT a.id AS i, a.x, b.y FROM a JOIN b ON a.k = b.id"
CHAIN = """
    CREATE VIEW v AS SELECT c.id AS k, COUNT(*) AS n
        FROM a JOIN b ON a.k = b.k JOIN b AS c ON c.id = a.x + b.y GROUP BY c.id
"""
EPOCH = """
import resource
import sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]) << 20,) * 2)
import viewkeep
from viewkeep.engine import inbox, exchange, spool, state
from viewkeep.engine.operators.sides import columns as sides
from viewkeep.engine.local import catch_up
share = int(sys.argv[2])
sides.ROWS_AT_ONCE //= share
exchange._COMBINE_AT //= share
exchange._SEND_AT //= share
inbox.PART_ROWS //= share
spool.HELD_BYTES = inbox.HELD_BYTES = spool.HELD_BYTES // share
state._MUCH_ROWS //= share
db = viewkeep.open(sys.argv[1])
catch_up(db.store)
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if "VmHWM" in line))
"""
# As Spark's workers have them; and Arrow's own allocator reserves 1 GiB of addresses at once.
ENVIRONMENT = {"POLARS_MAX_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


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
        parts = [set(part[ROWS][KEY].to_list()) for part in inbox.parts(ArrangeExecutor(operator))]
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
    ("view", "rows", "others", "private", "resident", "share"),
    [
        pytest.param(PAIRS, 1_000, 1_000, 330, 330, 10, id="some pairs"),
        pytest.param(TEXTS, 220, 220, 330, 330, 10, id="some texts"),
        pytest.param(FIRST, 500, 500, 330, 330, 10, id="some of which the first"),
        pytest.param(PAIRS, 2_000, 2_000, 1024, 1024, 1, id="pairs", marks=pytest.mark.long),
        pytest.param(PAIRS, 4_000, 4_000, 1024, 1024, 1, id="more pairs", marks=pytest.mark.long),
        pytest.param(TEXTS, 700, 700, 1024, 1024, 1, id="texts", marks=pytest.mark.long),
        pytest.param(SUMS, 10_000, 10_000, 1024, 1024, 1, id="sums", marks=pytest.mark.long),
        pytest.param(FIRST, 1_500, 1_500, 1024, 1024, 1, id="first", marks=pytest.mark.long),
        pytest.param(OUTER, 1_500, 1_500, 1024, 1024, 1, id="outer", marks=pytest.mark.long),
        pytest.param(CHAIN, 2_000, 2_000, 1024, 1400, 1, id="chain", marks=pytest.mark.long),
        pytest.param(WIDE, 1_000_000, 1, 1024, 1024, 1, id="wide", marks=pytest.mark.long),
    ],
)
def test_a_join_that_explodes(
    tmp_path: Path, view: str, rows: int, others: int, private: int, resident: int, share: int
) -> None:
    """All rows of both sides share a key. A process of its own runs the epoch.

    The kernel refuses it more memory than `private`, in MiB. `resident` is the bound of its peak
    with the mapped pages of the database, which the kernel can take back. `share`: the bounds of
    parts are divided by that, as the rows are.
    """
    db = viewkeep.open(tmp_path / "m.vk", durability="relaxed")
    db.sql(TABLES + view)
    catch_up(db.store)
    text = "t" * (500 if view == TEXTS else 1)
    for name, value, count in (("b", "y", others), ("a", "x", rows)):
        columns = {"id": range(count), "k": [0] * count, value: [1] * count, "t": [text] * count}
        db.put(name, pl.DataFrame(columns))
    if view == WIDE:
        catch_up(db.store)
        db.put("b", {"id": 0, "k": 0, "y": 2})
    command = [sys.executable, "-c", EPOCH, db.url, str(share), str(private)]
    environment = os.environ | ENVIRONMENT
    made = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert made.returncode == 0, made.stderr
    assert int(made.stdout) < resident
    pairs = rows * others
    if view in (SUMS, CHAIN):
        expected = {"k": 0 if view == SUMS else 2, "n": pairs}
        assert db.scan("v").one().items() >= expected.items()
    elif view == FIRST:
        assert db.scan("v").tuples() == [(0, j, 1) for j in range(10)]
    else:
        assert db.aggregate("v", "count(*)", "max(y)") == {
            "count(*)": pairs,
            "max(y)": 2 if view == WIDE else 1,
        }
    db.close()


@pytest.mark.long
def test_a_group_of_a_top_k_that_goes(tmp_path: Path) -> None:
    """All pairs go, and with them the first rows; then those that come are the first."""
    test_a_join_that_explodes(tmp_path, FIRST, 1_500, 1_500, 1024, 1024, 1)
    db = viewkeep.open(tmp_path / "m.vk")
    db.put("b", pl.DataFrame({"id": range(1_500), "k": [1] * 1_490 + [0] * 10}))
    command = [sys.executable, "-c", EPOCH, db.url, "1", "1024"]
    environment = os.environ | ENVIRONMENT
    made = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert made.returncode == 0, made.stderr
    assert db.scan("v").tuples() == [(0, 1_490 + j, 1) for j in range(10)]
    db.close()


def _operator(folder: Path) -> Operator:
    db = viewkeep.open(folder / "o.vk")
    db.sql(TABLES + "CREATE VIEW v AS SELECT id, x FROM a")
    catch_up(db.store)
    plan = load_plan(db.store, db.epochs.read().published.plan)
    db.close()
    return plan.program.operators[0]
