"""`viewkeep top`: once, as JSON, and live in a terminal that is a real pty."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import viewkeep
from viewkeep.cli.commands import app
from viewkeep.cli.top import sparkline
from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import advance, catch_up

SITE = """
CREATE TABLE votes (story BIGINT, voter BIGINT, stars INT, PRIMARY KEY (story, voter));
CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story;
"""
COMMAND = [sys.executable, "-c", "from viewkeep.cli import main; main()", "top"]
LONGEST = 60.0
_CODES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9])")


@pytest.fixture
def site(tmp_path: Path) -> str:
    """A database with a view that is kept, and one that is half loaded."""
    url = str(tmp_path / "site.vk")
    with viewkeep.open(url, durability="relaxed") as db:
        db.sql(SITE)
        db.put("votes", [{"story": n % 7, "voter": n, "stars": 1} for n in range(400)])
        catch_up(db.store)
        db.sql("CREATE VIEW voters AS SELECT voter, COUNT(*) AS n FROM votes GROUP BY voter")
        epochs = Epochs(db.store)
        lease = epochs.acquire()
        advance(db.store, lease.term, Limits(chunk=50))
        epochs.release(lease)
    return url


def shown(*args: str) -> str:
    result = CliRunner().invoke(app, ["top", *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_once(site: str) -> None:
    text = shown(site, "--once")
    assert "epoch 2" in text
    assert "no pipeline" in text
    assert re.search(r"scores +● ready", text)
    assert re.search(r"voters +● loading .*\d+%, \d+ rows", text)
    assert "COUNT(*) by story" in text
    assert "0 behind" in text


def test_once_is_all_where_there_is_no_terminal(site: str) -> None:
    assert "scores" in shown(site)


def test_json(site: str) -> None:
    found = json.loads(shown(site, "--once", "--json"))
    assert found["epoch"] == 2
    assert 0 < found["loading"]["voters"]["share"] < 1
    assert {"kept_per_second", "written_per_second", "logs", "operators"} <= set(found)


def test_an_empty_database(tmp_path: Path) -> None:
    url = str(tmp_path / "new.vk")
    viewkeep.open(url, durability="relaxed").close()
    assert "The database is empty" in shown(url, "--once")


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([0, 0], "▁▁"),
        ([0, 1, 2, 4], "▁▃▅█"),
        ([None, 5], " █"),
        ([-1, 10], "▁█"),
    ],
)
def test_sparkline(values: list[float | None], drawn: str) -> None:
    assert sparkline(values) == drawn


class Terminal:
    """What stands on a terminal that a process draws to."""

    def __init__(self, side: int, process: subprocess.Popen[bytes]):
        self._side, self.process, self.text = side, process, ""

    def wait_for(self, pattern: str) -> None:
        """Read until the pattern stands in what was drawn after the last match."""
        deadline = time.monotonic() + LONGEST
        while not (found := re.search(pattern, self.text)):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._side], [], [], max(0.0, left))
            assert ready, f"{pattern} did not appear in:\n{self.text[-3000:]}"
            self.text += _CODES.sub("", os.read(self._side, 65536).decode(errors="replace"))
        self.text = self.text[found.end() :]

    def press(self, key: bytes) -> None:
        os.write(self._side, key)

    def drain(self) -> int:
        """Read what is left until the process ends, and give its exit code."""
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            try:
                if not os.read(self._side, 65536):
                    break
            except OSError:  # the other side is closed
                break
        return self.process.wait(LONGEST)


@contextmanager
def terminal(url: str, width: int = 130, height: int = 40) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        variables.pop(name, None)
    process = subprocess.Popen(
        [*COMMAND, url, "--interval", "0.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=variables,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def test_live_in_a_terminal(site: str) -> None:
    with terminal(site) as screen:
        screen.wait_for(r"epoch 2")
        screen.wait_for(r"voters +● loading")
        with viewkeep.open(site) as db:
            db.put("votes", {"story": 100, "voter": 1, "stars": 5})
            epoch = catch_up(db.store).epoch
        screen.wait_for(rf"epoch {epoch}\b")
        screen.wait_for(r"voters +● ready")
        screen.wait_for(r"q ends")
        screen.press(b"q")
        assert screen.drain() == 0


def test_ctrl_c_ends_it(site: str) -> None:
    with terminal(site, width=70, height=20) as screen:
        screen.wait_for(r"q ends|largest state")
        screen.process.send_signal(signal.SIGINT)
        assert screen.drain() == 0
