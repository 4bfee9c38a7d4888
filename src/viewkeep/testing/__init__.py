"""Test an application that uses viewkeep: a database in memory, without Spark.

Law: tests see the same rows as applications; the engine is the same.

    import viewkeep.testing

    with viewkeep.testing.database() as db:
        db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT)")
        db.sql("CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story")
        db.put("votes", {"id": 1, "story": 7})
        assert db.get("scores", 7) == {"story": 7, "votes": 1}

With pytest, the fixture `viewkeep_db` gives a new one to each test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewkeep.database import Database

__all__ = ["database"]


def database(
    *, each_write: bool = True, nodes: int | None = None, shards: int | None = None
) -> Database:
    """A new database in memory; it is gone when it is closed, or its process ends.

    Epochs run in this process, at once after each write and each change of the catalog, so a view
    is never behind. With `each_write=False` they run when you call `db.wait()`, or
    `pipeline.wait()` of a `db.pipeline()`: for tests of what your application does while views are
    behind. `db.pipeline()` starts no Spark; `nodes` and `shards` are 1 unless told.

    `viewkeep.open(":memory:")` is the same with the defaults.
    """
    # pytest imports this package at its start, also where no test asks for a database.
    from viewkeep.database import in_memory

    options = {"nodes": nodes, "shards": shards if shards is not None else nodes}
    chosen = {name: value for name, value in options.items() if value is not None}
    return in_memory(chosen, each_write=each_write)
