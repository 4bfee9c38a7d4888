"""Who changes rows, and the clock.

Law: a write says before it begins what it will leave in the tables, as a function of the rows that
it meets; every row carries the number of the write that left it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from viewkeep.errors import DuplicateKey, UnknownName

from . import schema
from .actor import Actor
from .model import Change, Row, Rows
from .world import Process

ACCOUNT_IDS, ITEM_IDS = range(7), range(4)
LEAP = 100.0  # seconds that the clock jumps ahead: longer than any pin or lease lasts


def account(rng: Any, key: int, number: int) -> Row:
    """A row of accounts that a write leaves."""
    return {"id": key, "owner": rng.randrange(3), "amount": rng.randrange(100), "w": number}


class Writer(Actor):
    """Writes of every kind, most of several rows on several nodes."""

    weight = 8
    hosts = ("writer", "writer", "second_writer")

    def act(self, process: Process) -> None:
        kinds = (
            self.put, self.put, self.put_items, self.put_items, self.put_part, self.put_note,
            self.insert, self.transfer, self.transfer, self.set_owner, self.move,
            self.delete, self.delete_range, self.delete_where, self.clear,
        )  # fmt: skip
        self.rng.choice(kinds)(process, self.model.new_number())

    # -- puts ----------------------------------------------------------------------------------

    def put(self, process: Process, number: int) -> None:
        keys = self.rng.sample(ACCOUNT_IDS, 3)
        rows = [account(self.rng, key, number) for key in keys]
        self.intend(process, number, lambda _: [((row["id"],), row) for row in rows])
        process.db.put("accounts", rows)

    def put_items(self, process: Process, number: int) -> None:
        rng = self.rng
        keys = rng.sample([(a, b) for a in ITEM_IDS for b in range(3)], 2)
        rows: list[Row] = [
            {
                "a": a,
                "b": b,
                "v": rng.choice((None, *range(9))),
                "s": schema.POISON if rng.random() < 0.15 else rng.choice("xyz"),
                "x": rng.choice((0.1, 0.2, 1e6, -0.3)),
                "w": number,
            }
            for a, b in keys
        ]
        self.intend(process, number, lambda _: [((row["a"], row["b"]), row) for row in rows])
        process.db.put("items", rows)

    def put_part(self, process: Process, number: int) -> None:
        """Some columns of rows that are there or not."""
        keys = self.rng.sample(ACCOUNT_IDS, 2)
        new: Row = {"amount": self.rng.randrange(100), "w": number}

        def effect(rows: Rows) -> list[Change]:
            blank = {"owner": None, "amount": None}
            return [((k,), {"id": k, **blank, **rows.get((k,), {}), **new}) for k in keys]

        self.intend(process, number, effect)
        process.db.put("accounts", [{"id": key, **new} for key in keys])

    def put_note(self, process: Process, number: int) -> None:
        """Rows of a table that comes and goes."""
        rows: list[Row] = [
            {"id": key, "text": self.rng.choice("pq"), "w": number}
            for key in self.rng.sample(range(5), 2)
        ]
        self.intend(process, number, lambda _: [((row["id"],), row) for row in rows])
        with suppress(UnknownName):
            process.db.put("notes", rows)

    def insert(self, process: Process, number: int) -> None:
        rows = [account(self.rng, key, number) for key in self.rng.sample(ACCOUNT_IDS, 2)]
        self.intend(process, number, lambda _: [((row["id"],), row) for row in rows])
        with suppress(DuplicateKey):
            process.db.insert("accounts", rows)

    # -- statements with conditions ------------------------------------------------------------

    def transfer(self, process: Process, number: int) -> None:
        """Change the accounts of an owner by one conditional statement."""
        owner = self.rng.randrange(3)

        def effect(rows: Rows) -> list[Change]:
            return [
                (key, {**row, "amount": _one_more(row["amount"]), "w": number})
                for key, row in rows.items()
                if row["owner"] == owner
            ]

        self.intend(process, number, effect)
        process.db.sql(
            f"UPDATE accounts SET amount = amount + 1, w = {number} WHERE owner = {owner}"
        )

    def set_owner(self, process: Process, number: int) -> None:
        """Rows move between groups."""
        limit, owner = self.rng.randrange(100), self.rng.randrange(3)

        def effect(rows: Rows) -> list[Change]:
            return [
                (key, {**row, "owner": owner, "w": number})
                for key, row in rows.items()
                if row["amount"] is not None and row["amount"] > limit
            ]

        self.intend(process, number, effect)
        process.db.sql(f"UPDATE accounts SET owner = {owner}, w = {number} WHERE amount > {limit}")

    def move(self, process: Process, number: int) -> None:
        """Rows get other keys: some go and some come, in one write."""
        step, owner = self.rng.choice((-1, 1)), self.rng.randrange(3)

        def effect(rows: Rows) -> list[Change]:
            old = {key: row for key, row in rows.items() if row["owner"] == owner}
            gone: list[Change] = [(key, None) for key in old]
            return gone + [
                ((k + step,), {**row, "id": k + step, "w": number}) for (k,), row in old.items()
            ]

        self.intend(process, number, effect)
        with suppress(DuplicateKey):
            process.db.sql(
                f"UPDATE accounts SET id = id + {step}, w = {number} WHERE owner = {owner}"
            )

    # -- deletions -----------------------------------------------------------------------------

    def delete(self, process: Process, number: int) -> None:
        keys = self.rng.sample(ACCOUNT_IDS, 2)
        self.intend(process, number, lambda _: [((key,), None) for key in keys])
        process.db.delete_many("accounts", keys)

    def delete_range(self, process: Process, number: int) -> None:
        lo = self.rng.choice(ITEM_IDS)
        self.intend(
            process, number, lambda rows: [(key, None) for key in rows if lo <= key[0] < lo + 2]
        )
        process.db.sql(f"DELETE FROM items WHERE a >= {lo} AND a < {lo + 2}")

    def delete_where(self, process: Process, number: int) -> None:
        limit = self.rng.randrange(80, 100)

        def effect(rows: Rows) -> list[Change]:
            return [(key, None) for key, row in rows.items() if (row["amount"] or 0) >= limit]

        self.intend(process, number, effect)
        process.db.sql(f"DELETE FROM accounts WHERE amount >= {limit}")

    def clear(self, process: Process, number: int) -> None:
        """One column of one row becomes NULL."""
        key = self.rng.choice(ACCOUNT_IDS)

        def effect(rows: Rows) -> list[Change]:
            return [((key,), {**rows[key,], "amount": None})] if (key,) in rows else []

        self.intend(process, number, effect)
        process.db.delete("accounts", key, ["amount"])


class Clock(Actor):
    """The clock of the machine, which jumps."""

    weight = 1
    hosts = ("clock",)

    def act(self, process: Process) -> None:
        jump = self.rng.choice((-3600.0, -1.0, 0.5, 2.0, LEAP))
        self.world.now += jump
        self.world.leaps += jump == LEAP
        self.happened("clock jump")


def _one_more(value: int | None) -> int | None:
    return None if value is None else value + 1
