"""Few rows go another way than many: both give the same."""

from __future__ import annotations

from random import Random

import polars as pl
import pytest

from viewkeep.delta import KEY, WEIGHT
from viewkeep.engine import join
from viewkeep.engine import ordered as tables
from viewkeep.errors import PipelineError
from viewkeep.expr import Ref
from viewkeep.ops import arrange, ordered
from viewkeep.ops.arrange import ROW
from viewkeep.ops.ordered import GROUP, TIMES, VALUE, Ordered
from viewkeep.types import BIGINT, DOUBLE, STRING, DataType

pytestmark = pytest.mark.usefixtures("columns_lane")

VALUES: dict[DataType, list[object]] = {
    BIGINT: [-5, 0, 3, 1 << 40, None],
    DOUBLE: [-1.5, 0.0, 2.0, float("nan"), float("inf"), float("-inf"), None],
    STRING: ["", "a", "b", "é", "b" * 479 + "x", "b" * 600, "b" * 599 + "a", None],
}


@pytest.mark.parametrize("seed", range(20))
def test_changes_of_an_arrangement(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    keys = random.sample(range(100), random.randint(1, 60))
    rows = []
    for key in keys:
        name = b"%04d" % key
        if random.random() < 0.7:
            rows.append((name, b"new", 1))
        if random.random() < 0.6:
            rows.append((name, b"old", -1))
    random.shuffle(rows)
    schema = {KEY: pl.Binary, ROW: pl.Binary, WEIGHT: pl.Int64}
    net = pl.DataFrame(rows, schema, orient="row")
    few = arrange.keyed(net)
    monkeypatch.setattr(arrange, "_FEW", -1)
    many = arrange.keyed(net)
    assert (list(few.keys), list(few.rows)) == (list(many.keys), list(many.rows))
    assert few.are_new == many.are_new


@pytest.mark.parametrize("few", [1_000, -1])
def test_two_rows_of_one_key_are_refused(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrange, "_FEW", few)
    rows = [(b"a", b"1", 1), (b"a", b"2", 1), (b"b", b"1", -1)]
    net = pl.DataFrame(rows, {KEY: pl.Binary, ROW: pl.Binary, WEIGHT: pl.Int64}, orient="row")
    with pytest.raises(PipelineError, match="share one key"):
        arrange.keyed(net)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_the_best_of_each_group(seed: int, largest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    kinds = [random.choice(list(VALUES)) for _ in range(random.randint(1, 2))]
    order = Ordered(
        tuple(Ref(f"c{i}", kind) for i, kind in enumerate(kinds)),
        tuple(random.random() < 0.5 for _ in kinds),
        (True, *(False for _ in kinds[1:])),
    )
    groups = random.randint(1, 8)
    rows = [
        (random.randrange(groups), *(random.choice(VALUES[kind]) for kind in kinds))
        for _ in range(random.randint(0, 30))
    ]
    rows = [row for row in rows if row[1] is not None]
    schema = {GROUP: pl.Int64} | {
        name: kind.polars for name, kind in zip(order.names, kinds, strict=True)
    }
    candidates = pl.DataFrame(rows, schema, orient="row")
    few = ordered.best(candidates, order, groups, largest)
    monkeypatch.setattr(ordered, "_FEW", -1)
    many = ordered.best(candidates, order, groups, largest)
    assert few.schema == many.schema
    assert few.equals(many, null_equal=True)


def test_gains_find_their_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    groups = pl.Series(KEY, [b"%d" % n for n in range(50)], pl.Binary)
    rows = [(b"%d" % random.randrange(50), n, 1) for n in range(200)]
    gain = pl.DataFrame(rows, {KEY: pl.Binary, VALUE: pl.Int64, TIMES: pl.Int64}, orient="row")
    few = tables._placed(gain, groups)
    assert few[GROUP].to_list() == [int(key) for key, _, _ in rows]
    monkeypatch.setattr(tables, "_MANY", 0)
    assert tables._placed(gain, groups).equals(few)


def test_groups_of_a_join_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    groups = pl.Series(join.GROUP, [b"%d" % random.randrange(50) for _ in range(200)], pl.Binary)
    for few in (1_000, -1):
        monkeypatch.setattr(join, "_FEW", few)
        different, places = join._numbered(groups)
        assert sorted(different) == sorted(set(groups))
        assert [different[place] for place in places] == groups.to_list()
