"""The window kernel: against DuckDB over random rows, and its own laws."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import polars as pl
import pytest

from viewkeep.expr import Expr, Lit, Ref
from viewkeep.ops.window import reach, top_k, window_columns
from viewkeep.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    DataType,
    decimal,
)


@dataclass(frozen=True)
class Frame:
    unit: str
    start: int | None
    stop: int | None


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple[Expr, ...] = ()
    type: DataType = BIGINT
    frame: Frame | None = None
    ignore_nulls: bool = False
    name: str = "made"


@dataclass(frozen=True)
class Part:
    name: str


TYPES: dict[str, DataType] = {
    "i": INT, "l": BIGINT, "x": DOUBLE, "m": decimal(10, 2), "w": decimal(38, 3), "s": STRING,
    "f": BOOLEAN, "d": DATE, "bin": BINARY,
}  # fmt: skip
FRAMES = [
    Frame("rows", None, None), Frame("rows", None, 0), Frame("rows", 0, None),
    Frame("rows", -2, 1), Frame("rows", -3, -2), Frame("rows", 1, 3), Frame("rows", None, 1),
    Frame("rows", -1, None), Frame("rows", 0, 0), Frame("rows", None, -1),
    Frame("range", None, 0), Frame("range", 0, None), Frame("range", 0, 0),
]  # fmt: skip


def value(dice: random.Random, type_: DataType) -> Any:
    if dice.random() < 0.25:
        return None
    number = dice.randint(-9, 9)
    if type_.is_decimal:
        return Decimal(number) * 10 ** (type_.precision // 2 - 3) + Decimal(number) / 100
    if type_ == BIGINT:
        return number * 2**58
    if type_ == DOUBLE:
        return number * 0.1 * 10.0 ** dice.randint(-3, 3)
    if type_ == STRING:
        return dice.choice(["a", "b", "ä", "", "zz"])
    if type_ == BINARY:
        return dice.choice([b"", b"\x00", b"\xff", b"a"])
    if type_ == BOOLEAN:
        return number > 0
    if type_ == DATE:
        return pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 1, 19), eager=True)[number + 9]
    return number


@cache
def rows(seed: int, size: int = 60) -> pl.DataFrame:
    """Rows sorted by partition `p` and order `o`, with ties, and then the row key `id`."""
    dice = random.Random(seed)
    made = [
        {"id": i, "p": dice.choice([None, 1, 2, 3, 3, 3, 4]), "o": dice.choice([None, *range(9)])}
        | {name: value(dice, type_) for name, type_ in TYPES.items()}
        for i in range(size)
    ]
    schema: dict[str, Any] = {"id": pl.Int64, "p": pl.Int32, "o": pl.Int32}
    schema |= {name: type_.polars for name, type_ in TYPES.items()}
    return pl.DataFrame(made, schema=schema).sort("p", "o", "id")


def computed(frame: pl.DataFrame, call: Call) -> list[Any]:
    (made,) = window_columns(frame, ["p"], [Part("o")], [call])
    assert made.dtype == call.type.polars
    return made.to_list()


@cache
def oracle() -> duckdb.DuckDBPyConnection:
    """One connection for all tests."""
    made = duckdb.connect()
    made.execute("SET threads = 1")
    return made


def recomputed(frame: pl.DataFrame, texts: list[str], over: str) -> list[list[Any]]:
    """The values of functions over the rows as DuckDB computes them, function by function."""
    oracle().register("given_rows", frame.to_arrow())
    columns = ", ".join(f"{text} OVER (PARTITION BY p {over})" for text in texts)
    query = f"SELECT {columns} FROM given_rows ORDER BY p NULLS FIRST, o NULLS FIRST, id"
    found = oracle().execute(query).fetchall()
    return [list(column) for column in zip(*found, strict=True)]


def clause(frame: Frame) -> str:
    order = "ORDER BY o NULLS FIRST" + (", id" if frame.unit == "rows" else "")
    return f"{order} {frame.unit} BETWEEN {bound(frame.start, 'PRECEDING')} AND " + bound(
        frame.stop, "FOLLOWING"
    )


def bound(distance: int | None, unbounded: str) -> str:
    if distance is None:
        return f"UNBOUNDED {unbounded}"
    if distance == 0:
        return "CURRENT ROW"
    return f"{abs(distance)} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"


def check(frame: pl.DataFrame, asked: list[tuple[Call, str]], over: str) -> None:
    """Each call gives what DuckDB gives for its text."""
    wanted = recomputed(frame, [text for _, text in asked], over)
    for (call, text), column in zip(asked, wanted, strict=True):
        found = computed(frame, call)
        assert len(found) == len(column)
        for one, other in zip(found, column, strict=True):
            if isinstance(one, float) and other is not None:
                assert one == pytest.approx(other, rel=1e-12, abs=1e-9), text
            else:
                assert one == other, text


@pytest.mark.parametrize("seed", range(3))
def test_ranks(seed: int) -> None:
    order = "ORDER BY o NULLS FIRST"
    peers = [("rank", INT), ("dense_rank", INT), ("percent_rank", DOUBLE), ("cume_dist", DOUBLE)]
    check(rows(seed), [(Call(name, (), type_), f"{name}()") for name, type_ in peers], order)
    asked = [(Call("row_number", (), INT), "row_number()")]
    asked += [(Call("ntile", (Lit(n, INT),), INT), f"ntile({n})") for n in (1, 3, 7, 50)]
    check(rows(seed), asked, f"{order}, id")


@pytest.mark.parametrize("function", ["lag", "lead"])
@pytest.mark.parametrize("ignored", [False, True])
def test_shifts(function: str, ignored: bool) -> None:
    nulls = " IGNORE NULLS" if ignored else ""
    asked = []
    for name, type_ in TYPES.items():
        for distance in (1, 2, 5):
            call = Call(function, (Ref(name, type_), Lit(distance, INT)), type_, None, ignored)
            asked.append((call, f"{function}({name}, {distance}{nulls})"))
    check(rows(1), asked, "ORDER BY o NULLS FIRST, id")


def test_shifts_with_defaults_of_the_row_itself() -> None:
    asked = [
        (Call("lag", (Ref("i", INT), Lit(1, INT), Ref("p", INT)), INT), "lag(i, 1, p)"),
        (Call("lead", (Ref("i", INT), Lit(3, INT), Lit(7, INT)), INT), "lead(i, 3, 7)"),
        (Call("lag", (Ref("i", INT), Lit(-2, INT)), INT), "lead(i, 2)"),
        (Call("lag", (Ref("i", INT), Lit(0, INT)), INT), "lag(i, 0)"),
    ]
    check(rows(2), asked, "ORDER BY o NULLS FIRST, id")


@pytest.mark.parametrize("frame", [f for f in FRAMES if f.unit == "rows"], ids=str)
@pytest.mark.parametrize("ignored", [False, True])
def test_picks(frame: Frame, ignored: bool) -> None:
    nulls = " IGNORE NULLS" if ignored else ""
    asked = []
    for name, type_ in TYPES.items():
        for function in ("first_value", "last_value"):
            call = Call(function, (Ref(name, type_),), type_, frame, ignored)
            asked.append((call, f"{function}({name}{nulls})"))
        call = Call("nth_value", (Ref(name, type_), Lit(2, INT)), type_, frame, ignored)
        asked.append((call, f"nth_value({name}, 2{nulls})"))
    check(rows(3), asked, clause(frame))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_totals(seed: int, frame: Frame) -> None:
    given = rows(seed)
    asked = [(Call("count_star", (), BIGINT, frame), "count(*)")]
    for name, type_ in TYPES.items():
        argument = (Ref(name, type_),)
        asked += [(Call(f, argument, type_, frame), f"{f}({name})") for f in ("min", "max")]
        asked.append((Call("count", argument, BIGINT, frame), f"count({name})"))
    for name, result in (("i", BIGINT), ("m", decimal(20, 2)), ("w", decimal(38, 3))):
        asked.append((Call("sum", (Ref(name, TYPES[name]),), result, frame), f"sum({name})"))
    asked.append((Call("sum", (Ref("x", DOUBLE),), DOUBLE, frame), "fsum(x)"))
    for name in ("i", "l", "x"):
        call = Call("avg", (Ref(name, TYPES[name]),), DOUBLE, frame)
        asked.append((call, f"favg({name})"))
    check(given, asked, clause(frame))
    longs = computed(given, Call("sum", (Ref("l", BIGINT),), BIGINT, frame))
    (sums,) = recomputed(given, ["sum(l)"], clause(frame))
    assert longs == [wrapped(total) for total in sums]


def test_average_of_decimals_rounds_half_up() -> None:
    given, frame = rows(1), FRAMES[3]
    found = computed(given, Call("avg", (Ref("m", TYPES["m"]),), decimal(14, 6), frame))
    sums, counts = recomputed(given, ["sum(m)", "count(m)"], clause(frame))
    wanted = [
        (total / count).quantize(Decimal("1e-6"), "ROUND_HALF_UP") if count else None
        for total, count in zip(sums, counts, strict=True)
    ]
    assert found == wanted


def wrapped(total: int | None) -> int | None:
    return None if total is None else (total + 2**63) % 2**64 - 2**63


def one_partition(values: list[Any], type_: DataType) -> pl.DataFrame:
    size = len(values)
    return pl.DataFrame(
        {"p": [1] * size, "o": list(range(size)), "v": pl.Series(values, dtype=type_.polars)}
    )


def test_sums_of_doubles_are_rounded_once() -> None:
    """A sum does not remember what has left its frame, nor in which order it was added up."""
    given = one_partition([1e16, 1.0, -1e16, 1.0, 0.1, 0.2, 5e-324, 1e308], DOUBLE)
    values = given["v"].to_list()
    running = computed(given, Call("sum", (Ref("v", DOUBLE),), DOUBLE, Frame("rows", None, 0)))
    assert running == [math.fsum(values[: i + 1]) for i in range(len(values))]
    sliding = computed(given, Call("sum", (Ref("v", DOUBLE),), DOUBLE, Frame("rows", -1, 0)))
    assert sliding == [math.fsum(values[max(i - 1, 0) : i + 1]) for i in range(len(values))]


def test_sums_of_what_is_no_number() -> None:
    inf, nan = math.inf, math.nan
    given = one_partition([1.0, inf, 2.0, -inf, None, nan, 3.0, 1.7e308, 1.7e308], DOUBLE)
    found = computed(given, Call("sum", (Ref("v", DOUBLE),), DOUBLE, Frame("rows", -1, 0)))
    assert str(found) == str([1.0, inf, inf, -inf, -inf, nan, nan, 1.7e308, inf])
    alone = computed(given, Call("sum", (Ref("v", DOUBLE),), DOUBLE, Frame("rows", 0, 0)))
    assert alone[4] is None


def test_decimals_out_of_range_are_null() -> None:
    most = Decimal("9" * 35 + ".999")
    given = one_partition([most, most, most.copy_negate(), None], decimal(38, 3))
    call = Call("sum", (Ref("v", decimal(38, 3)),), decimal(38, 3), Frame("rows", None, 0))
    assert computed(given, call) == [most, None, most, most]


def test_nan_is_largest_and_equals_itself() -> None:
    given = one_partition([1.0, math.nan, -1.0, math.inf], DOUBLE)
    frame = Frame("rows", None, 0)
    assert str(computed(given, Call("max", (Ref("v", DOUBLE),), DOUBLE, frame))) == (
        "[1.0, nan, nan, nan]"
    )
    assert computed(given, Call("min", (Ref("v", DOUBLE),), DOUBLE, frame)) == [1.0, 1, -1, -1]
    (ranks,) = window_columns(
        pl.DataFrame({"o": [1.0, math.nan, math.nan]}), [], [Part("o")], [Call("rank", (), INT)]
    )
    assert ranks.to_list() == [1, 2, 2]


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_no_rows(frame: Frame) -> None:
    empty = rows(0).clear()
    for function in ("sum", "avg", "min", "max", "first_value", "last_value"):
        for name, type_ in (("i", BIGINT), ("x", DOUBLE), ("m", decimal(20, 2))):
            call = Call(function, (Ref(name, TYPES[name]),), type_, frame)
            assert computed(empty, call) == []
    for function in ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist"):
        assert computed(empty, Call(function, (), INT)) == []
    assert computed(empty, Call("lag", (Ref("i", INT), Lit(1, INT)), INT, None, True)) == []


def test_top_k() -> None:
    given = rows(4)
    for limit, offset in ((1, 0), (2, 1), (None, 2), (0, 0), (100, 0)):
        place = pl.int_range(pl.len()).over("p")
        wanted = given.filter(place >= offset, place < offset + (1000 if limit is None else limit))
        assert top_k(given, ["p"], limit, offset).equals(wanted)
    assert top_k(given, [], 3).equals(given.head(3))
    assert top_k(given.clear(), ["p"], 3).height == 0


CALLS = [
    Call("row_number", (), INT),
    Call("rank", (), INT),
    Call("dense_rank", (), INT),
    Call("percent_rank", (), DOUBLE),
    Call("cume_dist", (), DOUBLE),
    Call("ntile", (Lit(2, INT),), INT),
    Call("lag", (Ref("i", INT), Lit(2, INT)), INT),
    Call("lead", (Ref("i", INT), Lit(1, INT)), INT),
    Call("lead", (Ref("i", INT), Lit(-1, INT)), INT),
    Call("lag", (Ref("i", INT), Lit(1, INT)), INT, None, True),
    Call("lead", (Ref("i", INT), Lit(2, INT)), INT, None, True),
    *(Call("sum", (Ref("i", INT),), BIGINT, frame) for frame in FRAMES),
    *(Call("first_value", (Ref("i", INT),), INT, frame) for frame in FRAMES),
    *(Call("last_value", (Ref("i", INT),), INT, frame, True) for frame in FRAMES),
]


def test_reach_of_known_functions() -> None:
    assert reach([CALLS[0]]) == (0, None)
    assert reach([CALLS[6]]) == (0, 2)
    assert reach([CALLS[7]]) == (1, 0)
    assert reach([Call("sum", (), BIGINT, Frame("rows", -2, 1))]) == (1, 2)
    assert reach([Call("sum", (), BIGINT, Frame("range", None, 0))]) == (None, None)
    assert reach([Call("sum", (), BIGINT, Frame("range", None, 0))], whole_peers=True) == (0, None)
    assert reach([CALLS[6], CALLS[7]]) == (1, 2)
    assert reach([]) == (0, 0)


@pytest.mark.parametrize("whole_peers", [False, True])
@pytest.mark.parametrize("place", range(len(CALLS)))
def test_rows_out_of_reach_keep_their_values(place: int, whole_peers: bool) -> None:
    """Let a row go (or come, seen backwards): values further away are the same."""
    call, dice = CALLS[place], random.Random(place)
    before, after = reach([call], whole_peers=whole_peers)
    for seed in range(12):
        given = rows(seed, 14).with_columns(pl.lit(1, pl.Int32).alias("p")).sort("o", "id")
        gone = dice.randrange(given.height)
        rest = given.filter(pl.int_range(pl.len()) != gone)
        first = last = gone
        if whole_peers:
            peers = given["o"].eq_missing(given["o"][gone]).arg_true()
            first, last = peers[0], peers[-1]
        old, new = computed(given, call), computed(rest, call)
        for i in range(given.height):
            near_before = before is None or first - i <= before
            near_after = after is None or i - last <= after
            if i < first and not near_before:
                assert old[i] == new[i]
            if i > last and not near_after:
                assert old[i] == new[i - 1]
