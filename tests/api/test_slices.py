"""Slices, pages and measures, against brute force over all rows."""

from __future__ import annotations

import math
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import viewkeep
from viewkeep import ANY
from viewkeep.access.tokens import read_token, write_token
from viewkeep.codec.keys import KeyCodec
from viewkeep.codec.patterns import KeyPattern
from viewkeep.engine.identity import database_id
from viewkeep.engine.local import catch_up as run_epochs
from viewkeep.errors import (
    EpochGone,
    InvalidReadPoint,
    InvalidRow,
    InvalidToken,
    TypeMismatch,
    UnknownName,
)
from viewkeep.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published

    CatchUp = Callable[[], Published]

SALES = """
    CREATE TABLE sales (region STRING, year INT, shop STRING, item BIGINT, amount BIGINT,
        price DECIMAL(38, 2), weight DOUBLE, note STRING, PRIMARY KEY (region, year, shop, item));
    CREATE VIEW by_shop AS SELECT region, year, shop, COUNT(*) AS n, SUM(amount) AS amount,
        MAX(weight) AS weight FROM sales GROUP BY region, year, shop;
    CREATE VIEW ranked AS SELECT year, region, amount, item, shop FROM sales
        ORDER BY year DESC, region, amount DESC;
"""
# In memory where there is such a folder: these tests are about values, not about disks.
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None
EXACT = Context(prec=60)
TEXTS = ["", "a", "b", "a\0", "a\0b", "ab", "ÿ", "z" * 300, "z" * 300 + "y", "q" * 490]

keys = st.tuples(
    st.sampled_from(TEXTS), st.integers(-1, 2), st.sampled_from(TEXTS), st.integers(0, 2)
)


@contextmanager
def shop(rows: list[dict[str, Any]]) -> Iterator[Database]:
    """A database of these sales, with its views loaded."""
    with (
        tempfile.TemporaryDirectory(dir=FOLDER) as folder,
        viewkeep.open(Path(folder) / "a.vk", durability="relaxed") as db,
    ):
        db.sql(SALES)
        db.put("sales", rows)
        run_epochs(db.store)
        yield db


def sale(key: tuple[str, int, str, int], n: int) -> dict[str, Any]:
    made = dict(zip(("region", "year", "shop", "item"), key, strict=True))
    amount = [None, 2**62, 2**62, -5, 7][n % 5]
    weight = [0.5, math.nan, None, -1.0, math.inf][n % 5]
    price = [Decimal(10) ** 35, None, Decimal("0.01"), Decimal(10) ** 35][n % 4]
    note = [None, "x", "é"][n % 3]
    return {**made, "amount": amount, "price": price, "weight": weight, "note": note}


def matching(
    rows: list[dict[str, Any]], key: tuple[str, ...], given: tuple[Any, ...]
) -> list[dict[str, Any]]:
    wanted = dict(zip(key, given, strict=False))
    return [r for r in rows if all(v is ANY or r[name] == v for name, v in wanted.items())]


part = st.just(ANY)
slices = st.lists(
    st.tuples(
        part | st.sampled_from(TEXTS),
        part | st.integers(-1, 3),
        part | st.sampled_from(TEXTS),
        part | st.integers(0, 2),
    ),
    min_size=3,
    max_size=6,
)


def fits_a_bound(given: tuple[Any, ...]) -> bool:
    """Leading values that are too long to be sought are refused."""
    size = 0
    for value in given:
        if value is ANY:
            break
        size += 9 if isinstance(value, int) else len(value.encode()) + 3
    return size < 450


@settings(max_examples=25)
@given(st.lists(keys, unique=True, max_size=40), slices, st.booleans(), st.integers(1, 5))
def test_slices_equal_brute_force(
    given_keys: list[tuple[str, int, str, int]],
    wanted: list[tuple[Any, ...]],
    reverse: bool,
    limit: int,
) -> None:
    rows = [sale(key, n) for n, key in enumerate(given_keys)]
    with shop(rows) as db:
        for given in filter(fits_a_bound, wanted):
            for name, at in (("sales", None), ("sales", "stable"), ("by_shop", None)):
                asked = given[:3] if name == "by_shop" else given
                everything = db.scan(name, reverse=reverse, at=at)
                key = db.schema(name).key
                expected = matching(everything.rows(), key, asked)
                found = db.scan(name, slice=asked, reverse=reverse, at=at)
                assert repr(found.rows()) == repr(expected)
                pages: list[dict[str, Any]] = []
                token = None
                while True:
                    page = db.scan(
                        name, slice=asked, reverse=reverse, at=at, limit=limit, after=token
                    )
                    assert len(page) <= limit
                    pages += page.rows()
                    token = page.next
                    if token is None:
                        break
                    assert len(page) == limit
                assert repr(pages) == repr(expected)
            check_measures(db, given)


def test_slices_find_keys_that_were_cut() -> None:
    """The digest at the end of such a key may lie before or after the bytes that were cut off."""
    given = [("z" * 300, year, text, item) for year in (0, 1) for text in TEXTS for item in (0, 1)]
    with shop([sale(key, n) for n, key in enumerate(given)]) as db:
        for name in ("sales", "by_shop"):
            key = db.schema(name).key
            for reverse in (False, True):
                rows = db.scan(name, reverse=reverse).rows()
                for asked in [(ANY, ANY, text) for text in TEXTS] + [(ANY, 1, "q" * 490)]:
                    found = db.scan(name, slice=asked, reverse=reverse).rows()
                    assert repr(found) == repr(matching(rows, key, asked))


def check_measures(db: Database, given: tuple[Any, ...]) -> None:
    expected = matching(db.scan("sales").rows(), db.schema("sales").key, given)

    def values(column: str) -> list[Any]:
        return [row[column] for row in expected if row[column] is not None]

    found = db.aggregate(
        "sales",
        *("count(*)", "count(amount)", "sum(amount)", "max(amount)", "min(amount)"),
        *("sum(price)", "max(price)", "min(weight)", "max(weight)", "min(note)", "max(shop)"),
        slice=given,
    )
    assert found["count(*)"] == len(expected)
    assert found["count(amount)"] == len(values("amount"))
    assert found["sum(amount)"] == (sum(values("amount")) if values("amount") else None)
    assert found["max(amount)"] == max(values("amount"), default=None)
    assert found["min(amount)"] == min(values("amount"), default=None)
    prices = values("price")
    cents = sum(int(EXACT.multiply(price, Decimal(100))) for price in prices)
    assert found["sum(price)"] == (EXACT.scaleb(Decimal(cents), Decimal(-2)) if prices else None)
    assert found["max(price)"] == max(prices, default=None)
    weights = values("weight")
    numbers = [weight for weight in weights if not math.isnan(weight)]
    top = math.nan if len(numbers) < len(weights) else max(weights, default=None)
    assert repr(found["max(weight)"]) == repr(top)
    low = min(numbers, default=math.nan if weights else None)
    assert repr(found["min(weight)"]) == repr(low)
    assert found["min(note)"] == min(values("note"), default=None)
    assert found["max(shop)"] == max((row["shop"] for row in expected), default=None)


TYPES: dict[str, tuple[DataType, st.SearchStrategy[Any]]] = {
    "text": (STRING, st.none() | st.sampled_from(TEXTS)),
    "int": (INT, st.none() | st.integers(-2, 2)),
    "bigint": (BIGINT, st.integers(-2, 2)),
    "double": (DOUBLE, st.none() | st.sampled_from([-1.0, 0.0, math.inf, math.nan])),
    "bool": (BOOLEAN, st.none() | st.booleans()),
}


@settings(max_examples=150)
@given(st.data())
def test_patterns_jump_over_nothing_that_matches(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))
    down = tuple(data.draw(st.booleans()) for _ in names)
    codec = KeyCodec(tuple(TYPES[name][0] for name in names), down)
    values = data.draw(st.lists(st.tuples(*(TYPES[name][1] for name in names)), max_size=25))
    every = {codec.encode_one(value): value for value in values}
    chosen = data.draw(st.sets(st.integers(0, len(names) - 1), min_size=1))
    wanted = {at: data.draw(TYPES[names[at]][1]) for at in chosen}
    pattern = KeyPattern(codec, wanted)
    encoded = sorted(every)
    matching = [key for key in encoded if pattern.fits(every[key])]
    for key in matching:
        assert pattern.matches(key)
    for key in encoded:
        gap = pattern.gap(key)
        if gap is None:
            assert key in matching or len(key) >= 496
            continue
        assert key not in matching
        after, before = pattern.after(key, gap), pattern.before(key, gap)
        assert after is None or after > key
        assert before is None or before <= key
        assert not [k for k in matching if k > key and (after is None or k < after)]
        assert not [k for k in matching if k < key and (before is None or k >= before)]


@pytest.fixture
def sales(db: Database, catch_up: CatchUp) -> Database:
    db.sql(SALES)
    db.put(
        "sales",
        [
            {"region": r, "year": y, "shop": s, "item": 1, "amount": y - 2000}
            for r in ("eu", "us")
            for y in (2022, 2023, 2024)
            for s in ("x", "y")
        ],
    )
    catch_up()
    return db


def test_spellings(sales: Database) -> None:
    found = sales.scan("by_shop", slice=(ANY, 2023, "y")).tuples()
    assert [row[:3] for row in found] == [("eu", 2023, "y"), ("us", 2023, "y")]
    assert sales.scan("by_shop", slice={"year": 2023, "shop": "y"}).tuples() == found
    assert len(sales.scan("by_shop", slice=(ANY, 2023))) == 4
    assert len(sales.scan("by_shop", slice="eu")) == 6
    assert len(sales.scan("by_shop", slice=())) == 12
    found = sales.scan("by_shop", slice=("eu", ANY, "x"), range=(2023, None)).tuples()
    assert [row[1] for row in found] == [2023, 2024]
    assert repr(ANY) == "ANY"
    assert pickle.loads(pickle.dumps(ANY)) is ANY


def test_slices_of_views_in_falling_order(sales: Database) -> None:
    found = sales.scan("ranked", slice=(ANY, "us"))
    assert [(row["year"], row["region"]) for row in found] == [
        (year, "us") for year in (2024, 2024, 2023, 2023, 2022, 2022)
    ]
    assert sales.scan("ranked", slice=(ANY, "us"), reverse=True).rows() == found.rows()[::-1]
    assert sales.aggregate("ranked", "count(*)", slice={"region": "us"}) == {"count(*)": 6}


def test_measures(sales: Database) -> None:
    assert sales.aggregate("by_shop", "count(*)", "SUM( amount )", slice=(ANY, 2024)) == {
        "count(*)": 4,
        "SUM( amount )": 96,
    }
    assert sales.aggregate("by_shop", "max(year)", prefix="eu", range=(None, 2024)) == {
        "max(year)": 2023
    }
    nothing = sales.aggregate("by_shop", "count(*)", "sum(n)", "min(shop)", prefix="mars")
    assert nothing == {"count(*)": 0, "sum(n)": None, "min(shop)": None}
    with sales.snapshot() as snapshot:
        assert snapshot.aggregate("sales", "count(*)") == {"count(*)": 12}
    with sales.session() as session:
        assert session.aggregate("by_shop", "count(*)", slice=(ANY, 2024)) == {"count(*)": 4}
        assert len(session.scan("by_shop", slice=(ANY, 2024))) == 4
    for wrong, error, message in (
        ((), InvalidRow, "no measure"),
        (("median(n)",), InvalidRow, r"is no measure; there are count\(\*\)"),
        (("sum(*)",), InvalidRow, "needs a column"),
        (("sum(no)",), UnknownName, "by_shop has no column no"),
        (("sum(shop)",), TypeMismatch, "sum is not defined for shop, which is STRING"),
    ):
        with pytest.raises(error, match=message):
            sales.aggregate("by_shop", *wrong)


def test_what_is_refused(sales: Database) -> None:
    with pytest.raises(InvalidRow, match="a prefix or a slice, not both"):
        sales.scan("by_shop", prefix="eu", slice=(ANY, 2023))
    with pytest.raises(InvalidRow, match="the key of by_shop is"):
        sales.scan("by_shop", slice=(ANY, ANY, ANY, 1))
    with pytest.raises(InvalidRow, match="n is not in the key of by_shop"):
        sales.scan("by_shop", slice={"n": 1})
    with pytest.raises(InvalidRow, match="by_shop: key column 2"):
        sales.scan("by_shop", slice=(ANY, "soon"))


def test_pages(sales: Database, catch_up: CatchUp) -> None:
    first = sales.scan("by_shop", limit=5)
    assert (len(first), sales.scan("by_shop", limit=12).next) == (5, None)
    assert first.next is not None
    assert sales.scan("by_shop", limit=0).next is None
    # A page goes on after its key, whatever has come and gone since.
    sales.sql("DELETE FROM sales WHERE region = 'eu'")
    catch_up()
    assert len(sales.scan("by_shop", after=first.next)) == 6
    with pytest.raises(InvalidToken, match="another scan"):
        sales.scan("by_shop", after=first.next, reverse=True)
    with pytest.raises(InvalidToken, match="another scan"):
        sales.scan("sales", after=first.next)
    with pytest.raises(InvalidToken, match="another scan"):
        sales.scan("by_shop", prefix="us", after=first.next)
    with pytest.raises(InvalidToken):
        sales.scan("by_shop", after="c2.x")
    assert first.next is not None
    other = write_token("c2", "0a1b", read_token("c2", database_id(sales.store), first.next, ""))
    with pytest.raises(InvalidToken, match=r"scan is of another database \(0a1b\)"):
        sales.scan("by_shop", after=other)


def test_pages_of_one_epoch(sales: Database, catch_up: CatchUp) -> None:
    with sales.snapshot() as snapshot:
        before = snapshot.scan("by_shop").rows()
        page = sales.scan("by_shop", limit=5, at=snapshot.epoch)
        found = page.rows()
        sales.sql("DELETE FROM sales WHERE region = 'us'")
        catch_up()
        while page.next:
            page = sales.scan("by_shop", limit=5, at=snapshot.epoch, after=page.next)
            found += page.rows()
        assert found == before
        assert page.epoch == snapshot.epoch
        kept = snapshot.epoch
        assert len(sales.scan("sales", at=kept)) == 12
        assert sales.get("by_shop", ("us", 2022, "x"), at=kept) is not None
        assert len(sales.sql("SELECT * FROM by_shop", at=kept)) == 12
    assert len(sales.scan("by_shop", at=sales.status().epoch)) == 6
    with pytest.raises(EpochGone, match=rf"epoch {kept} is not kept; a snapshot keeps one"):
        sales.scan("by_shop", at=kept)
    with pytest.raises(EpochGone, match="not published yet"):
        sales.scan("by_shop", at=10_000)
    with pytest.raises(InvalidReadPoint, match="number of an epoch"):
        sales.scan("by_shop", at=True)


def test_how_a_query_was_answered(sales: Database, catch_up: CatchUp) -> None:
    def how(text: str) -> str:
        return sales.sql(text).how

    assert how("SELECT * FROM by_shop WHERE region = 'eu' AND year = 2022 AND shop = 'x'") == (
        "by_shop by key"
    )
    assert how("SELECT * FROM by_shop WHERE region = 'eu' AND year IN (2022, 2024) AND n > 0") == (
        "by_shop by the beginning of its key"
    )
    assert how("SELECT * FROM by_shop WHERE year = 2022") == "by_shop by scanning it"
    text = """SELECT s.item FROM sales s JOIN by_shop b ON s.item = b.n
        WHERE s.region = 'eu' AND s.year = 2022 AND b.n = 1"""
    assert how(text) == "by_shop by scanning it, sales by the beginning of its key"
    assert how("SELECT 1 AS one") == "without reading"
    assert how("SHOW TABLES") == ""
    text = "SELECT shop, n FROM by_shop WHERE region = 'eu' AND year IN (2022, 2030) ORDER BY shop"
    assert sales.sql(text).tuples() == [("x", 1), ("y", 1)]


def test_a_query_at_the_published_cut(sales: Database, catch_up: CatchUp) -> None:
    sales.sql("DELETE FROM sales WHERE region = 'us'")
    text = "SELECT COUNT(*) AS n FROM sales"
    assert sales.sql(text).one() == {"n": 6}
    stable = sales.sql(text, at="stable")
    assert (stable.one(), stable.epoch) == ({"n": 12}, sales.status().epoch)
    catch_up()
    assert sales.sql(text, at="stable").one() == {"n": 6}
