"""The worked examples of docs/design/adding-*.md, run as they stand there."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings

import viewkeep
from viewkeep.engine import operators
from viewkeep.engine.adhoc import evaluate
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.errors import TypeMismatch
from viewkeep.ops.aggregates.registry import AGGREGATES
from viewkeep.plan import passes, serial
from viewkeep.plan.explain import explain
from viewkeep.stores import create_store

from .history import FOLDER, History
from .history import _oracle as oracle
from .test_histories import histories, one_epoch, phases, play, slow

DESIGN = Path(__file__).parents[2] / "docs" / "design"

LONE = (
    "SELECT id, part, g, x FROM "
    "(SELECT *, COUNT(*) OVER (PARTITION BY g) AS n FROM items) WHERE n = 1"
)
LONE_VIEWS = [
    LONE,
    f"SELECT g, SUM(x) AS s FROM ({LONE}) GROUP BY g",
    "SELECT i.id, i.part, l.x FROM items i JOIN "
    "(SELECT h, x FROM (SELECT h, x, COUNT(*) OVER (PARTITION BY h) AS n FROM items) "
    "WHERE n = 1) l ON i.h = l.h",
]


def page(name: str) -> ModuleType:
    """The Python of a page, as a module."""
    blocks = (DESIGN / name).read_text().split("```python\n")[1:]
    module = ModuleType(name.removesuffix(".md").replace("-", "_"))
    sys.modules[module.__name__] = module  # where dataclasses look for types
    code = "from __future__ import annotations\n" + "".join(b.split("```")[0] for b in blocks)
    exec(compile(code, name, "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module")
def lone() -> Iterator[Any]:
    """The operator of adding-an-operator.md, in its places."""
    module: Any = page("adding-an-operator.md")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(serial.CLASSES, "Lone", module.Lone)
        patch.setitem(operators.EXECUTORS, module.Lone, module.LoneExecutor)
        patch.setattr(passes, "PASSES", (*passes.PASSES, module.find_lone))
        yield module


def created(selects: list[str], mark: str) -> list[str]:
    return [f"CREATE VIEW {mark}{i} AS {text}" for i, text in enumerate(selects)]


@settings(max_examples=15, deadline=None, suppress_health_check=slow, phases=phases)
@given(histories)
def test_lone_in_random_histories(lone: Any, history: list[tuple[str, Any]]) -> None:
    """Both lanes, with views that exist and views that are loaded half way."""
    play(created(LONE_VIEWS[:2], "v"), created(LONE_VIEWS[1:], "w"), history, len(history))


def test_lone_in_plans(lone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found, explained, stored, loaded again, and evaluated for a query."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = create_store(str(Path(folder) / "db"), durability="relaxed")
        model = History(store)
        model.create_view(f"CREATE VIEW lone AS {LONE}")
        model.create_view(f"CREATE VIEW s AS SELECT g, COUNT(*) AS n FROM ({LONE}) GROUP BY g")
        plan = model.catalog.current()
        node = plan.views["lone"].node
        assert "◌ LONE per" in explain(plan.program, ["lone"])
        assert "WINDOW" not in explain(plan.program, ["lone"])
        assert serial.decode(serial.encode(node)) == node
        model.put([{"id": i, "part": 0, "g": "ab"[i // 2], "x": i} for i in range(3)])
        epochs = Epochs(store)
        term = epochs.acquire().term
        lanes = set[str]()
        for lane in ("run_rows", "run_columns"):
            run = getattr(lone.LoneExecutor, lane)

            def running(self: Any, *given: Any, run: Any = run, lane: str = lane) -> Any:
                lanes.add(lane)
                return run(self, *given)

            monkeypatch.setattr(lone.LoneExecutor, lane, running)
        assert one_epoch(model, epochs, term, Limits(), Random(1))
        assert lanes == {"run_rows", "run_columns"}
        rows = pl.DataFrame(
            model.rows_at(epochs.read().published.cut)["items"],
            schema=model.tables["items"].schema.polars,
            orient="row",
        )
        found = evaluate(node, lambda source: rows.select(source.schema.names))
        assert found.rows() == [row for row in found.rows() if 2 in row] != []
        store.close()


SHARES = [
    "SELECT g, SHARE(b) AS s, COUNT(b) AS n, SHARE(CASE WHEN h > 0 THEN x > 0 END) AS p FROM items "
    "GROUP BY g",
    "SELECT SHARE(b) AS s, ANY_BITS(x) AS bits FROM items",
    "SELECT h, ANY_BITS(x) AS bits, MAX(x) AS x FROM items GROUP BY h HAVING SHARE(b) < 1",
    "SELECT n, ANY_BITS(h) AS hs FROM (SELECT g, ANY_BITS(h) AS h, COUNT(*) AS n FROM items "
    "GROUP BY g) GROUP BY n",
]


@pytest.fixture(scope="module")
def functions() -> Iterator[Any]:
    """The functions of adding-an-aggregate.md, in the registry."""
    module: Any = page("adding-an-aggregate.md")
    with pytest.MonkeyPatch.context() as patch:
        for function in module.FUNCTIONS:
            patch.setitem(AGGREGATES, function.name, function)
        for macro in ("share(b) AS avg(b::INT)", "any_bits(x) AS bit_or(x)"):
            oracle().execute(f"CREATE OR REPLACE MACRO {macro}")
        yield module


@settings(max_examples=20, deadline=None, suppress_health_check=slow, phases=phases)
@given(histories)
def test_aggregates_in_random_histories(functions: Any, history: list[tuple[str, Any]]) -> None:
    """Both lanes, with views that exist and views that are loaded half way."""
    play(created(SHARES[:3], "v"), created(SHARES[2:], "w"), history, len(history))


def test_aggregates_in_plans(functions: Any, tmp_path: Path) -> None:
    """They are explained, stored, loaded again, refused where they have no meaning, and queried."""
    with viewkeep.open(str(tmp_path / "a.vk"), durability="relaxed") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, x BIGINT)")
        db.sql("INSERT INTO t VALUES (1, 1, 1), (2, 1, 4), (3, 2, 2), (4, 2, NULL)")
        text = "SELECT g, SHARE(x > 1) AS s, ANY_BITS(x) AS bits FROM t GROUP BY g"
        assert "SHARE(" in str(db.sql(f"EXPLAIN {text}"))
        rows = [tuple(row.values()) for row in db.sql(text).rows()]
        assert sorted(rows) == [(1, 0.5, 5), (2, 1.0, 2)]
        db.sql(f"CREATE VIEW v AS {text}")
        node = db.catalog.current().views["v"].node
        assert serial.decode(serial.encode(node)) == node
        with pytest.raises(TypeMismatch, match="share of BIGINT has no meaning"):
            db.sql("SELECT SHARE(x) AS s FROM t")
