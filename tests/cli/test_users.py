"""The commands about users: the file they write lets in who it should."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from viewkeep.cli.commands import app
from viewkeep.cli.users import PASSWORD_VARIABLE
from viewkeep.serve.users import read_users


def call(*args: str, code: int = 0, **options: Any) -> str:
    result = CliRunner().invoke(app, ["users", *args], **options)
    assert result.exit_code == code, result.output
    return result.output


def test_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "users"
    monkeypatch.setenv(PASSWORD_VARIABLE, "of the environment")
    assert "Added user ann" in call("add", "ann", "--role", "read", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_users(file)["ann"].knows(b"of the environment")
    monkeypatch.delenv(PASSWORD_VARIABLE)
    said = call("add", "bob", "--role", "admin", "--no-mysql", str(file), input="of stdin\n")
    assert "Added user bob" in said
    assert read_users(file)["bob"].knows(b"of stdin")
    assert read_users(file)["bob"].native is None
    assert "Changed user ann" in call("add", "ann", "--role", "write", str(file), input="new\n")
    listed = json.loads(call("list", str(file), "--json"))
    assert listed == [{"name": "ann", "role": "write"}, {"name": "bob", "role": "admin"}]
    assert "ann  write" in call("list", str(file))
    assert "Removed user bob" in call("remove", "bob", str(file))
    assert list(read_users(file)) == ["ann"]


def test_refusals(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert "read, write or admin" in call("add", "a", "--role", "root", str(file), code=2)
    assert "empty" in call("add", "a", "--role", "read", str(file), code=1, input="\n")
    assert "not a user's name" in call("add", "a:b", "--role", "read", str(file), code=1, input="x")
    assert not file.exists()
    call("add", "a", "--role", "read", str(file), input="x")
    assert "no user b" in call("remove", "b", str(file), code=1)
    file.chmod(0o644)
    assert "chmod 600" in call("list", str(file), code=1)
