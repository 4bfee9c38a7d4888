"""Statements that are known already give what they would give if they were new."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from viewkeep.access.statements.cache import Recent, StatementCache
from viewkeep.access.statements.execute import StatementRunner
from viewkeep.access.statements.lookups import PointRead
from viewkeep.errors import DuplicateKey, SqlError, SqlSyntaxError, TypeMismatch, ViewkeepError
from viewkeep.sql.parse.templates import split
from viewkeep.types import BIGINT, INT, STRING

if TYPE_CHECKING:
    from viewkeep import Database

    CatchUp = Callable[[], Any]

SITE = """
    CREATE TABLE votes
        (id INT PRIMARY KEY, story BIGINT, who STRING, d DATE, w DECIMAL(10,2), x DOUBLE);
    CREATE TABLE tags (name STRING, n INT, t TIMESTAMP, PRIMARY KEY (name, n));
    CREATE VIEW scores AS
        SELECT story, COUNT(*) AS votes, MAX(who) AS last FROM votes GROUP BY story;
    CREATE VIEW pairs AS SELECT who, story, COUNT(*) AS n FROM votes GROUP BY who, story;
    INSERT INTO votes VALUES
        (1, 1, 'ann', DATE '2024-01-01', 1.50, 1.5), (2, 1, 'bob', NULL, NULL, NULL),
        (3, 2, 'ann', DATE '2024-02-01', 0.25, 2.0), (-4, -7, 'it''s', NULL, 3.00, 0.0),
        (5, NULL, NULL, NULL, NULL, NULL), (6, 3000000000, '', DATE '1999-12-31', 7, 1e10);
    INSERT INTO tags VALUES
        ('a', 1, TIMESTAMP '2024-01-01 10:00:00'), ('a', 2, NULL), ('b', 1, NULL);
"""


@pytest.fixture
def site(db: Database, catch_up: CatchUp) -> Database:
    db.sql(SITE)
    catch_up()
    return db


def fresh(db: Database) -> StatementRunner:
    """The same, with nothing known: every statement is parsed and analysed."""
    executor = StatementRunner(db.catalog, db._reader, db._write, StatementCache())
    executor.known = lambda *_: None  # type: ignore[method-assign,assignment]
    return executor


def outcome(run: Callable[[], Any]) -> tuple[Any, ...]:
    """All that a statement tells, or its error."""
    try:
        result = run()
    except ViewkeepError as error:
        return type(error), str(error)
    return (
        result.columns,
        result.types,
        result.tuples(),
        result.polars().rows(),
        result.message,
        result.affected,
        result.how,
        result.epoch,
    )


NUMBERS = st.one_of(
    st.integers(-8, 8),
    st.sampled_from([2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 3_000_000_000, 2**63 - 1, 2**63]),
).map(str)
TEXTS = st.one_of(
    st.sampled_from(["'ann'", "'bob'", "''", "'it''s'", "'it\\'s'", '"ann"', "'a?b'", "'1'"]),
    st.text("ab'?`-\\\"#1 ", max_size=4).map(lambda t: "'" + t.replace("'", "''") + "'"),
)
OTHERS = st.sampled_from([
    "1.5", "1.0", "1e0", ".5", "1.", "NULL", "TRUE", "DATE '2024-01-01'", "'2024-01-01'", "1L",
    "- 1", "1 + 1", "X'61'", "r'ann'", "(1)", "?", "-?", ":p0", "1 /* 2 */", "007",
    "99999999999999999999",
])  # fmt: skip
CONSTANTS = st.one_of(NUMBERS, NUMBERS, TEXTS, OTHERS)
COMPARISONS = st.sampled_from(["=", "=", "=", "<>", "<", ">=", "<=>", " = "])
RELATIONS = {
    "scores": ["story", "votes", "last"],
    "votes": ["id", "story", "who", "d", "w", "x"],
    "pairs": ["who", "story", "n"],
    "tags": ["name", "n", "t"],
}


@st.composite
def selects(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(RELATIONS)))
    columns = [*RELATIONS[name], f"`{RELATIONS[name][0]}`"]
    column = st.sampled_from([*columns, *columns, f"{name}.{columns[0]}", "nothing", "v1"])
    items = draw(
        st.one_of(
            st.just("*"),
            st.lists(
                st.one_of(column, column.map(lambda c: f"{c} AS z9")), min_size=1, max_size=3
            ).map(lambda found: ", ".join(found)),
            st.just("COUNT(*) AS n"),
            CONSTANTS,
        )
    )
    key = RELATIONS[name][:2] if name in ("pairs", "tags") else RELATIONS[name][:1]
    parts = [f"{part} = {draw(CONSTANTS)}" for part in key if draw(st.integers(0, 9))]
    parts += draw(
        st.lists(
            st.builds("{}{}{}".format, column, COMPARISONS, CONSTANTS)
            | column.map("{} IS NOT NULL".format)
            | column.map("{} IS NULL".format),
            max_size=2,
        )
    )
    text = f"SELECT {items} FROM {name}"
    if parts:
        text += f" WHERE {' AND '.join(draw(st.permutations(parts)))}"
    tails = ["", "", "", " LIMIT 1", " LIMIT 0", " ORDER BY 1", f" ORDER BY {columns[0]}", " -- 7"]
    return text + draw(st.sampled_from(tails))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(selects(), min_size=1, max_size=3), data=st.data())
def test_selects(site: Database, texts: list[str], data: st.DataObject) -> None:
    for text in texts:
        # Constants of one text in the places of another, so that templates meet again.
        for written in (text, text.replace("'ann'", "'bob'"), text.replace("1", "2")):
            count = written.count("?")
            values = data.draw(st.lists(VALUES, min_size=count, max_size=count))
            slow = outcome(lambda t=written, v=values: fresh(site).one(t, None, v))
            assert outcome(lambda t=written, v=values: site.sql(t, v)) == slow
            assert outcome(lambda t=written, v=values: site.sql(t, v)) == slow


VALUES = st.one_of(
    st.integers(-3, 7),
    st.sampled_from(
        [None, True, 2**31, 2**63, "ann", "it's", "?", "", 1.0, Decimal("1.50"), Decimal(1), b"ann"]
    ),
    st.sampled_from([dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 10), float("nan"), float("inf")]),
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(
        [
            "INSERT INTO tags VALUES ({}, {}, {})",
            "INSERT INTO tags (n, name) VALUES ({}, {}), (77, 'x')",
            "INSERT OR REPLACE INTO tags VALUES ({}, {}, NULL)",
            "INSERT INTO votes (id, w, x) VALUES ({}, {}, {})",
            "UPDATE tags SET t = {} WHERE name = {} AND n = {}",
            "UPDATE votes SET who = {}, w = {} WHERE id = {}",
            "UPDATE votes SET story = {}, x = {} WHERE id > {}",
            "DELETE FROM tags WHERE name = {} AND n < {}",
            "DELETE FROM votes WHERE id = {} AND who IS NOT NULL",
            "INSERT INTO scores VALUES ({}, {}, {})",
        ]
    ),
    constants=st.lists(CONSTANTS, min_size=3, max_size=3),
    data=st.data(),
)
def test_writes(site: Database, kind: str, constants: list[str], data: st.DataObject) -> None:
    text = kind.format(*constants)
    count = text.count("?")
    values = data.draw(st.lists(VALUES, min_size=count, max_size=count))
    before = {name: site.sql(f"SELECT * FROM {name}").rows() for name in ("votes", "tags")}

    def done(run: Callable[[], Any]) -> tuple[Any, ...]:
        told = outcome(run)
        rows = [site.scan(name).tuples() for name in before]
        for name, old in before.items():  # as it was
            site.sql(f"DELETE FROM {name}")
            site.put(name, old)
        return told, rows

    slow = done(lambda: fresh(site).one(text, None, values))
    for _ in range(2):
        assert repr(done(lambda: site.sql(text, values))) == repr(slow)


def test_one_template_for_all_constants(site: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    first = site.sql("SELECT votes FROM scores WHERE story = 1")

    def parsed(*_: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr(StatementRunner, "parsed", parsed)
    assert first.one() == {"votes": 2}
    assert site.sql("SELECT votes FROM scores WHERE story = 2").one() == {"votes": 1}
    assert site.sql("SELECT votes FROM scores WHERE story = -8").tuples() == []
    with site.session() as session:
        assert session.sql("SELECT votes FROM scores WHERE story = 2").how == "scores by key"


def test_rows_by_key(site: Database) -> None:
    text = "SELECT n, t FROM tags WHERE name = 'a' AND n = -1 AND t IS NULL LIMIT 21"
    result = site.sql(text)
    assert (len(result), result.columns, result.how, result.epoch) == (
        0,
        ["n", "t"],
        "tags by key",
        None,
    )
    result = site.sql(text.replace("-1", "2"))
    assert result.rows() == list(result) == [{"n": 2, "t": None}]
    assert result.one() == {"n": 2, "t": None}
    assert result.arrow().to_pylist() == [{"n": 2, "t": None}]
    assert "│ 2 │ NULL │" in repr(result)


def test_the_catalog_changes_under_a_statement(site: Database, catch_up: CatchUp) -> None:
    text = "SELECT * FROM scores WHERE story = {}"
    assert site.sql(text.format(1)).one() == {"story": 1, "votes": 2, "last": "bob"}
    site.sql(
        "DROP VIEW scores;"
        "CREATE VIEW scores AS SELECT story, SUM(id) AS s FROM votes GROUP BY story"
    )
    assert outcome(lambda: site.sql(text.format(1))) == outcome(
        lambda: fresh(site).one(text.format(1))
    )
    catch_up()
    assert site.sql(text.format(1)).one() == {"story": 1, "s": 3}
    site.sql("DROP VIEW scores; CREATE TABLE scores (story STRING PRIMARY KEY)")
    assert outcome(lambda: site.sql(text.format(1))) == outcome(
        lambda: fresh(site).one(text.format(1))
    )
    site.sql("DROP TABLE scores")
    with pytest.raises(SqlError, match="no table or view is called scores"):
        site.sql(text.format(1))


def test_prepared(site: Database) -> None:
    point = site.prepare("SELECT votes, last AS who FROM scores WHERE story = ?")
    assert (point.parameters, point.is_point) == (1, True)
    assert point.columns == [("votes", BIGINT), ("who", STRING)]
    assert point.run(1).one() == {"votes": 2, "who": "bob"}
    assert point.run(99).tuples() == []
    assert point.run(None).tuples() == []
    assert point.run(Decimal("1.0")).one()["votes"] == 2
    assert point.run(1, at="latest").epoch is None
    found = point.point(1)
    assert found is not None
    assert found.one() == point.run(1).one()
    assert point.point(Decimal("1.0")) is None  # a comparison of decimals, by scanning
    for text in ("SELECT votes FROM scores WHERE votes = ?", "DELETE FROM votes WHERE id = ?"):
        assert site.prepare(text).point(1) is None
    assert len(site.scan("votes")) == 6
    with pytest.raises(SqlSyntaxError, match=r"has 1 parameter \(\?\) and 2 values were given"):
        point.run(1, 2)
    with pytest.raises(SqlSyntaxError, match=r"has 1 parameter \(\?\) and 0 values were given"):
        point.run()


def test_prepared_of_any_shape(site: Database) -> None:
    many = site.prepare(
        "SELECT id, ? AS x FROM votes WHERE who = ? OR id IN (?, ?) ORDER BY id LIMIT ?"
    )
    assert (many.parameters, many.is_point) == (5, False)
    assert many.columns == [("id", INT), ("x", INT)]
    assert many.run(7, "ann", 2, 5, 3).tuples() == [(1, 7), (2, 7), (3, 7)]
    assert many.run("?", "it's", 2, 2, 3).tuples() == [(-4, "?"), (2, "?")]
    insert = site.prepare("INSERT INTO tags VALUES (?, ?, ?)")
    assert (insert.columns, insert.is_point) == (None, False)
    assert insert.run("c", 1, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)).affected == 1
    assert site.get("tags", ("c", 1)) == {"name": "c", "n": 1, "t": dt.datetime(2024, 1, 1)}
    with pytest.raises(DuplicateKey, match="name = 'c', n = 1"):
        insert.run("c", 1, None)
    assert (
        site.prepare("UPDATE tags SET t = ? WHERE name = ? AND n = ?").run(None, "c", 1).affected
        == 1
    )
    assert site.prepare("DELETE FROM tags WHERE name = ?").run("c").affected == 1
    with pytest.raises(SqlSyntaxError, match="one statement"):
        site.prepare("SELECT 1; SELECT 2")
    with pytest.raises(SqlError, match="a set is no value"):
        insert.run("c", {1}, None)


def test_prepared_in_another_dialect(site: Database) -> None:
    text = "SELECT `votes` FROM `scores` WHERE `scores`.`story` = ? LIMIT 21"
    prepared = site.prepare(text, "mysql")
    assert prepared.is_point
    assert prepared.run(1).one() == {"votes": 2}
    with pytest.raises(SqlSyntaxError, match="no SQL dialect nosql"):
        site.prepare("SELECT 1", "nosql")
    with pytest.raises(SqlSyntaxError, match="syntax error in mysql"):
        site.prepare("SELECT FROM WHERE", "mysql")


def test_quotes_of_another_dialect(site: Database) -> None:
    """A name in quotes is no text, whichever was seen first."""
    text, name = "SELECT id FROM votes WHERE id = 1 AND who = 'who'", ' AND who = "who"'
    assert site.prepare(text, "postgres").run().rows() == []
    same = site.prepare("SELECT id FROM votes WHERE id = 1" + name, "postgres")
    assert same.run().rows() == [{"id": 1}]
    assert site.sql("SELECT id FROM votes WHERE id = 1" + name).rows() == []


def test_parameters_keep_their_digits(site: Database) -> None:
    for text in ("1234567890123456789012345678901.5", "-0.1234567890123456789012345678901", "1.50"):
        assert site.sql("SELECT ? AS x", (Decimal(text),)).one() == {"x": Decimal(text)}
    for text in ("1e39", "1e-99999", "NaN"):
        with pytest.raises(TypeMismatch, match="is no DECIMAL"):
            site.sql("SELECT ? AS x", (Decimal(text),))
    with pytest.raises(TypeMismatch, match="half of a surrogate pair"):
        site.sql("SELECT id FROM votes WHERE story = ?", ("\ud800",))
    for text in ("UPDATE votes SET who = ? WHERE id = 1", "DELETE FROM votes WHERE who = ?"):
        site.sql(text, ("nobody",))  # known from now on
        with pytest.raises(TypeMismatch, match="half of a surrogate pair"):
            site.sql(text, ("\ud800",))


def test_counts_above_all_rows(site: Database) -> None:
    for most in (2**64 - 1, 2**64, int("9" * 4000)):
        found = site.sql(f"SELECT id FROM votes ORDER BY id LIMIT {most} OFFSET 4").rows()
        assert found == [{"id": 5}, {"id": 6}]
        assert not site.sql(f"SELECT id FROM votes ORDER BY id LIMIT 1 OFFSET {most}").rows()


def test_long_lists_and_chains(site: Database) -> None:
    """Quick, and no matter of the stack."""
    several = ", ".join(map(str, range(4_000)))
    assert len(site.sql(f"SELECT id FROM votes WHERE id IN ({several})")) == 5
    assert len(site.sql(f"SELECT id FROM votes WHERE story NOT IN ({several}, NULL)")) == 0
    chain = " OR ".join(f"id = {number}" for number in range(900))
    assert len(site.sql(f"SELECT id FROM votes WHERE {chain}")) == 5


def test_parameters_of_several_statements(site: Database) -> None:
    text = "INSERT INTO tags VALUES (?, ?, NULL); SELECT n FROM tags WHERE name = ?"
    assert [len(result) for result in site.execute(text, ("z", 4, "z"))] == [0, 1]
    assert (
        site.sql("DELETE FROM tags WHERE name = ?; SELECT n FROM tags WHERE n = ?", ("z", 4)).rows()
        == []
    )


def test_a_session_waits_for_a_prepared_statement(site: Database, catch_up: CatchUp) -> None:
    with site.session(timeout=0.01) as session:
        prepared = session.prepare("SELECT votes FROM scores WHERE story = ?")
        table = session.prepare("SELECT who FROM votes WHERE id = ?")
        assert prepared.run(1).one() == {"votes": 2}
        session.put("votes", {"id": 50, "story": 1, "who": "eve"})
        assert table.run(50).one() == {"who": "eve"}  # base tables are there now
        with pytest.raises(ViewkeepError, match="lacks 1 operation of this session"):
            prepared.run(1)
        catch_up()
        assert prepared.run(1).one() == {"votes": 3}
        assert session.sql("SELECT votes FROM scores WHERE story = ?", (1,)).one() == {"votes": 3}


def test_what_has_no_template() -> None:
    assert split("SELECT a1 FROM t2 WHERE k = 5 AND `x 7` = 'q'") == (
        "SELECT a1 FROM t2 WHERE k = \1 AND `x 7` = \2",
        [5, "q"],
    )
    for text in (
        "1.5",
        "1L",
        "1e3",
        "'it''s'",
        "'\\n'",
        "x'61'",
        "-- 1",
        "/* 1 */",
        ":a",
        "'a",
        "\1",
        "1٢",
    ):
        assert split(f"SELECT {text}") is None


def test_what_is_kept_is_bounded() -> None:
    kept: Recent[int] = Recent(2)
    for key in "ab":
        kept.put(key, ord(key), 1)
    assert kept.get("a") == ord("a")
    kept.put("c", 1, 1)
    assert (kept.get("a"), kept.get("b"), kept.get("c"), len(kept)) == (ord("a"), None, 1, 2)


def test_what_is_kept_has_a_bounded_size() -> None:
    """The garbage collector looks at all of it in one go."""
    kept: Recent[int] = Recent(100, size=10)
    for number, size in enumerate((3, 4, 3)):
        kept.put(number, number, size)
    assert [kept.get(number) for number in range(3)] == [0, 1, 2]
    kept.put(1, 11, 2)  # in place of what was there
    kept.put(3, 3, 2)
    assert [kept.get(number) for number in range(4)] == [0, 11, 2, 3]
    kept.put(4, 4, 4)
    assert [kept.get(number) for number in range(5)] == [None, None, 2, 3, 4]
    kept.put(5, 5, 11)
    assert len(kept) == 0


def test_lookups_are_made_once(site: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[PointRead] = []
    monkeypatch.setattr(PointRead, "run", lambda self, *_: made.append(self))
    for number in range(3):
        site.sql(f"SELECT votes FROM scores WHERE story = {number}")
    assert len(made) == 3
    assert len(set(map(id, made))) == 1
