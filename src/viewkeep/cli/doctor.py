"""The command that looks at a machine, and says what keeps viewkeep from running: doctor."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from viewkeep.cli.app import URL_VARIABLE, Json, app
from viewkeep.cli.output import console, print_json
from viewkeep.errors import ViewkeepError

OLDEST_PYTHON, OLDEST_JAVA = (3, 11), 17
LEAST_MEMORY, LEAST_DISK, LEAST_FILES = 2 << 30, 2 << 30, 1024
SLOW_SYNC = 0.02  # seconds; writers wait for one per commit
SPARK_SECONDS = 120.0
_SYNCS = 10
# File systems over a network, on which LMDB's locks and memory maps do not work.
_NETWORK = ("9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "lustre", "nfs", "smb")
_SPARK_JOB = (
    "from viewkeep.spark.session import check_workers, running\n"
    "spark = running('local[1]')\n"
    "check_workers(spark)\n"
    "spark.stop()\n"
)


class Health(StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    WARNING = "warning"  # it works, but not as it should
    PROBLEM = "problem"  # it does not work


class Finding(NamedTuple):
    """One thing that was looked at, and what to do about it."""

    about: str
    health: Health
    text: str
    remedy: str = ""


@app.command()
def doctor(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL", help=f"A database to look at too. Default: ${URL_VARIABLE}, else none."
        ),
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Start Spark and run a small job.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Look at Python, Java, memory, disk, ports and Spark, and say what to do about each.

    It changes nothing. Exit code 1: there is a problem.

    Examples: viewkeep doctor, viewkeep doctor news.vk --no-spark
    """
    found = []
    for one in findings(url or os.environ.get(URL_VARIABLE), spark=spark):
        found.append(one)
        if not as_json:
            _print(one)
    problems = sum(one.health is Health.PROBLEM for one in found)
    if as_json:
        print_json([one._asdict() for one in found])
    elif not problems:
        console.print("viewkeep can run here.")
    if problems:
        raise typer.Exit(1)


def findings(url: str | None, *, spark: bool) -> Iterator[Finding]:
    """Everything that was looked at, as soon as it was."""
    folder = _folder_of(url)
    yield from python()
    has_java = list(java())
    yield from has_java
    for check in (memory, partial(disk, folder), open_files, ports):
        yield from check()
    if spark and has_java[0].health is Health.PROBLEM:
        yield Finding(
            "Spark", Health.PROBLEM, "not tried, for it needs Java", "Install Java first."
        )
    elif spark:
        yield from run_spark()
    if url is not None:
        yield from database(url)


def python() -> Iterator[Finding]:
    """The Python that runs this."""
    text = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        yield Finding("Python", Health.PROBLEM, text, f"Install Python {wanted} or later.")
    else:
        yield Finding("Python", Health.OK, text)


def java() -> Iterator[Finding]:
    """The Java that Spark would start."""
    remedy = (
        f"Install a Java {OLDEST_JAVA} runtime or a later one (on Debian: apt-get install "
        f"openjdk-{OLDEST_JAVA}-jre-headless), or set JAVA_HOME to one."
    )
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(f"{home}/bin/java" if home else "java")
    if path is None:
        where = f"there is none at JAVA_HOME, {home}" if home else "there is none"
        yield Finding("Java", Health.PROBLEM, where, remedy)
        return
    done = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    major = java_major(done.stderr)
    if major is None:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it says nothing"]
        yield Finding("Java", Health.PROBLEM, f"{path} does not run: {lines[-1]}", remedy)
        return
    health = Health.OK if major >= OLDEST_JAVA else Health.PROBLEM
    text = f"{major}, {path}"
    yield Finding("Java", health, text, "" if health is Health.OK else remedy)


def java_major(told: str) -> int | None:
    """The major version out of what `java -version` prints; `1.8.0` is Java 8."""
    _, quote, rest = told.partition('version "')
    parts = rest.partition('"')[0].replace("-", ".").split(".")
    number = parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]
    return int(number) if quote and number.isdigit() else None


def memory() -> Iterator[Finding]:
    """The machine's memory: the JVM and its Python workers take about a gigabyte."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = f"{total / (1 << 30):.1f} GiB"
    if total < LEAST_MEMORY:
        remedy = "Spark and its workers need 2 GiB; run the pipeline on a larger machine."
        yield Finding("Memory", Health.WARNING, text, remedy)
    else:
        yield Finding("Memory", Health.OK, text)


def disk(folder: Path) -> Iterator[Finding]:
    """Where the database is or would be: its file system, its room, and how fast it syncs."""
    kind = file_system(folder, Path("/proc/mounts"))
    if kind.startswith(_NETWORK):
        remedy = "Keep the database on a local disk: locks and memory maps fail over a network."
        yield Finding("Disk", Health.PROBLEM, f"{folder} is on {kind}", remedy)
        return
    if not os.access(folder, os.W_OK):
        remedy = "Choose another folder, or change who may write to this one."
        yield Finding("Disk", Health.PROBLEM, f"you may not write to {folder}", remedy)
        return
    free, sync = shutil.disk_usage(folder).free, _sync_seconds(folder)
    text = f"{free / (1 << 30):.1f} GiB free in {folder}; a synced write takes {sync * 1e3:.1f} ms"
    if free < LEAST_DISK:
        remedy = "Make room, or give the database a limit (viewkeep init --max-size)."
        yield Finding("Disk", Health.WARNING, text, remedy)
    elif sync > SLOW_SYNC:
        remedy = (
            "Each acknowledged write waits for that long: write many rows in one call, use a "
            "faster disk, or --durability relaxed where a power loss may lose the newest writes."
        )
        yield Finding("Disk", Health.WARNING, text, remedy)
    else:
        yield Finding("Disk", Health.OK, text)


def open_files() -> Iterator[Finding]:
    """How many files a process may have open: each shard and each connection takes some."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < LEAST_FILES:
        remedy = f"Raise it: ulimit -n {LEAST_FILES}, or LimitNOFILE= in a systemd unit."
        yield Finding("Open files", Health.WARNING, f"at most {limit}", remedy)
    else:
        yield Finding("Open files", Health.OK, f"at most {limit}")


def ports() -> Iterator[Finding]:
    """The ports that `viewkeep serve` takes unless told otherwise."""
    from viewkeep.serve.settings import HTTP_PORT, MYSQL_PORT

    for name, port, option in (
        ("HTTP", HTTP_PORT, "--port"),
        ("MySQL", MYSQL_PORT, "--mysql-port"),
    ):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                text = f"port {port}, for {name}: {error.strerror}"
                remedy = (
                    f"If a viewkeep serves there already, all is well. Else take another one: "
                    f"viewkeep serve {option} 0 finds one that is free."
                )
                yield Finding("Port", Health.WARNING, text, remedy)
            else:
                yield Finding("Port", Health.OK, f"{port}, for {name}, is free")


def run_spark() -> Iterator[Finding]:
    """Whether Spark starts and its Python workers can import viewkeep, in a process of its own."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SPARK_JOB],
            capture_output=True,
            text=True,
            check=False,
            timeout=SPARK_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        remedy = "Look for a firewall on loopback, or a machine with far too much to do."
        text = f"it did not start within {SPARK_SECONDS:.0f} s"
        yield Finding("Spark", Health.PROBLEM, text, remedy)
        return
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it says nothing"]
        remedy = "Unset SPARK_HOME if it names another Spark, or reinstall pyspark."
        yield Finding("Spark", Health.PROBLEM, f"it does not start: {lines[-1]}", remedy)
        return
    took = time.monotonic() - began
    text = f"{version('pyspark')} starts and runs a job in {took:.1f} s"
    yield Finding("Spark", Health.OK, text)


def database(url: str) -> Iterator[Finding]:
    """What a database says of itself."""
    import viewkeep

    try:
        with viewkeep.open(url, create=False) as db:
            status = db.status()
    except ViewkeepError as error:
        yield Finding("Database", Health.PROBLEM, str(error), "")
        return
    text = (
        f"{url} opens: epoch {status.epoch}, {len(status.tables)} tables, {len(status.views)} views"
    )
    failed = [view.name for view in status.views if view.state == "failed"]
    if failed:
        remedy = f"See why: viewkeep status {url}. Then: viewkeep repair {url}."
        yield Finding("Database", Health.WARNING, f"{text}; failed: {', '.join(failed)}", remedy)
    elif status.views and status.driver is None:
        remedy = f"Its views stand still until one runs: viewkeep run {url}."
        yield Finding("Database", Health.WARNING, f"{text}; no pipeline runs", remedy)
    else:
        yield Finding("Database", Health.OK, text)


def file_system(folder: Path, mounts: Path) -> str:
    """The kind of file system that a folder is on; empty where the machine does not say."""
    if not mounts.is_file():
        return ""
    entries = [line.split() for line in mounts.read_text().splitlines()]
    parents = {str(folder), *map(str, folder.parents)}
    over = [(len(entry[1]), entry[2]) for entry in entries if entry[1] in parents]
    return max(over)[1] if over else ""


def _folder_of(url: str | None) -> Path:
    """The folder that holds a database on this machine, or would; else this one."""
    path = Path(url.removeprefix("lmdb:")) if url and ":" not in url.removeprefix("lmdb:") else None
    folder = Path.cwd() if path is None else path.absolute().parent
    return next(parent for parent in (folder, *folder.parents) if parent.is_dir())


def _sync_seconds(folder: Path) -> float:
    """The median time of a small write and its sync."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return sorted(took)[_SYNCS // 2]


def _print(finding: Finding) -> None:
    style = {Health.OK: "green", Health.WARNING: "yellow", Health.PROBLEM: "red"}[finding.health]
    console.print(f"[{style}]{finding.health:8}[/]", end=" ")
    text = f"{finding.about:11} {finding.text}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    if finding.remedy:
        console.print(" " * 21 + finding.remedy, markup=False, highlight=False, soft_wrap=True)
