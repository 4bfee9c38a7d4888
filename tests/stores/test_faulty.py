"""The fault-injecting store passes the shared suite, and its faults come where planned."""

import inspect
from unittest.mock import Mock

import pytest

from viewkeep.stores import create_store
from viewkeep.stores.contract import StateWrite, Store
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
    plan = FaultPlan({("state_apply", k): "twice" for k in range(1, 100)})
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
    plan = FaultPlan({("write", 2): "before", ("write", 3): "after", ("meta_cas", 1): "before"})
    faulty = FaultyStore(inner, plan)
    faulty.write([put([1])])
    for number in (2, 3):
        with pytest.raises(InjectedCrash):
            faulty.write([put([number])])
    with pytest.raises(InjectedCrash):
        faulty.meta_cas("a", None, b"1")
    assert names(inner, [1, 2, 3]) == ["x", None, "x"]
    assert inner.meta_get("a") is None
    assert plan.happened == [
        ("write", 2, "before"),
        ("write", 3, "after"),
        ("meta_cas", 1, "before"),
    ]
    inner.close()


def test_seeded_plans_are_replayable():
    rates = {"state_apply": 0.1, "meta_cas": 0.2}
    plan = FaultPlan.seeded(7, rates, calls=100, twice=0.3)
    assert plan.faults == FaultPlan.seeded(7, rates, calls=100, twice=0.3).faults
    assert plan.faults != FaultPlan.seeded(8, rates, calls=100, twice=0.3).faults
    assert set(plan.faults.values()) == {"before", "after", "twice"}


def test_plans_are_checked():
    with pytest.raises(ValueError, match="no method"):
        FaultPlan({("wrte", 1): "before"})
    with pytest.raises(ValueError, match="twice"):
        FaultPlan({("write", 1): "twice"})


def test_state_can_be_delivered_twice(tmp_path):
    inner = create_store(str(tmp_path / "db"), durability="relaxed")
    plan = FaultPlan({("state_apply", 1): "twice"})
    FaultyStore(inner, plan).state_apply(0, 1, 0, [StateWrite(TABLE, [key(1)], [b"x"])])
    assert inner.state_get(0, TABLE, [key(1)], 1) == [b"x"]
    assert plan.happened == [("state_apply", 1, "twice")]
    inner.close()


NOTHING = ("check_counts", "state_apply", "state_revert", "close")  # is what they return


def public_methods() -> list[str]:
    return [
        name
        for name, _ in inspect.getmembers(Store, inspect.isfunction)
        if not name.startswith("_")
    ]


@pytest.mark.parametrize("name", public_methods())
def test_every_method_of_the_contract_is_the_inner_stores(name):
    """A default of the contract that is not forwarded would hide the inner store's own method."""
    inner, faulty_plan = Mock(spec=Store, url="u", nodes=1, shards=1), FaultPlan()
    inner.capabilities = None
    faulty = FaultyStore(inner, faulty_plan)
    parameters = list(inspect.signature(getattr(Store, name)).parameters.values())[1:]
    positional = [object() for p in parameters if p.kind is not p.KEYWORD_ONLY]
    named = {p.name: object() for p in parameters if p.kind is p.KEYWORD_ONLY}
    result = getattr(faulty, name)(*positional, **named)
    called = getattr(inner, name)
    called.assert_called_once_with(*positional, **named)
    assert result is (called.return_value if name not in NOTHING else None)
    assert faulty_plan.calls == {name: 1}
    assert name in METHODS
