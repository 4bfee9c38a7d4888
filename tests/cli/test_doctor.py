"""viewkeep doctor: what it finds, and what it says to do."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import viewkeep
from viewkeep.cli import doctor
from viewkeep.cli.commands import app
from viewkeep.cli.doctor import Finding, Health, file_system, findings, java_major


def called(*args: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["doctor", *args])
    assert result.exit_code == code, result.output
    return result.output


def about(name: str, url: str | None = None) -> list[Finding]:
    return [one for one in findings(url, spark=False) if one.about == name]


def test_a_machine_that_is_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ports", lambda: iter(()))
    assert "viewkeep can run here." in called("--no-spark")
    found: list[dict[str, Any]] = json.loads(called("--no-spark", "--json"))
    assert [one["about"] for one in found] == ["Python", "Java", "Memory", "Disk", "Open files"]
    assert {one["health"] for one in found} <= {"ok", "warning"}


def test_spark_runs_a_job() -> None:
    (found,) = doctor.run_spark()
    assert found.health is Health.OK, found.text
    assert "runs a job" in found.text


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    output = called(code=1)
    assert "JAVA_HOME" in output
    assert "openjdk-17-jre-headless" in output
    assert "not tried, for it needs Java" in output


@pytest.mark.parametrize(
    ("printed", "health"),
    [('openjdk version "11.0.2"', Health.PROBLEM), ('openjdk version "21"', Health.OK)],
)
def test_old_java(
    printed: str, health: Health, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (found,) = doctor.java()
    assert found.health is health


@pytest.mark.parametrize(
    ("told", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_361"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("no such thing", None),
    ],
)
def test_java_versions(told: str, major: int | None) -> None:
    assert java_major(told) == major


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("viewkeep.serve.settings.HTTP_PORT", port)
        found = next(one for one in doctor.ports() if str(port) in one.text)
    assert found.health is Health.WARNING
    assert "--port 0" in found.remedy


def test_a_disk_over_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"root / ext4 rw 0 0\nserver:/share {tmp_path} nfs4 rw 0 0\n")
    assert file_system(tmp_path / "data", mounts) == "nfs4"
    assert file_system(Path("/etc"), mounts) == "ext4"
    assert file_system(tmp_path, tmp_path / "none") == ""
    monkeypatch.setattr(doctor, "file_system", lambda folder, mounts: "nfs4")
    (found,) = doctor.disk(tmp_path)
    assert found.health is Health.PROBLEM
    assert "local disk" in found.remedy


def test_a_full_and_a_slow_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "SLOW_SYNC", -1.0)
    (found,) = doctor.disk(tmp_path)
    assert "write many rows in one call" in found.remedy
    monkeypatch.setattr(doctor, "LEAST_DISK", 1 << 62)
    (found,) = doctor.disk(tmp_path)
    assert "--max-size" in found.remedy


def test_a_database(tmp_path: Path) -> None:
    url = str(tmp_path / "a.vk")
    (found,) = about("Database", url)
    assert found.health is Health.PROBLEM
    assert "viewkeep init" in found.text
    with viewkeep.open(url) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY)")
        (found,) = about("Database", url)
        assert found.health is Health.OK
        db.sql("CREATE VIEW total AS SELECT COUNT(*) AS n FROM t")
    (found,) = about("Database", url)
    assert found.health is Health.WARNING
    assert "viewkeep run" in found.remedy
    (disk,) = about("Disk", url)
    assert str(tmp_path) in disk.text
