"""LIKE and regular expressions: what they mean by oracles, what is refused, and linear time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.errors import SqlError, TypeMismatch, Unsupported
from viewkeep.expr import Expr, Lit, Ref
from viewkeep.ops.evaluate import evaluate_one, project
from viewkeep.ops.functions import call
from viewkeep.ops.functions.like import LikePattern, like_constant, like_parts
from viewkeep.ops.functions.pike import machine
from viewkeep.ops.functions.regex import regex
from viewkeep.types import INT, STRING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S, P = Ref("s", STRING), Ref("p", STRING)


def _text(value: str) -> Lit:
    return Lit(value, STRING)


def _oracle(text: str, pattern: str) -> bool:
    """LIKE by its definition."""

    @cache
    def match(i: int, j: int) -> bool:
        if j == len(pattern):
            return i == len(text)
        if pattern[j] == "%":
            return match(i, j + 1) or (i < len(text) and match(i + 1, j))
        return i < len(text) and pattern[j] in ("_", text[i]) and match(i + 1, j + 1)

    return match(0, 0)


@given(st.text("abé\n😀", max_size=12), st.text("ab%_é\n", max_size=8))
def test_like_is_what_its_definition_says(text: str, pattern: str) -> None:
    wanted = _oracle(text, pattern)
    parts = like_parts(pattern)
    assert parts is not None
    assert LikePattern(parts).matches(text) == wanted
    assert pl.select(like_constant(pl.lit(text), parts)).item() == wanted
    row = {"s": text, "p": pattern}
    assert evaluate_one(call("like", [S, P]), row) == wanted
    assert evaluate_one(call("like", [S, _text(pattern)]), row) == wanted


def test_a_wrong_escape_in_a_column_has_no_value() -> None:
    rows = pl.DataFrame({"s": ["a", "a", "%"], "p": ["\\a", "a", "\\%"]})
    assert project(rows, [("v", call("like", [S, P]))])["v"].to_list() == [None, True, True]


# -- regular expressions -----------------------------------------------------------------------

ATOMS = ["a", "b", ".", "[ab]", "[^a]", "\\s", "\\S", "\\w", "\\R", "(a)", "(a|b)", "(?:b|ab)",
         "(a|)", "\\b", "^", "$", "\\Z", "\\z", "\\n", "[\\s&&[^ ]]", "(\\s$)", "\\r"]  # fmt: skip
QUANTIFIERS = ["", "", "", "", "*", "+", "?", "{2}", "{1,2}", "*?", "+?", "??"]
TEXTS = ["", "a", "b", "ab", "aab", "ba\n", "ab \r\n", "a\nb", "a\r", "b\n\n", " a b ", "\r\n",
         "aaa\u2028", "\n", "abab\x85", "a b\n "]  # fmt: skip


def _patterns(count: int, seed: int) -> list[str]:
    """Random patterns that are taken by all functions."""
    dice, found = random.Random(seed), {}
    while len(found) < count:
        pattern = "".join(
            dice.choice(ATOMS) + dice.choice(QUANTIFIERS) for _ in range(dice.randint(1, 4))
        )
        if dice.random() < 0.3:
            pattern += "|" + dice.choice(ATOMS)
        try:
            found[pattern] = _calls(pattern)
        except SqlError:
            continue
    return list(found)


def _calls(pattern: str) -> list[tuple[Expr, str]]:
    written = "'" + pattern.replace("\\", "\\\\") + "'"
    groups = regex(pattern).groups
    found = [
        (call("rlike", [S, _text(pattern)]), f"s RLIKE {written}"),
        (call("regexp_count", [S, _text(pattern)]), f"regexp_count(s, {written})"),
        (
            call("regexp_replace", [S, _text(pattern), _text(f"<${groups}>")]),
            f"regexp_replace(s, {written}, '<${groups}>')",
        ),
        (
            call("regexp_replace", [S, _text(pattern), _text("")]),
            f"regexp_replace(s, {written}, '')",
        ),
    ]
    found += [
        (
            call("regexp_extract", [S, _text(pattern), Lit(group, INT)]),
            f"regexp_extract(s, {written}, {group})",
        )
        for group in range(groups + 1)
    ]
    return found


def test_random_patterns_are_as_in_spark(spark: SparkSession) -> None:
    table = spark.createDataFrame(list(enumerate(TEXTS)), "i INT, s STRING")
    frame = pl.DataFrame({"s": TEXTS})
    cases = [case for pattern in _patterns(80, 16) for case in _calls(pattern)]
    wrong = []
    for at in range(0, len(cases), 80):
        part = cases[at : at + 80]
        columns = [f"{sql} AS c{i}" for i, (_, sql) in enumerate(part)]
        reference = table.selectExpr("i", *columns).orderBy("i").collect()
        ours = project(frame, [(f"c{i}", expr) for i, (expr, _) in enumerate(part)])
        for i, (_, sql) in enumerate(part):
            for row, got in zip(reference, ours[f"c{i}"], strict=True):
                if got != row[f"c{i}"]:
                    wrong.append((sql, TEXTS[row["i"]], got, row[f"c{i}"]))
    assert wrong == []


REFUSED = {
    "a(?=n)": "lookahead",
    "(?!a)b": "lookahead",
    "(?<=a)b": "lookbehind",
    "(?<!b)an": "lookbehind",
    "(?>a)": "atomic group",
    "(.)\\1": "back references",
    "(?<x>a)\\k<x>": "back references",
    "n++": "possessive",
    "a{2}+": "possessive",
    "(?m)^a": "flags",
    "a(?i)b": "flags",
    "(": "not closed",
    "a)": "closes no group",
    "*a": "repeats nothing",
    "a**": "two quantifiers",
    "a{,2}": "no number of repetitions",
    "a{3,2}": "maximum below",
    "[^a[b]]": "negated class",
    "[b-a]": "no range",
    "\\G": r"\\G is not supported",
    "\\ud83d\\ude00": "no character",
    "\\p{Latin}": "class Latin",
    "(?:a{1000}){1000}": "too much memory",
    "(" * 200 + ")" * 200: "nested",
    "[" * 200: "nested",
    "\\": "ends too early",
    "[a": "ends too early",
}


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_only_backtracking_runs_is_refused(pattern: str) -> None:
    with pytest.raises(Unsupported, match=f"the regular expression .*{REFUSED[pattern]}") as caught:
        call("rlike", [S, _text(pattern)])
    assert caught.value.hint


def test_a_pattern_of_a_column_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="must be a constant"):
        call("rlike", [S, P])


def test_repeating_what_may_be_empty_is_refused_where_its_turns_are_seen() -> None:
    assert evaluate_one(call("rlike", [S, _text("^(a*)*$")]), {"s": "aaab"}) is False
    cases: dict[str, list[Expr]] = {
        "regexp_count": [],
        "regexp_replace": [_text("x")],
        "regexp_extract": [],
    }
    for name, rest in cases.items():
        with pytest.raises(Unsupported, match="repeats what may be empty"):
            call(name, [S, _text("(a*)*"), *rest])


MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "pattern", "new", "size"),
    [
        ("a" * 1000, "a", "b" * 1000, 1_000_000),
        ("a" * 1049, "a", "b" * 1000, None),
        ("a" * 1048 + "b" * 576, "a", "b" * 1000, MIB),
        ("a" * 1048 + "b" * 577, "a", "b" * 1000, None),
        ("é" * 1048 + "b" * 576, "é", "b" * 1000, MIB),
        ("é" * 1048 + "b" * 577, "é", "b" * 1000, None),
        ("a" * 2 * MIB, "a", "b", 2 * MIB),  # it does not grow
        ("a" * 2 * MIB, "aa", "b", MIB),
        ("a" * 2 * MIB + "b", "b", "aa", None),
        ("x" * MIB, "a", "b" * 1000, MIB),
        (None, "a", "b" * 1000, None),
    ],
)
def test_replaced_texts_are_bounded(
    text: str | None, pattern: str, new: str, size: int | None
) -> None:
    row = {"s": text, "p": pattern, "new": new}
    for name, arguments in (
        ("replace", [S, _text(pattern), _text(new)]),
        ("replace", [S, P, Ref("new", STRING)]),
        ("replace", [S, _text(pattern), Ref("new", STRING)]),
        ("regexp_replace", [S, _text(pattern), _text(new)]),
        ("regexp_replace", [S, _text(f"({pattern})|[^\\s\\S]$"), _text(new)]),
    ):
        made = evaluate_one(call(name, arguments), row)
        assert (None if made is None else len(str(made).encode())) == size, name


def test_groups_count_for_the_bound() -> None:
    expr = call("regexp_replace", [S, _text("(x+)(y)?"), _text("$1$1-$2")])
    many = call("regexp_replace", [S, _text("x+"), _text("$0" * 20)])
    for text, size in (("x" * 1000, 2_001), ("xy" * 1000, 4_000), ("x" * MIB, None)):
        made = evaluate_one(expr, {"s": text})
        assert (None if made is None else len(str(made))) == size
    assert evaluate_one(many, {"s": "x" * (MIB // 20)}) == "x" * (MIB // 20 * 20)
    assert evaluate_one(many, {"s": "x" * (MIB // 20 + 1)}) is None
    by_row = call("regexp_replace", [S, _text("x*$|-"), _text("$0" * 20)])
    assert evaluate_one(by_row, {"s": "x" * 1_000 + "\n"}) == "x" * 20_000 + "\n"
    assert evaluate_one(by_row, {"s": "-" * 1_000 + "x" * 60_000 + "\n"}) is None


RUNS_ON = ["a(.*b)?", ".*[^A-Z]|[A-Z]", "(?:a+b|c)d", "x(a*b)*", "a|(b+c)"]
DOES_NOT = [
    "[0-9]+",
    "a.*b",
    '"[^"]*"',
    r"[0-9]+(\.[0-9]+)?",
    "(ab|a).*c",
    "(ab*)*",
    ".*?[0-9]",
    "(a|b)*c",
]


@pytest.mark.parametrize("pattern", RUNS_ON)
def test_long_texts_are_not_searched_in_quadratic_time(pattern: str) -> None:
    assert regex(pattern).runs_on
    short, long = "a" * 16_384, "a" * 16_385
    for name, rest in (("regexp_count", []), ("regexp_replace", [_text("<$0>")])):
        expr = call(name, [S, _text(pattern), *rest])
        assert evaluate_one(expr, {"s": short}) is not None
        assert evaluate_one(expr, {"s": long}) is None
        with pytest.raises(Unsupported, match="would take quadratic time"):
            call(name, [S, _text(f"(?:{pattern})$"), *rest])
        with pytest.raises(Unsupported, match="would take quadratic time"):
            call(name, [S, _text(f"(?:{pattern})?"), *rest])
    assert evaluate_one(call("rlike", [S, _text(pattern)]), {"s": long}) is not None


@pytest.mark.parametrize("pattern", DOES_NOT)
def test_what_ends_with_its_match_is_searched_in_texts_of_any_length(pattern: str) -> None:
    assert not regex(pattern).runs_on
    text = "a1b" * 100_000
    assert evaluate_one(call("regexp_count", [S, _text(pattern)]), {"s": text}) is not None


# -- linear time -------------------------------------------------------------------------------


def _growth(run: Callable[[int], object], size: int) -> float:
    """How many times as long a text of twice the size takes, by the fastest of some runs."""

    def fastest(size: int) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            run(size)
            times.append(time.perf_counter() - start)
        return min(times)

    return min(fastest(2 * size) / fastest(size) for _ in range(3))


MANY = "a%" * 60 + "b"
EVIL: dict[str, Callable[[int], object]] = {
    "few signs": lambda n: _like("a" * n, "%a_%a_%a%b"),
    "many signs": lambda n: _like("a" * n, MANY),
    "a column": lambda n: evaluate_one(call("like", [S, P]), {"s": "a" * n, "p": MANY}),
    "a column with _": lambda n: evaluate_one(
        call("like", [S, P]), {"s": "a" * n, "p": "%" + "a_" * 60 + "b%" + "a_" * 60 + "b"}
    ),
    "nested quantifiers": lambda n: _rlike("a" * n + "b", "(a+)+$"),
    "equal options": lambda n: _rlike("a" * n, "(a|a)*b"),
    "before a line end": lambda n: _rlike("a" * n + "b\n", "(a+)+$"),
    "many empty ones": lambda n: (
        evaluate_one(call("regexp_count", [S, _text("(?:x|y)?")]), {"s": "a" * n}) != n + 1
    ),
}


def _like(text: str, pattern: str) -> object:
    return evaluate_one(call("like", [S, _text(pattern)]), {"s": text})


def _rlike(text: str, pattern: str) -> object:
    return evaluate_one(call("rlike", [S, _text(pattern)]), {"s": text})


@pytest.mark.parametrize("name", EVIL)
def test_time_is_linear_in_the_text(name: str) -> None:
    run = EVIL[name]
    assert not run(10_000)
    assert _growth(run, 10_000) < 3


def test_long_patterns_are_linear_or_have_no_value() -> None:
    """As bits of one number, places of a `_` took the square of the pattern: 20 s."""
    million = 1_000_000
    rows = pl.DataFrame(
        {
            "s": ["a", "a" * million, "a" * million, "a" * 5_000],
            "p": ["_" * million, "a_" * (million // 2), "a%" * (million // 2), "%a" + "_" * 4_095],
        }
    )
    made = project(rows, [("v", call("like", [S, P]))])["v"].to_list()
    assert made == [None, None, True, True]
    with pytest.raises(Unsupported, match="_ among more than 4,096 characters"):
        call("like", [S, _text("a_" * 2_049)])


def test_steps_for_each_character_are_bounded() -> None:
    with pytest.raises(Unsupported, match="too large for this function"):
        machine(regex("(?:ab){600}$"))
