"""The files in deploy/ fit the program: commands, metrics and pages that they name are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.main import get_command

from viewkeep.cli.commands import app
from viewkeep.serve.metrics import Figures, Metrics

if TYPE_CHECKING:
    from viewkeep import Database

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"


def options_of(arguments: list[str]) -> dict[str, object]:
    """What a command line of `viewkeep` asks for; wrong usage raises."""
    command = get_command(app).commands[arguments[0]]  # type: ignore[attr-defined]
    return dict(command.make_context(arguments[0], list(arguments[1:])).params)


def test_the_unit_serves_its_database_and_keeps_its_views() -> None:
    unit = (DEPLOY / "viewkeep@.service").read_text()
    (start,) = re.findall(r"^ExecStart=\S+/viewkeep (.*)$", unit, re.MULTILINE)
    given = shlex.split(start.replace("%S", "/var/lib").replace("%i", "news"))
    options = options_of([text for text in given if text != "$OPTIONS"])
    assert options["url"] == "/var/lib/viewkeep/news.vk"
    assert options["run"] is True


def test_the_image_serves_its_volume() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    options = options_of(yaml.safe_load(command))
    assert (options["url"], options["host"], options["run"]) == ("/data/main.vk", "0.0.0.0", True)


def test_the_composition_starts_commands_that_are() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    options = options_of(shlex.split(services["viewkeep"]["command"]))
    assert options["password_file"] is not None
    (init,) = re.findall(r"viewkeep (init .*)$", services["make"]["entrypoint"][2])
    assert options_of(shlex.split(init))["url"] == options["url"]


def test_alerts_read_metrics_that_are_and_are_explained(db: Database) -> None:
    metrics = Metrics()
    metrics.request("GET", "/v1/{name}", 200, 0.001)
    given = metrics.text(Figures.of(db)).decode()
    (group,) = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    page = (ROOT / "docs" / "alerts.md").read_text()
    for rule in group["rules"]:
        assert f"| `{rule['alert']}` |" in page
        for name in re.findall(r"viewkeep_\w+", rule["expr"]):
            assert re.search(rf"^# TYPE {name.removesuffix('_count')} ", given, re.MULTILINE), name
    for alert in re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE):
        assert any(rule["alert"] == alert for rule in group["rules"])


@pytest.mark.parametrize("page", ["systemd", "containers", "alerts"])
def test_pages_name_files_that_are(page: str) -> None:
    for name in re.findall(r"deploy/[\w@.-]+\w", (ROOT / "docs" / f"{page}.md").read_text()):
        assert (ROOT / name).exists() or name == "deploy/password"
