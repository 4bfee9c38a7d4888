"""The fault-injecting store passes the shared suite, and its faults come where planned."""

import inspect
from operator import attrgetter
from unittest.mock import Mock

import pytest

from viewkeep.stores import create_store
from viewkeep.stores.contract import Log, Meta, State, StateWrite, Store, Tables, Views
from viewkeep.stores.faulty import METHODS, FaultPlan, FaultyStore, InjectedCrash

from .conformance import (  # noqa: F401
    TABLE,
    BaseSuite,
    LogSuite,
    MetaSuite,
    ScanSuite,
    StateSuite,
    key,
    names,
    put,
    store,
)


@pytest.fixture
def store_factory(tmp_path):
    plan = FaultPlan({("state.apply", k): "twice" for k in range(1, 100)})
    return lambda: FaultyStore(create_store(str(tmp_path / "db"), durability="relaxed"), plan)


class TestBase(BaseSuite):
    pass


class TestScan(ScanSuite):
    pass


class TestLog(LogSuite):
    pass


class TestState(StateSuite):
    pass


class TestMeta(MetaSuite):
    pass


def test_crashes_before_and_after(tmp_path):
    inner = create_store(str(tmp_path / "db"), durability="relaxed")
    plan = FaultPlan(
        {("tables.write", 2): "before", ("tables.write", 3): "after", ("meta.cas", 1): "before"}
    )
    faulty = FaultyStore(inner, plan)
    faulty.tables.write([put([1])])
    for number in (2, 3):
        with pytest.raises(InjectedCrash):
            faulty.tables.write([put([number])])
    with pytest.raises(InjectedCrash):
        faulty.meta.cas("a", None, b"1")
    assert names(inner, [1, 2, 3]) == ["x", None, "x"]
    assert inner.meta.get("a") is None
    assert plan.happened == [
        ("tables.write", 2, "before"),
        ("tables.write", 3, "after"),
        ("meta.cas", 1, "before"),
    ]
    inner.close()


def test_seeded_plans_are_replayable():
    rates = {"state.apply": 0.1, "meta.cas": 0.2}
    plan = FaultPlan.seeded(7, rates, calls=100, twice=0.3)
    assert plan.faults == FaultPlan.seeded(7, rates, calls=100, twice=0.3).faults
    assert plan.faults != FaultPlan.seeded(8, rates, calls=100, twice=0.3).faults
    assert set(plan.faults.values()) == {"before", "after", "twice"}


def test_plans_are_checked():
    with pytest.raises(ValueError, match="no method"):
        FaultPlan({("wrte", 1): "before"})
    with pytest.raises(ValueError, match="twice"):
        FaultPlan({("tables.write", 1): "twice"})


def test_state_can_be_delivered_twice(tmp_path):
    inner = create_store(str(tmp_path / "db"), durability="relaxed")
    plan = FaultPlan({("state.apply", 1): "twice"})
    FaultyStore(inner, plan).state.apply(0, 1, 0, [StateWrite(TABLE, [key(1)], [b"x"])])
    assert inner.state.get(0, TABLE, [key(1)], 1) == [b"x"]
    assert plan.happened == [("state.apply", 1, "twice")]
    inner.close()


PARTS = {"log": Log, "tables": Tables, "state": State, "views": Views, "meta": Meta}
NOTHING = ("adopt", "check_counts", "learn", "apply", "revert", "close")  # is what they return


def methods(kind: type) -> list[str]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return [name for name, _ in found if not name.startswith("_")]


CALLS = [("", Store, name) for name in methods(Store)] + [
    (part, kind, name) for part, kind in PARTS.items() for name in methods(kind)
]


@pytest.mark.parametrize(("part", "kind", "name"), CALLS, ids=lambda value: str(value))
def test_every_method_of_the_contract_is_the_inner_stores(part, kind, name):
    """A default of the contract that is not forwarded would hide the inner store's own method."""
    inner, plan = Mock(spec=Store, url="u", capabilities=None), FaultPlan()
    for each, its_kind in PARTS.items():
        setattr(inner, each, Mock(spec=its_kind, parts=1, shards=1))
    faulty = FaultyStore(inner, plan)
    method = f"{part}.{name}" if part else name
    parameters = list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
    positional = [object() for p in parameters if p.kind is not p.KEYWORD_ONLY]
    named = {p.name: object() for p in parameters if p.kind is p.KEYWORD_ONLY}
    result = attrgetter(method)(faulty)(*positional, **named)
    called = attrgetter(method)(inner)
    called.assert_called_once_with(*positional, **named)
    assert result is (called.return_value if name not in NOTHING else None)
    assert plan.calls == {method: 1}
    assert method in METHODS
