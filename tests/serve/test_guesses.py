"""Wrong passwords slow their address down, and no other; what is remembered is bounded."""

from __future__ import annotations

import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from viewkeep.serve import guesses as guesses_module
from viewkeep.serve.guesses import FREE, Guesses, TooManyGuesses

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

    Serve = Callable[..., Server]


def slept(guesses: Guesses, address: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long a password from an address would wait."""
    waited = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(guesses_module.asyncio, "sleep", sleep)
        with suppress(StopIteration):
            guesses.turn(address).send(None)
    return sum(waited)


def test_the_pause_grows_for_one_address_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(guesses_module.time, "monotonic", lambda: now[0])
    guesses = Guesses(10.0)
    pauses = []
    for _ in range(FREE + 9):
        guesses.wrong("10.0.0.1")
        pauses.append(slept(guesses, "10.0.0.1", monkeypatch))
        now[0] += 20
    assert pauses[:FREE] == [0] * FREE
    assert pauses[FREE:] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10])
    assert slept(guesses, "10.0.0.2", monkeypatch) == 0
    assert slept(guesses, "10.0.0.1", monkeypatch) == 0, "a pause later"
    assert slept(guesses, "10.0.0.1", monkeypatch) == 10, "side by side"
    with pytest.raises(TooManyGuesses, match=r"10\.0\.0\.1"):
        slept(guesses, "10.0.0.1", monkeypatch)
    guesses.right("10.0.0.1")
    assert slept(guesses, "10.0.0.1", monkeypatch) == 0


def test_a_network_of_ipv6_is_one_guesser(monkeypatch: pytest.MonkeyPatch) -> None:
    guesses = Guesses(10.0)
    for number in range(FREE + 2):
        guesses.wrong(f"2001:db8::{number}")
    assert slept(guesses, "2001:db8::ffff", monkeypatch) > 0
    assert slept(guesses, "2001:db8:0:1::1", monkeypatch) == 0
    for _ in range(FREE + 2):
        guesses.wrong("::ffff:10.0.0.1")
    assert slept(guesses, "10.0.0.1", monkeypatch) > 0
    assert slept(guesses, "::ffff:10.0.0.2", monkeypatch) == 0


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses_module, "MOST_ADDRESSES", 100)
    guesses = Guesses(10.0)
    for number in range(5_000):
        guesses.wrong(f"10.0.{number // 250}.{number % 250}")
    assert len(guesses._addresses) == 100
    monkeypatch.setattr(guesses_module, "FORGET_SECONDS", -1.0)
    for _ in range(FREE + 5):
        guesses.wrong("10.1.1.1")
    assert slept(guesses, "10.1.1.1", monkeypatch) == 0


def test_over_http(site: Database, serve: Serve) -> None:
    url = serve(site, password="right", guess_seconds=0.2).http_url

    def ask(password: str | None) -> int:
        headers = {} if password is None else {"Authorization": f"Bearer {password}"}
        return httpx.get(f"{url}/v1/tables", headers=headers).status_code

    assert [ask(None) for _ in range(20)] == [401] * 20, "no password is no guess"
    assert [ask("wrong") for _ in range(FREE + 3)] == [401] * (FREE + 3)
    assert ask("right") == 200


def test_every_answer_has_safe_headers(site: Database, serve: Serve) -> None:
    url = serve(site).http_url
    for path in ("/health", "/", "/v1/tables", "/v1/none/row?key=1", "/nothing", "/metrics"):
        headers = httpx.get(url + path).headers
        assert headers.get_list("x-content-type-options") == ["nosniff"], path
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"


def test_files_are_for_their_owner_alone(db: Database) -> None:
    folder = Path(db.store.url.removeprefix("lmdb:"))
    entries = [folder, *folder.rglob("*")]
    assert len(entries) > 10
    for entry in entries:
        mode = stat.S_IMODE(entry.stat().st_mode)
        assert mode == (0o700 if entry.is_dir() else 0o600), (entry, oct(mode))
