"""The page about MySQL clients is true: its programs run, and it lists what there is."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

import viewkeep
from viewkeep.serve.mysql.catalog.variables import Variables

from .conftest import passing_epochs

PAGE = Path(__file__).parents[3] / "docs" / "mysql.md"


def test_the_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checked = 0
    lines = []
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for line in block.splitlines():
            # An expression followed by a comment must have that value.
            value = re.fullmatch(r"(\S.*?)  # ([({\[].*)", line)
            lines.append(line if value is None else f"assert ({value[1]}) == {value[2]}, {line!r}")
            checked += value is not None
    assert checked >= 3
    with (
        viewkeep.open("news.vk", durability="relaxed") as db,
        passing_epochs(db, threading.Event()),
    ):
        exec(compile("\n".join(lines), str(PAGE), "exec"), {"__name__": "__main__"})


def test_variables_are_documented() -> None:
    text = PAGE.read_text()
    named = [name for name, _ in Variables({}, {}).all() if name.startswith("viewkeep_")]
    assert len(named) >= 4
    for name in [*named, "viewkeep_session"]:
        assert f"| `{name}` |" in text, name
