"""The runner: one entry for each system, whatever becomes of it; ratios, the check, the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import check
import polars as pl
import pytest
import run as command
from rich.console import Console
from suite import publish as publishing
from suite import results
from suite.bench import Bench
from suite.contract import OURS, SIZES, Experiment, NotMeasured, Outcome, Workload
from suite.runner import run
from suite.workloads import OPTIONAL, WORKLOADS

RIGHT = {"answer": pl.DataFrame({"n": [1, 2]})}
WRONG = {"answer": pl.DataFrame({"n": [1, 3]})}


def rate(value: float, result: Any = RIGHT) -> Any:
    return lambda runs: Outcome({"operations/s": [value, value + 2, value + 1]}, result)


def absent(runs: int) -> Outcome:
    raise NotMeasured("it is not installed")


def crash(runs: int) -> Outcome:
    raise ValueError("no luck")


class Some(Workload):
    name = "some"

    def __init__(self, speed: float = 1.0):
        self.speed = speed

    def experiments(self, bench: Bench) -> list[Experiment]:
        systems = {
            OURS: rate(300 * self.speed),
            "peer": rate(100),
            "liar": rate(900, WRONG),
            "silent": rate(900, None),
            "gone": absent,
            "broken": crash,
        }
        grown = [
            Experiment("grown", {OURS: rate(50)}, axis=("rows", 10.0)),
            Experiment("grown", {OURS: rate(40 * self.speed)}, axis=("rows", 1000.0)),
        ]
        return [Experiment("compared", systems, lambda: RIGHT), *grown]


def made(tmp_path: Path, speed: float = 1.0) -> dict[str, Any]:
    bench = Bench(SIZES["tiny"], tmp_path, {})
    entries = run([Some(speed)], bench, Console(quiet=True))
    return results.describe(SIZES["tiny"], entries)


def test_every_system_has_one_entry(tmp_path: Path) -> None:
    found = {entry["system"]: entry for entry in made(tmp_path)["entries"][:6]}
    assert {name: entry["status"] for name, entry in found.items()} == {
        OURS: "ok",
        "peer": "ok",
        "liar": "failed",
        "silent": "failed",
        "gone": "not measured",
        "broken": "failed",
    }
    assert found[OURS]["figures"]["operations/s"]["median"] == 301
    assert "(3,)" in found["liar"]["reason"]
    assert found["liar"]["figures"] == {}  # a number that does not count is not shown
    assert found["broken"]["reason"] == "ValueError: no luck"


def test_a_run_says_where_it_ran(tmp_path: Path) -> None:
    described = made(tmp_path)
    assert {"cores", "memory, GiB", "python", "java"} <= described["machine"].keys()
    assert {"viewkeep", "pyspark", "lmdb", "polars"} <= described["versions"].keys()
    json.dumps(described)


def test_ratios_are_within_the_run(tmp_path: Path) -> None:
    found = results.ratios(made(tmp_path))
    assert {str(ratio): value for ratio, value in found.items()} == {
        "some: compared: operations/s: than peer": pytest.approx(301 / 101),
        "some: grown: operations/s: 10 to 1,000 rows": pytest.approx(41 / 51),
    }


def test_losses_are_listed(tmp_path: Path) -> None:
    text = "\n".join(publishing.tables(made(tmp_path, speed=0.1), {}))
    assert "| some: compared: operations/s: peer | 3.26 |" in text


def test_check_fails_past_a_quarter_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / results.LATEST
    results.save({"tiny": made(tmp_path)}, path)
    for speed, code in ((0.8, 0), (0.7, 1)):
        given = tmp_path / "now.json"
        results.save(made(tmp_path, speed), given)
        assert check.main(["--json", str(given)], tmp_path) == code
    said = capsys.readouterr().out
    assert "than peer" in said
    assert "2 ratios compared, 2 fell" in said


def test_check_fails_where_we_failed(tmp_path: Path) -> None:
    now = made(tmp_path)
    now["entries"][0] |= {"status": "failed", "reason": "its result differs", "figures": {}}
    console = Console(quiet=True)
    assert check.report(now, made(tmp_path), console) == 1
    (absent,) = check.missing(now, made(tmp_path))
    assert str(absent) == "some: compared: operations/s: than peer"


def test_what_fell_is_measured_again(tmp_path: Path) -> None:
    before, asked = made(tmp_path), list[set[tuple[str, str]]]()
    speeds = iter((1.2, 0.7, 0.6))

    def again(places: set[tuple[str, str]]) -> results.Run:
        asked.append(places)
        return made(tmp_path, next(speeds))

    slow = made(tmp_path, 0.7)
    assert check.fallen(check.settled(slow, before, again), before) == []  # a bad minute
    assert check.fallen(check.settled(slow, before, again), before) != []  # a real fall
    assert asked[0] == {("some", "compared"), ("some", "grown")}
    assert len(asked) == 1 + check.AGAIN


def test_samples_of_two_runs_are_one(tmp_path: Path) -> None:
    one, other = made(tmp_path), made(tmp_path, 0.1)
    both = results.pooled(one, other)["entries"]
    figure = both[0]["figures"]["operations/s"]
    assert figure["runs"] == [
        *one["entries"][0]["figures"]["operations/s"]["runs"],
        *other["entries"][0]["figures"]["operations/s"]["runs"],
    ]
    assert (figure["least"], figure["most"]) == (min(figure["runs"]), max(figure["runs"]))
    other["entries"][0] |= {"status": "failed", "reason": "its result differs", "figures": {}}
    assert results.pooled(one, other)["entries"][0]["status"] == "failed"


def test_check_needs_a_committed_run(tmp_path: Path) -> None:
    given = tmp_path / "now.json"
    results.save(made(tmp_path), given)
    assert check.main(["--json", str(given)], tmp_path) == 2


def test_check_compares_only_the_same_work(tmp_path: Path) -> None:
    now = made(tmp_path)
    results.save({"tiny": now}, tmp_path / results.LATEST)
    given = tmp_path / "now.json"
    results.save({**now, "work": {"operations": 1}}, given)
    assert check.main(["--json", str(given)], tmp_path) == 2


def test_publishing_keeps_the_words_and_other_workloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "plots", lambda run, folder: {"some": ["bench-some.svg"]})
    page = tmp_path / publishing.PAGE
    page.parent.mkdir()
    page.write_text(f"before\n{publishing.BEGIN}\nold\n{publishing.END}\nafter\n")
    first = made(tmp_path)
    older = {**first["entries"][0], "workload": "other", "commit": "0ld"}
    other = {**first, "entries": [older]}
    publishing.publish(other, tmp_path)
    publishing.publish(first, tmp_path)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    for part in (
        "### other\n\nMeasured at commit 0ld.",
        "### some\n\n| experiment",
        "301 (300 to 302)",
        "figures/bench-some.svg",
    ):
        assert part in text
    assert "gone: not measured:* it is not installed" in text
    assert "Flink" in text
    assert "In no figure of this run." in text
    workloads = {entry["workload"] for entry in results.committed(tmp_path)["tiny"]["entries"]}
    assert workloads == {"some", "other"}


def test_plots_are_drawn(tmp_path: Path) -> None:
    from suite.plots import plots

    names = plots(made(tmp_path), tmp_path)
    assert names == {"some": ["bench-some-systems.svg", "bench-some-growth.svg"]}
    first = [(tmp_path / name).read_bytes() for name in names["some"]]
    plots(made(tmp_path), tmp_path)
    assert first == [(tmp_path / name).read_bytes() for name in names["some"]]


@pytest.mark.parametrize("size", SIZES)
def test_experiments_of_a_workload_have_names_of_their_own(size: str, tmp_path: Path) -> None:
    bench = Bench(SIZES[size], tmp_path)
    names = [one.name for one in (*WORKLOADS, *OPTIONAL)]
    assert len(names) == len(set(names))
    for workload in (*WORKLOADS, *OPTIONAL):
        places = [(one.name, one.axis) for one in workload.experiments(bench)]
        assert len(places) == len(set(places)), workload.name
        assert workload.__doc__


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    given = command.parse(["vote", "--quick", "--peers", "flink,pathway", "--operations", "10"])
    assert [one.name for one in given.workloads] == ["vote"]
    assert list(given.peers) == ["flink", "pathway"]
    assert (given.size.name, given.size.operations, given.size.runs) == ("quick", 10, 3)
    assert command.parse(["--peers", "none"]).peers == {}
    assert "soak" not in [one.name for one in command.parse([]).workloads]
    assert command.parse(["soak", "--seconds", "5"]).size.soak == 5
    for wrong in (["nothing"], ["--publish", "--runs", "1"], ["--peers", "nobody"]):
        with pytest.raises(SystemExit):
            command.parse(wrong)
    assert "there is no peer nobody" in capsys.readouterr().err
