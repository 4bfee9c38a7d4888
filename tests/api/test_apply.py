"""Programs: a database is brought to what a file of CREATE statements says, in one change."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import viewkeep
from viewkeep.access.apply.application import Application
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.failures import leave_out
from viewkeep.engine.local import catch_up as catch_up_locally
from viewkeep.engine.local import run_epoch
from viewkeep.engine.programs import newest_plan, successor_name
from viewkeep.errors import CatalogError, NotReady, SqlError, UnknownName, Unsupported

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published

    CatchUp = Callable[[], Published]

PROGRAM = """
CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, stars BIGINT);
CREATE VIEW scores AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story;
CREATE VIEW best AS SELECT story, n * 10 AS points FROM scores;
CREATE INDEX by_stars ON votes (stars DESC);
"""
ROWS = 40
SUM = PROGRAM.replace("COUNT(*) AS n", "SUM(stars) AS n")


def steps(application: Application) -> dict[str, str]:
    """What is done to each table and view that something is done to."""
    return {
        change.name: change.action
        for change in application.changes
        if change.action not in ("keep", "left")
    }


def left(application: Application) -> list[str]:
    return [change.name for change in application.changes if change.action == "left"]


@pytest.fixture
def site(db: Database, catch_up: CatchUp) -> Database:
    db.apply(PROGRAM)
    db.put("votes", [{"id": i, "story": i % 5, "stars": i} for i in range(ROWS)])
    catch_up()
    return db


def test_an_empty_database(db: Database, catch_up: CatchUp) -> None:
    application = db.apply(PROGRAM, dry_run=True)
    assert application.pending
    assert db.tables() == db.views() == []
    assert steps(application) == dict.fromkeys(("votes", "scores", "best", "by_stars"), "add")
    application.commit()
    db.put("votes", {"id": 1, "story": 7, "stars": 3})
    catch_up()
    assert db.get("best", 7) == {"story": 7, "points": 10}
    assert db.tables() == ["votes"]
    assert db.views() == ["best", "by_stars", "scores"]


@pytest.mark.parametrize(
    "text",
    [
        PROGRAM,
        PROGRAM.replace("CREATE VIEW", "CREATE OR REPLACE VIEW"),
        PROGRAM.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"),
        PROGRAM.replace("CREATE VIEW", "create  materialized view"),
        PROGRAM.replace("scores", "SCORES").replace("COUNT(*)", "count( * )"),
    ],
)
def test_what_is_there_stays_as_it_is(site: Database, text: str) -> None:
    before = newest_plan(site.store)
    application = site.apply(text)
    assert not application.pending
    assert newest_plan(site.store) == before


def test_views_that_change_together_pass_over_at_one_epoch(site: Database) -> None:
    """Those that are replaced, that read one, and that are added or dropped: all or none."""
    site.sql("CREATE VIEW totals AS SELECT SUM(points) AS p FROM best")
    catch_up_locally(site.store)
    text = SUM.replace("CREATE INDEX by_stars ON votes (stars DESC)", "") + (
        "CREATE TABLE notes (id BIGINT PRIMARY KEY, text STRING);"
        "CREATE VIEW worst AS SELECT MIN(points) AS w FROM best;"
        "CREATE VIEW means AS SELECT story, AVG(stars) AS a FROM votes GROUP BY story;"
        "CREATE VIEW totals AS SELECT SUM(points) AS p FROM best;"
    )
    application = site.apply(text.replace(";;", ";"), prune=True)
    assert steps(application) == {
        "notes": "add",
        "scores": "replace",
        "best": "replace",
        "worst": "add",
        "means": "add",
        "totals": "replace",
        "by_stars": "drop",
    }
    assert site.tables() == ["notes", "votes"]
    epochs = Epochs(site.store)
    term = epochs.acquire().term
    sums = [sum(range(story, ROWS, 5)) for story in range(5)]
    old = ({"story": 3, "n": 8}, {"story": 3, "points": 80}, {"p": 400}, None, True)
    new = ({"story": 3, "n": sums[3]}, {"story": 3, "points": 10 * sums[3]}, {"p": 10 * sum(sums)})
    seen = []
    while True:
        with site.snapshot() as snapshot:
            try:
                worst = snapshot.get("worst")
            except NotReady:
                worst = None
            state = (
                snapshot.get("scores", 3),
                snapshot.get("best", 3),
                snapshot.get("totals"),
                worst,
                "by_stars" in site.views() and bool(snapshot.scan("by_stars", limit=1)),
            )
        seen.append(state)
        opened = epochs.open_next(term, Limits(chunk=4))
        if opened is None:
            break
        epochs.publish(term, opened, run_epoch(site.store, opened))
    assert set(map(repr, seen)) == {repr(old), repr((*new, {"w": 10 * min(sums)}, False))}
    assert len(seen) > 4, "the new views were to take several epochs"
    plan = newest_plan(site.store)
    assert (plan.successors, plan.leaving) == ({}, {})


def test_a_view_that_the_program_lacks_stays_and_is_named(site: Database) -> None:
    site.sql("CREATE VIEW more AS SELECT SUM(points) AS p FROM best")
    site.sql("CREATE TABLE other (k INT PRIMARY KEY)")
    application = site.apply(PROGRAM)
    assert left(application) == ["more", "other"]
    assert not application.pending
    application = site.apply(PROGRAM, prune=True)
    assert steps(application) == {"more": "drop"}
    assert left(application) == ["other"]
    assert site.views() == ["best", "by_stars", "scores"]
    assert "other" in site.tables(), "a table has rows that nobody can make again"


def test_views_that_the_program_lacks_go_over_with_what_they_read(
    site: Database, catch_up: CatchUp
) -> None:
    """Also where the program goes on over them."""
    site.sql("CREATE VIEW middle AS SELECT story, points + 1 AS p FROM best")
    catch_up()
    text = SUM + "CREATE VIEW top AS SELECT MAX(p) AS p FROM middle;"
    application = site.apply(text)
    assert steps(application) == {
        "scores": "replace",
        "best": "replace",
        "middle": "replace",
        "top": "add",
    }
    (note,) = [change.note for change in application.changes if change.name == "middle"]
    assert note == "reads best, which changes"
    catch_up()
    assert site.get("top") == {"p": 10 * sum(range(4, ROWS, 5)) + 1}
    assert not site.apply(text).pending


def test_prune_refuses_to_drop_what_the_program_reads(site: Database) -> None:
    site.sql("CREATE VIEW middle AS SELECT story, points + 1 AS p FROM best")
    text = PROGRAM + "CREATE VIEW top AS SELECT MAX(p) AS p FROM middle;"
    with pytest.raises(UnknownName, match=r"the program lacks the view middle.*--prune"):
        site.apply(text, prune=True)


def test_the_same_program_again_while_its_views_load(site: Database, catch_up: CatchUp) -> None:
    text = SUM.replace("CREATE INDEX by_stars ON votes (stars DESC);", "")
    assert site.apply(text, prune=True).pending
    again = newest_plan(site.store)
    assert not site.apply(text, prune=True).pending
    assert newest_plan(site.store) == again
    catch_up()
    assert not site.apply(text, prune=True).pending


def test_the_old_program_again_takes_a_change_back(site: Database, catch_up: CatchUp) -> None:
    before = newest_plan(site.store)
    site.apply(SUM.replace("CREATE INDEX by_stars ON votes (stars DESC);", ""), prune=True)
    assert site.apply(PROGRAM, prune=True).pending
    catch_up()
    plan = newest_plan(site.store)
    assert (plan.views, plan.successors, plan.leaving) == (before.views, {}, {})
    assert len(site.scan("by_stars")) == ROWS


def test_a_change_whose_view_fails_leaves_all_as_it_was(site: Database) -> None:
    text = SUM.replace("CREATE INDEX by_stars ON votes (stars DESC);", "")
    site.apply(text, prune=True)
    epochs = Epochs(site.store)
    term = epochs.acquire().term
    opened = epochs.open_next(term, Limits(chunk=4))
    assert opened is not None
    program = newest_plan(site.store).program
    (culprit,) = (
        program.placements[successor_name("scores")].operators
        - program.placements["scores"].operators
    )
    leave_out(site.store, term, opened, {culprit: "it is to fail"})
    while (opened := epochs.open_next(term, Limits(chunk=4))) is not None:
        epochs.publish(term, opened, run_epoch(site.store, opened))
    plan = newest_plan(site.store)
    assert (plan.successors, plan.leaving) == ({}, {})
    assert site.get("best", 3) == {"story": 3, "points": 80}
    assert len(site.scan("by_stars")) == ROWS
    assert steps(site.apply(text, prune=True)) == {
        "scores": "replace",
        "best": "replace",
        "by_stars": "drop",
    }


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("INSERT INTO votes VALUES (1, 2, 3)", Unsupported, "a program consists of CREATE TABLE"),
        ("DROP VIEW scores", Unsupported, "a program consists of"),
        (PROGRAM + PROGRAM, CatalogError, "the program creates votes twice"),
        ("CREATE TABLE scores (k INT PRIMARY KEY)", CatalogError, "scores is a view here and a"),
        ("CREATE VIEW votes AS SELECT story FROM best", CatalogError, "votes is a table here and"),
        ("CREATE VIEW a AS SELECT x FROM nowhere", UnknownName, "no table or view is called nowh"),
        ("CREATE VIEW a AS SELEC x", SqlError, "syntax error|Unexpected|statement"),
        (
            "CREATE TABLE votes (id BIGINT PRIMARY KEY, story STRING, text STRING)",
            CatalogError,
            "it adds text STRING; it lacks stars; story is BIGINT here and STRING there",
        ),
        (
            "CREATE TABLE votes (id BIGINT, story BIGINT, stars BIGINT, PRIMARY KEY (story, id))",
            CatalogError,
            r"the key is \(id\) here and \(story, id\) there",
        ),
    ],
)
def test_refused(site: Database, text: str, error: type[Exception], message: str) -> None:
    before = newest_plan(site.store)
    with pytest.raises(error, match=message):
        site.apply(text)
    assert newest_plan(site.store) == before


def notes(application: Application) -> list[str]:
    return [change.note for change in application.changes if change.action == "alter"]


def test_a_table_with_more_columns_is_altered(site: Database, catch_up: CatchUp) -> None:
    """Together with a view that needs the column; the views that are there keep their state."""
    number = newest_plan(site.store).program.placements["scores"].table.number
    text = PROGRAM.replace("stars BIGINT)", "stars BIGINT, note STRING DEFAULT 'x', n INT)")
    text += "CREATE VIEW by_note AS SELECT note, COUNT(*) AS c FROM votes GROUP BY note;"
    application = site.apply(text, dry_run=True)
    assert steps(application) == {"votes": "alter", "by_note": "add"}
    assert notes(application) == ["adds note STRING, 'x' in all rows; adds n INT"]
    assert "note" not in site.get("votes", 1)  # type: ignore[operator]
    application.commit()
    assert site.get("votes", 1) == {"id": 1, "story": 1, "stars": 1, "note": "x", "n": None}
    site.put("votes", {"id": 99, "story": 1, "stars": 1, "note": "y"})
    catch_up()
    assert site.get("by_note", "x") == {"note": "x", "c": ROWS}
    assert site.get("scores", 1) == {"story": 1, "n": ROWS // 5 + 1}
    assert newest_plan(site.store).program.placements["scores"].table.number == number
    assert not site.apply(text).pending


def test_defaults_and_wider_types(site: Database) -> None:
    site.sql("ALTER TABLE votes ADD COLUMN n INT DEFAULT 5, ADD COLUMN day DATE")
    text = PROGRAM.replace("stars BIGINT)", "stars BIGINT DEFAULT 1, n BIGINT, day TIMESTAMP)")
    application = site.apply(text)
    assert notes(application) == [
        "n becomes BIGINT; day becomes TIMESTAMP; the default of stars becomes 1; n has no default"
    ]
    assert site.get("votes", 1)["n"] == 5  # type: ignore[index]
    site.sql("INSERT INTO votes (id) VALUES (99)")
    assert site.get("votes", 99) == {"id": 99, "story": None, "stars": 1, "n": None, "day": None}
    assert not site.apply(text).pending


def test_a_column_is_dropped_with_prune_alone(site: Database) -> None:
    site.sql("ALTER TABLE votes ADD COLUMN note STRING")
    with pytest.raises(CatalogError, match=r"it lacks note \(--prune drops note, with the values"):
        site.apply(PROGRAM)
    application = site.apply(PROGRAM, prune=True, dry_run=True)
    assert notes(application) == ["drops note with its values"]
    application.commit()
    assert not site.apply(PROGRAM, prune=True).pending


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("id BIGINT PRIMARY KEY, note STRING, story BIGINT, stars BIGINT", "columns at the end"),
        ("id BIGINT PRIMARY KEY, stars BIGINT, story BIGINT", "another order .*moves none"),
        ("id BIGINT PRIMARY KEY, story BIGINT, stars INT", "INT does not hold all values of stars"),
        ("id DECIMAL(20) PRIMARY KEY, story BIGINT, stars BIGINT", "types of a key"),
        ("id BIGINT, story BIGINT, stars BIGINT, PRIMARY KEY (story, id)", "a key cannot be"),
    ],
)
def test_what_alter_table_cannot_do_is_refused(site: Database, columns: str, message: str) -> None:
    before = newest_plan(site.store)
    with pytest.raises(CatalogError, match=message):
        site.apply(f"CREATE TABLE votes ({columns})", prune=True)
    assert newest_plan(site.store) == before


def test_a_view_that_answers_keeps_its_columns(site: Database, catch_up: CatchUp) -> None:
    """Also if the program has another one in its place, which must be loaded first."""
    before = newest_plan(site.store)
    text = "CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT);"
    text += "CREATE VIEW scores AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story;"
    text += "CREATE VIEW best AS SELECT story, n * 10 AS points FROM scores;"
    with pytest.raises(CatalogError, match="by_stars: it needs stars"):
        site.apply(text, prune=True)
    with pytest.raises(CatalogError, match=r"by_stars: it needs stars.*Apply a program first"):
        site.apply(text + "CREATE INDEX by_stars ON votes (story DESC);", prune=True)
    assert newest_plan(site.store) == before
    site.sql("DROP INDEX by_stars")
    site.apply(text, prune=True)
    catch_up()
    assert site.get("best", 3) == {"story": 3, "points": 80}
    wide = text.replace("story BIGINT)", "story DECIMAL(19, 0))")
    with pytest.raises(CatalogError, match="scores: it needs story"):
        site.apply(wide)


def test_a_view_with_a_star_gets_new_columns(site: Database, catch_up: CatchUp) -> None:
    star = "CREATE VIEW every AS SELECT * FROM votes WHERE stars > 5;"
    site.apply(PROGRAM + star)
    catch_up()
    text = PROGRAM.replace("stars BIGINT)", "stars BIGINT, note STRING DEFAULT 'x')") + star
    assert steps(site.apply(text)) == {"votes": "alter", "every": "replace"}
    assert site.get("every", 7) == {"id": 7, "story": 2, "stars": 7}
    catch_up()
    assert site.get("every", 7) == {"id": 7, "story": 2, "stars": 7, "note": "x"}


def test_a_reader_that_does_not_fit_is_named(site: Database) -> None:
    site.sql("CREATE VIEW more AS SELECT points FROM best")
    text = SUM.replace("n * 10 AS points", "n * 10 AS p")
    with pytest.raises(CatalogError, match="more reads best and cannot be kept over the new one"):
        site.apply(text)
    with pytest.raises(CatalogError, match="more reads best"):
        site.sql("CREATE OR REPLACE VIEW best AS SELECT story FROM scores")


def test_what_is_done_is_what_was_shown(site: Database) -> None:
    application = site.apply(SUM, dry_run=True)
    site.sql("CREATE VIEW other AS SELECT MAX(points) AS p FROM best")
    with pytest.raises(CatalogError, match="changed meanwhile"):
        application.commit()
    application = site.apply(SUM, dry_run=True)
    site.sql("CREATE TABLE of_nobody (k INT PRIMARY KEY)")
    with pytest.raises(CatalogError, match="changed meanwhile"):
        application.commit()
    application = site.apply(SUM, dry_run=True)
    site.catalog.rebuild_view("by_stars")  # another plan, and the same change
    application.commit()
    assert newest_plan(site.store).successors.keys() == {"scores", "best", "other"}


def test_estimates_are_from_sizes_that_exist(site: Database, catch_up: CatchUp) -> None:
    """No more is built than said; what is shared is counted once, and what is there not at all."""
    text = SUM + "CREATE VIEW pairs AS SELECT b.story, v.id FROM best b JOIN votes v USING (story);"
    application = site.apply(text)
    assert application.total.rows is not None
    assert application.total.bytes is not None
    shown = {change.name: change for change in application.changes}
    assert shown["scores"].rows == ROWS
    before = set(newest_plan(site.store).program.placements["best"].operators)
    held = site.store.sizes().tables
    catch_up()
    after = site.store.sizes().tables
    program = newest_plan(site.store).program
    built = sum(
        after[table.number].bytes
        for operator in program.operators
        if operator.id not in before
        for table in operator.tables
        if table.number not in held
    )
    assert 0 < built <= application.total.bytes <= 20 * built
    freed = site.apply("CREATE VIEW x AS SELECT 1 AS one", prune=True, dry_run=True).freed
    assert freed == sum(size.bytes for n, size in after.items() if n in program_numbers(site))


def program_numbers(db: Database) -> set[int]:
    return newest_plan(db.store).state_numbers


VIEWS = {
    "a": ("SELECT story, COUNT(*) AS n FROM votes GROUP BY story", "SELECT 1 AS story, 2 AS n"),
    "b": ("SELECT n, COUNT(*) AS m FROM a GROUP BY n", "SELECT story AS n, n AS m FROM a"),
    "c": ("SELECT SUM(m) AS s FROM b", "SELECT MAX(n) AS s FROM b"),
    "d": ("SELECT stars, MAX(id) AS i FROM votes GROUP BY stars", "SELECT id, stars FROM votes"),
}


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_one_after_another(db: Database, catch_up: CatchUp, seed: int) -> None:
    """Whatever was there and however far it was loaded, in the end it is as the program says."""
    source = random.Random(seed)
    table = "CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT, stars BIGINT);"
    epochs = Epochs(db.store)
    db.apply(table)
    term = epochs.acquire().term
    for round in range(12):
        db.put("votes", {"id": source.randrange(20), "story": round % 3, "stars": round % 4})
        chosen = {name: source.choice(texts) for name, texts in VIEWS.items()}
        for last in "cdba"[: source.randrange(4)]:  # in an order that leaves none over another
            if last == "d" or not {"c": set(), "b": {"c"}, "a": {"b"}}[last] & chosen.keys():
                chosen.pop(last)
        program = table + "".join(f"CREATE VIEW {n} AS {text};" for n, text in chosen.items())
        db.apply(program, prune=True)
        assert not db.apply(program, prune=True, dry_run=True).pending
        for _ in range(source.randrange(4)):
            opened = epochs.open_next(term, Limits(chunk=2))
            if opened is not None:
                epochs.publish(term, opened, run_epoch(db.store, opened))
    while (opened := epochs.open_next(term, Limits(chunk=2))) is not None:
        epochs.publish(term, opened, run_epoch(db.store, opened))
    assert db.views() == sorted(chosen)
    with viewkeep.open(":memory:") as fresh:
        fresh.apply(program)
        fresh.put("votes", db.scan("votes").rows())
        fresh.wait()
        for name in chosen:
            assert db.scan(name).rows() == fresh.scan(name).rows(), name
