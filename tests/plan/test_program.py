"""Where operators are placed: levels, zones, state tables, and what views share."""

from __future__ import annotations

from viewkeep.plan.nodes import Aggregate, Arrange, Source, View
from viewkeep.plan.program import (
    Operator,
    Program,
    compile_program,
    extend_program,
    state_keys,
)
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.statements.analyse import analyse
from viewkeep.sql.statements.nodes import CreateView
from viewkeep.types import BIGINT, INT, STRING, Column, Schema

VOTES = Source(
    "votes",
    1,
    Schema(
        (
            Column("id", BIGINT, False),
            Column("story", BIGINT),
            Column("user", STRING),
            Column("stars", INT),
        ),
        ("id",),
    ),
)


def views(*texts: str) -> list[View]:
    """Views over votes and over each other."""
    known: dict[str, Source | View] = {"votes": VOTES}
    made = []
    for text in texts:
        statement = analyse(parse(text)[0], known.get)
        assert isinstance(statement, CreateView)
        known[statement.view.name] = statement.view
        made.append(statement.view)
    return made


def program(*texts: str) -> Program:
    """The program of these views, its tables numbered from 1."""
    numbers: dict[str, int] = {}
    return compile_program(views(*texts), lambda key: numbers.setdefault(key, len(numbers) + 1))


def of(made: Program, view: str) -> Operator:
    """The operator whose table a view reads."""
    table = made.placements[view].table
    return next(operator for operator in made.operators if table in operator.tables)


PLAIN = "CREATE VIEW plain AS SELECT id, stars + 1 AS more FROM votes WHERE stars > 2"
COUNTS = "CREATE VIEW counts AS SELECT story, count(*) AS n FROM votes GROUP BY story"


def test_no_views() -> None:
    made = program()
    assert (made.operators, made.levels, made.sources) == ((), 1, ())


def test_a_projection_is_local_at_level_0() -> None:
    made = program(PLAIN)
    operator = of(made, "plain")
    assert isinstance(operator.node, Arrange)
    assert (operator.level, operator.zone, operator.feeds[0].local) == (0, ("id",), True)
    assert operator.feeds[0].producer == VOTES
    assert made.levels == 1
    needed, steps = operator.feeds[0].narrowed
    assert needed == {"id", "stars"}
    assert len(steps) == 2


def test_a_view_of_an_aggregate_reads_its_table() -> None:
    made = program(COUNTS)
    (operator,) = made.operators
    assert isinstance(operator.node, Aggregate)
    assert (operator.level, operator.zone, operator.feeds[0].local) == (1, ("story",), False)
    placement = made.placements["counts"]
    assert placement.table is operator.rows_table
    assert placement.columns == (("story", "story"), ("n", "count(*)"))
    assert made.levels == 2
    assert made.at_level(0) == ()


def test_a_group_of_the_base_key_is_still_re_distributed() -> None:
    made = program("CREATE VIEW v AS SELECT id, count(*) AS n FROM votes GROUP BY id")
    assert [(op.level, op.feeds[0].local) for op in made.operators] == [(1, False)]


def test_having_stays_in_the_zone_of_its_aggregate() -> None:
    made = program(
        "CREATE VIEW v AS SELECT story, count(*) AS n FROM votes GROUP BY story HAVING n > 1"
    )
    counted, kept = made.operators
    assert kept.feeds[0].producer == counted.id
    assert (kept.level, kept.zone, kept.feeds[0].local) == (1, ("story",), True)
    assert made.consumers(counted.id) == ((kept, kept.feeds[0]),)
    assert made.placements["v"].feeds == {counted.feeds[0].id, kept.feeds[0].id}


def test_an_index_is_one_level_up_in_the_zone_of_its_first_column() -> None:
    made = program("CREATE INDEX i ON votes (user DESC, stars)")
    operator = of(made, "i")
    assert (operator.level, operator.zone, operator.feeds[0].local) == (1, ("user",), False)
    assert operator.rows_table.key_names == ("user", "stars", "id")
    assert [part.descending for part in operator.rows_table.key] == [True, False, False]


def test_an_aggregate_of_an_aggregate_is_at_level_2() -> None:
    made = program(COUNTS, "CREATE VIEW c AS SELECT n, count(*) AS stories FROM counts GROUP BY n")
    operator = of(made, "c")
    assert (operator.level, operator.zone) == (2, ("count(*)",))
    assert operator.feeds[0].producer == of(made, "counts").id
    assert made.levels == 3


def test_an_aggregate_with_its_producers_key_shares_the_zone() -> None:
    made = program(
        COUNTS, "CREATE VIEW m AS SELECT story, max(n) AS most FROM counts GROUP BY story"
    )
    operator = of(made, "m")
    assert (operator.level, operator.zone, operator.feeds[0].local) == (1, ("story",), True)


def test_an_order_on_an_aggregate_is_an_index_above_it() -> None:
    made = program(COUNTS, "CREATE VIEW top AS SELECT story, n FROM counts ORDER BY n DESC")
    operator = of(made, "top")
    assert isinstance(operator.node, Arrange)
    assert (operator.level, operator.zone, operator.feeds[0].local) == (2, ("count(*)",), False)


def test_equal_aggregates_are_one_operator() -> None:
    made = program(
        COUNTS,
        "CREATE VIEW again AS SELECT count(1) AS votes, v.story AS s FROM votes v GROUP BY v.story",
    )
    (operator,) = made.operators
    assert made.placements["again"].table is made.placements["counts"].table is operator.rows_table
    assert made.placements["again"].columns == (("votes", "count(*)"), ("s", "story"))


def test_state_tables_of_an_aggregate() -> None:
    made = program(
        "CREATE VIEW v AS SELECT story, max(stars) AS top, count(DISTINCT user) AS users "
        "FROM votes GROUP BY story"
    )
    (operator,) = made.operators
    groups, *values = operator.tables
    assert groups.purpose == "groups"
    assert {table.purpose for table in values} == {"values of stars", "values of user"}
    assert {table.shard_by for table in operator.tables} == {("story",)}
    assert operator.feeds[0].needs == {"story", "stars", "user"}


def test_a_total_has_one_zone_without_columns() -> None:
    made = program("CREATE VIEW v AS SELECT sum(stars) AS s FROM votes")
    assert [(op.level, op.zone) for op in made.operators] == [(1, ())]


def test_levels_follow_the_law() -> None:
    made = program(
        PLAIN,
        COUNTS,
        "CREATE VIEW c AS SELECT n, count(*) AS stories FROM counts GROUP BY n",
        "CREATE VIEW h AS SELECT n, stories FROM c WHERE stories > 1",
        "CREATE INDEX i ON h (stories)",
    )
    seen: dict[str, Operator] = {}
    for operator in made.operators:
        producer = operator.feeds[0].producer
        if isinstance(producer, str):
            above = seen[producer]
            assert operator.level == above.level + (0 if operator.feeds[0].local else 1)
            assert not operator.feeds[0].local or operator.zone == above.zone
        else:
            assert operator.level == (0 if operator.feeds[0].local else 1)
        seen[operator.id] = operator
    assert made.sources == (VOTES,)
    assert [operator.level for operator in made.operators] == [0, 1, 2, 2, 3]


def test_state_keys_are_what_is_numbered() -> None:
    texts = (PLAIN, COUNTS)
    asked: list[str] = []

    def number(key: str) -> int:
        asked.append(key)
        return len(asked)

    compile_program(views(*texts), number)
    assert list(state_keys(views(*texts))) == asked


def test_a_program_with_one_more_view_is_that_of_all_views() -> None:
    texts = (
        COUNTS,
        PLAIN,
        "CREATE VIEW j AS SELECT v.id, c.n FROM votes v JOIN counts c ON c.story = v.story",
    )
    numbers: dict[str, int] = {}

    def number(key: str) -> int:
        return numbers.setdefault(key, len(numbers) + 1)

    *before, last = views(*texts)
    extended = extend_program(compile_program(before, number), [last], number)
    assert extended == program(*texts)


def test_a_view_in_the_place_of_another() -> None:
    first = program(COUNTS, PLAIN)
    (other,) = views("CREATE VIEW counts AS SELECT user, count(*) AS n FROM votes GROUP BY user")
    made = extend_program(first, [other], lambda key: 9)
    assert of(made, "counts").zone == ("user",)
    assert of(made, "plain") is of(first, "plain")
    assert not made.uses("counts", of(first, "counts").id)
