"""Users have roles: what each may do, over HTTP and in the one table that says so."""

from __future__ import annotations

import asyncio
import base64
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi.routing import APIWebSocketRoute
from starlette.routing import Route
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError

from viewkeep.errors import InvalidSetting
from viewkeep.serve.app import create_app
from viewkeep.serve.credentials import Credentials
from viewkeep.serve.guesses import FREE, Guesses
from viewkeep.serve.http.feeds import CLOSE_CODES
from viewkeep.serve.mysql.session.session import _HANDLERS
from viewkeep.serve.roles import (
    ROUTES,
    STATEMENTS,
    Role,
    role_for_mysql,
    role_for_request,
    role_for_sql,
)
from viewkeep.serve.service import Service
from viewkeep.serve.settings import Settings
from viewkeep.serve.users import new_user, read_users, write_users

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

    Serve = Callable[..., Server]

READ, WRITE, ADMIN = Role.READ, Role.WRITE, Role.ADMIN
SLOW_SECONDS = 30


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One user of each role, whose password is the name with an `x`."""
    file: Path = tmp_path_factory.mktemp("users") / "site.users"
    names = {"rita": "read", "willi": "write", "ada": "admin"}
    write_users(file, [new_user(name, role, f"{name}x") for name, role in names.items()])
    return file


@pytest.fixture
def ask(site: Database, serve: Serve, users: Path) -> Iterator[Callable[..., httpx.Response]]:
    """Ask a server with these users, as one of them."""
    server = serve(site, users=users)
    with httpx.Client(base_url=server.http_url, timeout=SLOW_SECONDS) as client:

        def ask(name: str, method: str, path: str, **options: Any) -> httpx.Response:
            return client.request(method, path, auth=(name, f"{name}x"), **options)

        yield ask


def message(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    error: dict[str, str] = answer.json()["error"]
    return error["message"]


async def role_of(credentials: Credentials, *given: Any) -> Role | None:
    grant = await credentials.grant(*given)
    return None if grant is None else grant.role


def routes_of(routes: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Method and path of routes, those of included routers too."""
    for route in routes:
        if isinstance(route, APIWebSocketRoute):
            yield "WEBSOCKET", route.path
        elif isinstance(route, Route):
            yield from ((method, route.path) for method in route.methods or () if method != "HEAD")
        else:
            yield from routes_of(route.original_router.routes)


def test_every_route_has_a_role(db: Database) -> None:
    """And the table has no route that is not there."""
    found: set[tuple[str, str]] = set()

    async def app() -> None:
        service = Service(db, Settings())
        await service.start()
        try:
            found.update(routes_of(create_app(service).routes))
        finally:
            service.hub.end()
            await service.stop()

    asyncio.run(app())
    assert found == set(ROUTES), "serve/roles.py is the table of routes and their roles"


def test_every_statement_of_mysql_has_a_role() -> None:
    assert set(_HANDLERS) <= set(STATEMENTS)


def test_what_is_not_in_the_table_is_for_the_highest_role() -> None:
    assert role_for_request("GET", "/v1/new/thing/of/tomorrow") is ADMIN
    assert role_for_request("HEAD", "/v1/status") is ADMIN
    assert role_for_sql("MERGE INTO t USING s ON true") is ADMIN
    assert role_for_mysql(["LOAD", "DATA"], "LOAD DATA") is ADMIN


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("SELECT 1", READ),
        ("  ((select 1))", READ),
        ("-- DELETE\n/* DROP */ SELECT 1", READ),
        ("WITH a AS (SELECT 'delete' AS b) SELECT replace(b, 'x', 'y') FROM a", READ),
        ("EXPLAIN SELECT 1", READ),
        ("SHOW TABLES", READ),
        ("", READ),
        ("/* SELECT */ DELETE FROM t", WRITE),
        ("(DELETE FROM t)", WRITE),
        ("WITH a AS (SELECT 1) DELETE FROM t", WRITE),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", WRITE),
        ("insert into t values (1)", WRITE),
        ("UPDATE t SET a = 1", WRITE),
        ("DROP TABLE t", ADMIN),
        ("CREATE VIEW v AS SELECT 1", ADMIN),
        ("FROM t INSERT INTO u SELECT *", ADMIN),
    ],
)
def test_the_role_of_a_statement(text: str, role: Role) -> None:
    assert role_for_sql(text) is role


def test_reading(ask: Callable[..., httpx.Response]) -> None:
    for name in ("rita", "willi", "ada"):
        assert ask(name, "GET", "/v1/scores/row?key=1").json()["row"]["votes"] == 3
        assert ask(name, "GET", "/v1/status").status_code == 200
        assert ask(name, "GET", "/").status_code == 200
        given = {"sql": "SELECT votes FROM scores WHERE story = 1"}
        assert ask(name, "POST", "/v1/sql", json=given).json()["rows"] == [{"votes": 3}]
        assert ask(name, "POST", "/dashboard/sql", json=given).status_code == 200
        link = ask(name, "POST", "/v1/links", json={"path": "/v1/scores/changes"}).json()["link"]
        assert "signature" in link


def test_writing(ask: Callable[..., httpx.Response]) -> None:
    rows = {"rows": [{"id": 100, "story": 1}]}
    said = message(ask("rita", "PUT", "/v1/votes/rows", json=rows), 403)
    assert said == "PUT /v1/votes/rows needs the role write; this user has the role read"
    assert "role write" in message(ask("rita", "DELETE", "/v1/votes/row?key=1"), 403)
    assert "role write" in message(ask("rita", "POST", "/v1/votes/delete", json={"keys": [1]}), 403)
    for path in ("/v1/sql", "/dashboard/sql"):
        given = {"sql": "SELECT 1 AS a; DELETE FROM votes"}
        assert "role write" in message(ask("rita", "POST", path, json=given), 403)
    long = "INSERT INTO votes VALUES " + ", ".join(f"({n}, 1)" for n in range(1000, 9000))
    assert "role write" in message(ask("rita", "POST", "/v1/sql", json={"sql": long}), 403)
    count = {"sql": "SELECT COUNT(*) AS n FROM votes"}
    assert ask("rita", "POST", "/v1/sql", json=count).json()["rows"] == [{"n": 9}]
    for name in ("willi", "ada"):
        assert ask(name, "PUT", "/v1/votes/rows", json=rows).json() == {"written": 1}
        given = {"sql": "UPDATE votes SET story = 2 WHERE id = 100"}
        assert ask(name, "POST", "/v1/sql", json=given).json()["affected"] == 1


def test_administering(ask: Callable[..., httpx.Response]) -> None:
    create = {"sql": "CREATE TABLE t (k INT PRIMARY KEY)"}
    for name in ("rita", "willi"):
        for path in ("/v1/sql", "/dashboard/sql"):
            assert "role admin" in message(ask(name, "POST", path, json=create), 403)
        assert ask(name, "GET", "/metrics").status_code == 200
        assert "role admin" in message(ask(name, "POST", "/dashboard/verify", json={}), 403)
        assert "role admin" in message(ask(name, "DELETE", "/dashboard/verify"), 403)
    assert ask("ada", "POST", "/v1/sql", json=create).status_code == 200
    assert ask("ada", "GET", "/metrics").status_code == 200


def test_who_is_not_let_in(site: Database, serve: Serve, users: Path) -> None:
    server = serve(site, users=users, guess_seconds=0)
    with httpx.Client(base_url=server.http_url, timeout=SLOW_SECONDS) as client:
        for name, password in (("rita", "adax"), ("nobody", "ritax"), ("", "ritax"), ("rita", "")):
            answer = client.get("/v1/tables", auth=(name, password))
            assert message(answer, 401) == "the password is wrong"
        bearer = {"Authorization": "Bearer ritax"}
        assert client.get("/v1/tables", headers=bearer).status_code == 401
        assert client.get("/v1/tables").status_code == 401
        assert client.get("/health").status_code == 200
        assert client.get("/v1/tables", auth=("rita", "ritax")).status_code == 200


def test_the_password_without_a_name_goes_on(site: Database, serve: Serve, users: Path) -> None:
    server = serve(site, users=users, password="secret")
    create = {"sql": "CREATE TABLE t (k INT PRIMARY KEY)"}
    with httpx.Client(base_url=server.http_url, timeout=SLOW_SECONDS) as client:
        bearer = {"Authorization": "Bearer secret"}
        assert client.post("/v1/sql", json=create, headers=bearer).status_code == 200
        assert client.get("/metrics", auth=("anybody", "secret")).status_code == 200
        assert client.get("/v1/tables", auth=("rita", "secret")).status_code == 401, "her own"


def test_sockets(site: Database, serve: Serve, users: Path) -> None:
    url = serve(site, users=users).http_url.replace("http", "ws") + "/v1/scores/changes/ws"
    basic = "Basic " + base64.b64encode(b"rita:ritax").decode()

    async def run() -> None:
        async with connect(url, additional_headers={"Authorization": basic}) as made:
            assert b'"rows"' in (await made.recv(decode=False))

    asyncio.run(run())


def test_links_end_when_users_change(site: Database, serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "users"
    write_users(file, [new_user("rita", "read", "one")])
    with httpx.Client(base_url=serve(site, users=file).http_url, timeout=SLOW_SECONDS) as client:
        wanted = {"path": "/v1/scores/changes"}
        link = client.post("/v1/links", json=wanted, auth=("rita", "one")).json()["link"]
        with client.stream("GET", link) as answer:
            assert answer.status_code == 200
    write_users(file, [new_user("rita", "read", "two")])
    with httpx.Client(base_url=serve(site, users=file).http_url, timeout=SLOW_SECONDS) as client:
        assert client.get(link).status_code == 401


def until_refused(client: httpx.Client, path: str, **options: Any) -> float:
    """Ask until it is refused; how many seconds that took."""
    began = time.monotonic()
    while client.get(path, **options).status_code == 200:
        assert time.monotonic() - began < SLOW_SECONDS
    return time.monotonic() - began


def test_a_removed_user_is_out_within_a_second(
    site: Database, serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "users"
    rita, ada = (new_user(name, role, "x") for name, role in (("rita", "read"), ("ada", "admin")))
    write_users(file, [rita, ada])
    with httpx.Client(base_url=serve(site, users=file).http_url, timeout=SLOW_SECONDS) as client:
        for name in ("rita", "ada"):
            assert client.get("/v1/tables", auth=(name, "x")).status_code == 200
        link = client.post(
            "/v1/links", json={"path": "/v1/scores/changes"}, auth=("ada", "x")
        ).json()["link"]
        write_users(file, [ada])
        assert until_refused(client, "/v1/tables", auth=("rita", "x")) < 1.5  # and some slack
        assert client.get("/v1/tables", auth=("ada", "x")).status_code == 200
        assert client.get(link).status_code == 401, "the users were others when it was signed"
        write_users(file, [new_user("ada", "write", "y"), rita])
        assert until_refused(client, "/v1/tables", auth=("ada", "x")) < 1.5
        assert client.get("/v1/tables", auth=("rita", "x")).status_code == 200
        create = {"sql": "CREATE TABLE t (k INT PRIMARY KEY)"}
        message(client.post("/v1/sql", json=create, auth=("ada", "y")), 403)


def test_what_a_removed_user_follows_ends(
    site: Database,
    serve: Serve,
    tmp_path: Path,
    catch_up: Callable[[], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "users"
    rita, ada = (new_user(name, "read", "x") for name in ("rita", "ada"))
    write_users(file, [rita, ada])
    server = serve(site, users=file)
    auth = ("rita", "x")
    basic = {"Authorization": "Basic " + base64.b64encode(b"rita:x").decode()}

    def change() -> None:
        site.put("votes", {"id": 1000, "story": 1})
        catch_up()

    async def run() -> None:
        url = server.http_url.replace("http", "ws") + "/v1/scores/changes/ws"
        async with (
            connect(url, additional_headers=basic) as socket,
            httpx.AsyncClient(base_url=server.http_url, timeout=SLOW_SECONDS) as client,
            client.stream("GET", "/v1/scores/changes", auth=auth) as stream,
            client.stream("GET", "/dashboard/live", auth=auth) as live,
        ):
            assert b'"rows"' in (await socket.recv(decode=False))
            events, samples = stream.aiter_text(), live.aiter_text()
            assert "event: rows" in await anext(events)
            assert "event: sample" in await anext(samples)
            write_users(file, [ada])
            while (await client.get("/v1/tables", auth=auth)).status_code == 200:
                pass
            await asyncio.to_thread(change)
            ends = "".join([text async for text in events])
            assert "Unauthorized" in ends
            assert "changes" not in ends
            async for _ in samples:
                pass
            assert "Unauthorized" in str(await socket.recv())
            with pytest.raises(ConnectionClosedError) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == CLOSE_CODES + 401

    asyncio.run(run())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_users_file_that_breaks_changes_nothing(
    site: Database, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "users"
    write_users(file, [new_user("rita", "read", "x")])
    kept = file.read_text()
    with httpx.Client(base_url=serve(site, users=file).http_url, timeout=SLOW_SECONDS) as client:
        ada = new_user("ada", "read", "x")
        file.write_text("damaged")
        while "the users stay as they were" not in caplog.text:
            assert client.get("/v1/tables", auth=("rita", "x")).status_code == 200
        file.write_text(kept)
        write_users(file, [ada])
        until_refused(client, "/v1/tables", auth=("rita", "x"))
        assert client.get("/v1/tables", auth=("ada", "x")).status_code == 200


def test_guesses_at_one_user(users: Path) -> None:
    """Who knows the password of one user guesses at another's no faster for it."""
    guesses = Guesses(0.01)

    async def slowly(check: Callable[[bytes], bool], password: bytes) -> bool:
        return check(password)

    async def run() -> None:
        credentials = Credentials(Settings(users=users), guesses, slowly)
        for number in range(FREE + 1):
            assert await role_of(credentials, "10.0.0.1", "ada", b"guess %d" % number) is None
            assert await role_of(credentials, "10.0.0.1", "rita", b"ritax") is READ
        assert {name: one.wrong for name, one in guesses._addresses.items()} == {
            "10.0.0.1 ada": FREE + 1
        }
        assert await role_of(credentials, "10.0.0.1", "ada", b"adax") is ADMIN
        assert not guesses._addresses

    asyncio.run(run())


def test_a_password_is_slow_to_check_once(users: Path) -> None:
    """Requests that come together share the check, and count as one guess."""
    checks = []
    guesses = Guesses(10.0)

    async def slowly(check: Callable[[bytes], bool], password: bytes) -> bool:
        checks.append(password)
        await asyncio.sleep(0)
        return check(password)

    async def run() -> None:
        credentials = Credentials(Settings(users=users), guesses, slowly)
        for password, role in ((b"ritax", READ), (b"wrong", None)):
            asked = [role_of(credentials, "10.0.0.1", "rita", password) for _ in range(20)]
            assert await asyncio.gather(*asked) == [role] * 20
        assert checks == [b"ritax", b"wrong"]
        assert [one.wrong for one in guesses._addresses.values()] == [1, 1]
        assert await role_of(credentials, "10.0.0.1", "rita", b"ritax") is READ
        assert len(checks) == 2

    asyncio.run(run())


def test_the_file(tmp_path: Path) -> None:
    file = tmp_path / "users"
    given = [new_user("b@x.y", "write", "p\u00e4ss"), new_user("a", "read", "q", mysql=False)]
    write_users(file, given)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_users(file) == {user.name: user for user in given}
    assert "p\u00e4ss" not in file.read_text()
    assert "scrypt" not in repr(given[0])
    assert given[0].knows("p\u00e4ss".encode())
    assert not given[0].knows(b"pass")
    assert new_user("a", "read", "q").scrypt != given[1].scrypt, "salted"


def test_files_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    with pytest.raises(InvalidSetting, match="cannot be read"):
        Settings(users=file)
    write_users(file, [])
    with pytest.raises(InvalidSetting, match="has no users"):
        Settings(users=file)
    write_users(file, [new_user("a", "read", "q")])
    assert Settings(users=file, host="0.0.0.0").password is None
    text = file.read_text()
    for damaged in (text + "a", text.replace(":read:", ":root:"), text + text.splitlines()[1]):
        file.write_text(damaged)
        with pytest.raises(InvalidSetting, match="line"):
            read_users(file)
    file.write_text("secret\n")
    with pytest.raises(InvalidSetting, match="is not a users file"):
        read_users(file)
    file.chmod(0o640)
    with pytest.raises(InvalidSetting, match="chmod 600"):
        read_users(file)
    for name, role, password in (("a:b", "read", "q"), ("a", "root", "q"), ("a", "read", "")):
        with pytest.raises(InvalidSetting):
            new_user(name, role, password)
