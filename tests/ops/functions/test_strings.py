"""Functions of text, patterns and hashes give what Spark SQL gives, over awkward values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.errors import SqlError
from viewkeep.expr import Expr, Lit, Ref
from viewkeep.ops.evaluate import evaluate_one, project
from viewkeep.ops.functions import call
from viewkeep.ops.functions.distance import levenshtein
from viewkeep.types import BIGINT, BINARY, INT, STRING, DataType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S, T, N, B, G = (
    Ref("s", STRING),
    Ref("t", STRING),
    Ref("n", INT),
    Ref("b", BINARY),
    Ref("g", BIGINT),
)
ROWS: list[tuple[str | None, str | None, int | None]] = [
    (None, "a", 1),
    ("a", None, 2),
    ("a", "a", None),
    ("", "", 0),
    ("", "x", 1),
    ("x", "", -1),
    (" ", " ", 2),
    ("  pad  ", "pad", -3),
    ("\tt\nn\r\n ", "\n", 3),
    ("Straße ǆx İi ΑΣ ΣΑΣ", "ß", 4),
    ("héllo wörld o'neil-x", "ö", -4),
    ("a😀b😀c", "😀", 2),
    ("e\u0301e\u0301 👨‍👩‍👧", "\u0301", 5),
    ("a.b.c", ".", 2),
    ("a.b.c", ".", -2),
    ("..", ".", 1),
    ("aaaa", "aa", 2),
    ("aaaa", "aa", -2),
    ("banana", "ana", 3),
    ("100%", "%", 1),
    ("a_b%c", "a_b", 100),
    ("a\\b", "\\", 1),
    ("$1 (x) [y] {z} ^a|b*+?", "(x)", 6),
    ("line1\nline2\r\nline3\n", "line", -10),
    ("key=value;k2=v2", "=", 2147483647 // 1000000),
    ("12345678901234567890" * 10, "90", 77),
    ("K\u212aſs", "k", 2),
    ("tab\tsep\u2028x\u0085y", "\t", 1),
    ("AbC123 _x", "abc%", 2),
    ("abcABC", "%B_", -1),
]


def _text(value: str) -> Lit:
    return Lit(value, STRING)


def _number(value: int | None, type: DataType = INT) -> Lit:
    return Lit(value, type)


NULL = Lit(None, STRING)

STRINGS: list[tuple[Expr, str]] = [
    (call("concat", [S, T]), "concat(s, t)"),
    (call("concat", [S, N, _text("|")]), "concat(s, n, '|')"),
    (call("concat", [B, B]), "concat(b, b)"),
    (call("concat", []), "concat()"),
    (call("||", [S, NULL]), "s || NULL"),
    (call("concat_ws", [_text(", "), S, T, N]), "concat_ws(', ', s, t, n)"),
    (call("concat_ws", [T, S, S]), "concat_ws(t, s, s)"),
    (call("concat_ws", [T, _text("a"), _text("b")]), "concat_ws(t, 'a', 'b')"),
    (call("concat_ws", [T]), "concat_ws(t)"),
    (call("concat_ws", [NULL, S]), "concat_ws(NULL, s)"),
    (call("upper", [S]), "upper(s)"),
    (call("lcase", [S]), "lower(s)"),
    (call("initcap", [S]), "initcap(s)"),
    (call("length", [S]), "length(s)"),
    (call("len", [B]), "length(b)"),
    (call("char_length", [G]), "char_length(g)"),
    (call("octet_length", [S]), "octet_length(s)"),
    (call("bit_length", [B]), "bit_length(b)"),
    (call("substring", [S, N]), "substring(s, n)"),
    (call("substring", [S, N, _number(2)]), "substring(s, n, 2)"),
    (call("substring", [S, N, N]), "substring(s, n, n)"),
    (call("substring", [S, _number(0), N]), "substring(s, 0, n)"),
    (call("substr", [S, _number(2), _number(3)]), "substr(s, 2, 3)"),
    (call("substr", [S, _number(-3), _number(2)]), "substr(s, -3, 2)"),
    (call("substr", [S, _number(-30), _number(28)]), "substr(s, -30, 28)"),
    (call("substr", [S, _number(None)]), "substr(s, CAST(NULL AS INT))"),
    (call("substr", [S, _number(2), _number(2147483647)]), "substr(s, 2, 2147483647)"),
    (call("substring", [B, N, _number(3)]), "substring(b, n, 3)"),
    (call("left", [S, N]), "left(s, n)"),
    (call("left", [B, N]), "left(b, n)"),
    (call("right", [S, N]), "right(s, n)"),
    (call("trim", [S]), "trim(s)"),
    (call("ltrim", [S]), "ltrim(s)"),
    (call("rtrim", [S]), "rtrim(s)"),
    (call("trim", [S, T]), "trim(BOTH t FROM s)"),
    (call("ltrim", [S, T]), "trim(LEADING t FROM s)"),
    (call("rtrim", [S, _text("ca 😀")]), "trim(TRAILING 'ca 😀' FROM s)"),
    (call("trim", [S, _text("")]), "trim(BOTH '' FROM s)"),
    (call("lpad", [S, N]), "lpad(s, n)"),
    (call("lpad", [S, _number(9), T]), "lpad(s, 9, t)"),
    (call("lpad", [S, N, _text("é😀")]), "lpad(s, n, 'é😀')"),
    (call("rpad", [S, _number(12), _text("*-")]), "rpad(s, 12, '*-')"),
    (call("rpad", [S, N, T]), "rpad(s, n, t)"),
    (call("rpad", [S, _number(5), _text("")]), "rpad(s, 5, '')"),
    (call("rpad", [_text("ab"), N]), "rpad('ab', n)"),
    (call("replace", [S, T, _text("$0")]), "replace(s, t, '$0')"),
    (call("replace", [S, _text("a"), T]), "replace(s, 'a', t)"),
    (call("replace", [S, _text("."), _text("$1")]), "replace(s, '.', '$1')"),
    (call("replace", [S, _text(""), _text("x")]), "replace(s, '', 'x')"),
    (call("replace", [S, _text("a")]), "replace(s, 'a')"),
    (call("replace", [S, _text("a"), NULL]), "replace(s, 'a', NULL)"),
    (call("reverse", [S]), "reverse(s)"),
    (call("repeat", [S, N]), "repeat(s, n)"),
    (call("repeat", [_text("ab"), N]), "repeat('ab', n)"),
    (call("space", [N]), "space(n)"),
    (call("instr", [S, T]), "instr(s, t)"),
    (call("instr", [S, _text("b")]), "instr(s, 'b')"),
    (call("locate", [T, S]), "locate(t, s)"),
    (call("locate", [T, S, N]), "locate(t, s, n)"),
    (call("locate", [_text("a"), S, _number(2)]), "locate('a', s, 2)"),
    (call("position", [_text("a"), S, _number(0)]), "position('a', s, 0)"),
    (call("locate", [_text(""), S, N]), "locate('', s, n)"),
    (call("locate", [T, S, _number(None)]), "locate(t, s, CAST(NULL AS INT))"),
    (call("startswith", [S, T]), "startswith(s, t)"),
    (call("endswith", [S, T]), "endswith(s, t)"),
    (call("contains", [S, T]), "contains(s, t)"),
    (call("contains", [S, NULL]), "contains(s, NULL)"),
    (call("contains", [_text("a.b"), T]), "contains('a.b', t)"),
    (call("split_part", [S, T, _number(2)]), "split_part(s, t, 2)"),
    (call("split_part", [S, T, _number(-1)]), "split_part(s, t, -1)"),
    (call("split_part", [S, _text("."), _number(1)]), "split_part(s, '.', 1)"),
    (call("split_part", [S, _text(""), _number(1)]), "split_part(s, '', 1)"),
    (call("split_part", [_text("a.b%c"), T, _number(1)]), "split_part('a.b%c', t, 1)"),
    (call("substring_index", [S, T, N]), "substring_index(s, t, n)"),
    (call("substring_index", [S, _text("."), _number(2)]), "substring_index(s, '.', 2)"),
    (call("substring_index", [S, _text("."), _number(-2)]), "substring_index(s, '.', -2)"),
    (call("substring_index", [S, _text("aa"), _number(2)]), "substring_index(s, 'aa', 2)"),
    (call("substring_index", [S, _text("a"), _number(0)]), "substring_index(s, 'a', 0)"),
    (call("ascii", [S]), "ascii(s)"),
    (call("chr", [G]), "chr(g)"),
    (call("translate", [S, _text("aab.😀"), _text("xyz")]), "translate(s, 'aab.😀', 'xyz')"),
    (call("translate", [S, T, _text("12")]), "translate(s, t, '12')"),
    (call("translate", [S, _text(""), _text("x")]), "translate(s, '', 'x')"),
    (call("hex", [S]), "hex(s)"),
    (call("hex", [B]), "hex(b)"),
    (call("hex", [G]), "hex(g)"),
    (call("hex", [N]), "hex(n)"),
    (call("unhex", [S]), "unhex(s)"),
    (call("unhex", [G]), "unhex(g)"),
    (call("levenshtein", [S, T]), "levenshtein(s, t)"),
]

LIKES = [
    "", "%", "_", "__", "a%", "%c", "%b%", "a", "a_b%", "%\n%", "_\\%%", "%\\%", "a\\_b\\%c",
    "a\\\\b", "😀%", "a_b_c", "%😀_", "_%_", "%.%", "%(x)%", "K%", "%\\\\%", "ABC%", "%ς%", "%İ%",
]  # fmt: skip
REGEXES = [
    "a", "^a", "c$", "^$", "\\n$", "a|b", "(a)(b)?", "a.b", "\\d+", "\\w+", "\\s", "\\W",
    "\\bx",
    "[a-c]+", "[^a-z ]", "(?i)abc", "(?i)[^a-k]", "(?s)1.l", "\\Aa", "[^b]an", "n?$",
    "\\Qa.b\\E", "\\$1", "[\\w.]+=", "[\\s\\d]", "[a-z&&[^b]]+", "\\p{L}+", "\\p{Punct}", "é",
    "line\\d$", "(?<key>\\w+)=(\\w+)", "\\.", "(?:an){2}", "[\\D]", "\\u0061", "\\x61", ".$",
    "\\s+$", "\\s+?$", "(\\w+)\\Z", "a|\\s$", "(n$)|x", "\\r$", "[\\s&&[^ ]]+$",
    "b?anan?a?", "(a|an)(an|n)*", "a{2,3}?", "x{0}a", "(?:a|b|)c", "(?i)\\QABC\\E", "(?s).+",
    "x\\z",
]  # fmt: skip

# Of a text in the basic plane: Java also finds empty matches within a surrogate pair.
EMPTY = ["", "x*", "a*"]
BAAAC = _text("baaac")


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


PATTERNS: list[tuple[Expr, str]] = [
    *((call("like", [S, _text(p)]), f"s LIKE {_quoted(p)}") for p in LIKES),
    *((call("ilike", [S, _text(p)]), f"s ILIKE {_quoted(p)}") for p in LIKES),
    (call("like", [S, _text("%/%"), _text("/")]), "s LIKE '%/%' ESCAPE '/'"),
    (call("like", [S, NULL]), "s LIKE NULL"),
    (call("like", [S, call("replace", [T, _text("\\")])]), "s LIKE replace(t, '\\\\')"),
    (call("ilike", [S, call("replace", [T, _text("\\")])]), "s ILIKE replace(t, '\\\\')"),
    (call("rlike", [S, NULL]), "s RLIKE NULL"),
    *((call("regexp_like", [S, _text(p)]), f"s RLIKE {_quoted(p)}") for p in REGEXES),
    *(
        (call("regexp_extract", [S, _text(p), _number(0)]), f"regexp_extract(s, {_quoted(p)}, 0)")
        for p in REGEXES
    ),
    *(
        (
            call("regexp_replace", [S, _text(p), _text("<$0\\$>")]),
            f"regexp_replace(s, {_quoted(p)}, '<$0\\\\$>')",
        )
        for p in REGEXES
    ),
    *((call("regexp_count", [S, _text(p)]), f"regexp_count(s, {_quoted(p)})") for p in REGEXES),
    *((call("rlike", [S, _text(p)]), f"s RLIKE {_quoted(p)}") for p in EMPTY),
    *(
        (
            call("regexp_replace", [BAAAC, _text(p), _text("-")]),
            f"regexp_replace('baaac', '{p}', '-')",
        )
        for p in EMPTY
    ),
    *((call("regexp_count", [BAAAC, _text(p)]), f"regexp_count('baaac', '{p}')") for p in EMPTY),
    (call("regexp_extract", [S, _text("(a)(n)?")]), "regexp_extract(s, '(a)(n)?')"),
    (call("regexp_extract", [S, _text("(a)(n)?"), _number(2)]), "regexp_extract(s, '(a)(n)?', 2)"),
]

HASHES: list[tuple[Expr, str]] = [
    (call("md5", [S]), "md5(s)"),
    (call("md5", [B]), "md5(b)"),
    (call("sha", [S]), "sha(s)"),
    *((call("sha2", [S, _number(n)]), f"sha2(s, {n})") for n in (0, 224, 256, 384, 512, 100)),
    (call("sha2", [S, N]), "sha2(s, n)"),
    (call("crc32", [S]), "crc32(s)"),
    (call("base64", [S]), "base64(s)"),
]


def _frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "s": [s for s, _, _ in ROWS],
            "t": [t for _, t, _ in ROWS],
            "n": [n for _, _, n in ROWS],
            "b": [None if s is None else s.encode() + b"\xff" for s, _, _ in ROWS],
            "g": [None if n is None else n * 1_000_003 for _, _, n in ROWS],
        },
        schema={"s": pl.String, "t": pl.String, "n": pl.Int32, "b": pl.Binary, "g": pl.Int64},
    )


def _differences(spark: SparkSession, cases: list[tuple[Expr, str]]) -> list[str]:
    frame = _frame()
    table = spark.createDataFrame(
        [(i, *row) for i, row in enumerate(frame.iter_rows())],
        "i INT, s STRING, t STRING, n INT, b BINARY, g BIGINT",
    )
    columns = [f"{sql} AS c{i}" for i, (_, sql) in enumerate(cases)]
    reference = table.selectExpr("i", *columns).orderBy("i").collect()
    ours = project(frame, [(f"c{i}", expr) for i, (expr, _) in enumerate(cases)])
    wrong = []
    for i, (_, sql) in enumerate(cases):
        for row, got in zip(reference, ours[f"c{i}"].to_list(), strict=True):
            wanted = bytes(row[f"c{i}"]) if isinstance(row[f"c{i}"], bytearray) else row[f"c{i}"]
            if got != wanted or type(got) is not type(wanted):
                wrong.append(f"{sql} of {ROWS[row['i']]!a}: {got!a}, Spark {wanted!a}")
    return wrong


def test_strings_are_as_in_spark(spark: SparkSession) -> None:
    assert _differences(spark, STRINGS) == []


def test_patterns_are_as_in_spark(spark: SparkSession) -> None:
    # In parts: Spark compiles one Java method for each query, which must not grow too large.
    for at in range(0, len(PATTERNS), 80):
        wrong = _differences(spark, PATTERNS[at : at + 80])
        assert wrong == []


@pytest.mark.xfail(reason="Java finds an empty match within a surrogate pair, and breaks the pair")
def test_empty_matches_are_as_in_spark_in_all_planes(spark: SparkSession) -> None:
    cases = [(call("regexp_count", [S, _text("x*")]), "regexp_count(s, 'x*')")]
    assert _differences(spark, cases) == []


def test_hashes_are_as_in_spark(spark: SparkSession) -> None:
    assert _differences(spark, HASHES) == []


@pytest.mark.parametrize("cases", [STRINGS, PATTERNS, HASHES])
def test_there_is_one_value_per_row_of_any_frame(cases: list[tuple[Expr, str]]) -> None:
    for rows in (0, 1):
        made = project(_frame().head(rows), [(sql, expr) for expr, sql in cases])
        assert made.height == rows
        assert made.dtypes == [expr.type.polars for expr, _ in cases]


def test_no_text_is_repeated_without_bound() -> None:
    many = _number(2**31 - 1)
    for name, args in (
        ("repeat", [_text("a"), many]),
        ("space", [many]),
        ("lpad", [_text("a"), many]),
        ("rpad", [_text("a"), many, _text("éb")]),
    ):
        assert evaluate_one(call(name, args), {}) is None
    assert evaluate_one(call("repeat", [_text(""), many]), {}) == ""
    assert evaluate_one(call("repeat", [_text("ab"), _number(1 << 19)]), {}) == "ab" * (1 << 19)
    assert evaluate_one(call("repeat", [_text("ab"), _number((1 << 19) + 1)]), {}) is None


def test_part_zero_has_no_value() -> None:
    expr = call("split_part", [S, _text("."), N])
    assert evaluate_one(expr, {"s": "a.b", "n": 0}) is None


@pytest.mark.parametrize("name", ["reverse", "lpad"])
def test_bytes_are_refused_where_spark_gives_bytes(name: str) -> None:
    with pytest.raises(SqlError):
        call(name, [B, _number(2)][: 2 if name == "lpad" else 1])


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("like", [S, _text("a\\b")]),
        ("like", [S, _text("a\\")]),
        ("like", [S, _text("a"), _text("ab")]),
        ("rlike", [S, T]),
        ("rlike", [S, _text("(")]),
        ("rlike", [S, _text("\\G")]),
        ("regexp_extract", [S, _text("a"), _number(1)]),
        ("regexp_replace", [S, _text("a"), _text("$1")]),
        ("md5", [N]),
    ],
)
def test_what_has_no_meaning_is_refused(name: str, args: list[Expr]) -> None:
    with pytest.raises(SqlError):
        call(name, args)


@given(st.text("ab😀", max_size=70), st.text("ab😀", max_size=70))
def test_the_distance_is_that_of_its_definition(a: str, b: str) -> None:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    assert levenshtein(a, b) == row[-1]


def test_the_distance_of_long_texts_is_soon_told_or_null() -> None:
    """A comparison of all pairs of a million characters would take a day."""
    expr = call("levenshtein", [S, T])
    assert evaluate_one(expr, {"s": "ab" * 4_000, "t": "ba" * 4_000}) == 2
    assert evaluate_one(expr, {"s": "ab" * 500_000, "t": "ba" * 500_000}) is None


def test_a_long_constant_is_found() -> None:
    """polars makes a regular expression of a constant, and refuses a long one."""
    part, rows = "é" * 400_000, pl.DataFrame({"s": ["xéé" + "é" * 400_000, "é", None]})
    for name, args in (
        ("instr", [S, _text(part)]),
        ("locate", [_text(part), S]),
        ("locate", [_text(part), S, _number(2)]),
    ):
        found = project(rows, [("x", call(name, args))])
        assert found.get_column("x").to_list() == [2, 0, None]
