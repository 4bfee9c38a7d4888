"""Money moves between accounts while readers add it up: the total never changes."""

import random
import threading

import viewkeep

ACCOUNTS, START = 20, 100

db = viewkeep.open("bank.vk", durability="relaxed")
db.sql("""
    CREATE TABLE accounts (id INT PRIMARY KEY, owner STRING, balance BIGINT);
    CREATE VIEW owners AS SELECT owner, SUM(balance) AS balance FROM accounts GROUP BY owner;
    CREATE VIEW bank AS SELECT SUM(balance) AS balance, COUNT(*) AS accounts FROM accounts;
""")
balances = dict.fromkeys(range(ACCOUNTS), START)
rows = [{"id": n, "owner": f"owner{n % 5}", "balance": b} for n, b in balances.items()]
db.put("accounts", rows)


def transfer(chance: random.Random) -> None:
    """One write of two rows: no cut ever shows one without the other."""
    giver, taker = chance.sample(range(ACCOUNTS), 2)
    amount = chance.randint(1, 50)
    balances[giver] -= amount
    balances[taker] += amount
    db.put("accounts", [{"id": n, "balance": balances[n]} for n in (giver, taker)])


done = threading.Event()


def keep_transferring() -> None:
    chance = random.Random(1)
    while not done.is_set():
        transfer(chance)


with db.pipeline() as pipeline:
    pipeline.wait()
    writer = threading.Thread(target=keep_transferring)
    writer.start()
    epochs = set()
    while len(epochs) < 5:  # five different published epochs
        with db.snapshot() as snapshot:
            by_owner = sum(row["balance"] for row in snapshot.scan("owners"))
            whole = snapshot.get("bank")["balance"]
            base = sum(row["balance"] for row in snapshot.scan("accounts"))
            epochs.add(snapshot.epoch)
        assert by_owner == whole == base == ACCOUNTS * START
    done.set()
    writer.join()

print(f"epochs {sorted(epochs)}: the total was {ACCOUNTS * START} in every one")
db.close()
