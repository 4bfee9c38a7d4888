"""A parent goes on reading rightly, whatever its children do (`forking.py`)."""

from pathlib import Path

import pytest

from .processes import run_python

FORKING = str(Path(__file__).with_name("forking.py"))


@pytest.mark.parametrize("parent", ["fork", "process", "spawn", "writing"])
def test_children_do_not_disturb_their_parent(tmp_path, parent):
    run_python("-W", "ignore::DeprecationWarning", FORKING, parent, str(tmp_path / "db"))
