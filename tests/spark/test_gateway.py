"""The JVM: one per process however it is asked for, and with the options that it was given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from viewkeep.cli.commands import app
from viewkeep.spark import gateway
from viewkeep.spark.session import running


class Launches:
    """Stands in for PySpark's launcher: counts, and answers as told."""

    def __init__(self) -> None:
        self.masters: list[str | None] = []
        self.known: list[object] = []
        self.answer: Callable[[], object] = object

    def launch(self, conf: SparkConf) -> object:
        self.masters.append(conf.get("spark.master"))
        return self.answer()

    def know(self, gateway: object, conf: SparkConf) -> None:
        self.known.append(gateway)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """A process without a JVM."""
    made = Launches()
    monkeypatch.setattr(gateway, "_launch", made.launch)
    monkeypatch.setattr(gateway, "_ahead", None)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", made.know)
    return made


def test_a_jvm_under_way_is_waited_for(launches: Launches) -> None:
    gateway.begin("local[3]")
    gateway.begin("local[3]")
    gateway.ensure(gateway.configuration("local[3]"))
    assert launches.masters == ["local[3,4]"]
    assert len(launches.known) == 1


def test_without_one_under_way_it_is_started(launches: Launches) -> None:
    gateway.ensure(gateway.configuration("local[3]"))
    assert launches.masters == ["local[3,4]"]
    assert len(launches.known) == 1


def test_what_went_wrong_ahead_is_said_at_its_use(launches: Launches) -> None:
    def fail() -> object:
        raise RuntimeError("no Java")

    launches.answer = fail
    gateway.begin(None)
    with pytest.raises(RuntimeError, match="no Java"):
        gateway.ensure(gateway.configuration(None))
    launches.answer = object
    gateway.ensure(gateway.configuration(None))
    assert len(launches.masters) == 2


def test_a_database_that_is_not_there_starts_no_jvm(launches: Launches) -> None:
    assert CliRunner().invoke(app, ["run", "missing.vk"]).exit_code == 1
    assert launches.masters == []


def test_settings_go_before_ours() -> None:
    conf = gateway.configuration("local", {"spark.driver.extraJavaOptions": "-Dx=y"})
    assert conf.get("spark.driver.extraJavaOptions") == "-Dx=y"
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert "spark.driver.host" not in gateway.own_settings("spark://host:7077")


def test_the_jvm_runs_with_its_options(spark: SparkSession) -> None:
    assert spark._jvm is not None
    beans = spark._jvm.java.lang.management.ManagementFactory
    assert set(gateway.JVM_OPTIONS) <= set(beans.getRuntimeMXBean().getInputArguments())


def test_a_running_session_is_used(spark: SparkSession) -> None:
    assert running(spark=spark) is spark
