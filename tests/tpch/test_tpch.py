"""All 22 TPC-H queries as views: after every refresh each equals DuckDB's answer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import viewkeep
from viewkeep.database import Database

from ..slt.epochs import run_epochs
from ..slt.oracle import difference, to_duckdb
from .refresh import Refresh
from .schema import EXACT, QUERIES, create_tables, create_view, generate, load, load_duckdb

# In memory where there is such a folder: these tests are about values, not about disks.
MOST_EPOCHS = 1_000
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="viewkeep-tpch-", dir=FOLDER) as made:
        yield Path(made)


def answer(model: duckdb.DuckDBPyConnection, name: str) -> list[tuple[object, ...]]:
    """DuckDB's answer to a query, with averages of decimals as Spark takes them."""
    text = to_duckdb(QUERIES[name])
    if name in EXACT:
        old, new = EXACT[name]
        assert old.lower() in text.lower()
        place = text.lower().index(old.lower())
        text = text[:place] + new + text[place + len(old) :]
    return model.execute(text).fetchall()


def check(db: Database, model: duckdb.DuckDBPyConnection, when: str) -> None:
    wrong = {
        name: found
        for name in db.views()
        if (found := difference(db.scan(name).tuples(), answer(model, name)))
    }
    assert not wrong, f"{when}: " + "\n".join(f"{name} {text}" for name, text in wrong.items())


def run(folder: Path, scale: float, batches: int, size: int, seed: int = 1) -> None:
    data = generate(folder, scale)
    model = load_duckdb(data)
    with viewkeep.open(folder / "tpch.vk", durability="relaxed") as db:
        create_tables(db)
        names = list(QUERIES)
        early, late = names[::2], names[1::2]
        for name in early:  # these see the rows come in, the others load what is there
            create_view(db, name)
        load(db, data)
        run_epochs(db.store, MOST_EPOCHS)
        check(db, model, "after loading")
        for name in late:
            create_view(db, name)
        run_epochs(db.store, MOST_EPOCHS)
        check(db, model, "after the late views were loaded")
        refresh = Refresh(model, seed)
        for number in range(batches):
            refresh.apply(db, refresh.batch(size))
            run_epochs(db.store, MOST_EPOCHS)
            check(db, model, f"after refresh {number + 1}")
    model.close()


def test_every_query_is_there() -> None:
    assert list(QUERIES) == [f"q{number:02}" for number in range(1, 23)]


def test_all_queries_equal_duckdb(folder: Path) -> None:
    run(folder, scale=0.01, batches=4, size=600)


@pytest.mark.long
def test_all_queries_equal_duckdb_at_a_larger_scale(folder: Path) -> None:
    run(folder, scale=0.1, batches=5, size=2_000)
