"""Many views of a few shapes over some tables, for tests and benchmarks of their number."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

COLUMNS = "id BIGINT, a INT, b INT, s STRING"


def tables(count: int) -> list[str]:
    return [f"CREATE TABLE t{n} ({COLUMNS}, PRIMARY KEY (id))" for n in range(count)]


def row(random: Random, keys: int) -> dict[str, Any]:
    return {
        "id": random.randrange(keys),
        "a": random.choice([None, *range(12)]),
        "b": random.randrange(1000),
        "s": random.choice(["x", "y", "zz", None]),
    }


# Each with a table {t}, a second one {u} and a number {n} that makes them different.
SHAPES = (
    "SELECT id, a, b FROM {t} WHERE b > {n}",
    "SELECT id, a + {n} AS moved, upper(s) AS s FROM {t}",
    "SELECT a, COUNT(*) AS n, SUM(b) AS total FROM {t} WHERE b <> {n} GROUP BY a",
    "SELECT s, MIN(b) AS low, MAX(b) AS high FROM {t} WHERE b < {n} GROUP BY s",
    "SELECT t.id, u.id AS other FROM {t} t JOIN {u} u ON t.a = u.a WHERE u.b > 990 AND t.b < {n}",
    "SELECT u.s, COUNT(*) AS n FROM {t} t JOIN {u} u ON t.id = u.id WHERE t.b > {n} GROUP BY u.s",
    "SELECT t.id, t.b FROM {t} t WHERE t.b > {n} "
    "AND NOT EXISTS (SELECT * FROM {u} u WHERE u.id = t.id)",
    "SELECT id, b FROM {t} WHERE b <> {n} ORDER BY b DESC, id LIMIT 5",
    "SELECT DISTINCT a, s FROM {t} WHERE b > {n} UNION SELECT a, s FROM {u} WHERE b < {n}",
    "SELECT id, LAG(b) OVER (PARTITION BY a ORDER BY id) AS before FROM {t} WHERE b > {n}",
)


def views(count: int, over: int, shapes: tuple[str, ...] = SHAPES) -> Iterator[str]:
    """CREATE VIEW statements: the shapes in turn, over the tables in turn, all different."""
    for number in range(count):
        shape, turn = shapes[number % len(shapes)], number // len(shapes)
        first, second = turn % over, (turn * 7 + 1) % over
        select = shape.format(t=f"t{first}", u=f"t{second}", n=turn // over * 10 + 5)
        yield f"CREATE VIEW v{number} AS {select}"
