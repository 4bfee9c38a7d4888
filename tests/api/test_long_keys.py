"""Keys that the store cuts: scans and pages are in the order of the whole keys all the same."""

import random

import pytest

import viewkeep
from viewkeep.codec.keys import KEPT
from viewkeep.engine.local import catch_up

SAME = "x" * (KEPT + 100)
TEXTS = [
    *(SAME + tail for tail in ("", "a", "aa", "ab", "b", "m", "zz", "\0", "a\0b")),
    *("x" * length for length in (KEPT - 4, KEPT - 3, KEPT - 2, KEPT, KEPT + 10, KEPT + 14)),
    *("a", "y", "", "y" * 600, "y" * 600 + "1"),
]


@pytest.fixture
def db(tmp_path):
    with viewkeep.make(str(tmp_path / "db"), durability="relaxed") as db:
        db.sql("CREATE TABLE texts (g BIGINT, t STRING, n BIGINT, PRIMARY KEY (g, t))")
        db.sql("CREATE VIEW kept AS SELECT g, t, n FROM texts")
        db.sql("CREATE VIEW counts AS SELECT t, COUNT(*) AS c FROM texts GROUP BY t")
        texts = TEXTS.copy()
        random.Random(1).shuffle(texts)
        db.put("texts", [{"g": g, "t": text, "n": 1} for text in texts for g in (1, 2)])
        catch_up(db.store)
        yield db


def expected(name):
    texts = sorted(TEXTS, key=str.encode)
    return [(g, text) for g in (1, 2) for text in texts] if name != "counts" else texts


def keys(name, rows):
    return [row["t"] if name == "counts" else (row["g"], row["t"]) for row in rows]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["texts", "kept", "counts"])
def test_order_and_pages(db, name, reverse):
    right = expected(name)[:: -1 if reverse else 1]
    assert keys(name, db.scan(name, reverse=reverse)) == right
    for limit in (1, 2, 3, 7, 100):
        found, token, pages = [], None, 0
        while token is not None or not pages:
            page = db.scan(name, reverse=reverse, limit=limit, after=token)
            assert len(page) <= limit
            found += keys(name, page)
            token, pages = page.next, pages + 1
        assert found == right


def test_a_page_goes_on_after_a_row_that_is_gone(db):
    page = db.scan("texts", prefix=1, limit=9)
    last = [row["t"] for row in page][-1]
    assert len(last) > KEPT
    db.delete("texts", (1, last))
    rest = db.scan("texts", prefix=1, after=page.next)
    texts = sorted(TEXTS, key=str.encode)
    assert [row["t"] for row in page] + [row["t"] for row in rest] == texts
