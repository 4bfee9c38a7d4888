"""Prepared statements of the binary protocol, and the other commands."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from .raw import CAPABILITIES, DEPRECATE_EOF, RawClient

if TYPE_CHECKING:
    from tests.serve.mysql.conftest import Running


@pytest.fixture(params=[False, True], ids=["eof", "no-eof"])
def client(site: Running, request: pytest.FixtureRequest) -> Iterator[RawClient]:
    with RawClient(site.port, CAPABILITIES | (DEPRECATE_EOF if request.param else 0)) as made:
        yield made


TABLE = """CREATE TABLE IF NOT EXISTS typed (id INT PRIMARY KEY, big BIGINT, ratio DOUBLE,
    price DECIMAL(10,2), name VARCHAR(50), data VARBINARY(50), day DATE, moment DATETIME(6),
    flag BOOLEAN)"""


def test_values_of_all_types(client: RawClient) -> None:
    client.query(TABLE)
    client.query("DELETE FROM typed")
    number, count, columns = client.prepare("INSERT INTO typed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
    assert (count, columns) == (9, [])
    moment = (2024, 2, 29, 12, 30, 59, 123456)
    day = (1999, 1, 2, 0, 0, 0, 0)
    values = (1, -(2**40), 1.5, "-2.50", "it's ?", b"\0'\\", day, moment, 1)
    assert client.execute(number, *values) == []
    client.execute(number, 2, *[None] * 8)
    read, count, columns = client.prepare("SELECT * FROM typed WHERE id = ? AND name <> '?'")
    assert count == 1
    names = ["id", "big", "ratio", "price", "name", "data", "day", "moment", "flag"]
    assert columns == names
    expected = (1, -(2**40), 1.5, b"-2.50", b"it's ?", b"\0'\\", day, moment, 1)
    assert client.execute(read, 1) == [expected]
    assert client.execute(read, 1, types=False) == [expected], "the types are those of before"
    assert client.execute(read, 77) == []
    every, _, _ = client.prepare("SELECT id, big, name FROM typed ORDER BY id LIMIT ?")
    assert client.execute(every, 5) == [(1, -(2**40), b"it's ?"), (2, None, None)]
    assert client.execute(every, 1) == [(1, -(2**40), b"it's ?")]


def test_a_value_is_never_read_as_sql(client: RawClient) -> None:
    client.query("CREATE TABLE IF NOT EXISTS quoted (s VARCHAR(99) PRIMARY KEY, n INT)")
    put, _, _ = client.prepare("REPLACE INTO quoted VALUES (?, ?)")
    get, _, _ = client.prepare("SELECT s, n FROM quoted WHERE s = ?")
    texts = ["'; DROP TABLE quoted; --", "\\'", "a''b", '"', "?", "`", "\\", "%_", "☃", ""]
    for n, text in enumerate(texts):
        client.execute(put, text, n - 5)
        assert client.execute(get, text) == [(text.encode(), n - 5)]


def test_long_values_come_in_pieces(client: RawClient) -> None:
    client.query("CREATE TABLE IF NOT EXISTS pieces (id INT PRIMARY KEY, s LONGTEXT)")
    number, _, _ = client.prepare("REPLACE INTO pieces VALUES (?, ?)")
    for _ in range(30):
        client.command(0x18, struct.pack("<IH", number, 1) + b"x" * 10_000)
    body = struct.pack("<IBI", number, 0, 1) + b"\0\1" + struct.pack("<HH", 8, 253)
    client.command(0x17, body + struct.pack("<q", 1))
    assert client.rows() == []
    read, _, _ = client.prepare("SELECT s FROM pieces WHERE id = 1")
    assert client.execute(read) == [(b"x" * 300_000,)]
    client.command(0x1A, struct.pack("<I", number))
    assert client.receive()[0] == 0


def test_statements_end(client: RawClient) -> None:
    number, _, _ = client.prepare("SELECT 1")
    assert client.execute(number) == [(1,)]
    client.command(0x19, struct.pack("<I", number))
    with pytest.raises(RuntimeError, match="Unknown prepared statement") as raised:
        client.execute(number)
    assert raised.value.args[1] == 1243
    for text, code in (("SELECT * FROM nowhere WHERE id = ?", 1146), ("SELECT ? FROM", 1064)):
        with pytest.raises(RuntimeError) as refused:
            client.prepare(text)
        assert refused.value.args[1] == code
    client.command(0x1F)
    assert client.receive()[0] == 0


def test_too_many_statements_are_refused(client: RawClient) -> None:
    for _ in range(1000):
        client.prepare("DELETE FROM t")
    with pytest.raises(RuntimeError, match="at most 1000") as raised:
        client.prepare("DELETE FROM t")
    assert raised.value.args[1] == 1461


def test_what_is_too_long_to_be_parsed_is_not_prepared(client: RawClient) -> None:
    with pytest.raises(RuntimeError, match=r"3,000 tokens.*1153"):
        client.prepare("SELECT ?" + " + 1.5" * 2_000 + " FROM votes")
    with pytest.raises(RuntimeError, match=r"65,536 characters.*1153"):
        client.prepare("SELECT ?" + " " * 66_000 + "+ id FROM votes")


def test_other_commands(client: RawClient) -> None:
    client.command(0x0E)
    assert client.receive()[0] == 0
    client.command(0x02, b"viewkeep")
    assert client.receive()[0] == 0
    client.command(0x02, b"elsewhere")
    assert client.receive()[:3] == b"\xff" + struct.pack("<H", 1049)
    client.command(0x09)
    assert client.receive().startswith(b"Queries")
    client.command(0x1B, b"\0\0")
    assert client.receive()[0] == 0xFE
    client.command(0x11, b"other\0\0\0")
    assert client.receive()[0] == 0
    client.command(0x7F)
    assert client.receive()[:3] == b"\xff" + struct.pack("<H", 1047)
    client.command(0x01)
    with pytest.raises(ConnectionError):
        client.receive()
