"""Nothing that a client sends keeps the interpreter for long.

Times of a shared machine prove little, so these tests count what one call that lets no other thread
run is given to do; docs/serving.md has the times.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import httpx
import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeep.serve.http import pieces, values
from viewkeep.serve.http.values import dumps
from viewkeep.serve.limits import TooLarge
from viewkeep.serve.mysql import literals
from viewkeep.serve.mysql.faults import Fault
from viewkeep.serve.mysql.literals import SplitStatement, split
from viewkeep.sql.statements.bulk_insert import split_rows

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

    Serve = Callable[..., Server]

LARGE = 2 << 20  # characters; times are in proportion
MOST = 1_000


class Counted(values._Decoder):
    """A decoder that notes how much it was given at a time, and in all."""

    def __init__(self) -> None:
        super().__init__()
        scan = self.scan_once
        self.largest = self.total = 0

        def counting(text: str, at: int) -> Any:
            self.largest = max(self.largest, len(text) - at)
            self.total += len(text) - at
            return scan(text, at)

        self.scan_once = counting


BODIES = {
    "empty lists": '{"rows":[' + "[]," * (LARGE // 3) + "[]]}",
    "empty lists in a list": '{"rows":[[' + "[]," * (LARGE // 3) + "[]]]}",
    "lists that fit a piece": '{"rows":[' + ("[" + "[]," * 20_000 + "[]],") * 30 + "1]}",
    "whole numbers": '{"rows":[' + "1," * (LARGE // 2) + "1]}",
    "texts": '{"rows":[' + '"a",' * (LARGE // 4) + "1]}",
    "members": '{"rows":[{' + '"a":[],' * (LARGE // 7) + '"b":1}]}',
    "deep": '{"rows":' + "[" * (LARGE // 2) + "]" * (LARGE // 2) + "}",
    "chains": '{"rows":[' + ("[" * 14 + "[]," * 21_900 + "1" + "]" * 14 + ",") * 30 + "1]}",
    "chains behind numbers": '{"rows":['
    + ("[1," * 14 + "[]," * 21_900 + "1" + "]" * 14 + ",") * 30
    + "1]}",
    "brackets in texts": '{"rows":[' + '{"a":"},{},[],"},' * 900 + '{"a":"' + "}," * LARGE + '"}]}',
    "not ended": '{"rows":[' + '{"a":1},' * (LARGE // 8),
    "one text": '{"rows":["' + "\\n" * (LARGE // 2) + '"]}',
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_read_in_pieces(name: str) -> None:
    text, decoder = BODIES[name], Counted()
    try:
        read = pieces.JsonReader(decoder, MOST).read(text)
    except (ValueError, TooLarge, RecursionError):
        read = None
    if read is not None:
        assert read == json.loads(text)
    assert decoder.largest <= pieces.WHOLE + 2
    assert decoder.total <= (3 + pieces.DEEPEST) * len(text), "little is read in vain"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.just(Decimal("1.50")),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=40,
    ),
    st.integers(2, 40),
    st.sampled_from([None, 1]),
)
def test_pieces_are_the_whole(value: Any, size: int, indent: int | None) -> None:
    text = json.dumps(value, default=str, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "WHOLE", size)
        patch.setattr(pieces, "_WINDOWS", (1, size // 2, size))
        patch.setattr(pieces, "DEEPEST", 1_000)
        patch.setattr(pieces, "_WRITTEN", size)
        read = pieces.JsonReader(values._Decoder(), 1_000_000).read(text)
        assert read == json.loads(text)
        assert json.loads(dumps(value)) == read


@given(st.text(alphabet='{}[],:"\\ 12truefalsn.e', max_size=60), st.integers(2, 9))
def test_what_is_no_json_is_none_in_pieces(text: str, size: int) -> None:
    def outcome(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except ValueError:
            return ValueError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "WHOLE", size)
        patch.setattr(pieces, "_WINDOWS", (1, size // 2, size))
        reader = pieces.JsonReader(values._Decoder(), 1_000_000)
        assert outcome(lambda: reader.read(text)) == outcome(
            lambda: json.loads(text, cls=values._Decoder)
        )


def test_an_answer_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0
    encode = values._encode

    def counting(value: object) -> str:
        nonlocal longest
        text = encode(value)
        longest = max(longest, len(text))
        return text

    monkeypatch.setattr(values, "_encode", counting)
    answer = {"rows": [{"id": n, "s": "x" * (n % 3_000)} for n in range(20_000)], "next": None}
    assert json.loads(dumps(answer)) == answer
    assert longest < 8 * pieces._WRITTEN


def test_the_errors_of_large_bodies_say_where(client: httpx.Client) -> None:
    body = '{"rows": [' + '{"id": 1, "story": 2}, ' * 9_000 + '{"id": ]}'
    answer = client.put(
        "/v1/votes/rows", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert str(body.index("]}")) in answer.text


def test_limits_of_requests(site: Database, serve: Serve) -> None:
    settings: dict[str, Any] = {
        "max_written": 10, "max_sql": 200, "max_tokens": 90, "max_statements": 3,
        "max_parameters": 2, "max_key": 20,
    }  # fmt: skip
    server = serve(site, mysql_port=0, **settings)
    with httpx.Client(base_url=server.http_url) as client:

        def refused(answer: httpx.Response, status: int, kind: str, said: str) -> None:
            assert answer.status_code == status, answer.text
            assert answer.json()["error"]["kind"] == kind
            assert said in answer.json()["error"]["message"]

        rows = [{"id": n, "story": 1} for n in range(11)]
        refused(client.put("/v1/votes/rows", json={"rows": rows}), 413, "TooLarge", "10 rows")
        assert client.put("/v1/votes/rows", json={"rows": rows[:10]}).status_code == 200
        keys = client.post("/v1/votes/delete", json={"keys": list(range(11))})
        refused(keys, 413, "TooLarge", "10 keys")
        for wrong in ({"rows": 1}, {"rows": [1]}, {"keys": 1}):
            path = "/v1/votes/delete" if "keys" in wrong else "/v1/votes/rows"
            answer = client.request("POST", path, json=wrong)
            refused(answer, 400, "InvalidRequest", "body.")
        sale = {"region": "x" * 21, "year": 1, "item": 1}
        refused(client.put("/v1/sales/rows", json={"rows": [sale]}), 400, "InvalidRow", "20 char")
        deleted = client.post("/v1/sales/delete", json={"keys": [sale]})
        refused(deleted, 400, "InvalidRow", "20 char")

        def sql(text: str, *parameters: Any) -> httpx.Response:
            return client.post("/v1/sql", json={"sql": text, "parameters": parameters})

        refused(sql("SELECT 1" + " " * 200), 413, "TooLarge", "200 characters")
        refused(sql("SELECT 1" + "+1" * 45), 413, "TooLarge", "90 tokens")
        assert sql("SELECT 1" + "+1" * 44).status_code == 200
        refused(sql("SELECT 1; " * 4), 413, "TooLarge", "3 statements")
        assert sql("SELECT 1; " * 3).status_code == 200
        refused(sql("SELECT ?, ?, ?", 1, 2, 3), 413, "TooLarge", "2 parameters")
        many = client.post("/v1/sql", json={"sql": "SELECT 1", "parameters": [1] * 70_000})
        assert many.status_code in (400, 413)

    from pymysql.constants import CLIENT

    with pymysql.connect(
        host="127.0.0.1", port=server.mysql_port or 0, user="x", database="viewkeep",
        client_flag=CLIENT.MULTI_STATEMENTS,
    ) as connection:  # fmt: skip
        cursor = connection.cursor()

        def fails(code: int, text: str) -> None:
            with pytest.raises(pymysql.err.MySQLError) as raised:
                cursor.execute(text)
            assert raised.value.args[0] == code

        fails(1153, "SELECT " + "a + " * 100 + "a")
        fails(1153, "SELECT 1" + "+id" * 45 + " FROM votes")
        fails(1153, "INSERT INTO votes SELECT 1" + "+id" * 45 + ", 1 FROM votes")
        fails(1153, "SELECT 1; " * 4)
        fails(1153, "REPLACE INTO votes VALUES " + ", ".join(f"({n}, 1)" for n in range(11)))
        fails(1071, f"REPLACE INTO sales VALUES ('{'x' * 21}', 1, 1, 1)")
        cursor.execute(f"SELECT '{'x' * 1000}'")
        assert cursor.fetchall() == (("x" * 1000,),), "constants do not count"


def test_long_inserts_of_constants_are_not_parsed(site: Database, serve: Serve) -> None:
    """They make no syntax tree, so `max_sql` does not count; the limits of rows do."""
    settings: dict[str, Any] = {"max_written": 200, "max_sql": 400, "max_key": 30}
    server = serve(site, **settings)
    with httpx.Client(base_url=server.http_url) as client:

        def insert(table: str, rows: list[str], end: str = "") -> httpx.Response:
            text = f"INSERT INTO {table} VALUES {', '.join(rows)}{end}"
            assert len(text) > 400
            return client.post("/v1/sql", json={"sql": text})

        votes = [f"({n}, 7)" for n in range(100, 300)]
        done = insert("votes", votes)
        assert (done.status_code, done.json()["affected"]) == (200, 200)
        token = done.headers["Viewkeep-Session"]
        assert insert("votes", [*votes[:150], "(1, 1)"]).json()["error"]["kind"] == "DuplicateKey"
        now = client.get("/v1/votes/aggregate", headers={"Viewkeep-Session": token})
        assert now.json()["measures"] == {"count(*)": 209}

        def refused(answer: httpx.Response, status: int, kind: str, said: str) -> None:
            assert answer.status_code == status, answer.text
            assert answer.json()["error"]["kind"] == kind
            assert said in answer.json()["error"]["message"]

        refused(insert("votes", [*votes, "(300, 7)"]), 413, "TooLarge", "200 rows")
        refused(insert("votes", [*votes[:-1], "(299, 3 + 4)"]), 413, "TooLarge", "400 characters")
        refused(insert("votes", votes, "; SELECT 1"), 413, "TooLarge", "400 characters")
        refused(insert("votes", [*votes[:-1], "(299, 'x')"]), 413, "TooLarge", "400 characters")
        sales = [f"('eu', {n}, 1, 1)" for n in range(150)]
        refused(insert("sales", [*sales, f"('{'x' * 31}', 1, 1, 1)"]), 400, "InvalidRow", "30 char")
    assert site.get("votes", 299) == {"id": 299, "story": 7}


@pytest.mark.parametrize(
    "value",
    [
        "'" + "''" * 500_000 + "'",
        "'" + "a''" * 300_000 + "'",
        "1" * 1_000_000 + "e1",
        " " * 1_000_000,
    ],
    ids=["quotes", "letters and quotes", "a number", "spaces"],
)
def test_a_long_value_of_an_insert_is_given_up_soon(value: str) -> None:
    """One match lets no other thread run: strings of many quotes are not for it."""
    assert split_rows(f"INSERT INTO t VALUES (1, 2), (3, {value})") is None


def outcome(text: str) -> Any:
    """Statements with spaces that do not count made one, or the error's number."""
    try:
        found = split(text)
    except Fault as fault:
        return fault.code
    return [(re.sub(r"\s+", " ", one.shape), one.values, one.parameters) for one in found]


PARTS = st.sampled_from(
    ["'", "''", '"', '""', "\\", "\\'", "`", "``", "/*", "*/", "/*!", "-- ", "--", "#", "\n", " ",
     "x", "N", "_binary", "_utf8", "1", "1.5", "2e3", "0x41", "X'41'", ";", "?", "-", "*", "(", ",",
     "select", "@a", "é", "\t"]
)  # fmt: skip


@given(st.lists(PARTS, max_size=25).map("".join), st.integers(1, 5))
def test_long_texts_are_split_like_short_ones(text: str, size: int) -> None:
    whole = outcome(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(literals, "_PIECE", size)
        assert outcome(text) == whole


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a + " * 90_000,
        "SELECT '" + "''" * 500_000 + "'",
        'SELECT "' + "\\n" * 500_000 + '"',
        "/*" + "* " * 500_000 + "*/SELECT 1",
        "-- x\n" * 200_000,
        " " * 1_000_000,
        "\t" * 1_000_000,
        "`" + "``" * 500_000 + "`",
        "`" + "a" * 1_000_000 + "`",
        "1" * 1_000_000,
        ("a" + "\t" * 1_000) * 1_000,
        "SELECT '" + "a" * 1_000_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_long_text_is_matched_in_pieces(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No match takes more than a piece, but for runs of one kind of character, which are fast."""
    longest = 0

    class Counting:
        def __init__(self, pattern: re.Pattern[str]):
            self._pattern = pattern

        def match(self, *arguments: Any) -> re.Match[str] | None:
            nonlocal longest
            found = self._pattern.match(*arguments)
            if found is not None and len(set(found[0])) > 1:
                longest = max(longest, len(found[0]))
            return found

    monkeypatch.setattr(literals, "_LONG_TOKEN", Counting(literals._LONG_TOKEN))
    inside = {quote: Counting(pattern) for quote, pattern in literals._INSIDE.items()}
    monkeypatch.setattr(literals, "_INSIDE", inside)
    outcome(text)
    assert longest <= literals._PIECE


@pytest.fixture
def heart() -> Iterator[Callable[[], bool]]:
    """Another thread, which must have its turns."""
    beats, stop = [0], threading.Event()

    def beat() -> None:
        while not stop.wait(0.001):
            beats[0] += 1

    thread = threading.Thread(target=beat)
    thread.start()
    yield lambda: beats[0] > 0
    stop.set()
    thread.join()


def test_a_server_lives_while_large_bodies_come(
    server: Server, client: httpx.Client, heart: Callable[[], bool]
) -> None:
    """All of them at once, and between them requests that are answered."""
    bodies = [body.encode() for body in BODIES.values()]
    statuses: list[int] = []

    def send(body: bytes) -> None:
        headers = {"content-type": "application/json"}
        url = f"{server.http_url}/v1/votes/rows"
        statuses.append(httpx.put(url, content=body, headers=headers, timeout=90).status_code)

    threads = [threading.Thread(target=send, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert client.get("/health").status_code == 200
        assert client.get("/v1/scores/row?key=1").json()["row"]["votes"] == 3
    for thread in threads:
        thread.join()
    assert set(statuses) <= {400, 413}
    assert len(statuses) == len(bodies)
    assert heart()


def test_statements_keep_their_meaning() -> None:
    text = "SELECT '" + "a''\\n" * 40_000 + "', x'41', `b``c` /* ; */ -- ;\n; SELECT 2"
    first, second = split(text)
    assert first == SplitStatement("SELECT \0s, \0b, `b``c`", ("a'\n" * 40_000, b"A"))
    assert second.values == (2,)
