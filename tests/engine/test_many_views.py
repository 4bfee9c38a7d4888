"""Hundreds of views at once: they share what is equal, stay few levels, and are right."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest

from viewkeep.engine.local import catch_up
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.nodes import CreateView
from viewkeep.stores import create_store

from .history import FOLDER, History
from .many import SHAPES, row, tables, views

KEYS = 40


def play(count: int, over: int, shapes: tuple[str, ...] = SHAPES) -> None:
    """Half of the views are there from the start, the others are loaded later."""
    random = Random(count)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        history = History(store, tuple(tables(over)))
        try:
            statements = list(views(count, over, shapes))
            for part in (statements[: count // 2], statements[count // 2 :]):
                made = [
                    analyse(parse(text)[0], history.catalog.current().tables.get) for text in part
                ]
                assert all(isinstance(one, CreateView) for one in made)
                history.catalog.create_views(made)  # type: ignore[arg-type]
                for _ in range(2):
                    for number in range(over):
                        rows = [row(random, KEYS) for _ in range(4)]
                        history.put(rows, f"t{number}")
                        history.delete([(random.randrange(KEYS),)], f"t{number}")
                    catch_up(store)
                    history.check()
            program = history.catalog.current().program
            assert len(program.placements) == count
            assert program.levels <= 5
        finally:
            store.close()


def test_a_hundred_views_of_ten_shapes() -> None:
    play(100, 5)


@pytest.mark.long
def test_a_thousand_views_of_ten_shapes_over_ten_tables() -> None:
    play(1_000, 10)


@pytest.mark.long
def test_12800_selections_and_aggregations_over_twenty_tables() -> None:
    play(12_800, 20, (SHAPES[0], SHAPES[2], SHAPES[3], SHAPES[1]))


def test_equal_parts_of_different_spellings_are_one_state_table() -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        history = History(store, tuple(tables(3)))
        try:
            history.create_view(
                "CREATE VIEW one AS SELECT x.s, COUNT(*) AS n FROM t0 x JOIN t1 y ON x.id = y.a "
                "JOIN t2 z ON y.b = z.b WHERE x.b > 3 AND z.a = 4 GROUP BY x.s"
            )
            before = history.catalog.current().program
            history.create_view(
                "CREATE VIEW two AS SELECT q.s, COUNT(*) AS hits FROM t2 p, t1, t0 q "
                "WHERE p.a = 4 AND t1.a = q.id AND p.b = t1.b AND 3 < q.b GROUP BY q.s"
            )
            after = history.catalog.current().program
            assert {op.id for op in before.operators} == {op.id for op in after.operators}
            history.create_view(
                "CREATE VIEW three AS SELECT x.s, MAX(x.a) AS top FROM t1 y JOIN t2 z "
                "ON z.b = y.b JOIN t0 x ON y.a = x.id WHERE z.a = 4 AND x.b > 3 GROUP BY x.s"
            )
            more = history.catalog.current().program
            fresh = [op for op in more.operators if op.id not in after.by_id]
            assert 0 < len(fresh) < len(after.operators)
        finally:
            store.close()
