"""Plans survive the trip through JSON unchanged."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest

from viewkeep.expr import Call, Lit, Ref
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Arrange,
    Filter,
    KeyPart,
    Named,
    Project,
    Source,
    View,
)
from viewkeep.plan.serial import decode, encode
from viewkeep.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, Column, Schema
from viewkeep.types import decimal as decimal_type

SOURCE = Source("t", 7, Schema((Column("id", BIGINT, False), Column("s", STRING)), ("id",)))


@pytest.mark.parametrize(
    "literal",
    [
        Lit(None, STRING),
        Lit(True, BOOLEAN),
        Lit(2**62, BIGINT),
        Lit(0.1, DOUBLE),
        Lit(float("inf"), DOUBLE),
        Lit(Decimal("-1.50"), decimal_type(10, 2)),
        Lit("é\x00", STRING),
        Lit(b"\x00\xff", BINARY),
        Lit(dt.date(1969, 1, 1), DATE),
        Lit(dt.datetime(2024, 2, 29, 1, 2, 3, 4), TIMESTAMP),
    ],
)
def test_literals(literal: Lit) -> None:
    assert decode(json.loads(json.dumps(encode(literal)))) == literal


def test_a_whole_view_keeps_its_id() -> None:
    key = Ref("id", BIGINT)
    shout = Named("upper(s)", Call("upper", (Ref("s", STRING),), STRING))
    chosen = Filter(SOURCE, Call("gt", (key, Lit(3, BIGINT)), BOOLEAN))
    projected = Project(chosen, (Named("id", key), shout))
    call = AggregateCall("count(*)", "count_star", None, BIGINT)
    groups = Aggregate(projected, (Named("upper(s)", Ref("upper(s)", STRING)),), (call,))
    node = Arrange(groups, (KeyPart("upper(s)", True),), ("count(*)",))
    view = View("v", "SELECT ...", node, (("n", "count(*)"),))
    back = decode(json.loads(json.dumps(encode(view))))
    assert back == view
    assert back.node.id == node.id


def test_only_plan_values_are_taken() -> None:
    with pytest.raises(TypeError, match="is not a plan value"):
        encode(object())
    with pytest.raises(KeyError):
        decode({"is": "Popen", "args": "true"})
