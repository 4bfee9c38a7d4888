"""What feeds get of a delta together is what each would get of it alone."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewkeep
from viewkeep.codec.key_order import hash_keys
from viewkeep.codec.keys import KeyCodec
from viewkeep.delta import HOME, KEY, WEIGHT
from viewkeep.engine.fanout import fan_out
from viewkeep.engine.operators.arrange import encode_rows
from viewkeep.engine.programs import newest_plan
from viewkeep.engine.steps import run_steps
from viewkeep.ops.arrange import ROW
from viewkeep.plan.program import Program
from viewkeep.types import BIGINT

SHARDS = 3
VIEWS = """
CREATE VIEW low AS SELECT id, a, s FROM t WHERE a < 5;
CREATE VIEW high AS SELECT id, a, s FROM t WHERE a >= 3;
CREATE VIEW again AS SELECT id, a, s FROM t WHERE a >= 3 AND s <> 'x';
CREATE VIEW whole AS SELECT id, a, s FROM t;
CREATE VIEW part AS SELECT id, s FROM t WHERE a < 5;
CREATE VIEW made AS SELECT id, a + 1 AS b FROM t WHERE a < 5;
CREATE VIEW counted AS SELECT a, COUNT(*) AS n FROM t WHERE a < 5 GROUP BY a;
CREATE VIEW moved AS SELECT id, a FROM t ORDER BY a, id
"""
rows = st.lists(
    st.tuples(
        st.integers(0, 99),
        st.none() | st.integers(0, 9),
        st.none() | st.sampled_from("xyz"),
        st.sampled_from((1, 1, -1)),
    ),
    max_size=60,
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    with viewkeep.open(tmp_path_factory.mktemp("fanout") / "db.vk") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, s STRING)")
        db.create_views(VIEWS)
        return newest_plan(db.store).program


@given(drawn=rows)
def test_each_feed_gets_what_its_own_steps_give(program: Program, drawn: list[tuple]) -> None:
    schema = {"id": pl.Int64, "a": pl.Int64, "s": pl.String, WEIGHT: pl.Int64}
    frame = pl.DataFrame(drawn, schema, orient="row")
    keys = KeyCodec((BIGINT,)).encode([frame["id"]])
    delta = frame.with_columns(pl.Series(KEY, keys, pl.Binary))
    consumers = program.consumers(f"table:{program.sources[0].number}")
    assert {feed.local for _, feed in consumers} == {True, False}
    got = {feed.id: rows for _, feed, rows in fan_out(delta, consumers, SHARDS)}
    for operator, feed in consumers:
        needed, steps = feed.narrowed
        alone = run_steps(steps, delta.select(*sorted(needed), KEY, WEIGHT))
        assert (feed.id in got) == (alone.height > 0)
        if not alone.height:
            continue
        rows = got[feed.id]
        if feed.local:
            assert rows[HOME].to_list() == (hash_keys(rows[KEY].to_list()) % SHARDS).tolist()
            alone = alone.with_columns(encode_rows(operator, alone))
            rows = rows.with_columns(encode_rows(operator, rows))
            names = [KEY, ROW, WEIGHT]
        else:
            names = sorted(alone.columns)
        assert sorted(rows.select(names).rows(), key=repr) == sorted(
            alone.select(names).rows(), key=repr
        )
