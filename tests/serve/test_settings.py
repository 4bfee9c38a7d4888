"""Settings that are not safe, or do not fit together, are refused before a port is opened."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from viewkeep.errors import InvalidSetting
from viewkeep.serve.settings import Settings, is_loopback

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_needs_no_password(host: str) -> None:
    assert is_loopback(host)
    assert Settings(host=host).password is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "views.example", ""])
def test_other_addresses_do(host: str) -> None:
    with pytest.raises(InvalidSetting, match="a password is needed"):
        Settings(host=host)
    assert Settings(host=host, password="secret").host == host


def test_the_rest(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="empty"):
        Settings(password="")
    with pytest.raises(InvalidSetting, match="both files"):
        Settings(tls_key=tmp_path)
    with pytest.raises(InvalidSetting, match="is not there"):
        Settings(tls_key=tmp_path / "k", tls_certificate=tmp_path / "c")


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(Settings(password="secret"))


def test_settings_are_documented() -> None:
    text = (DOCS / "serving.md").read_text()
    for field in dataclasses.fields(Settings):
        assert f"`{field.name}`" in text, field.name
