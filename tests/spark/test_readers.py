"""Readers while the pipeline runs: a stable read of several views is always one cut."""

from __future__ import annotations

import random
import threading

from pyspark.sql import SparkSession

from viewkeep import Database

ACCOUNTS, TOTAL = 40, 40 * 100
ROUNDS = 30


def test_a_transfer_never_changes_the_total(db: Database, spark: SparkSession) -> None:
    db.sql("CREATE TABLE accounts (id BIGINT PRIMARY KEY, branch INT, money BIGINT)")
    db.sql(
        "CREATE VIEW branches AS SELECT branch, SUM(money) AS money FROM accounts GROUP BY branch"
    )
    db.sql("CREATE VIEW everything AS SELECT SUM(money) AS money, COUNT(*) AS n FROM accounts")
    db.sql("CREATE VIEW rich AS SELECT id, money FROM accounts WHERE money >= 0")
    money = dict.fromkeys(range(ACCOUNTS), 100)
    db.put("accounts", [{"id": n, "branch": n % 5, "money": 100} for n in money])
    done = threading.Event()

    def transfer() -> None:
        source = random.Random(1)
        while not done.is_set():
            giver, taker = source.sample(range(ACCOUNTS), 2)
            sum_ = source.randrange(1 + money[giver])
            money[giver] -= sum_
            money[taker] += sum_
            db.put("accounts", [{"id": n, "money": money[n]} for n in (giver, taker)])

    with db.pipeline(spark=spark) as pipeline:
        pipeline.wait(60)
        writer = threading.Thread(target=transfer)
        writer.start()
        try:
            epochs = set()
            while len(epochs) < ROUNDS:
                pipeline.check()
                with db.snapshot() as snapshot:
                    branches = snapshot.scan("branches").rows()
                    everything = snapshot.get("everything")
                    rich = snapshot.scan("rich").rows()
                    accounts = snapshot.scan("accounts").rows()
                    epochs.add(snapshot.epoch)
                assert sum(row["money"] for row in branches) == TOTAL
                assert everything == {"money": TOTAL, "n": ACCOUNTS}
                assert sum(row["money"] for row in rich) == TOTAL
                assert {row["id"]: row["money"] for row in rich} == {
                    row["id"]: row["money"] for row in accounts
                }
                assert sum(row["money"] for row in db.scan("branches").rows()) == TOTAL
        finally:
            done.set()
            writer.join()
