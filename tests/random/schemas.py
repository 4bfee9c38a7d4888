"""Random schemas and rows: two to four tables with small domains, so that values meet and repeat.

Everything follows from the `Random` it is given. Values are ones whose arithmetic is exact: small
integers, halves, two decimal digits.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

TYPES = {
    "INT": "INT",
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "DEC": "DECIMAL(8,2)",
    "STR": "STRING",
    "BOOL": "BOOLEAN",
    "DATE": "DATE",
    "TIME": "TIMESTAMP",
}
DOMAINS: dict[str, list[Any]] = {
    "INT": [-2, -1, 0, 1, 2, 3],
    "BIGINT": [-1, 0, 1, 2, 5_000_000_000],
    "DOUBLE": [-1.5, 0.0, 0.5, 1.0, 2.0, 4.5],
    "DEC": [Decimal("-1.25"), Decimal("0.00"), Decimal("0.50"), Decimal("1.00"), Decimal("7.75")],
    "STR": ["", "a", "b", "ab", "B", "ba"],
    "BOOL": [True, False],
    "DATE": [dt.date(2023, 12, 31), dt.date(2024, 1, 1), dt.date(2024, 2, 29)],
    "TIME": [dt.datetime(2024, 1, 1, 10), dt.datetime(2024, 1, 1, 10, 30), dt.datetime(2024, 1, 2)],
}
KEY_TYPES = ["INT", "INT", "BIGINT", "STR"]
VALUE_TYPES = ["INT", "INT", "INT", "STR", "STR", "BIGINT", "DOUBLE", "DEC", "BOOL", "DATE", "TIME"]
NULLS = 0.2

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A base table: its columns with their types, the first `keys` of them are the key."""

    name: str
    columns: tuple[tuple[str, str], ...]
    keys: int

    @property
    def sql(self) -> str:
        columns = ", ".join(f"{name} {TYPES[kind]}" for name, kind in self.columns)
        key = ", ".join(name for name, _ in self.columns[: self.keys])
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({key}))"

    def row(self, random: Random) -> Row:
        made = []
        for place, (_, kind) in enumerate(self.columns):
            missing = place >= self.keys and random.random() < NULLS
            made.append(None if missing else random.choice(DOMAINS[kind]))
        return tuple(made)


def random_tables(random: Random) -> list[Table]:
    """Tables that share some column names, so that USING and NATURAL have something to do."""
    made = []
    for number in range(random.randint(2, 4)):
        keys = [(f"k{i}", random.choice(KEY_TYPES)) for i in range(random.choice([1, 1, 2]))]
        values = [(f"x{i}", random.choice(VALUE_TYPES)) for i in range(random.randint(1, 4))]
        values.append(("n", "INT"))
        made.append(Table(f"t{number}", (*keys, *values), len(keys)))
    return made


@dataclass(frozen=True)
class Write:
    """Rows that are put (whole), then keys that are deleted."""

    table: Table
    put: list[Row]
    delete: list[Row]

    @property
    def shown(self) -> str:
        return f"{self.table.name}: put {self.put}, delete {self.delete}"


def random_write(random: Random, table: Table) -> Write:
    rows = {
        row[: table.keys]: row for row in (table.row(random) for _ in range(random.randint(0, 6)))
    }
    keys = {table.row(random)[: table.keys] for _ in range(random.randint(0, 3))}
    return Write(table, list(rows.values()), sorted(keys, key=repr))
