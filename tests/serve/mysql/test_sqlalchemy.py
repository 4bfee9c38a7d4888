"""SQLAlchemy as it is, with PyMySQL: Core, the ORM, reflection."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects.mysql import insert

if TYPE_CHECKING:
    from tests.serve.mysql.conftest import Running


@pytest.fixture
def engine(site: Running) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"mysql+pymysql://any@127.0.0.1:{site.port}/viewkeep")
    yield made
    made.dispose()


def test_core(engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    items = sa.Table(
        "items",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(30), nullable=False),
        sa.Column("price", sa.Numeric(10, 2)),
        sa.Column("sold", sa.Boolean, default=False),
        sa.Column("at", sa.DateTime),
        sa.Column("data", sa.LargeBinary),
    )
    metadata.create_all(engine)
    metadata.create_all(engine)  # it asks first, and creates nothing twice
    with engine.begin() as connection:
        made = connection.execute(
            items.insert().values(name="a", price=Decimal("1.50"), at=dt.datetime(2024, 1, 2, 3, 4))
        )
        first = made.inserted_primary_key[0]
        connection.execute(
            items.insert(),
            [{"name": f"n{n}", "sold": n % 2 == 0, "data": b"\0'"} for n in range(5)],
        )
        again = insert(items).values(id=first, name="b")
        connection.execute(again.on_duplicate_key_update(name=again.inserted.name))
    with engine.connect() as connection:
        row = connection.execute(sa.select(items).where(items.c.id == first)).one()
        assert (row.name, row.price, row.sold, row.at) == (
            "b", Decimal("1.50"), False, dt.datetime(2024, 1, 2, 3, 4),
        )  # fmt: skip
        sold = sa.select(sa.func.count()).where(items.c.sold == sa.true())
        assert connection.execute(sold).scalar_one() == 3
        wanted = sa.select(items.c.name).where(items.c.name.in_(["n1", "n3"])).order_by(items.c.id)
        assert connection.execute(wanted.limit(1).offset(1)).scalars().all() == ["n3"]
        grouped = (
            sa.select(items.c.sold, sa.func.count().label("n"))
            .group_by(items.c.sold)
            .having(sa.func.count() > 1)
            .order_by(sa.desc("n"), items.c.sold)
        )
        assert [tuple(r) for r in connection.execute(grouped)] == [(False, 3), (True, 3)]
        connection.execute(sa.update(items).where(items.c.sold).values(price=9))
        changed = connection.execute(sa.delete(items).where(items.c.price == 9))
        assert changed.rowcount == 3
        connection.commit()


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(50))
    books: orm.Mapped[list[Book]] = orm.relationship(back_populates="author")


class Book(Base):
    __tablename__ = "book"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str] = orm.mapped_column(sa.String(100))
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("author.id"))
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")


def test_the_orm_and_a_view(engine: sa.Engine) -> None:
    Base.metadata.create_all(engine)
    shelf = sa.Table(
        "shelf", sa.MetaData(), sa.Column("name", sa.String(50)), sa.Column("n", sa.Integer)
    )
    with engine.connect() as connection:
        connection.execute(
            sa.text(
                "CREATE VIEW shelf AS SELECT author.name, COUNT(*) AS n FROM author "
                "JOIN book ON book.author_id = author.id GROUP BY author.name"
            )
        )
    with orm.Session(engine) as session:
        ann = Author(name="Ann", books=[Book(title="One"), Book(title="Two")])
        session.add_all([ann, Author(name="Bob", books=[Book(title="Three")])])
        session.commit()
        found = session.scalars(
            sa.select(Author).join(Author.books).where(Book.title == "Three")
        ).one()
        assert found.name == "Bob"
        assert session.get(Author, ann.id) is ann
        loaded = session.scalars(
            sa.select(Author).options(orm.selectinload(Author.books)).order_by(Author.name)
        ).all()
        assert [[book.title for book in author.books] for author in loaded] == [
            ["One", "Two"],
            ["Three"],
        ]
        assert session.execute(sa.select(shelf).order_by(shelf.c.name)).all() == [
            ("Ann", 2),
            ("Bob", 1),
        ]
        ann.books[0].title = "Zero"
        session.delete(ann.books[1])
        session.commit()
        assert session.execute(sa.select(shelf.c.n).where(shelf.c.name == "Ann")).scalar_one() == 1
        titles = session.scalars(sa.select(Book.title).order_by(Book.title)).all()
        assert titles == ["Three", "Zero"]


def test_reflection(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.execute(
            sa.text(
                "CREATE TABLE reflected (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20) NOT "
                "NULL DEFAULT 'x', price DECIMAL(8,3), flag BOOLEAN, at DATETIME(6), raw LONGBLOB)"
            )
        )
        connection.execute(
            sa.text(
                "CREATE VIEW reflected_view AS "
                "SELECT name, COUNT(*) AS n FROM reflected GROUP BY name"
            )
        )
    inspector = sa.inspect(engine)
    assert "reflected" in inspector.get_table_names()
    assert "reflected_view" in inspector.get_view_names()
    assert inspector.has_table("reflected")
    assert not inspector.has_table("not_there")
    table = sa.Table("reflected", sa.MetaData(), autoload_with=engine)
    assert [column.name for column in table.primary_key] == ["id"]
    types = {column.name: column.type.compile(engine.dialect) for column in table.columns}
    assert types == {
        "id": "INTEGER", "name": "VARCHAR(20)", "price": "DECIMAL(8, 3)", "flag": "TINYINT(1)",
        "at": "DATETIME(6)", "raw": "LONGBLOB",
    }  # fmt: skip
    assert not table.c.name.nullable
    assert table.c.price.nullable
    assert table.c.id.autoincrement
    assert inspector.get_indexes("reflected") == []
    assert inspector.get_foreign_keys("reflected") == []
    view = sa.Table("reflected_view", sa.MetaData(), autoload_with=engine)
    assert list(view.columns.keys()) == ["name", "n"]
    sa.MetaData().reflect(engine, views=True)


def test_a_rollback_of_writes_is_an_error(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE TABLE undone (id INT PRIMARY KEY)"))
        connection.execute(sa.text("INSERT INTO undone VALUES (1)"))
        with pytest.raises(sa.exc.DBAPIError, match="not undone"):
            connection.rollback()
