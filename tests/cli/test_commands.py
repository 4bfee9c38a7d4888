"""Every command: what it prints, as text and JSON, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import viewkeep
from viewkeep.cli import MODULES
from viewkeep.cli.commands import app
from viewkeep.engine.failures import set_aside
from viewkeep.engine.local import catch_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parent.parent.parent / "docs" / "cli.md"
COMMANDS = (
    *(
        "init",
        "sql",
        "load",
        "drop",
        "apply",
        "backup",
        "restore",
        "export",
        "run",
        "serve",
        "get",
        "scan",
    ),
    *("explain", "status", "top", "profile", "verify", "repair", "compact", "memory", "demo"),
    *("doctor", "users", "hbase"),
)

SITE = """
CREATE TABLE votes (story BIGINT, voter STRING, stars INT, PRIMARY KEY (story, voter));
CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story;
INSERT INTO votes VALUES (1, 'a', 5), (1, 'b', 3), (2, 'a', 4);
"""


def call(*args: str, code: int = 0, **options: Any) -> str:
    result = CliRunner().invoke(app, list(args), **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def data(*args: str, code: int = 0) -> Any:
    return json.loads(call(*args, "--json", code=code))


@pytest.fixture
def site(tmp_path: Path) -> str:
    """A database with a table, rows, and a view that is kept."""
    url = str(tmp_path / "site.vk")
    with viewkeep.open(url, durability="relaxed") as db:
        db.sql(SITE)
        catch_up(db.store)
    return url


def test_commands_are_the_documented_ones() -> None:
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    assert tuple(commands) == COMMANDS
    page = DOCS.read_text()
    for name, command in commands.items():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert section, f"docs/cli.md has no section {name}"
        parts = getattr(command, "commands", {}).values()
        for parameter in [*command.params, *(one for part in parts for one in part.params)]:
            option = next((text for text in parameter.opts if text.startswith("--")), None)
            if option not in (None, "--help"):
                assert option in section, f"{name} {option} is not documented"
        assert "Example" in (command.help or ""), f"{name} --help shows no example"


def test_a_command_is_found_in_its_module() -> None:
    """`main` imports the module of one command; that one must be there."""
    assert set(MODULES) == set(COMMANDS)
    for name, module in MODULES.items():
        found = get_command(app).commands[name]  # type: ignore[attr-defined]
        homes = {
            function.__module__
            for function in (found.callback, *(one.callback for one in _parts(found)))
            if function is not None
        }
        assert homes == {f"viewkeep.cli.{module}"}, name


def _parts(command: Any) -> list[Any]:
    return list(getattr(command, "commands", {}).values())


def test_help_and_version() -> None:
    assert "Exit codes" in call("--help")
    assert viewkeep.__version__ in call("--version")
    for name in COMMANDS:
        assert "Example" in call(name, "--help")


def test_init(tmp_path: Path) -> None:
    url = str(tmp_path / "a.vk")
    assert data("init", url, "--nodes", "3") == {"url": url, "nodes": 3, "shards": 3}
    assert "already" in call("init", url, code=1)
    assert "2 nodes, 2 shards" in call("init", str(tmp_path / "b.vk")).replace("\n", " ")


def test_sql(tmp_path: Path) -> None:
    url = str(tmp_path / "a.vk")
    call("sql", url, "CREATE TABLE t (k INT PRIMARY KEY, n DECIMAL(5,2))", "--create")
    assert data("sql", url, "INSERT INTO t VALUES (1, 1.5)")["affected"] == 1
    assert data("sql", url, "SELECT * FROM t") == [{"k": 1, "n": "1.50"}]
    script = tmp_path / "script.sql"
    script.write_text("INSERT INTO t VALUES (2, 2);\nSELECT COUNT(*) AS n FROM t;")
    lines = call("sql", url, "-f", str(script), "--json").splitlines()
    assert [json.loads(line) for line in lines][1] == [{"n": 2}]
    assert "1.50" in call("sql", url, input="SELECT * FROM t WHERE k = 1")
    output = call("sql", url, "SELECT * FROM nothing", code=1)
    assert output.startswith("error: ")
    assert "Traceback" not in output


def test_sql_asks_before_it_makes_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tmp_path / "typo.vk"
    output = call("sql", str(url), "SELECT 1 AS one", code=1)
    assert "there is no database" in output
    assert "viewkeep init" in output
    assert "--create" in output
    assert not url.exists()
    monkeypatch.setattr("viewkeep.cli.write.on_terminal", lambda: True)
    assert "Make one?" in call("sql", str(url), "SELECT 1 AS one", code=1, input="n\n")
    assert not url.exists()
    assert "one" in call("sql", str(url), "SELECT 1 AS one", input="y\n")
    assert url.exists()
    (url / "viewkeep.json").write_text("{")
    assert "damaged" in call("sql", str(url), "SELECT 1 AS one", "--create", code=1)


def test_completion(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(site).parent)
    (Path(site).parent / "other").mkdir()

    def completed(line: str) -> set[str]:
        variables = {
            "_VIEWKEEP_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        return set(CliRunner().invoke(app, [], prog_name="viewkeep", env=variables).output.split())

    assert {"get", "sql"} <= completed("viewkeep ")
    assert completed("viewkeep do") == {"doctor"}
    assert {"site.vk", "other/"} <= completed("viewkeep get ")
    assert {"votes", "scores"} <= completed("viewkeep get site.vk ")
    assert completed("viewkeep get other ") == set()


def test_load(site: str, tmp_path: Path) -> None:
    path = tmp_path / "votes.csv"
    path.write_text("story,voter,stars\n5,x,1\n5,y,2\n")
    assert data("load", site, "votes", str(path)) == {"table": "votes", "rows": 2, "files": 1}
    assert "already" in call("load", site, "votes", str(path), code=1)
    assert "2 rows" in call("load", site, "votes", str(path), "--replace")
    assert "no file" in call("load", site, "votes", str(tmp_path / "none.csv"), code=1)


def test_load_follows_a_folder(site: str, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.csv").write_text("story,voter,stars\n5,x,1\n5,y,2\n")
    follow = ("load", site, "votes", str(inbox), "--follow", "--once")
    assert data(*follow) == {"file": "a.csv", "rows": 2}
    assert call(*follow) == ""
    (inbox / "b.csv").write_text("story,voter,stars\n6,x,1\n")
    assert "b.csv: 1 rows" in call(*follow)
    assert "one folder" in call("load", site, "votes", "a", "b", "--follow", code=2)
    assert "is not a folder" in call("load", site, "votes", "none", "--follow", "--once", code=1)


def test_get(site: str) -> None:
    assert data("get", site, "scores", "1") == {"story": 1, "votes": 2}
    assert data("get", site, "votes", "1", "b") == {"story": 1, "voter": "b", "stars": 3}
    assert data("get", site, "scores", "99", code=1) is None
    assert "no row" in call("get", site, "scores", "99", code=1)
    assert "votes" in call("get", site, "scores", "1")
    assert "is not a BIGINT" in call("get", site, "scores", "one", code=1)
    assert "Did you mean scores" in call("get", site, "score", "1", code=1)
    call("get", site, "scores", "1", "--at", "yesterday", code=2)
    call("get", site, code=2)


def test_scan(site: str) -> None:
    assert data("scan", site, "scores") == [{"story": 1, "votes": 2}, {"story": 2, "votes": 1}]
    assert len(data("scan", site, "votes", "--prefix", "1")) == 2
    assert len(data("scan", site, "votes", "--prefix", "1", "--from", "b")) == 1
    assert len(data("scan", site, "votes", "--prefix", "1", "--to", "b")) == 1
    assert data("scan", site, "scores", "--from", "2") == [{"story": 2, "votes": 1}]
    assert len(data("scan", site, "votes", "--limit", "1", "--reverse")) == 1
    assert "2 rows" in call("scan", site, "scores")


def test_url_from_the_environment(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIEWKEEP_URL", site)
    assert data("get", "scores", "1") == {"story": 1, "votes": 2}
    assert len(data("scan", "votes", "--prefix", "1")) == 2
    assert data("get", site, "scores", "2") == {"story": 2, "votes": 1}


def test_explain_and_status(site: str) -> None:
    assert "votes" in call("explain", site, "scores")
    assert "votes" in data("explain", site)["explain"]
    status = data("status", site)
    assert status["lag"] == 0
    (view,) = status["views"]
    assert view.pop("seconds") > 0
    assert view == {"name": "scores", "state": "ready", "progress": "", "problem": ""}
    assert re.search(r"epoch \d+", call("status", site))


def test_compact(site: str) -> None:
    with viewkeep.open(site) as db:
        db.sql("CREATE TABLE gone (id BIGINT PRIMARY KEY, s STRING)")
        db.put("gone", [{"id": n, "s": "x" * 500} for n in range(2_000)])
        db.sql("DROP TABLE gone")
        assert "open in this process" in call("compact", site, code=1)
    assert "still take room: run viewkeep run" in call("compact", site)
    with viewkeep.open(site) as db:
        catch_up(db.store)
    found = data("compact", site)
    assert found["after"] < found["before"] / 2
    assert (found["url"], found["waits_for_epoch"]) == (site, False)
    assert re.search(r"Compacted .*: [\d.]+ MiB to [\d.]+ MiB\.", call("compact", site))
    assert len(data("scan", site, "votes")) == 3


def test_drop(site: str) -> None:
    assert "give --yes" in call("drop", site, code=2)
    assert data("drop", site, "--yes") == {"url": site, "tables": 1, "views": 1}
    assert "no database" in call("status", site, code=1)


def test_a_bounded_database(tmp_path: Path) -> None:
    url = str(tmp_path / "small.vk")
    assert "not a size" in call("init", url, "--max-size", "big", code=2)
    call("init", url, "--max-size", "20 GiB")
    assert data("status", url)["max_bytes"] == 20 << 30
    assert "of at most 20.0 GiB" in call("status", url)


def test_missing_database(tmp_path: Path) -> None:
    for command in (("get", "t", "1"), ("scan", "t"), ("status",), ("explain",), ("run",)):
        name, *rest = command
        output = call(name, str(tmp_path / "none.vk"), *rest, code=1)
        assert "viewkeep init" in output


def test_run_once_and_verify(site: str, spark: SparkSession) -> None:
    call("sql", site, "INSERT INTO votes VALUES (7, 'a', 1)")
    assert data("run", site, "--once")["lag"] == 0
    assert data("get", site, "scores", "7") == {"story": 7, "votes": 1}
    verdicts = data("verify", site)
    assert [(verdict["view"], verdict["ok"]) for verdict in verdicts] == [("scores", True)]
    assert "ok" in call("verify", site, "scores")


def test_verify_finds_a_damaged_row(site: str, spark: SparkSession) -> None:
    damage(site)
    output = call("verify", site, code=1)
    assert "DIFFERS" in output
    assert data("verify", site, "--repair", code=1)[0]["repaired"]
    call("run", site, "--once")
    assert data("verify", site)[0]["ok"]


def damage(url: str) -> None:
    """Overwrite one row of the view behind the pipeline's back."""
    from viewkeep.access.relations import ViewRelation
    from viewkeep.engine.programs import load_plan
    from viewkeep.stores.contract import StateWrite

    with viewkeep.open(url) as db:
        published = db.epochs.read().published
        placement = load_plan(db.store, published.plan).program.placements["scores"]
        reader = ViewRelation(placement, db.store.state.shards)
        key = placement.table.key_codec.encode_one((1,))
        shard = reader.shard_of((1,), key)
        row = db.store.state.get(shard, placement.table.number, [key], published.epoch)[0]
        assert row is not None
        values = list(placement.table.row_codec.decode_one(row))
        values[-1] += 5
        wrong = placement.table.row_codec.encode_one(values)
        write = StateWrite(placement.table.number, [key], [wrong])
        db.store.state.apply(shard, published.epoch, published.epoch - 1, [write])


def test_repair(site: str) -> None:
    assert call("repair", site) == "No view has failed.\n"
    assert data("repair", site) == {"repaired": []}
    with viewkeep.open(site) as db:
        name = db.views()[0]
        operator = next(iter(db.catalog.current().program.placements[name].operators))
        failed = set_aside(db.store, 2, {operator: "a bad row"})
        catch_up(db.store)
    assert f"view {name} failed at epoch 2" in call("status", site)
    assert name in call("repair", site, name)
    with viewkeep.open(site) as db:
        catch_up(db.store)
        assert {view.state for view in db.status().views} == {"ready"}
    assert failed


def test_backup_and_restore(site: str, tmp_path: Path) -> None:
    backups, again = str(tmp_path / "backups"), str(tmp_path / "again.vk")
    first = data("backup", site, backups)
    assert first["rows"] == 3
    assert "0 of 1 parts written" in call("backup", site, backups, "--keep", "1")
    (listed,) = [
        json.loads(line)
        for line in call("restore", backups, "--list", "--json").split("\n")
        if line
    ]
    assert listed["tables"] == {"votes": 3}
    assert "votes (3)" in call("restore", backups, "--list")
    assert "Restored" in call("restore", backups, again)
    with viewkeep.open(again) as db:
        catch_up(db.store)
    assert data("get", again, "scores", "1") == data("get", site, "scores", "1")
    assert "exists" in call("restore", backups, again, code=1)
    assert "name the database" in call("restore", backups, code=2)


def test_export(site: str, tmp_path: Path) -> None:
    path = tmp_path / "votes.csv"
    assert data("export", site, "votes", str(path))["rows"] == 3
    assert path.read_text().splitlines() == ["story,voter,stars", "1,a,5", "1,b,3", "2,a,4"]
    assert "Exported 2 rows" in call("export", site, "scores", str(tmp_path / "scores.parquet"))
    assert "csv, arrow, sql" in call("export", site, "scores", "scores.xlsx", code=1)


def test_apply(site: str, tmp_path: Path) -> None:
    program = tmp_path / "site.sql"
    program.write_text(SITE.partition("INSERT")[0])
    assert "Nothing to do." in call("apply", site, str(program), "--dry-run")
    program.write_text(program.read_text().replace("COUNT(*)", "SUM(stars)"))
    shown = call("apply", site, str(program), "--dry-run", code=2)
    assert re.search(r"^~ view  scores  reads 3 rows, builds at most \d+ B$", shown, re.MULTILINE)
    assert "= table votes" in shown
    call("apply", site, str(program), code=2)  # nobody is there to be asked
    assert data("apply", site, str(program), "--dry-run", code=2)["applied"] is False
    told = data("apply", site, str(program), "--yes")
    assert (told["applied"], told["pending"]) == (True, True)
    (change,) = [change for change in told["changes"] if change["action"] == "replace"]
    assert (change["kind"], change["name"], change["rows"]) == ("view", "scores", 3)
    assert data("apply", site, str(program), "--yes")["pending"] is False
    with viewkeep.open(site) as db:
        catch_up(db.store)
    assert json.loads(call("get", site, "scores", "1", "--json")) == {"story": 1, "votes": 8}
    text = "CREATE TABLE votes (story BIGINT, voter STRING, stars INT, PRIMARY KEY (story, voter))"
    assert "? view  scores" in call("apply", site, "-", "--dry-run", input=text)
    assert "- view  scores" in call("apply", site, "-", "--dry-run", "--prune", input=text, code=2)
    assert "error: " in call("apply", site, "-", "--yes", input="DROP TABLE votes", code=1)
    assert "scores" in call("sql", site, "SHOW VIEWS")
